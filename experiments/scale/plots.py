# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, as SVG: rates and latencies by the size of the fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "netcraq", "font.size": 9})

from matplotlib import pyplot  # noqa: E402

from experiments.scale.costs import CHIP, NETCHAIN, NETCRAQ, TC  # noqa: E402


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write the figures and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    canvas, panes = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for axes, engine in zip(panes, (TC, CHIP), strict=True):
        rows = [r for r in result["sizes"] if r["engine"] == engine and r["hashed"] == (r["system"] == NETCHAIN)]
        for chains, members in sorted({(r["chains"], r["members"]) for r in rows if r["system"] == NETCRAQ}):
            same = [r for r in rows if (r["system"], r["chains"], r["members"]) == (NETCRAQ, chains, members)]
            _line(axes, same, f"NetCRAQ, {chains} of {members}", "-")
        _line(axes, [r for r in rows if r["system"] == NETCHAIN], "NetChain, virtual groups", "--")
        if engine == TC:
            for row in result["etcd"]:
                if row["reads"] == rows[0]["reads"]:
                    axes.axhline(row["reads_a_second"], color="grey", linewidth=0.8)
                    axes.annotate(row["system"], (rows[0]["switches"], row["reads_a_second"]), fontsize=7, va="bottom")
        axes.set(
            xscale="log", yscale="log", xlabel="switches", title="kernel, tc, one core each" if engine == TC else "chip"
        )
    panes[0].set_ylabel("reads a second, predicted")
    panes[0].legend(fontsize=6)
    rates = _save(canvas, folder / "scale-rate.svg")

    canvas, axes = pyplot.subplots(figsize=(6, 3.6))
    for system, colour in ((NETCRAQ, "tab:blue"), (NETCHAIN, "tab:orange")):
        rows = [r for r in result["latencies"] if (r["system"], r["engine"]) == (system, TC)]
        for kind, style in (("read", "-"), ("write", "--")):
            sizes = [r["switches"] for r in rows]
            axes.plot(
                sizes, [r[f"{kind}_p50"] for r in rows], style, color=colour, marker="o", label=f"{system}, {kind}, p50"
            )
            axes.plot(
                sizes, [r[f"{kind}_p99"] for r in rows], style, color=colour, alpha=0.4, label=f"{system}, {kind}, p99"
            )
    axes.set(xscale="log", xlabel="switches", ylabel="µs, predicted, at half of the highest rate", ylim=(0, None))
    axes.legend(fontsize=6)
    return [rates, _save(canvas, folder / "scale-latency.svg")]


def _line(axes: Any, rows: list[dict[str, Any]], label: str, style: str) -> None:
    axes.plot([r["switches"] for r in rows], [r["reads_a_second"] for r in rows], style, marker="o", label=label)
    axes.grid(alpha=0.3)


def _save(canvas: Any, path: Path) -> Path:
    canvas.tight_layout()
    canvas.savefig(path, metadata={"Date": None})
    pyplot.close(canvas)
    return path
