# SPDX-License-Identifier: Apache-2.0
"""The bottleneck law: the time that an operation needs of each station, and so the highest rate."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.scale import costs
from experiments.scale.fabric import LeafSpine
from experiments.scale.systems import Etcd, Workload

LEAVES, SPINES = -1, -2
"""Work that is spread evenly over all leaves, or over all spines."""


@dataclass(frozen=True)
class Bound:
    """The highest rate, and the station that sets it."""

    rate: float
    """Operations a second."""
    where: str
    work: str
    """The kind of packet that takes most of that station's time."""


class Demand:
    """Nanoseconds that an average operation needs of each switch, by the kind of packet."""

    def __init__(self, fabric: LeafSpine, cost: Callable[[str], float]) -> None:
        self.fabric, self.cost = fabric, cost
        self.at: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def visit(self, switch: int, kind: str, share: float) -> None:
        """A packet of this kind, for a share of the operations."""
        self.at[switch][kind] += share * self.cost(kind)

    def between(self, a: int, b: int, kind: str, share: float) -> None:
        """The switches between two others."""
        if a != b and self.fabric.spine(a) == self.fabric.spine(b):
            self.visit(LEAVES if self.fabric.spine(a) else SPINES, kind, share)

    def clients(self, switch: int, kind: str, share: float) -> None:
        """The switches between clients at all leaves and a switch."""
        if self.fabric.spine(switch):
            self.visit(LEAVES, kind, share)
        else:
            elsewhere = share * (1 - 1 / self.fabric.leaves)
            self.visit(LEAVES, kind, elsewhere)
            self.visit(SPINES, kind, elsewhere)

    def bound(self) -> Bound:
        """The bottleneck."""
        spread = {LEAVES: self.fabric.leaves, SPINES: self.fabric.spines}
        everywhere = {s: sum(self.at[s].values()) / spread[s] for s in spread if self.at[s]}
        best = (0.0, "", "")
        for switch, kinds in self.at.items():
            if switch in spread:
                total, name = everywhere[switch], "leaves" if switch == LEAVES else "spines"
            else:
                spine = self.fabric.spine(switch)
                total = sum(kinds.values()) + everywhere.get(SPINES if spine else LEAVES, 0.0)
                name = "a spine" if spine else "a leaf"
            best = max(best, (total, name, max(kinds, key=lambda kind: kinds[kind])))
        return Bound(1e9 / best[0], *best[1:])


def read_shares(fabric: LeafSpine, members: Sequence[int]) -> dict[int, tuple[float, float]]:
    """For each member of a NetCRAQ chain, the share of clients at its own leaf, and of others, that
    read there because it is the nearest one.
    """
    own = {m: 0.0 if fabric.spine(m) else 1 / fabric.leaves for m in members}
    near = [m for m in members if fabric.spine(m)] or list(members)
    rest = 1 - sum(own.values())
    return {m: (own[m], rest / len(near) if m in near else 0.0) for m in members}


def dirty_time(fabric: LeafSpine, members: Sequence[int], switches: costs.Switches) -> float:
    """Nanoseconds for which a write keeps a key dirty: down the chain and back, without queues."""
    hops = sum(fabric.distance(a, b) for a, b in itertools.pairwise(members))
    return 2 * hops * (switches.cost(costs.REPLICA) + switches.after)


def demand(
    fabric: LeafSpine, chains: Sequence[Sequence[int]], work: Workload, switches: costs.Switches, rate: float
) -> Demand:
    """What an operation needs at a rate: the more writes, the more reads go to the tail."""
    out = Demand(fabric, switches.cost)
    weights = work.weights()
    netcraq = switches.system == costs.NETCRAQ
    for number, members in enumerate(chains):
        keys = weights[number :: len(chains)]
        share, tail = sum(keys), members[-1]
        if netcraq:
            time = dirty_time(fabric, members, switches) / 1e9
            clean = [key * math.exp(-rate * (1 - work.reads) * key * time) for key in keys]
            dirty = 1 - sum(clean) / share if share else 0.0
            for member, (own, others) in read_shares(fabric, members).items():
                _read(out, member, tail, work.reads * share * own, dirty, local=True)
                _read(out, member, tail, work.reads * share * others, dirty, local=False)
        else:
            out.visit(tail, costs.READ, work.reads * share)
            out.clients(tail, costs.PASS, work.reads * share)
            out.clients(tail, costs.REPLY_PASS, work.reads * share)
        _write(out, members, (1 - work.reads) * share, acknowledged=netcraq)
    return out


def _read(out: Demand, member: int, tail: int, share: float, dirty: float, local: bool) -> None:
    """Reads that arrive at a member, from clients at its own leaf or from others."""
    dirty = 0.0 if member == tail else dirty
    out.visit(member, costs.READ, share * (1 - dirty))
    out.visit(member, costs.DIRTY_SENT, share * dirty)
    out.between(member, tail, costs.PASS, share * dirty)
    out.visit(tail, costs.DIRTY_READ, share * dirty)
    out.clients(tail, costs.REPLY_PASS, share * dirty)
    if not local:
        out.clients(member, costs.PASS, share)
        out.clients(member, costs.REPLY_PASS, share * (1 - dirty))


def _write(out: Demand, members: Sequence[int], share: float, acknowledged: bool) -> None:
    out.clients(members[0], costs.PASS, share)
    for number, member in enumerate(members):
        if number:
            out.between(members[number - 1], member, costs.PASS, share)
        kind = costs.TAIL if number == len(members) - 1 else costs.REPLICA if number else costs.HEAD
        out.visit(member, kind, share)
        if acknowledged and number < len(members) - 1:
            out.visit(member, costs.COMMIT, share)
            out.between(members[-1], member, costs.REPLY_PASS, share)
    out.clients(members[-1], costs.REPLY_PASS, share)


def highest(fabric: LeafSpine, chains: Sequence[Sequence[int]], work: Workload, switches: costs.Switches) -> Bound:
    """The highest rate that no station exceeds. The rate decides how many keys are dirty, so this
    searches the rate whose own bottleneck it is.
    """
    found = demand(fabric, chains, work, switches, 0.0).bound()
    if switches.system != costs.NETCRAQ or work.reads == 1:  # no read depends on the rate
        return found
    low, high = 0.0, found.rate
    for _ in range(9):
        middle = (low + high) / 2
        now = demand(fabric, chains, work, switches, middle).bound()
        low, high, found = (middle, high, now) if now.rate >= middle else (low, middle, found)
    return Bound(low, found.where, found.work)


def etcd(members: int, work: Workload) -> Bound:
    """The same for etcd, whose leader takes all writes."""
    of = Etcd(members, work)
    need = (work.reads * of.read_cost / members + (1 - work.reads) * of.put_cost) / len(of.stations[0].free)
    return Bound(
        1e9 / need,
        "every member",
        "reads" if work.reads * of.read_cost / members > (1 - work.reads) * of.put_cost else "writes",
    )
