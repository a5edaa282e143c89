# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file that needs no other, with each figure, what it shows, and what the paper has."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from experiments.figures.definitions import Figure

STYLE = """body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}img{max-width:100%}table{border-collapse:collapse}
td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left}td.n{text-align:right}.short{color:#a40}"""


def write(path: Path, figures: list[Figure], ratios: list[dict[str, Any]], conditions: dict[str, Any], failures: list[str]) -> None:
    """Write the report. The plots must be beside it, in ``figures/``."""
    parts = [f"<!doctype html><meta charset=utf-8><title>NetCRAQ against NetChain</title><style>{STYLE}</style><h1>NetCRAQ against NetChain</h1>"]
    parts.append(
        "<p>Both systems run on the same switches, links and load, one after the other, again for each repetition. "
        "Lines are medians, the shade is the spread. "
        "Every value that was read was compared with what was written; a run with a wrong value gives no figure.</p>"
    )
    parts.append("<p>" + html.escape(", ".join(f"{key}: {value}" for key, value in conditions.items())) + "</p>")
    if ratios:
        parts.append("<h2>Ratios</h2><table><tr><th>NetCRAQ over NetChain<th>engine<th>the paper<th>measured<th>spread</tr>")
        for row in ratios:
            mark = "" if row["met"] else " class=short"
            parts.append(
                f"<tr{mark}><td>{html.escape(row['what'])}<td>{row['engine']}<td class=n>{row['paper']:.2f}<td class=n>{row['measured']:.2f}"
                f"<td class=n>{row['lowest']:.2f} to {row['highest']:.2f}</tr>"
            )
        parts.append("</table>")
    for figure in figures:
        image = path.parent / "figures" / f"{figure.name}.png"
        if not image.exists():
            continue
        data = base64.b64encode(image.read_bytes()).decode()
        name = html.escape(figure.title)
        parts.append(f"<h2>{name}</h2><p>{html.escape(figure.explanation)}</p>")
        parts.append(f"<img alt='{name}' src='data:image/png;base64,{data}'>")
    if failures:
        parts.append("<h2>No figure</h2><ul>" + "".join(f"<li>{html.escape(failure)}" for failure in failures) + "</ul>")
    path.write_text("\n".join(parts) + "\n")
