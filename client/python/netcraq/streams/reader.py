# SPDX-License-Identifier: Apache-2.0
"""Readers of streams, by push and by pull."""

from __future__ import annotations

import array
import base64
import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from netcraq import node
from netcraq.node.engine import configure
from netcraq.streams.memory import MAX_PARTITIONS, RECORD, Cursor, Garbage, Record, Segment

SLEEP = 0.2  # seconds after which a sleeping reader checks whether the server still exists
FIRST_PAUSE, MAX_PAUSE = 0.01, 1.0  # seconds to pause before the reader connects again
MAX_ANSWER = 1 << 20  # maximum size of an answer in bytes
WAIT_MS = 1000  # milliseconds that the server waits for a record, with pull
# After these errors, the reader connects again and continues. They mean that the server has ended,
# does not listen, or has new memory.
TEMPORARY = (node.Unavailable, node.Draining, node.Canceled, node.Internal, node.Timeout, OSError)


class Overrun(Exception):
    """The reader was too slow, and its batch may have been overwritten while the program read it.
    The reader continues at a newer record.
    """


class Halted(Exception):
    """Raised to end a wait in another thread."""


class Hold:
    """Keeps records unchanged while this object exists, even after their reader is closed. The node
    does not reuse the memory that contains the records, unless the consumer is slower than the
    stream allows.
    """

    def __init__(self, way: _Push, part: _Part, number: int) -> None:
        self._way, self._part, self._number = way, part, number
        way.pin(part, number)

    def valid(self) -> bool:
        """Whether everything that was read from the records so far was correct."""
        return self._part.segment.valid(self._number)

    def __del__(self) -> None:
        """Release the records."""
        if not self.valid():
            self._way.reader.overrun = True
        self._way.unpin(self._part, self._number)


class Batch:
    """Consecutive records of one partition, for ``for offset, record in batch``. ``offset`` is the
    offset of the first record, and ``following`` is the offset after the last record. ``missed``
    counts the records directly before this batch that were overwritten before they could be read.
    ``incarnation`` distinguishes the stream from other streams that have had the same name.
    """

    def __init__(
        self,
        incarnation: str,
        partition: int,
        offset: int,
        records: list[Record],
        missed: int,
        release: Callable[[], None],
        hold: Callable[[], Hold | None] = lambda: None,
    ) -> None:
        self.incarnation = incarnation
        self.partition = partition
        self.offset = offset
        self.records = records
        self.missed = missed
        self._release: Callable[[], None] | None = release
        self._hold = hold

    def hold(self) -> Hold | None:
        """Keep the records valid after the batch's release, until the returned object is deleted.
        Call this method before the release. It returns None if the records are copies, which stay
        valid.
        """
        return self._hold()

    @property
    def following(self) -> int:
        """The offset after the last record."""
        return self.offset + len(self.records)

    def __len__(self) -> int:
        """The number of records."""
        return len(self.records)

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        """Iterate over offsets and records."""
        return enumerate(self.records, self.offset)

    def release(self) -> None:
        """End the use of the batch. Raises Overrun. The reader releases a batch before it returns
        the next one.
        """
        release, self._release = self._release, None
        if release is not None:
            release()


def read(
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
    """Read a stream.

    socket and namespace have the same meaning as in :func:`netcraq.node.connect`. consumer is a
    name by which the node remembers this consumer's position. partitions are the partitions to
    read, by default all. start is "earliest", "latest" or "". With "", the reader begins at the
    consumer's last position, otherwise at the earliest record. start is ignored if offsets are
    given. There must be one offset for each partition, and incarnation must be that of the stream
    to which the offsets belong. With pull, the reader requests records instead of mapping memory,
    and batch_bytes bounds an answer. With skip, the node overwrites records that this reader has
    not read yet instead of waiting for it. wait is the number of seconds to wait for the server.
    """
    reader = Reader(
        stream, configure(socket, namespace, "", wait, 5.0, 64), consumer, list(partitions), start, list(offsets),
        incarnation, pull, skip, batch_bytes,
    )  # fmt: skip
    reader.begin()
    return reader


class Reader:
    """Reads a stream, with ``for batch in reader``. Only one thread at a time may use it.
    :func:`read` makes a reader."""

    def __init__(
        self,
        stream: str,
        config: Any,
        consumer: str,
        partitions: list[int],
        start: str,
        offsets: list[int],
        incarnation: str,
        pull: bool,
        skip: bool,
        batch_bytes: int,
    ) -> None:
        if offsets and len(offsets) != len(partitions):
            raise node.InvalidArgument(f"{len(offsets)} offsets for {len(partitions)} partitions")
        self.stream, self.config, self.consumer, self.partitions = stream, config, consumer, partitions
        self.start, self.incarnation, self.skip, self.batch_bytes = start, incarnation, skip, batch_bytes
        self.next_offset: dict[int, int] = dict(zip(partitions, offsets, strict=False))
        self._kind: type[_Push] | type[_Pull] = _Pull if pull else _Push
        self.overrun = False  # whether held records were overwritten
        self._last: Batch | None = None
        self._way: _Push | _Pull | None = None
        self._halted = threading.Event()

    def begin(self) -> None:
        """Start to read. :func:`read` has already called it."""
        self._begin(time.monotonic() + self.config.wait)

    def _begin(self, deadline: float | None) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                self._way = self._kind(self)
                return
            except TEMPORARY:
                if deadline is not None and time.monotonic() + pause > deadline:
                    raise
            self._halted.wait(pause)
            self.go_on()
            pause = min(2 * pause, MAX_PAUSE)

    def next(self, timeout: float | None = None) -> Batch:
        """Wait for the next batch. Releases the previous batch. Raises Timeout after timeout
        seconds, and Overrun if held records were overwritten meanwhile.
        """
        self.release()
        if self.overrun:
            self.overrun = False
            raise Overrun("the reader held records for too long")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._way is None:
                self._begin(deadline)
            assert self._way is not None
            try:
                batch = self._way.read(deadline)
            except TEMPORARY:
                self._end_way()
                continue
            if batch is None:
                raise node.Timeout("there was no record in time")
            self._last = batch
            return batch

    def ready(self) -> Batch | None:
        """The next batch, if it is already in the mapped memory. Releases the previous batch."""
        self.release()
        if isinstance(self._way, _Push):
            self._last = self._way.look()
        return self._last

    def release(self) -> None:
        """Release the batch that was returned last."""
        last, self._last = self._last, None
        if last is not None:
            last.release()

    def halt(self) -> None:
        """Make a waiting thread raise Halted, within a second."""
        self._halted.set()

    def go_on(self) -> None:
        """Raise Halted if halt was called."""
        if self._halted.is_set():
            raise Halted("the reader was closed")

    def begins(self, partition: int, offset: int, missed: int) -> None:
        """Record where the reading of a partition begins. missed counts records that were lost
        before that. They must be reported with a batch, even if that batch comes over another
        connection.
        """
        if missed > offset:
            raise Garbage(f"{missed} records are missed before record {offset}")
        self.next_offset[partition] = offset - missed

    def missed(self, partition: int, offset: int) -> int:
        """The number of records between the reader's position and the record with which it
        continues."""
        return max(0, offset - self.next_offset.get(partition, offset))

    def _end_way(self) -> None:
        way, self._way = self._way, None
        if way is not None:
            way.close()

    def close(self) -> None:
        """Close the reader, and release its batches."""
        self._last = None
        self._end_way()

    def __iter__(self) -> Self:
        """The reader itself."""
        return self

    def __next__(self) -> Batch:
        """Wait for the next batch."""
        return self.next()

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the reader."""
        self.close()


class _Part:
    """A mapped partition."""

    def __init__(self, told: dict[str, Any], cell: int, fd: int) -> None:
        self.number = _number(told["partition"])
        self.cell = cell
        self.segment = Segment(fd, _number(told["bytes"]))
        self.object = _number(told["object"])
        self.skip = _number(told["offset"])  # records with smaller offsets were already read
        self.pins: dict[int, int] = {}  # number of holds of each object
        self.at = 0  # number of bytes of the object that were read
        self.offset = 0  # offset of the record that begins at that position


def _number(told: Any) -> int:
    """A 64-bit number."""
    if isinstance(told, int) and 0 <= told < 1 << 64:
        return told
    raise Garbage(f"{told!r:.40} is no number")


class _Push:
    """Reads from the node's memory. It checks everything that it reads, because the memory may be
    invalid."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.turn = 0
        self.parts: list[_Part] = []
        self.cursor: Cursor | None = None
        self.pinned = 0
        self.closing = False  # when nothing is pinned, the memory is unmapped
        self.pinning = threading.RLock()  # guards the pins, because a hold may end in any thread
        where = reader.config.socket
        if where.startswith("tcp://"):
            raise node.InvalidArgument("memory is passed by a Unix socket only", "read with pull=True")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(5.0)
            self.socket.connect(where.removeprefix("unix://"))
            self._subscribe()
            self.socket.setblocking(False)
        except BaseException:
            self.close()
            raise

    def _subscribe(self) -> None:
        r = self.reader
        data: dict[str, Any] = {"stream": r.stream, "partitions": r.partitions, "from": r.start, "skip": r.skip}
        data |= {"namespace": r.config.namespace, "consumer": r.consumer, "incarnation": r.incarnation}
        if r.next_offset:
            which = r.partitions or sorted(r.next_offset)
            data |= {"partitions": which, "offsets": [r.next_offset[n] for n in which], "from": ""}
        request = {"id": 1, "func": "subscribe", "data": {k: v for k, v in data.items() if v}}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        fds: list[int] = []
        try:
            self._adopt(self._answer(fds), fds)
        except (KeyError, TypeError) as e:
            raise Garbage(f"what answers is no node server that passes memory: {e!r:.40}") from None
        finally:
            for fd in fds:
                os.close(fd)

    def _adopt(self, answer: dict[str, Any], fds: list[int]) -> None:
        """Map the memory that the server has passed."""
        r, partitions = self.reader, answer["partitions"]
        if not partitions or len(fds) != answer["descriptors"] or len(fds) != 1 + len(partitions):
            raise Garbage(f"{len(fds)} descriptors came")
        self.cursor = Cursor(fds[0])
        if self.cursor.cells != len(partitions):
            raise Garbage(f"a cursor page of {self.cursor.cells} cells, not {len(partitions)}")
        self.incarnation = r.incarnation = answer["incarnation"]
        for cell, told in enumerate(partitions):
            part = _Part(told, cell, fds[1 + cell])
            self.parts.append(part)
            r.begins(part.number, part.skip, _number(told.get("missed", 0)))

    def _answers(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the complete answers in the received bytes."""
        self.buffer += data
        while b"\n" in self.buffer:
            line, _, self.buffer = self.buffer.partition(b"\n")
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                answer = None
            if not isinstance(answer, dict) or not isinstance(answer.get("error", {}), dict):
                raise Garbage("what answers is no node server")
            yield answer
        if len(self.buffer) > MAX_ANSWER:
            raise Garbage("an answer without an end")

    def _answer(self, fds: list[int]) -> dict[str, Any]:
        """Return the answer to the subscription. Its file descriptors are appended to fds."""
        self.buffer = b""
        room = socket.CMSG_SPACE(4 * (1 + MAX_PARTITIONS))
        while True:
            data, messages, _, _ = self.socket.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in messages:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    got = array.array("i")
                    got.frombytes(content[: len(content) // 4 * 4])
                    fds += got
            if not data:
                raise ConnectionResetError("the node's server ended the connection")
            if len(fds) > 1 + MAX_PARTITIONS:
                raise Garbage("more descriptors than there may be")
            for answer in self._answers(data):
                if "error" in answer:
                    raise node.errors.error_of(answer["error"])
                if answer.get("id") == 1:
                    found: dict[str, Any] = answer["data"]
                    return found

    def _ended(self) -> Exception | None:
        """The reason why the subscription has ended, or None."""
        assert self.cursor is not None
        for _ in range(16):  # the limit is 16 messages; the next check processes further ones
            if not select.select([self.socket], [], [], 0)[0]:
                break
            try:
                data = self.socket.recv(1 << 16)
            except OSError as e:
                return e
            if not data:
                return ConnectionResetError("the node's server ended the connection")
            for answer in self._answers(data):
                if "error" in answer:
                    return node.errors.error_of(answer["error"])
        return None

    def read(self, deadline: float | None) -> Batch | None:
        """The next batch; None: there was none in time."""
        assert self.cursor is not None
        while True:
            if (batch := self.look()) is not None:
                return batch
            bell = self.cursor.bell()
            self.cursor.waiting(True)
            try:
                if (batch := self.look()) is not None:
                    return batch
                if (ended := self._ended()) is not None:
                    if (batch := self.look()) is not None:
                        # there may be records from before the end
                        return batch
                    raise ended
                left = SLEEP if deadline is None else min(SLEEP, deadline - time.monotonic())
                if left <= 0:
                    return None
                self.reader.go_on()
                self.cursor.sleep(bell, left)
            finally:
                self.cursor.waiting(False)

    def look(self) -> Batch | None:
        """The next batch, or None if there is no new record."""
        for _ in self.parts:
            part = self.parts[self.turn]
            self.turn = (self.turn + 1) % len(self.parts)
            if (batch := self._look_at(part)) is not None:
                return batch
        return None

    def _look_at(self, p: _Part) -> Batch | None:
        r, s = self.reader, p.segment
        # Each round reads another object. More rounds than objects are needed only if the memory
        # changes meanwhile. In that case the bell rings, so a reader that finds no record does not
        # go to sleep.
        for _ in range(s.objects + 2):
            begun = s.begun()
            if p.object >= begun:
                return None
            found = s.look(p.object)
            if found is None:
                self._moved_on(p)
                continue
            first, begin, end, count = found
            at, offset = begin + p.at, p.offset if p.at else first
            records: list[Record] = []
            while at + RECORD.size <= end:
                length, _, mark, when = RECORD.unpack_from(s.bytes, at)
                data = s.bytes[at + RECORD.size : at + RECORD.size + length]
                if at + RECORD.size + length > end:
                    break  # the object was overwritten while it was being read, or is invalid
                at += RECORD.size + (length + 7) // 8 * 8
                if offset < p.skip:
                    offset += 1
                    continue
                records.append(Record(bytes(data) if r.skip else data, mark, when / 1e9))
            if not s.valid(p.object):
                # the node may already have reused the memory for another object
                self._moved_on(p)
                continue
            if at != end or offset + len(records) - first != count:
                raise Garbage("an object has no records where it says so")
            if first >= 1 << 63 or (p.at == 0 and first < p.offset):
                raise Garbage("offsets go back")
            p.at, p.offset = at - begin, offset + len(records)
            if records:
                missed, release = r.missed(p.number, offset), self._release(p, p.object, offset, p.offset)
                return Batch(self.incarnation, p.number, offset, records, missed, release, self._hold(p))
            if p.object + 1 >= begun:
                return None
            # The value begun was read before the object, so the object is complete, and all of it
            # was read.
            p.object, p.at = p.object + 1, 0
            self._let_go(p)
        return None

    def _moved_on(self, p: _Part) -> None:
        """Continue at the newest object, because the present one was overwritten."""
        p.object, p.at = max(p.object + 1, p.segment.begun() - 1), 0
        self._let_go(p)

    def _release(self, p: _Part, number: int, first: int, following: int) -> Callable[[], None]:
        def release() -> None:
            if self.cursor is None:
                return  # the connection has ended, and these records will be read again
            if not self.reader.skip and not p.segment.valid(number):
                # These records will be reported as missed. Records that were missed before them are
                # already reported.
                self.reader.next_offset[p.number] = first
                raise Overrun("the reader was too slow")
            self.reader.next_offset[p.number] = following
            self._let_go(p)

        return release

    def _hold(self, p: _Part) -> Callable[[], Hold | None]:
        number = p.object
        return lambda: None if self.reader.skip else Hold(self, p, number)

    def pin(self, p: _Part, number: int) -> None:
        """Hold an object."""
        with self.pinning:
            p.pins[number] = p.pins.get(number, 0) + 1
            self.pinned += 1

    def unpin(self, p: _Part, number: int) -> None:
        """End one hold of an object. If it was the last hold, release the object."""
        with self.pinning:
            self.pinned -= 1
            p.pins[number] -= 1
            if p.pins[number] == 0:
                del p.pins[number]
                if self.cursor is not None:
                    self._let_go(p)
            if self.closing and self.pinned == 0:
                self._close()

    def _let_go(self, p: _Part) -> None:
        assert self.cursor is not None
        with self.pinning:
            # Objects that the node has overwritten are no longer held.
            held = min((n for n in p.pins if p.segment.valid(n)), default=p.object)
            self.cursor.let_go(p.cell, min(held, p.object), self.reader.next_offset[p.number])

    def close(self) -> None:
        """Release the memory, at once or when the last hold ends."""
        with self.pinning:
            self.closing = True
            if self.pinned == 0:
                self._close()

    def _close(self) -> None:
        self.socket.close()
        if self.cursor is not None:
            self.cursor.close()
            self.cursor = None
        for p in self.parts:
            p.segment.close()
        self.parts = []


class _Pull:
    """Requests records from one partition after another. If there are no records, it waits."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        c = reader.config
        self.client = node.connect(c.socket, c.namespace, wait=c.wait)
        try:
            told = self.client.open_stream(reader.stream)
        except BaseException:
            self.close()
            raise
        self.partitions = reader.partitions or list(range(len(told["partitions"])))
        reader.incarnation = reader.incarnation or told["incarnation"]
        self.turn = 0
        try:
            # These requests make the node keep the records that the consumer has not read.
            for n in self.partitions if reader.consumer else ():
                answer = self._ask(n, maxRecords=1)
                reader.begins(n, answer["offset"], answer.get("missed", 0))
        except BaseException:
            self.close()
            raise

    def _ask(self, n: int, **how: Any) -> dict[str, Any]:
        r = self.reader
        begin = {"from": r.start} if n not in r.next_offset else {"offset": r.next_offset[n]}
        how |= {"incarnation": r.incarnation, "consumer": r.consumer, "maxBytes": r.batch_bytes}
        return self.client.read_stream(r.stream, n, **begin, **how)

    def read(self, deadline: float | None) -> Batch | None:
        """The next batch; None: there was none in time."""
        r, empty = self.reader, 0
        while True:
            n = self.partitions[self.turn]
            self.turn = (self.turn + 1) % len(self.partitions)
            left = WAIT_MS if deadline is None else max(0, min(WAIT_MS, int((deadline - time.monotonic()) * 1000)))
            # While the reader waits for one partition, it cannot read the others, so it waits only
            # briefly for each.
            wait = left if len(self.partitions) == 1 else min(left, 20)
            look = empty < len(self.partitions) > 1  # ask each partition once before waiting
            answer = self._ask(n, waitMs=0 if look else wait)
            if records := [_record(x) for x in answer["records"]]:
                following: int = answer["next"]

                def release(n: int = n, following: int = following) -> None:
                    r.next_offset[n] = following

                return Batch(answer["incarnation"], n, answer["offset"], records, answer.get("missed", 0), release)
            r.begins(n, answer["offset"], answer.get("missed", 0))
            empty += 1
            r.go_on()
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def close(self) -> None:
        """Publish the consumer's position, and disconnect."""
        r = self.reader
        if r.consumer:
            with contextlib.suppress(node.NodeError):
                for n in r.next_offset:
                    self._ask(n, maxRecords=1, timeout=1.0)
        with contextlib.suppress(node.NodeError):
            self.client.close(0.5)


def _record(data: dict[str, Any]) -> Record:
    coded = data.get("valueBase64")
    value = base64.b64decode(coded) if coded is not None else data.get("value", "").encode()
    return Record(value, data.get("mark", 0), data["time"] / 1e6)
