# SPDX-License-Identifier: Apache-2.0
"""Steps of pipelets in Python. A step passes the records of one stream through a function into
another stream.

    from netcraq.streams import step

    def priced(record):                 # its data, mark and time
        yield bytes(record.data).upper()

    step.run("orders", "priced", priced)

One pipelet brings records into the first stream, and another pipelet takes them from the second
stream (docs/pipelets.md). The function reads the records in place, in the node's memory. Each
record is processed exactly once, in order. A record of the second stream has the position of its
source record as its mark. It is appended at its expected offset or not at all. So if a process
dies, its successor knows which records are done. The function must return the same rows whenever it
is called with the same record.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from netcraq import node
from netcraq.streams.memory import Record
from netcraq.streams.reader import Batch, Overrun, read

Function = Callable[[Record], Iterable[bytes | str]]

MOST = 64
"""The maximum number of rows that a function may make from one record."""

PAUSE = 0.2
"""The number of seconds between a failure and the next try."""

LOOK = 0.5
"""The number of seconds between two checks of ``stop`` while there are no records."""

OFFSET_BITS = 48
"""The number of lower bits of a mark that are the offset. The upper bits identify the incarnation
of the first stream.
"""


class StepError(Exception):
    """A step cannot continue until an operator changes something."""


def run(
    source: str,
    destination: str,
    function: Function,
    *,
    socket: str | os.PathLike[str] | None = None,
    namespace: str = "",
    pull: bool = False,
    stop: threading.Event | None = None,
) -> None:
    """Read records from ``source``, call ``function`` with each record, and append the resulting
    rows to ``destination``, until ``stop`` is set. A record may give at most ``MOST`` rows. Both
    streams must exist and have one partition, and no other program may append to ``destination``.
    Raises StepError if records were overwritten before they were read, or if a stream was created
    again, and any exception of the function.

    socket, namespace and pull have the same meaning as in :func:`netcraq.streams.read`.
    """
    stop = stop or threading.Event()
    while not stop.is_set():
        try:
            with node.connect(socket, namespace=namespace) as client:
                _follow(client, source, destination, function, socket, namespace, pull, stop)
        except (node.PermissionDenied, node.QuotaExceeded, node.NoRoom, node.TooLarge):
            raise
        except (node.NodeError, Overrun):
            # the server is gone, or another process has appended, so try again
            stop.wait(PAUSE)


def _one(client: node.Client, stream: str) -> tuple[dict[str, Any], str]:
    """The only partition of a stream, and the stream's incarnation."""
    found = client.open_stream(stream)
    if len(found["partitions"]) != 1:
        raise StepError(f"the stream {stream} has {len(found['partitions'])} partitions, and a step takes one")
    return found["partitions"][0], found["incarnation"]


def _life(incarnation: str) -> int:
    return int.from_bytes(hashlib.sha256(incarnation.encode()).digest()[:2], "big") << OFFSET_BITS


def _done(client: node.Client, destination: str) -> tuple[int, int, int]:
    """The offset of the destination's next record, the mark of its last record, and the number of
    its records with that mark.
    """
    state, _ = _one(client, destination)
    oldest, following = int(state["oldest"]), int(state["next"])
    marks: list[int] = []
    at = max(oldest, following - MOST)
    while at < following:
        answer = client.read_stream(destination, offset=at, maxRecords=following - at)
        at = int(answer["next"])
        marks += [int(record.get("mark", 0)) for record in answer["records"]]
    if not marks:
        return following, 0, 0
    same = 0
    while same < len(marks) and marks[-1 - same] == marks[-1]:
        same += 1
    return following, marks[-1], same


def _follow(
    client: node.Client,
    source: str,
    destination: str,
    function: Function,
    socket: str | os.PathLike[str] | None,
    namespace: str,
    pull: bool,
    stop: threading.Event,
) -> None:
    following, mark, same = _done(client, destination)
    _, incarnation = _one(client, source)
    life = _life(incarnation)
    if mark and mark >> OFFSET_BITS << OFFSET_BITS != life:
        raise StepError(f"the stream {source} was made anew since {destination} was written: name another destination")
    begun = (mark & ((1 << OFFSET_BITS) - 1)) - 1 if mark else -1
    how: dict[str, Any] = {"start": "earliest"}
    if begun >= 0:
        how = {"partitions": [0], "offsets": [begun], "incarnation": incarnation}
    with read(source, socket=socket, namespace=namespace, pull=pull, **how) as reader:
        first = True
        while not stop.is_set():
            try:
                batch = reader.next(LOOK)
            except node.Timeout:
                continue
            if batch.missed and not (first and begun < 0):
                raise StepError(f"{batch.missed} records of {source} were overwritten before they were read")
            first = False
            rows = _rows(batch, function, life, begun, same)
            while rows:
                values, marks = zip(*rows[:1024], strict=True)
                _, appended = client.append(destination, values, at=following, marks=marks)
                following += appended
                rows = rows[appended:]
                if not appended:  # the destination's consumers are slow, so wait
                    time.sleep(PAUSE)


def _rows(batch: Batch, function: Function, life: int, begun: int, same: int) -> list[tuple[bytes | str, int]]:
    """Return the records to append for a batch, with their marks."""
    rows: list[tuple[bytes | str, int]] = []
    for offset, record in batch:
        made = list(function(record))
        if len(made) > MOST:
            raise StepError(f"{len(made)} rows of record {offset}: a step may make {MOST} of one")
        if offset == begun:
            made = made[same:]
        rows += [(row, life | (offset + 1)) for row in made]
    return rows
