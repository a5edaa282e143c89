# SPDX-License-Identifier: Apache-2.0
"""If a server passes invalid memory, readers report an error, read nothing else, and end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from netcraq import node, streams
from netcraq.streams.memory import HEADER_BYTES, Garbage

OBJECT, OBJECTS = 1024, 4
OBJECT0, OBJECT1 = HEADER_BYTES, HEADER_BYTES + OBJECT
RECORD0, RECORD1 = OBJECT0 + 64, OBJECT0 + 64 + 32
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
PATIENCE = 30.0


class Hostile:
    """A server whose memory is valid until a test changes it. It has an object with the records
    "ab" and "cd", and an object with the record "ef".
    """

    def __init__(self) -> None:
        self.segment = bytearray(HEADER_BYTES + OBJECTS * OBJECT)
        struct.pack_into("<8sIIII", self.segment, 0, b"NCSEG001", 1, HEADER_BYTES, OBJECT, OBJECTS)
        self.word(64, 2)
        for i, (first, records) in enumerate([(0, [b"ab", b"cd"]), (2, [b"ef"])]):
            at = HEADER_BYTES + i * OBJECT
            struct.pack_into("<QQQ", self.segment, at, i, first, 32 * len(records) << 32 | len(records))
            for j, data in enumerate(records):
                struct.pack_into("<I20x2s", self.segment, at + 64 + 32 * j, 2, data)
        for i in range(2, OBJECTS):
            self.word(HEADER_BYTES + i * OBJECT, 2**64 - 1)
        self.cursor = bytearray(4096)
        struct.pack_into("<8sI", self.cursor, 0, b"NCCUR001", 1)
        self.told: Any = {"partition": 0, "bytes": len(self.segment), "generation": "1", "object": 0, "offset": 0}
        self.answer: Any = {"id": 1, "data": {"descriptors": 2, "incarnation": "i", "partitions": [self.told]}}
        self.text: bytes | None = None  # if set, replaces the server's answer
        self.passed = 2
        self.sealed = True

    def word(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self.segment, at, value)

    def half(self, at: int, value: int) -> None:
        struct.pack_into("<I", self.segment, at, value)

    def _file(self, content: bytes) -> int:
        fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
        os.write(fd, content)
        if self.sealed:
            fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
        return fd

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Answer one subscription, and wait until the reader has disconnected."""
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(place, "s")
            listener.bind(path)
            listener.listen()

            def serve() -> None:
                with contextlib.suppress(OSError):
                    s, _ = listener.accept()
                    with s:
                        s.recv(1 << 16)
                        fds = [self._file(c) for c in (self.cursor, self.segment, self.segment)]
                        text = json.dumps(self.answer).encode() + b"\n" if self.text is None else self.text
                        socket.send_fds(s, [text[:1]], fds[: self.passed])
                        for fd in fds:
                            os.close(fd)
                        s.sendall(text[1:])
                        s.recv(1)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            yield path
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)

    def read(self, **how: Any) -> list[bytes]:
        """Read until no more records come."""
        got = []
        timeout = contextlib.suppress(node.Timeout)
        with self.serving() as path, streams.read("s", socket=path, wait=0.0, **how) as reader, timeout:
            while True:
                got += [bytes(r.data) for _, r in reader.next(0.02)]
        return got


def test_what_is_right_is_read() -> None:
    assert Hostile().read() == Hostile().read(skip=True) == [b"ab", b"cd", b"ef"]


GARBAGE: dict[str, Callable[[Hostile], Any]] = {
    "another magic": lambda h: h.word(0, 0),
    "another layout": lambda h: h.half(8, 2),
    "another header": lambda h: h.half(12, 8192),
    "objects of no power of two": lambda h: h.half(16, 1032),
    "objects of no size": lambda h: h.half(16, 0),
    "more objects than there are": lambda h: h.half(20, 5),
    "2^32-1 objects": lambda h: h.half(20, 2**32 - 1),
    "no objects": lambda h: h.half(20, 0),
    "objects as large as all": lambda h: (h.half(16, OBJECTS * OBJECT), h.half(20, 1)),
    "a file that is shorter": lambda h: h.segment.__delitem__(slice(HEADER_BYTES, None)),
    "an empty file": lambda h: h.segment.clear(),
    "a file that can be made shorter": lambda h: setattr(h, "sealed", False),
    "a length of nothing": lambda h: h.told.update(bytes=0),
    "a length below nothing": lambda h: h.told.update(bytes=-4096),
    "a length of 2^62": lambda h: h.told.update(bytes=2**62),
    "a length of 2^80": lambda h: h.told.update(bytes=2**80),
    "a length that is none": lambda h: h.told.update(bytes="x"),
    "an object below nothing": lambda h: h.told.update(object=-1),
    "an object that is none": lambda h: h.told.update(object="x"),
    "an offset of 2^64": lambda h: h.told.update(offset=2**64),
    "an offset that is missing": lambda h: h.told.pop("offset"),
    "an object larger than objects are": lambda h: h.word(OBJECT0 + 16, 961 << 32 | 2),
    "an object of 2^32-1 bytes": lambda h: h.word(OBJECT0 + 16, 2**64 - 1),
    "a record beyond its object": lambda h: h.half(RECORD1, 9),
    "a record of 2^32-1 bytes": lambda h: h.half(RECORD0, 2**32 - 1),
    "half a record": lambda h: h.word(OBJECT0 + 16, 72 << 32 | 2),
    "half a record behind those that were read": lambda h: (
        h.word(OBJECT0 + 16, 72 << 32 | 2),
        h.told.update(offset=2),
    ),
    "no records, but bytes": lambda h: h.half(RECORD0, 1000),
    "more records than it says": lambda h: h.word(OBJECT0 + 16, 64 << 32 | 1),
    "fewer records than it says": lambda h: h.word(OBJECT0 + 16, 64 << 32 | 3),
    "an offset below nothing": lambda h: h.word(OBJECT0 + 8, 2**64 - 7),
    "an object whose offsets go back": lambda h: h.word(OBJECT1 + 8, 1),
    "the newest object with half a record": lambda h: h.word(OBJECT1 + 16, 40 << 32 | 1),
    "another cursor page": lambda h: h.cursor.__setitem__(0, 0),
    "a cursor page of 2 cells": lambda h: h.cursor.__setitem__(8, 2),
    "a cursor page of 2^32-1 cells": lambda h: h.cursor.__setitem__(slice(8, 12), b"\xff" * 4),
    "a short cursor page": lambda h: h.cursor.__delitem__(slice(100, None)),
    "an empty cursor page": lambda h: h.cursor.clear(),
    "no descriptor of memory": lambda h: setattr(h, "passed", 1),
    "a descriptor too many": lambda h: setattr(h, "passed", 3),
    "no partition": lambda h: h.answer["data"].update(partitions=[]),
    "partitions that are none": lambda h: h.answer["data"].update(partitions=7),
    "a partition that is none": lambda h: h.answer["data"].update(partitions=[7]),
    "data that are none": lambda h: h.answer.update(data=7),
    "an error that is none": lambda h: h.answer.update(error=7),
    "another protocol": lambda h: setattr(h, "text", b"HTTP/1.1 400 Bad Request\n"),
    "a list": lambda h: setattr(h, "text", b"[]\n"),
    "lists in lists": lambda h: setattr(h, "text", b"[" * 60_000 + b"\n"),
    "an answer without an end": lambda h: setattr(h, "text", b"x" * (4 << 20)),
    "no UTF-8": lambda h: setattr(h, "text", b'"\xff"\n'),
}

# Each case runs in its own process, because a defective reader may hang or be killed by SIGBUS.
ALONE = """
import faulthandler, sys
sys.path.insert(0, sys.argv[1])
faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
import test_streams_hostile as t
for name, change in t.GARBAGE.items():
    for how in ({}, {"skip": True}):
        faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
        hostile = t.Hostile()
        change(hostile)
        try:
            print("WRONG", name, how, "was read as", hostile.read(**how))
        except t.Garbage:
            print("garbage", name)
        except Exception as e:
            print("WRONG", name, how, repr(e))
"""


def test_garbage() -> None:
    command = [sys.executable, "-c", ALONE, str(Path(__file__).parent), str(PATIENCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE)
    wrong = [line for line in done.stdout.splitlines() if not line.startswith("garbage ")]
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
    assert wrong == []
    assert len(done.stdout.splitlines()) == 2 * len(GARBAGE)


@pytest.mark.parametrize("number", [2**64 - 1, 2**63 - 1, 2**63, 2**32])
def test_numbers_that_cannot_be(number: int) -> None:
    hostile = Hostile()
    hostile.word(64, number)
    assert hostile.read() == [b"ab", b"cd", b"ef"]
    hostile = Hostile()
    hostile.word(OBJECT0, number)
    assert hostile.read() == [b"ef"]


def test_any_bytes() -> None:
    """Whatever the memory contains, only documented exceptions are raised."""
    drawn, refused = random.Random(18), 0
    for i in range(100):
        hostile = Hostile()
        for _ in range(1 + i % 4):
            area, at = drawn.choice(
                [
                    (hostile.segment, OBJECT0 + drawn.randrange(OBJECT // 4)),
                    (hostile.segment, drawn.randrange(96)),
                    (hostile.cursor, drawn.randrange(96)),
                ]
            )
            area[at] = drawn.randrange(256)
        try:
            hostile.read()
        except (Garbage, streams.Overrun):
            refused += 1
    assert 10 < refused < 100
