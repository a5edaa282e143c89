# SPDX-License-Identifier: Apache-2.0
"""The event loop: stations that serve in order of arrival, and loads of operations that visit them.

Times are nanoseconds. An operation is a generator of visits, which decides where to go next only
when it arrives, because that may depend on other operations (a dirty key). SimPy runs the clock.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import simpy


class Station:
    """Something that serves one visit after the other: a switch, a member of etcd, or a CPU that
    several switches share. It has ``servers`` equal servers.
    """

    __slots__ = ("busy", "free", "name")

    def __init__(self, name: str, servers: int = 1) -> None:
        self.name = name
        self.free = [0.0] * servers
        self.busy = 0.0

    def serve(self, now: float, cost: float) -> float:
        """Begin a visit when a server is free, and return the time from now until its end."""
        end = max(now, self.free[0]) + cost
        heapq.heapreplace(self.free, end)
        self.busy += cost
        return end - now


class Visit(NamedTuple):
    """A visit to a station: the time that it keeps a server busy, and the time that passes after it
    without occupying anything, such as a wire or the length of a chip's pipeline.
    """

    station: Station
    cost: float
    after: float = 0.0


Steps = Generator[Visit, None, None]
Operation = Callable[[simpy.Environment, random.Random], tuple[str, Steps]]
"""Draws an operation: its kind ("read" or "write") and its visits."""


def follow(env: simpy.Environment, steps: Iterable[Visit]) -> Generator[simpy.Event, None, None]:
    """Make the visits, one after the other."""
    for station, cost, after in steps:
        yield env.timeout(station.serve(env.now, cost) + after)


@dataclass
class Outcome:
    """The result of a load: the operations that were measured, and how long it took."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: {"read": [], "write": []})
    elapsed: float = 0.0
    used: dict[str, float] = field(default_factory=dict)
    """The share of its time that each station was busy."""

    @property
    def rate(self) -> float:
        """Operations a second."""
        return 1e9 * sum(map(len, self.latencies.values())) / self.elapsed

    def quantile(self, kind: str, share: float) -> float:
        """A quantile of the latency of one kind, in microseconds; NaN if there was none."""
        ordered = sorted(self.latencies[kind])
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000 if ordered else float("nan")


class _Load:
    """A load while it runs. The first fifth of the operations only fills the queues."""

    def __init__(self, operation: Operation, count: int, seed: int) -> None:
        self.env = simpy.Environment()
        self.draw = random.Random(seed)
        self.operation, self.left, self.warm = operation, count, count // 5
        self.out = Outcome()
        self.begin = 0.0

    def one(self) -> Generator[simpy.Event, None, None]:
        """Run the next operation."""
        began = self.env.now
        kind, steps = self.operation(self.env, self.draw)
        yield from follow(self.env, steps)
        if self.warm > 0:
            self.warm -= 1
            self.begin = self.env.now
            return
        self.out.latencies[kind].append(self.env.now - began)
        self.out.elapsed = self.env.now - self.begin

    def outcome(self, stations: Iterable[Station]) -> Outcome:
        """Run to the end."""
        self.env.run()
        for station in stations:
            self.out.used[station.name] = station.busy / len(station.free) / self.env.now
        return self.out


def open_load(operation: Operation, stations: Iterable[Station], rate: float, count: int, seed: int = 1) -> Outcome:
    """Operations that arrive independently of each other (Poisson), ``rate`` a second."""
    load = _Load(operation, count, seed)

    def arrivals() -> Generator[simpy.Event, Any, None]:
        for _ in range(count):
            yield load.env.timeout(load.draw.expovariate(rate / 1e9))
            load.env.process(load.one())

    load.env.process(arrivals())
    return load.outcome(stations)


def closed_load(operation: Operation, stations: Iterable[Station], clients: int, count: int, seed: int = 1) -> Outcome:
    """Clients that each start the next operation when the last one is answered."""
    load = _Load(operation, count, seed)

    def client() -> Generator[simpy.Event, Any, None]:
        while load.left > 0:
            load.left -= 1
            yield from load.one()

    for _ in range(clients):
        load.env.process(client())
    return load.outcome(stations)
