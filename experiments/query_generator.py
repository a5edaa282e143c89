#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate queries to a NetCRAQ chain at a steady rate and report their outcomes.

The load is open: queries are sent at their scheduled times, whether or not earlier ones are
answered. None is sent again, so that a loss shows as a loss and an answer's latency is that of one
round trip. (netcraqctl bench makes a closed loop at the highest rate.)

Two transports send the same packets. "socket" uses a UDP socket. "scapy" makes whole Ethernet
frames with scapy and sends and sniffs them on one interface, as one does inside a Mininet host; it
reaches about 1,500 queries a second. The latencies include the time of Python: some ten
microseconds with a socket, some hundred with scapy.

Answers are accepted from the targets and from the chain's service address. Switches also answer
from the service address to queries that they get at their own address.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import itertools
import json
import math
import random
import select
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

try:
    from netcraq import wire
    from netcraq.admin import Admin, AdminError, Chain, chain_of, describe
    from netcraq.wire import Flags, Op, Packet, Status, WireError
except ModuleNotFoundError as e:
    sys.exit(
        f"query_generator.py: {e}: run it with the project's Python environment (make deps), or pip install -e client/python there"
    )

COLUMNS = ("time", "op", "key", "target", "status", "rtt_us", "version", "answered_by")
LOST = "LOST"
KINDS = ("get", "put", "del", "cas")
QUANTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "max": 100}


class GeneratorError(Exception):
    """An error that the user has to resolve."""


# ---- Choosing queries ----


class KeyPicker(Protocol):
    """Chooses keys."""

    def __call__(self) -> int:
        """Return the next key."""


def uniform_keys(keys: Sequence[int], rng: random.Random) -> KeyPicker:
    """Choose all keys with the same probability."""
    return lambda: rng.choice(keys)


def zipf_keys(keys: Sequence[int], exponent: float, rng: random.Random) -> KeyPicker:
    """Choose the n-th key with a probability proportional to 1/n^exponent (Zipf's law)."""
    sums = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(len(keys))))
    return lambda: keys[min(bisect.bisect_left(sums, rng.random() * sums[-1]), len(keys) - 1)]


def parse_mix(text: str) -> dict[str, float]:
    """Read an op mix: get=90,put=9,cas=1, in any unit."""
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            mix[name] = float(share)
        except ValueError:
            raise GeneratorError(f"--mix: {part!r}: want OPERATION=SHARE, as get=90,put=10") from None
        if name not in KINDS:
            raise GeneratorError(f"--mix: no operation {name!r}: there are {', '.join(KINDS)}")
        if not 0 <= mix[name] < math.inf:
            raise GeneratorError(f"--mix: {part!r}: a share is a number, not negative")
    if not sum(mix.values()):
        raise GeneratorError(f"--mix {text}: nothing to do")
    return mix


def parse_keys(texts: Sequence[str], lookup: Callable[[str], int]) -> list[int]:
    """Read KEY_IDs, ranges of them (0x01000000-0x010000ff), and names, which lookup maps to
    KEY_IDs.
    """
    keys: list[int] = []
    for text in itertools.chain.from_iterable(t.split(",") for t in texts):
        first, dash, last = text.partition("-")
        try:
            low = wire.parse_key(first)
            high = wire.parse_key(last) if dash else low
        except ValueError:
            keys.append(lookup(text))
            continue
        if high < low or high >> 24 != low >> 24:
            raise GeneratorError(f"--keys: {text} is no range of KEY_IDs of one chain")
        keys.extend(range(low, high + 1))
    return keys


@dataclass
class Workload:
    """Chooses the queries; the same seed yields the same queries."""

    mix: dict[str, float]
    pick_key: KeyPicker
    targets: Sequence[str]
    rng: random.Random
    value_size: int
    eventual: bool = False
    versions: dict[int, int] = field(default_factory=dict)
    """The newest version of each key in an answer so far: a cas expects it."""
    _count: int = 0

    def next(self, request: int) -> tuple[str, str, Packet]:
        """Return the operation, the target and the packet of the next query."""
        kind = self.rng.choices(list(self.mix), list(self.mix.values()))[0]
        key = self.pick_key()
        target = self.targets[self._count % len(self.targets)]
        self._count += 1
        # Session 0: the head executes each copy of a request. No request is sent twice here, and
        # writes need not wait for one another.
        if kind == "get":
            return (
                kind,
                target,
                Packet(Op.READ, key, flags=Flags.EVENTUAL if self.eventual else wire.NO_FLAGS, request=request),
            )
        if kind == "del":
            return kind, target, Packet(Op.WRITE, key, request=request, value=None)
        value = f"{self._count:x}".encode().rjust(self.value_size, b".")[-self.value_size :] if self.value_size else b""
        if kind == "put":
            return kind, target, Packet(Op.WRITE, key, request=request, value=value)
        return kind, target, Packet(Op.CAS, key, request=request, version=self.versions.get(key, 0), value=value)


# ---- Sending and receiving ----


@dataclass(frozen=True)
class Received:
    """A UDP payload, its sender, and its arrival time (time.monotonic)."""

    payload: bytes
    source: str
    at: float


class Transport(Protocol):
    """Sends queries and receives answers."""

    def send(self, target: str, payload: bytes) -> None:
        """Send a UDP payload to "ADDRESS:PORT"."""

    def receive(self, wait: float) -> list[Received]:
        """Return the received payloads; wait up to ``wait`` seconds for the first."""

    def close(self) -> None:
        """Release the sockets."""


def split_target(target: str) -> tuple[str, int]:
    """Split "ADDRESS:PORT"."""
    host, _, port = target.rpartition(":")
    return host, int(port)


HELD = 4 << 20
"""The receive buffer of a transport in bytes: without a processor for a while, a transport would
otherwise report received answers as lost.
"""
SO_RCVBUFFORCE = 33
"""asm-generic/socket.h: SO_RCVBUF beyond the system's limit. Python's socket module lacks the name.
"""


def hold(receiver: socket.socket, size: int) -> None:
    """Set a socket's receive buffer to this many bytes, or, without the privilege, to the system's
    limit.
    """
    try:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except PermissionError:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


class SocketTransport:
    """A UDP socket."""

    def __init__(self) -> None:
        """Open the socket, at a port that the system chooses."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        hold(self._socket, HELD)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)

    def send(self, target: str, payload: bytes) -> None:
        """Send a UDP payload to "ADDRESS:PORT"."""
        try:
            self._socket.sendto(payload, split_target(target))
        except BlockingIOError:
            pass  # the send buffer is full: lost, and reported as lost
        except OSError as e:
            raise GeneratorError(f"sending to {target}: {e}") from None

    def receive(self, wait: float) -> list[Received]:
        """Return the received payloads; wait up to ``wait`` seconds for the first."""
        if not select.select([self._socket], [], [], max(wait, 0))[0]:
            return []
        out = []
        while len(out) < 64:
            try:
                payload, (host, port) = self._socket.recvfrom(2048)
            except BlockingIOError:
                break
            out.append(Received(payload, f"{host}:{port}", time.monotonic()))
        return out

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def known_neighbour(host: str) -> str | None:
    """Return the Ethernet address that the kernel has for a host or its gateway. (Switches do not
    answer ARP, so hosts at a switch have fixed entries.)
    """

    def ip(*arguments: str) -> dict[str, Any]:
        done = subprocess.run(["ip", "-j", *arguments], capture_output=True, text=True, check=False)
        found = json.loads(done.stdout or "[]") if done.returncode == 0 else []
        return found[0] if found else {}

    with suppress(OSError, ValueError):  # no ip(8)
        route = ip("route", "get", socket.gethostbyname(host))
        if "dev" in route:
            return ip("neigh", "show", "to", route.get("gateway", route["dst"]), "dev", route["dev"]).get("lladdr")
    return None


class ScapyTransport:
    """Ethernet frames on one interface, made and parsed by scapy."""

    def __init__(self, interface: str, value_bits: int, mac: str | None) -> None:
        """mac: the frames' destination address. None: that of the target or its gateway, from the
        kernel's table or by ARP.
        """
        import logging

        # scapy warns about every interface without an IPv6 address
        logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
        from netcraq import scapy_layer
        from scapy.arch import get_if_addr, get_if_hwaddr
        from scapy.config import conf

        self._layer = scapy_layer.LAYERS[value_bits]
        self._any_layer = scapy_layer.NetCRAQ
        try:
            socket.if_nametoindex(interface)
            self._address, self._hardware = get_if_addr(interface), get_if_hwaddr(interface)
        except OSError as e:
            raise GeneratorError(
                f"--interface {interface}: {e}; there are {', '.join(name for _, name in socket.if_nameindex())}"
            ) from None
        if self._address == "0.0.0.0":
            raise GeneratorError(f"--interface {interface} has no IPv4 address")
        self._mac = mac
        self._headers: dict[str, Any] = {}
        # The kernel must not answer replies with "port unreachable", so a socket that nobody reads
        # holds the port.
        self._port_holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._port_holder.bind((self._address, 0))
        self._port = self._port_holder.getsockname()[1]
        try:
            self._socket = conf.L2socket(iface=interface, promisc=False)
        except OSError as e:
            self._port_holder.close()
            raise GeneratorError(
                f"opening {interface} for frames: {e} (it takes root, or --transport socket)"
            ) from None
        # A hundred small frames fill scapy's default buffer.
        hold(self._socket.ins, HELD)

    def _header(self, target: str) -> Any:
        """Return the headers before the packet, made once for each target."""
        import scapy.route  # noqa: F401 (getmacbyip asks conf.route)
        from scapy.layers.inet import IP, UDP
        from scapy.layers.l2 import Ether, getmacbyip

        if target not in self._headers:
            host, port = split_target(target)
            mac = self._mac or known_neighbour(host) or getmacbyip(host)
            if not mac:
                raise GeneratorError(
                    f"nobody answers ARP for {host} or the gateway to it; name the Ethernet address with --mac"
                )
            self._headers[target] = (
                Ether(src=self._hardware, dst=mac) / IP(src=self._address, dst=host) / UDP(sport=self._port, dport=port)
            )
        return self._headers[target]

    def send(self, target: str, payload: bytes) -> None:
        """Send a UDP payload to "ADDRESS:PORT"."""
        try:
            self._socket.send(self._header(target) / self._layer(payload))
        except OSError as e:
            raise GeneratorError(f"sending to {target}: {e}") from None

    def receive(self, wait: float) -> list[Received]:
        """Return the received payloads; wait up to ``wait`` seconds for the first."""
        from scapy.layers.inet import IP, UDP

        deadline = time.monotonic() + max(wait, 0)
        out: list[Received] = []
        while not out and (left := deadline - time.monotonic()) >= 0:
            if not select.select([self._socket], [], [], left)[0]:
                break
            at = time.monotonic()
            frame = self._socket.recv(4096)
            if frame is None or UDP not in frame or frame[UDP].dport != self._port or frame[IP].dst != self._address:
                continue  # frames of other programs, and this program's own frames
            # These are the received bytes. A payload whose length is not one of NetCRAQ's lengths
            # is not a reply.
            if self._any_layer in frame:
                out.append(Received(bytes(frame[self._any_layer].original), f"{frame[IP].src}:{frame[UDP].sport}", at))
        return out

    def close(self) -> None:
        """Close the sockets."""
        self._socket.close()
        self._port_holder.close()


# ---- Running queries ----


@dataclass(frozen=True)
class Query:
    """A query without an answer so far."""

    kind: str
    target: str
    packet: Packet
    sent: float


@dataclass
class Tally:
    """The outcomes of the queries of one kind or target."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    """Seconds."""

    @property
    def lost(self) -> int:
        """The number of queries without an answer."""
        return self.statuses[LOST]

    def summary(self) -> dict[str, Any]:
        """Return the JSON summary; latencies in microseconds."""
        times = sorted(self.latencies)
        latency = {name: round(percentile(times, q) * 1e6, 2) for name, q in QUANTILES.items() if times}
        return {
            "sent": self.sent,
            "replies": self.sent - self.lost,
            "lost": self.lost,
            "statuses": dict(self.statuses),
            "latency_us": latency,
        }


def percentile(ordered: Sequence[float], q: float) -> float:
    """The smallest value that at least q percent of the ordered values do not exceed (nearest
    rank).
    """
    return ordered[max(0, math.ceil(len(ordered) * q / 100) - 1)]


@dataclass
class Report:
    """The measurements of a run."""

    elapsed: float = 0
    all: Tally = field(default_factory=Tally)
    by_kind: dict[str, Tally] = field(default_factory=dict)
    by_target: dict[str, Tally] = field(default_factory=dict)
    strays: int = 0
    """Packets that answer no open query: second copies, late answers, malformed ones."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Packets from unexpected sources, by source."""
    behind: float = 0
    """The largest delay of sending behind its schedule, in seconds."""

    def summary(self) -> dict[str, Any]:
        """Return the JSON summary."""
        return {
            "elapsed_s": round(self.elapsed, 6),
            "sent_per_s": round(self.all.sent / self.elapsed, 1) if self.elapsed else 0,
            "most_behind_schedule_us": round(self.behind * 1e6),
            "strays": self.strays,
            "foreign": self.foreign.total(),
            **self.all.summary(),
            "by_op": {k: t.summary() for k, t in self.by_kind.items()},
            "by_target": {k: t.summary() for k, t in self.by_target.items()},
        }


class Generator:
    """Sends queries when they are due and records the outcome of each."""

    def __init__(
        self, transport: Transport, workload: Workload, *, value_bits: int, rate: float, timeout: float, count: int | None, duration: float | None,
        rows: Callable[[tuple[Any, ...]], object] | None = None, first_request: int | None = None, services: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """rate: queries a second. rows is called with a row of the CSV for each query, when its
        outcome is known. services: sources of answers besides the workload's targets,
        "ADDRESS:PORT".
        """
        self.sources = {*workload.targets, *services}
        self.transport, self.workload, self.value_bits = transport, workload, value_bits
        self.interval, self.timeout, self.count, self.duration = 1 / rate, timeout, count, duration
        self.rows = rows or (lambda _row: None)
        # Random, so that nobody can guess a query's number and answer it. Late answers to an
        # earlier run from the same port also do not match.
        self.request = random.SystemRandom().randrange(1 << 32) if first_request is None else first_request
        self.waiting: dict[int, Query] = {}
        self.oldest: deque[int] = deque()
        self.report = Report()

    def run(self, progress: Callable[[Report], None] = lambda _report: None) -> Report:
        """Run to the end, or until interrupted; then wait for the answers to sent queries."""
        begun = time.monotonic()
        self.began_at = time.time() - begun
        with suppress(KeyboardInterrupt):
            self._send_all(begun, progress)
        self.report.elapsed = time.monotonic() - begun
        while self.waiting:
            self._settle(0.02)
            progress(self.report)
        return self.report

    def _send_all(self, begun: float, progress: Callable[[Report], None]) -> None:
        due, sent = begun, 0
        while self.count is None or sent < self.count:
            now = time.monotonic()
            if self.duration is not None and now - begun >= self.duration:
                return
            if now < due:
                self._settle(due - now)
                continue
            self.report.behind = max(self.report.behind, now - due)
            self._send(now)
            sent += 1
            due += self.interval
            if sent % 16 == 0 or now < due:
                self._settle(0)
                progress(self.report)

    def _tallies(self, kind: str, target: str) -> tuple[Tally, Tally, Tally]:
        r = self.report
        return r.all, r.by_kind.setdefault(kind, Tally()), r.by_target.setdefault(target, Tally())

    def _send(self, now: float) -> None:
        while True:
            self.request = (self.request + 1) & 0xFFFFFFFF
            if self.request and self.request not in self.waiting:
                break
        kind, target, packet = self.workload.next(self.request)
        self.waiting[self.request] = Query(kind, target, packet, now)
        self.oldest.append(self.request)
        for tally in self._tallies(kind, target):
            tally.sent += 1
        self.transport.send(target, packet.encode(self.value_bits))

    def _settle(self, wait: float) -> None:
        """Process received answers, waiting up to ``wait`` seconds for them, and give up overdue
        queries.
        """
        for r in self.transport.receive(wait):
            self._take(r)
        now = time.monotonic()
        while self.oldest:
            query = self.waiting.get(self.oldest[0])
            if query is not None and now - query.sent < self.timeout:
                return
            number = self.oldest.popleft()
            if query is not None:
                del self.waiting[number]
                self._done(query, LOST, None, 0, "")

    def _take(self, r: Received) -> None:
        if r.source not in self.sources:
            self.report.foreign[r.source] += 1
            return
        try:
            p = Packet.decode(r.payload, self.value_bits)
        except WireError:
            self.report.strays += 1
            return
        query = self.waiting.get(p.request)
        if query is None or p.op != query.packet.op.reply or p.key != query.packet.key or p.session != 0:
            self.report.strays += 1
            return
        del self.waiting[p.request]
        if p.status in (Status.OK, Status.NOT_FOUND, Status.CAS_FAILED):
            self.workload.versions[p.key] = max(p.version, self.workload.versions.get(p.key, 0))
        self._done(query, wire.status_name(p.status), r.at - query.sent, p.version, r.source)

    def _done(self, query: Query, status: str, rtt: float | None, version: int, source: str) -> None:
        for tally in self._tallies(query.kind, query.target):
            tally.statuses[status] += 1
            if rtt is not None:
                tally.latencies.append(rtt)
        rtt_us = "" if rtt is None else f"{rtt * 1e6:.1f}"
        shown = "" if rtt is None else wire.format_version(version)
        key = wire.format_key(query.packet.key)
        self.rows((f"{self.began_at + query.sent:.6f}", query.kind, key, query.target, status, rtt_us, shown, source))


# ---- Output ----


def show(report: Report, out: IO[str]) -> None:
    """Print the summary as a table."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=out, highlight=False, width=None if out.isatty() else 80)
    s = report.summary()
    console.print(
        f"{s['sent']:,} queries in {report.elapsed:.2f} s ({s['sent_per_s']:,.0f} a second), {s['replies']:,} answered, {s['lost']:,} lost"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("sent", "lost", "p50 µs", "p90 µs", "p99 µs", "max µs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, tally in [
        *report.by_kind.items(),
        *report.by_target.items(),
        ("all", report.all),
    ]:
        t = tally.summary()
        times = [f"{t['latency_us'][q]:,.0f}" if t["latency_us"] else "-" for q in ("p50", "p90", "p99", "max")]
        table.add_row(name, f"{t['sent']:,}", f"{t['lost']:,}", *times)
    console.print(table)
    for kind, tally in report.by_kind.items():
        answers = [f"{status} {n:,}" for status, n in sorted(tally.statuses.items()) if status != LOST]
        console.print(f"{kind} was answered: {', '.join(answers) or 'never'}")
    if report.all.statuses[wire.status_name(Status.NOT_FOUND)]:
        console.print("NOT_FOUND: the key has no value: nobody has put one yet, or it was deleted.")
    if report.strays:
        console.print(
            f"{report.strays:,} packets were no answer to a waiting query (second copies, late ones, malformed ones)"
        )
    for source, number in report.foreign.most_common(1):
        rest = f"{number:,} of them from {source}"
        console.print(
            f"{report.foreign.total():,} packets came from where no answer comes from, {rest}, and were ignored"
        )
    if report.behind > 0.1:
        console.print(
            f"Sending was up to {report.behind:.1f} s behind its schedule: this machine is too slow for the rate with this transport."
        )


@contextmanager
def progress_bar(count: int | None, duration: float | None, enabled: bool) -> Iterator[Callable[[Report], None]]:
    """Show a progress bar on standard error; yields the function that updates it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    if not enabled:
        yield lambda _report: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("queries", total=count if count is not None else duration)
        begun = last = time.monotonic()

        def update(report: Report) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < 0.1:
                return
            last = now
            done = report.all.sent if count is not None else min(now - begun, duration or 0)
            said = f"{report.all.sent:,} sent, {len(report.all.latencies):,} answered, {report.all.lost:,} lost"
            progress.update(task, completed=done, description=said)

        yield update


# ---- The command ----

EPILOG = """examples:
  ten seconds of reads at 1,000 a second, to what the controller says, from any host:
    query_generator.py --mix get=1 --duration 10
  from a Mininet host, one write in ten, to one switch:
    h2 query_generator.py --transport scapy --interface h2-eth0 --target 10.0.0.2 \\
      --mix get=9,put=1 --keys 0x01000000-0x0100003f --csv out/h2.csv

columns of the CSV, one row a query:
  time (when it was sent, seconds since 1970), op, key, target, status (a status of
  docs/protocol.md, or LOST), rtt_us, version, answered_by

exit codes: 0 done, 1 an error, or no query was answered, 2 wrong usage"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="query_generator.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    where = p.add_argument_group("where to; what is not given here, the controller is asked for")
    target = "send queries here; several in turn (default: the chain's service address)"
    where.add_argument("--target", action="append", metavar="ADDRESS[:PORT]", help=target)
    where.add_argument(
        "--switch", action="append", metavar="NAME", help="send queries to this switch's own address; several in turn"
    )
    service = "the chain's service address, where answers come from (without a controller: only from the targets)"
    where.add_argument("--service", metavar="ADDRESS[:PORT]", help=service)
    where.add_argument(
        "--admin",
        metavar="URL",
        help="the controller's admin API (default: $NETCRAQ_ADMIN, or its socket on this machine)",
    )
    where.add_argument(
        "--value-bits",
        type=int,
        choices=wire.PROFILES,
        help="width of the switches' value field (without a controller: 128)",
    )
    what = p.add_argument_group("what")
    keys = "KEY_IDs, ranges of them (0x01000000-0x010000ff) and names, with commas (default: all that the controller has placed)"
    what.add_argument("--keys", action="append", metavar="KEYS", help=keys)
    mix = "operations and their shares, of get, put, del and cas (default: %(default)s)"
    what.add_argument("--mix", default="get=1", metavar="OP=SHARE,...", help=mix)
    what.add_argument(
        "--distribution",
        choices=("uniform", "zipf"),
        default="uniform",
        help="distribution of queries over the keys (default: %(default)s)",
    )
    exponent = "of Zipf's law: the n-th key of the list has a share of 1/n^S (default: %(default)s)"
    what.add_argument("--zipf-exponent", type=float, default=0.99, metavar="S", help=exponent)
    what.add_argument(
        "--value-size",
        type=int,
        default=16,
        metavar="BYTES",
        help="size of the values of put and cas (default: %(default)s)",
    )
    what.add_argument(
        "--eventual", action="store_true", help="accept the last committed value that the asked switch knows"
    )
    what.add_argument(
        "--seed", type=int, help="seed for the choice of operations and keys (default: a random one, which is printed)"
    )
    much = p.add_argument_group("how much")
    much.add_argument("--rate", type=float, default=1000, metavar="N", help="queries a second (default: %(default)s)")
    end = much.add_mutually_exclusive_group()
    end.add_argument("--count", type=int, metavar="N", help="number of queries")
    end.add_argument("--duration", type=float, metavar="SECONDS", help="length of the run (default: 10)")
    lost = "a query without an answer by then is lost (default: %(default)s)"
    much.add_argument("--timeout", type=float, default=1, metavar="SECONDS", help=lost)
    how = p.add_argument_group("how")
    transport = "a UDP socket, or whole frames on an interface (default: %(default)s)"
    how.add_argument("--transport", choices=("socket", "scapy"), default="socket", help=transport)
    how.add_argument(
        "--interface",
        metavar="NAME",
        help="interface for --transport scapy (default: the one of the route to the target)",
    )
    how.add_argument("--mac", metavar="ADDRESS", help="Ethernet address to send frames to (default: by ARP)")
    out = p.add_argument_group("results")
    out.add_argument("--csv", metavar="FILE", help="file with one row for each query; - for standard output")
    out.add_argument("--summary", metavar="FILE", help="file for the summary as JSON; - for standard output")
    out.add_argument("--quiet", action="store_true", help="print no progress bar and no table")
    return p


def check(args: argparse.Namespace) -> None:
    """Refuse invalid arguments."""
    for name, value, good in (
        ("--rate", args.rate, 0 < args.rate <= 1e7),
        ("--count", args.count, args.count is None or args.count > 0),
        ("--duration", args.duration, args.duration is None or 0 < args.duration < math.inf),
        ("--timeout", args.timeout, 0 < args.timeout < math.inf),
        ("--value-size", args.value_size, args.value_size >= 0),
        ("--zipf-exponent", args.zipf_exponent, 0 <= args.zipf_exponent < 100),
    ):
        if not good:
            raise GeneratorError(f"{name} {value} makes no sense")
    if args.csv == "-" and args.summary == "-":
        raise GeneratorError("--csv and --summary cannot both go to standard output")
    if args.target and args.switch:
        raise GeneratorError("give either --target or --switch")
    if args.transport == "socket" and (args.interface or args.mac):
        raise GeneratorError("--interface and --mac are for --transport scapy")
    if args.count is None and args.duration is None:
        args.duration = 10.0


def resolve(target: str, option: str = "--target") -> str:
    """Convert ADDRESS[:PORT], where ADDRESS is an IPv4 address or a host name, to ADDRESS:PORT."""
    host, _, port = target.partition(":")
    try:
        number = int(port) if port else wire.PORT
        if not 0 < number < 1 << 16:
            raise ValueError(f"{number} is no port")
        return f"{socket.gethostbyname(host)}:{number}"
    except (OSError, ValueError) as e:
        raise GeneratorError(f"{option} {target}: {e}; want ADDRESS or ADDRESS:PORT") from None


def services_of(args: argparse.Namespace, chain: Chain | None, key: int) -> list[str]:
    """Return where answers of a key's chain come from besides the targets: the user's choice, or
    the controller's data, if there is a controller.
    """
    if args.service:
        return [resolve(args.service, "--service")]
    if chain is None:
        with suppress(AdminError):  # there may be no controller
            chain = chain_of(Admin(args.admin).chains(), key)
    return [resolve(chain.service_address)] if chain else []


def plan(args: argparse.Namespace) -> tuple[list[str], list[str], list[int], int]:
    """Return targets, other sources of answers, keys and width of values: the user's choices, and
    for the rest the controller's data.
    """
    admin = Admin(args.admin)
    chain: Chain | None = None
    if args.keys:
        keys = parse_keys(args.keys, admin.key_id)
    else:
        keys = sorted(admin.keys().values())
        if not keys:
            raise GeneratorError(
                "no key is placed in the network: place some (netcraqctl chain add-key), or name KEY_IDs with --keys"
            )
    if args.switch or not args.target or (args.value_bits is None and (args.admin or not args.keys)):
        chains = admin.chains()
        if not args.keys:
            keys = [k for k in keys if k >> 24 == keys[0] >> 24]  # of one chain, as are the targets
        chain = chain_of(chains, keys[0])
    if any(k >> 24 != keys[0] >> 24 for k in keys):
        raise GeneratorError("--keys: all must be of one chain, since the targets are one chain's")
    targets = [chain.service_address] if chain else []
    if args.target:
        targets = args.target
    elif args.switch and chain:
        for name in args.switch:
            if name not in chain.member_addresses:
                raise GeneratorError(
                    f"--switch {name}: chain {describe([chain])} has {', '.join(chain.member_addresses)}"
                )
        targets = [chain.member_addresses[name] for name in args.switch]
    services = services_of(args, chain, keys[0])
    return [resolve(t) for t in targets], services, keys, args.value_bits or (chain.value_bits if chain else 128)


def make_transport(args: argparse.Namespace, targets: Sequence[str], value_bits: int) -> Transport:
    """Return the transport that the user chose."""
    if args.transport == "socket":
        return SocketTransport()
    interface = args.interface
    if not interface:
        import scapy.route  # noqa: F401 (fills conf.route)
        from scapy.config import conf

        interface = str(conf.route.route(split_target(targets[0])[0])[0])
    return ScapyTransport(interface, value_bits, args.mac)


@contextmanager
def output(path: str | None) -> Iterator[IO[str] | None]:
    """Open a file for writing, and make its folder; - is standard output."""
    if path is None or path == "-":
        yield sys.stdout if path else None
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = Path(path).open("w", newline="")  # noqa: SIM115 (closed below: what goes wrong while it is open is not about opening)
    except OSError as e:
        raise GeneratorError(f"writing {path}: {e}") from None
    with file:
        yield file


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check(args)
    mix = parse_mix(args.mix)
    targets, services, keys, value_bits = plan(args)
    if args.value_size > value_bits // 8:
        raise GeneratorError(
            f"--value-size {args.value_size} does not fit: the switches' program holds {value_bits // 8} bytes"
        )
    seed = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    rng = random.Random(seed)
    pick = uniform_keys(keys, rng) if args.distribution == "uniform" else zipf_keys(keys, args.zipf_exponent, rng)
    workload = Workload(mix, pick, targets, rng, args.value_size, args.eventual)
    taken = {"csv": args.csv == "-", "summary": args.summary == "-"}
    people = sys.stderr if any(taken.values()) else sys.stdout
    with output(args.csv) as rows, output(args.summary) as summary:
        writer = csv.writer(rows) if rows else None
        if writer:
            writer.writerow(COLUMNS)
        transport = make_transport(args, targets, value_bits)
        try:
            with progress_bar(args.count, args.duration, not args.quiet and sys.stderr.isatty()) as progress:
                report = Generator(
                    transport, workload, value_bits=value_bits, rate=args.rate, timeout=args.timeout, count=args.count, duration=args.duration,
                    rows=writer.writerow if writer else None, services=services,
                ).run(progress)  # fmt: skip
        finally:
            transport.close()
        if summary:
            what = {
                "seed": seed,
                "targets": targets,
                "keys": len(keys),
                "mix": mix,
                "distribution": args.distribution,
                "rate": args.rate,
            }
            what |= {"zipf_exponent": args.zipf_exponent} if args.distribution == "zipf" else {}
            json.dump(
                {**what, "value_bits": value_bits, "transport": args.transport, **report.summary()}, summary, indent=2
            )
            summary.write("\n")
    if not args.quiet:
        show(report, people)
        print(f"seed {seed}", file=people)
    if not report.all.latencies:
        print("query_generator.py: no query was answered: are the targets right, and --value-bits?", file=sys.stderr)
        for source, number in report.foreign.most_common(1):
            service = f"{source}, which was not asked: if that is the chain's service address, name it with --service"
            print(f"query_generator.py: {number:,} packets came from {service}", file=sys.stderr)
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    args = parser().parse_args(argv)
    try:
        return run(args)
    except (GeneratorError, AdminError) as e:
        print(f"query_generator.py: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
