#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the chain of four switches: queries a second and latency, on the embedded switch and, where it is installed, on BMv2 (``make bench``).

Both run the same compiled program on the same links, one after the other in one run, with the same load generator (``netcraqctl bench``) in a host at
the first switch. What it asks for:

    read, one switch     a clean read that the client's own switch answers
    read, far switch     the same of the last switch of the line: there and back through all of them
    write                from the client through head, replicas and tail, and the tail's reply back
    mixed                95 % reads at the client's own switch, 5 % writes

*serial* has one query on its way at a time (latency), *pipelined* 32 (throughput; BMv2 drops bursts of more than 32 frames a port). Beside each
figure stands how much of a core the generator took: where that is near 1, the generator is the bottleneck and not the switch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from topologies import p4app  # noqa: E402
from topologies.network import ChainNetwork  # noqa: E402

KEYS = 256
PIPELINED = 32
CASES: list[tuple[str, str, list[str]]] = [
    ("read, one switch", "serial", ["--switch", "s1", "--mix", "get=1", "--serial"]),
    ("read, one switch", "pipelined", ["--switch", "s1", "--mix", "get=1", "--outstanding", str(PIPELINED)]),
    ("read, far switch", "serial", ["--switch", "s4", "--mix", "get=1", "--serial"]),
    ("read, far switch", "pipelined", ["--switch", "s4", "--mix", "get=1", "--outstanding", str(PIPELINED)]),
    ("write", "serial", ["--mix", "put=1", "--serial"]),
    ("write", "pipelined", ["--mix", "put=1", "--outstanding", str(PIPELINED), "--sessions", str(PIPELINED)]),
    ("mixed", "pipelined", ["--mix", "get=95,put=5", "--outstanding", str(PIPELINED), "--sessions", str(PIPELINED)]),
]


def versions() -> dict[str, str]:
    """What the figures were measured with and on."""

    def said(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip().splitlines()[0]
        except (OSError, IndexError):
            return ""

    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return {
        "commit": said("git", "rev-parse", "HEAD") + ("-dirty" if said("git", "status", "--porcelain") else ""),
        "kernel": platform.release(),
        "cpu": f"{os.cpu_count()} x {model}",
        "netcraq-switch": said("bin/netcraq-switch", "--version"),
        "simple_switch_grpc": said("simple_switch_grpc", "--version") if shutil.which("simple_switch_grpc") else "not installed",
    }


def measure(net: ChainNetwork, arguments: list[str], seconds: float) -> dict[str, Any]:
    """One run of the load generator in h1: what it reports, and the share of a core that it took."""
    command = ["bin/netcraqctl", "bench", "-o", "json", "--duration", f"{seconds}s", *arguments]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = net.execute("h1", command, timeout=seconds + 60, check=False)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}{done.stdout}")
    report = json.loads(done.stdout)
    report["generatorCores"] = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / wall
    return report


def run(switch: str, engine: str, seconds: float, repetitions: int, console: Console) -> list[dict[str, Any]]:
    """All cases on one kind of switch: of each, the repetition with the median throughput, and the spread."""
    rows = []
    with ChainNetwork(p4app.load(ROOT / "topologies" / "chain-4.json"), switch=switch, engine=engine) as net:
        chain = net.topology.chains[0].name
        net.admin.add_keys(chain, {f"/bench/{i}": f"value {i}".encode() for i in range(KEYS)})
        for what, how, arguments in CASES:
            console.print(f"[dim]{switch} {engine}: {what}, {how}[/dim]")
            reports = sorted((measure(net, arguments, seconds) for _ in range(repetitions)), key=lambda r: r["queriesPerSecond"])
            median = reports[len(reports) // 2]
            rows.append(
                {
                    "switch": switch,
                    "engine": engine,
                    "case": what,
                    "mode": how,
                    "slowest": reports[0]["queriesPerSecond"],
                    "fastest": reports[-1]["queriesPerSecond"],
                    "repetitions": repetitions,
                    "seconds": seconds,
                    "report": median,
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people, with each case's ratio to BMv2 where both were measured."""
    out = Table(title="Four switches, 128-bit values (median of the repetitions)")
    for column in ("case", "mode", "switch"):
        out.add_column(column)
    for column in ("queries/s", "spread", "p50 µs", "p99 µs", "lost", "generator", "to BMv2"):
        out.add_column(column, justify="right")
    bmv2 = {(row["case"], row["mode"]): row["report"]["queriesPerSecond"] for row in rows if row["switch"] == "bmv2"}
    for row in sorted(rows, key=lambda r: [c[:2] for c in CASES].index((r["case"], r["mode"]))):
        report, name = row["report"], row["switch"] if row["switch"] == "bmv2" else f"{row['switch']} {row['engine']}"
        reference = bmv2.get((row["case"], row["mode"]))
        ratio = f"{report['queriesPerSecond'] / reference:.2f}x" if reference and row["switch"] != "bmv2" else ""
        out.add_row(
            row["case"],
            row["mode"],
            name,
            f"{report['queriesPerSecond']:,.0f}",
            f"{row['slowest']:,.0f}-{row['fastest']:,.0f}",
            f"{report['latencyMicros']['p50']:,.0f}",
            f"{report['latencyMicros']['p99']:,.0f}",
            f"{report['lost'] + report['failed']}",
            f"{report['generatorCores']:.2f} cores",
            ratio,
        )
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: 3)")
    parser.add_argument("--repetitions", type=int, default=3, help="of each measurement (default: 3)")
    parser.add_argument("--engines", default="ebpf,interp", help="of the embedded switch, with commas (default: ebpf,interp)")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench.json", help="where the figures go (default: out/bench.json)")
    arguments = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=140)
    rows = []
    for engine in arguments.engines.split(","):
        rows += run("embedded", engine, arguments.seconds, arguments.repetitions, console)
    if shutil.which("simple_switch_grpc"):
        rows += run("bmv2", "auto", arguments.seconds, arguments.repetitions, console)
    else:
        console.print("BMv2 is not measured: there is no simple_switch_grpc on PATH")
    console.print(table(rows))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"versions": versions(), "rows": rows}, indent=2) + "\n")
    console.print(f"{arguments.out.relative_to(ROOT) if arguments.out.is_relative_to(ROOT) else arguments.out} has all of it")


if __name__ == "__main__":
    main()
