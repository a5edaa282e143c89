#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the gateway with placed keys against plain etcd (``make bench-etcd``).

etcd has three members, with TLS to clients and among themselves; the gateway also uses TLS to its
clients. The load is in a host of the chain's network.

1. The load (Zipf 0.99 over 10,000 keys, 8 outstanding queries, with 5 and with 20 % writes) at etcd
   and through its own grpc-proxy, in alternating order, several times. This comes before any key is
   placed, because writing a placed key past the gateways removes it from the network.
2. The same through the gateway, from the first second on, until the network answers half of the
   reads; then through the gateway and by client/etcd (``direct``: no process in between), in
   alternating order.
3. Reads of the hottest keys, one query at a time: at etcd, through the gateway, by client/etcd, and
   by the native client, in turn, several times.
4. Keys that are not placed, with etcd's own benchmark: ranges and puts, at etcd, through the
   gateway and through grpc-proxy, in alternating order; also puts through a gateway that sends
   them to etcd's members in turn instead of to the leader.

A missed aim in the table is marked, but the exit status is still 0, because the speed and the other
load of a machine are not mistakes. Wrong values are. ``out/bench-etcd.json`` has every repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from experiments.provenance import record  # noqa: E402
from topologies import launch, nodes  # noqa: E402

try:
    from experiments.etcd_network import BENCHMARK, EtcdNetwork, etcd_program
    from topologies.network import NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

LOAD = ["--zipf", "0.99", "-n", "8", "--fill=false"]
MIXES = {"5 % writes": "get=95,put=5", "20 % writes": "get=80,put=20"}
WAYS = ["etcd", "gateway", "direct", "grpc-proxy"]
PAST = ["etcd", "grpc-proxy"]
COLD = "/cold/"
"""The name prefix of keys that are not placed."""
UNPLACED = {"ranges": ["range", COLD, "/cold0"], "puts": ["put", "--key-space-size", "1000", "--val-size", "64"]}
"""For etcd's benchmark. Neither a range of several keys nor a write-only key is ever placed."""
HOTTEST = 8
"""The number of keys that are read one at a time."""


def median(values: list[float]) -> float:
    """The median, rounded as in the JSON."""
    return round(statistics.median(values), 2)


class Bench:
    """The measurements on a running network."""

    def __init__(self, network: EtcdNetwork, options: argparse.Namespace) -> None:
        self.network = network
        self.options = options
        self.keys = ["--keys", str(options.keys), "--value-size", "64"]
        self.idle = 0.0

    def fill(self) -> None:
        """Write every key once. Then measure the processor time of etcd's members while they are
        idle.
        """
        self.network.load(*self.keys, "--duration", "10ms", way="etcd", timeout=600)
        cpu, began = self.network.etcd_seconds(), time.monotonic()
        time.sleep(3)
        self.idle = (self.network.etcd_seconds() - cpu) / (time.monotonic() - began)

    def measure(self, seconds: float, way: str, mix: str = MIXES["5 % writes"]) -> dict[str, Any]:
        """Run the load for a while, and measure etcd's processor time beyond its idle use."""
        cpu, before, began = self.network.etcd_seconds(), self.network.counted(), time.monotonic()
        report = self.network.load(*self.keys, *LOAD, "--mix", mix, "--duration", f"{seconds}s", way=way)
        cpu, after = self.network.etcd_seconds() - cpu - self.idle * (time.monotonic() - began), self.network.counted()
        if report["failed"] + report["lost"] > report["queries"]:
            raise NodeError(f"the load by {way} failed {report['failed'] + report['lost']} times: is it still there?")
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

    def mixes(self, ways: list[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Measure each mix by each of these ways, in alternating order."""
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for name, mix in MIXES.items():
            found[name] = {way: [] for way in ways}
            for turn in range(self.options.repetitions):
                for way in ways if turn % 2 == 0 else reversed(ways):
                    found[name][way].append(self.measure(self.options.seconds, way, mix))
        return found

    def unplaced(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Run etcd's own benchmark on keys that are not placed, by each way of an etcd client, in
        alternating order. If grpc-proxy does not finish (3.6.16's has hung), report that; the
        repetition then has no figures for it.
        """
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for name, arguments in UNPLACED.items():
            ways = [way for way in WAYS if way != "direct"] + (["in-turn"] if name == "puts" else [])
            found[name] = {way: [] for way in ways}
            for turn in range(self.options.repetitions):
                for way in ways if turn % 2 == 0 else reversed(ways):
                    try:
                        found[name][way].append(self.network.benchmark(way, arguments, self.options.total))
                    except NodeError as why:
                        if way != "grpc-proxy":
                            raise
                        print(f"  {name}: {why}", flush=True)
                        found[name][way].append({"failed": str(why)})
        return found

    def warm_up(self) -> dict[str, Any]:
        """Run the load through the gateway until half of the reads are hits, second by second."""
        began, seconds = time.monotonic(), []
        while time.monotonic() - began < self.options.warm:
            seconds.append({"at": round(time.monotonic() - began, 1), **self.measure(1, "gateway")})
            if seconds[-1]["hit_rate"] >= 0.5:
                break
        reached = seconds[-1]["hit_rate"] >= 0.5
        return {"seconds_to_half": round(time.monotonic() - began, 1) if reached else None, "seconds": seconds}

    def hottest(self) -> dict[str, list[float]]:
        """The median latency of reads of the hottest keys, one at a time, in microseconds: a list
        of repetitions for each way.
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
            self.measure(1, "gateway")
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
        found: dict[str, list[float]] = {"etcd": [], "gateway": [], "direct": [], "native": []}
        self.network.load(*peer)  # fills every slot
        for _ in range(self.options.repetitions):
            for way in ("etcd", "gateway", "direct"):
                found[way].append(self.network.load(*peer, way=way)["ops"]["get"]["latencyMicros"]["p50"])
            for _ in range(3):  # repeat a run with lost queries, which on a busy machine are not a property of the way
                done = self.network.net.execute("h1", native, check=False)
                if done.returncode == 0:
                    break
            else:
                raise NodeError(f"netcraqctl bench: {done.stderr.strip() or done.stdout.strip()[-300:]}")
            found["native"].append(json.loads(done.stdout)["latencyMicros"]["p50"])
        return found


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench_etcd.py", description="Measure the gateway with placed keys against plain etcd."
    )
    launch.add_switch_arguments(parser)
    parser.add_argument("--keys", type=int, default=10_000, metavar="N", help="number of keys (default 10000)")
    parser.add_argument(
        "--seconds", type=float, default=3, metavar="N", help="length of each measurement under load (default 3)"
    )
    parser.add_argument(
        "--warm",
        type=float,
        default=60,
        metavar="N",
        help="seconds to wait for half of the reads to be hits (default 60)",
    )
    parser.add_argument(
        "--repetitions", type=int, default=4, metavar="N", help="repetitions of each measurement (default 4)"
    )
    parser.add_argument(
        "--etcd",
        default=etcd_program(),
        metavar="PROGRAM",
        help="etcd itself (default: bin/etcd, which make bench-etcd builds in the version in go.mod, or the one on PATH)",
    )
    parser.add_argument(
        "--total",
        type=int,
        default=20_000,
        metavar="N",
        help="requests of each run of etcd's benchmark (default 20000)",
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "bench-etcd.json", metavar="FILE", help="default out/bench-etcd.json"
    )
    return parser


def table(rows: list[tuple[str, str, str, str]]) -> str:
    """Format rows in columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def ratio(ways: dict[str, list[dict[str, Any]]], way: str, of: str, what: str) -> float:
    """The median of the ratios of one way's figures to another's, by repetition."""
    pairs = [(a[what], b[what]) for a, b in zip(ways[way], ways[of], strict=True) if what in a and what in b]
    return median([a / b for a, b in pairs if b] or [0.0])


def row(what: str, found: str, aim: str, met: bool) -> tuple[str, str, str, str]:
    """A row of the table with an aim."""
    return what, found, aim, "" if met else "MISSED"


def judge(result: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Compare the measured parts with the aims."""
    rows = [("", "measured", "aim", "")]
    if "warm_up" in result:
        to_half = result["warm_up"]["seconds_to_half"]
        text = f"{to_half:.0f} s" if to_half else "never"
        rows.append(row("until half of the reads are hits", text, "30 s", to_half is not None and to_half <= 30))
    for part, judged in (("one_at_a_time_us", judge_hottest), ("load", judge_load), ("unplaced", judge_unplaced)):
        if part in result:
            rows += judged(result[part])
    return rows


def judge_hottest(found: dict[str, list[float]]) -> list[tuple[str, str, str, str]]:
    """Judge reads of the hottest keys, one at a time."""
    one = {way: median(values) for way, values in found.items()}
    rows = [("a hot read, etcd, three members, TLS", f"{one['etcd']:.0f} µs", "", "")]
    for way, words, aim in (
        ("gateway", "through the gateway", 0.25),
        ("direct", "by client/etcd", 0.03),
        ("native", "by the native client", 0.05),
    ):
        part = one[way] / one["etcd"]
        rows.append(row(f"  {words}", f"{one[way]:.1f} µs, {part:.3f} of that", f"{aim:.3f}", part <= aim))
    return rows


def judge_load(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[tuple[str, str, str, str]]:
    """Judge both mixes by each way, relative to etcd's own."""
    rows = []
    for (name, ways), aim in zip(found.items(), (1.0, 0.9), strict=True):
        rate = median([r["queries_per_second"] for r in ways["etcd"]])
        rows.append((f"{name}: etcd", f"{rate:,.0f} queries/s", "", ""))
        for way in WAYS[1:]:
            part = ratio(ways, way, "etcd", "queries_per_second")
            p50, p99 = (ratio(ways, way, "etcd", f"read_{p}_us") for p in ("p50", "p99"))
            text = f"{part:.2f} of that; reads' p50 {p50:.2f}, p99 {p99:.2f}; writes' p50 {ratio(ways, way, 'etcd', 'write_p50_us'):.2f}"
            rows.append(
                row(f"  {way}", text, f"{aim:.2f}", part >= aim) if way != "grpc-proxy" else (f"  {way}", text, "", "")
            )
        hits = median([r["hit_rate"] for r in ways["gateway"]])
        rows.append(row("  hits of the gateway's reads", f"{100 * hits:.0f} %", "50 %", hits >= 0.5))
        cpu = ratio(ways, "gateway", "etcd", "etcd_cpu_us_per_query")
        rows.append(row("  etcd's processor time, behind the gateway", f"{cpu:.2f}", "< 1", cpu < 1))
    return rows


def judge_unplaced(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[tuple[str, str, str, str]]:
    """Judge etcd's own benchmark on keys that are not placed, relative to etcd itself and to
    grpc-proxy.
    """
    rows = []
    for name, ways in found.items():
        rows.append((f"{name}, not placed: etcd", f"{median([r['rate'] for r in ways['etcd']]):,.0f} a second", "", ""))
        rate, p50 = ratio(ways, "gateway", "etcd", "rate"), ratio(ways, "gateway", "etcd", "p50")
        rows.append(row("  the gateway's rate", f"{rate:.2f}", "0.85", rate >= 0.85))
        rows.append(row("  its p50", f"{p50:.2f}", "1.30", p50 <= 1.3))
        ended = sum("failed" not in run for run in ways["grpc-proxy"])
        if ended < len(ways["grpc-proxy"]):
            rows.append(("  grpc-proxy's runs that got to their end", f"{ended} of {len(ways['grpc-proxy'])}", "", ""))
        if ended:
            rate, p50 = ratio(ways, "gateway", "grpc-proxy", "rate"), ratio(ways, "gateway", "grpc-proxy", "p50")
            rows.append(row("  rate and p50 by grpc-proxy's", f"{rate:.2f}, {p50:.2f}", "> 1, < 1", rate > 1 > p50))
        if "in-turn" in ways:
            rate, p50 = ratio(ways, "gateway", "in-turn", "rate"), ratio(ways, "gateway", "in-turn", "p50")
            rows.append(("  and by those of one that asks all in turn", f"{rate:.2f}, {p50:.2f}", "", ""))
    return rows


def measure_all(network: EtcdNetwork, options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Measure every part in order. result gets each part as soon as it is measured."""
    bench = Bench(network, options)
    print(f"writing {options.keys:,} keys", flush=True)
    bench.fill()
    result["etcd_idle_processors"] = round(bench.idle, 4)
    result["engine"] = network.net.running_engine
    network.start_proxy()
    print("both mixes at etcd and through grpc-proxy", flush=True)
    past = bench.mixes(PAST)  # before placement, because writing a placed key past the gateways unplaces it
    print("the load through the gateway", flush=True)
    result["warm_up"] = bench.warm_up()
    print("both mixes through the gateway and by client/etcd", flush=True)
    result["load"] = {name: past[name] | ways for name, ways in bench.mixes(["gateway", "direct"]).items()}
    print("hot reads, one at a time", flush=True)
    result["one_at_a_time_us"] = bench.hottest()
    result["placed"] = len(network.placed())
    print("what is not placed, with etcd's benchmark", flush=True)
    result["unplaced"] = {}
    try:
        nodes.built(BENCHMARK)
    except NodeError:
        print(f"  not measured: bin/{BENCHMARK} is not built: make bench-etcd builds it", flush=True)
    else:
        network.start_in_turn()
        result["unplaced"] = bench.unplaced()


def go(options: argparse.Namespace) -> int:
    """Run the whole measurement, and return the exit status."""
    kind = launch.kind_of(options)
    etcd = subprocess.run([options.etcd, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    result: dict[str, Any] = {"run": record() | {"etcd": etcd}, "load_average": os.getloadavg()}
    out = options.out.absolute().parent / "bench-etcd"
    try:
        with EtcdNetwork(out, members=3, tls=True, etcd=options.etcd, **kind) as network:
            measure_all(network, options, result)
    finally:  # write the finished parts, even if a later part ends the run
        result["options"] = {
            name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
        print("\n" + table(judge(result)))
        load = f"load average before it began: {result['load_average'][0]:.1f} on {os.cpu_count()} processors"
        print(f"\n{etcd}; {load}; {options.out} has every repetition", flush=True)
    return 0


def main() -> int:
    """Run the benchmark and return the exit status."""
    try:
        return go(arguments().parse_args())
    except (NodeError, OSError) as why:
        sys.exit(f"bench_etcd.py: {why}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
