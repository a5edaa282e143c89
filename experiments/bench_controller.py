#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure one controller against 10, 100 and 1,000 switches (``make bench-controller``), with a
tenth as many chains (or ``--chains``): the time until all chains are ready, the controller's processor time and
memory at rest, whether leases are kept, and how long a failover, a takeover and a restart take.

``netcraq-bench-controller`` runs each network. Its switches are the interpreter and the P4Runtime
server that ship, all in one process; the store is an etcd. Of each value the table has the median
of the rounds, and the exponent e of the curve: the value grows as the number of switches to the
power of e. ``out/bench-controller.json`` has every round. With ``--page`` the run replaces the last
one in docs/benchmarks/controller.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.bench_rounds import end_orderly, show_load  # noqa: E402
from experiments.provenance import record  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "controller.md"
COMMAND = ROOT / "bin" / "netcraq-bench-controller"
CONTROLLER = ROOT / "bin" / "netcraq-controller"

Found = dict[str, Any]

ROWS: list[tuple[str, Callable[[Found], float], str]] = [
    ("all chains ready (s)", lambda f: f["ready"], ".2f"),
    ("all switches complete (s)", lambda f: f["filled"], ".2f"),
    ("table entries written until then", lambda f: f["writes"], ",.0f"),
    ("controller's CPU until then (s)", lambda f: f["fillCPU"], ".2f"),
    ("controller's CPU at rest (s a second)", lambda f: f["restCPU"], ".4f"),
    ("CPU of all switches at rest (s a second)", lambda f: f["switchesCPU"], ".4f"),
    ("controller's memory (MiB)", lambda f: f["memory"] / 2**20, ".1f"),
    ("failover, median chain (s)", lambda f: f["failover"], ".3f"),
    ("failover, last chain (s)", lambda f: f["failoverLast"], ".3f"),
    ("the switch is back in all chains (s)", lambda f: f["back"], ".2f"),
    ("state in etcd (KiB)", lambda f: f["record"] / 1024, ".1f"),
    ("largest value in etcd (KiB)", lambda f: f["largest"] / 1024, ".1f"),
    ("takeover by a second controller (s)", lambda f: f["takeover"], ".2f"),
    ("restart (s)", lambda f: f["restart"], ".2f"),
]
"""What the table has: a name, the value, and its form."""


def exponent(points: list[tuple[float, float]]) -> float | None:
    """The slope of the line that fits the points' logarithms best; None if there is none."""
    if len({x for x, _ in points}) < 2 or any(x <= 0 or y <= 0 for x, y in points):
        return None
    return statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points]).slope


def median(value: Callable[[Found], float], rounds: list[Found]) -> float | None:
    """The median of the rounds that came so far as to measure a value; None if none has."""
    values = [v for v in map(value, rounds) if v]
    return statistics.median(values) if values else None


def lost(found: Found) -> str:
    """The leases that had run out, of those that were read."""
    return f"{found['expired']:,} of {found['looks']:,}"


def table(rounds: list[list[Found]]) -> Table:
    """The medians of the rounds, by the number of switches, and the exponents."""
    by_size: dict[int, list[Found]] = {}
    for found in (f for r in rounds for f in r):
        by_size.setdefault(found["switches"], []).append(found)
    sizes = sorted(by_size)
    lease = by_size[sizes[0]][0]["leaseMillis"]
    out = Table(title=f"One controller, leases of {lease} ms, medians")
    out.add_column("")
    for size in sizes:
        out.add_column(f"{size:,} switches", justify="right")
    out.add_column("exponent", justify="right")
    out.add_row("chains", *(str(by_size[size][0]["chains"]) for size in sizes), "")
    out.add_row("switches in chains", *(f"{by_size[size][0]['members']:,}" for size in sizes), "")
    out.add_row("chains with the switch that fails", *(str(by_size[size][0]["used"]) for size in sizes), "")
    for name, value, form in ROWS:
        medians = {size: median(value, by_size[size]) for size in sizes}
        slope = exponent([(float(size), m) for size, m in medians.items() if m is not None])
        cells = ("not reached" if m is None else format(m, form) for m in medians.values())
        out.add_row(name, *cells, "" if slope is None else f"{slope:.2f}")
    for name, looks, expired in (
        ("leases that had run out, of those read at rest", "looks", "expired"),
        ("the same in the other chains during the failover", "failoverLooks", "failoverExpired"),
    ):
        sums = [
            lost({"looks": sum(f[looks] for f in by_size[s]), "expired": sum(f[expired] for f in by_size[s])})
            for s in sizes
        ]
        out.add_row(name, *sums, "")
    return out


def run(size: int, options: argparse.Namespace) -> Found:
    """One network."""
    command = [str(COMMAND), "-switches", str(size), "-rest", f"{options.rest:g}s", "-lease", str(options.lease)]
    command += ["-patience", f"{options.patience:g}s", "-controller", str(CONTROLLER)]
    command += ["-chains", str(options.chains), "-members", str(options.members), "-until", options.until]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench_controller.py: {size} switches: {done.stderr.strip()[-500:]}")
    found: Found = json.loads(done.stdout)
    if "failed" in found:
        print(f"{size} switches: {found['failed']}", file=sys.stderr, flush=True)
    return found


MARK = "<!-- make bench-controller writes the rest of this page -->"


def write_page(result: Found) -> None:
    """Replace the run at the end of the page."""
    from experiments.bench_page import section  # noqa: PLC0415 - it imports this module

    kept, mark, _ = PAGE.read_text().partition(MARK)
    failed = [f"- {f['switches']:,} switches: {f['failed']}" for r in result["rounds"] for f in r if "failed" in f]
    notes = ["Measurements that ended early:", "", *failed, ""] if failed else []
    PAGE.write_text("\n".join([kept + mark, "", section(result, [table(result["rounds"])]).rstrip(), "", *notes]))


def main() -> int:
    """Measure, write down and say."""
    parser = argparse.ArgumentParser(
        prog="bench_controller.py", description="One controller against networks of many switches."
    )
    parser.add_argument("--switches", type=int, nargs="+", default=[10, 100, 1000], metavar="N", help="10 100 1000")
    parser.add_argument("--chains", type=int, default=0, metavar="N", help="default a tenth of the switches")
    parser.add_argument("--members", type=int, default=3, metavar="N", help="of each chain (default 3)")
    parser.add_argument("--until", default="restart", metavar="STEP", help="the last step to measure (default all)")
    parser.add_argument("--page", action="store_true", help="write the run into docs/benchmarks/controller.md")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of all networks, in turn (default 3)")
    parser.add_argument("--rest", type=float, default=60, metavar="SECONDS", help="at rest (default 60)")
    parser.add_argument("--lease", type=int, default=200, metavar="MS", help="read lease (default 200)")
    parser.add_argument("--patience", type=float, default=1200, metavar="SECONDS", help="for a step (default 1200)")
    parser.add_argument("--quick", action="store_true", help="10 and 20 switches, one round: whether it works")
    parser.add_argument("--out", type=Path, default=ROOT / "out", metavar="DIR", help="default out/")
    options = parser.parse_args()
    end_orderly()
    if options.quick:
        options.switches, options.rounds, options.rest = [10, 20], 1, 5
    origin, before, rounds = record(), os.getloadavg(), []
    try:
        for number in range(options.rounds):
            rounds.append([])
            for size in options.switches:
                rounds[-1].append(run(size, options))
                print(f"round {number + 1}, {size} switches: ready in {rounds[-1][-1]['ready']:.1f} s", flush=True)
    except KeyboardInterrupt:
        return 130
    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "run": origin,
        "rounds": rounds,
        "load_average": {"before": before, "after": os.getloadavg()},
        "cores": os.cpu_count(),
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()},
    }
    file = options.out / "bench-controller.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    console = Console(width=max(120, shutil.get_terminal_size().columns))
    console.print(table(rounds))
    show_load(console, result)
    console.print(f"written: {file}")
    if options.page:
        write_page(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
