# SPDX-License-Identifier: Apache-2.0
"""A client for asyncio that executes several requests concurrently.

    from netcraq.aio import Client

    async with await Client.from_controller() as c:
        first, second = await asyncio.gather(c.get(0x01000007), c.get(0x01000008))

It has the methods, rules and errors of :class:`netcraq.client.Client`, and one socket for all
requests. It matches replies to requests by session, number and key. A session has at most one write
under way, because heads drop requests that are older than a session's newest request. So there are
at most as many writes under way as sessions. Other writes wait for their turn, in order of arrival.
Requests beyond in_flight wait in the same way. If a request does not get its turn in time, it was
not sent, and its error says so. Concurrent requests for one key are executed in any order.

A task that is cancelled abandons its request. A write then has an unknown outcome, but is not
executed after the next write of its session.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from netcraq import client as blocking
from netcraq import wire
from netcraq.admin import Admin, Session, SessionLease, chain_for, host_address
from netcraq.client import Call, CASFailed, NetCRAQError, NoSession, Refused, Result, Timeout, ValueTooLarge
from netcraq.wire import Flags, Op, Packet, Status

_T = TypeVar("_T")

_DRAINED = 64
"""The number of packets that are read in a row before other tasks get their turn."""

_EARLY = 4
"""The number of replies that are kept for a request that is not waiting for a reply at the
moment."""


class Closed(NetCRAQError):
    """The client was closed while the request was under way."""


class _NoneLeft(Exception):
    """There are no more resources to wait for."""


class _Turns(Generic[_T]):
    """A pool of resources. A task takes a resource and gives it back. Tasks that wait get resources
    in order of arrival."""

    def __init__(self, things: Iterable[_T] = ()) -> None:
        self.free = deque(things)
        self._waiting: deque[asyncio.Future[_T]] = deque()

    async def take(self, until: float) -> _T | None:
        """Takes a resource, which the caller must give back. Returns None if no resource became
        free in time. Raises the exception that was passed to ``end``.
        """
        if self.free:  # no task waits
            return self.free.popleft()
        turn: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                return await turn
        except TimeoutError:
            return turn.result() if turn.done() and not turn.cancelled() else None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def give(self, thing: _T) -> None:
        """Adds a used or new resource, for the task that has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(thing)
                return
        self.free.append(thing)

    def end(self, why: Exception) -> None:
        """Ends all waits with an error."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(why)


class _Under:
    """A request under way, and its replies."""

    __slots__ = ("call", "early", "waits")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.waits: asyncio.Future[tuple[Packet, str] | None] | None = None
        self.early: list[tuple[Packet, str]] = []


class Client:
    """One socket, many concurrent requests, in one event loop."""

    def __init__(
        self,
        addresses: Iterable[str],
        *,
        service: str | None = None,
        value_bits: int = 128,
        session: Session | SessionLease | Iterable[Session] | None = None,
        at_least_once: bool = False,
        timeout: float = 2.0,
        retransmit: float = 0.05,
        in_flight: int = 64,
        bind: str = "",
    ) -> None:
        """Like :class:`netcraq.client.Client`, but created in a running event loop. session may be
        several sessions, or a lease of several sessions. Their number is the maximum number of
        concurrent writes. in_flight is the maximum number of requests under way. Further requests
        wait for their turn, and their timeout runs meanwhile.
        """
        wire.value_bytes(value_bits)
        self._loop = asyncio.get_running_loop()
        self.addresses = [blocking._address(a) for a in addresses]
        if not self.addresses:
            raise ValueError("no address to ask")
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}, and at least 1 request is to be under way")
        self._sources = {*self.addresses, *([blocking._address(service)] if service else [])}
        self._strangers: dict[tuple[Op, int, int, int], str] = {}
        self.foreign = 0
        """The number of received packets whose sender was not asked and is not the service
        address."""
        self.value_bits = value_bits
        self.timeout = timeout
        self.retransmit = retransmit
        self.at_least_once = at_least_once
        self._turns = _Turns(range(in_flight))
        self._lease: SessionLease | None = None
        if isinstance(session, SessionLease):
            self._lease, session = session, session.sessions
        elif isinstance(session, Session):
            session = [session]
        self._sessions = _Turns(session or ())
        # number of sessions, including sessions that writes are using
        self._has = len(self._sessions.free)
        self._renewing = asyncio.Lock()
        self._number = random.SystemRandom().randrange(1 << 32)
        self._under: dict[tuple[Op, int, int, int], _Under] = {}
        self._closed = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((bind, 0))
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    @classmethod
    async def from_controller(
        cls,
        admin: Admin | None = None,
        *,
        key: int | None = None,
        timeout: float = 2.0,
        retransmit: float = 0.05,
        in_flight: int = 64,
        sessions: int = 8,
    ) -> Client:
        """Returns a client of the chain of a key or, without a key, of the only chain. The
        controller provides the addresses, the width of values, and the sessions. The number of
        sessions is the maximum number of concurrent writes.
        """
        admin = admin or Admin()
        chain = chain_for(await asyncio.to_thread(admin.chains), key)
        host = host_address(chain.service_address)
        lease = await asyncio.to_thread(admin.lease_sessions, sessions, "netcraq python client", host)
        return cls(
            chain.addresses,
            value_bits=chain.value_bits,
            session=lease,
            timeout=timeout,
            retransmit=retransmit,
            in_flight=in_flight,
        )

    async def __aenter__(self) -> Client:
        """Returns the client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the client."""
        await self.close()

    async def close(self) -> None:
        """Ends requests under way with Closed, closes the socket and releases a leased session."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._turns.end(Closed("the client was closed; nothing was sent"))
        self._sessions.end(Closed("the client was closed; nothing was sent"))
        for under in self._under.values():
            if under.waits is not None and not under.waits.done():
                under.waits.set_result(None)
        if self._lease is not None:
            await asyncio.to_thread(self._lease.close)

    async def get(self, key: int, *, eventual: bool = False, to: str | None = None) -> Result:
        """Reads a key. With eventual, any member of the chain may answer with its last committed
        value. If ``to`` is given, only this address is asked. Raises NotFound.
        """
        flags = Flags.EVENTUAL if eventual else Flags(0)
        return await self._turn(Packet(Op.READ, key, flags=flags, request=self._next()), to=to)

    async def put(self, key: int, value: bytes) -> Result:
        """Writes a value."""
        return await self._write(Op.WRITE, key, value, 0)

    async def delete(self, key: int) -> Result:
        """Removes the key's value."""
        return await self._write(Op.WRITE, key, None, 0)

    async def cas(self, key: int, expected: int, value: bytes | None) -> Result:
        """Writes a value if the key's version is the expected one. Expected version 0 means that
        the key was never written. If value is None, the key is deleted. Raises CASFailed.
        """
        return await self._write(Op.CAS, key, value, expected)

    def _next(self) -> int:
        """A number for a request without a session. No other request under way has this number."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        return self._number

    async def _write(self, op: Op, key: int, value: bytes | None, expected: int) -> Result:
        name = f"{blocking._name(op, value)} {wire.format_key(key)}"
        if value is not None and len(value) > wire.value_bytes(self.value_bits):
            raise ValueTooLarge(f"{name}: {len(value)} bytes, the switches' program holds {self.value_bits // 8}")
        begun = time.monotonic()
        sent, pause = 0, 0.01
        while True:
            session = await self._writer(name, begun, sent)
            if session is None:
                request = Packet(op, key, request=self._next(), version=expected, value=value)
                return await self._turn(request, begun, sent)
            number = session.next_request
            session.next_request += 1
            ends = self._lease.ends if self._lease is not None else None
            request = Packet(op, key, session=session.id, request=number, version=expected, value=value)
            taken = True
            try:
                return await self._turn(request, begun, sent, ends)
            except CASFailed as e:
                if not sent or e.outcome_unknown:
                    raise
                # A copy of the CAS under another session may have been executed, and have changed
                # the version.
                raise CASFailed(str(e), e.version, e.value, outcome_unknown=True) from None
            except Refused as e:
                if e.status != Status.BAD_SESSION:
                    raise
                taken = False
                # A copy may have been executed while the session was still accepted. The key then
                # has another version, so a CAS is not executed a second time.
                if op != Op.CAS or self._lease is None or time.monotonic() + pause >= begun + self.timeout:
                    raise
            finally:
                self._done(session, taken)
            sent += 1  # the CAS continues with another session
            if not self._has and sent > 1:
                # the pause grows with the number of consecutive leases that were rejected
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _done(self, session: Session, taken: bool) -> None:
        """Gives a session to the next write, unless the switches reject it."""
        if self._lease is not None and not any(s is session for s in self._lease.sessions):
            return  # the session belongs to an earlier lease
        if taken and session.next_request <= 0xFFFFFFFF:
            self._sessions.give(session)
            return
        self._has -= 1
        if not self._has:
            self._sessions.end(_NoneLeft())

    async def _writer(self, name: str, begun: float, sent: int) -> Session | None:
        """Returns a session to write with. If the lease has expired or has no sessions left, it
        comes from a new lease. Returns None if the client may write without a session.
        """
        while True:
            if self._closed:
                raise Closed(f"{name}: the client was closed", outcome_unknown=sent > 0)
            if self._lease is not None:
                await self._keep()
            elif not self._has:
                if self.at_least_once:
                    return None
                raise NoSession(f"{name}: no session to write with", outcome_unknown=sent > 0)
            try:
                session = await self._sessions.take(begun + self.timeout)
            except _NoneLeft:
                continue
            if session is None:
                what = "" if sent else "; nothing was sent"
                raise Timeout(f"{name}: timed out: no session was free in time{what}", outcome_unknown=sent > 0)
            if self._lease is None or time.monotonic() < self._lease.ends:
                return session
            self._done(session, taken=True)  # the lease has expired during the wait

    async def _keep(self) -> None:
        """Renews the lease for all writers when that is due, or gets another lease."""
        lease = self._lease
        assert lease is not None
        now = time.monotonic()
        if self._has and now < lease.ends and now - lease.renewed <= lease.ttl / 3:
            return
        async with self._renewing:
            if self._lease is not lease:
                return  # another write has renewed the lease
            kept = await asyncio.to_thread(lease.keep)
            if kept and self._has:
                return
            if kept:
                await asyncio.to_thread(lease.close)
            self._lease = await asyncio.to_thread(lease.again)
            self._sessions.free.clear()
            self._has = len(self._lease.sessions)
            for session in self._lease.sessions:
                self._sessions.give(session)

    async def _turn(
        self,
        request: Packet,
        begun: float | None = None,
        before: int = 0,
        not_after: float | None = None,
        to: str | None = None,
    ) -> Result:
        """Executes a request when its turn comes."""
        call = Call(self, request, begun, before, not_after, to)
        if self._closed:
            raise Closed(f"{call.name}: the client was closed; nothing was sent")
        turn = await self._turns.take(call.deadline)
        if turn is None:
            raise Timeout(
                f"{call.name}: timed out: as many others as may be were under way all the time"
                + ("" if before else "; nothing was sent"),
                outcome_unknown=request.op != Op.READ and before > 0,
            )
        try:
            return await self._call(call)
        finally:
            self._turns.give(turn)

    async def _call(self, call: Call) -> Result:
        request = call.request
        ident = (request.op.reply, request.session, request.request, request.key)
        under = self._under[ident] = _Under(call)
        payload = request.encode(self.value_bits)
        writes = request.op != Op.READ
        try:
            while (now := time.monotonic()) < call.deadline:
                if self._closed:
                    raise Closed(f"{call.name}: the client was closed", outcome_unknown=writes and call.attempts > 0)
                try:
                    self._socket.sendto(payload, call.address)
                except OSError as e:  # the socket may also be full at the moment
                    call.unsent(e)
                else:
                    call.attempts += 1
                reply = await self._reply(under, min(now + call.wait, call.deadline))
                if reply is None:
                    call.silence()
                    continue
                result = call.answered(*reply)
                if result is not None:
                    return result
                if call.pause:
                    await asyncio.sleep(max(0, min(call.pause, call.deadline - time.monotonic())))
            raise call.timed_out(self._strangers.get(ident, ""))
        finally:
            del self._under[ident]
            self._strangers.pop(ident, None)

    async def _reply(self, under: _Under, until: float) -> tuple[Packet, str] | None:
        """Returns a reply to any copy of a request, or None if no reply came in time."""
        if under.early:
            return under.early.pop(0)
        waits = under.waits = self._loop.create_future()
        timer = self._loop.call_later(until - time.monotonic(), _silent, waits)
        try:
            return await waits
        finally:
            timer.cancel()
            under.waits = None

    def _readable(self) -> None:
        """Passes received replies to their requests."""
        for _ in range(_DRAINED):
            try:
                payload, source = self._socket.recvfrom(2048)
            except BlockingIOError:
                return
            except OSError:  # an error from an address without a listener
                continue
            try:
                p = Packet.decode(payload, self.value_bits)
            except wire.WireError:
                continue
            ident = (p.op, p.session, p.request, p.key)
            under = self._under.get(ident)
            if source not in (self._sources if under is None else under.call.sources):
                self.foreign += 1
                if under is not None:
                    self._strangers[ident] = "{}:{}".format(*source)
            elif under is None:
                continue  # the reply is for another copy, or for an abandoned request
            elif under.waits is not None and not under.waits.done():
                under.waits.set_result((p, "{}:{}".format(*source)))
            elif len(under.early) < _EARLY:
                under.early.append((p, "{}:{}".format(*source)))


def _silent(waits: asyncio.Future[tuple[Packet, str] | None]) -> None:
    if not waits.done():
        waits.set_result(None)
