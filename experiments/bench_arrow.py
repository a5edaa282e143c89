#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure Arrow batches through a node's files, and through Arrow IPC over Unix sockets (``make
bench-arrow``): the benchmarks of "Zerrow: True Zero-Copy Arrow Pipelines in Bauplan" (2025) that
are possible without its kernel module, on one machine.

* *one input, many consumers*: one program makes batches, and 1 to 16 programs sum them up, through
  sealed files, through reused files, and through a socket for each consumer.
* *small batches*: the same with batches that fit into the ring of a stream, and additionally with
  the node writing them into the ring.
* *a chain of steps*: each step computes one column again and passes the batch on: by reference,
  with all columns copied into a new file, and through sockets.
* *the cache*: programs read the same Parquet files, with and without sharing the decoded data.

Each step is a separate process. The variants take turns in each round, and a ratio is the median of
the rounds' ratios. Besides rates by elapsed time the tables show processor time of all processes
including the node's server, because other work on the machine affects it least. Memory is the
processes' proportional share (PSS), and the growth of in-memory files on the whole machine (Shmem),
in MiB: an in-memory file that no process maps is in no process's PSS.

A missed aim is marked, but the exit status is still 0. ``out/bench-arrow.json`` has every round,
``out/bench-arrow.svg`` and ``.png`` a figure.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from netcraq import node  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.bench_rounds import Aim, Bench, Failed, show_aims, show_load  # noqa: E402
from experiments.bench_streams import COMMAND, Load, Share, broker, marks  # noqa: E402
from experiments.one_load import all_cpu_seconds  # noqa: E402

STEP = ROOT / "experiments" / "arrow_step.py"

CONSUMERS, SMALL, CHAIN, CACHE = (
    "one input, many consumers",
    "small batches, many consumers",
    "a chain of steps",
    "the cache, of Parquet",
)

WAYS = {
    CONSUMERS: ("sealed", "rewritable", "ipc"),
    SMALL: ("ring", "sealed", "rewritable", "ipc"),
    CHAIN: ("references", "rewritable", "copies", "ipc"),
    CACHE: ("cache", "each decodes"),
}
"""The ways of each part. The others are compared with the last one."""

ROWS, COLUMNS = 1 << 17, 4
"""Rows and columns of a batch: 4 MiB of 64-bit numbers."""

SMALL_ROWS = 1 << 12
"""Rows of a batch of 128 KiB: the message that appends a record has at most 256 KiB."""

OBJECTS = 16
"""Slots of a stream's ring. Its records refer to files, so this bounds the number of batches."""

PARQUET_FILES = 8


@dataclass(frozen=True)
class Case:
    """A case, which each variant measures."""

    part: str
    count: int
    """Number of consumers, of steps, or of decoding programs."""
    touch: int = COLUMNS
    """How many columns the last program adds up."""
    rows: int = ROWS

    @property
    def name(self) -> str:
        """The name in the results."""
        return " | ".join(f"{k}={v}" for k, v in asdict(self).items())


def cases(quick: bool) -> list[Case]:
    """All cases."""
    if quick:
        return [Case(CONSUMERS, 2), Case(SMALL, 2, rows=SMALL_ROWS), Case(CHAIN, 2), Case(CACHE, 2)]
    out = [Case(CONSUMERS, n) for n in (1, 2, 4, 8, 16)]
    out += [Case(CONSUMERS, n, touch=1) for n in (1, 8)]
    out += [Case(SMALL, n, rows=SMALL_ROWS) for n in (1, 8)]
    out += [Case(CHAIN, n) for n in (1, 2, 4, 8)]
    out += [Case(CACHE, n) for n in (1, 2, 4, 8)]
    return out


# ---- A run ----


def processes(case: Case, way: str, directory: str, where: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the processes to start, in order: each one's role, and the arguments of its
    arrow_step.py.
    """
    common = ["--socket", where, "--rows", str(case.rows), "--columns", str(COLUMNS)]
    if case.part == CACHE:
        for _ in range(case.count):
            yield "last", [*common, "--parquet", directory, *(["--cache"] if way == "cache" else [])]
        return
    files = {"rewritable": ["--rewritable", "--trusted"], "ring": ["--ring"]}.get(way, [])
    # A consumer that keeps a ring's batches blocks the writer, so the last ones keep few.
    last = [*common, *files, "--touch", str(case.touch), "--keep", "1"]
    if case.part in (CONSUMERS, SMALL):
        to = [f"ipc:{directory}/{n}" for n in range(case.count)] if way == "ipc" else ["s0"] * case.count
        made = "ipc:" + ",".join(t.removeprefix("ipc:") for t in to) if way == "ipc" else "s0"
        yield "first", [*common, *files, "--to", made]
        for source in to:
            yield "last", [*last, "--source", source]
        return
    hops = [f"ipc:{directory}/{n}" if way == "ipc" else f"s{n}" for n in range(case.count + 1)]
    yield "first", [*common, *files, "--to", hops[0]]
    for n in range(case.count):
        step = ["--source", hops[n], "--to", hops[n + 1], "--change", str(n % COLUMNS)]
        yield "step", [*common, *files, *step, *(["--copy"] if way == "copies" else [])]
    yield "last", [*last, "--source", hops[-1]]


def parquet(directory: str) -> None:
    """Write files to decode: numbers that are sorted, and words that repeat."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(1)
    words = np.array([f"service-{n}.namespace-{n % 7}.example" for n in range(100)])
    for number in range(PARQUET_FILES):
        table = pa.table(
            {
                "time": np.arange(ROWS, dtype=np.int64) * 1000 + number,
                "value": random.normal(size=ROWS),
                "count": random.integers(0, 1000, ROWS),
                "name": words[random.integers(0, len(words), ROWS)],
            }
        )
        pq.write_table(table, f"{directory}/{number}.parquet", compression="zstd")


def memory(pids: list[int]) -> float:
    """The proportional memory (PSS) of processes, in MiB."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def in_files() -> float:
    """The memory of this machine's in-memory files, in MiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1]) / 1024
    raise Failed("/proc/meminfo has no Shmem")


def until(loads: list[Load], batches: int) -> None:
    """Wait until each load has processed a number of batches."""
    deadline = time.monotonic() + 60
    while min(m["batches"] for m in marks(loads)) < batches:
        if time.monotonic() > deadline:
            raise Failed(f"{' '.join(loads[0].command)}: no more than {batches} batches came within a minute")
        time.sleep(0.05)


def measure(case: Case, way: str, seconds: float, parquets: str) -> dict[str, Any]:
    """Run one variant of a case once."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="netcraq-arrow-"))
        where = f"{directory}/s"
        before = in_files()
        share = Share()
        stack.callback(share.close)
        pid, _ = stack.enter_context(broker([str(COMMAND), "serve", "--socket", where], share, 0))
        with node.connect(where) as client:
            size = 256 << 10 if way == "ring" else 1024  # bytes: one batch, or one record of 700
            for n in range(case.count + 1 if case.part == CHAIN else 1):
                client.open_stream(f"s{n}", {"partitions": 1, "objectBytes": size, "objects": OBJECTS})
        loads: list[tuple[str, Load]] = []
        for role, options in processes(case, way, parquets if case.part == CACHE else directory, where):
            load = Load([sys.executable, str(STEP), *options])
            stack.callback(load.close)
            loads.append((role, load))
        for _, load in reversed(loads):  # start the readers first
            load.say()
        all_of = [load for _, load in loads]
        lasts = [load for role, load in loads if role == "last"]
        until(lasts, OBJECTS + 2)  # until the rings are full, and reused files exist
        time.sleep(seconds / 4)
        first, used, begun = marks(all_of), all_cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        until(lasts, 4 + max(m["batches"] for m, (role, _) in zip(first, loads, strict=True) if role == "last"))
        last, used, took = marks(all_of), all_cpu_seconds(pid) - used, time.monotonic() - begun
        pss, files = memory([pid, *(load.process.pid for load in all_of)]), in_files() - before
    moved = [(b["bytes"] - a["bytes"]) / (b["at_ns"] - a["at_ns"]) * 1e9 for a, b in zip(first, last, strict=True)]
    roles: dict[str, list[float]] = {}
    for (role, _), a, b in zip(loads, first, last, strict=True):
        cpu = (b["user_us"] + b["system_us"] - a["user_us"] - a["system_us"]) / 1e6
        roles.setdefault(role, []).append(cpu / took)
    read = sum(rate for (role, _), rate in zip(loads, moved, strict=True) if role == "last") / (1 << 20)
    cpu = used / took + sum(sum(each) for each in roles.values())
    return {
        "mib": round(read, 1),
        "mib_per_cpu": round(read / max(0.01, cpu), 1),
        "cpu": round(cpu, 3),
        "cpu_server": round(used / took, 3),
        "cpu_roles": {role: round(sum(each), 3) for role, each in roles.items()},
        **{
            # The first step's batches are written into files from the start.
            what: round(
                sum(b[what] - a[what] for (role, _), a, b in zip(loads, first, last, strict=True) if role != "first")
                / took
            )
            for what in ("copied", "shared")
        },
        "pss": round(pss, 1),
        "files": round(files, 1),
    }


Measured = dict[str, dict[str, list[dict[str, Any]]]]
"""Rounds, by the name of a case and by way."""


def go(options: argparse.Namespace, todo: list[Case], say: Callable[[str], None]) -> dict[str, Any]:
    """Run everything, in turn."""
    before, began = os.getloadavg(), time.monotonic()
    measured: Measured = {}
    with tempfile.TemporaryDirectory(prefix="netcraq-arrow-parquet-") as parquets:
        parquet(parquets)
        for turn in range(options.rounds):
            for n, case in enumerate(todo):
                now = f"{time.monotonic() - began:4.0f} s: round {turn + 1} of {options.rounds}"
                say(f"{now}, case {n + 1} of {len(todo)}: {case.part}, {case.count}")
                ways = WAYS[case.part]
                for k in range(len(ways)):
                    way = ways[(turn + k) % len(ways)]
                    found = measure(case, way, options.seconds, parquets)
                    measured.setdefault(case.name, {}).setdefault(way, []).append(found)
    return {
        "what": "MiB of columns a second, at all who read last; CPU is in processors; memory in MiB",
        "cores": len(os.sched_getaffinity(0)),
        "load_average": {"before": before, "after": os.getloadavg()},
        "cases": {case.name: asdict(case) for case in todo},
        "measured": measured,
        "aims": [asdict(aim) for aim in judge(todo, measured)],
    }


# ---- Output ----


def ratios(ways: dict[str, list[dict[str, Any]]], way: str, other: str, what: str) -> list[float]:
    """The ratios within each round."""
    return [a[what] / max(0.1, b[what]) for a, b in zip(ways[way], ways[other], strict=True)]


def spread(values: list[float]) -> str:
    """The median and the range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def judge(todo: list[Case], measured: Measured) -> list[Aim]:
    """The aims: three times the rate of Arrow IPC over sockets with eight consumers, and memory
    that does not grow with the consumers. The paper (Zerrow) reports 1.5 to 9.5 times for its
    pipelines, and 2.8 times where several programs read the same input.
    """
    out = []
    for case in todo:
        base = WAYS[case.part][-1]
        ways = measured[case.name]
        count = {CONSUMERS: "consumers", SMALL: "consumers, small batches", CHAIN: "steps", CACHE: "programs"}[
            case.part
        ]
        looks = "" if case.touch == COLUMNS else f", who look at {case.touch} of {COLUMNS} columns"
        for way in WAYS[case.part][:-1]:
            by_clock, by_cpu = (ratios(ways, way, base, what) for what in ("mib", "mib_per_cpu"))
            aimed = case.part == CONSUMERS and case.count == 8
            paper = {CHAIN: "1.5 to 9.5 in the paper", CACHE: "2.8 in the paper"}.get(case.part, "")
            what = f"{way} to {base}, {case.count} {count}{looks}"
            met = statistics.median(by_clock) >= 3 if aimed else None
            out.append(Aim(f"{what}: by the clock", spread(by_clock), "3" if aimed else paper, met))
            out.append(Aim(f"{what}: by processor time", spread(by_cpu), "", None))
    grown = [case for case in todo if case.part == CONSUMERS and case.touch == COLUMNS]
    if len(grown) > 1:
        few, many = grown[0], grown[-1]
        for way in WAYS[CONSUMERS]:
            # Memory beyond the interpreters and their libraries: shares of files, and buffers.
            more = [statistics.median(r["pss"] for r in measured[c.name][way]) - own(c.count) for c in (few, many)]
            text = f"{more[0]:.0f} and {more[1]:.0f} MiB"
            out.append(
                Aim(f"{way}: PSS of all, {few.count} and {many.count} consumers, without programs", text, "", None)
            )
    return out


PROGRAM: list[float] = []
"""The proportional memory (PSS) of a consumer before its work, in MiB; measured once."""


def own(consumers: int) -> float:
    """The memory of idle programs and the maker."""
    if not PROGRAM:
        idle = [Load([sys.executable, str(STEP), "--socket", "/nowhere"]) for _ in range(2)]
        try:
            PROGRAM.append(memory([load.process.pid for load in idle]) / 2)
        finally:
            for load in idle:
                load.close()
    return PROGRAM[0] * (consumers + 1)


def tables(todo: list[Case], measured: Measured) -> Iterator[Table]:
    """Yield a table for each part."""
    for part in dict.fromkeys(case.part for case in todo):
        table = Table(title=f"{part}: MiB a second, at all who read last")
        for column in ("count", "columns\nlooked at", "way"):
            table.add_column(column)
        titles = ("MiB/s", f"to\n{WAYS[part][-1]}", "MiB/s for\na processor", "to it", "processors", "server's")
        for column in (*titles, "copied,\nMiB/s*", "PSS,\nMiB", "files,\nMiB"):
            table.add_column(column, justify="right")
        for case in (case for case in todo if case.part == part):
            for way in WAYS[part]:
                rounds = measured[case.name][way]
                base = WAYS[part][-1]

                def median(what: str, rounds: list[dict[str, Any]] = rounds) -> float:
                    return statistics.median(r[what] for r in rounds)

                def ratio(what: str, way: str = way, base: str = base, case: Case = case) -> str:
                    found = ratios(measured[case.name], way, base, what)
                    return "" if way == base else f"{statistics.median(found):.2f}"

                first = way == WAYS[part][0]
                table.add_row(
                    str(case.count) if first else "",
                    str(case.touch) if first else "",
                    way,
                    f"{median('mib'):,.0f}",
                    ratio("mib"),
                    f"{median('mib_per_cpu'):,.0f}",
                    ratio("mib_per_cpu"),
                    f"{median('cpu'):.2f}",
                    f"{median('cpu_server'):.2f}",
                    "" if way == "ipc" else f"{median('copied') / (1 << 20):,.0f}",
                    f"{median('pss'):,.0f}",
                    f"{median('files'):,.0f}",
                )
        yield table


def draw(todo: list[Case], measured: Measured, folder: Path) -> list[Path]:
    """Draw rates over the number of processes, for each part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parts = list(dict.fromkeys(case.part for case in todo))
    figure, axes = pyplot.subplots(1, len(parts), figsize=(4.2 * len(parts), 3.4), squeeze=False)
    for ax, part in zip(axes.flat, parts, strict=True):
        some = [case for case in todo if case.part == part and case.touch == COLUMNS]
        for way, marker in zip(WAYS[part], "osd^", strict=False):
            rates = [[r["mib"] for r in measured[case.name][way]] for case in some]
            middle = [statistics.median(r) for r in rates]
            errors = [[m - min(r) for m, r in zip(middle, rates, strict=True)]]
            errors.append([max(r) - m for m, r in zip(middle, rates, strict=True)])
            ax.errorbar([case.count for case in some], middle, yerr=errors, marker=marker, capsize=3, label=way)
        ax.set_title(part, fontsize=10)
        ax.set_xscale("log", base=2)
        ax.set_ylim(bottom=0)
        ax.set_xlabel({CHAIN: "steps", CACHE: "programs"}.get(part, "consumers"))
        ax.legend(fontsize=8)
    axes[0][0].set_ylabel("MiB a second, at all who read last")
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "bench-arrow.svg", folder / "bench-arrow.png"]
    for file in files:
        figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return files


def show(console: Console, todo: list[Case], result: dict[str, Any]) -> None:
    """Print all results."""
    for table in tables(todo, result["measured"]):
        console.print(table)
    console.print("*: columns that steps, or the cache, copied into files; what IPC copies is not counted")
    show_aims(console, "the aims, and the paper's figures", result["aims"])
    show_load(console, result)


def main() -> int:
    """Run the benchmark and return the exit status."""
    bench = Bench(
        "bench_arrow",
        "Measure batches of Arrow by files of a node, and by Arrow IPC.",
        seconds=3,
        quick_seconds=0.5,
        width=150,
    )
    return bench.main(cases, go, draw, show)


if __name__ == "__main__":
    sys.exit(main())
