# SPDX-License-Identifier: Apache-2.0
"""This program is the Python side of a test with the Go library. It checks that each library reads
the batches that the other has written. The batches are in streams. For comparison, they are also in
files in Arrow's own format.
"""

from __future__ import annotations

import datetime
import decimal
import os
import random
import sys
from typing import Any

import pyarrow as pa
from netcraq import node
from netcraq.streams import arrow

PATIENCE = 60.0
D = decimal.Decimal
ALL = pa.record_batch(
    {
        "integers": pa.array([1, 2, None]),
        "tiny": pa.array([-1, None, 127], pa.int8()),
        "unsigned": pa.array([1, 2, 1 << 63], pa.uint64()),
        "halves": pa.array([0.5, None, -2.0], pa.float16()),
        "floats": pa.array([0.5, None, -2.0], pa.float32()),
        "strings": pa.array(["x", "yy", None]),
        "large": pa.array(["a", None, "c"], pa.large_string()),
        "binary": pa.array([b"\xff", None, b""]),
        "large binary": pa.array([b"\xff", None, b""], pa.large_binary()),
        "bytes": pa.array([b"abc", None, b"xyz"], pa.binary(3)),
        "dictionary": pa.array(["u", "v", "u"]).dictionary_encode(),
        "numbered": pa.DictionaryArray.from_arrays(
            pa.array([1, None, 0], pa.uint16()), pa.array([7, 8], pa.int64()), ordered=True
        ),
        "lists": pa.array([[1], None, [2, 3]]),
        "large lists": pa.array([["p"], None, []], pa.large_list(pa.string())),
        "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int16(), 2)),
        "maps": pa.array([[("a", 1)], [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
        "structs": pa.array([{"x": 1, "y": [True]}, None, {"x": 3, "y": None}]),
        "deep": pa.StructArray.from_arrays([pa.array(["u", None, "u"]).dictionary_encode()], ["d"]),
        "nulls": pa.nulls(3),
        "bits": pa.array([True, None, False]),
        "decimals": pa.array([D("1.50"), None, D("-2.25")], pa.decimal128(10, 2)),
        "small decimals": pa.array([D("1.50"), None, D("-2.25")], pa.decimal32(5, 2)),
        "more decimals": pa.array([D("1.50"), None, D("-2.25")], pa.decimal64(10, 2)),
        "large decimals": pa.array([D("1.50"), None, D("-2.25")], pa.decimal256(50, 2)),
        "dates": pa.array([datetime.date(2026, 1, 2), None, datetime.date(1969, 12, 31)]),
        "long dates": pa.array([datetime.date(2026, 1, 2), None, datetime.date(1969, 12, 31)], pa.date64()),
        "times": pa.array(
            [datetime.datetime(2026, 1, 2, 3), None, datetime.datetime(1969, 1, 1)], pa.timestamp("us", "UTC")
        ),
        "local": pa.array([datetime.datetime(2026, 1, 2, 3)] * 3, pa.timestamp("ns")),
        "of the day": pa.array([datetime.time(1, 2, 3)] * 3, pa.time32("s")),
        "exact": pa.array([datetime.time(1, 2, 3, 4)] * 3, pa.time64("ns")),
        "durations": pa.array([datetime.timedelta(seconds=5), None, -datetime.timedelta(days=1)], pa.duration("ms")),
        "intervals": pa.array([pa.MonthDayNano([1, -2, 3]), None, pa.MonthDayNano([0, 0, 0])]),
        "uuids": pa.array([b"0" * 16, None, b"1" * 16], pa.uuid()),
    }
).replace_schema_metadata({"of": "a test"})

LEAVES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 0, 5]),
    (pa.uint32(), [0, 1 << 31]),
    (pa.int64(), [-(1 << 60), 0, 9]),
    (pa.float64(), [0.5, -1e300]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["", "x", "größer"]),
    (pa.large_binary(), [b"", b"\x00\xff"]),
    (pa.binary(2), [b"ab", b"\xff\x00"]),
    (pa.timestamp("ms"), [datetime.datetime(2026, 1, 2)]),
    (pa.decimal128(20, 3), [D("1.234"), D("-9.000")]),
    (pa.null(), [None]),
]


def column(r: random.Random, rows: int, depth: int, nulls: bool = True) -> pa.Array:
    """Return a column with a random type and random values. Its offset may be other than 0."""

    def mask(n: int) -> pa.Array | None:
        return pa.array([r.random() < 0.2 for _ in range(n)], pa.bool_()) if nulls and r.random() < 0.5 else None

    kind = r.randrange(8) if depth else 0
    if kind < 2:
        t, values = r.choice(LEAVES if nulls else LEAVES[:-1])
        made = pa.array([None if nulls and r.random() < 0.2 else r.choice(values) for _ in range(rows + 3)], t)
        return made.slice(r.randrange(4), rows)
    if kind == 2:
        indices = pa.array([None if nulls and r.random() < 0.2 else r.randrange(5) for _ in range(rows)], pa.int16())
        return pa.DictionaryArray.from_arrays(indices, column(r, 5, 0, False))
    if kind == 3:
        n = r.randrange(1, 4)
        return pa.FixedSizeListArray.from_arrays(column(r, rows * n, depth - 1), n)
    if kind == 4:
        fields = [column(r, rows, depth - 1) for _ in range(r.randrange(1, 4))]
        return pa.StructArray.from_arrays(fields, [f"f{i}" for i in range(len(fields))], mask=mask(rows))
    ends = [0]
    for _ in range(rows):
        ends.append(ends[-1] + r.randrange(4))
    values = column(r, ends[-1], depth - 1)
    if kind == 5:
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values, mask=mask(rows))
    if kind == 6:
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), column(r, ends[-1], 0, False), values)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=mask(rows))


def batches(seed: int) -> list[pa.RecordBatch]:
    """Return the batches to write."""
    out = [ALL, ALL.slice(1), ALL.slice(1, 1), ALL.slice(3), ALL.select(["nulls"])]
    r = random.Random(seed)
    for _ in range(60):
        rows = r.choice([0, 1, 7, 100])
        columns = [column(r, rows, r.randrange(4)) for _ in range(r.randrange(1, 5))]
        made = pa.record_batch(columns, [f"c{i}" for i in range(len(columns))])
        begin = r.randrange(rows + 1)
        out.append(r.choice([made, made.slice(begin), made.slice(begin, r.randrange(rows - begin + 1))]))
    return out


def write(socket: str, place: str, seed: int) -> None:
    """Append the batches to streams, and write them to files."""
    with node.connect(socket, timeout=PATIENCE) as client, arrow.Files(socket, timeout=PATIENCE) as files:
        inline = arrow.Writer(client, "py-inline")
        shared = arrow.Writer(client, "py-files", files=files, inline=0)
        for i, batch in enumerate(batches(seed)):
            batch.validate(full=True)
            with (
                pa.OSFile(os.path.join(place, f"py-{i}.arrow"), "wb") as out,
                pa.ipc.new_stream(out, batch.schema) as w,
            ):
                w.write_batch(batch)
            assert inline.append(batch) == i == shared.append(batch)
    print(i + 1)


def read(socket: str, place: str, what: list[str]) -> None:
    """Read streams, and compare their batches with files. ``what`` names the streams, and the
    library that has written the files."""
    with arrow.Files(socket, timeout=PATIENCE) as files:
        for pair in what:
            stream, of = pair.split("=")
            i = 0
            with arrow.read(stream, socket=socket, files=files, start="earliest") as reader:
                while os.path.exists(path := os.path.join(place, f"{of}-{i}.arrow")):
                    with pa.OSFile(path) as source, pa.ipc.open_stream(source) as r:
                        want = r.read_next_batch()
                    item = reader.next(PATIENCE)
                    assert item.offset == i, (stream, i, item.offset)
                    assert item.batch.schema.equals(want.schema, check_metadata=True), (
                        stream,
                        i,
                        item.batch.schema,
                        want.schema,
                    )
                    assert item.batch.equals(want), (stream, i, item.batch.to_pylist(), want.to_pylist())
                    i += 1
            assert i, stream
            print(stream, i)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        read(sys.argv[2], sys.argv[3], sys.argv[4:])
