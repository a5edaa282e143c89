# SPDX-License-Identifier: Apache-2.0
"""Three processes share a limit of 2 calls at a time, and of 5 calls a second."""

import multiprocessing
import time

import netcraq
from netcraq.node import Client

AT_A_TIME = 2
A_SECOND = 5


def call(client: Client, worker: int, number: int) -> None:
    """Make one call within the limits."""
    # The permit is free again within the TTL if this process dies.
    with client.acquire("limiter", AT_A_TIME, ttl=5):
        while True:
            second = int(time.time())
            # Each second has its own counter. An increment is atomic, so no two callers get the
            # same number.
            if client.increment(f"limiter/{second}").number <= A_SECOND:
                break
            time.sleep(second + 1 - time.time())
        print(f"{second % 60:02}: worker {worker} makes call {number}", flush=True)
        time.sleep(0.05)  # the call
        # All clocks of the workers are within a few seconds, so no one needs this counter anymore.
        client.delete(f"limiter/{second - 10}")


def work(worker: int) -> None:
    """Make calls as fast as the limits let it."""
    with netcraq.connect() as client:
        for number in range(1, 6):
            call(client, worker, number)


if __name__ == "__main__":
    # A client belongs to one process, so each worker connects by itself.
    workers = [multiprocessing.Process(target=work, args=(n,)) for n in (1, 2, 3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if any(w.exitcode for w in workers):
        raise SystemExit("a worker failed")
