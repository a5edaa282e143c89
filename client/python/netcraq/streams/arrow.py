# SPDX-License-Identifier: Apache-2.0
"""Arrow record batches in streams. The buffers of the batches are in the node's memory.

    from netcraq.streams import arrow

    with arrow.read("orders") as reader:
        for item in reader:
            print(item.batch.num_rows)  # a pyarrow.RecordBatch

docs/streams-arrow.md describes the guarantees. The module needs pyarrow (``pip install
netcraq[arrow]``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

try:
    import pyarrow as pa
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        "netcraq.streams.arrow needs pyarrow: pip install 'netcraq[arrow]'", name="pyarrow"
    ) from e

from netcraq import node
from netcraq.streams import reader as streams
from netcraq.streams.columns import Encoder
from netcraq.streams.files import Draft, Files, Lent, Mapped, Rewrite
from netcraq.streams.memory import Garbage

__all__ = ["Draft", "Files", "Garbage", "Item", "Lent", "Mapped", "Reader", "Rewrite", "Writer", "read"]


@dataclass(frozen=True, slots=True)
class Item:
    """A batch with its position. It was the record at ``offset`` in ``partition``."""

    partition: int
    offset: int
    batch: pa.RecordBatch
    _hold: streams.Hold | None

    def valid(self) -> bool:
        """Whether the batch is unchanged. It returns False if the batch was held for longer than
        the stream's stallMs, and the node has reused its memory for other records.
        """
        return self._hold is None or self._hold.valid()


class Reader:
    """Reads a stream of batches, with ``for item in reader``. Only one thread at a time may use it.
    :func:`read` makes a reader.

    A batch, its columns, and anything made from them without a copy keep their memory alive, even
    after the reader has continued or was closed.
    """

    def __init__(self, reader: streams.Reader, files: Files, own: bool, trusted: bool) -> None:
        self._reader, self._files, self._own, self._trusted = reader, files, own, trusted
        self._batch: Iterator[tuple[int, streams.Record]] = iter(())
        self._partition = 0
        self._hold: streams.Hold | None = None

    def next(self, timeout: float | None = None) -> Item:
        """Wait for the next batch. Releases the previous batch. Raises Timeout after timeout
        seconds, Overrun if a batch that was held too long was overwritten, and Garbage if a record
        is not a batch.
        """
        while (found := next(self._batch, None)) is None:
            self._hold = None
            got = None if self._reader.overrun else self._reader.ready()
            if got is None:  # the reader may have to wait long for the next batch
                self._files.give_back()
                got = self._reader.next(timeout)
            self._batch, self._partition, self._hold = iter(got), got.partition, got.hold()
        offset, record = found
        batch = self._files.read(record.data, self._hold, self._trusted)
        return Item(self._partition, offset, batch, self._hold)

    def close(self) -> None:
        """Close the reader. Existing batches stay valid."""
        self._batch, self._hold = iter(()), None
        self._reader.close()
        if self._own:
            self._files.close()

    def __iter__(self) -> Self:
        """The reader itself."""
        return self

    def __next__(self) -> Item:
        """Wait for the next batch."""
        return self.next()

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the reader."""
        self.close()


def read(stream: str, *, files: Files | None = None, trusted: bool = False, **how: Any) -> Reader:
    """Read a stream of batches. ``how`` are the arguments of :func:`netcraq.streams.read`.
    ``files`` are files of the same node. A program that writes batches that it has read must give
    the same files to its writer. With ``trusted``, the reader does not check that offsets and
    indices in columns are in range. A program that may append to the stream can then crash this
    program.
    """
    own = files is None
    if files is None:
        files = Files(how.get("socket"), how.get("namespace", ""))
    return Reader(streams.read(stream, **how), files, own, trusted)


class Writer:
    """Appends batches to a partition of a stream.

    Without files, the writer copies the whole batch into a record, and the node copies the record
    into the stream's memory. With files, the record refers to the buffers that are in files, and
    the stream must be volatile. Other buffers are copied into a new file, or into the record if
    they have at most ``inline`` bytes. With ``rewritable``, the writer writes a file again after
    its last reader has finished. That is faster, but the readers must trust the writer.
    """

    def __init__(
        self,
        client: node.Client,
        stream: str,
        partition: int = 0,
        *,
        files: Files | None = None,
        inline: int = 4096,
        namespace: str = "",
        rewritable: bool = False,
    ) -> None:
        self._client, self._stream, self._partition = client, stream, partition
        self._files, self._inline, self._namespace = files, inline, namespace
        self._rewritable = rewritable

    def append(self, batch: pa.RecordBatch, timeout: float | None = None) -> int:
        """Append a batch, and return its offset."""
        used: list[Mapped | Lent] = []
        if self._files is None:
            record = Encoder(batch, lambda address, size: None).record()
        else:
            record, used = self._files.write(batch, self._inline, self._rewritable)
        return self._client.append(
            self._stream, [record], partition=self._partition, files=[f.name for f in used],
            timeout=timeout, namespace=self._namespace,
        )[0]  # fmt: skip
