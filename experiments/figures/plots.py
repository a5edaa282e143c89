# SPDX-License-Identifier: Apache-2.0
"""A plot of each figure: medians of the repetitions, and their spread."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text

from matplotlib import pyplot  # noqa: E402

from experiments.figures.definitions import Figure  # noqa: E402
from experiments.figures.store import Store  # noqa: E402

COLOURS = {"NetCRAQ": "tab:blue", "NetChain": "tab:orange"}
STYLES = {"ebpf tc": "-", "ebpf xdp": "--", "interp": "-.", "BMv2": ":"}

Series = dict[tuple[str, str], dict[float, list[float]]]
"""By system and engine: the measurements at each x."""


def series(store: Store, figure: Figure) -> Series:
    """What was measured for a figure."""
    out: Series = defaultdict(lambda: defaultdict(list))
    for point, values in store.rows(figure.name):
        out[point.system, point.engine][point.x].append(values["y"])
    return out


def draw(figure: Figure, data: Series, ceiling: dict[str, float], folder: Path) -> list[Path]:
    """Write the plot as PNG and SVG. ``ceiling`` is what the load reaches against a bare reflector, by engine."""
    canvas, axes = pyplot.subplots(figsize=(7, 4.2))
    for (system, engine), by_x in sorted(data.items()):
        xs = sorted(by_x)
        middle = [statistics.median(by_x[x]) for x in xs]
        low, high = [min(by_x[x]) for x in xs], [max(by_x[x]) for x in xs]
        axes.plot(xs, middle, STYLES.get(engine, "-"), color=COLOURS[system], marker="o", label=f"{system}, {engine}")
        axes.fill_between(xs, low, high, color=COLOURS[system], alpha=0.15)
    if figure.larger_is_better:
        for engine, rate in ceiling.items():
            axes.axhline(rate, color="grey", linestyle=STYLES.get(engine, "-"), linewidth=0.8)
            axes.annotate(
                f"what the load reaches against a bare reflector ({engine})",
                (0.01, rate),
                xycoords=("axes fraction", "data"),
                fontsize=7,
                va="bottom",
            )
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label, title=figure.title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    canvas.tight_layout()
    written = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
    for path in written:
        canvas.savefig(path, dpi=130)
    pyplot.close(canvas)
    return written


def ratios(figure: Figure, store: Store) -> list[dict[str, Any]]:
    """NetCRAQ over NetChain where the paper has a ratio, by engine: the median of the repetitions' ratios, and their spread."""
    values: dict[tuple[str, str, int, float], dict[int, float]] = defaultdict(dict)
    for point, row in store.rows(figure.name):
        values[point.system, point.engine, point.nodes, point.x][point.repetition] = row["y"]
    out = []
    for ratio in figure.ratios:
        for engine in sorted({engine for _, engine, _, _ in values}):
            ours, theirs = (values.get((system, engine, ratio.nodes, ratio.x), {}) for system in ("NetCRAQ", "NetChain"))
            each = [ours[n] / theirs[n] for n in ours if n in theirs]
            if each:
                out.append(
                    {
                        "figure": figure.name,
                        "what": ratio.what,
                        "engine": engine,
                        "paper": ratio.paper,
                        "measured": statistics.median(each),
                        "lowest": min(each),
                        "highest": max(each),
                        "repetitions": len(each),
                        "met": statistics.median(each) >= ratio.paper,
                    }
                )
    return out
