# SPDX-License-Identifier: Apache-2.0
"""Two systems that are measured in turn, and the ratio of their results.

The speed of a machine varies while it measures: with its clock rate and with other work on it. So
both systems are up at once, and short slices of each alternate as A, B, B, A, A, B, B, A. Two
adjacent slices see the same machine, and a steady drift cancels out over four. The ratio is the
median of the pairs' ratios. Its interval comes from their order statistics, which need no
assumption about the distribution of the noise (Conover, Practical Nonparametric Statistics, 3.2).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

WIDEST = 0.15
"""If an interval is wider than this share of its median, the ratio is uncertain."""

CONFIDENCE = 0.95

T = TypeVar("T")


def turn(pair: int, systems: Sequence[T]) -> Sequence[T]:
    """Return the order of the systems in the ``pair``-th pair of slices."""
    return systems if pair % 2 == 0 else systems[::-1]


def rank(count: int, confidence: float = CONFIDENCE) -> int | None:
    """Return the rank of the interval's ends: the ``rank``-th of ``count`` sorted values from
    either end (1 is the first). The interval contains the median with probability ``confidence``.
    None if there are too few values: of five, not even the least and the greatest are such an
    interval.
    """
    below, found = 0.0, None
    for k in range(1, count // 2 + 1):
        below += math.comb(count, k - 1) / 2**count  # fewer than k of them are below the median
        if 2 * below > 1 - confidence:
            break
        found = k
    return found


@dataclass(frozen=True)
class Estimate:
    """The median of the pairs' ratios, and its interval."""

    middle: float
    low: float
    high: float
    """The interval is low to high; with too few pairs, the least to the greatest value."""
    pairs: int
    enough: bool
    """Whether there are enough pairs for an interval."""

    @property
    def width(self) -> float:
        """The interval's width, as a share of the median."""
        return (self.high - self.low) / self.middle if self.middle else math.inf

    @property
    def measured(self) -> bool:
        """Whether the estimate is certain: there are enough pairs, and the interval is narrow."""
        return self.enough and self.width <= WIDEST


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the median of at least one ratio."""
    ordered = sorted(values)
    k = rank(len(ordered))
    low, high = (ordered[0], ordered[-1]) if k is None else (ordered[k - 1], ordered[-k])
    return Estimate(statistics.median(ordered), low, high, len(ordered), k is not None)


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Return the ratio of ours to theirs, by the number of the pair; None if no pair is
    complete.
    """
    each = [ours[n] / theirs[n] for n in ours if theirs.get(n)]
    return estimate(each) if each else None
