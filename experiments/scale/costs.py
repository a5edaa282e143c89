# SPDX-License-Identifier: Apache-2.0
"""Every number that the model starts from, with its source. Times are nanoseconds."""

from __future__ import annotations

import functools
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "experiments" / "data" / "scale-chains.json"
NETCRAQ, NETCHAIN = "NetCRAQ", "NetChain"
TC, XDP, CHIP = "ebpf tc", "ebpf xdp", "chip"


@dataclass(frozen=True)
class Cost:
    """A number and its source."""

    value: float
    unit: str
    source: str
    measured: bool = True
    """Whether this project measured it. Otherwise the source is a citation or an assumption."""


SWITCH, ETCD, FAILOVER, KUBERNETES = (
    f"docs/benchmarks/{name}.md" for name in ("switch", "etcd", "failover", "kubernetes")
)
NUMBERS = {
    "a read on one core at tc: load, switch and two frames": Cost(
        1e9 / 2_534_501, "ns", f"{SWITCH}, two cores, 2026-11-27, 8792091e"
    ),
    "a read on one core at XDP: load, switch and two frames": Cost(
        1e9 / 2_202_878, "ns", f"{SWITCH}, two cores, 2026-11-27, 8792091e"
    ),
    "the program's part of that read at tc": Cost(
        66, "ns", f"{SWITCH}, values that rest in the frame, 2026-11-27, d1602550"
    ),
    "the program's part of that read at XDP": Cost(
        55, "ns", f"{SWITCH}, values that rest in the frame, 2026-11-27, d1602550"
    ),
    "a client's own work for a query": Cost(
        3_600, "ns", f"{SWITCH}, what a request costs a client, 2026-11-26, 020c6599"
    ),
    "a chip's packets": Cost(
        4e9, "packets a second", "Jin and others, NetChain, NSDI 2018, table 1 and section 8 (a Tofino)", measured=False
    ),
    "a chip's pipeline, at most": Cost(
        1_000, "ns", "Jin and others, NetChain, NSDI 2018, table 1 (below 1 µs)", measured=False
    ),
    "a link of 50 m": Cost(250, "ns", "assumed length; light in glass takes 5 ns for a metre", measured=False),
    "etcd, three members: processor time of a put": Cost(
        188_000, "ns", f"{ETCD}, puts to the leader, 2026-11-27, 7d14c30b"
    ),
    "etcd, three members: processor time of a read": Cost(159_000, "ns", f"{ETCD}, ranges, 2026-11-27, beb0a491"),
    "etcd, three members: a put's p50": Cost(491_000, "ns", f"{ETCD}, against Redis, 2026-11-21, 609b999e"),
    "etcd, three members: a read's p50": Cost(386_000, "ns", f"{ETCD}, against Redis, 2026-11-21, 609b999e"),
    "cores of a member of etcd": Cost(
        2, "cores", "assumed: as many as the machine that measured it has", measured=False
    ),
    "NetCRAQ: no write after a switch died (lease of 200 ms)": Cost(
        157e6, "ns", f"{FAILOVER}, tc, 2026-11-21, ae302f81"
    ),
    "NetCRAQ: no write after a switch died (lease of 50 ms)": Cost(43e6, "ns", f"{FAILOVER}, tc, 2026-11-27, 10c6041e"),
    "NetCRAQ: no clean read after a switch died": Cost(7e6, "ns", f"{FAILOVER}, tc, 2026-11-21, ae302f81"),
    "NetChain: no answer after a switch died": Cost(
        48e6, "ns", f"{FAILOVER}, against NetChain, tc, 2026-11-21, 609b999e"
    ),
    "etcd: no write after the leader died": Cost(
        2.7e9, "ns", f"{KUBERNETES}, elections of 3 s, the better of two runs"
    ),
    "keys follow the load after": Cost(
        10, "s", f"{ETCD}, half of the reads answered by the network, 2026-11-27, b4cc5771"
    ),
}

READ, PASS, REPLY_PASS = "clean read: answered", "read passing", "read reply passing"
DIRTY_SENT, DIRTY_READ = "dirty read: sent to the tail", "dirty read: answered at the tail"
HEAD, REPLICA, TAIL, COMMIT = (
    "write at the head",
    "write at a replica",
    "write at the tail",
    "write's answer at a replica",
)


@functools.cache
def measurements() -> dict[str, Any]:
    """The committed measurements (:mod:`experiments.scale.measure`)."""
    return json.loads(DATA.read_text())


@functools.cache
def role(system: str, engine: str, kind: str) -> float:
    """The time that a switch's program takes for a kind of packet, in memory."""
    for row in measurements()["roles"]:
        if (row["system"], row["engine"], row["kind"]) == (system, engine, kind):
            return statistics.median(row["ns"])
    raise KeyError((system, engine, kind))


def engines() -> list[str]:
    """The hooks of the kernel whose programs were measured, and the chip."""
    found = {row["engine"] for row in measurements()["roles"]}
    return [engine for engine in (TC, XDP, CHIP) if engine in found or engine == CHIP]


def frame(engine: str) -> float:
    """The time to receive and send a frame at a switch in the kernel: half of what a read takes
    without its program. The load generator's part is in it, so it is an upper bound.
    """
    hook = {TC: "tc", XDP: "XDP"}[engine]
    whole = NUMBERS[f"a read on one core at {hook}: load, switch and two frames"].value
    return (whole - NUMBERS[f"the program's part of that read at {hook}"].value) / 2


@dataclass(frozen=True)
class Switches:
    """What a packet costs at each switch of a network."""

    system: str
    engine: str

    def cost(self, kind: str) -> float:
        """The time that a packet keeps the switch busy."""
        if self.engine == CHIP:
            return 1e9 / NUMBERS["a chip's packets"].value
        return role(self.system, self.engine, kind) + frame(self.engine)

    @property
    def after(self) -> float:
        """The time that a packet takes after that, until it reaches the next switch."""
        wire = NUMBERS["a link of 50 m"].value
        return wire + NUMBERS["a chip's pipeline, at most"].value if self.engine == CHIP else wire
