# SPDX-License-Identifier: Apache-2.0
"""The time in nanoseconds that one switch's program takes for one packet: NetChain's, NetCRAQ's as
in the paper, and NetCRAQ's as shipped, side by side on the engines that run in this process
(``bin/netcraq-programs``).
"""

from __future__ import annotations

import csv
import html
import json
import subprocess
from pathlib import Path
from typing import Any

from experiments.bench import ROOT
from experiments.figures import pairs
from experiments.figures.store import Point, Store
from experiments.figures.systems import NETCHAIN, Failed

NAME = "programs"
TITLE = "What a program takes for one packet"
ENGINES = {"ebpf tc": "tc", "ebpf xdp": "xdp", "interp": "interp"}
ROUNDS = 10

explanation = (
    "One switch of a chain of four processes the same kind of packet again and again, without devices, sockets and other switches: in the kernel "
    "by BPF_PROG_TEST_RUN, which reports the time of a run, and on the interpreter in a loop. The systems take turns in each of the rounds. A "
    "cell has the median of the rounds and its interval of 95 %, in nanoseconds, and below it the median of the rounds' ratios, NetChain's time "
    "over the system's (above 1: faster than NetChain), with its interval. The two sums are a read and a write of the client at the head, in "
    "all switches that they pass. A system with leases answers a read only while its lease lives: that is the default of the shipped program."
)

READ, WRITE, DIRTY = (
    "clean read at the head, all switches",
    "write at the head, all switches",
    "dirty read at the head, all switches",
)
SUMS: dict[str, dict[str, dict[str, int]]] = {
    READ: {
        NETCHAIN: {"read passing": 3, "clean read: answered": 1, "read reply passing": 3},
        "": {"clean read: answered": 1},
    },
    DIRTY: {
        NETCHAIN: {"read passing": 3, "clean read: answered": 1, "read reply passing": 3},
        "": {
            "dirty read: sent to the tail": 1,
            "read passing": 2,
            "dirty read: answered at the tail": 1,
            "read reply passing": 3,
        },
    },
    WRITE: {
        "": {
            "write at the head": 1,
            "write at a replica": 2,
            "write at the tail": 1,
            "write's answer at a replica": 3,
        }
    },
}
"""How often a chain of four processes each kind of packet for a query of the client at the head.
The entry "" is for all systems without an entry.
"""


def measure(store: Store, engines: list[str]) -> list[str]:
    """Make the missing measurements. Returns the failures."""
    failures = []
    for engine in engines:
        point = Point(NAME, "all", engine, 1, 0.0, 0)
        if engine not in ENGINES or store.get(point) is not None:
            continue
        try:
            store.add(point, {"results": run(ENGINES[engine])})
        except Failed as failure:
            failures.append(f"{NAME}, {engine}: {failure}")
    return failures


def run(engine: str, *more: str, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Run all rounds of all cases on one engine."""
    command = ["bin/netcraq-programs", "--engines", engine, "--rounds", str(rounds), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def rounds(results: list[dict[str, Any]]) -> dict[tuple[str, str], list[float]]:
    """Return the rounds by system and kind, with the sums over the kinds of a query."""
    each = {(row["system"], row["kind"]): row["rounds"] for row in results}
    for system in dict.fromkeys(system for system, _ in list(each)):
        for name, by_system in SUMS.items():
            parts = by_system.get(system, by_system[""])
            if all((system, kind) in each for kind in parts):
                columns = zip(*(each[system, kind] for kind in parts), strict=True)
                each[system, name] = [
                    sum(n * value for n, value in zip(parts.values(), column, strict=True)) for column in columns
                ]
    return each


def rows(store: Store) -> list[dict[str, Any]]:
    """Return, for each engine and kind, each system's time, and NetChain's time divided by it."""
    out = []
    for point, values in store.rows(NAME, None):
        each = rounds(values["results"])
        for (system, kind), own in each.items():
            theirs = each.get((NETCHAIN, kind))
            out.append(
                {
                    "engine": point.engine,
                    "kind": kind,
                    "system": system,
                    "ns": pairs.estimate(own),
                    "ratio": theirs and pairs.ratio(dict(enumerate(theirs)), dict(enumerate(own))),
                }
            )
    return out


def write_csv(store: Store, folder: Path) -> bool:
    """Write every round to ``programs.csv``. Returns False if there are no measurements."""
    measured = list(store.rows(NAME, None))
    if not measured:
        return False
    with (folder / f"{NAME}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["engine", "system", "kind", "round", "ns", *store.conditions])
        for point, values in measured:
            for row in values["results"]:
                for number, ns in enumerate(row["rounds"]):
                    writer.writerow(
                        [point.engine, row["system"], row["kind"], number, round(ns, 1), *store.conditions.values()]
                    )
    return True


def said(of: pairs.Estimate, digits: int) -> str:
    """Format an estimate; ``~`` marks an uncertain one."""
    mark = "" if of.measured else "~"
    return f"{mark}{of.middle:.{digits}f} ({of.low:.{digits}f} to {of.high:.{digits}f})"


def section(store: Store) -> str:
    """Return the report's part: a table for each engine."""
    parts = [f"<h2 id={NAME}>{TITLE}</h2><p>{html.escape(explanation)}</p>"]
    measured = rows(store)
    for engine in dict.fromkeys(row["engine"] for row in measured):
        own = {(row["kind"], row["system"]): row for row in measured if row["engine"] == engine}
        systems = list(dict.fromkeys(system for _, system in own))
        kinds = dict.fromkeys([*SUMS, *(kind for kind, _ in own)])
        parts.append(f"<table><tr><th>{html.escape(engine)}" + "".join(f"<th>{html.escape(s)}" for s in systems))
        for kind in kinds:
            cells = ""
            for system in systems:
                if (row := own.get((kind, system))) is None:
                    cells += "<td>"
                    continue
                ratio = f"<br>{said(row['ratio'], 2)}" if row["ratio"] and system != NETCHAIN else ""
                cells += f"<td class=n>{said(row['ns'], 0)}{ratio}"
            parts.append(f"<tr><td>{html.escape(kind)}{cells}")
        parts.append("</table>")
    parts.append(f"<p class=why>Data: figures/{NAME}.csv</p>")
    return "\n".join(parts)
