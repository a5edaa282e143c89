# SPDX-License-Identifier: Apache-2.0
"""Tests of stream readers with the node API's server in Go, by push and by pull."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from netcraq import node, streams
from netcraq.streams import aio
from refchain import StreamServer

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0


both = pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])


class Waits:
    """Wraps an asyncio reader so that it looks blocking. So one test covers both readers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opening: Coroutine[Any, Any, aio.Reader]) -> None:
        self.loop = loop
        self.inner = loop.run_until_complete(opening)

    def next(self, timeout: float | None = None) -> streams.Batch:
        return self.loop.run_until_complete(self.inner.next(timeout))

    def __enter__(self) -> Waits:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.inner.close())


Read = Callable[..., Any]


@pytest.fixture(params=["blocking", "asyncio"])
def read(request: pytest.FixtureRequest) -> Iterator[Read]:
    """A function that reads a stream, with the blocking or the asyncio library."""
    if request.param == "blocking":
        yield streams.read
        return
    loop = asyncio.new_event_loop()
    yield lambda stream, **how: Waits(loop, aio.read(stream, **how))
    loop.run_until_complete(loop.shutdown_default_executor())
    assert not asyncio.all_tasks(loop)
    loop.close()
    gone()


def gone() -> None:
    """Checks that no thread of a reader remains."""
    deadline = time.monotonic() + PATIENCE
    while any(t.name == "netcraq-stream" for t in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def take(reader: Any, n: int, first: int = 0) -> list[bytes]:
    """Read n records with consecutive offsets."""
    out: list[bytes] = []
    while len(out) < n:
        for offset, record in reader.next(PATIENCE):
            assert offset == first + len(out)
            out.append(bytes(record.data))
    return out


@both
def test_read(server: StreamServer, client: node.Client, read: Read, pull: bool) -> None:
    with pytest.raises(node.InvalidArgument):
        read("s", socket=server.path, pull=pull)
    client.open_stream("s", {"objectBytes": 1024, "objects": 8})
    assert client.streams() == ["s"]
    want = [b"%d \xff " % i + b"x" * (i % 300) for i in range(500)]

    def produce() -> None:
        rest = want
        while rest:
            rest = rest[client.append("s", rest[:9])[1] :]

    with read("s", socket=server.path, consumer="me", pull=pull) as reader:
        producer = threading.Thread(target=produce)
        producer.start()
        assert take(reader, len(want)) == want  # many times as many records as fit into the ring
        producer.join()
        with pytest.raises(node.Timeout):
            reader.next(0.05)
    client.append("s", ["more"])
    with read("s", socket=server.path, consumer="me", pull=pull) as reader:
        assert take(reader, 1, 500) == [b"more"]
    client.delete_stream("s")
    assert client.streams() == []


@both
def test_server_killed(server: StreamServer, client: node.Client, read: Read, pull: bool) -> None:
    client.open_stream("s", {"partitions": 2})
    client.append("s", ["a", "b"], at=0)
    client.append("s", ["x"], partition=1)
    with read("s", socket=server.path, pull=pull) as reader:
        got: dict[int, list[bytes]] = {0: [], 1: []}

        def take_all(n: int) -> None:
            while len(got[0]) + len(got[1]) < n:
                batch = reader.next(PATIENCE)
                for offset, record in batch:
                    assert offset == len(got[batch.partition])
                    got[batch.partition].append(bytes(record.data))

        take_all(3)
        server.kill()
        server.start()
        with node.connect(server.path) as again:
            with pytest.raises(node.WrongOffset):
                again.append("s", ["not here"], at=1)
            assert again.append("s", ["c"], at=2) == (2, 1)
            assert again.append("s", ["y"], partition=1) == (1, 1)
        take_all(5)
        assert got == {0: [b"a", b"b", b"c"], 1: [b"x", b"y"]}


def test_slow(server: StreamServer, client: node.Client, read: Read) -> None:
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "stallMs": 3_600_000})
    text = "x" * 400  # two records fit into an object
    with read("s", socket=server.path) as reader:
        appended = 0
        for _ in range(20):
            try:
                appended += client.append("s", [text], timeout=0.5)[1]
            except (node.Timeout, node.OutcomeUnknown):
                break
        assert appended == 8
        assert len(take(reader, 8)) == 8
    with read("s", socket=server.path, start="latest", skip=True) as reader:
        for _ in range(20):
            client.append("s", [text])
        batch = reader.next(PATIENCE)
        assert batch.missed == 18
        assert batch.following == client.open_stream("s")["partitions"][0]["next"]


def test_overrun(server: StreamServer, client: node.Client, read: Read) -> None:
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "slow": "skip"})
    client.append("s", ["x" * 400])
    with read("s", socket=server.path) as reader:
        before, total = 0, 1
        for _ in range(3):
            batch = reader.next(PATIENCE)
            assert batch.missed == batch.offset - before
            before = batch.offset
            for _ in range(20):
                client.append("s", ["y" * 400])
            total += 20
            with pytest.raises(streams.Overrun):
                batch.release()
        batch = reader.next(PATIENCE)
        assert batch.missed == batch.offset - before
        assert batch.following == total


@both
def test_missed_is_told_later(server: StreamServer, client: node.Client, pull: bool) -> None:
    """The first batch of a named consumer reports how many records the consumer missed, even if an
    earlier reader with this name got no batch.
    """
    client.open_stream("s", {"objectBytes": 1024, "objects": 4, "slow": "skip"})
    how = {"socket": server.path, "consumer": "me", "pull": pull}
    with streams.read("s", **how):
        pass
    for _ in range(20):
        client.append("s", ["x" * 400])
    with streams.read("s", **how):
        pass
    with streams.read("s", **how) as reader:
        batch = reader.next(PATIENCE)
        assert 0 < batch.offset == batch.missed


def test_leaks(server: StreamServer, client: node.Client) -> None:
    client.open_stream("s", {})
    code = """
import os, sys
from netcraq import streams
def count():
    with open("/proc/self/maps") as f:
        return len(os.listdir("/proc/self/fd")), f.read().count("netcraq-")
before = count()
for _ in range(20):
    streams.read("s", socket=sys.argv[1]).close()
assert count() == before, (before, count())
"""
    subprocess.run([sys.executable, "-c", code, server.path], check=True, timeout=PATIENCE, env={**os.environ})


@both
def test_canceled(server: StreamServer, client: node.Client, pull: bool) -> None:
    """If a wait is canceled, no record is lost. A wait delays no other task. A reader can be closed
    while it waits.
    """
    client.open_stream("s", {"partitions": 2})

    async def go() -> None:
        reader = await aio.read("s", socket=server.path, pull=pull)
        async with reader:
            waiting = asyncio.create_task(reader.next())
            turns = 0
            while turns < 20:  # the loop runs other tasks meanwhile
                await asyncio.sleep(0.01)
                turns += 1
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(node.Timeout):
                await reader.next(0.05)
            await asyncio.to_thread(client.append, "s", ["a"])
            await asyncio.sleep(0.1)
            batch = await reader.next(PATIENCE)
            assert [(n, bytes(r.data)) for n, r in batch] == [(0, b"a")]
            await asyncio.to_thread(client.append, "s", ["b"], partition=1)
            async for batch in reader:
                assert (batch.partition, batch.missed, [bytes(r.data) for _, r in batch]) == (1, 0, [b"b"])
                break
            waiting = asyncio.create_task(reader.next())
            await asyncio.sleep(0.05)
        with pytest.raises(node.Closed):
            await waiting
        with pytest.raises(node.Closed):
            await reader.next()
        await reader.close()

    asyncio.run(asyncio.wait_for(go(), PATIENCE))
    gone()


def test_opening_is_given_up(server: StreamServer) -> None:
    """Without a server, read fails after its wait and leaves nothing behind."""

    async def go() -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(aio.read("s", socket=server.path + "not", wait=3600), 0.1)
        with pytest.raises(node.InvalidArgument):
            await aio.read("s", socket=server.path)
        with pytest.raises((node.Unavailable, OSError)):
            await aio.read("s", socket=server.path + "not", wait=0.1)

    asyncio.run(asyncio.wait_for(go(), PATIENCE))
    gone()


def test_a_program_ends_that_closes_nothing(server: StreamServer, client: node.Client) -> None:
    client.open_stream("s", {})
    code = """
import asyncio, sys
from netcraq.streams import aio
async def go():
    reader = await aio.read("s", socket=sys.argv[1])
    try:
        await asyncio.wait_for(reader.next(), 0.1)
    except asyncio.TimeoutError:
        print("ends")
asyncio.run(go())
"""
    done = subprocess.run([sys.executable, "-c", code, server.path], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_publish(monkeypatch: pytest.MonkeyPatch, client: node.Client) -> None:
    """publish sends a subject and an id for each record of a stream that JetStream stores. The
    tests of nodeapi/jetstream check what JetStream stores.
    """
    asked: list[Any] = []
    monkeypatch.setattr(client, "_ask", lambda *ask: asked.append(ask) or {"appended": 2, "sequences": [7, 9]})
    assert client.publish("s", ["a", b"\xff"], subject="orders.x", ids=["1", "2"]) == [7, 9]
    func, data, _, changes = asked[0]
    assert func == "append" and changes
    assert json.loads(data) == {
        "stream": "s",
        "records": [
            {"value": "a", "subject": "orders.x", "id": "1"},
            {"valueBase64": "/w==", "subject": "orders.x", "id": "2"},
        ],
    }
    with pytest.raises(ValueError, match="ids"):
        client.publish("s", ["a"], ids=["1", "2"])
