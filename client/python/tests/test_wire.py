# SPDX-License-Identifier: Apache-2.0
"""Tests netcraq.wire and the scapy layer with the same vectors as the Go package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netcraq import wire
from netcraq.scapy_layer import LAYERS, NetCRAQ, NetCRAQ128, NetCRAQ1024
from netcraq.wire import Flags, Op, Packet, Status, WireError
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

VECTORS = json.loads((Path(__file__).parents[3] / "api" / "wire" / "testdata" / "vectors.json").read_text())


def packet_of(v: dict) -> Packet:
    flags = Flags(0)
    for name in v.get("flags", []):
        flags |= Flags[name]
    value = None if v.get("tombstone") else bytes.fromhex(v.get("value", "")) * (v.get("valueRepeats") or 1)
    return Packet(
        Op[v["op"]],
        wire.parse_key(v["key"]),
        flags=flags,
        status=Status[v["status"]] if "status" in v else Status.OK,
        epoch=v.get("epoch", 0),
        session=v.get("session", 0),
        request=v.get("request", 0),
        version=wire.parse_version(v["version"]),
        value=value,
    )


def bytes_of(v: dict) -> bytes:
    return bytes.fromhex(v["packet"]).ljust(wire.HEADER_BYTES + v["valueBits"] // 8, b"\0")


@pytest.mark.parametrize("v", VECTORS["packets"], ids=lambda v: v["name"])
def test_vectors(v: dict) -> None:
    packet, golden = packet_of(v), bytes_of(v)
    assert packet.encode(v["valueBits"]) == golden
    assert Packet.decode(golden, v["valueBits"]) == packet


@pytest.mark.parametrize("v", VECTORS["malformed"], ids=lambda v: v["name"])
def test_malformed(v: dict) -> None:
    with pytest.raises(WireError) as e:
        Packet.decode(bytes.fromhex(v["packet"]) + bytes(v["zeros"]), v["valueBits"])
    assert e.value.kind == v["error"]


@pytest.mark.parametrize("v", VECTORS["packets"], ids=lambda v: v["name"])
def test_scapy_vectors(v: dict) -> None:
    packet, golden = packet_of(v), bytes_of(v)
    fields = {
        "op": v["op"],
        "epoch": packet.epoch,
        "session": packet.session,
        "request": packet.request,
        "key": packet.key,
        "version": packet.version,
    }
    fields |= {"status": packet.status} if packet.op.is_reply else {"flags": "+".join(v.get("flags", []))}
    fields |= {"length": wire.TOMBSTONE_LENGTH} if packet.value is None else {"value": packet.value}
    built = LAYERS[v["valueBits"]](**fields)
    assert raw(built) == golden

    ports = {"sport": 20035, "dport": 40000} if packet.op.is_reply else {"sport": 40000, "dport": 20035}
    taken = IP(raw(IP(src="127.0.0.1", dst="127.0.0.1") / UDP(**ports) / Raw(golden)))[NetCRAQ]
    assert type(taken) is LAYERS[v["valueBits"]]
    assert taken.data == packet.value
    assert (taken.op, taken.epoch, taken.session, taken.request, taken.key, taken.version) == (
        packet.op, packet.epoch, packet.session, packet.request, packet.key, packet.version
    )  # fmt: skip
    assert (taken.status if packet.op.is_reply else taken.flags) == (
        packet.status if packet.op.is_reply else packet.flags
    )
    assert raw(taken) == golden
    assert packet.op.name in taken.mysummary()
    assert wire.format_key(packet.key) in taken.show(dump=True)


def test_scapy_binding() -> None:
    request = UDP(sport=40000) / NetCRAQ1024(op="READ", key=7, request=3)
    assert request.dport == 20035
    assert type(NetCRAQ(op="READ")) is NetCRAQ128
    assert UDP(raw(UDP(sport=1, dport=20035) / b"not a packet")).payload.__class__ is Raw
    reply = NetCRAQ1024(op="READ_REPLY", key=7, request=3)
    assert reply.answers(request[NetCRAQ1024])
    assert not NetCRAQ1024(op="READ_REPLY", key=7, request=4).answers(request[NetCRAQ1024])
    assert not NetCRAQ1024(op="WRITE_REPLY", key=7, request=3).answers(request[NetCRAQ1024])
    assert not reply.answers(NetCRAQ1024(op=99, key=7, request=3))


@pytest.mark.parametrize(
    ("packet", "kind"),
    [
        (Packet(Op.WRITE, 1, value=bytes(17)), "value"),
        (Packet(Op.READ, 1, status=Status.RETRY), "meaning"),
        (Packet(Op.READ_REPLY, 1, flags=Flags.EVENTUAL), "meaning"),
        (Packet(99, 1), "op"),  # type: ignore[arg-type]
        (Packet(Op.READ, 1 << 32), "range"),
        (Packet(Op.READ, 1, session=-1), "range"),
    ],
)
def test_encode_refuses(packet: Packet, kind: str) -> None:
    with pytest.raises(WireError) as e:
        packet.encode(128)
    assert e.value.kind == kind


def test_texts() -> None:
    assert wire.format_version(wire.version(3, 17)) == "3.17"
    assert wire.format_version(0) == "0"
    assert wire.parse_version("3.17") == wire.version(3, 17) == wire.parse_version("0x0003000000000011")
    assert wire.parse_key("0x01000007") == 0x01000007 == wire.parse_key("16777223")
    assert wire.status_name(0) == "OK"
    assert wire.status_name(10) == "DENIED"
    assert wire.status_name(77) == "STATUS(77)"
    for bad in ("", "3.", "65536.1", "1.2.3", "-1", "x", str(1 << 64)):
        with pytest.raises(ValueError, match="is not a version"):
            wire.parse_version(bad)
    for bad in ("", "0x", "-1", str(1 << 32), "/registry/x"):
        with pytest.raises(ValueError, match="is not a KEY_ID"):
            wire.parse_key(bad)
    with pytest.raises(WireError, match="64 bits"):
        wire.value_bytes(64)
