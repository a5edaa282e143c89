# SPDX-License-Identifier: Apache-2.0
"""The page that compares the workload with and without NetCRAQ: two figures and a table, in one
self-contained HTML file.

The evaluation's report (``experiments/figures``) has the same section, which it takes from
``section.html``.
"""

from __future__ import annotations

import base64
import html
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

COLOURS = {"without": "#888888", "with": "#1f77b4"}
NAMES = {"without": "without NetCRAQ", "with": "with NetCRAQ"}

STYLE = """
body{font:16px/1.5 sans-serif;max-width:75em;margin:2em auto;padding:0 1em}p{max-width:60em}img{max-width:100%}
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left;vertical-align:top}
td.n{text-align:right;white-space:nowrap}
"""

EXPLANATION = """The workload of the paper's section II-D on a real Kubernetes of three nodes: a stateless deployment is scaled from 2 to 25 pods and
to none. Counted is what the API server asks of the etcd gateway. Without NetCRAQ all of it goes to etcd; with it the chain over the nodes' switches
holds the keys, but for leases and events, and the gateway reads them there."""


def write(results: dict[str, list[dict[str, Any]]], facts: dict[str, str], folder: Path) -> Path:
    """Write the figures, the page and the numbers. Returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "workload.json").write_text(json.dumps({"facts": facts, "runs": results}, indent=1) + "\n")
    pictures = [_requests(results, folder), _starts(results, folder)]
    parts = ["<h2 id=kubernetes>What Kubernetes asks of etcd</h2>", f"<p>{EXPLANATION}</p>", _table(results)]
    for picture in pictures:
        parts.append(f"<p><img src='data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}'></p>")
    parts.append(_hottest(results))
    parts.append(
        "<p class=why>"
        + "; ".join(f"{html.escape(name)}: {html.escape(value)}" for name, value in facts.items())
        + "</p>"
    )
    section = "\n".join(parts)
    (folder / "section.html").write_text(section)
    page = folder / "workload.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><title>Kubernetes on NetCRAQ</title><style>{STYLE}</style>\n{section}"
    )
    return page


def median(runs: list[dict[str, Any]], *path: str) -> float | None:
    """The median of a number over the runs; None if no run has it."""
    found = []
    for run in runs:
        value: Any = run
        for name in path:
            value = value.get(name) if value else None
        if value is not None:
            found.append(value)
    return statistics.median(found) if found else None


ROWS = (
    ("gets of one key", ("gets",), "{:.0f}"),
    ("... answered in the network", ("networkShare",), "{:.0%}"),
    ("reads of the 25 hottest keys, of all reads of keys (the paper: 55 %)", ("hottestShare",), "{:.0%}"),
    ("a get's round trip to the network, mean", ("meanSeconds", "network read"), "{:.6f} s"),
    ("a get's round trip to etcd, mean", ("meanSeconds", "etcd get"), "{:.6f} s"),
    ("a write transaction's to etcd, mean", ("meanSeconds", "etcd txn"), "{:.6f} s"),
    ("a pod's start, from its creation to ready, median", ("podStartMedian",), "{:.2f} s"),
    ("the whole run", ("seconds",), "{:.0f} s"),
)


def rows(results: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """The rows of the table: medians over the runs."""
    kinds = {kind for runs in results.values() for run in runs for kind in run["requests"]}
    order = sorted(kinds, key=lambda kind: -(median(results["without"], "requests", kind) or 0))
    listed = [(f"requests: {kind}", ("requests", kind), "{:.0f}") for kind in order] + list(ROWS)
    table = []
    for title, path, form in listed:
        values = [median(results[which], *path) for which in NAMES]
        table.append([title, *("" if value is None else form.format(value) for value in values)])
    return table


def _table(results: dict[str, list[dict[str, Any]]]) -> str:
    head = "".join(f"<th>{name}, {len(results[which])} runs" for which, name in NAMES.items())
    body = "".join(
        f"<tr><td>{html.escape(title)}" + "".join(f"<td class=n>{value}" for value in values)
        for title, *values in rows(results)
    )
    return f"<table><tr><th>medians{head}</tr>{body}</table>"


def _hottest(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = "".join(
        f"<tr><td>{html.escape(key)}<td class=n>{count}" for key, count in results["with"][-1]["hottest"].items()
    )
    return f"<h3>The 25 hottest keys of the last run</h3><table><tr><th>key<th>gets</tr>{lines}</table>"


def _save(figure: Any, folder: Path, name: str) -> Path:
    figure.tight_layout()
    for suffix in ("svg", "png"):
        figure.savefig(folder / f"{name}.{suffix}", dpi=120)
    pyplot.close(figure)
    return folder / f"{name}.png"


def _requests(results: dict[str, list[dict[str, Any]]], folder: Path) -> Path:
    """A figure of the system that answered the gets, and of the requests that are not gets."""
    figure, axes = pyplot.subplots(figsize=(9, 3.2))
    kinds = [
        kind
        for kind, _ in sorted(results["without"][-1]["requests"].items(), key=lambda entry: entry[1])
        if kind != "get"
    ]
    network = {
        which: (median(runs, "gets") or 0) * (median(runs, "networkShare") or 0) for which, runs in results.items()
    }
    for place, which in enumerate(NAMES):
        runs, left = results[which], 0.0
        parts = [
            ("get, network", network[which], "#2ca02c"),
            ("get, etcd", (median(runs, "gets") or 0) - network[which], "#98df8a"),
        ]
        palette = pyplot.get_cmap("tab20b")
        parts += [
            (kind, median(runs, "requests", kind) or 0, palette(index * 3 % 20))
            for index, kind in enumerate(reversed(kinds))
        ]
        for label, size, colour in parts:
            axes.barh(place, size, left=left, color=colour, label=label if place == 0 else None)
            left += size
    axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
    axes.set_xlabel("requests of the API server in one run (median)")
    axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.35))
    return _save(figure, folder, "requests")


def _starts(results: dict[str, list[dict[str, Any]]], folder: Path) -> Path:
    """A figure of the start time of pods: the share of pods that are ready, over the seconds."""
    figure, axes = pyplot.subplots(figsize=(9, 3.2))
    for which, name in NAMES.items():
        starts = sorted(start for run in results[which] for start in run["podStartSeconds"])
        axes.step(
            starts,
            [(index + 1) / len(starts) for index in range(len(starts))],
            where="post",
            color=COLOURS[which],
            label=name,
        )
    axes.set_xlabel("seconds from a pod's creation to its being ready")
    axes.set_ylabel("share of the pods")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.legend()
    return _save(figure, folder, "pod-starts")
