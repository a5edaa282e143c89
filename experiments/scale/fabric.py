# SPDX-License-Identifier: Apache-2.0
"""Networks of switches: a line, as in the measurements, and a leaf-spine fabric."""

from __future__ import annotations

import bisect
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

SPINES_OF = 4
"""One switch in four is a spine; clients are at the leaves."""


@dataclass(frozen=True)
class Line:
    """Switches in a row. All clients are at the first one."""

    size: int
    leaves: int = 1

    def between(self, a: int, b: int, _: random.Random) -> Sequence[int]:
        """The switches that only forward, from one switch to another."""
        return range(a + 1, b) if a < b else range(a - 1, b, -1)

    def name(self, switch: int) -> str:
        """The switch's name."""
        return f"s{switch + 1}"


@dataclass(frozen=True)
class LeafSpine:
    """Leaves 0, 1, ... and then the spines; each leaf has a link to each spine."""

    size: int

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return self.size - self.size // SPINES_OF

    @property
    def spines(self) -> int:
        """The number of spines."""
        return self.size // SPINES_OF

    def spine(self, switch: int) -> bool:
        """Whether a switch is a spine."""
        return switch >= self.leaves

    def between(self, a: int, b: int, draw: random.Random) -> Sequence[int]:
        """The switches that only forward, from one switch to another. Flows spread over all equal
        paths.
        """
        if a == b or self.spine(a) != self.spine(b):
            return ()
        return (draw.randrange(self.leaves) if self.spine(a) else self.leaves + draw.randrange(self.spines),)

    def distance(self, a: int, b: int) -> int:
        """The number of links from one switch to another."""
        return 0 if a == b else 1 if self.spine(a) != self.spine(b) else 2

    def name(self, switch: int) -> str:
        """The switch's name."""
        return f"spine {switch - self.leaves}" if self.spine(switch) else f"leaf {switch}"


def _point(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def groups(size: int, count: int, members: int) -> list[list[int]]:
    """Place ``count`` chains of ``members`` switches by consistent hashing: each switch has 16
    points on a ring, and a chain has the next different switches after its own point.
    """
    ring = sorted((_point(f"switch {s}.{i}"), s) for s in range(size) for i in range(16))
    points = [point for point, _ in ring]
    out = []
    for number in range(count):
        at, chain = bisect.bisect(points, _point(f"chain {number}")), []
        while len(chain) < min(members, size):
            switch = ring[at % len(ring)][1]
            if switch not in chain:
                chain.append(switch)
            at += 1
        out.append(chain)
    return out
