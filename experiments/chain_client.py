#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client in a host of the network that executes jobs, for demo.py and timeline.py.

It reads jobs from its standard input, one JSON object a line, and answers each with one line of
what it did and saw::

    {"ops": [["get", KEY_ID, AT], ["put", KEY_ID, AT], ...]}    AT: seconds on the machine's monotonic clock; null: at once
    {"loop": {"kind": "get", "keys": [KEY_ID, ...], "start": T, "until": T, "seed": N, "pause": SECONDS}}
                                                                as fast as answers come, by Zipf's law
    "stop"                                                      ends a loop whose "until" is null; it has no answer of its own

    {"done": [[kind, KEY_ID, NUMBER or DIGEST, ASKED, ANSWERED, PACKETS, WHAT WENT WRONG or null, TOOK], ...]}

A put writes :func:`value_of` the key's next number; the answer to a get has only the :func:`digest`
of the returned value, because values are long and many. The times are of the machine's monotonic
clock, which is the same in every host. TOOK is the time at the socket from the first sent packet to
the received answer. It excludes the client's time to encode and decode them, which differs between
the kinds of clients.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [
    str(Path(__file__).resolve().parent.parent),
    str(Path(__file__).resolve().parent.parent / "client" / "python"),
]

from netcraq.admin import Admin, host_address  # noqa: E402
from netcraq.client import Client, NetCRAQError, NotFound, Timeout  # noqa: E402

from experiments.netchain_client import NetChainClient  # noqa: E402

ZIPF = 0.99

STOP = "stop"
"""The line that ends an endless loop."""


def value_of(first: bytes, number: int) -> bytes:
    """Return the value with a number. Number 0 is the first value. Other values have the first
    value's length, or the number's if that is longer, and differ at the beginning.
    """
    if number == 0:
        return first
    head = b"#%d " % number
    return head + first[len(head) :]


def digest(value: bytes) -> str:
    """A 64-bit digest of a value (BLAKE2b)."""
    return hashlib.blake2b(value, digest_size=8).hexdigest()


class Timed:
    """A client's socket that records the times of sent and received packets."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self._sent = self._came = 0.0

    def reset(self) -> None:
        """Mark the next packet as a request's first one."""
        self._sent = 0.0

    @property
    def took(self) -> float:
        """Seconds from the first sent packet to the last received one."""
        return self._came - self._sent

    def sendto(self, *what: Any) -> int:
        """As a socket's sendto."""
        self._sent = self._sent or time.monotonic()
        return self._inner.sendto(*what)

    def recv(self, size: int) -> bytes:
        """As a socket's recv."""
        packet = self._inner.recv(size)
        self._came = time.monotonic()
        return packet

    def recvfrom(self, size: int) -> tuple[bytes, Any]:
        """As a socket's recvfrom."""
        packet = self._inner.recvfrom(size)
        self._came = time.monotonic()
        return packet

    def fileno(self) -> int:
        """As a socket's fileno."""
        return self._inner.fileno()

    def close(self) -> None:
        """As a socket's close."""
        self._inner.close()


def told() -> bool:
    """Whether a further line of input has arrived. During a loop, it can only be "stop"."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


class Worker:
    """Executes jobs."""

    def __init__(self, client: Client | NetChainClient, firsts: dict[int, bytes]) -> None:
        self._client = client
        self._socket = client._socket = Timed(client._socket)
        self._firsts = firsts
        self._numbers = dict.fromkeys(firsts, 0)

    def do(self, job: dict[str, Any]) -> list[list[Any]]:
        """Execute one job."""
        if "loop" in job:
            return self._loop(**job["loop"])
        done = []
        for kind, key, at in job["ops"]:
            if at is not None:
                time.sleep(max(0.0, at - time.monotonic()))
            done.append(self._one(kind, key))
        return done

    def _loop(
        self, kind: str, keys: list[int], start: float, until: float | None, seed: int, pause: float
    ) -> list[list[Any]]:
        rng = random.Random(seed)
        weights = [(rank + 1) ** -ZIPF for rank in range(len(keys))]
        picks = rng.choices(keys, weights, k=4096)
        done: list[list[Any]] = []
        time.sleep(max(0.0, start - time.monotonic()))
        while time.monotonic() < until if until is not None else not told():
            done.append(self._one(kind, picks[len(done) % len(picks)]))
            if pause:
                time.sleep(pause)
        return done

    def _one(self, kind: str, key: int) -> list[Any]:
        number: int | None = None
        if kind == "put":
            self._numbers[key] += 1
            number = self._numbers[key]
            value = value_of(self._firsts[key], number)
        self._socket.reset()
        asked = time.monotonic()
        try:
            result = self._client.get(key) if kind == "get" else self._client.put(key, value)
            answered = time.monotonic()
        except NetCRAQError as error:
            wrong = "lost" if isinstance(error, Timeout) else "not found" if isinstance(error, NotFound) else str(error)
            return [kind, key, number, asked, time.monotonic(), 0, wrong, 0.0]
        return [
            kind,
            key,
            digest(result.value) if kind == "get" else number,
            asked,
            answered,
            result.attempts,
            None,
            self._socket.took,
        ]


def client_of(setup: dict[str, Any]) -> Client | NetChainClient:
    """A client according to the first line: of NetChain, if the line has that chain's addresses,
    otherwise of one of the controller's chains.
    """
    if "netchain" in setup:
        return NetChainClient(setup["netchain"])
    admin = Admin()
    chain = next(chain for chain in admin.chains() if chain.name == setup["chain"])
    session = None
    if setup["writes"]:
        session = admin.lease_sessions(
            owner=f"chain_client in {setup['host']}", address=host_address(chain.service_address)
        )
    return Client(chain.addresses, value_bits=chain.value_bits, session=session)


def main() -> None:
    """Execute jobs until the input ends. The first line has the client's setup and the keys' first
    values.
    """
    setup = json.loads(sys.stdin.readline())
    firsts = {int(key): base64.b64decode(value) for key, value in setup["firsts"].items()}
    with client_of(setup) as client:
        worker = Worker(client, firsts)
        print(json.dumps({"ready": setup["host"]}), flush=True)
        for line in sys.stdin:
            if (job := json.loads(line)) != STOP:
                print(json.dumps({"done": worker.do(job)}), flush=True)


if __name__ == "__main__":
    main()
