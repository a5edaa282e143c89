#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the gateway with placed keys against plain etcd (``make bench-etcd``).

etcd has three members, with TLS to clients and among themselves; so has the gateway to its clients.
The load is in a host of the chain's network.

1. The load (Zipf 0.99 over 10,000 keys, 95 % reads, 8 queries on their way) directly at etcd.
2. The same through the gateway, from the first second on, until half of the reads are answered by
   the network, and for a while after that.
3. One query at a time, reads of the hottest keys: at etcd, through the gateway, and by the native
   client, in turn, several times.

What misses an aim of the table is marked; the exit status is 0 all the same: how fast a machine is,
and what else it does, is no mistake. Values that are wrong are. ``out/bench-etcd.json`` has every
repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from experiments.bench import versions  # noqa: E402
from topologies import launch, nodes  # noqa: E402

try:
    from experiments.etcd_network import EtcdNetwork
    from topologies.network import NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

LOAD = ["--zipf", "0.99", "--mix", "get=95,put=5", "-n", "8", "--fill=false"]
HOTTEST = 8
"""Keys that are read one at a time."""


def median(values: list[float]) -> float:
    """The median, as the JSON has it."""
    return round(statistics.median(values), 2)


class Bench:
    """The measurements on a network that is up."""

    def __init__(self, network: EtcdNetwork, options: argparse.Namespace) -> None:
        self.network = network
        self.options = options
        self.keys = ["--keys", str(options.keys), "--value-size", "64"]
        self.idle = 0.0

    def fill(self) -> None:
        """Write every key once; then see what etcd's members use of the processors while nobody
        asks them anything.
        """
        self.network.load(*self.keys, "--duration", "10ms", direct=True, timeout=600)
        cpu, began = self.network.etcd_seconds(), time.monotonic()
        time.sleep(3)
        self.idle = (self.network.etcd_seconds() - cpu) / (time.monotonic() - began)

    def measure(self, seconds: float, direct: bool) -> dict[str, Any]:
        """The load for a while, and what it cost etcd beyond what it uses anyway."""
        cpu, before, began = self.network.etcd_seconds(), self.network.counted(), time.monotonic()
        report = self.network.load(*self.keys, *LOAD, "--duration", f"{seconds}s", direct=direct)
        cpu, after = self.network.etcd_seconds() - cpu - self.idle * (time.monotonic() - began), self.network.counted()
        new = {who: count - before.get(who, 0.0) for who, count in after.items()}
        reads = sum(new.values())
        return {
            "queries_per_second": round(report["queriesPerSecond"]),
            "read_p50_us": report["ops"]["get"]["latencyMicros"]["p50"],
            "read_p99_us": report["ops"]["get"]["latencyMicros"]["p99"],
            "write_p50_us": report["ops"]["put"]["latencyMicros"]["p50"],
            "hit_rate": round(new.get("network", 0.0) / reads, 4) if reads else 0.0,
            "etcd_cpu_us_per_query": round(cpu * 1e6 / report["queries"], 1),
            "failed": report["failed"] + report["lost"],
        }

    def warm_up(self) -> dict[str, Any]:
        """The load through the gateway until half of the reads are hits, second by second."""
        began, seconds = time.monotonic(), []
        while time.monotonic() - began < self.options.warm:
            seconds.append({"at": round(time.monotonic() - began, 1), **self.measure(1, direct=False)})
            if seconds[-1]["hit_rate"] >= 0.5:
                break
        reached = seconds[-1]["hit_rate"] >= 0.5
        return {"seconds_to_half": round(time.monotonic() - began, 1) if reached else None, "seconds": seconds}

    def hottest(self) -> dict[str, list[float]]:
        """The median latency of reads of the hottest keys, one at a time, in microseconds:
        repetitions by way.
        """
        names = [f"/bench/{n:08}" for n in range(HOTTEST)]
        deadline = time.monotonic() + self.options.warm
        while missing := [
            name
            for name in names
            if name not in (placed := {key["key"]: key["keyId"] for key in self.network.placed()})
        ]:
            if time.monotonic() > deadline:
                why = self.network.net.admin.placement()
                reasons = {key["key"]: key["reason"] for key in why["others"]}
                raise NodeError(
                    f"of the {HOTTEST} hottest keys {len(missing)} are not placed: {missing[0]}: {reasons.get(missing[0], 'not named')}"
                )
            self.measure(1, direct=False)
        peer = ["--keys", str(HOTTEST), "--value-size", "64", "--fill=false", "-n", "1", "--duration", "1s"]
        native = [
            "nice",
            "-n",
            "5",
            nodes.built("netcraqctl"),
            "-o",
            "json",
            "bench",
            "--serial",
            "-n",
            "1",
            "-d",
            "1s",
        ]
        native += ["--keys", ",".join(f"0x{placed[name]:08x}" for name in names)]
        found: dict[str, list[float]] = {"etcd": [], "gateway": [], "native": []}
        self.network.load(*peer)  # every slot is populated
        for _ in range(self.options.repetitions):
            found["etcd"].append(self.network.load(*peer, direct=True)["ops"]["get"]["latencyMicros"]["p50"])
            found["gateway"].append(self.network.load(*peer)["ops"]["get"]["latencyMicros"]["p50"])
            done = self.network.net.execute("h1", native, check=False)
            if done.returncode != 0:
                raise NodeError(f"netcraqctl bench: {done.stderr.strip()}")
            found["native"].append(json.loads(done.stdout)["latencyMicros"]["p50"])
        return found


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench_etcd.py", description="Measure the gateway with placed keys against plain etcd."
    )
    launch.add_switch_arguments(parser)
    parser.add_argument("--keys", type=int, default=10_000, metavar="N", help="keys (default 10000)")
    parser.add_argument(
        "--seconds", type=float, default=5, metavar="N", help="of each measurement under load (default 5)"
    )
    parser.add_argument(
        "--warm",
        type=float,
        default=60,
        metavar="N",
        help="seconds to wait for half of the reads to be hits (default 60)",
    )
    parser.add_argument(
        "--repetitions", type=int, default=5, metavar="N", help="of the reads one at a time (default 5)"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "bench-etcd.json", metavar="FILE", help="default out/bench-etcd.json"
    )
    return parser


def table(rows: list[tuple[str, str, str, str]]) -> str:
    """Rows in columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def judge(result: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What was measured beside the aims."""
    plain, placed, one = (
        result["load"]["etcd"],
        result["load"]["gateway"],
        {way: median(values) for way, values in result["one_at_a_time_us"].items()},
    )
    to_half = result["warm_up"]["seconds_to_half"]
    before, after = plain["etcd_cpu_us_per_query"], placed["etcd_cpu_us_per_query"]

    def row(what: str, found: str, aim: str, met: bool) -> tuple[str, str, str, str]:
        return what, found, aim, "" if met else "MISSED"

    ratio, native = one["gateway"] / one["etcd"], one["native"] / one["etcd"]
    return [
        ("", "measured", "aim", ""),
        row(
            "until half of the reads are hits",
            f"{to_half:.0f} s" if to_half else "never",
            "30 s",
            to_half is not None and to_half <= 30,
        ),
        row("hits under load after that", f"{100 * placed['hit_rate']:.0f} %", "50 %", placed["hit_rate"] >= 0.5),
        ("a hot read, etcd, three members, TLS", f"{one['etcd']:.0f} µs", "", ""),
        row("  through the gateway", f"{one['gateway']:.0f} µs, {ratio:.2f} of that", "0.50", ratio <= 0.5),
        row("  by the native client", f"{one['native']:.1f} µs, {native:.3f} of that", "0.050", native <= 0.05),
        (
            "under load: reads, etcd",
            f"{plain['read_p50_us']:.0f} µs, {plain['queries_per_second']:,} queries/s",
            "",
            "",
        ),
        (
            "under load: reads, the gateway",
            f"{placed['read_p50_us']:.0f} µs, {placed['queries_per_second']:,} queries/s",
            "",
            "",
        ),
        row(
            "etcd's processor time for a query",
            f"{after:.0f} µs, {after / before:.2f} of {before:.0f}",
            "< 1",
            after < before,
        ),
    ]


def go(options: argparse.Namespace) -> int:
    """The whole measurement; the exit status."""
    kind = launch.kind_of(options)
    result: dict[str, Any] = {"versions": versions(), "load_average": os.getloadavg()}
    with EtcdNetwork(options.out.absolute().parent / "bench-etcd", members=3, tls=True, **kind) as network:
        bench = Bench(network, options)
        print(f"writing {options.keys:,} keys", flush=True)
        bench.fill()
        print("the load at etcd", flush=True)
        result["etcd_idle_processors"] = round(bench.idle, 4)
        result["load"] = {"etcd": bench.measure(options.seconds, direct=True)}
        print("the load through the gateway", flush=True)
        result["warm_up"] = bench.warm_up()
        result["load"]["gateway"] = bench.measure(options.seconds, direct=False)
        print("hot reads, one at a time", flush=True)
        result["one_at_a_time_us"] = bench.hottest()
        result["engine"] = network.net.running_engine
        result["placed"] = len(network.placed())
    result["options"] = {
        name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print("\n" + table(judge(result)))
    print(
        f"\nload average before it began: {result['load_average'][0]:.1f} on {os.cpu_count()} processors; {options.out} has every repetition"
    )
    return 0


def main() -> int:
    """The command."""
    try:
        return go(arguments().parse_args())
    except (NodeError, OSError) as why:
        sys.exit(f"bench_etcd.py: {why}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
