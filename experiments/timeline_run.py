# SPDX-License-Identifier: Apache-2.0
"""The clients' view while a switch of the chain is killed and restored: one run, of NetCRAQ or of
NetChain.

The chain has four switches in a ring, so that there is a way around each, with a reader and a
writer at every switch but the one that fails. Each client sends its next query after the answer to
the last one and a short pause. Each key has one writer and its values are numbered, so every read
value can be checked (:mod:`experiments.single_writer_history`). A run with an impossible value is
invalid: RunError.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from experiments.chain_client import STOP, digest, value_of
from experiments.chain_session import Client, RunError
from experiments.netchain_client import NetChainClient, key_id
from experiments.query_generator import percentile
from experiments.single_writer_history import Operation, violations
from topologies import p4app
from topologies.controller import declaration
from topologies.network import ChainNetwork
from topologies.nodes import DIE_WITH_PARENT

ROOT = p4app.ROOT

BIN = 0.02
"""Seconds of a row."""

SETTLED = 1.0
"""Seconds that a run continues after the switch is a member again, to show the effect."""

WRITTEN = 64
"""Number of keys that are read and written; the others only have to be copied to the returning
switch.
"""

KINDS = {"get": "reads", "put": "writes"}

FIRST = b"0123456789abcdef"
"""The initial value of every key."""

LABELS = {
    "chain.failover": "given up",
    "chain.recovering": "being filled",
    "chain.copied": "filled",
    "chain.recovered": "is a member",
    "around": "gone around",
    "recovering": "being filled",
    "recovered": "is back",
}
"""The controllers' events that a plot names: NetCRAQ's, then NetChain's."""


@dataclass(frozen=True)
class Answer:
    """An answered query; seconds since the start."""

    kind: str
    at: float
    took: float


@dataclass(frozen=True)
class Event:
    """An event; seconds since the start."""

    at: float
    kind: str
    switch: str
    message: str


@dataclass(frozen=True)
class Times:
    """Durations in seconds: until the switch is killed, from the kill to the restart, and the
    minimum after the restart. A run continues for :data:`SETTLED` after the switch is a member
    again, however long that takes.
    """

    before: float = 3.0
    away: float = 3.0
    after: float = 5.0


@dataclass(frozen=True)
class Record:
    """The results of a run."""

    system: str
    engine: str
    victim: str
    seconds: float
    """The duration of the run, from the first query on."""
    answers: list[Answer]
    events: list[Event]

    def outages(self) -> dict[str, float | None]:
        """Return the longest times without an answer to any client, in milliseconds, during the
        failure and during the recovery, and the duration of the chain change that delays writes
        (NetCRAQ: for all keys; NetChain: for a virtual group, unknown here).
        """
        killed, restarted = (next(e.at for e in self.events if e.kind == kind) for kind in ("killed", "restarted"))
        joined = next((e.at for e in self.events if e.kind in ("chain.recovered", "recovered")), self.seconds)
        pause = changed(self.events)
        return {
            "failover_write_ms": longest_gap(self.answers, "put", killed, restarted),
            "failover_read_ms": longest_gap(self.answers, "get", killed, restarted),
            "recovery_write_ms": longest_gap(self.answers, "put", restarted, joined + 0.5),
            "recovery_read_ms": longest_gap(self.answers, "get", restarted, joined + 0.5),
            "recovery_seconds": round(joined - restarted, 3),
            "changed_ms": round((pause[1] - pause[0]) * 1e3, 1) if pause else None,
        }


# ---- Evaluating the answers ----


def rows(answers: Sequence[Answer], seconds: float, width: float = BIN) -> list[dict[str, Any]]:
    """Return a row for each ``width`` seconds: for reads and writes, the answers a second, and the
    median and the longest latency in milliseconds (None: no answers).
    """
    bins: list[dict[str, list[float]]] = [{name: [] for name in KINDS.values()} for _ in range(round(seconds / width))]
    for answer in answers:
        if 0 <= answer.at < len(bins) * width:
            bins[min(int(answer.at / width), len(bins) - 1)][KINDS[answer.kind]].append(answer.took * 1e3)
    table = []
    for number, took in enumerate(bins):
        row: dict[str, Any] = {"seconds": round(number * width, 3)}
        for name, all_of in took.items():
            all_of.sort()
            row[f"{name}_per_second"] = round(len(all_of) / width)
            row[f"{name}_p50_ms"] = round(percentile(all_of, 50), 3) if all_of else None
            row[f"{name}_max_ms"] = round(all_of[-1], 3) if all_of else None
        table.append(row)
    return table


def longest_gap(answers: Sequence[Answer], kind: str, start: float, end: float) -> float:
    """Return the longest time between ``start`` and ``end`` without an answer of a kind, in
    milliseconds.
    """
    at = [start, *sorted(answer.at for answer in answers if answer.kind == kind and start < answer.at < end), end]
    return round(max(after - before for before, after in pairwise(at)) * 1e3, 1)


def changed(events: Sequence[Event]) -> tuple[float, float] | None:
    """Return the time span of the chain change after which writes pass the restored switch: from
    the decision until the last member has the change. A chain of one is frozen for that: from the
    decision to freeze until the last member is unfrozen. None: never.
    """

    def begins(event: Event) -> bool:
        stops = event.message.endswith(", frozen") or "(filling " in event.message
        return event.kind == "chain.installing" and stops

    start = next((event.at for event in events if begins(event)), None)
    if start is None:
        return None
    thawed = (
        e.at for e in events if e.kind == "chain.installed" and e.at > start and not e.message.endswith(", frozen")
    )
    end = next(thawed, None)
    return None if end is None else (start, end)


def marks(events: Sequence[Event]) -> list[tuple[float, str]]:
    """Return the labels of the events in a plot, and their times."""
    out: list[tuple[float, str]] = []
    for event in events:
        label = event.kind if event.kind in ("killed", "restarted") else LABELS.get(event.kind)
        if label and not (out and out[-1][1].endswith(label)):
            out.append((event.at, f"{event.switch} {label}".strip()))
    if pause := changed(events):
        out.append((pause[0], f"changed in {(pause[1] - pause[0]) * 1e3:.0f} ms"))
    return sorted(out)


# ---- The systems ----


class System(Protocol):
    """The differences between NetCRAQ and NetChain."""

    keys: list[int]

    def setup(self) -> dict[str, Any]:
        """Return what a client needs to find the chain."""

    def recover(self, victim: str) -> None:
        """Bring a restarted switch back; returns when it is a member again."""

    def events(self) -> list[tuple[float, str, str, str]]:
        """Return the controller's events: seconds since 1970, kind, switch, message."""


class NetCRAQ:
    """NetCRAQ with its controller, which the network starts."""

    def __init__(self, net: ChainNetwork, keys: int) -> None:
        """Place the keys."""
        self._net = net
        self._chain = net.topology.chains[0].name
        placed = net.admin.add_keys(self._chain, {f"key-{number}": FIRST for number in range(keys)})
        if bad := next((key["error"] for key in placed if key.get("error")), None):
            raise RunError(f"placing {keys} keys: {bad['message']}")
        self.keys = [key["keyId"] for key in placed]

    def setup(self) -> dict[str, Any]:
        """Clients ask the controller."""
        return {"chain": self._chain}

    def recover(self, victim: str) -> None:
        """Rejoin the switch as soon as the controller has set it up and the chain has removed
        it.
        """
        admin = self._net.admin
        for _ in range(1000):
            ready = next(switch for switch in admin.switches() if switch["name"] == victim)["ready"]
            if ready and victim not in {member["switch"] for member in admin.chain(self._chain)["members"]}:
                admin.recover(self._chain, victim)
                return
            time.sleep(0.02)
        raise RunError(f"{victim} was restarted, and the controller has not set it up within 20 s")

    def events(self) -> list[tuple[float, str, str, str]]:
        """Return all events that the controller has kept."""
        return [
            (
                datetime.fromisoformat(event["time"]).timestamp(),
                event["type"],
                event.get("switch", ""),
                event["message"],
            )
            for event in self._net.admin.events()
        ]


class NetChain:
    """NetChain, with a controller that treats a switch as failed as soon as its connection ends."""

    def __init__(self, net: ChainNetwork, out: Path, keys: int, groups: int = 100) -> None:
        """Start the controller and write every key's initial value."""
        file = out / "netchain.json"
        file.write_text(json.dumps(declaration(net.topology), indent=2) + "\n")
        own = ["--topology", str(file), "--keys", str(keys), "--groups", str(groups), "--detect", "1ms"]
        self._log = out / "netchain.log"
        with self._log.open("w") as log:
            command = [*DIE_WITH_PARENT, self._tool, "control", *own]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("ready:"):
            self.stop()
            raise RunError(f"NetChain's controller does not come up: {self._log.read_text()}")
        self._addresses = [str(net.topology.switches[name].address) for name in net.topology.chains[0].members]
        self.keys = [key_id(number, groups) for number in range(keys)]
        with net.inside(next(iter(net.topology.hosts))), NetChainClient(self._addresses, timeout=20) as client:
            for key in self.keys:  # the first ones may fail while the network starts
                client.put(key, FIRST)

    _tool = str(ROOT / "bin" / "netchain")

    def stop(self) -> None:
        """Stop the controller."""
        self._process.kill()
        self._process.wait()

    def setup(self) -> dict[str, Any]:
        """Clients write the chain into their packets."""
        return {"netchain": self._addresses}

    def recover(self, victim: str) -> None:
        """Recover one virtual group after the other."""
        self._ask("recover", victim)

    def events(self) -> list[tuple[float, str, str, str]]:
        """Return all events of the controller."""
        found = json.loads(self._ask("events"))
        return [
            (datetime.fromisoformat(event["time"]).timestamp(), event["kind"], event["switch"], event["message"])
            for event in found
        ]

    def _ask(self, *command: str) -> str:
        done = subprocess.run([self._tool, *command], capture_output=True, text=True, check=False)
        if (ended := self._process.poll()) is not None:
            raise RunError(f"NetChain's controller has ended ({ended}): {self._log.read_text()}")
        if done.returncode != 0:
            raise RunError(f"netchain {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


SYSTEMS = ("NetCRAQ", "NetChain")


# ---- The run ----


def ring(lease_ms: int, short_ms: int | None) -> p4app.Topology:
    """Return four switches in a ring, with a host at each, and a chain over all of them.

    The victim rejoins when the run asks for it, in either system.
    """
    content = p4app.line(4, lease_ms=lease_ms, short_lease_ms=short_ms)
    content["topology"]["links"].append(["s4", "s1"])
    content["netcraq"]["chains"][0]["rejoin_ms"] = 0
    return p4app.check(content, "a ring of 4 switches")


@contextlib.contextmanager
def _up(
    name: str, kind: dict[str, str], out: Path, leases: tuple[int, int | None], keys: int
) -> Iterator[tuple[ChainNetwork, System]]:
    """Run the network with a system on it."""
    if name == "NetCRAQ":
        with ChainNetwork(ring(*leases), **kind, out=out) as net:
            yield net, NetCRAQ(net, keys)
        return
    with ChainNetwork(ring(*leases), **kind, out=out, controller=False) as net:
        system = NetChain(net, out, keys)
        try:
            yield net, system
        finally:
            system.stop()


def run(
    name: str,
    kind: dict[str, str],
    out: Path,
    *,
    victim: str = "s3",
    lease_ms: int = 200,
    short_ms: int | None = None,
    keys: int = 1000,
    times: Times | None = None,
) -> Record:
    """Run a system (NetCRAQ or NetChain) on a kind of switch (arguments of ChainNetwork), kill the
    victim, restart it, and bring it back into the chain.

    The caller provides the network namespace. Raises RunError if a read value was impossible.
    Raises NodeError if a process does not start.
    """
    with _up(name, kind, out, (lease_ms, short_ms), keys) as (net, system):
        clients = _clients(net, system, victim)
        times = times or Times()
        start = time.monotonic() + 0.3
        wall = time.time() - time.monotonic()
        writers = sum(kind == "put" for kind, _ in clients)
        written = system.keys[:WRITTEN]
        for number, (kind, client) in enumerate(clients):
            own = written[number // len(KINDS) :: writers] if kind == "put" else written
            pause = {"put": 0.002, "get": 0.0005}[kind]
            client.tell(
                {
                    "loop": {
                        "kind": kind,
                        "keys": own,
                        "start": start,
                        "until": None,
                        "seed": number,
                        "pause": pause,
                    }
                }
            )
        happened = []

        def mark(kind: str, at: float) -> None:
            time.sleep(max(0.0, start + at - time.monotonic()))
            happened.append(Event(time.monotonic() - start, kind, victim, ""))

        mark("killed", times.before)
        net.kill_switch(victim)
        mark("restarted", times.before + times.away)
        net.restart_switch(victim)
        system.recover(victim)
        member = time.monotonic() - start
        time.sleep(max(SETTLED, times.before + times.away + times.after - member))
        for _, client in clients:
            client.tell(STOP)
        seconds = time.monotonic() - start
        answers = _judge([(client, done) for _, client in clients for done in client.hear()["done"]], start)
        happened += [Event(at - wall - start, *what) for at, *what in system.events() if at - wall > start]
        return Record(name, net.running_engine, victim, seconds, answers, sorted(happened, key=lambda event: event.at))


def _clients(net: ChainNetwork, system: System, victim: str) -> list[tuple[str, Client]]:
    """Start a reader and a writer at every switch but the victim."""
    script = ["nice", "-n", "10", sys.executable, str(ROOT / "experiments" / "chain_client.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    firsts = {str(key): base64.b64encode(FIRST).decode() for key in system.keys[:WRITTEN]}
    clients = []
    for host in net.topology.hosts.values():
        for kind in KINDS if host.switch != victim else ():
            client = Client(host.name, host.switch, net.spawn(host.name, script, **pipes))
            client.tell({"host": host.name, "writes": kind == "put", "firsts": firsts, **system.setup()})
            clients.append((kind, client))
    for _, client in clients:
        client.hear()
    return clients


def _judge(done: list[tuple[Client, list[Any]]], start: float) -> list[Answer]:
    """Return the answers, if every read value was possible; otherwise raise RunError."""
    highest: dict[int, int] = {}
    for _, (kind, key, number, *_rest) in done:
        if kind == "put":
            highest[key] = max(highest.get(key, 0), number)
    numbers = {
        key: {digest(value_of(FIRST, number)): number for number in range(last + 1)} for key, last in highest.items()
    }
    untouched = {digest(FIRST): 0}
    answers, operations = [], []
    for client, (kind, key, what, asked, answered, _, wrong, took) in done:
        if wrong not in (None, "lost"):
            raise RunError(f"{client.host} at {client.switch}: {wrong}")
        if wrong is None:
            answers.append(Answer(kind, answered - start, took))
        if kind == "put":
            operations.append(
                Operation(f"{key:#010x}", True, what, asked, math.inf if wrong else answered, client.host)
            )
        elif wrong is None:
            operations.append(
                Operation(f"{key:#010x}", False, numbers.get(key, untouched).get(what), asked, answered, client.host)
            )
    if found := violations(operations):
        raise RunError(f"{len(found)} values that could not have been read: {found[0]}")
    return answers
