# SPDX-License-Identifier: Apache-2.0
"""The report: one self-contained HTML file with each figure, its explanation, and the paper's
value.
"""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any, Protocol

from experiments.figures import peers

STYLE = """
body{font:16px/1.5 sans-serif;max-width:75em;margin:2em auto;padding:0 1em}p{max-width:60em}img{max-width:100%}
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left;vertical-align:top}
td.n{text-align:right;white-space:nowrap}.short{color:#a40}.why{font-size:90%;color:#555}
"""


class Described(Protocol):
    """A figure, as the report uses it."""

    @property
    def name(self) -> str:
        """The name of its files in ``figures/``."""

    @property
    def title(self) -> str:
        """The title."""

    @property
    def explanation(self) -> str:
        """What the figure shows, and how it was measured."""


UNCERTAIN = (
    "~: the interval of 95 % is wider than 15 % of the median, or there are fewer than six pairs for one. "
    "The machine was busy, or the slices were few: measure again on a calm one, with more slices."
)


def median(row: dict[str, Any], before: str = "", after: str = "") -> str:
    """Format the median of a ratio. ``before`` and ``after`` enclose a certain one; an uncertain
    one has a ``~``.
    """
    return f"{before}{row['measured']:.2f}{after}" if row["valid"] else f"~{row['measured']:.2f}"


def said(row: dict[str, Any], before: str = "", after: str = "") -> str:
    """Format a ratio with its interval: ``1.84 (1.80 to 1.90)``; an uncertain one also has its
    number of pairs.
    """
    if row["measured"] is None:
        return ""
    pairs = "" if row["valid"] else f", {row['pairs']} pairs"
    return f"{median(row, before, after)} ({row['lowest']:.2f} to {row['highest']:.2f}{pairs})"


def overview(rows: list[dict[str, Any]]) -> str:
    """Return a table of all ratios, with a column for each engine and its CPUs."""
    places = list(dict.fromkeys((row["engine"], row["cpus"]) for row in rows))
    parts = [
        "<table><tr><th>over NetChain<th>system<th>the paper"
        + "".join(f"<th>{html.escape(engine)}, {cpus} CPU" for engine, cpus in places)
        + "</tr>"
    ]
    for what, system in dict.fromkeys((row["what"], row["system"]) for row in rows):
        own = {(row["engine"], row["cpus"]): row for row in rows if (row["what"], row["system"]) == (what, system)}
        first = next(iter(own.values()))
        cells = [
            f"<td class='n{'' if own[place]['met'] else ' short'}'>" + median(own[place])
            if place in own
            else "<td class=n>"
            for place in places
        ]
        parts.append(
            f"<tr><td><a href=#{first['figure']}>{html.escape(what)}</a><td>{html.escape(system)}"
            f"<td class=n>{first['paper']:.2f}{''.join(cells)}</tr>"
        )
    parts.append(
        "</table><p class=why>Medians of pairs of slices; in this colour what is less than the paper has: the figure says why. "
        f"{UNCERTAIN} The intervals are at the figures.</p>"
    )
    return "\n".join(parts)


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table of a figure's ratios and the paper's, with an explanation for those below the
    paper's.
    """
    parts = [
        "<table><tr><th>over NetChain<th>system<th>engine<th>CPUs<th>the paper<th>queries a second"
        "<th>processor time a query<th>programs' time a query<th>pairs</tr>"
    ]
    whys: dict[str, str] = {}
    for row in rows:
        mark = "" if row["met"] else " class=short"
        parts.append(
            f"<tr{mark}><td>{html.escape(row['what'])}<td>{html.escape(row['system'])}<td>{html.escape(row['engine'])}"
            f"<td>{row['cpus']}<td class=n>{row['paper']:.2f}"
            f"<td class=n>{said(row)}<td class=n>{said(row['cpu'])}<td class=n>{said(row['program'])}<td class=n>{row['pairs']}</tr>"
        )
        if row["why"]:
            whys.setdefault(row["engine"], row["why"])
    parts.append("</table>")
    parts += [
        f"<p class=why><b>Why less, on {html.escape(engine)}:</b> {html.escape(why)}</p>"
        for engine, why in whys.items()
    ]
    return "\n".join(parts)


def peers_section(folder: Path, rows: list[dict[str, Any]], absent: dict[str, str]) -> str:
    """Return the comparison with etcd, Redis and memcached; those missing on this machine are
    listed with the reason.
    """
    parts = [f"<h2 id={peers.NAME}>{peers.TITLE}</h2><p>{html.escape(peers.explanation)}</p>"]
    parts.append(
        f"<img alt='{peers.TITLE}' src='data:image/png;base64,{base64.b64encode((folder / f'{peers.NAME}.png').read_bytes()).decode()}'>"
    )
    parts.append("<table><tr><th>NetCRAQ against etcd with three members<th>aim<th>measured<th>spread<th>runs</tr>")
    for row in rows:
        mark, aim = "" if row["met"] else " class=short", f"{row['aim']:.0f}" if row["aim"] else ""
        parts.append(
            f"<tr{mark}><td>{html.escape(row['what'])}<td class=n>{aim}<td class=n>{row['measured']:.1f}<td class=n>{row['lowest']:.1f} to "
            f"{row['highest']:.1f}<td class=n>{row['repetitions']}</tr>"
        )
    parts.append(f"</table><p class=why>Data: figures/{peers.NAME}.csv</p>")
    parts += [f"<p class=why>Left out: {html.escape(system)}: {html.escape(why)}</p>" for system, why in absent.items()]
    return "\n".join(parts)


def write(
    path: Path,
    figures: list[Described],
    ratios: list[dict[str, Any]],
    conditions: dict[str, Any],
    failures: list[str],
    sections: list[str],
) -> None:
    """Write the report. The plots must be next to it, in ``figures/``. ``sections`` are additional
    parts, as HTML, before the figures.
    """
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>NetCRAQ: the evaluation</title><style>{STYLE}</style><h1>NetCRAQ against "
        "NetChain</h1>"
    ]
    parts.append(
        "<p>NetChain (NSDI 2018) replicates by a chain and reads at its tail. NetCRAQ reads at any switch whose copy is clean. "
        "A third system is NetCRAQ as its paper describes it, without what the shipped program guarantees beyond that (p4src/paper). "
        "All are up at once, on the same kind of switches, links and load, and are asked in turn in short slices (A, B, C, C, B, A). "
        "What everything that forwards may use is one CPU, or all: plots are of one. "
        "Lines are medians of the slices, the shade is their spread; a ratio is the median of the pairs' ratios. "
        "Every value that was read was compared with what was written; a run with a wrong value gives no figure and is named at the end.</p>"
        "<p>The switches of a chain share the CPUs of this one machine, so a frame costs the same wherever it is handled, and no switch is a "
        "bottleneck of its own. "
        "The load is made in the kernel; where a plot has a grey line, that is what the load reaches against a program that only swaps addresses.</p>"
    )
    parts.append("<p>" + html.escape(", ".join(f"{key}: {value}" for key, value in conditions.items())) + "</p>")
    if ratios:
        parts.append("<h2>The paper's ratios</h2>" + overview(ratios))
    parts += sections
    for figure in figures:
        image = path.parent / "figures" / f"{figure.name}.png"
        if not image.exists():
            continue
        data = base64.b64encode(image.read_bytes()).decode()
        name = html.escape(figure.title)
        parts.append(f"<h2 id={figure.name}>{name}</h2><p>{html.escape(figure.explanation)}</p>")
        parts.append(f"<img alt='{name}' src='data:image/png;base64,{data}'>")
        parts.append(f"<p class=why>Data: figures/{figure.name}.csv</p>")
        own = [row for row in ratios if row["figure"] == figure.name]
        if own:
            parts.append(table(own))
    if failures:
        parts.append(
            "<h2>No figure</h2><ul>" + "".join(f"<li>{html.escape(failure)}" for failure in failures) + "</ul>"
        )
    path.write_text("\n".join(parts) + "\n")
