#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start a chain, load real etcd keys, query every switch, write at the head, check every value, and
show what happened (``make run``).

1. The chain starts in Mininet: a host at every switch, a controller over P4Runtime.
2. The keys of an etcd export whose values fit are placed. Each other key is named, with the reason.
3. Every key is read at every switch.
4. The gets and puts of a recorded trace are replayed, compressed in time: reads from the hosts in
   turn, writes from the head's host.
5. Every host reads at its switch as fast as replies arrive, while the head's host writes.
6. Every key is read at every switch again.
7. Every value that a read returned is checked against the values written until then, and the
   clients' counts are checked against the switches' counters.

A run with a wrong value or an unanswered query ends with exit status 1. ``out/run.json`` has the
figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from netcraq import node  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.padding import Padding  # noqa: E402
from rich.panel import Panel  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402

from experiments import etcd_data  # noqa: E402
from experiments.chain_session import ChainRun, Queries, RunError, shown, writer_of  # noqa: E402
from experiments.provenance import versions  # noqa: E402
from experiments.query_generator import percentile  # noqa: E402
from topologies import launch, nodes, ownership, p4app  # noqa: E402

try:
    from topologies.network import ChainNetwork, Counters, NodeError
    from topologies.sidecar import VARIABLE, Sidecar
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

PROFILE = 8192
"""Kubernetes' values are long: this profile holds four of five of them unchanged; the paper's 128
bits hold none (experiments/data/README.md).
"""


LEASE_MS = 1000
"""The demonstration shows an intact chain. On a machine that also compiles, the default lease of
200 ms sometimes expires, and the chain removes a live member.
"""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="demo.py", description="Start a chain, load etcd keys, query every switch, check every value."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--nodes", type=int, default=4, metavar="N", help="switches in a line, 2 to 8 (default 4)")
    what.add_argument("--topology", type=Path, metavar="FILE", help="a topology file instead")
    launch.add_switch_arguments(parser)
    parser.add_argument(
        "--profile",
        type=int,
        choices=p4app.PROFILES,
        default=PROFILE,
        help=f"width of a value in bits (default {PROFILE})",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        default=etcd_data.EXPORT,
        metavar="FILE",
        help="etcd export (etcdctl get --prefix / -w json)",
    )
    parser.add_argument(
        "--trace", type=Path, default=etcd_data.TRACE, metavar="FILE", help="recorded requests to replay"
    )
    parser.add_argument(
        "--replay",
        type=launch.seconds,
        default=4,
        metavar="SECONDS",
        help="length to compress the trace to (default 4)",
    )
    parser.add_argument(
        "--load",
        type=launch.seconds,
        default=2,
        metavar="SECONDS",
        help="length of the reads at every switch and writes at the head (default 2)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "out" / "run.json",
        metavar="FILE",
        help="file for the results (default out/run.json)",
    )
    parser.add_argument("--keep", action="store_true", help="leave the network up, with a prompt")
    return parser


def chosen(options: argparse.Namespace) -> p4app.Topology:
    """Return the topology that the command line selects."""
    if options.topology is not None:
        return replace(p4app.load(options.topology), profile=options.profile)
    topology = p4app.check(p4app.line(options.nodes, options.profile), f"a line of {options.nodes} switches")
    return replace(topology, chains=(replace(topology.chains[0], lease_ms=LEASE_MS),))


def check_access(topology: p4app.Topology, entries: list[etcd_data.Entry]) -> None:
    """Raise RunError if a host lacks access: every host reads every key, and the head's first host
    writes.
    """
    realms = {topology.realm_of(entry.key) for entry in entries}
    for host in topology.hosts.values():
        if missing := realms - topology.rights(host).keys():
            raise RunError(
                f"{host.name} may not read the realm {min(missing)}, and here every host reads every key: change {topology.source}"
            )
    writer = writer_of(topology)
    if missing := {realm for realm in realms if topology.rights(writer)[realm] != "write"}:
        raise RunError(
            f"{writer.name} may not write the realm {min(missing)}, and here it writes: change {topology.source}"
        )


# ---- Output ----


def picture(topology: p4app.Topology) -> Text:
    """Draw the members of the chain, head to tail, and their hosts."""
    members = topology.chains[0].members
    width = max(9, max(map(len, members)) + 4)
    hosts = [" ".join(host.name for host in topology.hosts_at(name)) for name in members]
    text = Text()
    for row, style in (
        ([name.center(width) for name in hosts], "cyan"),
        ([("│" if name else "").center(width) for name in hosts], "dim"),
        ([_arrow(name, width, i, len(members)) for i, name in enumerate(members)], "bold"),
        ([role(i, len(members)).center(width) for i in range(len(members))], "dim"),
    ):
        text.append("".join(row).rstrip() + "\n", style=style)
    text.rstrip()
    text.no_wrap = True
    return text


def _arrow(name: str, width: int, place: int, members: int) -> str:
    """Return a member's name in the middle of its column, with the column's part of the arrows to
    the neighbours.
    """
    left = (width - len(name)) // 2
    right = width - len(name) - left
    before = " " * left if place == 0 else "─" * (left - 2) + "▶ "
    after = "" if place == members - 1 else " " + "─" * (right - 1)
    return before + name + after


def role(place: int, members: int) -> str:
    """Return the role of the member at a place."""
    if members == 1:
        return "head, tail"
    return "head" if place == 0 else "tail" if place == members - 1 else "replica"


def rows(run: ChainRun, before: dict[str, Counters], after: dict[str, Counters]) -> list[dict[str, Any]]:
    """Return a row for each switch: its own counters, and the measurements of the clients at its
    hosts.
    """
    members = run.chain.members
    found = []
    for name in [*members, *(name for name in after if name not in members)]:
        events = after[name].since(before[name])
        seconds = sorted(second for queries in run.phases.values() for second in queries.read_seconds.get(name, []))
        found.append(
            {
                "switch": name,
                "role": role(members.index(name), len(members)) if name in members else "none",
                "clean_reads": events.get("read_clean", 0),
                "forwarded": events.get("read_forwarded", 0),
                "newest_reads": events.get("read_dirty", 0),
                "writes": sum(events.get(event, 0) for event in ("write_assigned", "write_stored", "write_committed")),
                "reads_measured": len(seconds),
                "p50_us": round(percentile(seconds, 50) * 1e6, 1) if seconds else None,
                "p99_us": round(percentile(seconds, 99) * 1e6, 1) if seconds else None,
            }
        )
    return found


def table(found: list[dict[str, Any]]) -> Table:
    """The rows as a table."""
    view = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    view.add_column("switch", style="bold")
    view.add_column("role", style="dim")
    for name in ("clean reads", "sent to tail", "writes", "p50 µs", "p99 µs"):
        view.add_column(name, justify="right", no_wrap=True)
    for row in found:
        latency = [f"{row[name]:,.0f}" if row[name] is not None else "-" for name in ("p50_us", "p99_us")]
        view.add_row(
            row["switch"], row["role"], *(f"{row[name]:,}" for name in ("clean_reads", "forwarded", "writes")), *latency
        )
    return view


def summary(run: ChainRun) -> dict[str, Any]:
    """The figures of the whole run."""
    phases = run.phases.values()
    load = run.phases["load"]
    writes = sorted(second for queries in phases for second in queries.write_seconds)
    return {
        "queries": sum(queries.reads + queries.writes for queries in phases),
        "reads": sum(queries.reads for queries in phases),
        "writes": sum(queries.writes for queries in phases),
        "lost": sum(queries.lost for queries in phases),
        "sent_again": sum(queries.repeated for queries in phases),
        "queries_per_second": round((load.reads + load.writes) / run.facts["load"]["seconds"]),
        "write_p50_us": round(percentile(writes, 50) * 1e6, 1) if writes else None,
        "write_p99_us": round(percentile(writes, 99) * 1e6, 1) if writes else None,
    }


def verdict(console: Console, figures: dict[str, Any], wrong: list[str]) -> None:
    """Print the result of the run."""
    lost = f"{figures['lost']} lost" if figures["lost"] else "none lost"
    again = f", {figures['sent_again']:,} packets sent again" if figures["sent_again"] else ""
    console.print(
        f"  {figures['queries']:,} queries, {lost}{again}; {figures['queries_per_second']:,} a second under load",
        highlight=False,
    )
    if figures["write_p50_us"] is not None:
        p50, p99 = (f"{figures[name]:,.0f}" for name in ("write_p50_us", "write_p99_us"))
        console.print(
            f"  a write, from the head's host to the tail and back: p50 {p50} µs, p99 {p99} µs", highlight=False
        )
    console.print()
    if wrong:
        lines = "\n".join(wrong[:20]) + (f"\n... and {len(wrong) - 20} more" if len(wrong) > 20 else "")
        console.print(
            Panel(Text(lines), title=f"WRONG: {len(wrong)} findings", border_style="bold red", title_align="left")
        )
    else:
        checked = f"each of the {figures['reads']:,} values read is the one written, and never an older one"
        console.print(f"  [bold green]✓[/bold green] [bold]{checked}[/bold]", highlight=False)


# ---- The run ----


def go(options: argparse.Namespace, console: Console) -> int:
    """Run everything, from reading the files to stopping the network, and return the exit
    status.
    """
    began = time.monotonic()
    topology, entries, trace = chosen(options), etcd_data.read_export(options.keys), etcd_data.read_trace(options.trace)
    check_access(topology, entries)
    members = len(topology.chains[0].members)
    console.print(
        f"\n[bold]NetCRAQ[/bold], a chain of {members} switches with values of up to {topology.profile // 8:,} bytes\n",
        highlight=False,
    )
    console.print(Padding(picture(topology), (0, 0, 1, 2), expand=False))

    def say(text: str) -> None:
        console.print(f"  [green]✓[/green] {text}", highlight=False)

    def add(text: str) -> None:
        console.print(f"    [dim]{text}[/dim]", highlight=False)

    with console.status("starting the network"):
        net = ChainNetwork(topology, **launch.kind_of(options), out=options.out.absolute().parent / "network")
        net.start()
    try:
        run = ChainRun(net, say, add)
        name = f"netcraq-switch, {net.running_engine}" if options.switch == "embedded" else "simple_switch_grpc"
        say(f"switches, hosts and controller up in {time.monotonic() - began:.1f} s: {name}")
        for line in launch.authority(topology):
            add(line)
        sidecars = [Sidecar(net, host) for host in topology.hosts]
        with console.status("placing keys"):
            run.spawn_clients()
            run.place(options.keys, entries)
            run.start_clients()
        before = net.all_counters()
        with console.status("reading every key at every switch"):
            run.read_everything()
        with console.status("replaying etcd's traffic"):
            run.replay(options.trace, trace, options.replay)
        with console.status("reading at every switch, writing at the head"):
            run.load(options.load)
        with console.status("reading every key at every switch again"):
            run.read_everything("again")
        after = net.all_counters()
        found, figures, wrong = rows(run, before, after), summary(run), run.wrong(before, after)
        wrong += [f"{figures['lost']} queries were not answered"] if figures["lost"] else []
        console.print()
        console.print(Padding(table(found), (0, 0, 0, 2), expand=False))
        console.print("  [dim]counted by the switches (at the tail with those sent to it), timed by hosts[/dim]\n")
        verdict(console, figures, wrong)
        write_result(options, topology, run, found, figures, wrong)
        show_node_api(net, sidecars, say)
        add(f"{time.monotonic() - began:.0f} s in all; figures in {shown(options.out)}, logs in {shown(net.out)}/")
        if options.keep:
            console.print(f"\n  The network stays up. {launch.HINTS}\n", highlight=False, markup=False, soft_wrap=True)
            for sidecar in sidecars:
                net.hosts[sidecar.host].cmd(f"export {VARIABLE}={sidecar.socket}")
            add(f"the node API beside {sidecars[0].host}, from any terminal, after")
            # Print this on a line of its own at any width: a wrapped assignment sets nothing when
            # it is pasted.
            console.print(f"export {VARIABLE}={sidecars[0].socket}\n", highlight=False, markup=False, soft_wrap=True)
            launch.prompt(net.mininet)
        return 1 if wrong else 0
    finally:
        net.stop()


def show_node_api(net: ChainNetwork, sidecars: list[Sidecar], say: Callable[[str], None]) -> None:
    """Show a program at one host that writes under a lock, and one at another host that reads.
    Raises NodeError if they fail.
    """
    for sidecar in sidecars:
        sidecar.wait_ready()
    first, last = sidecars[0], sidecars[-1]
    with node.connect(first.socket) as writer, node.connect(last.socket) as reader:
        with writer.lock("demo") as lock:
            writer.put("demo", str(lock.token))
        if reader.get("demo").text != str(lock.token):
            raise nodes.NodeError("what was written by the node API is not what is read by it")
    say(f"a node API at each host: written at {first.host} under a lock, read at {last.host}")


def write_result(
    options: argparse.Namespace,
    topology: p4app.Topology,
    run: ChainRun,
    found: list[dict[str, Any]],
    figures: dict[str, Any],
    wrong: list[str],
) -> None:
    """Write ``out/run.json``."""

    def phase(queries: Queries) -> dict[str, Any]:
        return {"reads": queries.reads, "writes": queries.writes, "lost": queries.lost, "sent_again": queries.repeated}

    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "ok": not wrong,
        "switch": options.switch,
        "engine": run.net.running_engine,
        "profile": topology.profile,
        "chain": {"members": list(run.chain.members), "lease_ms": run.chain.lease_ms},
        "versions": versions(),
        "summary": figures,
        "switches": found,
        "phases": {name: phase(queries) for name, queries in run.phases.items()},
        **run.facts,
        "wrong": wrong,
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = arguments().parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=80)
    launch.end_on_signals()
    try:
        return go(options, console)
    except (p4app.TopologyError, etcd_data.DataError) as error:
        print(error, file=sys.stderr)
        return 2
    except (NodeError, RunError, ownership.BusyError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
