# SPDX-License-Identifier: Apache-2.0
"""The packets of an operation: in NetCRAQ, in NetChain, and in etcd."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import simpy

from experiments.scale import costs
from experiments.scale.model import Station, Steps, Visit, follow


class Network(Protocol):
    """What a system needs to know about a network of switches."""

    size: int

    @property
    def leaves(self) -> int:
        """The number of switches that have clients."""

    def between(self, a: int, b: int, draw: random.Random) -> Sequence[int]:
        """The switches that only forward, from one switch to another."""

    def name(self, switch: int) -> str:
        """The switch's name."""


@dataclass(frozen=True)
class Workload:
    """The share of reads, and the popularity of the keys."""

    reads: float
    keys: int = 10_000
    skew: float = 0.99
    """The exponent of Zipf's law; 0 means that all keys are equally popular."""

    def weights(self) -> list[float]:
        """The share of the operations that each key has."""
        each = [1 / (n + 1) ** self.skew for n in range(self.keys)]
        whole = sum(each)
        return [one / whole for one in each]


class Chains:
    """NetCRAQ or NetChain: chains of switches, and keys that are spread over them.

    ``cost`` gives the time that a kind of packet keeps a switch busy. ``shared`` is a CPU on which
    all switches run, as in the measurements, and ``load`` the time that a client takes there for an
    operation; otherwise each switch has a station of its own. ``client`` is the time that a client
    takes elsewhere. ``chain_of`` places the keys; by default they are spread evenly.
    """

    def __init__(
        self,
        system: str,
        network: Network,
        chains: Sequence[Sequence[int]],
        workload: Workload,
        cost: Callable[[str], float],
        after: float = 0.0,
        client: float = 0.0,
        load: float = 0.0,
        shared: Station | None = None,
        chain_of: Callable[[int], int] | None = None,
    ) -> None:
        self.network, self.chains, self.workload = network, chains, workload
        self.cost, self.after, self.netcraq = cost, after, system == costs.NETCRAQ
        self.client = load, after + client
        self.stations = [shared or Station(network.name(s)) for s in range(network.size)]
        self.chain_of = chain_of or (lambda key: key % len(chains))
        self._popular = list(itertools.accumulate(workload.weights()))
        self._dirty: dict[tuple[int, int], int] = defaultdict(int)

    def operation(self, env: simpy.Environment, draw: random.Random) -> tuple[str, Steps]:
        """Draw an operation of a client at any leaf."""
        key = draw.choices(range(self.workload.keys), cum_weights=self._popular)[0]
        leaf = draw.randrange(self.network.leaves)
        if draw.random() < self.workload.reads:
            return "read", self.read(key, self.target(key, leaf), leaf, draw)
        return "write", self.write(key, leaf, draw, env)

    def target(self, key: int, leaf: int) -> int:
        """The member that a client asks: NetChain's tail, NetCRAQ's nearest member."""
        members = self.chains[self.chain_of(key)]
        if not self.netcraq:
            return members[-1]
        if not hasattr(self.network, "distance"):
            return members[0]
        near = min(self.network.distance(leaf, m) for m in members)
        equal = [m for m in members if self.network.distance(leaf, m) == near]
        return equal[(leaf + key) % len(equal)]

    def _at(self, switch: int, kind: str) -> Visit:
        return Visit(self.stations[switch], self.cost(kind), self.after)

    def _way(self, a: int, b: int, draw: random.Random, kind: str) -> Iterator[Visit]:
        """Pass the switches between two others."""
        for switch in self.network.between(a, b, draw):
            yield self._at(switch, kind)

    def _from_client(self, leaf: int, to: int, draw: random.Random) -> Iterator[Visit]:
        """Go from a client to a switch."""
        yield Visit(self.stations[leaf], *self.client)
        if leaf != to:
            yield self._at(leaf, costs.PASS)
            yield from self._way(leaf, to, draw, costs.PASS)

    def _to_client(self, leaf: int, at: int, draw: random.Random) -> Iterator[Visit]:
        """Go from a switch to a client."""
        if leaf != at:
            yield from self._way(at, leaf, draw, costs.REPLY_PASS)
            yield self._at(leaf, costs.REPLY_PASS)

    def read(self, key: int, member: int, leaf: int, draw: random.Random) -> Steps:
        """A read that a member answers, or sends on to the tail if the key is dirty there."""
        tail = self.chains[self.chain_of(key)][-1]
        yield from self._from_client(leaf, member, draw)
        if member != tail and self._dirty[key, member]:
            yield self._at(member, costs.DIRTY_SENT)
            yield from self._way(member, tail, draw, costs.PASS)
            yield self._at(tail, costs.DIRTY_READ)
            member = tail
        else:
            yield self._at(member, costs.READ)
        yield from self._to_client(leaf, member, draw)

    def write(self, key: int, leaf: int, draw: random.Random, env: simpy.Environment) -> Steps:
        """A write down the chain. The reply commits it at the members that it passes. In NetCRAQ,
        acknowledgements go to the others.
        """
        members = self.chains[self.chain_of(key)]
        yield from self._from_client(leaf, members[0], draw)
        for number, member in enumerate(members):
            last = number == len(members) - 1
            if number:
                yield from self._way(members[number - 1], member, draw, costs.PASS)
            yield self._at(member, costs.TAIL if last else costs.REPLICA if number else costs.HEAD)
            if not last:
                self._dirty[key, member] += 1
        back = [*self.network.between(members[-1], leaf, draw), *([leaf] if leaf != members[-1] else [])]
        if self.netcraq:
            for member in members[:-1]:
                if member not in back:
                    env.process(follow(env, self._acknowledge(key, members[-1], member, draw)))
        for switch in back:
            yield self._at(switch, costs.COMMIT if switch in members else costs.REPLY_PASS)
            if switch in members[:-1]:
                self._dirty[key, switch] -= 1

    def _acknowledge(self, key: int, tail: int, member: int, draw: random.Random) -> Steps:
        yield from self._way(tail, member, draw, costs.REPLY_PASS)
        yield self._at(member, costs.COMMIT)
        self._dirty[key, member] -= 1


class Etcd:
    """An etcd whose members are stations with cores. All its numbers are in etcd's favour: the
    measured processor time is shared evenly, so the leader does no more than the others, and
    reads are spread over all members.
    """

    def __init__(self, members: int, workload: Workload) -> None:
        cores = int(costs.NUMBERS["cores of a member of etcd"].value)
        self.stations = [Station(f"member {n + 1}", cores) for n in range(members)]
        self.reads = workload.reads
        read, put = (
            costs.NUMBERS[f"etcd, three members: processor time of a {kind}"].value for kind in ("read", "put")
        )
        self.read_cost, self.put_cost = read, put / 3
        times = [costs.NUMBERS[f"etcd, three members: a {kind}'s p50"].value for kind in ("read", "put")]
        self.rest = max(times[0] - self.read_cost, 0.0), max(times[1] - self.put_cost, 0.0)

    def operation(self, env: simpy.Environment, draw: random.Random) -> tuple[str, Steps]:
        """Draw an operation."""
        if draw.random() < self.reads:
            return "read", self._read(draw.choice(self.stations))
        for other in self.stations[1:]:
            env.process(follow(env, iter([Visit(other, self.put_cost)])))
        return "write", self._write()

    def _read(self, member: Station) -> Steps:
        yield Visit(member, self.read_cost, self.rest[0])

    def _write(self) -> Steps:
        yield Visit(self.stations[0], self.put_cost, self.rest[1])
