# SPDX-License-Identifier: Apache-2.0
"""A linearizability check of clients' histories, for keys with one writer each.

Each key is a register whose writer numbers its values: 0 is the initial value, then 1, 2, 3 ... A
history is the operations with the times of their requests and answers, on one clock. With one
writer, whose writes follow one after the other, a history is linearizable exactly if for every
read:

* the write of the returned value was requested before the read was answered;
* no write with a higher number was answered before the read was requested (the value was not
  stale);
* no read that was answered before this one was requested returned a higher number (time does not
  run backwards for readers).
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
    """The number of the written or read value; None: a value that the key's writer never wrote."""
    asked: float
    answered: float
    """Seconds on one clock; infinity for a write with an unknown outcome."""
    who: str = ""
    """A name for messages."""

    def __str__(self) -> str:
        """Format the operation for messages."""
        took = f"{(self.answered - self.asked) * 1e6:.0f} µs" if math.isfinite(self.answered) else "no answer"
        return f"{self.who} {'wrote' if self.write else 'read'} value {self.number} at {self.asked:.6f} s ({took})"


def violations(operations: Iterable[Operation]) -> list[str]:
    """Return the violations, a line each; empty if the history is linearizable. ValueError if
    writes of a key overlap.
    """
    keys: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        keys[operation.key].append(operation)
    return [line for key in sorted(keys) for line in _of_key(key, keys[key])]


def _of_key(key: str, operations: list[Operation]) -> list[str]:
    writes = sorted((operation for operation in operations if operation.write), key=lambda write: write.number)
    for one, following in pairwise(writes):
        # The time when an unanswered write was given up is unknown here. It was requested before
        # the next write in any case.
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
    """Finds the highest number with a time before a given moment."""

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
