# SPDX-License-Identifier: Apache-2.0
"""The steps of ``make run`` on a running network: place keys, query, and check what the clients
saw. demo.py does the presentation.
"""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments import etcd_data
from experiments.chain_client import digest, value_of
from experiments.single_writer_history import Operation, violations
from topologies import p4app
from topologies.network import ChainNetwork, Counters

WRITE_PAUSE = 0.001
"""Seconds between writes under load: some hundreds a second, on the most-read keys, so that some
reads find them dirty.
"""

MAX_PACKETS = 64
"""Exceeds the packets that a client sends for one query (one every 50 to 200 ms for two
seconds).
"""


class RunError(Exception):
    """An error that a person must fix."""


def writer_of(topology: p4app.Topology) -> p4app.Host:
    """The host that writes: the first host at the head."""
    return next(iter(topology.hosts_at(topology.chains[0].members[0])), next(iter(topology.hosts.values())))


@dataclass
class Client:
    """A client process in a host."""

    host: str
    switch: str
    process: Any

    def tell(self, message: dict[str, Any] | str) -> None:
        """Send the client a job, or end its loop."""
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for the client's answer."""
        line = self.process.stdout.readline()
        if not line:
            raise RunError(f"the client in {self.host} ended: {self.process.stderr.read().strip()}")
        return json.loads(line)


@dataclass
class Queries:
    """The queries of the clients in one phase, and their results."""

    operations: list[Operation] = field(default_factory=list)
    by_switch: Counter[str] = field(default_factory=Counter)
    read_seconds: dict[str, list[float]] = field(default_factory=dict)
    """Latencies of answered reads, by the switch at which the reader is."""
    write_seconds: list[float] = field(default_factory=list)
    reads: int = 0
    writes: int = 0
    lost: int = 0
    repeated: int = 0
    """Packets sent again because no answer came in time."""
    wrong: list[str] = field(default_factory=list)


CHANGED = "the chain was changed during the run"
"""The start of the finding that the chain continued without a switch for some time."""


class ChainRun:
    """One run, from placed keys to the verdict."""

    def __init__(self, net: ChainNetwork, say: Callable[[str], None], add: Callable[[str], None]) -> None:
        """``say`` prints a new step, on a line each; ``add`` adds to that line."""
        self.net = net
        self.say = say
        self.add = add
        self.chain = net.topology.chains[0]
        self.ids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.firsts: dict[int, bytes] = {}
        self.readers: list[Client] = []
        self.writer: Client | None = None
        self.phases: dict[str, Queries] = {}
        self.facts: dict[str, Any] = {}
        self._epoch = 0  # epoch of the chain's configuration when the keys were placed
        self._numbers: dict[int, dict[str, int]] = {}  # by key: its values' numbers, by digest

    # ---- Keys ----

    def place(self, path: Path, entries: list[etcd_data.Entry]) -> None:
        """Place the entries of an export that fit."""
        chain = self.net.admin.chain(self.chain.name)
        self._epoch = chain["epoch"]
        fitting, left = etcd_data.fit(entries, self.net.topology.profile // 8, chain["slots"])
        if not fitting:
            raise RunError(
                f"none of the {len(entries)} keys of {path} fits: {'; '.join(etcd_data.reasons(left))}. Try --profile 8192"
            )
        began = time.monotonic()
        self.ids, refused = etcd_data.place(self.net.admin, self.chain.name, fitting)
        took = time.monotonic() - began
        left += refused
        self.names = {key: name for name, key in self.ids.items()}
        self.firsts = {self.ids[entry.key]: entry.value for entry in fitting if entry.key in self.ids}
        self._numbers = {key: {digest(value): 0} for key, value in self.firsts.items()}
        self.say(f"{len(self.ids)} of {len(entries)} keys of {shown(path)} placed in {took:.2f} s")
        for reason in etcd_data.reasons(left):
            self.add(f"left in etcd: {reason}")
        self.facts["keys"] = {
            "export": str(path),
            "of": len(entries),
            "placed": len(self.ids),
            "left": [{"key": item.entry.key, "bytes": len(item.entry.value), "reason": item.reason} for item in left],
            "seconds": round(took, 3),
        }

    # ---- Clients ----

    def spawn_clients(self) -> None:
        """Start a reader in every host, and a writer in the head's first host. They start up while
        keys are being placed.
        """
        # They have a lower priority than the switches and the controller: a process without CPU
        # time for 200 ms, because of busy clients, could not renew leases.
        script = ["nice", "-n", "10", sys.executable, str(p4app.ROOT / "experiments" / "chain_client.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        hosts = [*self.net.topology.hosts.values(), writer_of(self.net.topology)]
        *self.readers, self.writer = [
            Client(host.name, host.switch, self.net.spawn(host.name, script, **pipes)) for host in hosts
        ]

    def start_clients(self) -> None:
        """Send the clients their setup, and the keys' first values."""
        firsts = {str(key): base64.b64encode(value).decode() for key, value in self.firsts.items()}
        everyone = [*self.readers, self.writer]
        for client in everyone:
            writes = client is self.writer
            client.tell(
                {"host": client.host, "chain": self.chain.name, "writes": writes, "firsts": firsts if writes else {}}
            )
        for client in everyone:
            client.hear()

    def together(self, phase: str, jobs: list[tuple[Client, dict[str, Any]]]) -> Queries:
        """Give jobs to clients, all at once, and record the results."""
        for client, job in jobs:
            client.tell(job)
        queries = self.phases[phase] = Queries()
        for client, _ in jobs:
            for done in client.hear()["done"]:
                self._note(queries, client, done)
        return queries

    def _note(self, queries: Queries, client: Client, done: list[Any]) -> None:
        kind, key, what, asked, answered, packets, wrong, _ = done
        name = self.names[key]
        queries.by_switch[client.switch] += 1
        queries.repeated += max(0, packets - 1)
        if kind == "put":
            queries.writes += 1
            self._numbers[key][digest(value_of(self.firsts[key], what))] = what
            queries.operations.append(Operation(name, True, what, asked, math.inf if wrong else answered, client.host))
        else:
            queries.reads += 1
        if wrong == "lost":
            queries.lost += 1
        elif wrong is not None:
            queries.wrong.append(f"{name}: {client.host} {kind}: {wrong}")
        elif kind == "put":
            queries.write_seconds.append(answered - asked)
        else:
            queries.read_seconds.setdefault(client.switch, []).append(answered - asked)
            # a digest, which is resolved when all writes are known
            queries.operations.append(Operation(name, False, what, asked, answered, client.host))

    # ---- Phases ----

    def read_everything(self, again: str = "") -> None:
        """Read every key at every switch."""
        ops = [["get", key, None] for key in self.names]
        queries = self.together(f"sweep {again}".rstrip(), [(client, {"ops": ops}) for client in self.readers])
        self.say(f"every key read at every switch{f' {again}' if again else ''}: {queries.reads:,} reads")

    def replay(self, path: Path, requests: list[etcd_data.Request], seconds: float) -> None:
        """Replay the gets and puts of a trace for placed keys, compressed in time."""
        length = max(requests[-1].seconds, 1e-9) if requests else 1.0
        start = time.monotonic() + 0.2
        jobs: list[tuple[Client, list[list[Any]]]] = [(client, []) for client in [*self.readers, self.writer]]
        kinds = {"get": "get", "txn-put": "put"}
        asked, replayed = Counter(), Counter()
        for request in requests:
            kind = kinds.get(request.kind)
            if kind is None:
                continue
            asked[kind] += 1
            key = self.ids.get(request.key)
            if key is None:
                continue
            at = start + request.seconds / length * seconds
            ops = jobs[-1][1] if kind == "put" else jobs[replayed["get"] % len(self.readers)][1]
            ops.append([kind, key, at])
            replayed[kind] += 1
        self.together("replay", [(client, {"ops": ops}) for client, ops in jobs])
        counts = f"{replayed['get']} of {asked['get']} gets, {replayed['put']} of {asked['put']} puts"
        self.say(f"{length:.0f} s of etcd traffic replayed in {seconds:.0f} s: {counts}")
        self.add(
            f"for keys that are not placed: {asked['get'] - replayed['get']} gets, {asked['put'] - replayed['put']} puts"
        )
        self.facts["replay"] = {
            "trace": str(path),
            "seconds": seconds,
            "recorded_seconds": length,
            "gets": {"recorded": asked["get"], "replayed": replayed["get"]},
            "puts": {"recorded": asked["put"], "replayed": replayed["put"]},
            "other_requests": len(requests) - asked.total(),
        }

    def load(self, seconds: float) -> None:
        """Read at every switch as fast as answers come, and write at the head."""
        start = time.monotonic() + 0.3
        until = start + seconds
        keys = sorted(self.names, key=self.names.get)
        jobs = []
        for seed, client in enumerate([*self.readers, self.writer]):
            writes = client is self.writer
            kind, pause = ("put", WRITE_PAUSE) if writes else ("get", 0.0)
            loop = {"kind": kind, "keys": keys, "start": start, "until": until, "seed": seed, "pause": pause}
            jobs.append((client, {"loop": loop}))
        queries = self.together("load", jobs)
        self.say(
            f"{seconds:.0f} s of load: {queries.reads:,} reads at all switches, {queries.writes:,} writes at the head"
        )
        self.facts["load"] = {"seconds": seconds}

    # ---- Verdict ----

    def operations(self) -> list[Operation]:
        """The history of the run, with each read value replaced by its number."""
        by_name = {name: self._numbers[key] for name, key in self.ids.items()}
        everything = [operation for queries in self.phases.values() for operation in queries.operations]
        return [o if o.write else replace(o, number=by_name[o.key].get(o.number)) for o in everything]

    def wrong(self, before: dict[str, Counters], after: dict[str, Counters]) -> list[str]:
        """Everything that is wrong, a line each."""
        found = [line for queries in self.phases.values() for line in queries.wrong]
        if (epoch := self.net.admin.chain(self.chain.name)["epoch"]) != self._epoch:
            # Otherwise the switches' counters are not only this run's.
            found.append(
                f"{CHANGED} (epoch {self._epoch} before, {epoch} now): a switch answered no lease for a "
                "while, as on a machine that has too much else to do; the controller's log says which"
            )
        found += violations(self.operations())
        phases = self.phases.values()
        answered = sum(len(seconds) for queries in phases for seconds in queries.read_seconds.values())
        served = sum(
            after[name].event(event) - before[name].event(event)
            for name in after
            for event in ("read_clean", "read_dirty")
        )
        # A resent packet may have been answered twice. A query without an answer was resent until
        # its client gave up.
        twice = sum(queries.repeated + MAX_PACKETS * queries.lost for queries in phases)
        if not answered <= served <= answered + twice:
            found.append(f"the switches say that they answered {served:,} reads, the clients had {answered:,} answers")
        dropped = {
            f"{name} {event}": moved
            for name in after
            for event, moved in after[name].since(before[name]).items()
            if event.startswith("drop_") and event != "drop_old_request"
        }
        found += [f"{what}: {count:,} packets that should not have been dropped" for what, count in dropped.items()]
        return found


def shown(path: Path) -> str:
    """A path in a short form for people."""
    return str(path.relative_to(p4app.ROOT)) if path.is_relative_to(p4app.ROOT) else str(path)
