# SPDX-License-Identifier: Apache-2.0
"""Tests of the client for asyncio with reference servers. They test the functions of the blocking
client, and concurrent requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from netcraq import client as nc
from netcraq.admin import Admin, Session
from netcraq.aio import Client, Closed
from netcraq.wire import Status

KEY = 0x01000001


def sessions(n: int = 8) -> list[Session]:
    """n sessions that are reserved for a test."""
    return [Session(3 + i) for i in range(n)]


def run(what: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the body of a test, for at most half a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await what()

    asyncio.run(bounded())


@pytest.mark.parametrize("value_bits", [128, 8192])
def test_operations(make_chain, value_bits: int) -> None:
    chain = make_chain(value_bits=value_bits)

    async def go() -> None:
        async with Client(chain.addresses, value_bits=value_bits, session=Session(3), retransmit=5, timeout=20) as c:
            with pytest.raises(nc.NotFound) as missing:
                await c.get(KEY)
            assert missing.value.version == 0
            value = b"v" * (value_bits // 8)
            put = await c.put(KEY, value)
            got = await c.get(KEY)
            assert (got.value, got.version, got.answered_by, got.attempts) == (
                value,
                put.version,
                chain.addresses[0],
                1,
            )
            assert (await c.get(KEY, eventual=True)).value == value
            swapped = await c.cas(KEY, put.version, b"w")
            with pytest.raises(nc.CASFailed) as failed:
                await c.cas(KEY, put.version, b"x")
            assert (failed.value.version, failed.value.value, failed.value.outcome_unknown) == (
                swapped.version,
                b"w",
                False,
            )
            await c.delete(KEY)
            with pytest.raises(nc.NotFound) as deleted:
                await c.get(KEY)
            assert deleted.value.version > swapped.version
            with pytest.raises(nc.ValueTooLarge):
                await c.put(KEY, value + b"v")
            with pytest.raises(nc.NoChain):
                await c.get(0x09000001)

    run(go)


def test_many_at_once_over_a_bad_network(make_chain) -> None:
    """Packets are lost, duplicated and reordered. Each request gets its own answer, each write is
    executed once, and there are never more requests under way than allowed.
    """
    chain = make_chain(addresses=2, loss=0.15, duplicate=0.3, seed=2)

    async def go() -> None:
        async with Client(chain.addresses, session=sessions(), retransmit=0.01, timeout=20, in_flight=12) as c:
            most = attempts = 0

            async def writer(n: int) -> None:
                nonlocal most, attempts
                key = KEY + n
                for i in range(25):
                    text = b"%d.%d" % (n, i)
                    r = await c.put(key, text)
                    assert r.version & 0xFFFF == i + 1  # each write has its own version, in order
                    most = max(most, len(c._under))
                    attempts += r.attempts
                    both = await asyncio.gather(c.get(key), c.get(key))
                    assert [b.value for b in both] == [text, text]

            await asyncio.gather(*(writer(n) for n in range(8)))
            assert attempts > 200
            assert 2 < most <= 12
            assert not c._under

    run(go)
    assert chain.executed == 200


def test_more_writes_than_sessions(make_chain) -> None:
    """A session has at most one write under way, so further writes wait."""
    chain = make_chain(duplicate=0.3, seed=3)

    async def go() -> None:
        async with Client(chain.addresses, session=sessions(2)) as c:
            done = await asyncio.gather(*(c.put(KEY, b"%d" % n) for n in range(50)))
            assert sorted(r.version & 0xFFFF for r in done) == list(range(1, 51))

    run(go)
    assert chain.executed == 50
    assert chain.sessions[3][0] + chain.sessions[4][0] == 50  # each number was used once


def test_overtaking(make_chain) -> None:
    """The replies arrive in the opposite order."""
    chain = make_chain()

    async def go() -> None:
        async with Client(chain.addresses, session=sessions(), retransmit=5, timeout=20) as c:
            for n in range(8):
                await c.put(KEY + n, b"%d" % n)
            given: list[tuple[Any, ...]] = []
            send, reply = c._socket.sendto, c._readable

            class Backwards:
                def sendto(self, *packet: Any) -> None:
                    given.append(packet)

                def __getattr__(self, name: str) -> Any:
                    return getattr(real, name)

            real, c._socket = c._socket, Backwards()  # type: ignore[assignment]
            reads = [asyncio.ensure_future(c.get(KEY + n)) for n in range(8)]
            while len(given) < 8:
                await asyncio.sleep(0)
            c._socket = real
            for packet in reversed(given):
                send(*packet)
            reply()
            assert [r.value for r in await asyncio.gather(*reads)] == [b"%d" % n for n in range(8)]

    run(go)


def test_redirect_and_refusals(make_chain) -> None:
    chain = make_chain(addresses=2)

    async def go() -> None:
        async with Client(chain.addresses, session=sessions()) as c:
            chain.down.add(0)
            r = await c.put(KEY, b"x")
            assert r.attempts >= 2
            assert chain.executed == 1
            assert r.rtt >= 0.05
            chain.down.clear()
            chain.refuse[0] = Status.NOT_SERVING
            assert (await c.get(KEY)).attempts >= 2
            chain.refuse.clear()
            chain.frozen = True
            before = chain.requests
            c.timeout = 20
            both = [asyncio.ensure_future(c.put(KEY + n, b"y")) for n in range(2)]
            while chain.requests < before + 10:  # wait until both writes were sent several times
                await asyncio.sleep(0.001)
            assert not any(task.done() for task in both)
            chain.frozen = False
            assert all(r.attempts > 1 for r in await asyncio.gather(*both))
            chain.refuse[0] = Status.FULL
            chain.down.add(1)
            with pytest.raises(nc.Refused, match="FULL") as e:
                await c.put(KEY, b"z")
            assert e.value.outcome_unknown

    run(go)


def test_nothing_leaves() -> None:
    """The operating system sends no packet from a loopback address to another address."""

    async def go() -> None:
        async with Client(["192.0.2.1"], bind="127.0.0.1", session=Session(3), timeout=0.12) as c:
            with pytest.raises(nc.Timeout, match=r"sending fails: .*\(nothing was sent\)$") as e:
                await c.put(KEY, b"x")
            assert not e.value.outcome_unknown

    run(go)


def test_timeout_and_turns(make_chain) -> None:
    chain = make_chain(loss=1)

    async def go() -> None:
        async with Client(chain.addresses, session=Session(3), timeout=0.12, in_flight=2) as c:
            with pytest.raises(nc.Timeout, match="not known") as e:
                await c.put(KEY, b"x")
            assert e.value.outcome_unknown
            c.timeout = 10
            holds = [asyncio.ensure_future(c.put(KEY, b"x"))]
            await asyncio.sleep(0)
            c.timeout = 0.12
            with pytest.raises(nc.Timeout, match="no session was free in time; nothing was sent") as e:
                await c.put(KEY, b"x")
            assert not e.value.outcome_unknown
            c.timeout = 10
            holds.append(asyncio.ensure_future(c.get(KEY)))
            await asyncio.sleep(0)
            c.timeout = 0.12
            with pytest.raises(nc.Timeout, match="under way all the time; nothing was sent"):
                await c.get(KEY)
            for task in holds:
                task.cancel()
            await asyncio.gather(*holds, return_exceptions=True)
            chain.loss, c.timeout = 0, 10
            await c.put(KEY, b"y")

    run(go)


def test_cancelled(make_chain) -> None:
    """When a write is abandoned, the next write gets its session and its turn."""
    chain = make_chain()

    async def go() -> None:
        async with Client(chain.addresses, session=Session(3), in_flight=1, timeout=5) as c:
            chain.down.add(0)
            first, second = asyncio.ensure_future(c.put(KEY, b"x")), asyncio.ensure_future(c.put(KEY, b"z"))
            await asyncio.sleep(0.02)
            for task in (second, first):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            chain.down.clear()
            await c.put(KEY, b"y")
            assert (await c.get(KEY)).value == b"y"

    run(go)
    # the first write may have been executed; the second write was not sent
    assert chain.executed in (1, 2)


def test_closed(make_chain) -> None:
    chain = make_chain(loss=1)

    async def go() -> None:
        c = Client(chain.addresses, session=Session(3), in_flight=2)
        tasks = [
            asyncio.ensure_future(c.put(KEY, b"x")),
            asyncio.ensure_future(c.get(KEY)),
            asyncio.ensure_future(c.get(KEY)),
        ]
        tasks.append(asyncio.ensure_future(c.put(KEY, b"z")))
        await asyncio.sleep(0.02)
        await c.close()
        await c.close()
        got = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(e) for e in got] == [Closed] * 4
        assert [e.outcome_unknown for e in got] == [True, False, False, False]
        with pytest.raises(Closed, match="nothing was sent"):
            await c.get(KEY)

    run(go)


def test_sessions(make_chain) -> None:
    chain = make_chain()

    async def go() -> None:
        async with Client(chain.addresses) as c:
            with pytest.raises(nc.NoSession):
                await c.put(KEY, b"x")
        async with Client(chain.addresses, at_least_once=True) as c:
            await c.put(KEY, b"x")
        chain.session_table = 5
        async with Client(chain.addresses, session=[Session(5), Session(6)]) as c:
            got = await asyncio.gather(*(c.put(KEY, b"x") for _ in range(4)), return_exceptions=True)
            assert sorted(type(e).__name__ for e in got) == ["NoSession", "NoSession", "Refused", "Refused"]
        with pytest.raises(ValueError, match="no address"):
            Client([])
        with pytest.raises(ValueError, match="in_flight"):
            Client(chain.addresses, in_flight=0)

    run(go)


def test_controller(make_chain, make_controller) -> None:
    """The client renews its lease. When the lease is lost, all writes together get one new
    lease."""
    chain = make_chain(addresses=3)
    controller = make_controller(chain, ttl=30)

    async def go() -> None:
        async with await Client.from_controller(Admin(controller.url), sessions=3, timeout=20) as c:
            assert len(c.addresses) == 3

            async def nine(age: float) -> str:
                c._lease.renewed -= age
                await asyncio.gather(*(c.put(KEY, b"%d" % n) for n in range(9)))
                return c._lease.name

            assert await nine(0) == "L1"
            assert controller.kept == []
            assert await nine(11) == "L1"
            assert controller.kept == ["L1"]
            controller.gone.add("L1")
            assert await nine(11) == "L4"
            assert await nine(28) == "L7"  # the first lease has expired
            assert (await c.get(KEY)).value is not None

    run(go)
    assert chain.executed == 36
    assert controller.closed == ["L7"]


def test_cas_goes_on_with_another_session(make_chain, make_controller) -> None:
    chain = make_chain()
    controller = make_controller(chain)

    async def go() -> None:
        async with await Client.from_controller(Admin(controller.url), sessions=2) as c:
            version = (await c.put(KEY, b"x")).version
            for s in c._lease.sessions:
                chain.lease(s.id, "127.0.0.9")  # from now on, the session belongs to another host
            assert (await c.cas(KEY, version, b"y")).version > version
            assert c._lease.name != "L1"

    run(go)


def test_a_stranger(make_chain) -> None:
    """The client counts, reports and ignores packets from a foreign address."""
    asked, other = make_chain(), make_chain()

    async def go() -> None:
        async with Client(asked.addresses, session=sessions(), timeout=1) as c:
            host, _, port = other.addresses[0].partition(":")
            c.addresses = [(host, int(port))]
            with pytest.raises(nc.Timeout, match="was not asked"):
                await c.get(KEY)
            assert c.foreign > 0

    began = time.monotonic()
    run(go)
    assert time.monotonic() - began < 20
