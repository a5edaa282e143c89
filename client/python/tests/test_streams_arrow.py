# SPDX-License-Identifier: Apache-2.0
"""Arrow's batches in streams, against the node API's server in Go."""

from __future__ import annotations

import datetime
import decimal
import gc
import struct
from collections.abc import Iterator

import pytest
from netcraq import node, streams

from test_streams import PATIENCE, Server, client, server  # noqa: F401 (fixtures)

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install netcraq[arrow]")
from netcraq.streams import arrow, columns  # noqa: E402

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
    """All of a batch's buffers that have something, without dictionaries'."""
    for column in batch.columns:
        yield from (b for b in column.buffers() if b is not None and b.size)


def mapped(kind: str) -> list[tuple[int, int]]:
    """Where this process has files of a kind mapped."""
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


SEGMENT = "netcraq-stream"


@pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])
def test_batches(server: Server, client: node.Client, pull: bool) -> None:  # noqa: F811
    client.open_stream("s", {"objects": 4})
    writer = arrow.Writer(client, "s")
    want = [ALL, ALL.slice(1), ALL.slice(1, 1), ALL.slice(3)]
    with arrow.read("s", socket=server.path, pull=pull) as reader:
        for i in range(100):  # many times what the ring has
            batch = want[i % len(want)]
            assert writer.append(batch) == i
            item = reader.next(PATIENCE)
            assert item.offset == i and item.batch.equals(batch) and item.batch.schema.equals(batch.schema)
            assert all(b.address % 64 == 0 for b in buffers(item.batch)) or pull
            assert inside(item.batch, SEGMENT) is not pull
            del item
    assert writer.copied == 25 * sum(_copied(b) for b in want)


def _copied(batch: pa.RecordBatch) -> int:
    encoder = columns.Encoder(batch, lambda address, size: None)
    encoder.record()
    return encoder.copied


def test_batch_holds_its_object(server: Server, client: node.Client) -> None:  # noqa: F811
    """The node does not get back what a batch, or a column of it, is in: not when the reader goes on,
    and not when it is closed.
    """
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "stallMs": 3_600_000})
    writer = arrow.Writer(client, "s")
    number = 0

    def fill() -> None:
        """Append until somebody holds what would be overwritten."""
        nonlocal number
        with pytest.raises(node.NodeError):
            for _ in range(50):
                writer.append(pa.record_batch({"n": pa.array([number] * 40)}), timeout=0.5)
                number += 1

    reader = arrow.read("s", socket=server.path)
    writer.append(pa.record_batch({"n": pa.array([-7] * 40)}))
    first = reader.next(PATIENCE)
    kept = first.batch.column(0).slice(1)
    fill()
    for i in range(number):
        assert reader.next(PATIENCE).batch.column(0)[0].as_py() == i
    assert first.valid() and number < 50
    fill()  # the reader is done with all others, and not with this one
    reader.close()
    del first
    gc.collect()
    fill()  # the column still is
    assert kept.to_pylist() == [-7] * 39 and inside(pa.record_batch({"n": kept}), SEGMENT)
    del kept, reader
    gc.collect()
    for _ in range(50):
        writer.append(pa.record_batch({"n": pa.array([number] * 40)}), timeout=PATIENCE)
    assert mapped(SEGMENT) == []


def test_batch_that_was_held_for_too_long(server: Server, client: node.Client) -> None:  # noqa: F811
    """A batch that the node has overwritten says so, and so does its reader."""
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "stallMs": 50})
    writer = arrow.Writer(client, "s")
    with arrow.read("s", socket=server.path) as reader:
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
    """A batch as a record."""
    return bytearray(columns.Encoder(batch, lambda address, size: None).record())


def no_file(name: bytes, length: int) -> pa.Buffer:
    raise columns.Garbage("there is no file")


def refused(data: bytes, open_file: columns.Open = no_file) -> None:
    with pytest.raises(columns.Garbage):
        columns.decode(bytes(data), None, open_file, False)


def test_hostile_records() -> None:
    """What a record says of itself is not believed: it is a batch, or it is refused, and nothing else
    is read than its own bytes.
    """
    for data in (b"", b"x" * 39, b"x" * 400, columns.MAGIC):
        refused(data)
    good = record(ALL)
    for n in range(0, len(good), 41):
        refused(good[:n])
    # Every field of every table, at its bounds.
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
            got.to_pylist()  # it may be another batch, but is one
    # What offsets and indices in buffers say.
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


def test_other_libraries(server: Server, client: node.Client) -> None:  # noqa: F811
    """What takes Arrow takes batches as they lie there."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    client.open_stream("s", {"objects": 4})
    arrow.Writer(client, "s").append(pa.record_batch({"n": pa.array([1, 2, 3])}))
    with arrow.read("s", socket=server.path) as reader:
        batch = reader.next(PATIENCE).batch
        table = pa.Table.from_batches([batch])  # noqa: F841 (DuckDB finds it by its name)
        assert duckdb.sql("select sum(n) from table").fetchall() == [(6,)]
