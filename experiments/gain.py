#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show the benefit of the switches for a busy etcd (the second half of ``make run``).

An etcd of three members, a gateway, Prometheus, the controller and the switches run on this
machine. All loads have a rate far below the machine's capacity, so that latencies show the paths
and not the queueing for processors.

1. Placement is off. One hot key is read from etcd, and through the gateway, which asks etcd. The
   mix of reads and writes runs against etcd.
2. A lock is acquired and released, by etcd's ``concurrency`` package and by the node API.
3. Placement is on. The mix runs through the gateway until the switches answer half of the reads.
4. The hot key is read through the gateway, by client/etcd and by the native client. The mix runs
   through the gateway and by client/etcd, and etcd's processor time is compared.
5. A switch is killed while the gateway and the native client read and write.

Every read value is compared with the written value of its key. The run ends with exit status 1 if a
value is wrong, or if the network never answers half of the reads. ``out/gain.json`` has the
figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from netcraq.admin import AdminError  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments import one_load  # noqa: E402
from experiments.chain_session import shown  # noqa: E402
from experiments.provenance import versions  # noqa: E402
from topologies import launch, nodes, ownership  # noqa: E402

try:
    from experiments.etcd_network import HOST, LEASE_MS, EtcdNetwork
    from topologies.network import NodeError
    from topologies.sidecar import Sidecar
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

WIDTH = 80
"""The maximum width of the report, in columns."""
AT_ONCE = ("--placement-admit-after", "0s")
"""The controller's flag for how long a key must be hot before it is placed. A person waits here."""
PREFIX = "/bench/"
"""The prefix of the load's keys (experiments/peers)."""
MIX = ["--zipf", "0.99", "--mix", "get=95,put=5"]
HOT_RATE, MIX_RATE = 1000, 2000
FAILOVER_RATES = {"get": 400, "put": 100}
"""Requests a second of each load."""
NATIVE_KEYS = 16
"""Keys of the chain for the native client."""
ENOUGH, GOOD = 0.5, 0.7
"""The share of the mix's reads that the network must answer, and the share that ends the wait."""
WAYS = {
    "etcd": "etcd",
    "from_etcd": "gateway, from etcd",
    "gateway": "gateway, from the network",
    "direct": "client/etcd",
    "native": "native client",
}
"""The ways to a hot key, as the report names them."""


class Demonstration:
    """The measurements on a running network. ``result`` has the measurements so far."""

    def __init__(self, network: EtcdNetwork, options: argparse.Namespace) -> None:
        self.network = network
        self.options = options
        self.idle = 0.0
        self.result: dict[str, Any] = {
            "members": network.members,
            "switches": options.nodes,
            "keys": options.keys,
            "hot_rate": HOT_RATE,
            "mix_rate": MIX_RATE,
            "failover_rates": FAILOVER_RATES,
            "lease_ms": LEASE_MS,
            "hot": {},
            "lock": {},
            "processor": {},
        }

    def load(self, way: str, seconds: float, rate: int, *arguments: str) -> dict[str, Any]:
        """Run a load at a rate. NodeError: it made no request, or a value was wrong."""
        pace = ["--fill=false", "--rate", str(rate), "-n", "8", "--duration", f"{seconds}s", "--value-size", "64"]
        report = self.network.load(*pace, *arguments, way=way)
        if report["queries"] == 0:
            raise NodeError(f"the load by {way} made no request within {seconds} s")
        return report

    def place(self, choice: str) -> None:
        """Let the load's keys be placed, or prevent it: ``include``, ``exclude``."""
        self.network.net.admin.placement_rule(PREFIX, choice, prefix=True)

    def fill(self) -> None:
        """Write every key, and measure the idle processor time of etcd's members."""
        keys = ["--keys", str(self.options.keys), "--value-size", "64", "-n", "64", "--duration", "10ms"]
        self.network.load(*keys, "--mix", "get=1")
        names = {f"native{PREFIX}{n:08}": None for n in range(NATIVE_KEYS)}
        self.network.net.admin.add_keys(self.network.topology.chains[0].name, names)
        self.network.load("--keys", str(NATIVE_KEYS), "--value-size", "64", "--duration", "10ms", way="native")
        cpu, began = self.network.etcd_seconds(), time.monotonic()
        time.sleep(1.5)
        self.idle = (self.network.etcd_seconds() - cpu) / (time.monotonic() - began)

    def hot(self, name: str, way: str) -> None:
        """Read one key. The gateway's counters tell who answered."""
        before = self.network.counted()
        report = self.load(way, self.options.seconds, HOT_RATE, "--keys", "1")
        new = {who: count - before.get(who, 0.0) for who, count in self.network.counted().items()}
        check_answered(report, way, "get")
        latency = report["ops"]["get"]["latencyMicros"]
        self.result["hot"][name] = {
            "p50_us": latency["p50"],
            "p99_us": latency["p99"],
            "reads": report["queries"],
            "reads_per_second": round(report["queriesPerSecond"]),
            "failed": report["failed"] + report["lost"],
            "by_network": report.get("network", round(new.get("network", 0.0)))
            if way != "native"
            else report["queries"],
        }

    def processor(self, way: str) -> None:
        """Run the mix, and compute the processor time of 1,000 requests."""
        before = self.network.counted()
        etcd, gateway, began = self.network.etcd_seconds(), self.network.gateway_seconds(), time.monotonic()
        report = self.load(way, self.options.seconds + 1, MIX_RATE, "--keys", str(self.options.keys), *MIX)
        took, requests = time.monotonic() - began, report["queries"]
        check_answered(report, way, "get", "put")
        etcd = self.network.etcd_seconds() - etcd - self.idle * took
        gateway = self.network.gateway_seconds() - gateway
        client = report["cpuMicrosPerQuery"] * requests / 1e6
        reads = report["ops"]["get"]["queries"]
        new = {who: count - before.get(who, 0.0) for who, count in self.network.counted().items()}
        share = report.get("network", new.get("network", 0.0)) / reads
        self.result["processor"][way] = {
            "etcd_ms": round(1e6 * max(etcd, 0) / requests),
            "gateway_ms": round(1e6 * gateway / requests) if way == "gateway" else None,
            "client_ms": round(1e6 * client / requests),
            "requests_per_second": round(report["queriesPerSecond"]),
            "by_network": round(share, 3),
            "read_p50_us": report["ops"]["get"]["latencyMicros"]["p50"],
            "write_p50_us": report["ops"]["put"]["latencyMicros"]["p50"],
            "failed": report["failed"] + report["lost"],
        }

    def locks(self) -> None:
        """Measure a free lock, acquired and released by one client."""
        sidecar = Sidecar(self.network.net, HOST)
        sidecar.wait_ready()
        inside = ["mnexec", "-a", str(self.network.net.hosts[HOST].pid)]
        doors = [
            "timeout",
            "60",
            *inside,
            nodes.built("netcraq-doors", self.options.bin),
            "coordinate",
            "--job",
            "lock",
            "--warm",
            "20",
        ]
        urls = ",".join(f"http://{address}" for address in self.network.etcd_addresses())
        for door, address in (("etcd", urls), ("node", sidecar.socket)):
            flags = ["--door", door, "--address", address, "--seconds", str(self.options.seconds)]
            measured = one_load.run(f"locks by {door}", [*doors, *flags], [])
            self.result["lock"][door] = {name: measured[name] for name in ("p50_us", "p99_us", "calls")}

    def warm(self) -> None:
        """Run the mix through the gateway until the network answers half of the reads."""
        began, share = time.monotonic(), 0.0
        self.place("include")
        before = self.network.counted()
        while share < (GOOD if time.monotonic() - began < self.options.warm / 4 else ENOUGH):
            if time.monotonic() - began > self.options.warm:
                others = self.network.net.admin.placement()["others"]
                why = "; ".join(f"{key['key']}: {key['reason']}" for key in others[:3])
                raise NodeError(
                    f"the network did not come to answer {100 * ENOUGH:.0f} % of the reads within {self.options.warm} s: {why}"
                )
            self.load("gateway", 0.5, MIX_RATE, "--keys", str(self.options.keys), *MIX)
            now = self.network.counted()
            new = {who: count - before.get(who, 0.0) for who, count in now.items()}
            before = now
            share = new.get("network", 0.0) / max(sum(new.values()), 1)
        placement = self.network.net.admin.placement()
        self.result["placed"] = {
            "seconds": round(time.monotonic() - began, 1),
            "share": round(share, 3),
            "keys": sum(chain["placed"] for chain in placement["chains"]),
        }

    def failover(self) -> None:
        """Kill a switch in the middle of the chain under two loads, and restore it."""
        chain = self.network.topology.chains[0]
        victim = chain.members[len(chain.members) // 2]
        seconds = self.options.seconds + 2
        timer = threading.Timer(1.5, self.network.net.kill_switch, [victim])
        timer.start()
        # Each load is a process with many outstanding requests, so a waiting request delays no
        # others.
        wide = ["--keys", str(NATIVE_KEYS), "--timeout", "3s", "-n", "64"]
        with ThreadPoolExecutor() as pool:
            loads = {
                way: {
                    op: pool.submit(self.load, way, seconds, rate, *wide, "--mix", f"{op}=1")
                    for op, rate in FAILOVER_RATES.items()
                }
                for way in ("gateway", "native")
            }
        timer.join()
        began = time.monotonic()
        self.network.bring_back(victim)
        self.result["failover"] = {
            "switch": victim,
            "back_seconds": round(time.monotonic() - began, 1),
            "loads": {way: {op: cost_of_kill(of.result(), op) for op, of in ops.items()} for way, ops in loads.items()},
        }


def check_answered(report: dict[str, Any], way: str, *operations: str) -> None:
    """Raise NodeError if no request of an operation was answered: it would have no latency."""
    for operation in operations:
        if report["ops"].get(operation, {"ok": 0})["ok"] == 0:
            raise NodeError(
                f"the load by {way} got no answer to a {operation}: try again when the machine has less to do"
            )


def cost_of_kill(report: dict[str, Any], operation: str) -> dict[str, Any]:
    """Return what a killed switch did to the requests of an operation. longest_ms is None if no
    request was answered.
    """
    of = report["ops"].get(operation, {"queries": 0, "ok": 0, "lost": 0, "failed": 0, "over10ms": 0})
    return {
        "requests": of["queries"],
        "longest_ms": round(of["latencyMicros"]["max"] / 1000, 1) if of["ok"] else None,
        "over_10_ms": of["over10ms"],
        "failed": of["failed"] + of["lost"],
    }


# ---- Output ----


def table(*columns: str) -> Table:
    """Return a table whose first column is words and whose others are numbers."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=False)
    view.add_column(columns[0], min_width=30, no_wrap=True)
    for column in columns[1:]:
        view.add_column(column, justify="right", no_wrap=True, min_width=9)
    return view


def micros(value: float) -> str:
    """Format a latency in microseconds."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def hot_table(result: dict[str, Any]) -> Table:
    """Show one hot key, read by every way."""
    view = table(f"one hot key, {result['hot_rate']:,} reads/s", "p50 µs", "p99 µs", "p50 by etcd's")
    base = result["hot"]["etcd"]["p50_us"]
    for way, words in WAYS.items():
        of = result["hot"][way]
        view.add_row(words, micros(of["p50_us"]), micros(of["p99_us"]), f"{of['p50_us'] / base:.3f}")
    return view


def lock_table(result: dict[str, Any]) -> Table:
    """Show a lock that is acquired and released."""
    view = table("lock and unlock, one client", "p50 µs", "p99 µs", "p50 by etcd's")
    base = result["lock"]["etcd"]["p50_us"]
    for door, words in (("etcd", "etcd's concurrency package"), ("node", "node API, by the switches")):
        of = result["lock"][door]
        view.add_row(words, micros(of["p50_us"]), micros(of["p99_us"]), f"{of['p50_us'] / base:.3f}")
    return view


def processor_table(result: dict[str, Any]) -> Table:
    """Show the processor time of 1,000 requests of the mix."""
    view = table(f"processor ms, 1,000 of {result['mix_rate']:,}/s", "etcd", "gateway", "client", "in all")
    for way, words in (("etcd", "etcd"), ("gateway", "through the gateway"), ("direct", "client/etcd")):
        of = result["processor"][way]
        parts = [of["etcd_ms"], of["gateway_ms"], of["client_ms"]]
        view.add_row(
            words, *("-" if part is None else f"{part:,}" for part in [*parts, sum(part or 0 for part in parts)])
        )
    return view


def failover_table(result: dict[str, Any]) -> Table:
    """Show the effect of a killed switch."""
    found = result["failover"]
    view = table(f"{found['switch']} is killed under load", "longest ms", "over 10 ms", "failed", "of")
    for way, words in (("gateway", "gateway"), ("native", "native client")):
        for op, name in (("get", "reads"), ("put", "writes")):
            of = found["loads"][way][op]
            view.add_row(
                f"{words}, {name}",
                "-" if of["longest_ms"] is None else f"{of['longest_ms']:,.1f}",
                f"{of['over_10_ms']:,}",
                f"{of['failed']:,}",
                f"{of['requests']:,}",
            )
    return view


def saved(result: dict[str, Any], way: str) -> str:
    """Compare etcd's processor time by a way with its processor time without the network."""
    base, now = result["processor"]["etcd"]["etcd_ms"], result["processor"][way]["etcd_ms"]
    if not base:
        return "not measured"
    return f"{100 * (base - now) / base:.0f} % saved" if now <= base else f"{100 * (now - base) / base:.0f} % more"


def slower_than(of: dict[str, Any], base: dict[str, Any]) -> str:
    """Return the latencies that are longer than etcd's, and by how much, rounded to one digit; ""
    if none is longer.
    """
    times = {what: of[f"{what}_us"] / base[f"{what}_us"] for what in ("p50", "p99")}
    longer = " and ".join(f"{what} {by:,.1f}" for what, by in times.items() if by > 1.05)
    return longer and f"{longer} times etcd's"


def worse(result: dict[str, Any]) -> list[str]:
    """Return one line for each figure that is worse than etcd alone, and for each failure."""
    found, hot, lock, processor = [], result["hot"], result["lock"], result["processor"]
    for way, words in list(WAYS.items())[1:]:
        if slower := slower_than(hot[way], hot["etcd"]):
            found.append(f"a read, {words}: {slower}")
    if slower := slower_than(lock["node"], lock["etcd"]):
        found.append(f"lock and unlock, node API: {slower}")
    base = processor["etcd"]
    for way, words in (("gateway", "gateway"), ("direct", "client/etcd")):
        of = processor[way]
        if (by := of["write_p50_us"] / base["write_p50_us"]) > 1.05:
            found.append(f"a write of the mix, {words}: p50 {by:,.1f} times etcd's")
        if of["etcd_ms"] + (of["gateway_ms"] or 0) + of["client_ms"] > base["etcd_ms"] + base["client_ms"]:
            found.append(f"{words}: etcd, gateway and client use more processor time together")
    if result["load_average"] > result["processors"]:
        busy = f"load average {result['load_average']:.0f}, {result['processors']} processors"
        found.append(f"the machine was busy before this began: {busy}")
    late = [WAYS[way] for way, of in hot.items() if of["reads_per_second"] < 0.9 * result["hot_rate"]]
    late += [f"mix by {way}" for way, of in processor.items() if of["requests_per_second"] < 0.9 * result["mix_rate"]]
    if late:
        found.append(f"slower than their rate, so that requests waited: {', '.join(late)}")
    failed = sum(of["failed"] for of in [*hot.values(), *processor.values()])
    if failed:
        found.append(f"{failed:,} requests failed while nothing was killed")
    return found


def report(console: Console, result: dict[str, Any]) -> None:
    """Print all tables, and the remaining results in words."""

    def show(what: object) -> None:
        console.print(what, highlight=False)

    for view in (hot_table, lock_table, processor_table):
        show("")
        show(view(result))
    shares = [100 * result["processor"][way]["by_network"] for way in ("gateway", "direct")]
    show(
        f"of etcd's processor time {saved(result, 'gateway')} by the gateway, {saved(result, 'direct')} by client/etcd\n"
        f"(switches answer {shares[0]:.0f} % and {shares[1]:.0f} % of the reads; writes all go to etcd)"
    )
    show("")
    show(failover_table(result))
    again = (
        f"{result['failover']['switch']} was a member again {result['failover']['back_seconds']} s after its restart"
    )
    show(f"{again}; read leases last {result['lease_ms']:,} ms at most")
    show("")
    for line in worse(result):
        show(f"[yellow]![/yellow] {line}")
    show("[green]✓[/green] every value that was read is one that was written to its key")


# ---- The run ----


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="gain.py", description="Show what the switches gain for a busy etcd.")
    parser.add_argument("--nodes", type=int, default=4, metavar="N", help="switches in a ring, 3 to 8 (default 4)")
    launch.add_switch_arguments(parser)
    parser.add_argument("--keys", type=int, default=500, metavar="N", help="number of keys in the mix (default 500)")
    parser.add_argument(
        "--seconds", type=launch.seconds, default=2, metavar="N", help="length of each measurement (default 2)"
    )
    parser.add_argument(
        "--warm",
        type=launch.seconds,
        default=40,
        metavar="N",
        help="time limit in seconds for placing keys (default 40)",
    )
    parser.add_argument(
        "--bin", default="bin", metavar="DIR", help="folder of the programs that make load (default bin)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "out" / "gain.json",
        metavar="FILE",
        help="file for the results (default out/gain.json)",
    )
    return parser


def measure(demonstration: Demonstration, say: Callable[[str], None]) -> None:
    """Run every part, one after the other."""
    d, result = demonstration, demonstration.result
    d.place("exclude")
    d.fill()
    d.hot("etcd", "etcd")
    d.hot("from_etcd", "gateway")
    d.processor("etcd")
    d.locks()
    say("measured etcd, with no key placed")
    d.warm()
    placed = result["placed"]
    say(
        f"{placed['keys']} of {result['keys']} keys placed within {placed['seconds']} s: "
        f"switches answer {100 * placed['share']:.0f} % of the mix's reads"
    )
    for way in ("gateway", "direct", "native"):
        d.hot(way, way)
    d.processor("gateway")
    d.processor("direct")
    say("measured the network")
    d.failover()


def go(options: argparse.Namespace, console: Console) -> int:
    """Run the whole demonstration, and return the exit status."""
    began, load_average = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        console.print(f"[green]✓[/green] {text}", highlight=False)

    console.print("[bold]The gain[/bold]: hot keys of a busy etcd, answered by switches\n", highlight=False)
    out = options.out.absolute().parent / "gain"
    with EtcdNetwork(
        out, switches=options.nodes, members=3, bin=options.bin, flags=AT_ONCE, **launch.kind_of(options)
    ) as network:
        say(
            f"an etcd of {network.members} members, {options.nodes} switches ({network.net.running_engine}) "
            f"and a gateway up in {time.monotonic() - began:.1f} s"
        )
        demonstration = Demonstration(network, options)
        result = demonstration.result
        result |= {"versions": versions(), "engine": network.net.running_engine, "load_average": load_average}
        result["processors"] = os.cpu_count()
        measure(demonstration, say)
    result["took_seconds"] = round(time.monotonic() - began, 1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    report(console, result)
    console.print(
        f"[dim]{result['took_seconds']:.0f} s in all; figures in {shown(options.out)}, logs in {shown(out)}/[/dim]",
        highlight=False,
    )
    return 0


def main() -> int:
    """Run the command."""
    options = arguments().parse_args()
    if not 3 <= options.nodes <= 8:
        sys.exit("gain.py: --nodes: pass 3 to 8, so that a chain is left when a switch is killed")
    launch.end_on_signals()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    try:
        return go(options, console)
    except (AdminError, NodeError, ownership.BusyError, OSError, one_load.Failed) as why:
        sys.exit(f"gain.py: {why}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
