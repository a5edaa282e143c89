# SPDX-License-Identifier: Apache-2.0
"""A plot of each figure: medians of the repetitions, and their spread."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text in SVG

from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from experiments.figures import pairs, processors  # noqa: E402
from experiments.figures.definitions import Figure  # noqa: E402
from experiments.figures.store import Store  # noqa: E402
from experiments.figures.systems import NETCHAIN, PAPER, SHIPPED  # noqa: E402

COLOURS = {SHIPPED: "tab:blue", PAPER: "tab:red", NETCHAIN: "tab:orange"}
STYLES = {"ebpf tc": "-", "ebpf xdp": "--", "interp": "-.", "BMv2": ":"}

Series = dict[tuple[str, str], dict[float, list[float]]]
"""The measurements at each x, by system and engine."""


def series(store: Store, figure: Figure, name: str = "y") -> Series:
    """Return the measurements of a figure."""
    out: Series = defaultdict(lambda: defaultdict(list))
    for point, values in store.rows(figure.curve or figure.name, _place(store, figure)):
        if figure.curve:
            if (point.nodes, point.x) in figure.places:
                for x, y in values["quantiles"]:
                    out[point.system, point.engine][x].append(y)
        elif name in values:
            out[point.system, point.engine][point.x].append(values[name])
    return out


def _place(store: Store, figure: Figure) -> str:
    """Return the place of a figure's measurements: one CPU if there are any, otherwise all CPUs."""
    return processors.ONE if any(store.rows(figure.curve or figure.name)) else processors.ALL


def draw(figure: Figure, store: Store, ceiling: dict[str, float], folder: Path) -> list[Path]:
    """Write the plot as PNG and SVG. ``ceiling`` is the rate that the load reaches against a bare
    reflector, by engine.

    Engines that differ by orders of magnitude each have a plot of their own, side by side.
    """
    data = series(store, figure)
    everywhere = ", all CPUs" if _place(store, figure) == processors.ALL else ""
    engines = sorted({engine for _, engine in data}, key=list(STYLES).index)
    canvas, grid = pyplot.subplots(1, len(engines), figsize=(1.5 + 4.5 * len(engines), 4.4), squeeze=False)
    for axes, engine in zip(grid[0], engines, strict=True):
        mine = {system: by_x for (system, its), by_x in data.items() if its == engine}
        _lines(axes, mine, evenly=bool(figure.curve))
        axes.set(xlabel=figure.x_label, title=engine + everywhere)
        if figure.curve:
            shares = sorted(next(iter(mine.values())))
            axes.set_xticks(range(len(shares)), [f"{share:g}" for share in shares])
        elif not figure.log:
            axes.set_xticks(sorted({x for by_x in mine.values() for x in by_x}))
        if figure.log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter("{x:,.0f}" if axes.get_ylim()[1] > 20 else "{x:g}")
        if figure.reflector and engine in ceiling:
            axes.axhline(ceiling[engine], color="grey", linewidth=0.8)
            axes.set_ylim(top=max(axes.get_ylim()[1], 1.1 * ceiling[engine]))
            axes.annotate(
                "the load against a bare reflector",
                (0.02, ceiling[engine]),
                xycoords=("axes fraction", "data"),
                fontsize=7,
                va="bottom",
            )
        if figure.second:
            beside = axes.twinx()
            for (system, its), by_x in series(store, figure, figure.second[0]).items():
                if its == engine:
                    xs = sorted(by_x)
                    beside.plot(
                        xs,
                        [statistics.median(by_x[x]) for x in xs],
                        "x--",
                        color="tab:green",
                        label=f"{figure.second[1]} ({system})",
                    )
            beside.set_ylabel(figure.second[1], color="tab:green")
            beside.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    grid[0][0].set_ylabel(figure.y_label)
    canvas.suptitle(figure.title)
    canvas.tight_layout()
    written = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
    for path in written:
        canvas.savefig(path, dpi=110)
    pyplot.close(canvas)
    return written


def _lines(axes: Axes, by_system: dict[str, dict[float, list[float]]], evenly: bool) -> None:
    """Draw a line for each system, its spread as a shade; ``evenly`` puts the xs at equal
    distances.
    """
    for system in sorted(by_system, key=list(COLOURS).index):
        by_x = by_system[system]
        xs = sorted(by_x)
        at = list(range(len(xs))) if evenly else xs
        axes.plot(at, [statistics.median(by_x[x]) for x in xs], color=COLOURS[system], marker="o", label=system)
        axes.fill_between(at, [min(by_x[x]) for x in xs], [max(by_x[x]) for x in xs], color=COLOURS[system], alpha=0.2)


def ratios(figure: Figure, store: Store) -> list[dict[str, Any]]:
    """Return the ratios of NetCRAQ, as shipped and as in the paper, to NetChain where the paper has
    a ratio, by engine and CPUs: the median of the pairs' ratios of the rate and its interval.
    Included are the ratios of the processor time and of the programs' own time for a query
    (NetChain's over NetCRAQ's, so that more is better in all three).
    """
    values: dict[tuple[str, str, str, int, float], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for point, row in store.rows(figure.name, None):
        for name in ("y", "cpu_us", "program_ns"):
            if name in row:
                place = point.system, point.engine, point.cpus, point.nodes, point.x
                values[place][name][point.repetition] = row[name]
    where = sorted({(engine, cpus) for _, engine, cpus, _, _ in values}, key=_order)
    out = []
    for ratio in figure.ratios:
        for system, (engine, cpus) in itertools.product((PAPER, SHIPPED), where):
            ours, theirs = (values.get((its, engine, cpus, ratio.nodes, ratio.x), {}) for its in (system, NETCHAIN))
            rate = pairs.ratio(ours.get("y", {}), theirs.get("y", {}))
            if rate is None:
                continue
            met = rate.measured and rate.middle >= ratio.paper
            out.append(
                {
                    "figure": figure.name,
                    "what": ratio.what,
                    "system": system,
                    "engine": engine,
                    "cpus": cpus,
                    "paper": ratio.paper,
                    **described(rate),
                    "cpu": described(pairs.ratio(theirs.get("cpu_us", {}), ours.get("cpu_us", {}))),
                    "program": described(pairs.ratio(theirs.get("program_ns", {}), ours.get("program_ns", {}))),
                    "met": met,
                    "why": figure.why(store, engine)
                    if figure.why and not met and cpus == processors.ONE and system == SHIPPED
                    else "",
                }
            )
    return out


def _order(place: tuple[str, str]) -> tuple[int, int]:
    return list(STYLES).index(place[0]), list(processors.PLACES).index(place[1])


def described(of: pairs.Estimate | None) -> dict[str, Any]:
    """Return an estimate for ``figures.json``; None is an estimate from no pairs."""
    if of is None:
        return {"measured": None, "lowest": None, "highest": None, "pairs": 0, "valid": False}
    return {
        "measured": of.middle,
        "lowest": of.low,
        "highest": of.high,
        "pairs": of.pairs,
        "valid": of.measured,
    }
