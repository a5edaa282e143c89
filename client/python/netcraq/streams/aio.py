# SPDX-License-Identifier: Apache-2.0
"""Streams with asyncio.

    from netcraq.streams import aio

    async with await aio.read("orders", consumer="billing") as reader:
        async for batch in reader:
            for offset, record in batch:
                print(offset, bytes(record.data))

The event loop itself reads the mapped memory. If there is no record, the reader's own thread waits,
because an event loop cannot wait for a futex.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from netcraq import node
from netcraq.node.engine import configure
from netcraq.streams import reader as blocking
from netcraq.streams.reader import Batch


async def read(
    stream: str,
    *,
    socket: str | os.PathLike[str] | None = None,
    namespace: str = "",
    consumer: str = "",
    partitions: Sequence[int] = (),
    start: str = "",
    offsets: Sequence[int] = (),
    incarnation: str = "",
    pull: bool = False,
    skip: bool = False,
    batch_bytes: int = 0,
    wait: float = 30.0,
) -> Reader:
    """Read a stream, like :func:`netcraq.streams.read`."""
    config = configure(socket, namespace, "", wait, 5.0, 64)
    named = (consumer, list(partitions), start, list(offsets), incarnation, pull, skip, batch_bytes)
    reader = Reader(blocking.Reader(stream, config, *named))
    try:
        await reader.begin()
    except BaseException:
        reader.abandon()
        raise
    return reader


class Reader:
    """Reads a stream, with ``async for batch in reader``. Only one task at a time may use it.
    :func:`read` makes a reader."""

    def __init__(self, reader: blocking.Reader) -> None:
        self._reader = reader
        self._helper = _Helper()
        # the next batch; pending while the reader waits for it
        self._next: asyncio.Future[Batch] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Start to read. :func:`read` has already called it."""
        await self._helper.run(self._reader.begin)

    async def next(self, timeout: float | None = None) -> Batch:
        """Wait for the next batch. Releases the previous batch. Raises Timeout after timeout
        seconds. After a timeout or a cancellation, no batch is lost, because the next call returns
        it.
        """
        if self._closed:
            raise node.Closed("the reader is closed")
        if self._next is None:
            if (batch := self._reader.ready()) is not None:
                await asyncio.sleep(0)  # let other tasks run
                return batch
            self._next = self._helper.run(self._reader.next)
        await asyncio.wait({self._next}, timeout=timeout)
        if not self._next.done():
            raise node.Timeout("there was no record in time")
        found, self._next = self._next, None
        try:
            return found.result()
        except blocking.Halted:
            raise node.Closed("the reader is closed") from None

    async def close(self) -> None:
        """Close the reader, and release its batches."""
        if not self._closed:
            self._closed = True
            self._reader.halt()
            ended = self._helper.run(self._reader.close)
            self._helper.end()
            await asyncio.shield(ended)

    def abandon(self) -> None:
        """Close the reader without waiting."""
        self._closed = True
        self._reader.halt()
        self._helper.run(self._reader.close)
        self._helper.end()

    def __aiter__(self) -> Self:
        """The reader itself."""
        return self

    async def __anext__(self) -> Batch:
        """Wait for the next batch."""
        return await self.next()

    async def __aenter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the reader."""
        await self.close()


class _Helper:
    """A thread that executes functions one after another. A process can end without waiting for
    this thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="netcraq-stream", daemon=True).start()

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Execute a function in the thread."""
        future = self._loop.create_future()
        future.add_done_callback(_seen)
        self._work.put((work, future))
        return future

    def end(self) -> None:
        """End the thread after all given functions."""
        self._work.put(None)

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            work, future = given
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as e:
                error = e
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_tell, future, result, error)
            del given, work, future, result, error  # the thread must not keep a batch alive


def _tell(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # the waiting task was canceled
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _seen(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future that no one awaits as retrieved, so that it is not logged."""
    if not future.cancelled():
        future.exception()
