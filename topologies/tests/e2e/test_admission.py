# SPDX-License-Identifier: Apache-2.0
"""Forbidden and malformed packets from hosts: each is counted and dropped, or answered, and changes
nothing.
"""

import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from netcraq import wire
from netcraq.wire import Flags, Op, Packet, Status

from topologies.network import ChainNetwork, wait_until
from topologies.tests.e2e import frames, tools
from topologies.tests.e2e.frames import FORGED, FORGED_REPLIES, NEWER
from topologies.tests.e2e.tools import Capture, Moved


@pytest.fixture(scope="module")
def victim(net):
    """A key that forgers attack, with its name and version."""
    name, key = tools.new_key(net, b"right")
    return name, key, tools.all_clean(net, name)


def unharmed(net, victim):
    """Check that the key is unchanged at every member, and every switch serves it."""
    name, key, version = victim
    assert tools.all_clean(net, name) == version
    for host in net.topology.hosts:
        with tools.client(net, host, session=None) as client:
            assert client.get(key).value == b"right"


@pytest.mark.parametrize("target", ["the service address", "the tail", "another host"])
@pytest.mark.parametrize("forgery", [*FORGED, *FORGED_REPLIES])
def test_a_host_cannot_forge(net, victim, forgery, target):
    packet = replace(FORGED.get(forgery) or FORGED_REPLIES[forgery], key=victim[1])
    address = {
        "the service address": tools.service(net),
        "the tail": str(net.topology.switches["s4"].address),
        "another host": "10.4.4.2",
    }[target]
    ports = {"source_port": wire.PORT, "target_port": tools.SOURCE_PORT} if forgery in FORGED_REPLIES else {}
    with Moved(net) as moved, Capture(net) as capture:
        tools.from_host(net, "h1", tools.request(net, "h1", packet, address, **ports))
    assert moved.settled() == {"s1": {"drop_untrusted": 1}}
    assert not any(moved.slots.values())
    assert [(seen.sender, seen.receiver) for seen in capture.packets] == [("h1", "s1")]
    unharmed(net, victim)


@pytest.mark.parametrize("op", [Op.SYNC, Op.LEASE, Op.FETCH])
def test_only_the_controller_speaks_for_the_controller(net, victim, op):
    """Nobody else may send these operations, not even another switch."""
    packet = Packet(op, victim[1], epoch=1, version=NEWER, request=0xFFFFFFFF, value=b"forged")
    with Moved(net) as moved:
        tools.from_switch(net, "s1", "s2", tools.request(net, "h1", packet, str(net.topology.switches["s2"].address)))
        settled(net)
    assert moved.settled() == {"s2": {"drop_untrusted": 1}}
    unharmed(net, victim)


@pytest.mark.parametrize("epoch", [0, 2, 0xFFFF])
def test_a_stamped_write_of_another_epoch_is_dropped(net, victim, epoch):
    packet = Packet(Op.WRITE, victim[1], flags=Flags.STAMPED, epoch=epoch, version=NEWER, value=b"stale")
    with Moved(net) as moved:
        tools.from_switch(net, "s1", "s2", tools.request(net, "h1", packet))
        settled(net)
    assert moved.settled() == {"s2": {"drop_stale_epoch": 1}}
    unharmed(net, victim)


def test_an_old_acknowledgement_changes_nothing_but_travels_on(net, victim):
    """A late or repeated acknowledgement does the same."""
    _, key, version = victim
    packet = Packet(Op.ACK, key, epoch=1, version=version - 1, value=b"stale")
    with Moved(net) as moved:
        tools.from_switch(net, "s4", "s3", tools.request(net, "h1", packet))
        settled(net)
    assert moved.settled() == {switch: {"ack_old": 1} for switch in ("s1", "s2", "s3")}
    unharmed(net, victim)


def settled(net):
    """Wait until the switches have processed all frames on the cables."""
    with Capture(net):
        pass


def test_a_host_that_may_use_every_session_ends_none(net):
    """Send a write under each session with the last request number: leased sessions are not used
    up, and others restart when they are leased.
    """
    _, key = tools.new_key(net)
    held = tools.sessions_of(net, "h1")
    with tools.client(net, "h1", session=held) as client:
        client.put(key, b"before")
        before = net.counters("s4")
        writes = [
            Packet(Op.WRITE, key, session=session, request=0xFFFFFFFF, value=b"poison") for session in range(1, 4096)
        ]
        with tools.port_of(net, "h4"):
            sent = frames.send(
                net, "h4", (frames.packet(net, write, "h4", "service") for write in writes), pause=0.02, burst=32
            )

            def taken():
                moved = net.counters("s4").since(before)
                # BMv2 may lose some on a busy machine
                return moved.get("bad_session", 0) + moved.get("write_to_head", 0) >= 0.95 * sent

            wait_until("the switch has taken them", taken, timeout=30)
        client.put(key, b"after")
        assert client._session is held, "under the session that it had"
    lease = net.admin.lease_sessions(count=64)
    for session in lease.sessions:
        with tools.client(net, "h2", session=session) as client:
            client.put(key, b"%d" % session.id)
    lease.close()


# ---- Malformed packets ----


def payload(key: int, **fields: object) -> bytes:
    """Return a READ, or a packet with the given fields, as a UDP payload with 16-byte values."""
    return Packet(**{"op": Op.READ, "key": key, "request": 77} | fields).encode(128)


def with_bytes(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


@dataclass(frozen=True)
class Bad:
    """A bad packet and its effect."""

    packet: Callable[[ChainNetwork, int], bytes]
    event: str
    """The event that the first switch counts."""
    answer: tuple[Op, Status] | None = None


def ip(net: ChainNetwork, data: bytes, **fields: object) -> bytes:
    return tools.ipv4("10.1.1.2", fields.pop("target", tools.service(net)), 17, data, **fields)


BAD = {
    "no NetCRAQ header at all": Bad(lambda net, key: ip(net, tools.udp(b"")), "drop_malformed"),
    "a header of one byte": Bad(lambda net, key: ip(net, tools.udp(payload(key)[:1])), "drop_malformed"),
    "a header that ends early": Bad(lambda net, key: ip(net, tools.udp(payload(key)[:23])), "drop_malformed"),
    "a header without a value": Bad(lambda net, key: ip(net, tools.udp(payload(key)[:24])), "drop_malformed"),
    "a value that ends early": Bad(lambda net, key: ip(net, tools.udp(payload(key)[:39])), "drop_malformed"),
    "a value that is too long": Bad(lambda net, key: ip(net, tools.udp(payload(key) + b"\0")), "drop_malformed"),
    "a value of another profile": Bad(
        lambda net, key: ip(net, tools.udp(Packet(Op.READ, key).encode(1024))), "drop_malformed"
    ),
    "a frame of the largest size": Bad(
        lambda net, key: ip(net, tools.udp(payload(key) + bytes(1500 - 28 - 40))), "drop_malformed"
    ),
    "a UDP length that is too short": Bad(
        lambda net, key: ip(net, tools.udp(payload(key), length=47)), "drop_malformed"
    ),
    "a UDP length that is too long": Bad(
        lambda net, key: ip(net, tools.udp(payload(key), length=0xFFFF)), "drop_malformed"
    ),
    "an IPv4 length that is too short": Bad(
        lambda net, key: ip(net, tools.udp(payload(key)), total_length=67), "drop_malformed"
    ),
    "an IPv4 length that is too long": Bad(
        lambda net, key: ip(net, tools.udp(payload(key)), total_length=69), "drop_malformed"
    ),
    "a write of 17 of 16 bytes": Bad(
        lambda net, key: ip(net, tools.udp(with_bytes(payload(key, op=Op.WRITE, value=b"x" * 16), 6, b"\0\x11"))),
        "drop_malformed",
    ),
    "a write of 65,534 bytes": Bad(
        lambda net, key: ip(net, tools.udp(with_bytes(payload(key, op=Op.WRITE, value=b"x" * 16), 6, b"\xff\xfe"))),
        "drop_malformed",
    ),
    "op 0": Bad(lambda net, key: ip(net, tools.udp(with_bytes(payload(key), 0, b"\0"))), "drop_unknown_op"),
    "op 14": Bad(lambda net, key: ip(net, tools.udp(with_bytes(payload(key), 0, b"\x0e"))), "drop_unknown_op"),
    "op 255": Bad(lambda net, key: ip(net, tools.udp(with_bytes(payload(key), 0, b"\xff"))), "drop_unknown_op"),
    "a reply that only the controller gets": Bad(
        lambda net, key: ip(net, tools.udp(payload(key, op=Op.FETCH_REPLY))), "drop_unknown_op"
    ),
    "a reply to the request port": Bad(
        lambda net, key: ip(net, tools.udp(payload(key, op=Op.READ_REPLY))), "drop_malformed"
    ),
    "a request from the reply port": Bad(
        lambda net, key: ip(net, tools.udp(payload(key), source_port=wire.PORT, target_port=tools.SOURCE_PORT)),
        "drop_malformed",
    ),
    "a flag that no read has": Bad(
        lambda net, key: ip(net, tools.udp(with_bytes(payload(key), 1, b"\x80"))), "drop_untrusted"
    ),
    "a flag that no write has": Bad(
        lambda net, key: ip(net, tools.udp(with_bytes(payload(key, op=Op.WRITE), 1, b"\x01"))), "drop_untrusted"
    ),
    "a wrong IPv4 checksum": Bad(
        lambda net, key: with_bytes(ip(net, tools.udp(payload(key))), 10, b"\0\0"), "drop_checksum"
    ),
    "IPv4 options": Bad(
        lambda net, key: ip(net, tools.udp(payload(key)), options=b"\x01\x01\x01\x01"), "drop_not_plain"
    ),
    "a first fragment": Bad(lambda net, key: ip(net, tools.udp(payload(key)), flags=0x2000), "drop_not_plain"),
    "a later fragment": Bad(lambda net, key: ip(net, tools.udp(payload(key)), flags=0x0001), "drop_not_plain"),
    "an address that nobody has": Bad(
        lambda net, key: ip(net, tools.udp(payload(key)), target="10.77.0.1"), "drop_no_route"
    ),
    "a key that is not placed": Bad(
        lambda net, key: ip(net, tools.udp(payload(0x01FFFFFF))), "read_not_found", (Op.READ_REPLY, Status.NOT_FOUND)
    ),
    "a write of a key that is not placed": Bad(
        lambda net, key: ip(net, tools.udp(payload(0x01FFFFFF, op=Op.WRITE, value=b"x"))),
        "write_not_found",
        (Op.WRITE_REPLY, Status.NOT_FOUND),
    ),
    "a read in a chain that is not there": Bad(
        lambda net, key: ip(net, tools.udp(payload(0x77000001))), "no_chain", (Op.READ_REPLY, Status.NO_CHAIN)
    ),
    "a write in a chain that is not there": Bad(
        lambda net, key: ip(net, tools.udp(payload(0x77000001, op=Op.WRITE))),
        "no_chain",
        (Op.WRITE_REPLY, Status.NO_CHAIN),
    ),
    "a session beyond the table": Bad(
        lambda net, key: ip(net, tools.udp(payload(key, op=Op.WRITE, session=0xFFFF, value=b"x"))),
        "bad_session",
        (Op.WRITE_REPLY, Status.BAD_SESSION),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_packet_is_counted_or_answered_and_changes_nothing(net, victim, case):
    bad = BAD[case]
    with tools.port_of(net, "h1") as port, Moved(net) as moved, Capture(net) as capture:
        tools.from_host(net, "h1", bad.packet(net, victim[1]))
        if bad.answer is not None:
            reply, address = tools.answer(net, port)
            assert (reply.op, reply.status, reply.request) == (*bad.answer, 77)
            assert address == tools.service(net)
    assert moved.settled() == {"s1": {bad.event: 1}}
    assert not any(moved.slots.values())
    assert {(seen.sender, seen.receiver) for seen in capture.packets} <= {("h1", "s1"), ("s1", "h1")}
    unharmed(net, victim)


@pytest.mark.parametrize("ether_type", [0x0806, 0x86DD, 0x88B5])
def test_a_frame_that_is_no_ipv4_is_counted(net, victim, ether_type):
    with Moved(net) as moved:
        tools.from_host(net, "h1", bytes(46), ether_type)
        settled(net)
    assert moved.settled() == {"s1": {"drop_not_ipv4": 1}}
    unharmed(net, victim)


def test_a_frame_larger_than_any_packet_does_no_harm(net, victim):
    """Send 4,000 bytes over a cable whose MTU is raised to carry them: the switch's port or its
    program drops them, and nothing else changes.
    """
    subprocess.run(["ip", "link", "set", "dev", "s1-eth1", "mtu", "9000"], check=True)
    net.execute("h1", ["ip", "link", "set", "dev", "h1-eth0", "mtu", "9000"])
    try:
        data = payload(victim[1]) + bytes(4000 - 28 - 40)
        with Moved(net) as moved, Capture(net) as capture:
            tools.from_host(net, "h1", ip(net, tools.udp(data)))
        assert moved.settled() in ({}, {"s1": {"drop_malformed": 1}})
        assert [(seen.sender, seen.receiver) for seen in capture.packets] == [("h1", "s1")]
    finally:
        subprocess.run(["ip", "link", "set", "dev", "s1-eth1", "mtu", "1500"], check=True)
        net.execute("h1", ["ip", "link", "set", "dev", "h1-eth0", "mtu", "1500"])
    unharmed(net, victim)


def test_packets_that_are_none_of_ours_are_routed(net):
    """Hosts reach each other through the chain: by ping, and by UDP on other ports."""
    assert " 0% packet loss" in net.execute("h1", ["ping", "-c", "2", "-i", "0.2", "-W", "2", "10.4.4.2"]).stdout
    with tools.port_of(net, "h4") as port:
        data = struct.pack("!16s", b"not for a switch")
        tools.from_host(
            net,
            "h1",
            tools.ipv4("10.1.1.2", "10.4.4.2", 17, tools.udp(data, source_port=5000, target_port=tools.SOURCE_PORT)),
        )
        assert port.recv(100) == data


def test_a_packet_whose_time_is_over_is_counted(net):
    with Moved(net) as moved:
        tools.from_host(net, "h1", tools.ipv4("10.1.1.2", "10.4.4.2", 17, tools.udp(b"x", target_port=5000), ttl=1))
        settled(net)
    assert moved.settled() == {"s1": {"drop_ttl": 1}}
