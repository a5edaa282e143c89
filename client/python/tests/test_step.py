# SPDX-License-Identifier: Apache-2.0
"""Tests of steps in Python, between two streams of the node API's server in Go."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from netcraq import node
from netcraq.streams import step
from refchain import StreamServer

PROGRAM = """
import sys
from netcraq.streams import step

def rows(record):
    n = int(bytes(record.data))
    for k in range(n % 4):
        yield f"{n}/{k}"

step.run("in", "out", rows, socket=sys.argv[1])
"""


def expected(numbers: range) -> list[str]:
    """The rows that the test's step makes from the given numbers."""
    return [f"{n}/{k}" for n in numbers for k in range(n % 4)]


def made(made_by: node.Client, stream: str) -> list[str]:
    """All records of a stream."""
    out, at = [], 0
    while True:
        answer = made_by.read_stream(stream, offset=at)
        if not answer["records"]:
            return out
        out += [record["value"] for record in answer["records"]]
        at = answer["next"]


def open_both(by: node.Client, **config: int) -> None:
    for name in ("in", "out"):
        by.open_stream(name, {"objects": 512, "objectBytes": 16384, **config})


def test_step_killed(server: StreamServer, client: node.Client) -> None:
    """Two processes run the same step. The processes and the server are killed at random."""
    open_both(client)
    running: list[subprocess.Popen] = []
    written, kills, servers = 0, 0, 0
    end = time.monotonic() + 8
    while time.monotonic() < end or not kills or not servers:
        for _ in range(random.randint(1, 200)):
            client.append("in", [str(written)], at=written)
            written += 1
        if len(running) < 2 and random.random() < 0.6:
            running.append(subprocess.Popen([sys.executable, "-c", PROGRAM, server.path]))
        elif running:
            victim = running.pop(random.randrange(len(running)))
            victim.kill()
            victim.wait()
            kills += 1
        if random.random() < 0.15:
            server.kill()
            server.start()
            servers += 1
        time.sleep(random.random() * 0.5)
    if not running:
        running.append(subprocess.Popen([sys.executable, "-c", PROGRAM, server.path]))
    want = expected(range(written))
    deadline = time.monotonic() + server.patience
    while len(made(client, "out")) < len(want) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in running:
        process.kill()
        process.wait()
    assert made(client, "out") == want
    assert kills > 0 and servers > 0
    print(f"{written} records, processes killed {kills} times, the server {servers}")


@pytest.fixture()
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_step_goes_on_within_a_record(server: StreamServer, client: node.Client, stop: threading.Event) -> None:
    """A process has died between two rows of one record, and another process continues."""
    open_both(client)
    client.append("in", ["0", "1", "2", "3"])

    def rows(record):
        n = int(bytes(record.data))
        yield from (f"{n}/{k}" for k in range(3))
        if n == 3:
            stop.set()

    life = step._life(client.open_stream("in")["incarnation"])
    client.append("out", ["0/0", "0/1", "0/2", "1/0"], marks=[life | 1] * 3 + [life | 2])
    step.run("in", "out", rows, socket=server.path, stop=stop)
    assert made(client, "out") == [f"{n}/{k}" for n in range(4) for k in range(3)]


def test_step_refuses(server: StreamServer, client: node.Client) -> None:
    """A step refuses a source that was created again, too many rows from a record, and streams with
    several partitions.
    """
    open_both(client)
    client.append("in", ["0"])
    with pytest.raises(step.StepError, match="65 rows"):
        step.run("in", "out", lambda record: ["x"] * 65, socket=server.path)
    client.append("out", ["0"], marks=[step._life("another") | 1])
    with pytest.raises(step.StepError, match="made anew"):
        step.run("in", "out", lambda record: [], socket=server.path)
    client.open_stream("wide", {"partitions": 2})
    with pytest.raises(step.StepError, match="2 partitions"):
        step.run("in", "wide", lambda record: [], socket=server.path)


def test_step_says_what_was_overwritten(server: StreamServer, client: node.Client, stop: threading.Event) -> None:
    """A step raises StepError if records are overwritten before it reads them."""
    open_both(client, objects=4, objectBytes=1024)
    life = step._life(client.open_stream("in")["incarnation"])
    client.append("out", ["0"], marks=[life | 1])
    for n in range(2000):
        client.append("in", [str(n)])
    with pytest.raises(step.StepError, match="overwritten"):
        step.run("in", "out", lambda record: [], socket=server.path, stop=stop)
