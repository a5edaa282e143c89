# SPDX-License-Identifier: Apache-2.0
"""Arrow's record batches in streams: their buffers are the node's memory.

    from netcraq.streams import arrow

    with arrow.read("orders") as reader:
        for item in reader:
            print(item.batch.num_rows)  # a pyarrow.RecordBatch

docs/streams-arrow.md says what is promised. Needs pyarrow: ``pip install netcraq[arrow]``.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from netcraq import node
from netcraq.streams import reader as streams
from netcraq.streams.columns import Encoder, decode
from netcraq.streams.memory import Garbage

__all__ = ["Garbage", "Item", "Reader", "Writer", "read"]


@dataclass(frozen=True, slots=True)
class Item:
    """A batch, and where it was: the record of an ``offset`` of a ``partition``."""

    partition: int
    offset: int
    batch: pa.RecordBatch
    _hold: streams.Hold | None

    def valid(self) -> bool:
        """Whether the batch is what it was: False, if the node took its memory for other records,
        since it was held for longer than the stream's stallMs.
        """
        return self._hold is None or self._hold.valid()


class Reader:
    """Reads a stream of batches: ``for item in reader``. It is for one thread. Made by :func:`read`.

    A batch, its columns, and what is made of them without copying, keep the memory that they are in,
    when the reader has gone on, too, and when it is closed.
    """

    def __init__(self, reader: streams.Reader, trusted: bool) -> None:
        self._reader, self._trusted = reader, trusted
        self._items: collections.deque[Item] = collections.deque()

    def next(self, timeout: float | None = None) -> Item:
        """The next batch. What comes before it is done with. Raises Timeout after timeout seconds;
        Overrun, where a batch was overwritten, that was held for too long; Garbage, where a record is
        no batch.
        """
        while not self._items:
            got = self._reader.next(timeout)
            hold = got.hold()
            for offset, record in got:
                batch = decode(record.data, hold, self._open, self._trusted)
                self._items.append(Item(got.partition, offset, batch, hold))
        return self._items.popleft()

    def _open(self, name: bytes, length: int) -> pa.Buffer:
        raise Garbage("a batch whose buffers are in files")

    def close(self) -> None:
        """End it. Batches that are there stay."""
        self._items.clear()
        self._reader.close()

    def __iter__(self) -> Self:
        """The reader itself."""
        return self

    def __next__(self) -> Item:
        """The next batch."""
        return self.next()

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End it."""
        self.close()


def read(stream: str, *, trusted: bool = False, **how: Any) -> Reader:
    """Read a stream of batches. how: as of :func:`netcraq.streams.read`. trusted: do not look whether
    offsets and indices in columns point to where they may; whoever may append to the stream can then
    crash this program.
    """
    return Reader(streams.read(stream, **how), trusted)


class Writer:
    """Appends batches to a partition of a stream. ``copied`` counts the bytes of columns that it
    copied.
    """

    def __init__(self, client: node.Client, stream: str, partition: int = 0) -> None:
        self._client, self._stream, self._partition = client, stream, partition
        self.copied = 0

    def append(self, batch: pa.RecordBatch, timeout: float | None = None) -> int:
        """Append a batch, and say which offset it got."""
        encoder = Encoder(batch, lambda address, size: None)
        record = encoder.record()
        self.copied += encoder.copied
        return self._client.append(self._stream, [record], partition=self._partition, timeout=timeout)[0]
