#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launch a NetCRAQ chain in Mininet.

sudo .venv/bin/python topologies/launch.py                       # chain-4.json, with a prompt
sudo .venv/bin/python topologies/launch.py topologies/leaf-spine.json --switch bmv2
sudo .venv/bin/python topologies/launch.py --nodes 6 --profile 1024
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the packages are in the project's folder
    project = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(project), str(project / "client" / "python")]

from topologies import ownership, p4app
from topologies.controller import ADMIN


def add_switch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the kind of switches: :func:`kind_of` reads them."""
    parser.add_argument(
        "--switch", choices=p4app.SWITCHES, default="embedded", help="netcraq-switch, or simple_switch_grpc from PATH"
    )
    parser.add_argument("--engine", choices=p4app.ENGINES, default="auto", help="engine of the embedded switch")
    parser.add_argument(
        "--hook", choices=p4app.HOOKS, default="auto", help="kernel hook of the embedded switch's eBPF programs"
    )


def kind_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the kind of switches, as arguments of ChainNetwork."""
    return {"switch": options.switch, "engine": options.engine, "hook": options.hook}


def seconds(text: str) -> float:
    """Convert a flag's duration, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: pass seconds, more than 0")
    return value


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="launch.py", description="Launch a NetCRAQ chain in Mininet, from a topology file in p4-utils' form."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("file", nargs="?", type=Path, help="topology file (default: topologies/chain-4.json)")
    what.add_argument(
        "--nodes", type=int, metavar="N", help="instead of a file: N switches in a line (2 to 8), a host at each"
    )
    add_switch_arguments(parser)
    parser.add_argument(
        "--profile", type=int, choices=p4app.PROFILES, help="width of a value in bits, instead of the file's"
    )
    parser.add_argument(
        "--admin",
        default=ADMIN,
        metavar="HOST:PORT",
        help=f"address of the controller's page and metrics (default {ADMIN})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=p4app.ROOT / "out" / "network",
        metavar="DIR",
        help="folder for logs (default out/network)",
    )
    cli = "Mininet's prompt (default on a terminal); without it, run until SIGINT or SIGTERM"
    parser.add_argument("--cli", action=argparse.BooleanOptionalAction, default=sys.stdin.isatty(), help=cli)
    parser.add_argument("--check", action="store_true", help="check the file, describe its network, and start nothing")
    parser.add_argument(
        "--clean", action="store_true", help="only remove the leftovers of killed runs (every start does that, too)"
    )
    return parser


def chosen(options: argparse.Namespace) -> p4app.Topology:
    """Return the topology that the command line selects."""
    if options.nodes is not None:
        topology = p4app.check(p4app.line(options.nodes), f"a line of {options.nodes} switches")
    else:
        topology = p4app.load(options.file or Path(__file__).parent / "chain-4.json")
    return topology if options.profile is None else replace(topology, profile=options.profile)


def describe(topology: p4app.Topology) -> str:
    """Return a few lines that describe a topology."""
    lines = []
    for chain in topology.chains:
        where = f"service address {chain.service}, values of {topology.profile // 8} bytes, lease {chain.lease_ms} ms"
        lines.append(f"chain {chain.name} ({chain.id}): {' → '.join(chain.members)}; {where}")
    for switch in topology.switches.values():
        ports = sorted(
            (here.port, there.node)
            for link in topology.links
            for here, there in (link.ends, link.ends[::-1])
            if here.node == switch.name
        )
        hosts = ", ".join(f"{host.name} ({host.ip.ip})" for host in topology.hosts_at(switch.name))
        cables = " ".join(f"{port}→{node}" for port, node in ports)
        server = f"P4Runtime 127.0.0.1:{switch.grpc_port}"
        lines.append(
            f"  {switch.name}: {switch.address}, {server}, ports {cables}{f', hosts {hosts}' if hosts else ''}"
        )
    return "\n".join([*lines, *authority(topology)])


def authority(topology: p4app.Topology) -> list[str]:
    """Return a description of the hosts' rights: a line for the unrestricted hosts, one for the
    others, and one for the rate limits.
    """
    hosts = topology.hosts.values()
    free = [host.name for host in hosts if host.open]
    lines = []
    if len(free) == len(hosts):
        lines.append(f"every host may read and write every key: {topology.source} says no access; see docs/security.md")
    elif free:
        lines.append(
            f"{', '.join(free)} may read and write every key: {topology.source} says no access for {', '.join(free)}; see docs/security.md"
        )
    if len(free) < len(hosts):
        lines.append("access is restricted: " + "; ".join(_rights(topology)))
    rates = {host.name: topology.host_rate if host.rate is None else host.rate for host in hosts}
    if any(rates.values()):
        said = [f"{name} {rate:,}" if rate else f"{name} no bound" for name, rate in rates.items()]
        lines.append("NetCRAQ packets a second that hosts may send: " + ", ".join(said))
    return lines


def _rights(topology: p4app.Topology) -> list[str]:
    """Return the rights of the restricted principals, and the closed hosts."""
    said = []
    principals: dict[str, list[p4app.Host]] = {}
    for host in topology.hosts.values():
        if host.acts_as is None:
            said.append(f"{host.name} is closed")
        elif not host.open:
            principals.setdefault(host.acts_as, []).append(host)
    may = []
    for principal, hosts in principals.items():
        rights = topology.rights(hosts[0])
        words = [
            f"{verbs} {', '.join(realms)}"
            for right, verbs in (("write", "read and write"), ("read", "read"))
            if (realms := [realm for realm, given in rights.items() if given == right])
        ]
        names = ", ".join(host.name for host in hosts)
        who = names if names == principal else f"{principal} ({names})"
        may.append(f"{who} may {' and '.join(words) or 'touch no key'}")
    return may + said


NO_MININET = "Mininet is a Debian package, for Debian's Python only: run make deps, then use .venv/bin/python"

HINTS = """In its prompt h1, h2 ... are hosts:

  h1 bin/netcraqctl chain show              the chain as its controller sees it
  h1 bin/netcraqctl chain add-key NAME ON   place a key
  h1 bin/netcraqctl put NAME OFF            write at the head, wherever one is
  h2 bin/netcraqctl get NAME                read at the nearest switch
  sh bin/netcraqctl switch counters s2      what s2 has counted
  h2 bin/netcraqctl bench --duration 5s     queries a second
  h1 bin/netcraqctl page                    a link to the controller's page, for a browser of this machine's
  h1 ping h2                                hosts reach each other, too

exit, or Ctrl-D, ends the network. After sh, and in other terminals,
bin/netcraqctl asks the controller (chain, switch, page ...). get, put, cas and
bench ask switches, which only hosts reach. After h1, h2 ... the prompt makes
addresses of names such as s2."""


def prompt(mininet: object) -> None:
    """Show Mininet's prompt until it ends."""
    from mininet.cli import CLI
    from mininet.log import lg

    lg.setLogLevel("output")  # print the output of commands
    CLI.prompt = "netcraq> "
    CLI(mininet)


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise an exception, so that the program stops everything."""

    def end(number: int, _frame: object) -> None:
        for again in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(again, signal.SIG_IGN)  # nothing may interrupt the cleanup
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell has started the program in the background
        signal.signal(signal.SIGINT, end)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = arguments().parse_args(argv)
    try:
        if options.clean:
            ownership.reap()
            return 0
        topology = chosen(options)
        if options.check:
            print(describe(topology))
            return 0
        return launch(topology, options)
    except p4app.TopologyError as error:
        print(error, file=sys.stderr)
        return 2


def launch(topology: p4app.Topology, options: argparse.Namespace) -> int:
    """Start the network, and keep it until the user or a signal ends it."""
    try:
        from topologies.network import ChainNetwork, NodeError
    except ImportError as missing:
        print(f"{missing}: {NO_MININET}", file=sys.stderr)
        return 1
    end_on_signals()
    network = ChainNetwork(topology, **kind_of(options), admin=options.admin, out=options.out.absolute())
    try:
        with network:
            print(describe(topology))
            print(
                f"ready: {json.dumps({'admin': network.admin_url, 'page': f'http://{options.admin}/', 'logs': str(network.out)})}",
                flush=True,
            )
            if options.cli:
                print(f"\nThe network is up. {HINTS}\n", flush=True)
                prompt(network.mininet)
            else:
                wait_for_signal()
    except (NodeError, ownership.BusyError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def wait_for_signal() -> None:
    """Sleep until a signal's handler raises."""
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
