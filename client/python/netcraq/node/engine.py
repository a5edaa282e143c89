# SPDX-License-Identifier: Apache-2.0
"""The common part of the blocking and the asyncio client. It has the connection to the node's
server, and the calls under way.

An engine belongs to an event loop, which reads the socket. Any thread may make calls. A lock guards
the calls under way. The calling thread itself writes the request, as far as the socket accepts it
without blocking.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import socket
import stat
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from netcraq.node.errors import (
    Canceled,
    Closed,
    InvalidArgument,
    NodeError,
    OutcomeUnknown,
    PermissionDenied,
    Timeout,
    TooLarge,
    Unavailable,
    error_of,
)
from netcraq.node.values import quote

SOCKET_VARIABLE = "NETCRAQ_NODE_SOCKET"
DEFAULT_SOCKET = "/run/netcraq/node.sock"
MAX_MESSAGE = 256 << 10
MAX_IN_FLIGHT = 1024
DEFAULT_MILLIS = 5_000
MAX_MILLIS = 60_000

GRACE = 0.2
"""The number of seconds that a caller waits longer than the server, so that the caller gets the
server's result."""
FIRST_PAUSE, MAX_PAUSE = 0.01, 1.0
SILENT_WAIT = 1.0
"""The number of seconds that a client waits for the server at start before it logs that it is
waiting."""
STEADY = 1.0  # seconds; if a connection lasted this long, the next pause is the shortest again
DIAL_TIME = 5.0  # timeout in seconds of one attempt to connect, including the greeting
LOOK_AGAIN = 15.0
MAX_LINE = 4 << 20  # bytes; a longer answer is treated as garbage
MAX_WAITING_BYTES = 4 << 20  # maximum total size in bytes of requests under way

HELLO = '{"id":%d,"func":"hello","data":%s}\n'


class Stream:
    """A call with several answers. The engine calls its methods with its lock held."""

    func = ""
    call: Call | None = None

    def data(self) -> str:
        """Return the data of the request, as they are now."""
        raise NotImplementedError

    def tell(self, answer: dict[str, Any]) -> None:
        """Process an answer."""
        raise NotImplementedError

    def end(self, why: NodeError) -> None:
        """The stream has ended."""
        raise NotImplementedError


class Call:
    """A request under way. ``done`` is called once, with the engine's lock held, after ``answer``
    or ``error`` was set.
    """

    __slots__ = (
        "answer",
        "changes",
        "connection",
        "data",
        "deadline",
        "done",
        "error",
        "func",
        "id",
        "identity",
        "maybe",
        "moving",
        "once",
        "room",
        "start",
        "stream",
        "urgent",
        "waits",
    )

    def __init__(
        self,
        func: str,
        data: str,
        done: Callable[[], object] | None = None,
        *,
        changes: bool = False,
        waits: bool = False,
    ) -> None:
        self.func = func
        self.data = data
        self.done = done
        # the call has a side effect, so it gets a number by which the server executes it only once
        self.changes = changes
        self.waits = waits  # the call may wait long for another caller
        self.urgent = False  # the call needs no room, and may be made while the client is closing
        self.stream: Stream | None = None
        self.room: Room | None = None  # the room in which this call is counted
        self.id = 0
        self.once = 0
        self.identity = ""  # identity under which the call was sent, if it has a number
        self.deadline = 0.0  # deadline that the server gets for this call
        self.connection = 0  # number of the connection on which the call was queued; 0 if none
        self.start = 0  # offset of the request's first byte in the connection's stream
        self.maybe = False  # the call may have reached the server over a connection that has ended
        # the call was canceled at this server, and will be made at another server
        self.moving = False
        self.answer: dict[str, Any] | None = None
        self.error: NodeError | None = None


class Room:
    """Bounds the number and the bytes of calls under way. Further calls wait in order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.n = 0
        self.size = 0
        self.queue: deque[Call] = deque()

    def fits(self, size: int) -> bool:
        """Whether there is room for a call of the given size in bytes."""
        return self.n == 0 or (self.n < self.limit and self.size + size <= MAX_WAITING_BYTES)

    def enter(self, call: Call) -> bool:
        """Let a call in, or return False if it must wait."""
        size = len(call.data)
        if not self.fits(size):
            return False
        self.n += 1
        self.size += size
        call.room = self
        return True


class Numbers:
    """Assigns numbers to requests, and knows the number below which all requests are answered."""

    def __init__(self) -> None:
        self.first = 1  # the smallest number without an answer, or the next number to assign
        self._done: deque[bool] = deque()

    def take(self) -> int:
        """Return the next number. The client tells the server below which number all requests are
        answered, and the server then forgets those requests. This bounds what the server stores. So
        a number must not count as answered before its answer has come.
        """
        self._done.append(False)
        return self.first + len(self._done) - 1

    def finish(self, number: int) -> None:
        """Record that the request with this number is answered."""
        if number < self.first:
            return
        self._done[number - self.first] = True
        while self._done and self._done[0]:
            self._done.popleft()
            self.first += 1


@dataclass(eq=False)
class Link:
    """A connection to the server."""

    number: int
    sock: socket.socket
    inbox: bytes = b""
    out: bytearray = field(default_factory=bytearray)
    queued: int = 0  # number of bytes that were ever added to out
    waiting: bool = False  # the socket is full, so nothing is written until it accepts more
    leaving: bool = False  # the connection ends when its calls under way are answered
    heard: bool = False  # something was received since the last check
    asked: bool = False  # a ping was sent at the last check
    said: NodeError | None = None  # the error that the server sent before it ended the connection
    why: BaseException | None = None  # why the connection has ended
    gone: bool = False
    # set when the connection has ended, or the server is shutting down
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    drains: bool = False

    def push(self, line: bytes) -> None:
        """Queue a line."""
        self.out += line
        self.queued += len(line)


class StartedAnew(Exception):
    """The server does not know this client's numbers, because it was restarted."""


@dataclass(frozen=True)
class Config:
    """A client's options. Times are in seconds."""

    socket: str
    namespace: str
    agent: str
    wait: float
    timeout: float
    in_flight: int


def configure(
    socket: str | os.PathLike[str] | None, namespace: str, agent: str, wait: float, timeout: float, in_flight: int
) -> Config:
    """A client's options, with defaults filled in."""
    where = os.fspath(socket) if socket is not None else find_socket()
    if timeout <= 0 or in_flight < 1:
        raise InvalidArgument("timeout and in_flight are greater than 0")
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    return Config(where, namespace, agent or f"python {program}", wait, timeout, in_flight)


def find_socket() -> str:
    """Return the address of a program's server. It is $NETCRAQ_NODE_SOCKET, otherwise the socket of
    a running ``netcraq dev`` of this user, otherwise DEFAULT_SOCKET.
    """
    if where := os.environ.get(SOCKET_VARIABLE):
        return where
    folder = os.environ.get("XDG_RUNTIME_DIR") or ""
    with contextlib.suppress(OSError):
        if not folder:
            folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"netcraq-{os.geteuid()}")
            private = os.lstat(folder)  # any user can make a folder in /tmp
            if not stat.S_ISDIR(private.st_mode) or private.st_mode & 0o077 or private.st_uid != os.geteuid():
                return DEFAULT_SOCKET
        dev = os.path.join(folder, "netcraq.sock")
        if stat.S_ISSOCK(os.lstat(dev).st_mode):
            return dev
    return DEFAULT_SOCKET


def address_of(where: str) -> tuple[socket.AddressFamily | None, Any]:
    """Return an address in the form that sockets need. If the name must be resolved, the family is
    None.
    """
    if where.startswith("tcp://"):
        host, colon, port = where.removeprefix("tcp://").rpartition(":")
        if not colon or not port.isdigit():
            raise InvalidArgument(f"{where}: want tcp://host:port")
        return None, (host.strip("[]"), int(port))
    return socket.AF_UNIX, where.removeprefix("unix://")


_log = logging.getLogger("netcraq.node")
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork() -> None:
    """Remove the parent's connections from a forked child. The child has no thread that serves
    them, and threads that do not exist in the child may hold their locks.
    """
    for engine in _engines:
        engine.forked = True
        for link in engine._links:
            link.sock.close()


os.register_at_fork(after_in_child=_after_fork)


class Engine:
    """A connection to the server, and the calls on it. When the connection ends, the engine
    connects again."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self.forked = False  # this process is a fork of the process that made the engine
        _engines.add(self)
        self.config = config
        self.loop = loop
        self.lock = threading.RLock()
        self.info: dict[str, Any] = {}
        self.calls: dict[int, Call] = {}
        self.link: Link | None = None
        self.why: BaseException | None = None  # why there is no connection at present
        self.closing = False
        self.closed = False
        self.greeted: asyncio.Future[None] = loop.create_future()
        self._quiet: asyncio.Future[None] | None = None  # done when no call is under way
        self._next = 1
        self._identity = secrets.token_hex(16)
        self._numbers = Numbers()
        self._numbered = False  # requests with a number were sent under this identity
        self._ordinary = Room(config.in_flight)
        self._waiting = Room(config.in_flight)  # room for calls that wait for other callers
        self._links: set[Link] = set()
        self._task = loop.create_task(self._run())

    def check_process(self) -> None:
        """Raise Closed in a forked process."""
        if self.forked:
            raise Closed("the client belongs to the process that forked this one", "make a client in the child")

    # # Calls, from any thread.

    def begin(self, call: Call, timeout: float) -> None:
        """Make a call, or let it wait for room. timeout is the time in seconds that the server gets
        for the call."""
        if len(call.data) + 128 > MAX_MESSAGE:
            raise TooLarge(f"{call.func}: a request of {len(call.data)} bytes; at most {MAX_MESSAGE - 128}")
        call.deadline = monotonic() + timeout
        self.check_process()
        with self.lock:
            if self.closed or (self.closing and not call.urgent):
                raise Closed("the client is closed")
            if not call.urgent and call.stream is None:
                room = self._waiting if call.waits else self._ordinary
                if room.queue or not room.enter(call):
                    room.queue.append(call)
                    return
            self._start(call, round(timeout * 1000))

    def _start(self, call: Call, millis: int) -> None:
        call.id = self._next
        self._next += 1
        if call.changes:
            call.once = self._numbers.take()
        self.calls[call.id] = call
        link = self.link
        if link is not None and not link.leaving:
            self._queue(link, call, millis)
            self.flush(link)

    def give_up(self, call: Call, kind: type[NodeError] = Timeout) -> None:
        """End a call whose caller has stopped waiting. If the call was not answered meanwhile, its
        error says whether it may have been executed.
        """
        with self.lock:
            if call.answer is not None or call.error is not None:
                return
            verb = "was canceled" if kind is Canceled else "was not answered in time"
            if call.id == 0:
                room = self._waiting if call.waits else self._ordinary
                room.queue.remove(call)
                call.error = kind(f"{call.func} {verb}: there was no room, too many calls are under way")
                return
            if call.changes and (call.maybe or call.connection != 0):
                error: NodeError = OutcomeUnknown(
                    f"{call.func} {verb}; whether it was done is not known",
                    "read what it would have changed before it is done again",
                )
            elif self.link is None and kind is Timeout:
                error = Unavailable(
                    f"{call.func} was not sent: there is no connection to {self.config.socket}: {self.why}",
                    "see that the node's server runs",
                )
            else:
                error = kind(f"{call.func} {verb}")
            self._abandon(call)
            self._finish(call, None, error, tell=False)
            if self.link is not None:
                self.flush(self.link)

    def _abandon(self, call: Call) -> None:
        """Tell the server that no one waits for a call anymore."""
        self.calls.pop(call.id, None)
        link = self.link
        if link is not None and call.connection == link.number:
            self._cancel(link, call.id)

    def _cancel(self, link: Link, which: int) -> None:
        # The id of this request belongs to no call, so its answer is ignored.
        link.push(b'{"id":%d,"func":"cancel","data":{"id":%d}}\n' % (self._next, which))
        self._next += 1

    def _finish(self, call: Call, answer: dict[str, Any] | None, error: NodeError | None, tell: bool = True) -> None:
        self.calls.pop(call.id, None)
        if call.once:
            self._numbers.finish(call.once)
        call.answer = answer
        call.error = error
        room = call.room
        if room is not None:
            call.room = None
            room.n -= 1
            room.size -= len(call.data)
            if room.queue:
                self._admit(room)
        if tell and call.done is not None:
            call.done()
        if self._quiet is not None and not self.under_way():
            self.loop.call_soon_threadsafe(_resolve, self._quiet)
            self._quiet = None

    def _admit(self, room: Room) -> None:
        while room.queue and room.enter(room.queue[0]):
            call = room.queue.popleft()
            self._start(call, max(1, round((call.deadline - monotonic()) * 1000)))

    def under_way(self) -> int:
        """The number of calls that are under way or wait for room, without watches."""
        return sum(c.stream is None for c in self.calls.values()) + len(self._ordinary.queue) + len(self._waiting.queue)

    def open_stream(self, stream: Stream) -> None:
        """Send a watch under a new id."""
        self.check_process()
        call = Call(stream.func, "")
        call.stream = stream
        with self.lock:
            if self.closing:
                raise Closed("the client is closed")
            stream.call = call
            self._start(call, DEFAULT_MILLIS)

    def close_stream(self, stream: Stream, *, told: bool = False) -> None:
        """Forget a watch. told says whether the server has ended the watch."""
        with self.lock:
            call = stream.call
            stream.call = None
            if call is None:
                return
            if told:
                self.calls.pop(call.id, None)
                return
            self._abandon(call)
            if self.link is not None:
                self.flush(self.link)

    def _queue(self, link: Link, call: Call, millis: int) -> None:
        """Queue a call's line for writing."""
        if call.stream is not None:
            call.data = call.stream.data()
            millis = DEFAULT_MILLIS
        limit = "" if millis == DEFAULT_MILLIS else f',"timeoutMs":{min(max(millis, 1), MAX_MILLIS)}'
        if call.once:
            self._numbered = True
            call.identity = self._identity
            limit += f',"once":{call.once},"done":{self._numbers.first}'
        call.connection = link.number
        call.start = link.queued
        data = f',"data":{call.data}' if call.data else ""
        link.push(f'{{"id":{call.id},"func":"{call.func}"{data}{limit}}}\n'.encode())

    def _queue_again(self, link: Link, call: Call) -> None:
        """Queue a call on another connection."""
        left = call.deadline - monotonic()
        if call.stream is None and left <= 0:
            call.connection = 0  # the call's caller is about to time out
            return
        self._queue(link, call, round(left * 1000))

    def flush(self, link: Link) -> None:
        """Write the queued lines as far as the socket accepts them."""
        if link.waiting or link.gone or not link.out:
            return
        try:
            n = link.sock.send(link.out)
        except (BlockingIOError, InterruptedError):
            n = 0
        except OSError as e:
            self._soon(self._drop, link, e)
            return
        if n == len(link.out):
            link.out.clear()
            return
        del link.out[:n]
        link.waiting = True
        self._soon(self._write_later, link)

    def _soon(self, f: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and everything on it
            self.loop.call_soon_threadsafe(f, *args)

    # # The connection, on the loop's thread.

    async def connect(self) -> None:
        """Wait for the first connection. A wait longer than SILENT_WAIT is logged."""
        where, wait = self.config.socket, self.config.wait
        hint = f"start netcraq dev, netcraq-sidecar or the node's agent, or set {SOCKET_VARIABLE} to where it listens"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.greeted), min(wait, SILENT_WAIT))
            return
        try:
            if wait > SILENT_WAIT:
                why = self.why or "it has not answered yet"
                _log.warning("waiting up to %g s for a node server at %s: %s (%s)", wait, where, why, hint)
                await asyncio.wait_for(asyncio.shield(self.greeted), wait - SILENT_WAIT)
                return
        except TimeoutError:
            pass
        raise Unavailable(
            f"no node server at {where} within {wait:g} s: {self.why or 'it has not answered yet'}", hint
        ) from self.why

    async def _run(self) -> None:
        number = attempt = 0
        while True:
            number += 1
            began = monotonic()
            link = None
            try:
                async with asyncio.timeout(DIAL_TIME):
                    link = await self._open(number)
                await link.changed.wait()
                why: BaseException | None = link.why or NodeError("the server is shutting down", code="draining")
            except StartedAnew:
                continue
            except TimeoutError as e:
                why = e if str(e) else TimeoutError(f"no answer within {DIAL_TIME:g} s")
            except (OSError, ValueError, NodeError) as e:
                why = e
            with self.lock:
                if self.link is None:
                    self.why = why
            if isinstance(why, InvalidArgument | PermissionDenied | TooLarge) and not self.greeted.done():
                self.greeted.set_exception(why)
            if link is not None and monotonic() - began >= STEADY:
                attempt = 0
                continue
            pause = min(FIRST_PAUSE * 2 ** min(attempt, 10), MAX_PAUSE)
            attempt += 1
            await asyncio.sleep(random.uniform(pause / 2, pause))

    async def _open(self, number: int) -> Link:
        """Make a connection, and send the calls under way on it."""
        family, address = address_of(self.config.socket)
        if family is None:
            found = await self.loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
            family, address = found[0][0], found[0][4]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.sock_connect(sock, address)
            link = Link(number, sock)
            hello = await self._greet(link)
            self._adopt(link, hello)
        except BaseException:
            sock.close()
            raise
        return link

    async def _greet(self, link: Link) -> dict[str, Any]:
        with self.lock:
            mine, identity = self._next, self._identity
            self._next += 1
        data: dict[str, Any] = {"client": identity, "agent": self.config.agent, "drainNotice": True}
        if self.config.namespace:
            quote(self.config.namespace)
            data["namespace"] = self.config.namespace
        await self.loop.sock_sendall(link.sock, (HELLO % (mine, json.dumps(data))).encode())
        while True:
            line, newline, rest = link.inbox.partition(b"\n")
            if not newline:
                data_in = await self.loop.sock_recv(link.sock, 65536)
                if not data_in:
                    raise ConnectionError("the server ended the connection instead of greeting")
                link.inbox += data_in
                if len(link.inbox) > MAX_LINE:
                    raise ValueError("what answers is no node server")
                continue
            link.inbox = rest
            answer = read_line(line)
            which = answer.get("id", 0)
            if which not in (mine, 0):
                continue  # the message is from a newer server
            if answer.get("error") is not None:
                raise error_of(answer["error"])
            if which == mine:
                hello = answer.get("data")
                return hello if isinstance(hello, dict) else {}

    def _adopt(self, link: Link, hello: dict[str, Any]) -> None:
        """Make a connection the engine's current one. It sends the calls under way on this
        connection, except for calls that another connection will still answer.
        """
        with self.lock:
            if not hello.get("known", False):
                for call in list(self.calls.values()):
                    if call.changes and call.maybe:
                        self._lost_track(call)
                if self._numbered:
                    # The old server, which knows these calls, may come back. It would not know
                    # calls that are sent to the new server under the same identity.
                    self._identity = secrets.token_hex(16)
                    self._numbered = False
                    raise StartedAnew
            old = self.link
            self.info = hello
            # the remaining quarter is for calls that need no room
            room = int(hello.get("inFlight", 0)) * 3 // 8
            if room > 0:
                self._ordinary.limit = self._waiting.limit = min(self.config.in_flight, room)
            self.link = link
            self.why = None
            self._links.add(link)
            for _, call in sorted(self.calls.items()):
                if call.connection == 0 or call.stream is not None:
                    self._queue_again(link, call)
            if not self.greeted.done():
                self.greeted.set_result(None)
            if old is not None:
                self._move_from(old)
                self.flush(old)
            self.flush(link)
            self.loop.add_reader(link.sock, self._readable, link)
            self.loop.call_later(LOOK_AGAIN, self._look, link)
            if link.inbox:
                inbox, link.inbox = link.inbox, b""
                self._feed(link, inbox)

    def _lost_track(self, call: Call) -> None:
        self._finish(
            call,
            None,
            OutcomeUnknown(
                f"{call.func} was under way when the node's server was started anew; whether it was done is not known",
                "read what it would have changed before it is done again",
            ),
        )

    def _move_from(self, link: Link) -> None:
        """Make a connection end when the server has answered the calls that it executes. Calls that
        wait for other callers are moved to the next server.
        """
        link.leaving = True
        for call in self.calls.values():
            if call.connection == link.number and call.waits and not call.moving:
                call.moving = True
                self._cancel(link, call.id)
        self._end_if_empty(link)

    def _end_if_empty(self, link: Link) -> None:
        if not any(c.connection == link.number for c in self.calls.values()):
            self._soon(self._drop, link, None)

    def _readable(self, link: Link) -> None:
        if link.gone:
            return
        try:
            data = link.sock.recv(1 << 18)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as e:
            self._drop(link, e)
            return
        if not data:
            self._drop(link, link.said or ConnectionError("the server ended the connection"))
            return
        self._feed(link, data)

    def _feed(self, link: Link, data: bytes) -> None:
        if link.inbox:
            data = link.inbox + data
        *lines, link.inbox = data.split(b"\n")
        try:
            if len(link.inbox) > MAX_LINE:
                raise ValueError(f"an answer of more than {MAX_LINE} bytes")
            with self.lock:
                link.heard = True
                for line in lines:
                    self._line(link, line)
        except ValueError as e:
            self._drop(link, e)

    def _line(self, link: Link, line: bytes) -> None:
        answer = read_line(line)
        which = answer.get("id", 0)
        call = self.calls.get(which)
        if call is not None and call.connection != link.number:
            call = None
        error = answer.get("error")
        if (which == 0 or error is not None) and self._notice(link, which, call, answer):
            return
        if call is None:
            return  # a newer server sent this message, or the call's caller has stopped waiting
        if call.stream is not None:
            call.stream.tell(answer)
            return
        if error is not None:
            self._finish(call, None, error_of(error))
        else:
            data = answer.get("data")
            self._finish(call, data if isinstance(data, dict) else {}, None)
        if link.leaving:
            self._end_if_empty(link)

    def _notice(self, link: Link, which: int, call: Call | None, answer: dict[str, Any]) -> bool:
        """Handle a message about the connection. Such a message says that the server is shutting
        down, why it ends the connection, or that a call may be made at another server. Returns
        False for any other message.
        """
        error, data = answer.get("error"), answer.get("data")
        code = error.get("code") if isinstance(error, dict) else None
        moving = call is not None and call.moving
        if code == "draining" or (code == "canceled" and call is not None and not moving):
            # This client has not canceled the call, so the server has canceled it because it is
            # shutting down.
            link.said = error_of(error)
            if call is not None:
                call.connection = 0  # the call was not executed in this attempt
            if self.link is link:  # send nothing more on this connection
                self.link = None
                link.leaving = True
        elif call is not None and code == "canceled":
            call.connection = 0
            call.moving = False
            if self.link is not None:
                if call.once:
                    self._numbers.finish(call.once)
                    call.once = self._numbers.take()
                self._queue_again(self.link, call)
                self.flush(self.link)
            if link.leaving:
                self._end_if_empty(link)
            return True
        elif which == 0 and isinstance(data, dict) and data.get("draining"):
            pass
        elif which == 0:
            if error is not None:
                link.said = error_of(error)
            return True
        else:
            return False
        link.drains = True
        link.changed.set()
        if link.leaving:
            self._end_if_empty(link)
        return True

    def _write_later(self, link: Link) -> None:
        if not link.gone:
            self.loop.add_writer(link.sock, self._writable, link)

    def _writable(self, link: Link) -> None:
        with self.lock:
            self.loop.remove_writer(link.sock)
            link.waiting = False
            self.flush(link)

    def _drop(self, link: Link, why: BaseException | None) -> None:
        """Handle the end of a connection. It is not known which of the connection's calls reached
        the server."""
        with self.lock:
            if link.gone:
                return
            link.gone = True
            link.why = link.said or why or ConnectionError("the connection was closed")
            self._links.discard(link)
            self.loop.remove_reader(link.sock)
            self.loop.remove_writer(link.sock)
            link.sock.close()
            written = link.queued - len(link.out)
            if self.link is link:
                self.link = None
            for _, call in sorted(self.calls.items()):
                if call.connection != link.number:
                    continue
                call.maybe = call.maybe or call.start < written
                call.connection = 0
                call.moving = False
                if call.changes and call.maybe and call.identity != self._identity:
                    self._lost_track(call)
                elif self.link is not None:
                    self._queue_again(self.link, call)
            if self.link is not None:
                self.flush(self.link)
            link.changed.set()

    def _look(self, link: Link) -> None:
        """Ping the server if nothing was received from it since the last check. If the ping is not
        answered, end the connection.
        """
        with self.lock:
            if link.gone:
                return
            if link.asked and not link.heard:
                self._drop(link, TimeoutError(f"the server did not answer for {LOOK_AGAIN:g} s"))
                return
            link.asked = not link.heard
            link.heard = False
            if link.asked:
                link.push(b'{"id":%d,"func":"ping"}\n' % self._next)
                self._next += 1
                self.flush(link)
            self.loop.call_later(LOOK_AGAIN, self._look, link)

    # # Closing.

    async def quiet(self, wait: float) -> int:
        """Wait at most wait seconds until no call is under way. Returns the number of calls still
        under way.
        """
        with self.lock:
            for call in list(self.calls.values()):
                if call.waits:
                    self._abandon(call)
                    self._finish(call, None, Closed("the client is closed"))
            if not self.under_way():
                return 0
            if self._quiet is None:
                self._quiet = self.loop.create_future()
            quiet = self._quiet
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(quiet), wait)
        with self.lock:
            return self.under_way()

    async def end(self) -> None:
        """End the engine immediately."""
        with self.lock:
            self.closing = self.closed = True
            self._task.cancel()
            for call in list(self.calls.values()):
                if call.stream is not None:
                    call.stream.end(Closed("the client is closed"))
                elif call.changes and (call.maybe or call.connection):
                    self._finish(
                        call,
                        None,
                        OutcomeUnknown(
                            f"{call.func} was not answered before the client was closed; whether it was done is not known"
                        ),
                    )
                else:
                    self._finish(call, None, Closed("the client is closed"))
            for room in (self._ordinary, self._waiting):
                for call in room.queue:
                    call.error = Closed("the client is closed")
                    if call.done is not None:
                        call.done()
                room.queue.clear()
            for link in list(self._links):
                self._drop(link, None)
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self.greeted.done() and not self.greeted.cancelled():
            self.greeted.exception()  # reading the exception marks it as retrieved
        else:
            self.greeted.cancel()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def read_line(line: bytes) -> dict[str, Any]:
    """Parse an answer. Raises ValueError if the line is not an answer."""
    try:
        answer = json.loads(line)
    except ValueError as e:
        raise ValueError(f"what answers is no node server: {line[:80]!r}") from e
    if not isinstance(answer, dict) or not isinstance(answer.get("id", 0), int):
        raise ValueError(f"an answer that is none: {line[:80]!r}")
    return answer
