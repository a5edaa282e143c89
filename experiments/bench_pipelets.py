#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure pipelets (``make bench-pipelets``): a source, and 100 clients that each compute something
different from its records. The measured time is from a record's put to its arrival at each client's
destination.

This is the experiment of Taras Priadka's article "Pipelet" (docs/pipelets.md cites it). It makes
two comparisons: of clients that read the source themselves to clients of a synchronizer, and of a
synchronizer that does not merge clients of the same source to one that does. The article's figure
was measured with Zed lakes and Python on a Kubernetes node, so only its form is comparable with
ours, not its numbers. Our polling clients are goroutines of one Go process, so they cost less than
pods.

Each way is measured in each round, in turn; ratios are within a round. ``out/bench-pipelets.json``
has every round. ``out/bench-pipelets.svg`` and ``.png`` show the distributions, and how much later
records arrive than by pipelets, with the article's numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.bench_rounds import Aim, end_orderly, show_aims, show_load  # noqa: E402
from experiments.provenance import record  # noqa: E402

COMMAND = ROOT / "bin" / "netcraq-bench-pipelets"
PIPELETS = ROOT / "bin" / "netcraq-pipelets"

POLLS = ("1s", "100ms")
"""The polling intervals: the article's example has a second."""

WAYS = {
    **{f"poll {every}": ["--way", "poll", "--every", every] for every in POLLS},
    "apart": ["--way", "apart"],
    "merged": ["--way", "merged"],
}

LABELS = {
    **{f"poll {every}": f"each client polls every {every}" for every in POLLS},
    "apart": "pipelets, not consolidated",
    "merged": "pipelets",
}

PERCENTILES = (50, 95, 99)

ORIGINAL = (40, 60)
"""All numbers in the article's figure: a percentile, and by how many milliseconds clients without
pipelets are slower at it.
"""


def run(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one way once."""
    command = [str(COMMAND), *WAYS[way], "--pipelets", str(PIPELETS)]
    for name in ("clients", "rate", "size", "seconds"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        sys.exit(f"bench_pipelets.py: {way}: {done.stderr.strip()[-500:]}")
    found = json.loads(done.stdout)
    if found["arrivals"] != found["expected"]:
        sys.exit(f"bench_pipelets.py: {way}: {found['arrivals']} of {found['expected']} records arrived")
    return found


def at(found: dict[str, Any], percentile: int) -> float:
    """A percentile, in milliseconds."""
    return found["millis"][percentile - 1]


def aims(rounds: list[dict[str, Any]]) -> list[Aim]:
    """The aims: half of polling's latency, a fifth at the 99th percentile; one source read."""
    found = []
    for poll in (f"poll {every}" for every in POLLS):
        for percentile in PERCENTILES:
            ratio = statistics.median(at(r["merged"], percentile) / at(r[poll], percentile) for r in rounds)
            aim = 0.2 if percentile == 99 else 0.5
            found.append(
                Aim(
                    f"p{percentile}, of {LABELS[poll]}",
                    f"{ratio:.2f}",
                    f"at most {aim} (0.5 has to hold)",
                    ratio <= aim,
                )
            )
    reads = statistics.median(r["merged"]["bytes"] / r["merged"]["stored"] for r in rounds)
    apart = statistics.median(r["apart"]["bytes"] / r["apart"]["stored"] for r in rounds)
    found.append(Aim("the source is read (bytes by bytes stored)", f"{reads:.2f} times", "once (1.2)", reads <= 1.2))
    found.append(Aim("... without consolidation", f"{apart:.1f} times", "", None))
    return found


def table(rounds: list[dict[str, Any]]) -> Table:
    """A table of the rounds' medians."""
    out = Table(title="from put to arrival, in milliseconds, and what it cost for a second")
    columns = ("p50", "p95", "p99", "worst", "read (KB)", "CPU clients", "CPU source", "CPU destination", "busy")
    out.add_column("")
    for column in columns:
        out.add_column(column, justify="right")
    for way, label in LABELS.items():
        runs = [r[way] for r in rounds]

        def median(value: Any, runs: list[dict[str, Any]] = runs) -> float:
            return statistics.median(value(r) for r in runs)

        cells = [f"{median(lambda r, p=p: at(r, p)):.1f}" for p in (*PERCENTILES, 100)]
        cells.append(f"{median(lambda r: r['bytes'] / r['seconds'] / 1000):.0f}")
        for who in ("clients", "source", "destination"):
            cells.append(f"{median(lambda r, who=who: r['cpu'][who] / r['seconds']):.2f}")
        cells.append(f"{median(lambda r: r['busy']):.0%}")
        out.add_row(label, *cells)
    return out


def median_of(columns: list[list[float]]) -> list[float]:
    """The median of each column."""
    return [statistics.median(column) for column in zip(*columns, strict=True)]


def draw(rounds: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw the distributions, as in the article's figure; and the differences, with the article's
    numbers for them.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (axes, apart) = pyplot.subplots(1, 2, figsize=(12, 4.4))
    for way, label in LABELS.items():
        runs = [r[way]["millis"] for r in rounds]
        (line,) = axes.plot(median_of(runs), range(1, 101), label=label)
        if way != "merged":
            later = [[a - b for a, b in zip(r[way]["millis"], r["merged"]["millis"], strict=True)] for r in rounds]
            apart.plot(range(1, 101), median_of(later), color=line.get_color(), label=f"{label} (here)")
    axes.set_xscale("log")
    axes.set_xlabel("from put to arrival at a client's destination (ms)")
    axes.set_ylabel("of all arrivals (%)")
    axes.set_title("Here: etcd to etcd, 100 clients, one machine", fontsize=9)
    percentile, millis = ORIGINAL
    apart.plot([percentile], [millis], "k*", markersize=12, label="no pipelets (Priadka)")
    apart.annotate(
        f"Priadka: {millis} ms at p{percentile},\nmore beyond p80, in no numbers",
        (percentile, millis),
        textcoords="offset points",
        xytext=(-70, -42),
        fontsize=8,
        arrowprops={"arrowstyle": "-", "lw": 0.5},
    )
    apart.axvspan(80, 100, color="black", alpha=0.06)
    apart.set_yscale("symlog", linthresh=10)
    apart.set_xlabel("percentile")
    apart.set_ylabel("later than by pipelets (ms)")
    apart.set_title("What pipelets save, beside Priadka (Zed lakes, Python clients, Minikube)", fontsize=9)
    for each in (axes, apart):
        each.grid(alpha=0.3)
        each.legend(fontsize=8)
    figure.tight_layout()
    files = [folder / f"bench-pipelets.{suffix}" for suffix in ("svg", "png")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def main() -> int:
    """Measure, store, draw and print."""
    parser = argparse.ArgumentParser(description="Records from a source to clients: by polling, and by pipelets.")
    parser.add_argument("--clients", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--rate", type=float, default=10, metavar="N", help="records a second (default 10)")
    parser.add_argument("--size", type=int, default=1024, metavar="N", help="bytes of a record (default 1024)")
    parser.add_argument("--seconds", type=float, default=20, metavar="N", help="of each run (default 20)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of all ways, in turn (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round of 4 seconds: whether it works")
    parser.add_argument("--out", type=Path, default=ROOT / "out", metavar="DIR", help="default out/")
    options = parser.parse_args()
    end_orderly()
    if options.quick:
        options.seconds, options.rounds = 4, 1
    run, before, rounds = record(), os.getloadavg(), []
    try:
        for number in range(options.rounds):
            rounds.append({})
            for way in WAYS:
                rounds[-1][way] = run(way, options)
                print(f"round {number + 1}, {LABELS[way]}: p99 {at(rounds[-1][way], 99):.1f} ms", flush=True)
    except KeyboardInterrupt:
        return 130
    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "run": run,
        "rounds": rounds,
        "aims": [vars(aim) for aim in aims(rounds)],
        "load_average": {"before": before, "after": os.getloadavg()},
        "cores": os.cpu_count(),
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()},
    }
    file = options.out / "bench-pipelets.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    files = [file, *draw(rounds, options.out)]
    console = Console(width=max(130, shutil.get_terminal_size().columns))
    console.print(table(rounds))
    show_aims(console, "what was aimed at", result["aims"])
    show_load(console, result)
    console.print("written: " + ", ".join(str(f) for f in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
