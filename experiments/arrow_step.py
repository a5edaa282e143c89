#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process of experiments/bench_arrow.py. It makes Arrow batches, sums them up, or changes one
column and passes them on. Batches arrive and leave through streams of a node, through Arrow IPC
over Unix sockets, or both. Alternatively the process decodes Parquet files, with or without the
node's cache.

It prints ``ready``, starts after a line on its standard input, and answers each further line with
its counters so far.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import itertools
import json
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "client" / "python"))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from netcraq import node
from netcraq.streams import arrow

BUFFER = 4 << 20
"""The requested socket buffer in bytes; the kernel may give less."""


class Done:
    """The work done so far."""

    def __init__(self) -> None:
        self.batches = self.bytes = 0
        self.total = 0
        self.files: arrow.Files | None = None

    def mark(self) -> str:
        """Return the counters as a JSON line."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return json.dumps(
            {
                "at_ns": time.monotonic_ns(),
                "batches": self.batches,
                "bytes": self.bytes,
                "total": self.total,
                "user_us": used.ru_utime * 1e6,
                "system_us": used.ru_stime * 1e6,
                "faults": used.ru_minflt,
                "switches": used.ru_nvcsw + used.ru_nivcsw,
                "copied": self.files.copied if self.files else 0,
                "shared": self.files.shared if self.files else 0,
            }
        )


# ---- Sources of batches ----


def received(path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches from the process that listens at a socket, by Arrow IPC."""
    s = socket.socket(socket.AF_UNIX)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    s.connect(path)
    with s.makefile("rb") as file:
        yield from pa.ipc.open_stream(file)


def read(o: argparse.Namespace, files: arrow.Files | None) -> Iterator[pa.RecordBatch]:
    """Yield batches from a stream, whose data are in its ring or in files."""
    with arrow.read(o.source, socket=o.socket, files=files, trusted=o.trusted, start="earliest") as reader:
        for item in reader:
            batch = item.batch
            del item
            yield batch
            del batch


def made(o: argparse.Namespace, files: arrow.Files | None) -> Iterator[pa.RecordBatch]:
    """Yield new batches with different numbers. If there are files, the numbers are written
    directly into one.
    """
    template = np.arange(o.rows, dtype=np.int64)
    names = [f"c{i}" for i in range(o.columns)]
    memory = [np.empty(o.rows, np.int64) for _ in names]
    for number in range(o.batches or sys.maxsize):
        size = template.nbytes
        if files is None:  # the sender does not need the batch after sending it
            for i, column in enumerate(memory):
                np.add(template, number + i, out=column)
            columns = [pa.array(column) for column in memory]
        else:
            draft = files.rewrite(size * o.columns) if o.rewritable else files.make(size * o.columns)
            for i in range(o.columns):
                column = np.frombuffer(draft.memory, np.int64, o.rows, i * size)
                np.add(template, number + i, out=column)
                del column
            whole = draft.seal().buffer
            columns = [
                pa.Array.from_buffers(pa.int64(), o.rows, [None, whole.slice(i * size, size)], 0)
                for i in range(o.columns)
            ]
            del whole, draft
        yield pa.record_batch(columns, names)
        del columns


# ---- Destinations of batches ----


def sent(paths: list[str]) -> Callable[[pa.RecordBatch], None]:
    """Send batches by Arrow IPC to all processes that connect, after waiting for them."""
    writers: list[pa.RecordBatchStreamWriter] = []
    waiting = []
    for path in paths:
        s = socket.socket(socket.AF_UNIX)
        s.bind(path)
        s.listen(1)
        waiting.append(s)
    connected: list[socket.socket] = []

    def send(batch: pa.RecordBatch) -> None:
        if not writers:
            for w in waiting:
                s, _ = w.accept()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
                connected.append(s)
                writers.append(pa.ipc.new_stream(s.makefile("wb"), batch.schema))
        for writer in writers:
            writer.write_batch(batch)

    return send


def appended(o: argparse.Namespace, client: node.Client, files: arrow.Files | None) -> Callable[[pa.RecordBatch], None]:
    """Append batches to a stream. It waits while the stream has no room."""
    writer = arrow.Writer(client, o.to, files=files, rewritable=o.rewritable)  # without files: in the ring

    def append(batch: pa.RecordBatch) -> None:
        while True:
            try:
                writer.append(batch, 60)
                return
            except node.Timeout:
                continue

    return append


# ---- Work on batches ----


def change(batch: pa.RecordBatch, at: int) -> pa.RecordBatch:
    """Compute one column again, and keep the others."""
    at %= batch.num_columns
    return batch.set_column(at, batch.schema.names[at], pc.add(batch.column(at), 1))


def looked_at(column: pa.Array) -> int:
    """Return the sum of a column's numbers, or the total length of its words in bytes."""
    numbers = pc.binary_length(column) if pa.types.is_string(column.type) else column
    return int(pc.sum(numbers).as_py())


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch into this process's memory, as a step without references passes it on."""
    columns = [pa.array(np.array(column.to_numpy(), copy=True)) for column in batch.columns]
    return pa.record_batch(columns, batch.schema.names)


def decoded(o: argparse.Namespace, files: arrow.Files | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of Parquet files, in turn, with the node's cache if there are files. The
    cache identifies a file by its content, which is read each time.
    """
    paths = sorted(Path(o.parquet).glob("*.parquet"))
    for number in itertools.count():
        content = paths[number % len(paths)].read_bytes()

        def decode(content: bytes = content) -> pa.RecordBatch:
            table = pq.read_table(pa.BufferReader(content), use_threads=False)
            (batch,) = table.combine_chunks().to_batches()
            return batch

        if files is None:
            yield decode()
        else:
            yield files.decoded("parquet:" + hashlib.sha256(content).hexdigest(), decode, trusted=o.trusted)


def work(o: argparse.Namespace, done: Done) -> None:
    """Run the whole step."""
    files = done.files
    to = None
    if o.to.startswith("ipc:"):
        to = sent(o.to.removeprefix("ipc:").split(","))
    elif o.to:
        client = node.connect(o.socket, timeout=120)
        to = appended(o, client, files)
    print("ready", flush=True)
    begin.wait()
    if o.parquet:
        source = decoded(o, files)
    elif not o.source:
        source = made(o, files)
    elif o.source.startswith("ipc:"):
        source = received(o.source.removeprefix("ipc:"))
    else:
        source = read(o, files)
    kept: collections.deque[pa.RecordBatch] = collections.deque(maxlen=o.keep)
    for batch in source:
        if o.change >= 0:
            batch = change(batch, o.change)
        if o.copy:
            batch = copied(batch)
        if to is not None:
            to(batch)
        else:
            for column in batch.columns[: o.touch]:
                done.total += looked_at(column)
            kept.append(batch)
        done.batches += 1
        done.bytes += batch.nbytes
        del batch


begin = threading.Event()


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--source", default="", help="a stream, or ipc:PATH; if left out, the program makes batches")
    parser.add_argument("--to", default="", help="a stream, or ipc:PATH,PATH; if left out, the program sums up batches")
    parser.add_argument("--change", type=int, default=-1, help="number of the column to compute again")
    parser.add_argument("--copy", action="store_true", help="copy all columns before passing them on")
    parser.add_argument("--parquet", default="", help="a folder whose Parquet files to decode, in turn, until stopped")
    parser.add_argument("--cache", action="store_true", help="use the node's cache")
    parser.add_argument("--rows", type=int, default=1 << 17)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--touch", type=int, default=None, help="number of columns whose values to read")
    parser.add_argument("--batches", type=int, default=0, help="number of batches to make; 0: until the program ends")
    parser.add_argument("--keep", type=int, default=4, help="number of batches to keep")
    parser.add_argument("--trusted", action="store_true")
    parser.add_argument("--ring", action="store_true", help="write batches to the stream's ring, without files")
    parser.add_argument("--rewritable", action="store_true", help="use files that are reused")
    o = parser.parse_args()
    done = Done()
    if o.cache or (not o.ring and not all(not x or x.startswith("ipc:") for x in (o.source, o.to))):
        done.files = arrow.Files(o.socket)

    def run() -> None:
        try:
            work(o, done)
        except BaseException as e:
            print(f"{' '.join(sys.argv)}: {e!r}", file=sys.stderr, flush=True)
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()
    if sys.stdin.readline():
        begin.set()
        while sys.stdin.readline():
            print(done.mark(), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
