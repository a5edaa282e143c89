# SPDX-License-Identifier: Apache-2.0
"""Predict the measured chains from what a chain of one costs, and compare.

A chain of one gives three numbers, in each round: how much longer its programs run in a network
than in memory (``factor``), the cost of a frame between devices, and that of the load. With the
time of each kind of packet in memory they make the costs of the model. Nothing of a longer chain is
used.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from experiments.figures import pairs
from experiments.scale import costs
from experiments.scale.fabric import Line
from experiments.scale.model import Station, closed_load
from experiments.scale.systems import Chains, Workload

AIM = 0.15
KEYS, OUTSTANDING = 256, 32
"""The keys of the measured chains, and the queries that are on their way at a time."""

OPERATIONS = 600
KNOWN = {(costs.NETCRAQ, costs.TC, 8, load) for load in ("write", "half writes", "read at the tail")}
"""The cases that are not within the aim; docs/benchmarks/scale.md says why."""


def chain_loads(system: str, length: int) -> dict[str, dict[str, Any]]:
    """The loads on a chain, all from the host at its head."""
    loads: dict[str, dict[str, Any]] = {"read": {"writes": 0}, "write": {"writes": 100}, "half writes": {"writes": 50}}
    if system == costs.NETCRAQ:
        loads["read at the tail"] = {"writes": 0, "switch": f"s{length}"}
    return loads


@dataclass(frozen=True)
class Single:
    """What a chain of one says about the machine, in one round."""

    factor: float
    frame: float
    load: float


@dataclass(frozen=True)
class Comparison:
    """A load on a chain: medians of the rounds, and predicted over measured with its interval."""

    system: str
    engine: str
    length: int
    load: str
    measured: float
    predicted: float
    error: float
    interval: tuple[float, float]

    @property
    def within(self) -> bool:
        """Whether the prediction meets the aim."""
        return abs(self.error) <= AIM


def calibrate(slices: dict[str, dict[str, float]], system: str, engine: str) -> Single:
    """Take the three numbers from the slices of a chain of one."""
    read, past = slices["read"], slices["read past a switch"]
    hot = sum(costs.role(system, engine, kind) for kind in (costs.READ, costs.READ, costs.PASS, costs.REPLY_PASS))
    factor = (read["program_ns"] + past["program_ns"]) / hot
    # The second read takes two more frames, and two more runs of a program.
    frame = max(0.0, (past["cpu_ns"] - past["program_ns"] - read["cpu_ns"] + read["program_ns"]) / 2)
    return Single(factor, frame, max(0.0, read["cpu_ns"] - read["program_ns"] - 2 * frame))


def packets(system: str, engine: str, length: int, load: str, single: Single) -> Counter[str]:
    """Run the model of a chain on one CPU, and return how many packets of each kind an operation
    takes.
    """
    seen: Counter[str] = Counter()

    def cost(kind: str) -> float:
        seen[kind] += 1
        return single.factor * costs.role(system, engine, kind) + single.frame

    cpu = Station("CPU")
    how = chain_loads(system, length)[load]
    work = Workload(1 - how["writes"] / 100, keys=KEYS, skew=0)
    chain = Chains(system, Line(length), [range(length)], work, cost, load=single.load + single.frame, shared=cpu)
    if "switch" in how:
        chain.target = lambda key, leaf: length - 1  # type: ignore[method-assign]
    closed_load(chain.operation, [cpu], OUTSTANDING, OPERATIONS)
    return Counter({kind: number / OPERATIONS for kind, number in seen.items()})


def rounds(rows: list[dict[str, Any]], system: str, engine: str, length: int) -> Iterator[dict[int, dict[str, Any]]]:
    """The complete rounds beside one length: the slices, by chain and load."""
    mine = [r for r in rows if (r["system"], r["engine"], r["beside"]) == (system, engine, length)]
    for number in sorted({row["round"] for row in mine}):
        found: dict[int, dict[str, Any]] = {1: {}, length: {}}
        for row in mine:
            if row["round"] == number and row["program_ns"] > 0:
                found[row["length"]][row["load"]] = row
        if {"read", "read past a switch"} <= found[1].keys():
            yield found


def compare(quantity: str = "cpu_ns") -> list[Comparison]:
    """Compare all measured chains. ``quantity`` is ``cpu_ns`` or ``program_ns``."""
    data = costs.measurements()["slices"]
    cases = sorted({(row["system"], row["engine"], row["beside"]) for row in data}, reverse=True)
    out = []
    for system, engine, length in cases:
        found = list(rounds(data, system, engine, length))
        singles = [calibrate(each[1], system, engine) for each in found]
        usual = Single(*(statistics.median(getattr(s, name) for s in singles) for name in ("factor", "frame", "load")))
        for load in chain_loads(system, length):
            kinds = packets(system, engine, length, load, usual)
            hot = sum(number * costs.role(system, engine, kind) for kind, number in kinds.items())
            frames = kinds.total() + 1
            both: list[tuple[float, float]] = []
            for single, each in zip(singles, found, strict=True):
                if load in each[length]:
                    rest = frames * single.frame + single.load if quantity == "cpu_ns" else 0.0
                    both.append((single.factor * hot + rest, each[length][load][quantity]))
            if len(both) < 3:
                continue
            ratio = pairs.estimate([ours / theirs for ours, theirs in both])
            predicted, measured = (statistics.median(column) for column in zip(*both, strict=True))
            interval = ratio.low - 1, ratio.high - 1
            out.append(Comparison(system, engine, length, load, measured, predicted, ratio.middle - 1, interval))
    return out
