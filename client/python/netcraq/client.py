# SPDX-License-Identifier: Apache-2.0
"""A small synchronous client; :mod:`netcraq.aio` has one for several concurrent requests.

    from netcraq.admin import Session
    from netcraq.client import Client

    with Client(["10.0.0.100"], session=Session(5, 1)) as c:
        r = c.get(0x01000007)
        c.cas(0x01000007, r.version, b"off")

If a request is not answered within the retransmission time (50 ms in the NetCRAQ paper), the client
sends the same packet to the next address, until the timeout. Every copy has the same session and
request number, so a write is executed once however often it is sent. A write that ends in Timeout
has an unknown outcome. The next write gets the next number, so switches drop late copies of the
older write as soon as they know the newer write. No other content is ever sent under an old number.
A refused write also has an unknown outcome, because the refusal is about one copy, and networks
duplicate packets. Only two kinds of writes are certainly not executed: writes that were not sent,
and a failed CAS that had a session.

The client accepts answers only from addresses that it asked and from the chain's service address.
It counts other packets (``Client.foreign``) and ignores them.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from netcraq import wire
from netcraq.admin import Admin, Session, SessionLease, chain_for, host_address
from netcraq.wire import Flags, Op, Packet, Status


class NetCRAQError(Exception):
    """A request failed. ``outcome_unknown`` is true if the request is a write that may have been
    executed, or may still be executed.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message + ("; whether the write was executed is not known" if outcome_unknown else ""))
        self.outcome_unknown = outcome_unknown


class NotFound(NetCRAQError):
    """The key has no slot in the network, was never written, or is deleted. ``version`` is 0 if the
    key was never written, and otherwise the version of the deletion.
    """

    def __init__(self, message: str, version: int, *, outcome_unknown: bool = False) -> None:
        super().__init__(message, outcome_unknown=outcome_unknown)
        self.version = version


class CASFailed(NetCRAQError):
    """The key does not have the expected version. ``version`` and ``value`` are the committed
    version and value; ``value`` is None if the key has no value.
    """

    def __init__(self, message: str, version: int, value: bytes | None, *, outcome_unknown: bool = False) -> None:
        super().__init__(message, outcome_unknown=outcome_unknown)
        self.version = version
        self.value = value


class Timeout(NetCRAQError):
    """No answer in time."""


class ValueTooLarge(NetCRAQError):
    """The value does not fit the profile. Nothing was sent."""


class NoChain(NetCRAQError):
    """Every address that was asked answered that it has no chain with the key's chain number."""


class NoSession(NetCRAQError):
    """A write was requested, but the client has no session to write with."""


class Denied(NetCRAQError):
    """This host lacks the right for this operation in the key's realm. Trying again does not help;
    the operator can grant it.
    """


class Refused(NetCRAQError):
    """The switches answered BAD_SESSION or FULL, or the answer is invalid. ``status`` is the status
    of the answer. BAD_SESSION means that the switches do not accept the session; the client does
    not use it again.
    """

    def __init__(self, message: str, status: int, *, outcome_unknown: bool = False) -> None:
        super().__init__(message, outcome_unknown=outcome_unknown)
        self.status = status


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a request."""

    version: int
    value: bytes | None
    """The value that a read returned; None for writes."""
    superseded: bool
    """Whether the write was executed, but a newer write has already replaced it. False for
    reads."""
    answered_by: str
    epoch: int
    rtt: float
    """Seconds since the first transmission."""
    attempts: int
    """The number of packets that were sent."""


class Client:
    """A client with one socket and one request at a time. Several threads must not use it
    concurrently."""

    def __init__(
        self,
        addresses: Iterable[str],
        *,
        service: str | None = None,
        value_bits: int = 128,
        session: Session | SessionLease | None = None,
        at_least_once: bool = False,
        timeout: float = 2.0,
        retransmit: float = 0.05,
        bind: str = "",
    ) -> None:
        """addresses has items "ADDRESS" or "ADDRESS:PORT". The chain's service address comes first,
        and then the switches' own addresses.

        service is the chain's service address, if it is not one of addresses. Switches answer from
        the service address even if they were asked at their own address. session is the session to
        write with, or a lease of sessions. Without a session, writes raise NoSession or, with
        at_least_once, may be executed more than once. If the switches reject all sessions of a
        lease, the client gets another lease. timeout and retransmit are in seconds.
        """
        wire.value_bytes(value_bits)
        self.addresses = [_address(a) for a in addresses]
        if not self.addresses:
            raise ValueError("no address to ask")
        self._sources = {*self.addresses, *([_address(service)] if service else [])}
        self._stranger = ""  # sender of an ignored answer to this request, if any
        self.foreign = 0
        """Number of packets from an address that was not asked and is not the service address."""
        self.value_bits = value_bits
        self.timeout = timeout
        self.retransmit = retransmit
        self.at_least_once = at_least_once
        self._session = session
        # The first number of reads is random, because an answer is recognized by its number. So
        # attackers cannot guess the number, and the client does not accept a late answer to an
        # earlier user of the same UDP port.
        self._number = random.SystemRandom().randrange(1 << 32)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((bind, 0))
        self._socket.setblocking(False)

    @classmethod
    def from_controller(
        cls, admin: Admin | None = None, *, key: int | None = None, timeout: float = 2.0, retransmit: float = 0.05
    ) -> Client:
        """Returns a client of the chain of a key or, without a key, of the only chain. The
        controller provides the addresses, the width of values, and a session.
        """
        admin = admin or Admin()
        chain = chain_for(admin.chains(), key)
        session = admin.lease_sessions(address=host_address(chain.service_address))
        return cls(
            chain.addresses, value_bits=chain.value_bits, session=session, timeout=timeout, retransmit=retransmit
        )

    def __enter__(self) -> Client:
        """Returns the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the client."""
        self.close()

    def close(self) -> None:
        """Closes the socket and releases a leased session."""
        self._socket.close()
        if isinstance(self._session, SessionLease):
            self._session.close()

    def get(self, key: int, *, eventual: bool = False, to: str | None = None) -> Result:
        """Reads a key. With eventual, any member of the chain may answer with its last committed
        value. If ``to`` is given, only this address is asked. Raises NotFound.
        """
        self._number = (self._number + 1) & 0xFFFFFFFF
        return self._call(
            Packet(Op.READ, key, flags=Flags.EVENTUAL if eventual else Flags(0), request=self._number), to=to
        )

    def put(self, key: int, value: bytes) -> Result:
        """Writes a value."""
        return self._write(Op.WRITE, key, value, 0)

    def delete(self, key: int) -> Result:
        """Removes the key's value."""
        return self._write(Op.WRITE, key, None, 0)

    def cas(self, key: int, expected: int, value: bytes | None) -> Result:
        """Writes a value if the key's version is the expected one. Expected version 0 means that
        the key was never written. If value is None, the key is deleted. Raises CASFailed.
        """
        return self._write(Op.CAS, key, value, expected)

    def _write(self, op: Op, key: int, value: bytes | None, expected: int) -> Result:
        if value is not None and len(value) > wire.value_bytes(self.value_bits):
            raise ValueTooLarge(
                f"{_name(op, value)} {wire.format_key(key)}: {len(value)} bytes, the switches' program holds {self.value_bits // 8}"
            )
        begun = time.monotonic()
        sent, pause = 0, 0.01
        while True:
            session = self._writer()
            if session is None:
                if not self.at_least_once:
                    raise NoSession(
                        f"{_name(op, value)} {wire.format_key(key)}: no session to write with", outcome_unknown=sent > 0
                    )
                self._number = (self._number + 1) & 0xFFFFFFFF
                return self._call(Packet(op, key, request=self._number, version=expected, value=value), begun, sent)
            number = session.next_request
            session.next_request += 1
            ends = self._session.ends if isinstance(self._session, SessionLease) else None
            try:
                return self._call(
                    Packet(op, key, session=session.id, request=number, version=expected, value=value),
                    begun,
                    sent,
                    ends,
                )
            except CASFailed as e:
                if not sent or e.outcome_unknown:
                    raise
                # A copy of the CAS under another session may have been executed, and have changed
                # the version.
                raise CASFailed(str(e), e.version, e.value, outcome_unknown=True) from None
            except Refused as e:
                if e.status != Status.BAD_SESSION:
                    raise
                left = self._drop(session)
                # A copy may have been executed while the session was still accepted. The key then
                # has another version, so a CAS is not executed a second time.
                if (
                    op != Op.CAS
                    or not isinstance(self._session, SessionLease)
                    or time.monotonic() + pause >= begun + self.timeout
                ):
                    raise
            sent += 1  # the CAS continues with another session
            if not left and sent > 1:
                # the pause grows with the number of consecutive leases that were rejected
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _writer(self) -> Session | None:
        """Returns the session to write with. If the lease has expired or has no sessions left, it
        comes from a new lease.
        """
        session = self._session
        if isinstance(session, SessionLease):
            kept = session.keep()
            if kept and not session.sessions:
                session.close()
            if not (kept and session.sessions):
                session = self._session = session.again()
            session = session.sessions[0]
        return None if session is None or session.next_request > 0xFFFFFFFF else session

    def _drop(self, session: Session) -> int:
        """Stops using a session, and returns the number of sessions left."""
        if isinstance(self._session, SessionLease):
            self._session.sessions.remove(session)
            return len(self._session.sessions)
        self._session = None
        return 0

    def _call(
        self,
        request: Packet,
        begun: float | None = None,
        before: int = 0,
        not_after: float | None = None,
        to: str | None = None,
    ) -> Result:
        """Executes a request. begun, before and not_after have the same meaning as in
        :class:`Call`."""
        call = Call(self, request, begun, before, not_after, to)
        payload = request.encode(self.value_bits)
        self._stranger = ""
        while (now := time.monotonic()) < call.deadline:
            try:
                self._socket.sendto(payload, call.address)
            except OSError as e:
                call.unsent(e)
            else:
                call.attempts += 1
            reply = self._receive(request, call.sources, min(now + call.wait, call.deadline))
            if reply is None:
                call.silence()
                continue
            result = call.answered(*reply)
            if result is not None:
                return result
            if call.pause:
                time.sleep(max(0, min(call.pause, call.deadline - time.monotonic())))
        raise call.timed_out(self._stranger)

    def _receive(self, request: Packet, sources: set[tuple[str, int]], until: float) -> tuple[Packet, str] | None:
        """Returns a reply to any copy of the request, or None if no reply came in time."""
        while True:
            ready, _, _ = select.select([self._socket], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            try:
                payload, (host, port) = self._socket.recvfrom(2048)
                p = Packet.decode(payload, self.value_bits)
            except (OSError, wire.WireError):
                continue
            answers = p.op == request.op.reply and (p.session, p.request, p.key) == (
                request.session,
                request.request,
                request.key,
            )
            if (host, port) not in sources:
                self.foreign += 1
                self._stranger = f"{host}:{port}" if answers else self._stranger
            elif answers:
                return p, f"{host}:{port}"


class Asking(Protocol):
    """The properties of a client that a Call needs."""

    addresses: list[tuple[str, int]]
    timeout: float
    retransmit: float
    _sources: set[tuple[str, int]]


class Call:
    """A request under way. It determines the next address, the time to wait, and the meaning of an
    answer. It does no input or output, so clients that wait in different ways can share these
    rules.

    begun is when the request's first packet was sent. before is the number of packets that were
    sent under other sessions. not_after is when the session's lease ends. If ``to`` is given, it is
    the only address to ask.
    """

    def __init__(
        self,
        client: Asking,
        request: Packet,
        begun: float | None = None,
        before: int = 0,
        not_after: float | None = None,
        to: str | None = None,
    ) -> None:
        self.request = request
        self._addresses = client.addresses if to is None else [_address(to)]
        self.sources = client._sources if to is None else client._sources.union(self._addresses)
        self._retransmit = client.retransmit
        self.name = f"{_name(request.op, request.value)} {wire.format_key(request.key)}"
        self._writes = request.op != Op.READ
        self.begun = time.monotonic() if begun is None else begun
        self.deadline = self.begun + client.timeout
        if not_after is not None:
            self.deadline = min(self.deadline, not_after)
        self._before = before
        self.attempts = 0
        """The number of packets sent, which the client counts."""
        self.pause = 0.0
        """Seconds to wait before the packet is sent again, after an answer that asks for a retry.
        """
        self._at = self._silent = self._refusals = self._no_chain = 0
        self._last = "no answer"

    @property
    def address(self) -> tuple[str, int]:
        """The address to send to."""
        return self._addresses[self._at]

    @property
    def wait(self) -> float:
        """Seconds to wait for an answer."""
        return self._retransmit * min(4, 2 ** min(self._silent // len(self._addresses), 2))

    def unsent(self, why: OSError) -> None:
        """The packet could not be sent; it counts as lost."""
        self._last = f"sending fails: {why}"

    def silence(self) -> None:
        """No answer has come in time."""
        self._silent += 1
        self._no_chain = 0
        self._at = (self._at + 1) % len(self._addresses)

    def answered(self, p: Packet, source: str) -> Result | None:
        """Interprets an answer. Returns None if the client must send the same packet again. That is
        so if the switch has not executed it, or if the answer is for an older copy.
        """
        if p.status not in (Status.RETRY, Status.NOT_SERVING, Status.NO_CHAIN):
            result = self._result(p, source, time.monotonic() - self.begun)
            return replace(result, attempts=self._before + self.attempts)
        self._refusals += 1
        self._last = f"the last answer was {wire.status_name(p.status)}"
        self._no_chain = self._no_chain + 1 if p.status == Status.NO_CHAIN else 0
        if self._no_chain >= len(self._addresses):
            raise NoChain(f"{self.name}: no such chain: {self.request.key >> 24}", outcome_unknown=self._writes)
        if p.status != Status.RETRY:
            self._at = (self._at + 1) % len(self._addresses)
        self.pause = 0.0
        if p.status == Status.RETRY or self._refusals >= len(self._addresses):
            self.pause = min(0.02, 0.0005 * 2 ** min(self._refusals, 6)) * random.uniform(0.5, 1)
        return None

    def timed_out(self, stranger: str) -> Timeout:
        """Returns the error for a request that was not answered in time. stranger is the sender of
        an ignored answer, if any.
        """
        if stranger and self._last == "no answer":
            self._last = f"no answer but from {stranger}, which was not asked: if that is the chain's service address, give it as service"
        sent = (
            f" ({self.attempts} sent in {time.monotonic() - self.begun:.3f} s)"
            if self.attempts
            else " (nothing was sent)"
        )
        return Timeout(
            f"{self.name}: timed out: {self._last}{sent}",
            outcome_unknown=self._writes and self._before + self.attempts > 0,
        )

    def _result(self, p: Packet, source: str, rtt: float) -> Result:
        request, name, writes = self.request, self.name, self._writes
        if p.status == Status.NOT_FOUND or (not writes and p.status == Status.OK and p.value is None):
            raise NotFound(f"{name}: key not found", 0 if writes else p.version, outcome_unknown=writes)
        if p.status == Status.CAS_FAILED and request.op == Op.CAS:
            # With a session, the head would have recognized a copy that it had executed. Without a
            # session, this may be the answer to a second copy of a CAS that was executed.
            why = f"{name}: the key has version {wire.format_version(p.version)}, value {p.value!r}"
            raise CASFailed(why, p.version, p.value, outcome_unknown=request.session == 0)
        if p.status == Status.OK or (p.status == Status.SUPERSEDED and writes):
            return Result(
                p.version,
                None if writes else p.value,
                p.status == Status.SUPERSEDED,
                source,
                p.epoch,
                rtt,
                self.attempts,
            )
        # Any other refusal of a write is about this copy of its packet; another copy may have been
        # executed.
        if p.status == Status.DENIED:
            needed = {Op.READ: "read in", Op.WRITE: "write in", Op.CAS: "read and write in"}[request.op]
            raise Denied(
                f"{name}: access denied: ask the operator for access to {needed} the key's realm",
                outcome_unknown=writes,
            )
        why = f"answered {wire.status_name(p.status)}"
        if writes and p.status == Status.BAD_SESSION:
            why += f": session {request.session} is not leased to this host, not any more, or is beyond the switches' session table"
        raise Refused(f"{name}: {why}", p.status, outcome_unknown=writes)


def _address(s: str) -> tuple[str, int]:
    host, _, port = s.partition(":")
    try:
        return socket.gethostbyname(host), int(port) if port else wire.PORT
    except (OSError, ValueError) as e:
        raise ValueError(f"{s!r} is no address (want ADDRESS or ADDRESS:PORT): {e}") from None


def _name(op: Op, value: bytes | None) -> str:
    if op == Op.READ:
        return "get"
    if op == Op.CAS:
        return "compare and delete" if value is None else "compare and swap"
    return "delete" if value is None else "put"
