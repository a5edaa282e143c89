# SPDX-License-Identifier: Apache-2.0
"""Append records to a stream, or consume them and print what was missed."""

import itertools
import sys
import time

import netcraq
from netcraq import streams

# 8 objects of 1,024 bytes hold about 200 short records. With "skip" a slow consumer loses the
# oldest records. With "wait" it would slow the producer down.
CONFIG = {"objects": 8, "objectBytes": 1024, "slow": "skip"}


def produce() -> None:
    """Append about 1,000 records a second."""
    with netcraq.connect() as client:
        client.open_stream("clicks", CONFIG)
        for n in itertools.count(step=20):
            client.append("clicks", [f"click {i}" for i in range(n, n + 20)])
            time.sleep(0.02)


def consume() -> None:
    """Print a line for each second, and one for each gap."""
    with netcraq.connect() as client:
        client.open_stream("clicks", CONFIG)
    seen, second = 0, int(time.time())
    # The node remembers the position of the consumer "counter", so a restart continues there.
    with streams.read("clicks", consumer="counter") as reader:
        for batch in reader:
            if batch.missed:
                print(f"missed {batch.missed} records before offset {batch.offset}", flush=True)
            seen += len(batch)
            if int(time.time()) != second:
                second = int(time.time())
                print(f"read {seen} records, up to offset {batch.following - 1}", flush=True)


roles = {"producer": produce, "consumer": consume}
if len(sys.argv) != 2 or sys.argv[1] not in roles:
    sys.exit("usage: stream.py producer|consumer")
roles[sys.argv[1]]()
