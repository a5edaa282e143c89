#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A consumer of a stream in Python, for experiments/bench_streams.py: like ``netcraq-streams
consume``, with the client library.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "client" / "python"))

from netcraq import streams


class Counted:
    """The consumer's counts so far."""

    records = size = found = missed = 0

    def mark(self) -> str:
        """Return the counts as a line."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return json.dumps(
            {
                "at_ns": time.monotonic_ns(),
                "records": self.records,
                "bytes": self.size,
                "found": self.found,
                "missed": self.missed,
                "cpu_us": (used.ru_utime + used.ru_stime) * 1e6,
            }
        )


def read(reader: streams.Reader, counted: Counted, needle: bytes) -> None:
    """Count records and those that contain ``needle``."""
    for batch in reader:
        size = found = 0
        for _, record in batch:
            size += len(record.data)
            found += needle in bytes(record.data) if needle else record.data[0] != 0
        batch.release()
        counted.missed += batch.missed
        counted.records += len(batch)
        counted.size += size
        counted.found += found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser()
    for name in ("socket", "stream", "name", "partitions"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--way", choices=["push", "pull"], default="push")
    parser.add_argument("--work", choices=["count", "filter"], default="count")
    parser.add_argument("--batch", type=int, default=0)
    o = parser.parse_args()
    which = [int(n) for n in o.partitions.split(",")]
    reader = streams.read(
        o.stream, socket=o.socket, consumer=o.name, partitions=which, pull=o.way == "pull", batch_bytes=o.batch
    )
    counted = Counted()
    print("ready", flush=True)
    if sys.stdin.readline():
        needle = b"netcraq" if o.work == "filter" else b""
        threading.Thread(target=read, args=(reader, counted, needle), daemon=True).start()
        while sys.stdin.readline():
            print(counted.mark(), flush=True)
    os._exit(0)  # the thread may be asleep, and nothing else uses its reader


if __name__ == "__main__":
    main()
