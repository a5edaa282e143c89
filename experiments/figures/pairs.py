# SPDX-License-Identifier: Apache-2.0
"""Two systems that are asked in turn, and what their ratio is.

A machine gets slower and faster while it measures: by its clock, by what else it does. So both
systems are up at once, and short slices of each follow each other as A, B, B, A, A, B, B, A. Two
slices alongside each other meet the same machine, and what drifts evenly cancels out over four. The
ratio is the median of the pairs' ratios; its interval is taken from their order, which supposes
nothing about how the noise is distributed (Conover, Practical Nonparametric Statistics, 3.2).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

WIDEST = 0.15
"""An interval that is wider than this share of its median says little: the ratio is uncertain."""

CONFIDENCE = 0.95

T = TypeVar("T")


def turn(pair: int, systems: Sequence[T]) -> Sequence[T]:
    """Who is asked first in the ``pair``-th pair of slices, and who next."""
    return systems if pair % 2 == 0 else systems[::-1]


def rank(count: int, confidence: float = CONFIDENCE) -> int | None:
    """Of ``count`` sorted values, the ``rank``-th from either end (1 is the first) are the ends of
    an interval that has the median in it in ``confidence`` of all cases. None where there are too
    few: of five not even the least and the greatest are such an interval.
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
    """The median of pairs' ratios, and its interval."""

    middle: float
    low: float
    high: float
    """The interval; the least and the greatest where there are too few pairs for one."""
    pairs: int
    enough: bool
    """Whether there are pairs enough for an interval."""

    @property
    def width(self) -> float:
        """Of the interval, as a share of the median."""
        return (self.high - self.low) / self.middle if self.middle else math.inf

    @property
    def measured(self) -> bool:
        """Whether it is certain: there are pairs enough, and the interval is narrow."""
        return self.enough and self.width <= WIDEST


def estimate(values: Sequence[float]) -> Estimate:
    """The median of at least one ratio."""
    ordered = sorted(values)
    k = rank(len(ordered))
    low, high = (ordered[0], ordered[-1]) if k is None else (ordered[k - 1], ordered[-k])
    return Estimate(statistics.median(ordered), low, high, len(ordered), k is not None)


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Ours over theirs, by the number of the pair; None if no pair is whole."""
    each = [ours[n] / theirs[n] for n in ours if theirs.get(n)]
    return estimate(each) if each else None
