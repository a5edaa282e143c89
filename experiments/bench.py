#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure switches side by side (``make bench``): queries a second and latency of NetCRAQ on eBPF
at tc and at XDP, on the interpreter, and on BMv2.

All switches run the same compiled program on the same links, one after the other, and each
repetition runs all of them again. So if the machine gets slower during the run, that affects all of
them. The load comes from the kernel (``netcraqctl bench --kernel``): a program at the client's
interface turns each answer into the next query and compares every value. Its own limit is measured
the same way, against a program that only swaps addresses (*reflector*); where a switch comes near
that limit, the figure is a lower bound and the table says so. docs/benchmarks/switch.md explains
the columns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.provenance import record  # noqa: E402
from topologies import network_namespaces, p4app  # noqa: E402
from topologies.network import ChainNetwork  # noqa: E402

KEYS = 256
OUTSTANDING = 32
"""Outstanding queries of the throughput runs. BMv2 drops bursts of more than 32 frames a port."""

ENGINES: dict[str, dict[str, str]] = {
    "ebpf tc": {"switch": "embedded", "engine": "ebpf", "hook": "tc"},
    "ebpf xdp": {"switch": "embedded", "engine": "ebpf", "hook": "xdp"},
    "interp": {"switch": "embedded", "engine": "interp"},
    "BMv2": {"switch": "bmv2"},
}
REFERENCE = "BMv2"

NEAR_CEILING = 0.8
"""At this share of the reflector's throughput and above, the generator may be the bottleneck."""


@dataclass(frozen=True)
class Case:
    """A load on the switches."""

    chain: int
    what: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{'one switch' if self.chain == 1 else f'chain of {self.chain}'}: {self.what}"


CASES = [
    Case(1, "read", ("--switch", "s1")),
    Case(1, "write", ("--mix", "put=1")),
    Case(1, "mixed, 5 % writes", ("--mix", "get=95,put=5")),
    Case(4, "read, nearest switch", ("--switch", "s1")),
    Case(4, "read, farthest switch", ("--switch", "s4")),
    Case(4, "write", ("--mix", "put=1")),
    Case(4, "mixed, 5 % writes", ("--mix", "get=95,put=5")),
]
CPU = "0"
"""The CPU that sends the first queries. Frames stay on the CPU that sent them, so with a switch in
the kernel this one core does all the work.
"""
MODES = {"throughput": ("-n", str(OUTSTANDING)), "serial": ("--serial",)}


def topology(chain: int, bits: int) -> p4app.Topology:
    """A line of switches with a host at each. For a chain of one the line has a second switch,
    which is not a member.
    """
    content = p4app.line(max(chain, 2), profile=bits)
    content["netcraq"]["chains"][0]["members"] = [f"s{i}" for i in range(1, chain + 1)]
    checked = p4app.check(content, f"a chain of {chain}")
    # A lease of 200 ms expires when the load leaves no CPU time for the controller. This benchmark
    # does not measure that.
    return replace(checked, chains=(replace(checked.chains[0], lease_ms=2000),))


class Failed(Exception):
    """A run with wrong or missing answers, which is not a measurement."""


def checked(done: subprocess.CompletedProcess[str], command: list[str]) -> dict[str, Any]:
    """The report of a load run."""
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    report = json.loads(done.stdout)
    if report.get("wrong"):
        raise Failed(f"{' '.join(command)}: {report['wrong']} wrong values")
    if report["failed"] + report["lost"] > report["queries"] / 100:
        raise Failed(
            f"{' '.join(command)}: {report['failed']} of {report['queries']} queries were refused, {report['lost']} lost"
        )
    return report


def ceiling(hook: str, bits: int, seconds: float, mode: tuple[str, ...]) -> list[str]:
    """The command that measures the generator against a reflector at a hook."""
    load = ["--ceiling", hook, "--frame-bits", str(bits), "--cpu", CPU, "--duration", f"{seconds}s"]
    return ["bin/netcraqctl", "bench", "-o", "json", *load, *mode]


class Bench:
    """One run: all its measurements, and its progress."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.engines = [name for name in ENGINES if name.split()[0] in options.engines or name in options.engines]
        if not shutil.which("simple_switch_grpc"):
            self.engines = [name for name in self.engines if ENGINES[name]["switch"] != "bmv2"]
        self.cases = [case for case in CASES if case.chain in options.chains]
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []
        per_network = len(MODES) * len(self.cases) + len(options.chains)
        self.task = progress.add_task(
            "", total=options.repetitions * len(options.bits) * (len(self.engines) * per_network + 2 * len(MODES)) + 1
        )

    def note(self, engine: str, bits: int, case: str, mode: str, report: dict[str, Any]) -> None:
        """Keep a measurement."""
        latency = report["latencyMicros"]
        self.rows.append(
            {
                "engine": engine,
                "bits": bits,
                "case": case,
                "mode": mode,
                "queries_per_second": report["queriesPerSecond"],
                "p50_us": latency["p50"],
                "p99_us": latency["p99"],
                "queries": report["queries"],
                "sent_again": report["retransmitted"],
                "refused": report["failed"],
                "generator": report.get("generator", "socket"),
            }
        )

    def step(self, what: str) -> None:
        """Show the next step."""
        self.progress.update(self.task, advance=1, description=what)

    def ceilings(self, bits: int) -> None:
        """Measure the generator's rate against a reflector."""
        for hook in ("tc", "xdp"):
            for mode, arguments in MODES.items():
                self.step(f"{bits} bits, reflector at {hook}")
                command = ceiling(hook, bits, self.options.seconds, arguments)
                done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
                self.note(f"reflector {hook}", bits, "reflector", mode, checked(done, command))

    def network(self, engine: str, bits: int, chain: int, out: Path) -> None:
        """Measure all cases on one network."""
        with network_namespaces.private(), ChainNetwork(topology(chain, bits), **ENGINES[engine], out=out) as net:
            running = net.running_engine
            if engine.startswith("ebpf") and engine.split()[1] not in running.lower():
                raise Failed(f"{engine}: the switches run {running}")
            net.admin.add_keys(net.topology.chains[0].name, {f"/bench/{i}": b"" for i in range(KEYS)})
            for case in self.cases:
                if case.chain != chain:
                    continue
                for mode, arguments in MODES.items():
                    self.step(f"{bits} bits, {engine}, {case.name}, {mode}")
                    self.measure(net, engine, bits, case, mode, ["--kernel", "--cpu", CPU, *case.arguments, *arguments])
            first = next(case for case in self.cases if case.chain == chain)
            self.step(f"{bits} bits, {engine}, {first.name}, through a socket")
            self.measure(net, engine, bits, first, "serial, socket", [*first.arguments, "--serial"])

    def measure(self, net: ChainNetwork, engine: str, bits: int, case: Case, mode: str, arguments: list[str]) -> None:
        """Measure one case."""
        command = ["bin/netcraqctl", "bench", "-o", "json", "--duration", f"{self.options.seconds}s", *arguments]
        try:
            done = net.execute("h1", command, timeout=self.options.seconds + 60, check=False)
            self.note(engine, bits, case.name, mode, checked(done, command))
        except Failed as failure:
            self.failures.append(f"{engine}, {bits} bits, {case.name}, {mode}: {failure}")

    def run(self) -> None:
        """Measure everything, for all repetitions."""
        with tempfile.TemporaryDirectory(prefix="netcraq-bench-") as out:
            for repetition in range(self.options.repetitions):
                for bits in self.options.bits:
                    self.ceilings(bits)
                    turned = (
                        self.engines[repetition % len(self.engines) :] + self.engines[: repetition % len(self.engines)]
                    )
                    for engine in turned:
                        for chain in self.options.chains:
                            self.network(engine, bits, chain, Path(out))


def programs(console: Console, engines: list[str], widths: list[int], quick: bool) -> list[dict[str, Any]]:
    """Measure only the programs' time in nanoseconds: the kernel runs them on a frame in memory
    (BPF_PROG_TEST_RUN), without devices and generator. It uses the hooks of the requested engines
    and the requested VALUE_BITS.
    """
    hooks = [ENGINES[name]["hook"] for name in engines if "hook" in ENGINES[name]]
    if not hooks:
        return []
    at, wide = f"BenchmarkKernel/^({'|'.join(hooks)})$", "|".join(map(str, widths))
    which = f"{at}/^(reflector|{wide})$"
    if quick:  # two reads and a write show that the benchmark works
        which = f"{at}/^reflector$|{at}/^({wide})$/^(READ|READ_leased|WRITE)(_general)?$"
    go = shutil.which("go") or str(ROOT / ".venv" / "bin" / "go")
    often = ["-benchtime", "30000x", "-count", "1"] if quick else ["-benchtime", "300000x", "-count", "3"]
    command = [go, "test", "-vet=off", "./p4src", "-run", "xxx", "-bench", which, *often]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    found: dict[str, list[float]] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"BenchmarkKernel/(\S+?)-\d+\s.*?([\d.]+) ns/packet", line):
            found.setdefault(match[1], []).append(float(match[2]))
    if not found:
        console.print(f"[red]The programs alone were not measured:[/red] {done.stderr or done.stdout}")
    return [
        {"program": name, "ns_per_packet": statistics.median(all_of), "repetitions": all_of}
        for name, all_of in found.items()
    ]


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each case: medians and ranges of its repetitions, and its ratios to BMv2's."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["bits"], row["case"], row["mode"], row["engine"]), []).append(row)
    out = []
    for (bits, case, mode, engine), same in groups.items():
        rates = [row["queries_per_second"] for row in same]
        out.append(
            {
                "bits": bits,
                "case": case,
                "mode": mode,
                "engine": engine,
                "queries_per_second": statistics.median(rates),
                "slowest": min(rates),
                "fastest": max(rates),
                "p50_us": statistics.median(row["p50_us"] for row in same),
                "p99_us": statistics.median(row["p99_us"] for row in same),
                "sent_again": sum(row["sent_again"] for row in same),
                "repetitions": len(same),
            }
        )
    by = {(row["bits"], row["case"], row["mode"], row["engine"]): row for row in out}
    for row in out:
        key = (row["bits"], row["case"], row["mode"])
        if (reference := by.get((*key, REFERENCE))) and row["engine"] != REFERENCE:
            row["throughput_to_bmv2"] = row["queries_per_second"] / reference["queries_per_second"]
            row["p50_to_bmv2"] = row["p50_us"] / reference["p50_us"]
        hook = row["engine"].split()[-1] if row["engine"].startswith("ebpf") else "tc"
        if (ceiling := by.get((row["bits"], "reflector", row["mode"], f"reflector {hook}"))) and row[
            "case"
        ] != "reflector":
            row["share_of_ceiling"] = row["queries_per_second"] / ceiling["queries_per_second"]
            row["ns_per_query"], row["ns_per_query_reflector"] = (
                1e9 / row["queries_per_second"],
                1e9 / ceiling["queries_per_second"],
            )
    return out


def table(rows: list[dict[str, Any]], bits: int) -> Table:
    """A table of the rows of one value width."""
    out = Table(
        title=f"{bits}-bit values (median of the repetitions; {OUTSTANDING} outstanding for throughput, one for serial)"
    )
    for column in ("case", "mode", "engine"):
        out.add_column(column)
    for column in ("queries/s", "spread", "p50 µs", "p99 µs", "sent again", "of reflector", "to BMv2", "p50 to BMv2"):
        out.add_column(column, justify="right")
    order = {case: n for n, case in enumerate(["reflector", *(case.name for case in CASES)])}
    names = {name: n for n, name in enumerate(["reflector tc", "reflector xdp", *ENGINES])}
    last = None
    for row in sorted(
        (row for row in rows if row["bits"] == bits),
        key=lambda row: (order[row["case"]], row["mode"], names[row["engine"]]),
    ):
        if last is not None and last != (row["case"], row["mode"]):
            out.add_section()
        share = row.get("share_of_ceiling")
        near = share is not None and row["mode"] == "throughput" and share > NEAR_CEILING
        out.add_row(
            row["case"] if last != (row["case"], row["mode"]) else "",
            row["mode"] if last != (row["case"], row["mode"]) else "",
            row["engine"],
            f"{row['queries_per_second']:,.0f}",
            f"{row['slowest']:,.0f}-{row['fastest']:,.0f}",
            f"{row['p50_us']:,.1f}",
            f"{row['p99_us']:,.1f}",
            f"{row['sent_again']:,}",
            "" if share is None or "socket" in row["mode"] else f"{share:.2f}{' (near)' if near else ''}",
            f"{row['throughput_to_bmv2']:.1f}x" if "throughput_to_bmv2" in row else "",
            f"{row['p50_to_bmv2']:.3f}" if "p50_to_bmv2" in row else "",
        )
        last = (row["case"], row["mode"])
    return out


def aims(rows: list[dict[str, Any]], alone: list[dict[str, Any]]) -> list[tuple[str, float, str, bool]]:
    """Compare the project's aims with the measurements."""
    out = []
    reads = {case.name for case in CASES if case.what in ("read", "read, nearest switch")}
    for row in rows:
        if not row["engine"].startswith("ebpf") or row["case"] not in reads:
            continue
        where = f"{row['engine']}, {row['bits']} bits, {row['case']}"
        if row["mode"] == "throughput":
            if "throughput_to_bmv2" in row:
                out.append(
                    (
                        f"read throughput at least 20 times BMv2's: {where}",
                        row["throughput_to_bmv2"],
                        "x",
                        row["throughput_to_bmv2"] >= 20,
                    )
                )
            if "share_of_ceiling" in row:
                times = row["ns_per_query"] / row["ns_per_query_reflector"]
                both = f"{row['ns_per_query']:.0f} and {row['ns_per_query_reflector']:.0f} ns"
                out.append(
                    (
                        f"a read's whole round trip within 2 times the reflector's ({both}): {where}",
                        times,
                        "x",
                        times <= 2,
                    )
                )
        elif row["mode"] == "serial" and "p50_to_bmv2" in row:
            out.append(
                (
                    f"serial latency at most a tenth of BMv2's: {where}",
                    row["p50_to_bmv2"],
                    "",
                    row["p50_to_bmv2"] <= 0.1,
                )
            )
    ns = {item["program"]: item["ns_per_packet"] for item in alone}
    for bits in (128, 8192):
        for hook in ("tc", "xdp"):
            read, least = ns.get(f"{hook}/{bits}/READ"), ns.get(f"{hook}/reflector")
            if read and least:
                text = f"the read path's program within 2 times the reflector's ({read:.0f} and {least:.0f} ns): ebpf {hook}, {bits} bits"
                out.append((text, read / least, "x", read <= 2 * least))
    return out


def numbers(text: str) -> list[int]:
    """Parse a list of numbers such as ``128,8192``."""
    return [int(part) for part in text.split(",")]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.7, help="length of each measurement (default: 0.7)")
    parser.add_argument("--repetitions", type=int, default=3, help="repetitions of all measurements (default: 3)")
    parser.add_argument(
        "--engines",
        default="ebpf,interp,BMv2",
        type=lambda text: text.split(","),
        help="engines, with commas (default: ebpf,interp,BMv2)",
    )
    parser.add_argument("--bits", default=[128, 8192], type=numbers, help="VALUE_BITS, with commas (default: 128,8192)")
    parser.add_argument(
        "--chains", default=[1, 4], type=numbers, help="lengths of chains, with commas: 1, 4 or both (default: 1,4)"
    )
    parser.add_argument("--quick", action="store_true", help="one short repetition, to see whether the benchmark works")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "bench.json", help="file for the results (default: out/bench.json)"
    )
    return parser


def main() -> int:
    """Run the benchmark and return the exit status."""
    options = arguments().parse_args()
    if options.quick:
        options.seconds, options.repetitions = min(options.seconds, 0.2), 1
    if not set(options.chains) <= {1, 4} or not set(options.bits) <= set(p4app.PROFILES):
        sys.exit(f"--chains is 1, 4 or both; --bits are of {', '.join(map(str, p4app.PROFILES))}")
    console = Console() if sys.stdout.isatty() else Console(width=170)
    run, began = record(), time.monotonic()
    columns = (
        TextColumn("[progress.percentage]{task.percentage:3.0f}%"),
        BarColumn(24),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bench = Bench(options, progress)
        bench.run()
        bench.step("the programs alone")
        alone = programs(console, bench.engines, options.bits, options.quick)
    rows = summarise(bench.rows)
    for bits in options.bits:
        console.print(table(rows, bits))
    if alone:
        out = Table(title="The programs alone: nanoseconds a packet, without devices (BPF_PROG_TEST_RUN)")
        out.add_column("program")
        out.add_column("ns", justify="right")
        for item in alone:
            out.add_row(item["program"], f"{item['ns_per_packet']:.0f}")
        console.print(out)
    reached = aims(rows, alone)
    for text, measured, unit, met in reached:
        console.print(
            f"  {'[green]met[/green]     ' if met else '[yellow]not met[/yellow] '} {measured:.2f}{unit}  {text}",
            highlight=False,
        )
    if REFERENCE not in bench.engines:
        console.print("  BMv2 is not measured: there is no simple_switch_grpc on PATH, or it was not asked for")
    for failure in bench.failures:
        console.print(f"  [red]no figure[/red] {failure}", highlight=False)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "run": run,
        "seconds": options.seconds,
        "outstanding": OUTSTANDING,
        "keys": KEYS,
        "took_seconds": time.monotonic() - began,
        "rows": rows,
        "measurements": bench.rows,
        "programs": alone,
        "aims": [{"aim": text, "measured": measured, "met": met} for text, measured, _, met in reached],
        "failures": bench.failures,
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"  {time.monotonic() - began:.0f} s in all; {os.path.relpath(options.out)} has every repetition")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
