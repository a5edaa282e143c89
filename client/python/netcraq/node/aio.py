# SPDX-License-Identifier: Apache-2.0
"""The node API with asyncio.

    from netcraq.node import aio

    async with await aio.connect() as client:
        await client.put("color", "blue")
        item = await client.get("color")
        async with client.lock("printer") as lock:
            ...

It has the interface of :mod:`netcraq.node`, which says what calls do and raise. A client belongs to
the event loop on which it was created. If a task is canceled, its call is also canceled at the
server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from time import monotonic
from typing import Any, Self

from netcraq.node import requests
from netcraq.node.engine import (
    FIRST_PAUSE,
    GRACE,
    MAX_PAUSE,
    Call,
    Engine,
    Stream,
    configure,
)
from netcraq.node.errors import (
    Canceled,
    Closed,
    Internal,
    InvalidArgument,
    LeaseGone,
    NodeError,
    NoRoom,
    NotHeld,
    OutcomeUnknown,
    PermissionDenied,
    QuotaExceeded,
    Timeout,
    Unavailable,
    error_of,
    of_older_server,
)
from netcraq.node.values import (
    NEVER,
    Comparison,
    Delete,
    Deletion,
    Event,
    Instance,
    Item,
    Leader,
    Lease,
    Page,
    Put,
    Sum,
    Swap,
    Transacted,
    instances,
    millis,
    page_of,
    transacted_of,
    version_key,
)

DEFAULT_TTL = 10.0
# longest time in seconds that one request waits for a lock; then the request is repeated
LONGEST_WAIT = 50.0
MAX_IDLE = 4  # maximum number of idle leases of a kind


async def connect(
    socket: str | os.PathLike[str] | None = None,
    namespace: str = "",
    *,
    agent: str = "",
    wait: float = 30.0,
    timeout: float = 5.0,
    in_flight: int = 512,
) -> Client:
    """Connect to the node's server, like :func:`netcraq.node.connect`."""
    engine = Engine(configure(socket, namespace, agent, wait, timeout, in_flight), asyncio.get_running_loop())
    try:
        await engine.connect()
    except BaseException:
        await engine.end()
        raise
    return Client(engine)


class Client:
    """A client of the node's server. When its connection ends, it connects again. :func:`connect`
    makes a client.

    Each call has the arguments ``timeout``, in seconds, and ``namespace``. The defaults None and ""
    stand for the client's own timeout and namespace.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: set[_Given] = set()
        self._leases: set[_Kept] = set()
        self._idle: dict[tuple[str, float], list[_Kept]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def info(self) -> dict[str, Any]:
        """The server's description of itself: ``server``, ``node``, ``namespace``, ``maxValue``,
        ..."""
        return self._engine.info

    async def __aenter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the client."""
        await self.close()

    async def _ask(
        self,
        func: str,
        data: str,
        timeout: float | None,
        *,
        changes: bool = False,
        waits: bool = False,
        urgent: bool = False,
    ) -> dict[str, Any]:
        engine = self._engine
        if timeout is None:
            timeout = engine.config.timeout
        future: asyncio.Future[None] = engine.loop.create_future()
        call = Call(func, data, lambda: future.done() or future.set_result(None), changes=changes, waits=waits)
        call.urgent = urgent
        engine.begin(call, timeout)

        def expire() -> None:
            engine.give_up(call)
            if not future.done():
                future.set_result(None)

        timer = engine.loop.call_later(timeout + GRACE, expire)
        try:
            await future
        except asyncio.CancelledError:
            engine.give_up(call, Canceled)
            raise
        finally:
            timer.cancel()
        if call.error is not None:
            raise call.error
        return call.answer or {}

    def _behind(self, coroutine: Any) -> None:
        """Run a coroutine in the background. Its result is not needed."""
        if self._engine.closed:
            coroutine.close()
            return
        task = self._engine.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Keys.

    async def get(self, key: str, *, eventual: bool = False, timeout: float | None = None, namespace: str = "") -> Item:
        """Read a key."""
        return Item(await self._ask("get", requests.get(key, eventual, namespace), timeout))

    async def get_many(
        self, keys: Iterable[str], *, eventual: bool = False, timeout: float | None = None, namespace: str = ""
    ) -> list[Item]:
        """Read several keys, without any order between the reads."""
        todo, items = list(keys), []
        for at in range(0, len(todo), requests.MAX_MANY):
            some = todo[at : at + requests.MAX_MANY]
            answer = await self._ask("getMany", requests.get_many(some, eventual, namespace), timeout)
            items += items_of(answer, len(some))
        return items

    async def list_page(
        self,
        prefix: str = "",
        *,
        cursor: str = "",
        page_size: int = 0,
        keys_only: bool = False,
        timeout: float | None = None,
        namespace: str = "",
    ) -> Page:
        """Read one page of the keys whose names begin with prefix. With "", these are all keys of
        the namespace.

        cursor is the cursor of the preceding page, or "" for the first page. page_size is the
        number of names that the server examines, 1 to 256; with 0, it examines 100. keys_only
        leaves out the values.
        """
        data = requests.list_page(prefix, cursor, page_size, keys_only, namespace)
        try:
            return page_of(await self._ask("list", data, timeout), keys_only)
        except InvalidArgument as why:
            raise of_older_server(why, "list", self.info) from None

    async def list_all(
        self,
        prefix: str = "",
        *,
        page_size: int = requests.MAX_LIST,
        keys_only: bool = False,
        timeout: float | None = None,
        namespace: str = "",
    ) -> AsyncIterator[Item]:
        """Yield the keys whose names begin with prefix, in the order of their names. With "", these
        are all keys of the namespace.

        A key that has a value during the whole listing is yielded exactly once, and no key is
        yielded twice. Each item is the key's state when its page was read. If a key could not be
        read, its item has an ``error``. timeout applies to each page. keys_only leaves out the
        values.
        """
        before = None
        cursor = ""
        while cursor != before:
            page = await self.list_page(
                prefix, cursor=cursor, page_size=page_size, keys_only=keys_only, timeout=timeout, namespace=namespace
            )
            for item in page.items:
                yield item
            if not page.cursor:
                return
            before, cursor = cursor, page.cursor
        raise Internal("list: the server has answered with the cursor that it was given")

    async def put(
        self, key: str, value: bytes | str, *, lease: str = "", timeout: float | None = None, namespace: str = ""
    ) -> str:
        """Write a value; return the version."""
        answer = await self._ask("put", requests.put(key, value, lease, namespace), timeout, changes=True)
        return str(answer.get("version", NEVER))

    async def cas(
        self,
        key: str,
        version: str,
        value: bytes | str,
        *,
        lease: str = "",
        timeout: float | None = None,
        namespace: str = "",
    ) -> Swap:
        """Write a value if the key has this version."""
        answer = await self._ask("cas", requests.cas(key, version, value, lease, namespace), timeout, changes=True)
        return Swap(answer.get("swapped", False), Item(answer))

    async def delete(
        self, key: str, *, version: str = "", timeout: float | None = None, namespace: str = ""
    ) -> Deletion:
        """Remove a key's value. If a version is given, do so only if the key has that version."""
        answer = await self._ask("delete", requests.delete(key, version, namespace), timeout, changes=True)
        return Deletion(answer.get("deleted", False), Item(answer))

    async def increment(self, key: str, by: int = 1, *, timeout: float | None = None, namespace: str = "") -> Sum:
        """Add to the number that is a key's value."""
        answer = await self._ask("increment", requests.increment(key, by, namespace), timeout, changes=True)
        return Sum(int(answer.get("number", 0)), str(answer.get("version", NEVER)))

    async def transact(
        self,
        *,
        compare: Iterable[Comparison] = (),
        write: Iterable[Put | Delete] = (),
        timeout: float | None = None,
        namespace: str = "",
    ) -> Transacted:
        """Write several durable keys atomically, if all comparisons hold."""
        data = requests.transact(compare, write, namespace)
        return transacted_of(await self._ask("transact", data, timeout, changes=True))

    def watch(
        self,
        keys: str | Iterable[str] = (),
        *,
        prefix: str | None = None,
        after: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> Watch:
        """Follow keys, for example with ``async for event in client.watch("k")``. ``async with``
        closes the watch at the end. Awaiting the watch waits until the server has begun it.
        """
        return Watch(self, requests.key_list(keys), prefix, after or {}, namespace)

    # Leases.

    async def grant(self, ttl: float, *, timeout: float | None = None, namespace: str = "") -> Lease:
        """Make a lease."""
        return lease_of(await self._ask("grant", requests.named(namespace, ttlMs=millis(ttl)), timeout, changes=True))

    async def keep_alive(self, lease: str, *, timeout: float | None = None, namespace: str = "") -> Lease:
        """Renew a lease for its full time to live."""
        return lease_of(await self._ask("keepAlive", requests.named(namespace, lease=lease), timeout))

    async def revoke(self, lease: str, *, timeout: float | None = None, namespace: str = "") -> None:
        """End a lease, and delete what is bound to it."""
        await self._ask("revoke", requests.named(namespace, lease=lease), timeout, changes=True)

    async def _lease(self, ttl: float, namespace: str, timeout: float | None) -> _Kept:
        """Return a lease to which nothing else is bound. The client keeps it alive."""
        idle = self._idle.get((namespace, ttl), [])
        while idle:
            kept = idle.pop()
            if kept.gone is None:
                return kept
        began = monotonic()
        lease = await self.grant(ttl, timeout=timeout, namespace=namespace)
        return _Kept(self, lease, namespace, ttl, began)

    # # Locks, leaderships and permits.

    def lock(
        self,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        wait: float | None = None,
        lease: str = "",
        timeout: float | None = None,
        namespace: str = "",
    ) -> Taking:
        """Return a lock to acquire: ``async with client.lock("name") as lock``, or await it."""
        return Taking(self, "lock", "unlock", name, {}, ttl, wait, lease, timeout, namespace)

    def campaign(
        self,
        name: str,
        value: str = "",
        *,
        ttl: float = DEFAULT_TTL,
        wait: float | None = None,
        lease: str = "",
        timeout: float | None = None,
        namespace: str = "",
    ) -> Taking:
        """Return a leadership to acquire. :meth:`leader` returns ``value`` to other programs."""
        return Taking(self, "campaign", "resign", name, {"value": value}, ttl, wait, lease, timeout, namespace)

    def acquire(
        self,
        name: str,
        permits: int,
        *,
        ttl: float = DEFAULT_TTL,
        wait: float | None = None,
        lease: str = "",
        timeout: float | None = None,
        namespace: str = "",
    ) -> Taking:
        """Acquire one of a semaphore's permits."""
        return Taking(self, "acquire", "release", name, {"permits": permits}, ttl, wait, lease, timeout, namespace)

    async def leader(self, name: str, *, timeout: float | None = None, namespace: str = "") -> Leader:
        """The present leader."""
        answer = await self._ask("leader", requests.named(namespace, name=name), timeout)
        return Leader(answer.get("found", False), answer.get("value", ""), int(answer.get("token") or 0))

    # Services.

    async def register_service(
        self,
        service: str,
        address: str,
        *,
        instance: str = "",
        ttl: float = DEFAULT_TTL,
        lease: str = "",
        timeout: float | None = None,
        namespace: str = "",
    ) -> Registration:
        """Register an instance of a service at an address, ``host:port``."""
        registration = Registration(self, service, address, instance, ttl, lease, namespace)
        await registration._register(timeout)
        self._held.add(registration)
        return registration

    async def get_service(
        self, service: str, *, order: str = "", timeout: float | None = None, namespace: str = ""
    ) -> list[Instance]:
        """The live instances of a service."""
        data = {"service": service, **({"order": order} if order else {})}
        return instances(await self._ask("getService", requests.named(namespace, **data), timeout))

    def watch_service(self, service: str, *, namespace: str = "") -> ServiceWatch:
        """Follow the instances of a service. ``async for`` yields the complete list after each
        change.
        """
        return ServiceWatch(self, service, namespace)

    # # Closing.

    async def close(self, wait: float = 5.0) -> None:
        """Release locks and registrations, wait at most wait seconds for calls under way, and end
        the client.
        """
        engine = self._engine
        if engine.closing or engine.forked:
            return
        with engine.lock:
            engine.closing = True
        end = monotonic() + wait
        work = [h._give_back(max(wait, 0.001)) for h in list(self._held)]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), max(wait, 0.001))
            leases, self._leases = self._leases, set()
            await asyncio.wait_for(
                asyncio.gather(*(k.end(max(end - monotonic(), 0.001)) for k in leases), return_exceptions=True),
                max(end - monotonic(), 0.001),
            )
        left = await engine.quiet(max(end - monotonic(), 0))
        for task in list(self._tasks):
            task.cancel()
        for kept in list(self._leases):
            kept.stop()
        await engine.end()
        if left:
            raise Timeout(f"{left} calls were not answered before the client was closed")


def items_of(answer: dict[str, Any], count: int) -> list[Item]:
    """The items of an answer to getMany."""
    items = [Item(i) for i in answer.get("items") or ()]
    if len(items) != count:
        raise Internal(f"getMany: {count} keys were asked for, {len(items)} answered")
    return items


def lease_of(answer: dict[str, Any]) -> Lease:
    """The lease of an answer."""
    return Lease(str(answer.get("lease", "")), answer.get("ttlMs", 0) / 1000)


class _Follower(Stream):
    """The common part of watches of keys and of services."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._engine = client._engine
        self._wake = asyncio.Event()
        self._begun: asyncio.Future[None] | None = None
        self._started = False  # open_stream was called
        self._error: NodeError | None = None  # why the watch has ended, if it has
        self._tries = 0  # attempts since the last answer
        self._bare = False  # whether the watch is resumed without the known versions
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin the watch, and wait for the server's first answer."""
        if not self._started:
            self._started = True
            self._begun = self._engine.loop.create_future()
            self._engine.open_stream(self)
        if self._begun is None or self._begun.done():
            return
        try:
            await asyncio.wait_for(asyncio.shield(self._begun), self._engine.config.timeout + GRACE)
        except TimeoutError:
            why = self._engine.why
            kind = Timeout if why is None else Unavailable
            self.end(kind(f"{self.func} was not answered in time" + (f": {why}" if why else "")))
        if self._error is not None:
            raise self._error

    def tell(self, answer: dict[str, Any]) -> None:
        error = answer.get("error")
        if error is None:
            self._tries = 0
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(None)
            data = answer.get("data")
            self._take(data if isinstance(data, dict) else {})
            if answer.get("more"):
                return
            error = {"code": "unavailable", "message": "the server has ended the watch"}
        self._engine.close_stream(self, told=True)
        why = error_of(error)
        again = why.code in ("unavailable", "internal", "timeout", "draining", "no_room", "outcome_unknown")
        if why.code == "quota_exceeded" and not self._bare and self._begun is not None and self._begun.done():
            # The known versions in the request may exceed the quota.
            again = self._bare = True
        if not again:
            self.end(why)
            return
        pause = min(10 * FIRST_PAUSE * 2 ** min(self._tries, 10), 5 * MAX_PAUSE)
        self._tries += 1
        self._timer = self._engine.loop.call_later(pause, self._again)

    def _again(self) -> None:
        if self._error is None:
            with contextlib.suppress(Closed):
                self._engine.open_stream(self)

    def _take(self, data: dict[str, Any]) -> None:
        raise NotImplementedError

    def end(self, why: NodeError) -> None:
        if self._error is not None:
            return
        self._error = why
        if self._timer is not None:
            self._timer.cancel()
        self._engine.close_stream(self)
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)
        self._wake.set()

    def close(self) -> None:
        """Close the watch. Callers that wait for the next event get StopAsyncIteration."""
        self.end(Closed("the watch is closed"))

    async def _next(self, take: Callable[[], Any], timeout: float | None) -> Any:
        await self.start()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    found = take()
                    if found is not None:
                        return found
                    if self._error is not None:
                        raise self._error
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError as e:
            if isinstance(e, NodeError):
                raise
            raise Timeout(f"{self.func}: nothing was told in {timeout:g} s") from None

    async def _start_and_return(self) -> Self:
        await self.start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Begin the watch, and wait for the server's first answer."""
        return self._start_and_return().__await__()

    async def __aenter__(self) -> Self:
        """Begin the watch, and wait for the server's first answer."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the watch."""
        self.close()

    def __aiter__(self) -> Self:
        """The watch itself."""
        return self


class Watch(_Follower):
    """A watch of keys. The library resumes it after a reconnection. If the program does not take a
    key's events in time, only the newest event is kept, and the skipped events are counted.
    """

    func = "watch"

    def __init__(
        self, client: Client, keys: list[str], prefix: str | None, after: Mapping[str, str], namespace: str
    ) -> None:
        super().__init__(client)
        self._keys = keys
        self._prefix = prefix
        self._namespace = namespace
        self._named = frozenset(keys)
        # newest versions that the server has sent; _bury removes deleted keys
        self._last = dict(after)
        self._graves: deque[tuple[str, str]] = deque()  # deletions whose versions are in _last, oldest first
        # events that the program has not taken, in order of arrival
        self._pending: dict[str, Event] = {}
        if not keys and prefix is None:
            raise InvalidArgument("watch: neither keys nor a prefix")
        self.data()

    def data(self) -> str:
        """Implement the method of Stream."""
        return requests.watch(self._keys, self._prefix, {} if self._bare else self._last, self._namespace)

    def _take(self, data: dict[str, Any]) -> None:
        for e in data.get("events") or ():
            event = Event(e)
            last = self._last.get(event.key)
            if last is not None and version_key(event.version) <= version_key(last):
                continue
            old = self._pending.get(event.key)
            if old is not None and version_key(event.version) <= version_key(old.version):
                continue  # the version is known, although _last has forgotten it
            self._last[event.key] = event.version
            if not event.found and event.key not in self._named:
                self._bury(event.key, event.version)
            if old is not None:
                event.overtaken += old.overtaken + 1
            self._pending[event.key] = event
        if self._pending:
            self._wake.set()

    def _bury(self, key: str, version: str) -> None:
        """Remember the version of a deletion. Beyond the limit, forget the version of the oldest
        deletion. For that key, the server still reports only newer versions. When the watch is
        resumed, the server may report that deletion once more.
        """
        self._graves.append((key, version))
        if len(self._graves) > requests.MAX_AFTER:
            oldest, at = self._graves.popleft()
            if self._last.get(oldest) == at:
                del self._last[oldest]

    def _first(self) -> Event | None:
        for key in self._pending:
            return self._pending.pop(key)
        return None

    async def next(self, timeout: float | None = None) -> Event:
        """Wait for the next event. Raises Timeout after timeout seconds, Closed after close."""
        event: Event = await self._next(self._first, timeout)
        return event

    async def __anext__(self) -> Event:
        """The next event."""
        try:
            return await self.next()
        except Closed:
            raise StopAsyncIteration from None


class ServiceWatch(_Follower):
    """A watch of the instances of a service."""

    func = "watchService"

    def __init__(self, client: Client, service: str, namespace: str) -> None:
        super().__init__(client)
        self._data = requests.named(namespace, service=service)
        self._newest: list[Instance] | None = None
        self._told: list[Instance] | None = None  # a list that next has not returned yet

    def data(self) -> str:
        """Implement the method of Stream."""
        return self._data

    def _take(self, data: dict[str, Any]) -> None:
        newest = instances(data)
        if newest != self._newest:
            self._newest = self._told = newest
            self._wake.set()

    def _first(self) -> list[Instance] | None:
        told, self._told = self._told, None
        return told

    async def next(self, timeout: float | None = None) -> list[Instance]:
        """Wait until the instances differ from those that were returned last. Return all
        instances."""
        told: list[Instance] = await self._next(self._first, timeout)
        return told

    async def __anext__(self) -> list[Instance]:
        """The next list of instances."""
        try:
            return await self.next()
        except Closed:
            raise StopAsyncIteration from None


class _Kept:
    """A lease that the client made for a single lock or registration, and keeps alive."""

    def __init__(self, client: Client, lease: Lease, namespace: str, kind: float, began: float) -> None:
        self.client = client
        self.id = lease.id
        self.namespace = namespace
        self.kind = (namespace, kind)
        self.gone: NodeError | None = None
        self.lose: Callable[[NodeError], None] | None = None
        client._leases.add(self)
        self._task = client._engine.loop.create_task(self._keep(began, lease.ttl))

    async def _keep(self, began: float, ttl: float) -> None:
        """Keep the lease alive. The lease certainly exists for ttl seconds after the last request
        that was answered was sent.
        """
        until, pause = began + ttl, began + ttl / 3 - monotonic()
        while True:
            await asyncio.sleep(pause)
            began = monotonic()
            try:
                async with asyncio.timeout(until - began):
                    answer = await self.client._ask(
                        "keepAlive", requests.named(self.namespace, lease=self.id), until - began, urgent=True
                    )
            except (NodeError, TimeoutError) as e:
                if isinstance(e, LeaseGone) or monotonic() >= until:
                    self.gone = LeaseGone(f"the lease {self.id} is gone: {e}")
                    self.client._leases.discard(self)
                    if self.lose is not None:
                        self.lose(self.gone)
                    return
                pause = min(ttl / 10, until - monotonic())
                continue
            ttl = lease_of(answer).ttl or ttl
            until, pause = began + ttl, began + ttl / 3 - monotonic()

    def stop(self) -> None:
        self._task.cancel()

    async def end(self, timeout: float) -> None:
        """Revoke the lease. If that fails, the lease expires."""
        self.stop()
        self.client._leases.discard(self)
        with contextlib.suppress(NodeError):
            data = requests.named(self.namespace, lease=self.id)
            await self.client._ask("revoke", data, timeout, changes=True, urgent=True)

    def free(self) -> None:
        """Give the lease back for later use. Nothing is bound to it."""
        self.lose = None
        idle = self.client._idle.setdefault(self.kind, [])
        if len(idle) < MAX_IDLE and not self.client._engine.closing and self.gone is None:
            idle.append(self)
            return
        self.drop()

    def drop(self) -> None:
        """End the lease. Something may be bound to it without the client's knowledge."""
        self.lose = None
        self.stop()
        if self.gone is None and self in self.client._leases:
            if self.client._engine.closing:
                return  # close ends the lease
            self.client._leases.discard(self)
            self.client._behind(self.end(self.kind[1]))


class _Given:
    """A lock or registration that is released when the client is closed."""

    async def _give_back(self, timeout: float) -> None:
        raise NotImplementedError


class Held(_Given):
    """A lock, a leadership or a permit. The client keeps it until :meth:`release`, unless it is
    lost.

    ``name`` is the name of the lock, leadership or semaphore. ``token`` is the fencing token, which
    grows with each holder of the name. ``lease`` is the lease to which the object is bound.
    ``lost`` is an event. It is set when the object is released, or may no longer be held. ``error``
    is why it was lost, or None.
    """

    def __init__(
        self, client: Client, back: str, name: str, token: int, lease: str, kept: _Kept | None, namespace: str
    ) -> None:
        self.name = name
        self.token = token
        self.lease = lease
        self.lost = asyncio.Event()
        self.error: NodeError | None = None
        self.on_lost: Callable[[], None] | None = None
        self._client = client
        self._back = back
        self._kept = kept
        self._namespace = namespace
        client._held.add(self)
        if kept is not None:
            kept.lose = self._lose
            if kept.gone is not None:
                self._lose(kept.gone)

    def _lose(self, why: NodeError) -> None:
        self._finish(NotHeld(f"{self.name} is not surely held any more: {why.message}", "take it again"))

    def _finish(self, error: NodeError | None) -> bool:
        if self.lost.is_set():
            return False
        self.error = error
        self.lost.set()
        self._client._held.discard(self)
        if self.on_lost is not None:
            self.on_lost()
        return True

    async def release(self, timeout: float | None = None) -> None:
        """Release the lock, leadership or permit. If that fails, it expires within its time to
        live. Raises NotHeld if it was already lost. A second release does nothing.
        """
        if not self._finish(None):
            if self.error is not None:
                raise self.error
            return
        data = requests.named(self._namespace, name=self.name, token=str(self.token))
        try:
            await self._client._ask(self._back, data, timeout, changes=True, urgent=True)
        except BaseException:
            if self._kept is not None:
                self._kept.drop()
            raise
        if self._kept is not None:
            self._kept.free()

    async def _give_back(self, timeout: float) -> None:
        await self.release(timeout)

    async def __aenter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        """Release it. Raises NotHeld if it was lost."""
        if kind is None:
            await self.release()
            return
        with contextlib.suppress(NodeError):
            await self.release()


class Taking:
    """A lock, leadership or permit that is not acquired yet. To acquire it, await this object, or
    use ``async with``."""

    def __init__(
        self,
        client: Client,
        take: str,
        back: str,
        name: str,
        members: dict[str, object],
        ttl: float,
        wait: float | None,
        lease: str,
        timeout: float | None,
        namespace: str,
    ) -> None:
        self._client = client
        self._take, self._back = take, back
        self._name = name
        self._members = members
        self._ttl = ttl
        self._wait = wait
        self._lease = lease
        self._timeout = client._engine.config.timeout if timeout is None else timeout
        self._namespace = namespace
        self._held: Held | None = None

    def __await__(self) -> Generator[Any, None, Held]:
        """Acquire it."""
        return self._hold().__await__()

    async def __aenter__(self) -> Held:
        """Acquire it."""
        self._held = await self._hold()
        return self._held

    async def __aexit__(self, *exc: Any) -> None:
        """Release it. Raises NotHeld if it was lost."""
        if self._held is not None:
            await self._held.__aexit__(*exc)

    async def _hold(self) -> Held:
        client, end, tries = self._client, None, 0
        if self._wait is not None:
            end = monotonic() + self._wait
        while True:
            kept = None
            if not self._lease:
                kept = await client._lease(self._ttl, self._namespace, self._timeout)
            lease = kept.id if kept is not None else self._lease
            left = LONGEST_WAIT if end is None else min(max(end - monotonic(), 0), LONGEST_WAIT)
            data = requests.named(self._namespace, name=self._name, lease=lease, waitMs=millis(left), **self._members)
            try:
                answer = await client._ask(self._take, data, left + self._timeout, changes=True, waits=True)
                if answer.get("held"):
                    token = int(answer.get("token") or 0)
                    return Held(client, self._back, self._name, token, lease, kept, self._namespace)
            except (NotHeld, PermissionDenied, InvalidArgument, NoRoom, QuotaExceeded, Unavailable):
                if kept is not None:
                    kept.free()
                raise
            except (OutcomeUnknown, LeaseGone, Canceled):
                if kept is None:
                    raise
                kept.drop()
                if end is not None and monotonic() >= end:
                    raise Timeout(f"{self._name} was not had in time") from None
                # The next try uses another lease. A lock that is bound to this lease expires with
                # it.
                await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(tries, 10), MAX_PAUSE))
                tries += 1
                continue
            except BaseException:
                if kept is not None:
                    kept.drop()
                raise
            if kept is not None:
                kept.free()
            if end is not None and monotonic() >= end - 0.001:
                raise NotHeld(f"{self._name} is another's")


class Registration(_Given):
    """An instance of a service. The client keeps it registered until :meth:`deregister`. If its
    lease is lost, the client registers the instance again under the same name.
    """

    def __init__(
        self, client: Client, service: str, address: str, instance: str, ttl: float, lease: str, namespace: str
    ) -> None:
        self.service = service
        self.address = address
        self.instance = instance
        self._client = client
        self._ttl = ttl
        self._own = lease
        self._namespace = namespace
        self._kept: _Kept | None = None
        self._over = False
        self._turn = asyncio.Lock()  # the task that registers or deregisters holds it

    @property
    def lease(self) -> str:
        """The lease to which the instance is bound. It changes if the client registers the instance
        again.
        """
        return self._kept.id if self._kept is not None else self._own

    async def _register(self, timeout: float | None) -> None:
        client, lease, kept = self._client, self._own, None
        if not lease:
            kept = await client._lease(self._ttl, self._namespace, timeout)
            lease = kept.id
        data: dict[str, object] = {"service": self.service, "address": self.address, "lease": lease}
        if self.instance:
            data["instance"] = self.instance
        try:
            answer = await client._ask(
                "registerService", requests.named(self._namespace, **data), timeout, changes=True
            )
        except BaseException:
            if kept is not None:
                kept.drop()
            raise
        self.instance = answer.get("instance") or self.instance
        self._kept = kept
        if kept is not None:
            kept.lose = self._lost
            if kept.gone is not None:
                self._lost(kept.gone)

    def _lost(self, why: NodeError) -> None:
        self._client._behind(self._again())

    async def _again(self) -> None:
        pause = FIRST_PAUSE
        while not self._over:
            try:
                async with self._turn:
                    if not self._over:
                        await self._register(None)
                return
            except Closed:
                return
            except NodeError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)

    async def deregister(self, timeout: float | None = None) -> None:
        """Remove the instance. If that fails, the instance expires within its time to live."""
        if self._over:
            return
        self._over = True
        self._client._held.discard(self)
        async with self._turn:
            await self._deregister(timeout)

    async def _deregister(self, timeout: float | None) -> None:
        data = requests.named(self._namespace, service=self.service, instance=self.instance, lease=self.lease)
        try:
            await self._client._ask("deregisterService", data, timeout, changes=True, urgent=True)
        except BaseException:
            if self._kept is not None:
                self._kept.drop()
            raise
        if self._kept is not None:
            self._kept.free()

    async def _give_back(self, timeout: float) -> None:
        await self.deregister(timeout)

    async def __aenter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Remove the instance."""
        await self.deregister()
