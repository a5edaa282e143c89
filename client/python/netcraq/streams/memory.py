# SPDX-License-Identifier: Apache-2.0
"""The memory that a node shares with programs. It has segments, cursor pages, and futexes
(docs/streams.md)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
import sys
import threading
import time
from dataclasses import dataclass

HEADER_BYTES = 4096
OBJECT_HEADER_BYTES = 64
RECORD = struct.Struct("<II QQ")
CURSOR_BYTES = 4096
MAX_PARTITIONS = 32
OBJECT_SIZES = [1 << n for n in range(10, 21)]
MIN_OBJECTS, MAX_OBJECTS = 4, 1 << 16
# Python before 3.14 does not define these.
F_GET_SEALS, F_SEAL_SHRINK = 1034, 2

# These are positions of fields. Those in the segment's header, in an object's header and in a cell
# of the cursor page are in units of 8 bytes. Those in the cursor page's own header are in units of
# 4 bytes.
BEGUN, ENDED = 8, 9
NUMBER, FIRST, STATE = 0, 1, 2
HELD, NEXT, WANT = 0, 1, 2
BELL, WAITING = 16, 17
CELL, CELL_BYTES, FREED = 128, 64, 24

FUTEX_WAIT, FUTEX_WAKE = 0, 1
# FUTEX is the number of the system call futex, which Python does not define.
FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}.get(platform.machine())


class Garbage(Exception):
    """The passed memory is not that of a stream."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a stream. With push, ``data`` is in the node's memory, and is valid until the
    batch is released. ``mark`` is a number that the producer has set. ``time`` is when the record
    was appended, as a Unix time in seconds.
    """

    data: bytes | memoryview
    mark: int
    time: float


def mapped(fd: int, size: int, prot: int) -> mmap.mmap:
    """Map a file. It must have the stated length, and be sealed so that its length cannot change.
    Without the seal, another process could shorten the file, and a program that reads beyond its
    end is killed by SIGBUS.
    """
    try:
        sealed = fcntl.fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK
    except OSError:
        sealed = 0
    if not sealed or size <= 0 or os.fstat(fd).st_size != size:
        raise Garbage("a file that is shorter than it is said to be, or can be made so")
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=prot)


class Segment:
    """The memory of a partition, for reading. It may have any content, so everything read from it
    is checked."""

    def __init__(self, fd: int, size: int) -> None:
        if sys.byteorder != "little":
            raise Garbage("streams are for machines that are little-endian")
        if size < HEADER_BYTES or size % 8:
            raise Garbage("a segment that is shorter than its header")
        self._map = mapped(fd, size, mmap.PROT_READ)
        self.bytes = memoryview(self._map)
        self._words = self.bytes.cast("Q")
        magic, layout, header, self.object_bytes, self.objects = struct.unpack_from("<8sIIII", self.bytes)
        if (magic, layout, header) != (b"NCSEG001", 1, HEADER_BYTES):
            raise Garbage("this is no segment, or one of a layout that is not known")
        known = self.object_bytes in OBJECT_SIZES and MIN_OBJECTS <= self.objects <= MAX_OBJECTS
        if not known or HEADER_BYTES + self.objects * self.object_bytes != size:
            raise Garbage("a segment that is not as long as it says")

    def begun(self) -> int:
        """The number of objects that were ever begun."""
        return self._words[BEGUN]

    def slot(self, number: int) -> int:
        """The position of an object."""
        return HEADER_BYTES + number % self.objects * self.object_bytes

    def valid(self, number: int) -> bool:
        """Whether an object exists, and everything read from it so far was its own data."""
        return self._words[self.slot(number) // 8 + NUMBER] == number

    def look(self, number: int) -> tuple[int, int, int, int] | None:
        """Return an object's first offset, the present beginning and end of its records, and the
        number of records. Return None if the object does not exist.
        """
        at = self.slot(number)
        words = at // 8
        if not self.valid(number):
            return None
        state = self._words[words + STATE]
        first = self._words[words + FIRST]
        if not self.valid(number):
            return None
        used = state >> 32
        if used > self.object_bytes - OBJECT_HEADER_BYTES:
            raise Garbage("an object has more records than go into it")
        begin = at + OBJECT_HEADER_BYTES
        return first, begin, begin + used, state & 0xFFFFFFFF

    def close(self) -> None:
        """Unmap the segment, as soon as the last of its records is released."""
        self._words.release()
        with contextlib.suppress(BufferError):
            self.bytes.release()
        with contextlib.suppress(BufferError):
            # if records still use the memory, it is unmapped when the last of them is released
            self._map.close()


class Cursor:
    """The cursor page of a subscription, for its consumer."""

    def __init__(self, fd: int) -> None:
        self._map = mapped(fd, CURSOR_BYTES, mmap.PROT_READ | mmap.PROT_WRITE)
        self._view = memoryview(self._map)
        magic, self.cells = struct.unpack_from("<8sI", self._view)
        if magic != b"NCCUR001" or not 0 < self.cells <= MAX_PARTITIONS:
            raise Garbage("this is no cursor page")
        self._words = self._view.cast("Q")
        self._halves = self._view.cast("I")
        self._first = ctypes.c_uint32.from_buffer(self._map)
        self._address = ctypes.addressof(self._first)
        self._fence = threading.Lock()

    def bell(self) -> int:
        """The bell's present value."""
        return self._halves[BELL]

    def waiting(self, yes: bool) -> None:
        """Set whether the consumer is about to sleep."""
        self._halves[WAITING] = int(yes)
        with self._fence:
            # the lock acts as a memory barrier: reads after this do not return older values
            pass

    def sleep(self, bell: int, seconds: float) -> None:
        """Sleep until the bell changes."""
        futex_wait(self._address + 4 * BELL, bell, seconds)

    def let_go(self, cell: int, held: int, following: int) -> None:
        """Publish that the consumer has finished all objects before ``held``, and all records
        before ``following``."""
        words = (CELL + cell * CELL_BYTES) // 8
        self._words[words + NEXT] = following
        self._words[words + HELD] = held
        with self._fence:
            pass
        want = self._words[words + WANT]
        if want and held >= want:
            self._words[words + WANT] = 0
            freed = CELL + cell * CELL_BYTES + FREED
            self._halves[freed // 4] = (self._halves[freed // 4] + 1) & 0xFFFFFFFF
            futex_wake(self._address + freed)

    def close(self) -> None:
        """Unmap the page."""
        self._words.release()
        self._halves.release()
        self._view.release()
        del self._first
        self._map.close()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc = ctypes.CDLL(None, use_errno=True)


def _futex(address: int, what: int, value: int, timeout: _Timespec | None) -> None:
    """The system call. An interruption, or a changed word, is not an error."""
    result = _libc.syscall(
        ctypes.c_long(FUTEX or 0),
        ctypes.c_void_p(address),
        ctypes.c_int(what),
        ctypes.c_uint32(value),
        ctypes.byref(timeout) if timeout is not None else None,
        None,
        ctypes.c_uint32(0),
    )
    if result == -1 and ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def futex_wait(address: int, value: int, seconds: float) -> None:
    """Sleep while a word has the given value, at most for the given number of seconds."""
    if FUTEX is None:
        time.sleep(min(seconds, 0.001))
        return
    _futex(address, FUTEX_WAIT, value, _Timespec(int(seconds), int(seconds % 1 * 1e9)))


def futex_wake(address: int) -> None:
    """Wake all threads that sleep at a word."""
    if FUTEX is not None:
        _futex(address, FUTEX_WAKE, 1 << 30, None)
