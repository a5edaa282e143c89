# SPDX-License-Identifier: Apache-2.0
"""Tools of the end-to-end tests for sending and observing packets."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from netcraq import wire
from netcraq.admin import AdminError, SessionLease
from netcraq.client import Client
from netcraq.wire import Op, Packet

from topologies.controller import declaration
from topologies.network import ChainNetwork, Counters, wait_until

SOL_PACKET = 263
PACKET_QDISC_BYPASS = 20
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SOURCE_PORT = 40_000

PATIENCE = 30.0
"""Seconds for which a switch may be busy because of a test."""

_names = itertools.count(1)

made: list[str] = []
"""The keys that the running test has placed."""

CONTROL = {"lease_renewed", "fetch", "sync"}
"""Events that the controller causes by itself, or when it fetches a switch's data."""

PCAP = "pcap"
"""The folder, next to the logs, in which switches record frames that packet sockets do not see."""


def new_key(net: ChainNetwork, value: bytes | None = b"first", prefix: str = "/test/") -> tuple[str, int]:
    """Place a key that no other test has; return its name and KEY_ID."""
    name = f"{prefix}{next(_names)}"
    key = net.admin.add_key("main", name, value)
    made.append(name)
    return name, key


def service(net: ChainNetwork) -> str:
    """Return the service address of the chain."""
    return str(net.topology.chains[0].service)


def sessions_of(net: ChainNetwork, host: str) -> SessionLease:
    """Lease a session for a host. A switch that a test has flooded accepts the session only after
    it has processed the flood.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return net.admin.lease_sessions(address=str(net.topology.hosts[host].ip.ip))
        except AdminError as error:
            if error.code not in ("deadline_exceeded", "unavailable") or time.monotonic() > end:
                raise
            time.sleep(0.1)


def client(net: ChainNetwork, host: str, **options: object) -> Client:
    """Return a client in a host, with its own session by default."""
    if "session" not in options:
        options["session"] = sessions_of(net, host)
    with net.inside(host):
        return Client([service(net)], value_bits=net.topology.profile, **options)


def change_hosts(net: ChainNetwork, **changes: dict[str, object]) -> None:
    """Make the controller read a file with changed fields of hosts (``access``, ``rate`` ...), as
    an operator does. Without changes, it reads the original file.
    """
    hosts = {name: replace(host, **changes.get(name, {})) for name, host in net.topology.hosts.items()}
    net.controller.file.write_text(json.dumps(declaration(replace(net.topology, hosts=hosts))))
    net.controller.process.send_signal(signal.SIGHUP)


# ---- Frames ----


def checksum(data: bytes) -> int:
    """Return the checksum of RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(
    source: str,
    target: str,
    protocol: int,
    payload: bytes,
    *,
    total_length: int | None = None,
    flags: int = 0,
    options: bytes = b"",
    ttl: int = 64,
) -> bytes:
    """Return an IPv4 packet with a right checksum, even if other fields are wrong."""
    length = 20 + len(options) + len(payload) if total_length is None else total_length
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45 + len(options) // 4,
        0,
        length,
        1,
        flags,
        ttl,
        protocol,
        0,
        socket.inet_aton(source),
        socket.inet_aton(target),
    )
    head += options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def udp(
    payload: bytes, *, source_port: int = SOURCE_PORT, target_port: int = wire.PORT, length: int | None = None
) -> bytes:
    """Return a UDP datagram without a checksum."""
    return struct.pack("!HHHH", source_port, target_port, 8 + len(payload) if length is None else length, 0) + payload


def mac(address: str) -> bytes:
    """Return an Ethernet address as bytes."""
    return bytes.fromhex(address.replace(":", ""))


def from_host(net: ChainNetwork, host: str, packet: bytes, ether_type: int = 0x0800) -> None:
    """Send an IPv4 packet from a host to its switch, unchanged."""
    node = net.topology.hosts[host]
    frame = mac(net.topology.switches[node.switch].mac) + mac(node.mac) + struct.pack("!H", ether_type) + packet
    with net.inside(host), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((node.interface, 0))
        raw.send(frame)


def from_switch(net: ChainNetwork, sender: str, receiver: str, packet: bytes) -> None:
    """Put a packet on the cable between two switches, as if ``sender`` had sent it."""
    frame = (
        mac(net.topology.switches[receiver].mac)
        + mac(net.topology.switches[sender].mac)
        + struct.pack("!H", 0x0800)
        + packet
    )
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        # Send directly to the device, bypassing packet sockets on it: BMv2 would treat the frame as
        # received at the sender.
        raw.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        raw.bind((net.interface(sender, receiver), 0))
        raw.send(frame)


def request(net: ChainNetwork, host: str, packet: Packet, target: str | None = None, **ports: int) -> bytes:
    """Return a NetCRAQ packet of a host to the service address (or another) as an IPv4 packet."""
    source = str(net.topology.hosts[host].ip.ip)
    return ipv4(source, target or service(net), 17, udp(packet.encode(net.topology.profile), **ports))


@contextlib.contextmanager
def port_of(net: ChainNetwork, host: str) -> Iterator[socket.socket]:
    """Open the UDP socket of a host that receives the answers to its raw packets."""
    with net.inside(host):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.bind((str(net.topology.hosts[host].ip.ip), SOURCE_PORT))
        sock.settimeout(2)
        yield sock


def answer(net: ChainNetwork, sock: socket.socket) -> tuple[Packet, str]:
    """Return the next answer, and its source address."""
    payload, (address, port) = sock.recvfrom(4096)
    assert port == wire.PORT
    return Packet.decode(payload, net.topology.profile), address


def silence(sock: socket.socket, seconds: float = 0.15) -> bool:
    """Return whether nothing arrives."""
    sock.settimeout(seconds)
    try:
        sock.recv(4096)
        return False
    except TimeoutError:
        return True
    finally:
        sock.settimeout(2)


# ---- Keys that stay dirty ----


@contextlib.contextmanager
def acknowledgements_lost(net: ChainNetwork, key: int, *values: bytes) -> Iterator[None]:
    """Let writes commit at the tail while their acknowledgements and replies are lost: all other
    members stay dirty until the block ends.

    The controller re-propagates keys that have been dirty for 0.3 s, and tests may take longer on a
    busy machine. But the acknowledgements of these writes are lost, too, as long as the cable is
    cut.
    """
    session = sessions_of(net, "h1").sessions[0]
    before = net.counters("s4").event("write_committed")
    with net.cut("s4", "s3"):
        for number, value in enumerate(values):
            packet = Packet(Op.WRITE, key, session=session.id, request=session.next_request + number, value=value)
            from_host(net, "h1", request(net, "h1", packet))
        wait_until(
            "the writes commit at the tail", lambda: net.counters("s4").event("write_committed") == before + len(values)
        )
        yield


@contextlib.contextmanager
def frozen(net: ChainNetwork) -> Iterator[None]:
    """Freeze the chain for the block: then the controller re-propagates nothing, so dirty keys stay
    dirty. The block begins when no switch counts any events, because a write in flight would be
    acknowledged later.
    """
    net.admin.change_chain("main", frozen=True)
    try:
        wait_until("nothing is on its way", lambda: _quiet(net, 0.3))
        yield
    finally:
        net.admin.change_chain("main", frozen=False)


def _quiet(net: ChainNetwork, seconds: float) -> bool:
    """Return whether no switch counts events for some seconds, except those that the controller
    causes.
    """
    with Moved(net) as moved:
        time.sleep(seconds)
    return not moved.settled()


# ---- Observing ----


def pcap_frames(path: Path, start: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return the complete frames of a pcap file from an offset on, with their times, and the offset
    after them.
    """
    begin, at, frames = max(start, 24), 0, []
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read()
    while at + 16 <= len(data):
        seconds, nanoseconds, length = struct.unpack_from("<III", data, at)
        if at + 16 + length > len(data):
            break
        frames.append((seconds * 10**9 + nanoseconds, data[at + 16 : at + 16 + length]))
        at += 16 + length
    return frames, begin + at


@dataclass(frozen=True)
class Seen:
    """A NetCRAQ packet on a cable."""

    sender: str
    receiver: str
    op: Op
    version: int


class Capture:
    """Records the NetCRAQ packets on the cables during the block. The controller's packets use no
    cables, so they are not included.

    Each packet is recorded once: at the port of the switch that sends it, or, if a host sends it,
    at the switch's port where it arrives. If switches record their frames (--pcap), their files are
    read; otherwise packet sockets record them.
    """

    def __init__(self, net: ChainNetwork) -> None:
        self._net = net
        self._ends: dict[str, tuple[str, str]] = {}
        for link in net.topology.links:
            for here, there in (link.ends, link.ends[::-1]):
                self._ends[here.interface] = (here.node, there.node)
        self.packets: list[Seen] = []

    def __enter__(self) -> Capture:
        """Begin."""
        self._records = self._net.out / PCAP
        if self._records.exists():
            self._begun = time.time_ns()
            self._read = {path: path.stat().st_size for path in self._records.iterdir()}
            return self
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until no packets move, and collect the recorded packets."""
        if self._records.exists():
            self._take_records()
            return
        quiet = time.monotonic() + 0.15
        while time.monotonic() < quiet:
            try:
                frame, (interface, _, kind, *_) = self._socket.recvfrom(65536)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if interface in self._ends and self._note(frame, interface, kind):
                quiet = time.monotonic() + 0.15
        self._socket.close()

    def _take_records(self) -> None:
        """Read the switches' new records, in the order of the kernel's clock."""
        found: list[tuple[int, str, bytes]] = []
        quiet = time.monotonic() + 0.15
        while time.monotonic() < quiet:
            for path in self._records.iterdir():
                frames, self._read[path] = pcap_frames(path, self._read.get(path, 0))
                # a switch may record earlier frames late
                frames = [(at, path.stem, frame) for at, frame in frames if at >= self._begun]
                if frames:
                    found += frames
                    quiet = time.monotonic() + 0.15
            time.sleep(0.005)
        for _, name, frame in sorted(found):
            interface, _, direction = name.rpartition("_")
            if interface in self._ends:
                self._note(frame, interface, PACKET_OUTGOING if direction == "out" else 0)

    def _note(self, frame: bytes, interface: str, kind: int) -> bool:
        here, there = self._ends[interface]
        outgoing = kind == PACKET_OUTGOING
        if not outgoing and there in self._net.switches:  # recorded where the switch sent it
            return False
        if frame[12:14] != b"\x08\x00" or frame[23] != 17 or wire.PORT not in struct.unpack("!HH", frame[34:38]):
            return False
        payload = frame[42:]
        version = struct.unpack("!Q", payload[16:24])[0] if len(payload) >= 24 else 0
        op = Op(payload[0]) if payload and payload[0] in iter(Op) else payload[:1]
        self.packets.append(Seen(*((here, there) if outgoing else (there, here)), op, version))
        return True

    def of(self, op: Op) -> list[tuple[str, str]]:
        """Return senders and receivers of the packets of an op, in order."""
        return [(seen.sender, seen.receiver) for seen in self.packets if seen.op == op]


class Moved:
    """The events that the switches counted during the block, except for those that the controller
    causes by itself.
    """

    def __init__(self, net: ChainNetwork) -> None:
        self._net = net
        self.events: dict[str, dict[str, int]] = {}
        self.slots: dict[str, dict[str, dict[str, int]]] = {}

    def __enter__(self) -> Moved:
        """Read the counters."""
        self._before = self._net.all_counters()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Read the counters again."""
        if kind is not None:
            return
        for name, after in self._net.all_counters().items():
            before = self._before[name]
            self.events[name] = {event: count for event, count in after.since(before).items() if event not in CONTROL}
            self.slots[name] = _slots_since(before, after)

    def settled(self) -> dict[str, dict[str, int]]:
        """Return the events of the switches that counted any."""
        return {name: events for name, events in self.events.items() if events}


def _slots_since(before: Counters, after: Counters) -> dict[str, dict[str, int]]:
    moved = {}
    for key, slot in after.slots.items():
        was = before.slots.get(key, {})
        change = {what: slot[what] - was.get(what, 0) for what in ("reads", "forwards", "writes")}
        if any(change.values()):
            moved[key] = {what: count for what, count in change.items() if count}
    return moved


def states(net: ChainNetwork, name: str) -> dict[str, str]:
    """Return OK, DIRTY or NOT_FOUND for each member."""
    return {state["switch"]: state["status"] for state in net.admin.key_states(name)}


def all_clean(net: ChainNetwork, name: str) -> int:
    """Wait until every member has committed the same version, and return it."""

    def same() -> int | None:
        found = net.admin.key_states(name)
        versions = {int(state["version"]) for state in found} | {int(state["newest"]) for state in found}
        return versions.pop() if len(versions) == 1 else None

    return wait_until(f"{name} is clean everywhere", same)
