# SPDX-License-Identifier: Apache-2.0
"""Frames that a host can send but should not, made with scapy and sent unchanged from its network
namespace.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence

from netcraq import wire
from netcraq.wire import Flags, Op, Packet, Status
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet as Layer
from scapy.packet import Raw

from topologies.network import ChainNetwork
from topologies.tests.e2e import tools

NEWER = wire.version(1, 1 << 40)
"""A version above all versions in the tests."""

FORGED = {
    "an acknowledgement": Packet(Op.ACK, 0, epoch=1, version=NEWER, value=b"forged"),
    "a stamped write": Packet(Op.WRITE, 0, flags=Flags.STAMPED, epoch=1, version=NEWER, value=b"forged"),
    "a stamped write by CAS": Packet(
        Op.WRITE, 0, flags=Flags.STAMPED | Flags.BY_CAS, epoch=1, version=NEWER, value=b"forged"
    ),
    "a stamped CAS": Packet(Op.CAS, 0, flags=Flags.STAMPED, epoch=1, version=NEWER, value=b"forged"),
    "a write that claims to have been sent on": Packet(Op.WRITE, 0, flags=Flags.TO_HEAD, value=b"forged"),
    "a read that claims to have been sent on": Packet(Op.READ, 0, flags=Flags.DIRTY_FORWARDED),
    "a sync": Packet(Op.SYNC, 0, epoch=1, version=NEWER, value=b"forged"),
    "a sync of a session": Packet(Op.SYNC, 0, flags=Flags.SESSION, session=9, request=0xFFFFFFFF, version=NEWER),
    "a lease": Packet(Op.LEASE, 0, epoch=1, version=0, request=0xFFFFFFFF),
    "a revoked lease": Packet(Op.LEASE, 0, epoch=1, version=0, request=0),
    "a fetch": Packet(Op.FETCH, 0),
}
FORGED_REPLIES = {
    "a reply to a read": Packet(Op.READ_REPLY, 0, epoch=1, version=NEWER, value=b"forged"),
    "a reply to a write": Packet(Op.WRITE_REPLY, 0, epoch=1, version=NEWER, value=b"forged"),
    "a reply to a CAS": Packet(Op.CAS_REPLY, 0, epoch=1, version=NEWER, value=b"forged"),
    "a reply that says deleted": Packet(Op.READ_REPLY, 0, status=Status.NOT_FOUND, epoch=1, version=NEWER, value=None),
}

TAGS = {
    f"{'two tags' if len(types) > 1 else 'a tag'} {' '.join(f'{ether_type:04x}' for ether_type in types)}": types
    for types in [
        (0x8100,),
        (0x88A8,),
        (0x9100,),
        (0x8100, 0x8100),
        (0x88A8, 0x8100),
        (0x9100, 0x8100),
        (0x8100, 0x88A8),
        (0x8100, 0x9100),
    ]
}
"""The possible tags of a frame: the EtherType that announces the next header, outer tag first."""


def address(net: ChainNetwork, name: str) -> str:
    """Return the address of a host or a switch; ``service`` is the chain's, ``controller`` the
    controller's in the data plane.
    """
    if name == "service":
        return tools.service(net)
    if name == "controller":
        return "169.254.78.67"
    if name in net.topology.hosts:
        return str(net.topology.hosts[name].ip.ip)
    return str(net.topology.switches[name].address)


def packet(net: ChainNetwork, payload: Packet | bytes, source: str, target: str, **fields: object) -> Layer:
    """Return a NetCRAQ packet in UDP and IPv4, between nodes' names or addresses.

    Requests go to NetCRAQ's port, replies come from it; ``sport``, ``dport`` and the fields of the
    IPv4 header can be given.
    """
    reply = isinstance(payload, Packet) and payload.op.is_reply
    ports = (wire.PORT, tools.SOURCE_PORT) if reply else (tools.SOURCE_PORT, wire.PORT)
    udp = UDP(sport=fields.pop("sport", ports[0]), dport=fields.pop("dport", ports[1]), chksum=0)
    data = payload.encode(net.topology.profile) if isinstance(payload, Packet) else payload
    ends = {name: of if of[0].isdigit() else address(net, of) for name, of in (("src", source), ("dst", target))}
    return IP(**ends, **fields) / udp / Raw(data)


def options(words: int = 1) -> list[Layer]:
    """Return IPv4 options without meaning, this many 32-bit words long."""
    return [IPOption_NOP()] * (4 * words)


def fragments(net: ChainNetwork, whole: Layer) -> list[Layer]:
    """Return a packet in two fragments, the first with the UDP header and the minimum of data."""
    data = bytes(whole[UDP])
    same = {name: getattr(whole[IP], name) for name in ("src", "dst", "ttl")} | {"proto": 17, "id": 77}
    return [IP(**same, flags="MF", frag=0) / Raw(data[:16]), IP(**same, frag=2) / Raw(data[16:])]


def tagged(types: Sequence[int], inner: Layer) -> bytes:
    """Return a packet behind priority tags, without the Ethernet addresses."""
    data = struct.pack("!H", 0x0800) + bytes(inner)
    for ether_type in reversed(types):
        data = struct.pack("!H", ether_type) + bytes(Dot1Q(vlan=0, type=0))[:2] + data
    return data


def send(net: ChainNetwork, host: str, frames: Iterable[Layer | bytes], pause: float = 0, burst: int = 64) -> int:
    """Send frames from a host to its switch and return their number. Packets get an Ethernet
    header, bytes only the Ethernet addresses.

    Wait ``pause`` seconds after every ``burst`` frames.
    """
    node = net.topology.hosts[host]
    addresses = {"dst": net.topology.switches[node.switch].mac, "src": node.mac}
    head = bytes(Ether(**addresses, type=0x0800))
    sent = 0
    with net.inside(host), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((node.interface, 0))
        for frame in frames:
            raw.send(head[:12] + frame if isinstance(frame, bytes) else head + bytes(frame))
            sent += 1
            if pause and sent % burst == 0:
                time.sleep(pause)
    return sent
