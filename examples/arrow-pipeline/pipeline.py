# SPDX-License-Identifier: Apache-2.0
"""Pass record batches through three processes, and copy only the column that is added."""

import sys
from array import array

import netcraq
import pyarrow as pa
import pyarrow.compute as pc
from netcraq.node import Client
from netcraq.streams import arrow

ROWS, BATCHES = 10_000, 20


def produce(client: Client) -> None:
    """Write prices into memory that other processes can map."""
    files = arrow.Files()
    writer = arrow.Writer(client, "prices", files=files)
    for _ in range(BATCHES):
        draft = files.make(8 * ROWS)
        with draft.memory.cast("q") as cents:
            cents[:] = array("q", range(ROWS))
        # Once it is sealed, nobody can change the memory.
        column = pa.Array.from_buffers(pa.int64(), ROWS, [None, draft.seal().buffer])
        writer.append(pa.record_batch({"cents": column}))


def enrich(client: Client) -> None:
    """Add a column."""
    files = arrow.Files()
    writer = arrow.Writer(client, "enriched", files=files)
    with arrow.read("prices", consumer="enrich", files=files) as reader:
        for _ in range(BATCHES):
            batch = reader.next().batch
            writer.append(batch.append_column("gross", pc.multiply(batch["cents"], 2)))
    print(f"enrich copied {files.copied} bytes, and shared {files.shared}")


def report(client: Client) -> None:
    """Add up both columns."""
    cents = gross = 0
    with arrow.read("enriched", consumer="report") as reader:
        for _ in range(BATCHES):
            batch = reader.next().batch
            cents += pc.sum(batch["cents"]).as_py()
            gross += pc.sum(batch["gross"]).as_py()
    print(f"{BATCHES * ROWS} rows: {cents} cents net, {gross} cents gross")


steps = {"produce": produce, "enrich": enrich, "report": report}
if len(sys.argv) != 2 or sys.argv[1] not in steps:
    sys.exit("usage: pipeline.py produce|enrich|report")
with netcraq.connect() as connected:
    for stream in ("prices", "enriched"):
        connected.open_stream(stream, {"objects": 16})
    steps[sys.argv[1]](connected)
