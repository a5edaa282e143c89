# SPDX-License-Identifier: Apache-2.0
"""The NetCRAQ packet as a scapy layer.

    >>> from scapy.all import IP, UDP, raw
    >>> from netcraq.scapy_layer import NetCRAQ, NetCRAQ1024
    >>> request = IP(dst="10.0.0.100") / UDP(sport=40000) / NetCRAQ1024(op="WRITE", session=5, request=9, key=0x01000007, value=b"on")
    >>> UDP(raw(request)[20:])[NetCRAQ].data
    b'on'

There is a class for each width of the value field. When a packet is made, ``NetCRAQ`` itself means
the narrowest width. When a packet is parsed, it means the width that fits the payload's length.
``packet[NetCRAQ]`` finds a layer of any width. Both directions of UDP port 20035 are bound to
``NetCRAQ``. A payload of another length stays ``Raw``.

It needs scapy, which is under the GPL-2.0 and comes with the extra ``netcraq[scapy]``. No other
module of the package needs it.
"""

from __future__ import annotations

from typing import Any

try:
    import scapy  # noqa: F401
except ModuleNotFoundError as e:
    raise ModuleNotFoundError("netcraq.scapy_layer needs scapy: pip install 'netcraq[scapy]'", name="scapy") from e
from scapy.fields import (
    ByteEnumField,
    ConditionalField,
    FlagsField,
    IntField,
    LongField,
    ShortField,
    StrFixedLenField,
    XIntField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, Raw, bind_layers

from netcraq import wire

_OPS = {op.value: op.name for op in wire.Op}
_STATUSES = {s.value: s.name for s in wire.Status}
_FLAGS = [f.name for f in wire.Flags]
_REPLY_OPS = {op.value for op in wire.Op if op.is_reply}


def _is_reply(p: Packet) -> bool:
    return p.op in _REPLY_OPS


class _KeyField(XIntField):
    def i2repr(self, pkt: Packet | None, x: int) -> str:
        return wire.format_key(x)


class _VersionField(LongField):
    def i2repr(self, pkt: Packet | None, x: int) -> str:
        return wire.format_version(x)


class _LengthField(ShortField):
    """The number of used bytes in the value field. The default is the length of the given value."""

    def i2m(self, pkt: Packet | None, x: int | None) -> int:
        if x is None:
            return len(pkt.getfieldval("value")) if pkt is not None else 0
        return int(x)

    def i2repr(self, pkt: Packet | None, x: int | None) -> str:
        return "TOMBSTONE" if x == wire.TOMBSTONE_LENGTH else repr(self.i2m(pkt, x))


class _ValueField(StrFixedLenField):
    def i2repr(self, pkt: Packet | None, x: bytes) -> str:
        if pkt is None:
            return repr(x)
        return repr(pkt.data)


class NetCRAQ(Packet):
    """The header and the value field. Requests and chain packets have ``flags``, replies have
    ``status``.
    """

    name = "NetCRAQ"
    value_bits = 128
    match_subclass = True  # makes packet[NetCRAQ] find a layer of any width

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kwargs: Any) -> type[Packet]:
        """The class whose packets have the payload's length."""
        if not _pkt:
            return NetCRAQ128
        return _BY_LENGTH.get(len(_pkt), Raw)

    @property
    def data(self) -> bytes | None:
        """The part of the value field that is in use. None means that there is no value (a
        tombstone)."""
        value = self.getfieldval("value")
        length = self.getfieldval("length")
        if length is None:
            return value
        return None if length == wire.TOMBSTONE_LENGTH else value[:length]

    def hashret(self) -> bytes:
        """The fields that a request and its reply have in common. scapy's sr() uses them to match
        answers."""
        return bytes(f"{self.session}.{self.request}.{self.key}", "ascii")

    def answers(self, other: Packet) -> bool:
        """Whether this is a reply to the request other."""
        try:
            reply = wire.Op(other.op).reply
        except (ValueError, AttributeError):
            return False
        return self.op == reply and self.hashret() == other.hashret()

    def mysummary(self) -> str:
        """A summary in one line."""
        second = f"status={wire.status_name(self.status)}" if _is_reply(self) else f"flags={self.flags}"
        return (
            f"NetCRAQ {_OPS.get(self.op, self.op)} key={wire.format_key(self.key)} session={self.session} request={self.request} {second} "
            + (f"version={wire.format_version(self.version)} value={self.data!r}")
        )


def _fields(value_bits: int) -> list[Any]:
    return [
        ByteEnumField("op", 1, _OPS),
        ConditionalField(FlagsField("flags", 0, 8, _FLAGS), lambda p: not _is_reply(p)),
        ConditionalField(ByteEnumField("status", 0, _STATUSES), _is_reply),
        ShortField("epoch", 0),
        ShortField("session", 0),
        _LengthField("length", None),
        IntField("request", 0),
        _KeyField("key", 0),
        _VersionField("version", 0),
        _ValueField("value", b"", length=wire.value_bytes(value_bits)),
    ]


class NetCRAQ128(NetCRAQ):
    """The profile of the NetCRAQ paper, with values of 16 bytes."""

    fields_desc = _fields(128)


class NetCRAQ1024(NetCRAQ):
    """The profile with values of 128 bytes, as in NetChain and NetCache."""

    value_bits = 1024
    fields_desc = _fields(1024)


class NetCRAQ4096(NetCRAQ):
    """The profile with values of 512 bytes."""

    value_bits = 4096
    fields_desc = _fields(4096)


class NetCRAQ8192(NetCRAQ):
    """The profile with values of 1,024 bytes."""

    value_bits = 8192
    fields_desc = _fields(8192)


LAYERS: dict[int, type[NetCRAQ]] = {c.value_bits: c for c in (NetCRAQ128, NetCRAQ1024, NetCRAQ4096, NetCRAQ8192)}
"""The layer for each width of the value field in bits."""

_BY_LENGTH = {wire.HEADER_BYTES + bits // 8: c for bits, c in LAYERS.items()}

# The last binding of a layer sets the fields of the layer below, so a packet that is made goes to
# the port. A received packet is recognized by its source port or its destination port.
bind_layers(UDP, NetCRAQ, sport=wire.PORT)
bind_layers(UDP, NetCRAQ, dport=wire.PORT)
for _layer in LAYERS.values():
    bind_layers(UDP, _layer, dport=wire.PORT)
