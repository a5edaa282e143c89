# SPDX-License-Identifier: Apache-2.0
"""Throughput and latency while a switch of the chain fails and is restored: both systems in one
figure, on one time axis.
"""

from __future__ import annotations

import base64
import csv
import html
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes

from experiments import timeline_run
from experiments.bench import ENGINES
from experiments.chain_session import RunError
from experiments.figures.plots import COLOURS, STYLES
from experiments.figures.store import Point, Store
from experiments.figures.systems import NETCHAIN, SHIPPED, Failed
from topologies import network_namespaces
from topologies.nodes import NodeError

NAME = "failover"
SYSTEMS = (SHIPPED, NETCHAIN)
"""The paper's program is missing: it has no controller that handles failures."""

TITLE = "Throughput and latency while a switch dies and is brought back"
VICTIM = "s3"
LEASE_MS = 200
SHORT_MS = 50
TIMES = timeline_run.Times(before=4.0, away=2.0, after=5.0)
WIDTH = 0.05
"""Seconds of a row: about 250 reads and 70 writes."""

KINDS = {"reads": "-", "writes": "--"}

explanation = (
    "A chain of four in a ring. At each of three switches one client reads and another writes, one query after the other with short pauses "
    "(so the throughput says who waits, not what the switches can do). "
    f"After {TIMES.before:g} s the third switch is killed; after {TIMES.before + TIMES.away:g} s it is restarted, empty, and brought in again. "
    "Every key has one writer, which numbers its values: a run in which any value could not have been read (stale, lost, never written) gives no "
    "figure. NetChain takes a switch for gone as soon as its connection to the controller is, and goes around it: it must have stopped, which nobody "
    "makes sure of. "
    f"NetCRAQ waits until the switch's read lease ({SHORT_MS} ms while everything is prompt, else {LEASE_MS}) has run out, so that one that is "
    "only cut off answers nobody: that is its pause in writes; clean reads go on meanwhile. To bring the switch in, NetChain stops the writes of "
    "one virtual group of keys after the other (a hundred groups), NetCRAQ all writes, once, to compare and switch over. A client that hears "
    "nothing asks again after 50 ms, in both, "
    "which is what most of a short pause looks like from outside. Latency is from a query's first packet to its answer, at the client's socket."
)

OUTAGES = {
    "failover_write_ms": "switch killed: no write for (ms)",
    "failover_read_ms": "no read for (ms)",
    "recovery_write_ms": "brought in: no write for (ms)",
    "recovery_read_ms": "no read for (ms)",
    "recovery_seconds": "a member again after (s)",
}
"""The table's values: the longest times without any reply, and the recovery time after the restart.
"""


# ---- Measuring ----


def points(engines: Sequence[str], repetitions: int) -> list[Point]:
    """Return all runs, the systems in turn."""
    return [
        Point(NAME, system, engine, 4, 0.0, repetition)
        for repetition in range(repetitions)
        for engine in engines
        for system in (SYSTEMS if repetition % 2 == 0 else SYSTEMS[::-1])
    ]


def measure(todo: Sequence[Point], store: Store, step: Callable[[str], None]) -> list[str]:
    """Make the missing runs. Returns the failures."""
    failures = []
    for point in todo:
        step(f"{NAME}: {point.system} on {point.engine}, {point.repetition + 1}.")
        if store.get(point) is None:
            try:
                store.add(point, one(point.system, point.engine))
            except Failed as failure:
                failures.append(f"{NAME}, {point.system}, {point.engine}: {failure}")
    return failures


def one(system: str, engine: str) -> dict[str, Any]:
    """Make one run: ``rows`` (see :func:`rows`), ``marks`` ([seconds, what]), and the outages;
    ``y`` is the pause in writes when the switch fails.
    """
    with tempfile.TemporaryDirectory(prefix="netcraq-figures-") as out, network_namespaces.private():
        try:
            record = timeline_run.run(
                system, ENGINES[engine], Path(out), victim=VICTIM, lease_ms=LEASE_MS, short_ms=SHORT_MS, times=TIMES
            )
        except (RunError, NodeError) as error:
            raise Failed(str(error)) from error
    outages = record.outages()
    return {
        "y": outages["failover_write_ms"],
        **outages,
        "rows": rows(record),
        "marks": timeline_run.marks(record.events),
    }


def rows(record: timeline_run.Record) -> list[dict[str, Any]]:
    """Return the time series: system, engine, t (seconds), and for all queries, reads and writes
    the replies a second and the median latency in microseconds (None: no replies).
    """
    own = timeline_run.rows(record.answers, record.seconds, WIDTH)
    every = timeline_run.rows(
        [timeline_run.Answer("get", answer.at, answer.took) for answer in record.answers], record.seconds, WIDTH
    )
    out = []
    for row, both in zip(own, every, strict=True):
        made: dict[str, Any] = {"system": record.system, "engine": record.engine, "t": row["seconds"]}
        for name, source, kind in (("queries", both, "reads"), ("reads", row, "reads"), ("writes", row, "writes")):
            p50 = source[f"{kind}_p50_ms"]
            made[f"{name}_per_second"] = source[f"{kind}_per_second"]
            made[f"{name}_p50_us"] = None if p50 is None else round(p50 * 1e3, 1)
        out.append(made)
    return out


# ---- Output ----


def runs(store: Store) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the measurements, by engine and system."""
    out: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for point, values in store.rows(NAME):
        out.setdefault(point.engine, {}).setdefault(point.system, []).append(values)
    return {engine: out[engine] for engine in sorted(out, key=list(STYLES).index)}


def write_csv(store: Store, folder: Path) -> bool:
    """Write the time series to ``failover.csv``, and the events with their times to
    ``failover-events.csv``. Returns False if there are no measurements.
    """
    measured = sorted(store.rows(NAME), key=lambda row: (row[0].system, row[0].engine, row[0].repetition))
    if not measured:
        return False
    with (
        (folder / f"{NAME}.csv").open("w", newline="") as file,
        (folder / f"{NAME}-events.csv").open("w", newline="") as events,
    ):
        series = csv.writer(file)
        happened = csv.writer(events)
        columns = list(measured[0][1]["rows"][0])
        series.writerow([*columns, "repetition", *store.conditions])
        happened.writerow(["system", "engine", "repetition", "seconds", "event"])
        for point, values in measured:
            # Use the engine names of all other figures.
            made = [{**row, "engine": point.engine} for row in values["rows"]]
            series.writerows(
                [*(row[column] for column in columns), point.repetition, *store.conditions.values()] for row in made
            )
            happened.writerows(
                [point.system, point.engine, point.repetition, round(at, 4), what] for at, what in values["marks"]
            )
    return True


def draw(store: Store, folder: Path) -> list[Path]:
    """Write the plot as PNG and SVG: one column for each engine, throughput above latency, medians
    of the repetitions.
    """
    data = runs(store)
    canvas, grid = pyplot.subplots(
        2,
        len(data),
        figsize=(2 + 6.5 * len(data), 7),
        squeeze=False,
        sharex=True,
        height_ratios=(3, 2),
        layout="constrained",
    )
    for column, (engine, by_system) in enumerate(data.items()):
        rate, latency = grid[0][column], grid[1][column]
        for system in sorted(by_system, key=list(COLOURS).index):
            _lines(rate, by_system[system], system, "per_second")
            _lines(latency, by_system[system], system, "p50_us")
        _marks(rate, latency, by_system)
        rate.set(title=engine, ylim=(0, 1.35 * rate.get_ylim()[1]))
        latency.set(yscale="log", xlabel="seconds")
        for axes in (rate, latency):
            axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("answers a second")
    grid[1][0].set_ylabel("microseconds (median)")
    canvas.suptitle(TITLE)
    canvas.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    written = [folder / f"{NAME}.{kind}" for kind in ("png", "svg")]
    for path in written:
        canvas.savefig(path, dpi=110)
    pyplot.close(canvas)
    return written


def _lines(axes: Axes, repetitions: list[dict[str, Any]], system: str, what: str) -> None:
    for kind, style in KINDS.items():
        at = [row["t"] for row in repetitions[0]["rows"]]
        y = []
        for number in range(len(at)):
            there = [value for run in repetitions if (value := run["rows"][number][f"{kind}_{what}"]) is not None]
            y.append(statistics.median(there) if there else float("nan"))
        axes.plot(at, y, style, color=COLOURS[system], linewidth=1, label=f"{system}, {kind}", drawstyle="steps-post")


def _marks(rate: Axes, latency: Axes, by_system: dict[str, list[dict[str, Any]]]) -> None:
    """Draw the events: in grey those that are the same for both systems, in the system's colour
    those of its first repetition only.
    """
    height = 1.3 * rate.get_ylim()[1]
    places: list[tuple[float, str, str]] = []
    for system, repetitions in by_system.items():
        for at, what in repetitions[0]["marks"]:
            common = what.endswith(("killed", "restarted"))
            if not (common and any(what == said for _, said, _ in places)):
                places.append((at, what, "0.4" if common else COLOURS[system]))
    for number, (at, what, colour) in enumerate(sorted(places)):
        for axes in (rate, latency):
            axes.axvline(at, color=colour, linewidth=0.8, linestyle=":")
        rate.annotate(
            what,
            (at, height * (1 - 0.045 * (number % 6))),
            xytext=(3, -4),
            textcoords="offset points",
            fontsize=7,
            color=colour,
        )


def section(store: Store, folder: Path) -> str:
    """Return the figure's part of the report, as HTML."""
    parts = [f"<h2 id={NAME}>{TITLE}</h2><p>{html.escape(explanation)}</p>"]
    parts.append(
        f"<img alt='{TITLE}' src='data:image/png;base64,{base64.b64encode((folder / f'{NAME}.png').read_bytes()).decode()}'>"
    )
    parts.append(
        "<table><tr><th>engine<th>system" + "".join(f"<th>{what}" for what in OUTAGES.values()) + "<th>runs</tr>"
    )
    for engine, by_system in runs(store).items():
        for system in sorted(by_system, key=list(COLOURS).index):
            cells = []
            for name in OUTAGES:
                every = [run[name] for run in by_system[system]]
                cells.append(f"<td class=n>{statistics.median(every):g}<br>({min(every):g} to {max(every):g})")
            parts.append(
                f"<tr><td>{html.escape(engine)}<td>{system}{''.join(cells)}<td class=n>{len(by_system[system])}</tr>"
            )
    parts.append(
        f"</table><p class=why>Medians, and the spread. Data: figures/{NAME}.csv, figures/{NAME}-events.csv</p>"
    )
    return "\n".join(parts)
