# SPDX-License-Identifier: Apache-2.0
"""Tests of Arrow batches in streams, with the node API's server in Go."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gc
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netcraq
import pytest
from netcraq import node, streams

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install netcraq[arrow]")
from netcraq.streams import arrow, columns  # noqa: E402

PATIENCE = 60.0


@pytest.fixture()
def server(memserver_program: str) -> Iterator[str]:
    """The socket of a node API server."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "s")
        command = [memserver_program, "--socket", path, "--streams", os.path.join(place, "streams")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(line.strip() == "listening" for line in process.stdout)
            yield path
            process.kill()


@pytest.fixture()
def client(server: str) -> Iterator[node.Client]:
    with node.connect(server, timeout=PATIENCE) as made:
        yield made


ALL = pa.record_batch(
    {
        "integers": pa.array([1, 2, None]),
        "strings": pa.array(["x", "yy", None]),
        "large": pa.array(["a", None, "c"], pa.large_string()),
        "dictionary": pa.array(["u", "v", "u"]).dictionary_encode(),
        "lists": pa.array([[1], None, [2, 3]]),
        "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int16(), 2)),
        "maps": pa.array([[("a", 1)], [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
        "structs": pa.array([{"x": 1, "y": [True]}, None, {"x": 3, "y": None}]),
        "nulls": pa.nulls(3),
        "bits": pa.array([True, None, False]),
        "decimals": pa.array([decimal.Decimal("1.5")] * 3),
        "times": pa.array([datetime.datetime(2026, 1, 2, 3)] * 3, pa.timestamp("us", "UTC")),
        "uuids": pa.array([b"0" * 16] * 3, pa.uuid()),
        "bytes": pa.array([b"abc"] * 3, pa.binary(3)),
    },
)


def buffers(batch: pa.RecordBatch) -> Iterator[pa.Buffer]:
    """All non-empty buffers of a batch, except for those of dictionaries."""
    for column in batch.columns:
        yield from (b for b in column.buffers() if b is not None and b.size)


def mapped(kind: str) -> list[tuple[int, int]]:
    """The addresses at which this process maps files of a kind."""
    out = []
    with open("/proc/self/maps") as f:
        for row in f:
            if kind in row:
                begin, end = (int(x, 16) for x in row.split(maxsplit=1)[0].split("-"))
                out.append((begin, end))
    return out


def inside(batch: pa.RecordBatch, kind: str) -> bool:
    """Whether all of a batch's buffers are in files of a kind."""
    places = mapped(kind)
    return all(any(a <= b.address and b.address + b.size <= z for a, z in places) for b in buffers(batch))


SEGMENT, FILE = "netcraq-stream", "netcraq-file"


@pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])
def test_batches(server: str, client: node.Client, pull: bool) -> None:
    client.open_stream("s", {"objects": 4})
    writer = arrow.Writer(client, "s")
    want = [ALL, ALL.slice(1), ALL.slice(1, 1), ALL.slice(3)]
    with arrow.read("s", socket=server, pull=pull) as reader:
        for i in range(100):  # many times as many records as fit into the ring
            batch = want[i % len(want)]
            assert writer.append(batch) == i
            item = reader.next(PATIENCE)
            assert item.offset == i and item.batch.equals(batch) and item.batch.schema.equals(batch.schema)
            assert all(b.address % 64 == 0 for b in buffers(item.batch)) or pull
            assert inside(item.batch, SEGMENT) is not pull
            del item


def test_batch_holds_its_object(server: str, client: node.Client) -> None:
    """While a program holds a batch or one of its columns, the node cannot reuse the object that
    contains it, even if the reader continues or is closed.
    """
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "stallMs": 3_600_000})
    writer = arrow.Writer(client, "s")
    number = 0

    def fill() -> None:
        """Append batches until the next one would overwrite a held object."""
        nonlocal number
        with pytest.raises(node.NodeError):
            for _ in range(50):
                writer.append(pa.record_batch({"n": pa.array([number] * 40)}), timeout=0.5)
                number += 1

    reader = arrow.read("s", socket=server)
    writer.append(pa.record_batch({"n": pa.array([-7] * 40)}))
    first = reader.next(PATIENCE)
    kept = first.batch.column(0).slice(1)
    fill()
    for i in range(number):
        assert reader.next(PATIENCE).batch.column(0)[0].as_py() == i
    assert first.valid() and number < 50
    fill()  # the reader has released all objects but one
    reader.close()
    del first
    gc.collect()
    fill()  # the column still holds the object
    assert kept.to_pylist() == [-7] * 39 and inside(pa.record_batch({"n": kept}), SEGMENT)
    del kept, reader
    gc.collect()
    for _ in range(50):
        writer.append(pa.record_batch({"n": pa.array([number] * 40)}), timeout=PATIENCE)
    assert mapped(SEGMENT) == []


def test_batch_that_was_held_for_too_long(server: str, client: node.Client) -> None:
    """If the node has overwritten a held batch, valid and the reader report it."""
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "stallMs": 50})
    writer = arrow.Writer(client, "s")
    with arrow.read("s", socket=server) as reader:
        writer.append(pa.record_batch({"n": pa.array([-7] * 40)}))
        item = reader.next(PATIENCE)
        assert item.valid()
        for i in range(10):
            writer.append(pa.record_batch({"n": pa.array([i] * 40)}), timeout=PATIENCE)
        assert not item.valid()
        with pytest.raises(streams.Overrun):
            reader.next(PATIENCE)
        del item
        gc.collect()
        with pytest.raises(streams.Overrun):
            reader.next(PATIENCE)
        assert reader.next(PATIENCE).valid()


def record(batch: pa.RecordBatch) -> bytearray:
    """The bytes of a batch's record."""
    return bytearray(columns.Encoder(batch, lambda address, size: None).record())


def no_file(files: list[tuple[bytes, int]]) -> list[pa.Buffer]:
    raise columns.Garbage("there is no file")


def refused(data: bytes, open_files: columns.Open = no_file) -> None:
    with pytest.raises(columns.Garbage):
        columns.decode(bytes(data), None, open_files, False)


def test_hostile_records() -> None:
    """Every record, valid or not, is either decoded or refused, and only its own bytes are read."""
    for data in (b"", b"x" * 39, b"x" * 400, columns.MAGIC):
        refused(data)
    good = record(ALL)
    for n in range(0, len(good), 41):
        refused(good[:n])
    # Put extreme values into every field of every table.
    counts = columns.HEADER.unpack_from(good)
    tables = columns.HEADER.size + counts[2] * columns.NODE.size + counts[3] * columns.BUFFER.size
    for at in range(8, tables, 4):
        for value in (0, 0x7FFFFFFF, 0xFFFFFFFF):
            bad = bytearray(good)
            struct.pack_into("<I", bad, at, value)
            try:
                got = columns.decode(bytes(bad), None, no_file, False)
            except columns.Garbage:
                continue
            got.to_pylist()  # if the record is decoded, it must be a valid batch
    # Put an extreme value into every offset and index in buffers.
    for batch in (
        pa.record_batch({"s": pa.array(["x" * 9, "y"])}),
        pa.record_batch({"l": pa.array([[1, 2], [3]])}),
        pa.record_batch({"d": pa.array(["u", "v"]).dictionary_encode()}),
    ):
        good = record(batch)
        found = 0
        header = columns.HEADER.unpack_from(good)
        for at in range(len(good) - header[6], len(good), 4):
            bad = bytearray(good)
            struct.pack_into("<I", bad, at, 0x7FFFFFF0)
            try:
                columns.decode(bytes(bad), None, no_file, False).to_pylist()
            except columns.Garbage:
                found += 1
        assert found


def test_decimals() -> None:
    """The text of a decimal grows with its scale, so scales that are greater than the type's number
    of digits are refused.
    """
    good, bad = (pa.record_batch({"d": pa.nulls(1, pa.decimal128(10, scale))}) for scale in (9, 39))
    assert columns.decode(bytes(record(good)), None, no_file, False).equals(good)
    with pytest.raises(TypeError):
        record(bad)
    changed = record(good)
    struct.pack_into("<ii", changed, changed.index(struct.pack("<ii", 10, 9)), 10, 1 << 20)
    refused(bytes(changed))


def test_the_same_many_times() -> None:
    """The time to check a record is proportional to its size, not to the number of references to
    one buffer.
    """

    text = pa.array(["a", "bc"] * 5000)

    def many(n: int) -> bytes:
        of = columns.Encoder(pa.record_batch({"s": text}), lambda address, size: None)
        of.batch = pa.record_batch([text] * n, [str(i) for i in range(n)])
        of._nodes, of._buffers = of._nodes * n, of._buffers * n
        return of.record()

    got = columns.decode(many(60), None, no_file, False)
    assert got.num_columns == 60 and got.column(59).equals(text)
    refused(many(600))
    # The writer refuses a batch that readers would refuse.
    column = pa.array(range(1000))
    piece = columns.Piece(b"f" * 16, 8000, 0)
    columns.Encoder(pa.record_batch([column] * 64, [str(i) for i in range(64)]), lambda address, size: piece)
    with pytest.raises(TypeError):
        columns.Encoder(pa.record_batch([column] * 65, [str(i) for i in range(65)]), lambda address, size: piece)


def test_other_libraries(server: str, client: node.Client) -> None:
    """Libraries that accept Arrow data read batches in place."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    client.open_stream("s", {"objects": 4})
    arrow.Writer(client, "s").append(pa.record_batch({"n": pa.array([1, 2, 3])}))
    with arrow.read("s", socket=server) as reader:
        batch = reader.next(PATIENCE).batch
        read = pa.Table.from_batches([batch])  # noqa: F841 (DuckDB finds it by its name)
        assert duckdb.sql("select sum(n) from read").fetchall() == [(6,)]


VOLATILE = {"objects": 4, "volatile": True}


@pytest.fixture()
def files(server: str) -> Iterator[arrow.Files]:
    with arrow.Files(server, timeout=PATIENCE) as made:
        yield made


def shared_kb(kind: str) -> tuple[int, int]:
    """How many KiB of the mapped files of a kind are in memory. The first number counts this
    process's private copies of pages, and the second one counts pages of the files.
    """
    own = of_file = 0
    ours = False
    with open("/proc/self/smaps") as f:
        for row in f:
            first, *rest = row.split()
            if not first.endswith(":"):
                ours = kind in row
            elif ours and first in ("Anonymous:", "Rss:"):
                own += int(rest[0]) if first == "Anonymous:" else 0
                of_file += int(rest[0]) if first == "Rss:" else 0
    return own, of_file


def test_chain(server: str, client: node.Client, files: arrow.Files) -> None:
    """A batch passes through steps that project it, slice it, and add a column. No step copies
    existing data, and all steps have the same memory.
    """
    steps = 4
    for i in range(steps + 1):
        client.open_stream(f"step-{i}", VOLATILE)
    rows = 20_000
    draft = files.make(8 * rows)
    numbers = draft.memory.cast("q")
    for i in range(0, rows, 1000):
        numbers[i] = i
    numbers.release()
    column = pa.Array.from_buffers(pa.int64(), rows, [None, draft.seal().buffer])
    words = pa.array([f"w{i % 7}" for i in range(rows)]).dictionary_encode()
    first = pa.record_batch({"n": column, "w": words, "s": pa.array([str(i) for i in range(rows)])})
    arrow.Writer(client, "step-0", files=files).append(first)
    assert files.shared == 8 * rows  # the batch was built in a file, so it was not copied
    copied = files.copied
    values = first.to_pydict()
    del first, column
    for i in range(steps):  # each step has its own client
        with (
            arrow.Files(server) as own,
            arrow.read(f"step-{i}", socket=server, files=own) as reader,
        ):
            batch = reader.next(PATIENCE).batch
            assert batch.to_pydict() == values and inside(batch, FILE)
            want = batch.select(batch.schema.names[::-1]).slice(1000)
            if i == 1:
                want = want.append_column("new", pa.array([i] * want.num_rows, pa.int8()))
            arrow.Writer(client, f"step-{i + 1}", files=own).append(want)
            assert own.copied == (want.num_rows if i == 1 else 0)
            assert own.shared > 8 * want.num_rows
            values = want.to_pydict()
            del batch, want
            gc.collect()
    with arrow.read(f"step-{steps}", socket=server, files=files) as reader:
        batch = reader.next(PATIENCE).batch
        assert batch.to_pydict() == values and inside(batch, FILE)
        own_pages, of_file = shared_kb(FILE)
        assert own_pages == 0 and of_file * 1024 >= 8 * batch.num_rows
    assert files.copied == copied
    kept = batch.column("n")
    for i in range(steps + 1):
        client.delete_stream(f"step-{i}")
    del batch, reader
    gc.collect()
    # the column is valid after its reader and its stream are gone
    assert kept.to_pylist()[0] == 1000 * steps
    del kept
    gc.collect()
    assert mapped(FILE) == []


def test_nothing_is_left_unread(server: str) -> None:
    """After files were released, no answers of the server are unread."""
    with arrow.Files(server, timeout=PATIENCE) as files:
        for i in range(50):
            made = files.make(64).seal(f"k:{i}")
            again = files.open(made.name)
            assert again is made
            del made, again
        gc.collect()
        assert not select.select([files._socket], [], [], 0.2)[0] and not files._buffer and not files._ended
        assert mapped(FILE) == []


@pytest.mark.parametrize(
    "said, passed",
    [
        (b"x" * 4096, 0),
        (b" ", 2),
        (b"[" * 60_000 + b"\n", 0),
        (b"[]\n", 0),
        (b'{"id":1,"data":7}\n', 0),
        (b'{"id":1,"data":{"descriptors":2}}\n', 0),
        (b'{"id":1,"data":{"descriptors":"2"}}\n', 2),
    ],
    ids=["no end", "descriptors without end", "lists in lists", "a list", "a number", "too few", "a string"],
)
def test_hostile_server(said: bytes, passed: int) -> None:
    """A client disconnects from a server that sends invalid answers, and leaves no file descriptor
    open.
    """
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(place, "s"))
        listener.listen()

        def serve() -> None:
            s, _ = listener.accept()
            with s, contextlib.suppress(OSError):
                s.recv(1 << 16)
                for _ in range(1000):
                    socket.send_fds(s, [said], [0] * passed) if passed else s.sendall(said)
                while s.recv(1 << 16):
                    pass

        before = len(os.listdir("/proc/self/fd"))
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with (
            arrow.Files(os.path.join(place, "s"), timeout=PATIENCE) as files,
            pytest.raises((node.Unavailable, columns.Garbage)),
        ):
            files.make(1)
        thread.join(PATIENCE)
        assert not thread.is_alive() and len(os.listdir("/proc/self/fd")) <= before


def test_files_are_given_back(server: str, client: node.Client, files: arrow.Files) -> None:
    """Files are deleted when no record refers to them and no program holds them."""
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "volatile": True})
    writer = arrow.Writer(client, "s", files=files, inline=0)
    names = []
    for i in range(20):
        _, used = files.write(pa.record_batch({"n": pa.array([i] * 1000)}))
        assert writer.append(pa.record_batch({"n": pa.array([i] * 1000)})) == i
        names.append(used[0].name)
        del used
    with pytest.raises(node.InvalidArgument):  # no record refers to the file
        files.open(names[-1])
    with arrow.Files(server) as other, arrow.read("s", socket=server, files=other) as reader:
        got = []
        while not got or got[-1] < 19:
            got.append(reader.next(PATIENCE).batch.column(0)[0].as_py())
        # the ring has already overwritten the earliest records
        assert got[0] > 0 and got == list(range(got[0], 20))


class Asked(arrow.Files):
    """Like Files, but counts the requests."""

    def __init__(self, where: str) -> None:
        super().__init__(where, timeout=PATIENCE)
        self.asked: list[tuple[str, int, int]] = []

    def _exchange(self, func: str, data: dict[str, Any]) -> tuple[int, dict[str, Any], list[int]]:
        self.asked.append((func, len(data.get("files", ())), len(data.get("giveBack", ()))))
        return super()._exchange(func, data)


def gone(where: str, name: str) -> bool:
    """Whether the node no longer has the file."""
    with arrow.Files(where, timeout=PATIENCE) as other:
        try:
            other.open(name)
        except node.InvalidArgument:
            return True
    return False


def test_many_files_at_once(server: str, files: arrow.Files) -> None:
    """One request opens all files of a record, and gives back released files."""
    columns_of = [pa.array(range(n, n + 1000)) for n in range(3)]
    used = []
    for n, column in enumerate(columns_of):
        data, made = files.write(pa.record_batch({f"c{n}": column}))
        used.append((files.read(data, None, False), made))
    together = pa.record_batch([batch.column(0) for batch, _ in used], ["a", "b", "c"])
    data, made = files.write(together)
    assert len(made) == 3
    with Asked(server) as other:
        for _ in range(5):
            got = other.read(data, None, False)
            assert got.equals(together) and inside(got, FILE)
            del got
            gc.collect()
        assert other.asked == [("openFiles", 3, 0), *[("openFiles", 3, 3)] * 4]
        twice = [other.open(made[0].name), *other.open_all([made[1].name, made[0].name, made[0].name])]
        assert twice[0] is twice[2] is twice[3]
        assert other.asked[5:] == [("openFiles", 1, 3), ("openFiles", 1, 0)]


def test_older_servers(server: str, files: arrow.Files) -> None:
    """A server without openFiles gets one request for each file."""

    class Older(Asked):
        def _exchange(self, func: str, data: dict[str, Any]) -> tuple[int, dict[str, Any], list[int]]:
            return super()._exchange({"openFiles": "openFilez"}.get(func, func), data)

    names = [files.make(64).seal("a" * (n + 1)).name for n in range(3)]
    with Older(server) as other:
        for _ in range(2):
            opened = other.open_all(names)
            assert [mapped.name for mapped in opened] == names
            del opened
            gc.collect()
        funcs = [func for func, _, _ in other.asked]
        assert (funcs.count("openFilez"), funcs.count("openFile"), funcs.count("cancel")) == (1, 6, 6)


def test_unused_files_are_given_back(server: str) -> None:
    """The node holds only a few of the files that a program has released, and only a few bytes of
    them. After give_back it holds none of them.
    """
    with arrow.Files(server, timeout=PATIENCE) as maker, Asked(server) as other:
        sizes = [64] * 40
        names = []
        for size in [*sizes, 48 << 20]:
            draft = maker.make(size)
            name = draft.name
            held = draft.seal()
            other.open(name)  # the result is dropped at once, which releases the file
            del draft, held
            names.append(name)
        gc.collect()
        assert sum(n for _, _, n in other.asked) >= len(sizes) - 16
        assert gone(server, names[-1])  # the last file is large, so it was given back immediately
        other.give_back()
        assert sum(n for _, _, n in other.asked) == len(names)
        assert all(gone(server, name) for name in names)
        before = len(other.asked)
        other.give_back()
        assert len(other.asked) == before and not other._buffer


def test_reader_that_waits_holds_nothing(server: str, client: node.Client, files: arrow.Files) -> None:
    """A reader gives back released files before it waits for more records."""
    client.open_stream("s", VOLATILE)
    writer = arrow.Writer(client, "s", files=files, inline=0)
    with Asked(server) as other, arrow.read("s", socket=server, files=other) as reader:
        for n in range(3):
            writer.append(pa.record_batch({"n": pa.array([n] * 1000)}))
            assert reader.next(PATIENCE).batch.column(0)[0].as_py() == n
        gc.collect()
        with pytest.raises(node.Timeout):
            reader.next(0.01)
        assert sum(n for _, _, n in other.asked) == sum(n for _, n, _ in other.asked) == 3


def test_hostile_references(server: str, client: node.Client, files: arrow.Files) -> None:
    """References to a file that does not exist, is not sealed, belongs to another namespace, or is
    too short are refused.
    """
    client.open_stream("s", VOLATILE)
    client.open_stream("kept", {"objects": 4})
    client.open_stream("s", VOLATILE, namespace="others")
    batch = pa.record_batch({"n": pa.array(range(1000))})
    data, used = files.write(batch)
    name = used[0].name
    draft = files.make(4096)
    for stream, namespace, named in (
        ("s", "", "0" * 32),
        ("s", "", "../" + name),
        ("s", "", draft.name),  # this file is not sealed
        ("s", "others", name),
        ("kept", "", name),
    ):
        with pytest.raises(node.InvalidArgument):
            client.append(stream, [data], files=[name, named], namespace=namespace)
    with pytest.raises(node.InvalidArgument):
        client.append("s", [data], files=[name] * 65)
    with pytest.raises(node.InvalidArgument):
        files.open(draft.name)
    # A file cannot be sealed while it is still mapped for writing by a memoryview.
    other = memoryview(draft.memory)
    with pytest.raises(BufferError):
        draft.seal()
    other.release()
    draft.seal()
    # A record in another namespace may contain the file's name without declaring it, but its
    # readers do not get the file.
    client.append("s", [data], namespace="others")
    with arrow.read("s", socket=server, namespace="others") as reader, pytest.raises(node.InvalidArgument):
        reader.next(PATIENCE)
    # These are references beyond the end of the file, or with a wrong length.
    counts = columns.HEADER.unpack_from(data)
    at = columns.HEADER.size + counts[4] * columns.FILE.size + counts[2] * columns.NODE.size
    places = [at + i * columns.BUFFER.size for i in range(counts[3])]
    for place in places:
        if struct.unpack_from("<I", data, place)[0] == columns.ABSENT:
            continue
        for offset, size in ((64, 8000), (1 << 62, 8000), (0, 8064), (0, 1 << 63), ((1 << 64) - 8, 16)):
            bad = bytearray(data)
            struct.pack_into("<QQ", bad, place + 8, offset, size)
            with pytest.raises(columns.Garbage):
                files.read(bytes(bad), None, False)
    bad = bytearray(data)
    struct.pack_into("<Q", bad, columns.HEADER.size + 16, 1 << 40)
    with pytest.raises(columns.Garbage):
        files.read(bytes(bad), None, False)
    assert files.read(data, None, False).equals(batch)


def test_cache(server: str, files: arrow.Files) -> None:
    """If several callers want the same batch, one of them decodes it, and all get the same
    memory.
    """
    decodings = []

    def decode() -> pa.RecordBatch:
        decodings.append(1)
        return ALL

    def use() -> None:
        with arrow.Files(server, timeout=PATIENCE) as own:
            batch = own.decoded("test:1", decode)
            assert batch.equals(ALL) and inside(batch, FILE)
            assert all(b.address % 64 == 0 for b in buffers(batch))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(decodings) == 1
    assert files.decoded("test:1", decode).equals(ALL) and len(decodings) == 1
    # If the caller that decodes fails, the next caller decodes the batch.

    def fail() -> pa.RecordBatch:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        files.decoded("test:2", fail)
    assert files.decoded("test:2", decode).equals(ALL) and len(decodings) == 2


def test_cache_is_bounded(server: str, files: arrow.Files) -> None:
    """A namespace has 128 MiB. New batches replace unused batches, beginning with the oldest one.
    Batches in use stay. If all batches are in use, only the caller that has decoded a batch gets
    it.
    """
    size = 24 << 20
    decodings: list[int] = []

    def get(n: int) -> pa.RecordBatch:
        def decode() -> pa.RecordBatch:
            decodings.append(n)
            return pa.record_batch({"b": pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(bytes(size))])})

        return files.decoded(f"n:{n}", decode, trusted=True)

    held = get(0)
    for n in range(1, 8):
        get(n)
    assert decodings == list(range(8))
    get(7)
    get(0)  # batch 0 was held, so it is still in the cache
    assert decodings == list(range(8))
    get(1)  # batch 1 was not held, so it is decoded again
    assert decodings == [*range(8), 1]
    all_held = [held, *(get(n) for n in range(10, 16))]
    assert sum(inside(b, FILE) for b in all_held) == 5


REWRITTEN = {"objectBytes": 1024, "objects": 4, "volatile": True, "stallMs": 3_600_000}


def numbers(n: int, rows: int = 10_000) -> pa.RecordBatch:
    """A batch with a single number in all rows."""
    return pa.record_batch({"n": pa.array([n]).take(pa.array([0] * rows))})


def test_rewritten(server: str, client: node.Client, files: arrow.Files) -> None:
    """This test uses rewritable files. There must be no more files than the ring has records. Each
    file must be mapped only once, and each batch must be read as it was appended.
    """
    client.open_stream("s", REWRITTEN)
    writer = arrow.Writer(client, "s", files=files, rewritable=True)
    names = set()
    with arrow.Files(server, timeout=PATIENCE) as own:
        with arrow.read("s", socket=server, files=own, trusted=True) as reader:
            for i in range(100):
                assert writer.append(numbers(i), timeout=PATIENCE) == i
                batch = reader.next(PATIENCE).batch
                assert batch.equals(numbers(i)) and inside(batch, FILE)
                names |= set(own._kept)
                del batch
        # An object has room for four records, and one more file is being written.
        assert 4 <= len(names) <= 20 and len(own._kept) == len(names) == len(files._own)
        assert own._last == len(names)  # there was one request for each file


def test_rewritable_is_for_the_trusted(server: str, client: node.Client, files: arrow.Files) -> None:
    """A reader gets memory that a writer can still change only with the option trusted. A program
    without a record does not get such memory.
    """
    client.open_stream("s", REWRITTEN)
    arrow.Writer(client, "s", files=files, rewritable=True).append(numbers(7))
    for how in ({}, {"trusted": True, "pull": True}, {"trusted": True, "skip": True}):
        with (
            arrow.Files(server) as own,
            arrow.read("s", socket=server, files=own, **how) as reader,  # type: ignore[arg-type]
            pytest.raises(node.InvalidArgument, match="rewritable"),
        ):
            reader.next(PATIENCE)
    # The same holds if another reader of the same program already has the file.
    with (
        arrow.Files(server) as own,
        arrow.read("s", socket=server, files=own, trusted=True) as reader,
        arrow.read("s", socket=server, files=own) as other,
    ):
        assert reader.next(PATIENCE).batch.equals(numbers(7))
        with pytest.raises(node.InvalidArgument, match="rewritable"):
            other.next(PATIENCE)


def test_rewritten_batch_is_held(server: str, client: node.Client, files: arrow.Files) -> None:
    """A file is not rewritten while a reader or the file's maker uses a batch in it, or while a
    record of another stream refers to it.
    """
    client.open_stream("s", REWRITTEN)
    client.open_stream("further", REWRITTEN)
    writer = arrow.Writer(client, "s", files=files, rewritable=True)
    draft = files.rewrite(8 * 1000)
    draft.memory.cast("q")[0] = -7
    own = pa.Array.from_buffers(pa.int64(), 1, [None, draft.seal().buffer])  # no record refers to the file
    with (
        arrow.Files(server, timeout=PATIENCE) as theirs,
        arrow.read("s", socket=server, files=theirs, trusted=True) as reader,
    ):
        writer.append(numbers(0), timeout=PATIENCE)
        kept = reader.next(PATIENCE).batch.column(0).slice(5)
        number = 0
        with pytest.raises(node.NodeError):
            # this appends until a batch in use would be overwritten
            for number in range(1, 50):
                writer.append(numbers(number), timeout=0.5)
        assert number < 20 and set(kept.to_pylist()) == {0}
        arrow.Writer(client, "further", files=theirs).append(pa.record_batch({"n": kept}))
        assert theirs.copied == 0 and theirs.shared > 0
        del kept
        gc.collect()
        for n in range(1, number):
            assert reader.next(PATIENCE).batch.column(0)[9].as_py() == n
        for n in range(number, 50):
            writer.append(numbers(n), timeout=PATIENCE)
            assert reader.next(PATIENCE).batch.column(0)[9].as_py() == n
        with arrow.read("further", socket=server, files=theirs, trusted=True) as reader2:
            assert set(reader2.next(PATIENCE).batch.column(0).to_pylist()) == {0}
    assert own.to_pylist() == [-7]


def test_rewritten_waits_for_memory(server: str, client: node.Client) -> None:
    """A namespace has 128 MiB of memory. If the records need more, the maker waits until a file is
    free, and is then notified.
    """
    client.open_stream("s", {**REWRITTEN, "objects": 64})
    with arrow.Files(server, timeout=2.0) as files:
        writer = arrow.Writer(client, "s", files=files, rewritable=True)
        batch = pa.record_batch(
            {"b": pa.Array.from_buffers(pa.uint8(), 30 << 20, [None, pa.py_buffer(bytes(30 << 20))])}
        )
        with pytest.raises(node.QuotaExceeded):
            for _ in range(5):
                writer.append(batch)
        client.delete_stream("s")  # this frees the stream's files
        for _ in range(10):
            files.rewrite(30 << 20).seal()
        assert len(files._own) == 3  # each file has 32 MiB, and the stream also had some memory


STEP = """
import sys
from netcraq import node
from netcraq.streams import arrow

socket, source, to = sys.argv[1:]
client = node.connect(socket)
with arrow.Files(socket, timeout=60) as files, arrow.read(source, socket=socket, files=files, trusted=True) as reader:
    writer = arrow.Writer(client, to, files=files) if to else None
    print("ready", flush=True)
    batch = reader.next(60).batch
    found = [sum(column.to_pylist()) for column in batch.columns]  # looks at every page
    if writer:
        writer.append(batch.select(batch.schema.names[1:]).slice(8))
    sizes = {}
    ours = False
    print(len(found), files.copied, files.shared, flush=True)
    sys.stdin.readline()  # all have it mapped
    for row in open("/proc/self/smaps"):
        first, *rest = row.split()
        if not first.endswith(":"):
            ours = "netcraq-file" in row
        elif ours and rest[-1:] == ["kB"]:
            sizes[first] = sizes.get(first, 0) + int(rest[0])
    print(sizes["Rss:"], sizes["Pss:"], sizes["Anonymous:"], sizes["Private_Dirty:"] + sizes["Private_Clean:"], flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("rewritable", [False, True], ids=["sealed", "rewritable"])
def test_not_one_byte_is_copied(server: str, client: node.Client, files: arrow.Files, rewritable: bool) -> None:
    """A batch passes through three processes. None of them copies data or has a private copy of a
    page. The pages of all processes together are the pages of the file.
    """
    ways = ["a", "b", "c", ""]
    for stream in ways[:-1]:
        client.open_stream(stream, VOLATILE)
    rows = 40_000
    draft = files.rewrite(32 * rows) if rewritable else files.make(32 * rows)
    words = draft.memory.cast("q")
    for i in range(0, len(words), 512):
        words[i] = i
    words.release()
    whole = draft.seal()
    pages = -(-whole.size // 4096)
    # map the pages in this process as well, so that no page counts only for one other process
    whole.buffer.to_pybytes()
    columns = [
        pa.Array.from_buffers(pa.int64(), rows, [None, whole.buffer.slice(8 * rows * i, 8 * rows)]) for i in range(4)
    ]
    first = pa.record_batch(columns, list("wxyz"))
    env = {**os.environ, "PYTHONPATH": str(Path(netcraq.__file__).parent.parent)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", STEP, server, *ways[i : i + 2]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )
        for i in range(3)
    ]  # fmt: skip

    def line(p: subprocess.Popen[str]) -> list[str]:
        assert p.stdout is not None
        return p.stdout.readline().split()

    def go_on() -> None:
        for p in processes:
            assert p.stdin is not None
            p.stdin.write("\n")
            p.stdin.flush()

    try:
        assert [line(p) for p in processes] == [["ready"]] * 3
        arrow.Writer(client, "a", files=files).append(first)
        assert (files.copied, files.shared) == (0, 32 * rows)
        told = [[int(n) for n in line(p)] for p in processes]
        # The numbers are columns, copied bytes and shared bytes. Each step removes one column and 8
        # rows.
        assert told == [[4, 0, 24 * (rows - 8)], [3, 0, 16 * (rows - 16)], [2, 0, 0]]
        go_on()
        sizes = [[int(n) for n in line(p)] for p in processes]
        assert all(rss > 0 and anonymous == own == 0 for rss, _, anonymous, own in sizes), sizes
        # This process also maps the file, so each process has the same share of a page.
        assert sizes[0][0] == 4 * pages and sum(pss for _, pss, _, _ in sizes) <= 4 * pages, sizes
    finally:
        go_on()
        for p in processes:
            assert p.stdin and p.stdout
            p.stdin.close()
            p.wait(PATIENCE)
            p.stdout.close()


def many(rows: int) -> pa.RecordBatch:
    """A batch with a column of each kind of type."""
    of = range(rows)
    text = [None if i % 5 == 0 else f"{i}-text" for i in of]
    return pa.record_batch(
        {
            "n": pa.array(of),
            "b": pa.array([i % 3 == 0 for i in of]),
            "s": pa.array(text),
            "large": pa.array(text, pa.large_string()),
            "list": pa.array([[f"a{i}", text[i]] for i in of]),
            "fixed": pa.array([[i % 1000, 2, 3] for i in of], pa.list_(pa.int16(), 3)),
            "map": pa.array([[(f"k{i}", i)] for i in of], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": text[i], "y": [True, i % 2 == 0]} for i in of]),
            "nulls": pa.nulls(rows),
            "uuids": pa.array([i.to_bytes(16, "big") for i in of], pa.uuid()),
        }
    )


def test_slices(server: str, client: node.Client, files: arrow.Files) -> None:
    """A slice in a record takes only the space of its own values, wherever it begins. Readers get
    the same values. Slices of data in a file are not copied.
    """
    rows, each = 5000, 10
    whole, first = many(rows), len(record(many(each)))
    slices = [whole.slice(at, each) for at in (0, 1, 7, 8, 9, 2493, rows - each)]
    for part in slices:
        data = bytes(record(part))
        assert len(data) < 1.5 * first
        for trusted in (False, True):
            got = columns.decode(data, None, no_file, trusted)
            assert got.equals(part) and got.to_pylist() == part.to_pylist()
            again = columns.decode(bytes(record(got.slice(3, 5))), None, no_file, trusted)
            assert again.equals(part.slice(3, 5))
    client.open_stream("in", VOLATILE)
    client.open_stream("out", VOLATILE)
    arrow.Writer(client, "in", files=files, inline=0).append(whole)
    with (
        arrow.read("in", socket=server, files=files) as reader,
        arrow.read("out", socket=server, files=files) as behind,
    ):
        batch = reader.next(PATIENCE).batch
        copied = files.copied
        for part in slices:
            at = part.column(0)[0].as_py()
            arrow.Writer(client, "out", files=files, inline=0).append(batch.slice(at, each))
            assert behind.next(PATIENCE).batch.equals(part)
        assert files.copied == copied


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.int64()).view(pa.date64()),
        pa.array([86_400], pa.int32()).view(pa.time32("s")),
        pa.array([None, -1], pa.int64()).view(pa.time64("ns")),
        pa.array([b"\xff"]).view(pa.string()),
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([86_400_001], pa.int64()).view(pa.date64())),
        pa.Array.from_buffers(pa.decimal128(2, 1), 1, [None, pa.py_buffer((100).to_bytes(16, "little"))]),
    ],
    ids=lambda column: str(column.type),
)
def test_values_that_readers_refuse(column: pa.Array) -> None:
    """The writer refuses values that readers would refuse, and its error names the column."""
    with pytest.raises(ValueError, match="'odd' has values that readers refuse"):
        record(pa.record_batch({"odd": column}))
