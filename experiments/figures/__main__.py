#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure NetCRAQ against NetChain and draw the figures (``make compare``).

Writes ``out/figures/*.csv``, ``.png`` and ``.svg``, ``out/figures.json`` (each ratio: the paper's, the measured one, its spread) and
``out/report.html``. What has been measured under the same conditions is not measured again: a run that was interrupted goes on.
``--fresh`` begins anew.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.bench import CPU, ENGINES, versions  # noqa: E402
from experiments.figures import plots, report  # noqa: E402
from experiments.figures.definitions import FIGURES, Figure, Options  # noqa: E402
from experiments.figures.store import Point, Store  # noqa: E402
from experiments.figures.systems import BITS, SYSTEMS, Failed, network  # noqa: E402
from topologies.nodes import NodeError  # noqa: E402


def points(figures: list[Figure], engines: list[str], repetitions: int) -> list[Point]:
    """All measurements, those on one network beside each other, the systems in turn."""
    out = []
    for repetition in range(repetitions):
        for engine in engines:
            for nodes in sorted({nodes for figure in figures for nodes, _ in figure.places}):
                for system in SYSTEMS if repetition % 2 == 0 else SYSTEMS[::-1]:
                    out += [Point(figure.name, system, engine, nodes, x, repetition) for figure in figures for n, x in figure.places if n == nodes]
    return out


def ceiling(engine: str, seconds: float) -> float:
    """Queries a second that the load makes against a bare reflector."""
    hook = "xdp" if engine == "ebpf xdp" else "tc"
    command = [
        "bin/netcraqctl",
        "bench",
        "-o",
        "json",
        "--ceiling",
        hook,
        "--frame-bits",
        str(BITS),
        "--duration",
        f"{seconds}s",
        "-n",
        "32",
        "--cpu",
        CPU,
    ]
    return json.loads(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout)["queriesPerSecond"]


def measure(todo: list[Point], store: Store, figures: dict[str, Figure], options: Options, progress: Progress) -> list[str]:
    """Measure what is not there yet. Returns what gave no figure."""
    failures = []
    task = progress.add_task("", total=len(todo))
    for (system, engine, nodes, repetition), same in groupby(todo, key=lambda p: (p.system, p.engine, p.nodes, p.repetition)):
        wanted = [point for point in same if store.get(point) is None or progress.advance(task)]
        if not wanted:
            continue
        try:
            with network(system, engine, nodes) as net:
                for point in wanted:
                    progress.update(
                        task, advance=1, description=f"{point.figure}: {system} on {engine}, {nodes} switches, at {point.x:g}, {repetition + 1}."
                    )
                    try:
                        store.add(point, figures[point.figure].measure(net, nodes, point.x, options))
                    except Failed as failure:
                        failures.append(f"{point.figure}, {system}, {engine}, {nodes} switches, at {point.x:g}: {failure}")
        except (Failed, NodeError) as failure:
            failures.append(f"{system} on {engine}, {nodes} switches: {failure}")
    return failures


def write(out: Path, figures: list[Figure], store: Store, limits: dict[str, float], failures: list[str]) -> list[dict[str, Any]]:
    """CSV, plots, ratios and the report."""
    folder = out / "figures"
    ratios = []
    for figure in figures:
        rows = sorted(store.rows(figure.name), key=lambda row: (row[0].system, row[0].engine, row[0].nodes, row[0].x, row[0].repetition))
        if not rows:
            continue
        fields = sorted({name for _, values in rows for name in values})
        with (folder / f"{figure.name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["system", "engine", "nodes", "x", "repetition", *fields, *store.conditions])
            for point, values in rows:
                named = [point.system, point.engine, point.nodes, point.x, point.repetition]
                writer.writerow([*named, *(values.get(name, "") for name in fields), *store.conditions.values()])
        plots.draw(figure, plots.series(store, figure), limits if "a second" in figure.y_label else {}, folder)
        ratios += plots.ratios(figure, store)
    (out / "figures.json").write_text(
        json.dumps({"conditions": store.conditions, "reflector": limits, "ratios": ratios, "failures": failures}, indent=2) + "\n"
    )
    report.write(out / "report.html", figures, ratios, store.conditions, failures)
    return ratios


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="experiments/figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition on one engine: a look, not a measurement")
    parser.add_argument("--engines", default="ebpf tc,interp,BMv2", help="with commas, of: " + ", ".join(ENGINES) + " (default: ebpf tc,interp,BMv2)")
    parser.add_argument("--only", help="figures, with commas, of: " + ", ".join(figure.name for figure in FIGURES))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each load (default: 0.5)")
    parser.add_argument("--fresh", action="store_true", help="measure again what has been measured")
    parser.add_argument("--out", type=Path, default=ROOT / "out")
    return parser


def main() -> int:
    """Command line."""
    options = arguments().parse_args()
    engines, only = options.engines.split(","), options.only.split(",") if options.only else [figure.name for figure in FIGURES]
    if unknown := [name for name in engines if name not in ENGINES] + [name for name in only if name not in {figure.name for figure in FIGURES}]:
        sys.exit(f"there is no engine or figure {', '.join(unknown)}: see --help")
    console = Console() if sys.stdout.isatty() else Console(width=150)
    load = Options(options.seconds)
    if options.quick:
        engines, options.repetitions, load = engines[:1], 1, Options(min(options.seconds, 0.25), (8, 32))
    if "BMv2" in engines and not shutil.which("simple_switch_grpc"):
        engines.remove("BMv2")
        console.print("BMv2 is left out: there is no simple_switch_grpc on PATH")
    figures = [figure for figure in FIGURES if figure.name in only]
    (options.out / "figures").mkdir(parents=True, exist_ok=True)
    raw = options.out / "figures" / "measurements.jsonl"
    if options.fresh:
        raw.unlink(missing_ok=True)
    store = Store(raw, {**versions(), "value bits": BITS, "seconds": load.seconds, "outstanding": " ".join(map(str, load.outstanding))})
    began = time.monotonic()
    columns = (TextColumn("[progress.percentage]{task.percentage:3.0f}%"), BarColumn(24), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        limits = {engine: ceiling(engine, load.seconds) for engine in engines if engine.startswith("ebpf")}
        failures = measure(points(figures, engines, options.repetitions), store, {figure.name: figure for figure in figures}, load, progress)
    ratios = write(options.out, figures, store, limits, failures)
    table = Table(title="NetCRAQ over NetChain")
    for column in ("", "engine", "the paper", "measured", "spread"):
        table.add_column(column)
    for row in ratios:
        measured = f"[{'green' if row['met'] else 'yellow'}]{row['measured']:.2f}[/]"
        table.add_row(row["what"], row["engine"], f"{row['paper']:.2f}", measured, f"{row['lowest']:.2f} to {row['highest']:.2f}")
    console.print(table)
    for failure in failures:
        console.print(f"  [red]no figure[/red] {failure}", highlight=False)
    console.print(f"  {time.monotonic() - began:.0f} s; open {options.out / 'report.html'} in a browser; every measurement is in {raw}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
