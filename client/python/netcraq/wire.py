# SPDX-License-Identifier: Apache-2.0
"""The NetCRAQ packet, in pure Python.

A packet is the UDP payload: a header of 24 bytes in network byte order, then the value field, whose
width was fixed when the P4 program was compiled. This width is the profile: 128, 1024, 4096 or 8192
bits. Requests go to UDP port 20035, replies come from it. ``docs/protocol.md`` is the normative
description; the Go package ``wire`` is tested against the same vectors.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

PORT = 20035
"""The UDP destination port of requests and source port of replies. It is 0x4E43, which is "NC"."""

HEADER_BYTES = 24
PROFILES = (128, 1024, 4096, 8192)
"""The widths of the value field, in bits, for which the P4 program can be compiled."""

TOMBSTONE_LENGTH = 0xFFFF
MAX_SEQUENCE = (1 << 48) - 1
REQUEST_WINDOW = 1 << 28
"""The maximum distance between a session's request number and the last number that a switch has
recorded. If the distance is greater, the number belongs to another lease of the session.
"""

_HEADER = struct.Struct("!BBHHHIIQ")


class Op(enum.IntEnum):
    """The operation (8 bits). The NetCRAQ paper calls it KV_OP."""

    READ = 1
    READ_REPLY = 2
    WRITE = 3
    WRITE_REPLY = 4
    ACK = 5
    CAS = 6
    CAS_REPLY = 7
    SYNC = 8
    LEASE = 9
    LEASE_REPLY = 10
    FETCH = 11
    FETCH_REPLY = 12
    SYNC_REPLY = 13
    NOTIFY = 14

    @property
    def is_reply(self) -> bool:
        """Whether the second byte of packets with this operation is a status. That is so for
        replies and for NOTIFY, but not for ACK.
        """
        return self is Op.NOTIFY or self in _REPLIES.values()

    @property
    def reply(self) -> Op | None:
        """The op of the answer to a request. It is None if the op is not a request."""
        return _REPLIES.get(self)


_REPLIES = {
    Op.READ: Op.READ_REPLY,
    Op.WRITE: Op.WRITE_REPLY,
    Op.CAS: Op.CAS_REPLY,
    Op.SYNC: Op.SYNC_REPLY,
    Op.LEASE: Op.LEASE_REPLY,
    Op.FETCH: Op.FETCH_REPLY,
}


class Flags(enum.IntFlag):
    """The second byte (8 bits) of requests and chain packets."""

    EVENTUAL = 0x01
    DIRTY_FORWARDED = 0x02
    TO_HEAD = 0x04
    STAMPED = 0x08
    BY_CAS = 0x10
    NO_REPLY = 0x20
    NEWEST = 0x40
    SESSION = 0x80


NO_FLAGS = Flags(0)


class Status(enum.IntEnum):
    """The second byte (8 bits) of replies."""

    OK = 0
    NOT_FOUND = 1
    CAS_FAILED = 2
    RETRY = 3
    NOT_SERVING = 4
    SUPERSEDED = 5
    NO_CHAIN = 6
    BAD_SESSION = 7
    FULL = 8
    DIRTY = 9
    DENIED = 10


class WireError(ValueError):
    """The bytes are not a packet, or the packet cannot be encoded. ``kind`` names the fault:
    profile, truncated, length, op, value, tombstone, meaning or range.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def version(epoch: int, sequence: int) -> int:
    """The 64-bit version of a chain epoch (16 bits) and a sequence (48 bits)."""
    return epoch << 48 | sequence


def format_version(v: int) -> str:
    """``epoch.sequence``, as in 3.17; "0" for a key that was never written."""
    return f"{v >> 48}.{v & MAX_SEQUENCE}" if v else "0"


def parse_version(s: str) -> int:
    """Parses the result of format_version, and plain numbers (decimal, or hexadecimal with 0x)."""
    try:
        if "." in s:
            epoch, sequence = (int(part) for part in s.split("."))
            if 0 <= epoch < 1 << 16 and 0 <= sequence <= MAX_SEQUENCE:
                return version(epoch, sequence)
        elif 0 <= (n := int(s, 16 if s[:2].lower() == "0x" else 10)) < 1 << 64:
            return n
    except ValueError:
        pass
    raise ValueError(f"{s!r} is not a version: pass EPOCH.SEQUENCE (as 3.17), or the 64-bit number")


def format_key(key: int) -> str:
    """A KEY_ID as 0x and eight hexadecimal digits; the first two are the chain."""
    return f"0x{key:08x}"


def parse_key(s: str) -> int:
    """Parses a KEY_ID: hexadecimal with 0x, or decimal."""
    try:
        if 0 <= (n := int(s, 16 if s[:2].lower() == "0x" else 10)) < 1 << 32:
            return n
    except ValueError:
        pass
    raise ValueError(f"{s!r} is not a KEY_ID: pass a number below 2^32, decimal or hexadecimal with 0x")


def status_name(status: int) -> str:
    """The name of a status, or STATUS(n) if this version does not know it."""
    try:
        return Status(status).name
    except ValueError:
        return f"STATUS({status})"


def value_bytes(value_bits: int) -> int:
    """The length of the value field of a profile, in bytes."""
    if value_bits not in PROFILES:
        raise WireError(
            "profile", f"no profile has values of {value_bits} bits: there are {', '.join(map(str, PROFILES))}"
        )
    return value_bits // 8


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet. If ``value`` is None, the packet has a tombstone, which means that there is no
    value. A WRITE of a tombstone is a DELETE.
    """

    op: Op
    key: int
    flags: Flags = NO_FLAGS
    """The flags of a request or a chain packet; 0 in replies."""
    status: int = Status.OK
    """The status of a reply; 0 in other packets. It is a Status, or a number that this version does
    not know."""
    epoch: int = 0
    session: int = 0
    request: int = 0
    version: int = 0
    value: bytes | None = b""

    def encode(self, value_bits: int) -> bytes:
        """The packet as a UDP payload of the profile."""
        width = value_bytes(value_bits)
        try:
            op = Op(self.op)
        except ValueError:
            raise WireError("op", f"unknown op {self.op}") from None
        value = self.value or b""
        if len(value) > width:
            raise WireError("value", f"a value of {len(value)} bytes does not fit the profile's {width}")
        if op.is_reply and self.flags:
            raise WireError("meaning", f"{op.name} has no flags")
        if not op.is_reply and self.status:
            raise WireError("meaning", f"{op.name} has no status")
        second = self.status if op.is_reply else self.flags
        length = TOMBSTONE_LENGTH if self.value is None else len(value)
        try:
            header = _HEADER.pack(op, second, self.epoch, self.session, length, self.request, self.key, self.version)
        except struct.error as e:
            raise WireError("range", f"a field of {self} is out of range: {e}") from None
        return header + value.ljust(width, b"\0")

    @classmethod
    def decode(cls, payload: bytes, value_bits: int) -> Packet:
        """Parses a UDP payload of the profile. Like the switches, it ignores the rest of the value
        field after the value.
        """
        want = HEADER_BYTES + value_bytes(value_bits)
        if len(payload) != want:
            kind = "truncated" if len(payload) < want else "length"
            raise WireError(kind, f"{len(payload)} bytes, a packet with values of {value_bits} bits has {want}")
        number, second, epoch, session, length, request, key, v = _HEADER.unpack_from(payload)
        try:
            op = Op(number)
        except ValueError:
            raise WireError("op", f"unknown op {number}") from None
        value = None
        if length != TOMBSTONE_LENGTH:
            if length > want - HEADER_BYTES:
                raise WireError("value", f"length {length}, the value field has {want - HEADER_BYTES} bytes")
            value = bytes(payload[HEADER_BYTES : HEADER_BYTES + length])
        if op.is_reply:
            return cls(op, key, status=second, epoch=epoch, session=session, request=request, version=v, value=value)
        return cls(op, key, flags=Flags(second), epoch=epoch, session=session, request=request, version=v, value=value)
