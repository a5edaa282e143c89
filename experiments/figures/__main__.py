#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure NetCRAQ, as shipped and as its paper describes it, against NetChain and against common
alternatives, and draw the figures (``make figures``).

Writes ``out/figures/*.csv``, ``.png`` and ``.svg``, ``out/figures.json`` (each ratio: the paper's,
the measured one, its spread) and ``out/report.html``. A measurement that exists for the same
conditions is not repeated, so an interrupted run continues. ``--fresh`` begins again.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.bench import ENGINES, ceiling  # noqa: E402
from experiments.figures import failover, pairs, peers, plots, processors, programs, report  # noqa: E402
from experiments.figures.definitions import FIGURES, Figure, Options  # noqa: E402
from experiments.figures.store import Point, Store  # noqa: E402
from experiments.figures.systems import BITS, SYSTEMS, Failed, together  # noqa: E402
from experiments.provenance import versions  # noqa: E402
from topologies.nodes import NodeError  # noqa: E402


def points(figures: list[Figure], engines: list[str], rounds: int, slices: int, cpus: Sequence[str]) -> list[Point]:
    """Return all measurements. Each time a network is brought up, the slices of all systems
    alternate at each place (:mod:`experiments.figures.pairs`).
    """
    measured = [figure for figure in figures if not figure.curve]
    return [
        Point(figure.name, system, engine, nodes, x, number * slices + of, where)
        for number in range(rounds)
        for engine in engines
        for where in cpus
        for nodes in sorted({nodes for figure in measured for nodes, _ in figure.places})
        for figure in measured
        for n, x in figure.places
        if n == nodes
        for of in range(1 if figure.counted else slices)
        for system in pairs.turn(of, SYSTEMS)
    ]


def reflector(engine: str, seconds: float) -> float:
    """Measure how many queries a second the load reaches against a bare reflector."""
    command = ceiling("xdp" if engine == "ebpf xdp" else "tc", BITS, seconds, ("-n", "32"))
    return json.loads(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout)[
        "queriesPerSecond"
    ]


def measure(
    todo: list[Point],
    slices: int,
    store: Store,
    figures: dict[str, Figure],
    options: Options,
    step: Callable[[str], None],
) -> list[str]:
    """Make the missing measurements. If one system of a pair is missing, all systems of the pair
    are measured again. Returns the failures.
    """
    failures = []
    for (number, engine, where, nodes), group in groupby(
        todo, key=lambda p: (p.repetition // slices, p.engine, p.cpus, p.nodes)
    ):
        same = list(group)
        missing = {(p.figure, p.x, p.repetition) for p in same if store.get(p) is None}
        wanted = [p for p in same if (p.figure, p.x, p.repetition) in missing]
        for _ in range(len(same) - len(wanted)):
            step("")
        if not wanted:
            continue
        name = f"{engine}, {nodes} switches, {where} CPU"
        try:
            with together(engine, nodes, where) as nets:
                for point in wanted:
                    step(f"{point.figure}: {point.system} on {name}, at {point.x:g}, {number + 1}.")
                    try:
                        values = figures[point.figure].measure(nets[point.system], nodes, point.x, options)
                        store.add(point, values)
                    except Failed as failure:
                        failures.append(f"{point.figure}, {point.system}, {name}, at {point.x:g}: {failure}")
        except (Failed, NodeError) as failure:
            failures.append(f"{name}: {failure}")
    return failures


def write_csv(path: Path, store: Store, name: str) -> bool:
    """Write every measurement of a figure, with its conditions. Returns False if there is none."""
    rows = sorted(
        store.rows(name, None),
        key=lambda row: (row[0].system, row[0].engine, row[0].cpus, row[0].nodes, row[0].x, row[0].repetition),
    )
    if not rows:
        return False
    fields = sorted({field for _, values in rows for field in values})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["system", "engine", "cpus", "nodes", "x", "repetition", *fields, *store.conditions])
        for point, values in rows:
            named = [point.system, point.engine, point.cpus, point.nodes, point.x, point.repetition]
            writer.writerow([*named, *(values.get(field, "") for field in fields), *store.conditions.values()])
    return True


def write(
    out: Path,
    figures: list[Figure],
    beside: list[str],
    store: Store,
    limits: dict[str, float],
    absent: dict[str, str],
    failures: list[str],
) -> dict[str, Any]:
    """Write CSV, plots, ratios and the report. ``beside`` are the names of the parts that are no
    :class:`Figure`. Returns the content of ``figures.json``.
    """
    folder = out / "figures"
    ratios, described = [], []
    for figure in figures:
        if write_csv(folder / f"{figure.name}.csv", store, figure.curve or figure.name):
            plots.draw(figure, store, limits, folder)
            ratios += plots.ratios(figure, store)
            described.append(figure)
    against, sections = [], []
    if peers.NAME in beside and write_csv(folder / "peers.csv", store, peers.NAME):
        peers.draw(store, folder)
        against = peers.ratios(store)
        sections.append(report.peers_section(folder, against, absent))
    if programs.NAME in beside and programs.write_csv(store, folder):
        sections.insert(0, programs.section(store))
    if failover.NAME in beside and failover.write_csv(store, folder):
        failover.draw(store, folder)
        sections.append(failover.section(store, folder))
    if (kubernetes := out / "k8s" / "section.html").exists():  # written by make e2e-k8s
        sections.append(kubernetes.read_text())
    result = {
        "conditions": store.conditions,
        "reflector": limits,
        "ratios": ratios,
        "peers": against,
        "absent": absent,
        "failures": failures,
    }
    (out / "figures.json").write_text(json.dumps(result, indent=2) + "\n")
    report.write(out / "report.html", described, ratios, store.conditions, failures, sections)
    return result


BESIDE = [programs.NAME, failover.NAME, peers.NAME]
"""Figures with their own measuring and drawing code."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="experiments/figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few short slices on one engine, once, to see whether it works"
    )
    parser.add_argument(
        "--engines",
        default="ebpf tc,interp,BMv2",
        help="engines, with commas, of: " + ", ".join(ENGINES) + " (default: ebpf tc,interp,BMv2)",
    )
    parser.add_argument(
        "--only", help="figures, with commas, of: " + ", ".join([*(figure.name for figure in FIGURES), *BESIDE])
    )
    parser.add_argument(
        "--compare", action="store_true", help="measure only NetChain and both NetCRAQs: no etcd, Redis, memcached"
    )
    parser.add_argument(
        "--cpus",
        default="one,all",
        help="CPUs that everything that forwards may use, with commas: one, or all (default: one,all)",
    )
    parser.add_argument(
        "--repetitions", type=int, default=5, help="number of times the networks are created (default: 5)"
    )
    parser.add_argument(
        "--slices", type=int, default=8, help="slices of each system at each place, each time (default: 8)"
    )
    parser.add_argument("--seconds", type=float, default=0.15, help="length of each slice (default: 0.15)")
    parser.add_argument(
        "--redraw", action="store_true", help="measure nothing: draw the last measurements, under whatever conditions"
    )
    parser.add_argument("--fresh", action="store_true", help="repeat existing measurements")
    parser.add_argument("--out", type=Path, default=ROOT / "out")
    return parser


def main() -> int:
    """Run the command line."""
    options = arguments().parse_args()
    names = [figure.name for figure in FIGURES] + BESIDE
    engines, only = options.engines.split(","), options.only.split(",") if options.only else names
    if options.compare:
        only = [name for name in only if name != peers.NAME]
    if unknown := [name for name in engines if name not in ENGINES] + [name for name in only if name not in names]:
        sys.exit(f"there is no engine or figure {', '.join(unknown)}: see --help")
    console = Console() if sys.stdout.isatty() else Console(width=150)
    cpus = options.cpus.split(",")
    if unknown := [place for place in cpus if place not in processors.PLACES]:
        sys.exit(f"--cpus {', '.join(unknown)}: there are {', '.join(processors.PLACES)}")
    load = Options(options.seconds)
    if options.quick:
        engines, cpus, options.repetitions, options.slices = engines[:1], cpus[:1], 1, min(options.slices, 6)
        load = Options(min(options.seconds, 0.1), (8, 32), 1)
    if processors.ONE in cpus and processors.steering():
        sys.exit(
            "the kernel hands received frames to other CPUs (net.core.rps_default_mask is not 0): nothing stays on one. "
            "Set it to 0, or ask for --cpus all"
        )
    if "BMv2" in engines and not shutil.which("simple_switch_grpc"):
        engines.remove("BMv2")
        console.print("BMv2 is left out: there is no simple_switch_grpc on PATH")
    # A distribution is drawn from another figure's measurements.
    needed = {figure.curve for figure in FIGURES if figure.name in only and figure.curve}
    figures = [figure for figure in FIGURES if figure.name in only or figure.name in needed]
    (options.out / "figures").mkdir(parents=True, exist_ok=True)
    raw = options.out / "figures" / "measurements.jsonl"
    if options.fresh:
        raw.unlink(missing_ok=True)
    store = Store(
        raw,
        {
            **versions(),
            "value bits": BITS,
            "seconds": load.seconds,
            "outstanding": " ".join(map(str, load.outstanding)),
            "slices": options.slices,
        },
    )
    if options.redraw:
        before = options.out / "figures.json"
        limits = json.loads(before.read_text())["reflector"] if before.exists() else {}
        show(
            console,
            write(options.out, figures, [name for name in BESIDE if name in only], Store.last(raw), limits, {}, []),
        )
        return 0
    began = time.monotonic()
    todo = points(figures, engines, options.repetitions, options.slices, cpus)
    columns = (
        TextColumn("[progress.percentage]{task.percentage:3.0f}%"),
        BarColumn(24),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        runs = failover.points(engines, options.repetitions) if failover.NAME in only else []
        task = progress.add_task("", total=len(todo) + len(runs) + (options.repetitions if peers.NAME in only else 0))

        def step(what: str) -> None:
            progress.update(task, advance=1, description=what)

        limits = {engine: reflector(engine, load.seconds) for engine in engines if engine.startswith("ebpf")}
        failures = []
        if programs.NAME in only:
            progress.update(task, description=programs.TITLE)
            failures += programs.measure(store, engines)
        failures += measure(todo, options.slices, store, {figure.name: figure for figure in figures}, load, step)
        failures += failover.measure(runs, store, step)
        if peers.NAME in only:
            failures += peers.measure(store, options.repetitions, max(load.seconds, 0.25), step)
    absent = peers.missing() if peers.NAME in only else {}
    result = write(options.out, figures, [name for name in BESIDE if name in only], store, limits, absent, failures)
    show(console, result)
    console.print(
        f"  {time.monotonic() - began:.0f} s; open {options.out / 'report.html'} in a browser; every measurement is in {raw}"
    )
    return 1 if failures else 0


def show(console: Console, result: dict[str, Any]) -> None:
    """Print the ratios, the missing parts and the failures."""
    table = Table(title="Over NetChain: medians of pairs of slices, with their interval of 95 %")
    for column in (
        "",
        "system",
        "engine",
        "CPUs",
        "the paper",
        "queries a second",
        "CPU time a query",
        "programs' time",
    ):
        table.add_column(column)
    for row in result["ratios"]:
        table.add_row(
            row["what"],
            row["system"],
            row["engine"],
            row["cpus"],
            f"{row['paper']:.2f}",
            report.said(row, f"[{'green' if row['met'] else 'yellow'}]", "[/]"),
            report.said(row["cpu"]),
            report.said(row["program"]),
        )
    if result["ratios"]:
        console.print(table)
        if any(
            ratio["measured"] and not ratio["valid"]
            for row in result["ratios"]
            for ratio in (row, row["cpu"], row["program"])
        ):
            console.print("  " + report.UNCERTAIN, highlight=False)
    table = Table(title="NetCRAQ against etcd with three members")
    for column in ("", "the aim", "measured", "spread"):
        table.add_column(column)
    for row in result["peers"]:
        table.add_row(
            row["what"],
            f"{row['aim']:.2f}" if row["aim"] else "",
            f"[{'green' if row['met'] else 'yellow'}]{row['measured']:.2f}[/]",
            f"{row['lowest']:.2f} to {row['highest']:.2f}",
        )
    if result["peers"]:
        console.print(table)
    for system, why in result["absent"].items():
        console.print(f"  [yellow]left out[/yellow] {system}: {why}", highlight=False)
    for failure in result["failures"]:
        console.print(f"  [red]no figure[/red] {failure}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
