# SPDX-License-Identifier: Apache-2.0
"""The questions that the model answers for leaf-spine fabrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.scale import bounds, costs, placement
from experiments.scale.costs import CHIP, NETCHAIN, NETCRAQ, NUMBERS, TC, Switches
from experiments.scale.fabric import LeafSpine, groups
from experiments.scale.model import Station, open_load
from experiments.scale.systems import Chains, Etcd, Workload

SIZES = (16, 64, 256, 1000)
MEMBERS = 3
"""The switches of a chain: f + 1 for two failures, as in NetChain's paper."""
GROUPS_OF = 10
"""NetChain's virtual groups for each switch."""
USUAL = Workload(reads=0.95)
SHARE = 0.5
"""Latencies are at this share of the highest rate."""
CHIP_RATE = 10e6
"""The rate at which latencies of chips are taken: no key is then written often enough to be dirty
for long.
"""


@dataclass(frozen=True)
class Setup:
    """A system on a fabric. A chain's members are at leaves, so that reads spread over all of them,
    or, ``hashed``, anywhere, as in NetChain's paper: then most clients are nearest to a spine.
    """

    system: str
    engine: str
    size: int
    chains: int
    members: int = MEMBERS
    hashed: bool = False

    def build(self) -> tuple[LeafSpine, list[list[int]], Switches]:
        """The fabric, the chains (by consistent hashing), and the costs."""
        fabric = LeafSpine(self.size)
        chains = groups(self.size if self.hashed else fabric.leaves, self.chains, self.members)
        return fabric, chains, Switches(self.system, self.engine)

    def bound(self, work: Workload) -> bounds.Bound:
        """The highest rate."""
        fabric, chains, switches = self.build()
        return bounds.highest(fabric, chains, work, switches)

    def model(self, work: Workload) -> Chains:
        """The model of it."""
        fabric, chains, switches = self.build()
        client = NUMBERS["a client's own work for a query"].value
        return Chains(self.system, fabric, chains, work, switches.cost, switches.after, client)


def netchain(engine: str, size: int) -> Setup:
    """NetChain with its virtual groups."""
    return Setup(NETCHAIN, engine, size, GROUPS_OF * size, hashed=True)


def row(setup: Setup, work: Workload, **more: Any) -> dict[str, Any]:
    """The highest rate of a system, as a row of a table."""
    found = setup.bound(work)
    return {
        "system": setup.system,
        "engine": setup.engine,
        "switches": setup.size,
        "chains": setup.chains,
        "members": setup.members,
        "hashed": setup.hashed,
        "reads": work.reads,
        "skew": work.skew,
        "reads_a_second": found.rate * work.reads,
        "writes_a_second": found.rate * (1 - work.reads),
        "bottleneck": f"{found.where}: {found.work}",
        **more,
    }


def sizes(sizes: Sequence[int], engines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Highest rates by the size of the fabric and the number of chains."""
    for engine in engines:
        for size in sizes:
            for chains in (1, 10, 50, 200):
                yield row(Setup(NETCRAQ, engine, size, chains), USUAL)
            yield row(Setup(NETCRAQ, engine, size, 200, 8), USUAL)
            yield row(Setup(NETCRAQ, engine, size, 200, hashed=True), USUAL)
            yield row(netchain(engine, size), USUAL)


def mixes(size: int) -> Iterator[dict[str, Any]]:
    """Highest rates by the share of reads and by skew."""
    works = [Workload(reads) for reads in (0.5, 0.8, 0.95, 1.0)] + [
        Workload(0.95, skew=skew) for skew in (0.0, 0.9, 1.2)
    ]
    for work in works:
        yield row(Setup(NETCRAQ, TC, size, 200), work)
        yield row(netchain(TC, size), work)


def latencies(sizes: Sequence[int], count: int) -> Iterator[dict[str, Any]]:
    """Latencies under load, from the event loop."""
    for engine in (TC, CHIP):
        for size in sizes:
            for setup in (Setup(NETCRAQ, engine, size, 200), netchain(engine, size)):
                rate = CHIP_RATE if engine == CHIP else SHARE * setup.bound(USUAL).rate
                system = setup.model(USUAL)
                yield {
                    "system": setup.system,
                    "engine": engine,
                    "switches": size,
                    **_loaded(system.operation, system.stations, rate, count),
                }
    for members in (3, 5):
        system = Etcd(members, USUAL)
        rate = SHARE * bounds.etcd(members, USUAL).rate
        yield {
            "system": f"etcd of {members}",
            "engine": "",
            "switches": 0,
            **_loaded(system.operation, system.stations, rate, count),
        }


def _loaded(operation: Callable[..., Any], stations: Sequence[Station], rate: float, count: int) -> dict[str, float]:
    out = open_load(operation, stations, rate, count)
    return {
        "rate": rate,
        "busiest": max(out.used.values()),
        **{
            f"{kind}_p{100 * share:.0f}": out.quantile(kind, share)
            for kind in ("read", "write")
            for share in (0.5, 0.99)
        },
    }


def etcds() -> Iterator[dict[str, Any]]:
    """Highest rates of etcd."""
    for members in (3, 5):
        for reads in (0.5, 0.8, 0.95, 1.0):
            found = bounds.etcd(members, Workload(reads))
            yield {
                "system": f"etcd of {members}",
                "reads": reads,
                "reads_a_second": found.rate * reads,
                "writes_a_second": found.rate * (1 - reads),
                "bottleneck": f"{found.where}: {found.work}",
            }


def failures(sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The switch whose chains have most load fails: what waits, how long, and the rate later."""
    wait = {
        name: NUMBERS[f"{name} after a switch died{lease}"].value / 1e6
        for name, lease in (
            ("NetCRAQ: no write", " (lease of 200 ms)"),
            ("NetCRAQ: no clean read", ""),
            ("NetChain: no answer", ""),
        )
    }
    short = NUMBERS["NetCRAQ: no write after a switch died (lease of 50 ms)"].value / 1e6
    for size in sizes:
        for setup in (Setup(NETCRAQ, TC, size, 200), netchain(TC, size)):
            fabric, chains, switches = setup.build()
            weights = USUAL.weights()
            shares = [sum(weights[n :: len(chains)]) for n in range(len(chains))]
            load = [0.0] * size
            for share, members in zip(shares, chains, strict=True):
                for member in members:
                    load[member] += share
            dead = load.index(max(load))
            reads = sum(
                share * _reads_at(setup.system, fabric, members, dead)
                for share, members in zip(shares, chains, strict=True)
            )
            left = [[m for m in members if m != dead] for members in chains]
            netcraq = setup.system == NETCRAQ
            yield {
                "system": setup.system,
                "switches": size,
                "writes_waiting": load[dead],
                "reads_waiting": reads,
                "mean_writes_waiting": sum(load) / size,
                "write_ms": wait["NetCRAQ: no write" if netcraq else "NetChain: no answer"],
                "short_ms": short if netcraq else None,
                "read_ms": wait["NetCRAQ: no clean read" if netcraq else "NetChain: no answer"],
                "rate_before": setup.bound(USUAL).rate,
                "rate_after": bounds.highest(fabric, left, USUAL, switches).rate,
            }
    yield {
        "system": "etcd, the leader",
        "switches": 0,
        "writes_waiting": 1.0,
        "reads_waiting": 1.0,
        "mean_writes_waiting": None,
        "write_ms": NUMBERS["etcd: no write after the leader died"].value / 1e6,
        "short_ms": None,
        "read_ms": NUMBERS["etcd: no write after the leader died"].value / 1e6,
        "rate_before": None,
        "rate_after": None,
    }


def _reads_at(system: str, fabric: LeafSpine, members: Sequence[int], dead: int) -> float:
    """The share of a chain's reads that a switch answers."""
    if dead not in members:
        return 0.0
    return sum(bounds.read_shares(fabric, members)[dead]) if system == NETCRAQ else float(dead == members[-1])


def placements(quick: bool) -> Iterator[dict[str, Any]]:
    """Where keys live, on eight switches and on a thousand."""
    for size, rate in ((8, 3e6),) if quick else ((8, 3e6), (1000, 50e6)):
        for case in placement.cases(size, rate, 500 if quick else 2_000):
            yield vars(case)


def everything(quick: bool) -> dict[str, list[dict[str, Any]]]:
    """All answers."""
    some = SIZES[:2] if quick else SIZES
    return {
        "sizes": list(sizes(some, costs.engines())),
        "mixes": list(mixes(64 if quick else 256)),
        "etcd": list(etcds()),
        "latencies": list(latencies(some, 500 if quick else 2_000)),
        "failures": list(failures(some[:3])),
        "placement": list(placements(quick)),
    }


def renewals(chains: int, lease_ms: float) -> float:
    """Leases that a controller renews in a second: four times in each lease, at each member
    (``renewals`` in controlplane/chain/lease.go).
    """
    return 4 * chains * MEMBERS / (lease_ms / 1000)
