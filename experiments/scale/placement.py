# SPDX-License-Identifier: Apache-2.0
"""Where keys should live (only in the model): several chains, more keys than slots, and a load that
moves to other keys and other leaves.

*Fixed* places the keys that are popular at first, each in a chain by its number, and leaves them
there. *By load* places the keys that are popular now, each in the chain whose members are nearest
to the leaves that ask for it and that has room. It also puts the most popular keys that are hardly
written into a chain with a member at many leaves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import simpy

from experiments.scale import costs
from experiments.scale.fabric import LeafSpine
from experiments.scale.model import Station, Steps, Visit, open_load
from experiments.scale.systems import Chains, Workload

READS = 0.95
SLOTS = 0.1
"""The share of the keys that have a slot."""
HOT = 4
"""Keys that are spread over more members."""
WIDEST = 64
"""The most members of the chain for those keys. Each write takes all of them."""


@dataclass(frozen=True)
class Case:
    """A load on a placement, and what the readers saw."""

    switches: int
    placement: str
    moment: str
    hits: float
    """The share of the reads that the network answered."""
    near: float
    """The share that the reader's own leaf answered."""
    read_p50: float
    read_p99: float
    write_p50: float
    most_used: float
    """The share of its time that the busiest switch worked."""


@dataclass(frozen=True)
class Asked:
    """Which keys are asked for, and where: key ``k`` by the leaves of one of ``regions`` parts of
    the fabric. ``moved`` gives all keys other popularities and other regions.
    """

    fabric: LeafSpine
    work: Workload
    regions: int
    moved: bool = False

    def key(self, rank: int) -> int:
        """The key that has a rank, 0 being the most popular."""
        return (rank + self.work.keys // 2) % self.work.keys if self.moved else rank

    def leaf(self, key: int, draw: random.Random) -> int:
        """A leaf that asks for a key. Every fifth request comes from any leaf, and so do all for
        the most popular keys.
        """
        size = max(1, self.fabric.leaves // self.regions)
        if draw.random() < 0.2 or (key - self.key(0)) % self.work.keys < HOT:
            return draw.randrange(self.fabric.leaves)
        return (self.region(key) * size + draw.randrange(size)) % self.fabric.leaves

    def region(self, key: int) -> int:
        """The region that asks for a key."""
        return (key * 7 + self.moved) % self.regions


class Placed(Chains):
    """NetCRAQ with a placement of its own. Keys without a slot are read and written at etcd."""

    def __init__(self, asked: Asked, chains: list[list[int]], where: dict[int, int], switches: costs.Switches) -> None:
        client = costs.NUMBERS["a client's own work for a query"].value
        super().__init__(
            costs.NETCRAQ,
            asked.fabric,
            chains,
            asked.work,
            switches.cost,
            switches.after,
            client,
            chain_of=where.__getitem__,
        )
        self.asked, self.where = asked, where
        self.etcd = Station("etcd", 64)  # never the bottleneck here
        self.reads = self.hits = self.near = 0

    def operation(self, env: simpy.Environment, draw: random.Random) -> tuple[str, Steps]:
        """Draw an operation."""
        rank = draw.choices(range(self.workload.keys), cum_weights=self._popular)[0]
        key = self.asked.key(rank)
        leaf = self.asked.leaf(key, draw)
        read = draw.random() < self.workload.reads
        self.reads += read
        if key not in self.where:
            return ("read" if read else "write"), self._at_etcd("read" if read else "put")
        if not read:
            return "write", self.write(key, leaf, draw, env)
        member = self.target(key, leaf)
        self.hits += 1
        self.near += member == leaf
        return "read", self.read(key, member, leaf, draw)

    def _at_etcd(self, kind: str) -> Iterator[Visit]:
        yield Visit(self.etcd, 0.0, costs.NUMBERS[f"etcd, three members: a {kind}'s p50"].value)


def regional_chains(fabric: LeafSpine, regions: int) -> list[list[int]]:
    """A chain of three for each region: a leaf, a spine, another leaf of the region."""
    size = max(1, fabric.leaves // regions)
    return [
        [(r * size) % fabric.leaves, fabric.leaves + r % fabric.spines, (r * size + size // 2) % fabric.leaves]
        if size > 1
        else [r % fabric.leaves, fabric.leaves + r % fabric.spines]
        for r in range(regions)
    ]


def fixed(asked: Asked, chains: int) -> dict[int, int]:
    """The chain of each popular key, by its number."""
    return {asked.key(rank): asked.key(rank) % chains for rank in range(int(SLOTS * asked.work.keys))}


def by_load(asked: Asked, chains: int) -> dict[int, int]:
    """The chain of each popular key: the wide one (the last) for the most popular, otherwise the
    nearest one with room.
    """
    slots = int(SLOTS * asked.work.keys)
    room = [1.25 * slots / chains] * chains
    where = {}
    for rank in range(slots):
        key = asked.key(rank)
        if rank < HOT:
            where[key] = chains
            continue
        nearest = asked.region(key) % chains
        best = nearest if room[nearest] >= 1 else max(range(chains), key=room.__getitem__)
        room[best] -= 1
        where[key] = best
    return where


def cases(size: int, rate: float, count: int) -> Iterator[Case]:
    """Before the load moves, right after it, and when the placement has followed."""
    fabric = LeafSpine(size)
    regions = max(2, min(50, fabric.leaves // 3))
    before = Asked(fabric, Workload(READS, keys=2_000), regions)
    after = replace(before, moved=True)
    chains = regional_chains(fabric, regions)
    step = max(1, fabric.leaves // WIDEST)
    wide = [*range(0, fabric.leaves, step)][:WIDEST]
    old = {"fixed": fixed(before, regions), "by load": by_load(before, regions)}
    new = {"fixed": old["fixed"], "by load": by_load(after, regions)}
    for placement in old:
        for moment, asked, where in (
            ("before", before, old[placement]),
            ("just moved", after, old[placement]),
            ("followed", after, new[placement]),
        ):
            system = Placed(asked, [*chains, wide], where, costs.Switches(costs.NETCRAQ, costs.TC))
            out = open_load(system.operation, system.stations, rate, count)
            yield Case(
                size,
                placement,
                moment,
                system.hits / system.reads,
                system.near / system.reads,
                out.quantile("read", 0.5),
                out.quantile("read", 0.99),
                out.quantile("write", 0.5),
                max(out.used.values()),
            )
