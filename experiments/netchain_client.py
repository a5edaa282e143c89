# SPDX-License-Identifier: Apache-2.0
"""A client of NetChain, the baseline (``netchain-baseline/``), for comparisons with NetCRAQ over
sockets.

It has one socket and sends one request at a time, as :class:`netcraq.client.Client` does. A request
that is not answered within the retransmission time is sent again. NetChain does not recognize
duplicates, so it executes a repeated write again.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from netcraq.client import NetCRAQError, NotFound, Timeout

PORT = 8888
READ, WRITE = 1, 3
OK, NOT_FOUND = 0, 1

HEADER = struct.Struct("!BBHI16s16s")
"""OP, STATUS, SC (how many addresses the list has), KEY, SEQ (128 bits), VALUE; the list of eight
addresses follows.
"""
LIST = 8
SIZE = HEADER.size + 4 * LIST


def key_id(number: int, groups: int) -> int:
    """Return the KEY of a key: its virtual group is the top byte."""
    return number % groups << 24 | number


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request."""

    value: bytes
    attempts: int
    """Packets sent."""


class NetChainClient:
    """Reads at the tail of a chain and writes at its head."""

    def __init__(self, chain: Sequence[str], *, timeout: float = 2.0, retransmit: float = 0.05) -> None:
        """chain: the switches' addresses, head first, at most eight. timeout and retransmit are in
        seconds.
        """
        self._chain = list(chain)
        self.timeout = timeout
        self.retransmit = retransmit
        self._tag = random.SystemRandom().randrange(1 << 32)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)

    def __enter__(self) -> NetChainClient:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._socket.close()

    def get(self, key: int) -> Answer:
        """Read a key. Raises NotFound, Timeout."""
        return self._call("get", READ, key, b"", self._chain[::-1])

    def put(self, key: int, value: bytes) -> Answer:
        """Write a value of at most 16 bytes, padded with zeros. Raises Timeout: then it is unknown
        whether the write was executed.
        """
        return self._call("put", WRITE, key, value, self._chain)

    def _call(self, what: str, op: int, key: int, value: bytes, way: list[str]) -> Answer:
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        rest = way[1:]
        listed = b"".join(socket.inet_aton(address) for address in rest).ljust(
            4 * (LIST - 1), b"\0"
        ) + self._tag.to_bytes(4)
        packet = HEADER.pack(op, 0, len(rest), key, b"", value) + listed
        begun = time.monotonic()
        attempts = 0
        while (now := time.monotonic()) < begun + self.timeout:
            with contextlib.suppress(OSError):  # the packet counts as lost
                self._socket.sendto(packet, (way[0], PORT))
            attempts += 1
            if reply := self._receive(op, key, len(rest), min(now + self.retransmit, begun + self.timeout)):
                status, held = reply
                if status == OK:
                    return Answer(held, attempts)
                if status == NOT_FOUND:
                    raise NotFound(f"{what} {key:#010x}: key not found", 0)
                raise NetCRAQError(f"{what} {key:#010x}: answered with status {status}", outcome_unknown=op != READ)
        raise Timeout(
            f"{what} {key:#010x}: no answer ({attempts} sent in {time.monotonic() - begun:.3f} s)",
            outcome_unknown=op != READ,
        )

    def _receive(self, op: int, key: int, sent: int, until: float) -> tuple[int, bytes] | None:
        """Return the status and value of the reply to any copy of the request; None if no reply
        arrives until ``until``.
        """
        while True:
            ready, _, _ = select.select([self._socket], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            try:
                packet = self._socket.recv(2048)
            except OSError:
                continue
            if len(packet) != SIZE:
                continue
            got, status, left, of, _, value = HEADER.unpack_from(packet)
            # A switch that removes an address from the list moves the following ones up, including
            # the tag in the last place.
            tag = len(packet) - 4 * (1 + sent - left)
            if got == op + 1 and of == key and left <= sent and int.from_bytes(packet[tag : tag + 4]) == self._tag:
                return status, value
