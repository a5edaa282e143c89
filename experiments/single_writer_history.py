# SPDX-License-Identifier: Apache-2.0
"""Whether what clients saw could have happened in a store without copies (linearizability), for
keys with one writer each.

Each key is a register whose writer numbers its values: 0 is what was there, then 1, 2, 3 ... A
history is the operations with the times at which they were asked and answered, on one clock. With
one writer, whose writes come one after the other, a history is linearizable exactly if for every
read:

* the value that it returned had been asked to be written before the read was answered;
* no write with a higher number was answered before the read was asked (the value was not stale);
* no read that was answered before this one was asked returned a higher number (time does not run
  backwards for readers).
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Operation:
    """A read or a write of one key."""

    key: str
    write: bool
    number: int | None
    """Of the value written or read; None: a value that the key's writer never wrote."""
    asked: float
    answered: float
    """Seconds on one clock; infinity for a write whose outcome is not known."""
    who: str = ""
    """For people."""

    def __str__(self) -> str:
        """For people."""
        took = f"{(self.answered - self.asked) * 1e6:.0f} µs" if math.isfinite(self.answered) else "no answer"
        return f"{self.who} {'wrote' if self.write else 'read'} value {self.number} at {self.asked:.6f} s ({took})"


def violations(operations: Iterable[Operation]) -> list[str]:
    """What could not have happened, a line each; empty if the history is linearizable. ValueError
    where a key has writes that overlap.
    """
    keys: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        keys[operation.key].append(operation)
    return [line for key in sorted(keys) for line in _of_key(key, keys[key])]


def _of_key(key: str, operations: list[Operation]) -> list[str]:
    writes = sorted((operation for operation in operations if operation.write), key=lambda write: write.number)
    for one, following in pairwise(writes):
        # A write without an answer was given up at a time that is not known here; it was asked
        # before the next one in any case.
        given_up = one.asked if math.isinf(one.answered) else one.answered
        if one.number == following.number or following.asked < given_up:
            raise ValueError(f"{key}: the writes overlap: {one}; {following}")
    asked = {write.number: write.asked for write in writes}
    found = []
    reads = [operation for operation in operations if not operation.write]
    answered_writes = _Highest((write.answered, write.number) for write in writes)
    answered_reads = _Highest((read.answered, read.number) for read in reads if read.number is not None)
    for read in sorted(reads, key=lambda read: read.asked):
        if read.number is None:
            found.append(f"{key}: {read}: a value that nobody wrote")
        elif read.number != 0 and asked.get(read.number, math.inf) > read.answered:
            found.append(f"{key}: {read}: before it was written")
        elif (newest := answered_writes.before(read.asked)) > read.number:
            found.append(f"{key}: {read}: stale, value {newest} had been written before")
        elif (newest := answered_reads.before(read.asked)) > read.number:
            found.append(f"{key}: {read}: stale, value {newest} had been read before")
    return found


class _Highest:
    """The highest number among those whose time is before a moment."""

    def __init__(self, pairs: Iterable[tuple[float, int]]) -> None:
        self._times: list[float] = []
        self._highest: list[int] = []
        highest = 0
        for time, number in sorted(pairs):
            highest = max(highest, number)
            self._times.append(time)
            self._highest.append(highest)

    def before(self, time: float) -> int:
        at = bisect.bisect_left(self._times, time)
        return self._highest[at - 1] if at else 0
