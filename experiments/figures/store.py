# SPDX-License-Identifier: Apache-2.0
"""All measurements: one JSON object a line, so that an interrupted run can continue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """One measurement: of a figure, a system on an engine, ``nodes`` switches, at ``x``, in
    repetition ``repetition``. The points of both systems with the same number are a pair, measured
    one after the other.
    """

    figure: str
    system: str
    engine: str
    nodes: int
    x: float
    repetition: int
    cpus: str = "one"
    """The CPUs for all forwarding (:data:`experiments.figures.processors.PLACES`)."""


class Store:
    """The measurements in a file. Measurements of another commit, or with another duration, do not
    count.
    """

    def __init__(self, path: Path, conditions: dict[str, Any]) -> None:
        self.path = path
        self.conditions = conditions
        self._rows: dict[Point, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                if row["conditions"] == conditions:
                    self._rows[Point(**row["point"])] = row["values"]

    @classmethod
    def last(cls, path: Path) -> Store:
        """Return the measurements with the same conditions as the last one in a file."""
        lines = path.read_text().splitlines() if path.exists() else []
        return cls(path, json.loads(lines[-1])["conditions"] if lines else {})

    def get(self, point: Point) -> dict[str, Any] | None:
        """Return the measurement of a point, None if there is none."""
        return self._rows.get(point)

    def add(self, point: Point, values: dict[str, Any]) -> None:
        """Add a measurement."""
        self._rows[point] = values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"point": asdict(point), "values": values, "conditions": self.conditions}) + "\n")

    def rows(self, figure: str, cpus: str | None = "one") -> Iterator[tuple[Point, dict[str, Any]]]:
        """Yield the measurements of a figure in one place; None: in all."""
        return (
            (point, values)
            for point, values in self._rows.items()
            if point.figure == figure and cpus in (None, point.cpus)
        )
