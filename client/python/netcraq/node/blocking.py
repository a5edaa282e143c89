# SPDX-License-Identifier: Apache-2.0
"""The blocking client. Any thread may make calls. The client's event loop runs in its own
thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from netcraq.node import aio, requests
from netcraq.node.engine import GRACE, Call, Engine, configure
from netcraq.node.errors import Canceled, Closed, Internal, InvalidArgument, NodeError, of_older_server
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
    page_of,
    transacted_of,
    value_json,
)

T = TypeVar("T")


def connect(
    socket: str | os.PathLike[str] | None = None,
    namespace: str = "",
    *,
    agent: str = "",
    wait: float = 30.0,
    timeout: float = 5.0,
    in_flight: int = 512,
) -> Client:
    """Connect to the node's server. If the server is not running, wait for it up to ``wait``
    seconds.

    socket is a path, or "tcp://host:port". If it is None, the client takes $NETCRAQ_NODE_SOCKET,
    otherwise the socket of a running ``netcraq dev``, otherwise /run/netcraq/node.sock. namespace
    is the default namespace of calls; "" means the program's own namespace. agent is the program's
    name in the server's logs. timeout is the default timeout of calls, in seconds. in_flight is the
    maximum number of calls under way. Further calls wait for room.

    Raises Unavailable if there is no server in time, and PermissionDenied or InvalidArgument if the
    server refuses the client. If the wait takes more than a second, the logger "netcraq.node" logs
    a warning. After a fork, the child must make its own client, because the parent's client raises
    Closed in the child.
    """
    return Client(configure(socket, namespace, agent, wait, timeout, in_flight))


class Client:
    """A client of the node's server. When its connection ends, it connects again. Any number of
    threads may use it. :func:`connect` makes a client.

    Each call has the arguments ``timeout``, in seconds, and ``namespace``. The defaults None and ""
    stand for the client's own timeout and namespace. A call ends at most 0.2 s after its timeout.
    Any call can raise Timeout and Unavailable, after which it had no effect, and PermissionDenied,
    QuotaExceeded, InvalidArgument, TooLarge and Closed. Calls that change something can also raise
    NoRoom, and OutcomeUnknown, after which the call may have been executed.
    """

    def __init__(self, config: Any) -> None:
        self._timeout = config.timeout
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="netcraq-node", daemon=True)
        self._thread.start()
        ready.wait()
        try:
            self._aio: aio.Client = self._wait_for(self._open(config))
        except BaseException:
            self._stop()
            raise
        self._engine = self._aio._engine

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(ready.set)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    @staticmethod
    async def _open(config: Any) -> aio.Client:
        engine = Engine(config, asyncio.get_running_loop())
        try:
            await engine.connect()
        except BaseException:
            await engine.end()
            raise
        return aio.Client(engine)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's loop, and wait for it."""
        try:
            self._engine.check_process()
        except Closed:
            coroutine.close()
            raise
        return self._wait_for(coroutine)

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as e:
            coroutine.close()
            raise Closed("the client is closed") from e
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _ask(self, func: str, data: str, timeout: float | None, changes: bool = False) -> dict[str, Any]:
        if timeout is None:
            timeout = self._timeout
        answered = threading.Lock()
        answered.acquire()
        call = Call(func, data, answered.release, changes=changes)
        self._engine.begin(call, timeout)
        try:
            if not answered.acquire(timeout=timeout + GRACE):
                self._engine.give_up(call)
        except BaseException:  # for example KeyboardInterrupt
            self._engine.give_up(call, Canceled)
            raise
        if call.error is not None:
            raise call.error
        return call.answer or {}

    def _soon(self, f: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the client and its loop are closed
            self._loop.call_soon_threadsafe(f)

    @property
    def info(self) -> dict[str, Any]:
        """The server's description of itself: ``server``, ``node``, ``namespace``, ``maxValue``,
        ..."""
        return self._engine.info

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the client."""
        self.close()

    # Keys.

    def get(self, key: str, *, eventual: bool = False, timeout: float | None = None, namespace: str = "") -> Item:
        """Read a key. If the key has no value, that is not an error, and ``found`` is false. With
        eventual, the read may return the last committed value that the nearest chain member knows.
        Otherwise the read is linearizable.
        """
        return Item(self._ask("get", requests.get(key, eventual, namespace), timeout))

    def get_many(
        self, keys: Iterable[str], *, eventual: bool = False, timeout: float | None = None, namespace: str = ""
    ) -> list[Item]:
        """Read several keys. The order of the reads is not defined. The items are in the order of
        keys. If a key could not be read, its item has an ``error``.
        """
        todo, items = list(keys), []
        for at in range(0, len(todo), requests.MAX_MANY):
            some = todo[at : at + requests.MAX_MANY]
            items += aio.items_of(
                self._ask("getMany", requests.get_many(some, eventual, namespace), timeout), len(some)
            )
        return items

    def list_page(
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
            return page_of(self._ask("list", data, timeout), keys_only)
        except InvalidArgument as why:
            raise of_older_server(why, "list", self.info) from None

    def list_all(
        self,
        prefix: str = "",
        *,
        page_size: int = requests.MAX_LIST,
        keys_only: bool = False,
        timeout: float | None = None,
        namespace: str = "",
    ) -> Iterator[Item]:
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
            page = self.list_page(
                prefix, cursor=cursor, page_size=page_size, keys_only=keys_only, timeout=timeout, namespace=namespace
            )
            yield from page.items
            if not page.cursor:
                return
            before, cursor = cursor, page.cursor
        raise Internal("list: the server has answered with the cursor that it was given")

    def put(
        self, key: str, value: bytes | str, *, lease: str = "", timeout: float | None = None, namespace: str = ""
    ) -> str:
        """Write a value, and create the key if it does not exist. Returns the version. If a lease
        is given, the key expires with the lease. Raises LeaseGone if the lease has already expired.
        """
        answer = self._ask("put", requests.put(key, value, lease, namespace), timeout, True)
        return str(answer.get("version", NEVER))

    def cas(
        self,
        key: str,
        version: str,
        value: bytes | str,
        *,
        lease: str = "",
        timeout: float | None = None,
        namespace: str = "",
    ) -> Swap:
        """Write a value if the key's version is the given one. NEVER as the version means that the
        key was never written. Versions come from answers.
        """
        answer = self._ask("cas", requests.cas(key, version, value, lease, namespace), timeout, True)
        return Swap(answer.get("swapped", False), Item(answer))

    def delete(self, key: str, *, version: str = "", timeout: float | None = None, namespace: str = "") -> Deletion:
        """Remove a key's value. If a version is given, do so only if the key has that version.
        Deleting a key that does not exist succeeds.
        """
        answer = self._ask("delete", requests.delete(key, version, namespace), timeout, True)
        return Deletion(answer.get("deleted", False), Item(answer))

    def increment(self, key: str, by: int = 1, *, timeout: float | None = None, namespace: str = "") -> Sum:
        """Add ``by`` to a key's value and return the sum. The value is a signed 64-bit decimal
        number, as text. A key without a value counts as 0.
        """
        answer = self._ask("increment", requests.increment(key, by, namespace), timeout, True)
        return Sum(int(answer.get("number", 0)), str(answer.get("version", NEVER)))

    def transact(
        self,
        *,
        compare: Iterable[Comparison] = (),
        write: Iterable[Put | Delete] = (),
        timeout: float | None = None,
        namespace: str = "",
    ) -> Transacted:
        """Compare and write several durable keys atomically. If all comparisons hold, everything is
        written; otherwise nothing is written. There may be at most 64 comparisons and writes
        altogether. Raises InvalidArgument for volatile keys, and for a key that is compared twice
        or written twice.
        """
        return transacted_of(self._ask("transact", requests.transact(compare, write, namespace), timeout, True))

    def watch(
        self,
        keys: str | Iterable[str] = (),
        *,
        prefix: str | None = None,
        after: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> Watch:
        """Follow keys, or all keys whose names begin with prefix, for example with ``for event in
        client.watch("k")``. after has the versions that the caller knows. The watch reports only
        newer versions. For a key that is not in after, it first reports the current state. If the
        server refuses the watch, this raises the error.
        """
        watch = self._aio.watch(keys, prefix=prefix, after=after, namespace=namespace)
        self._run(watch.start())
        return Watch(self, watch)

    # Leases.

    def grant(self, ttl: float, *, timeout: float | None = None, namespace: str = "") -> Lease:
        """Make a lease with a time to live of ttl seconds, 0.5 to 3600. The caller keeps it
        alive.
        """
        return self._run(self._aio.grant(ttl, timeout=timeout, namespace=namespace))

    def keep_alive(self, lease: str, *, timeout: float | None = None, namespace: str = "") -> Lease:
        """Renew a lease for its full time to live. Raises LeaseGone if the lease has expired."""
        return self._run(self._aio.keep_alive(lease, timeout=timeout, namespace=namespace))

    def revoke(self, lease: str, *, timeout: float | None = None, namespace: str = "") -> None:
        """End a lease, and delete what is bound to it."""
        self._run(self._aio.revoke(lease, timeout=timeout, namespace=namespace))

    # # Locks, leaderships and permits.

    def lock(self, name: str, **how: Any) -> Held:
        """Acquire a lock, for example with ``with client.lock("name") as lock``. Raises NotHeld if
        other callers hold the lock during the whole time ``wait``.

        :meth:`lock`, :meth:`campaign` and :meth:`acquire` have these keywords. If this program
        dies, another program can acquire the lock after at most ``ttl`` seconds (default 10).
        ``wait`` is the number of seconds to wait for the lock; None means no limit. ``lease`` is a
        lease of the caller to which the lock is bound. Without it, the client makes a lease and
        keeps it alive. ``timeout`` and ``namespace`` are those of any call.
        """
        return Held(self, self._run(_taken(self._aio.lock(name, **how))))

    def campaign(self, name: str, value: str = "", **how: Any) -> Held:
        """Acquire the leadership of a name. value is returned by :meth:`leader`. Otherwise like
        :meth:`lock`.
        """
        return Held(self, self._run(_taken(self._aio.campaign(name, value, **how))))

    def acquire(self, name: str, permits: int, **how: Any) -> Held:
        """Acquire one of a semaphore's permits. All callers must pass the same number of permits.
        Otherwise like :meth:`lock`.
        """
        return Held(self, self._run(_taken(self._aio.acquire(name, permits, **how))))

    def leader(self, name: str, *, timeout: float | None = None, namespace: str = "") -> Leader:
        """The present leader."""
        return self._run(self._aio.leader(name, timeout=timeout, namespace=namespace))

    # Services.

    def register_service(self, service: str, address: str, **how: Any) -> Registration:
        """Register an instance of a service at an address, ``host:port``. The keywords are
        instance, ttl, lease, timeout and namespace. instance is the name of the instance. By
        default, the server chooses a random name.
        """
        return Registration(self, self._run(self._aio.register_service(service, address, **how)))

    def get_service(
        self, service: str, *, order: str = "", timeout: float | None = None, namespace: str = ""
    ) -> list[Instance]:
        """Return the live instances of a service. Each call begins the list with a different
        instance. With order "nearest", the instances on this node come first.
        """
        return self._run(self._aio.get_service(service, order=order, timeout=timeout, namespace=namespace))

    def watch_service(self, service: str, *, namespace: str = "") -> ServiceWatch:
        """Follow the instances of a service, for example with ``for instances in
        client.watch_service(name)``."""
        watch = self._aio.watch_service(service, namespace=namespace)
        self._run(watch.start())
        return ServiceWatch(self, watch)

    # # Streams. Programs that only read a stream should use netcraq.streams instead.

    def open_stream(
        self, name: str, config: Mapping[str, Any] | None = None, *, timeout: float | None = None, namespace: str = ""
    ) -> dict[str, Any]:
        """Describe a stream. If the stream does not exist and config is given, create it. See
        openStream in docs/node-api.md.
        """
        data: dict[str, Any] = {"stream": name}
        if config is not None:
            data["config"] = dict(config)
        return self._ask("openStream", requests.named(namespace, **data), timeout)

    def delete_stream(self, name: str, *, timeout: float | None = None, namespace: str = "") -> None:
        """Delete a stream and its records."""
        self._ask("deleteStream", requests.named(namespace, stream=name), timeout, True)

    def streams(self, *, timeout: float | None = None, namespace: str = "") -> list[str]:
        """The names of the namespace's streams."""
        return list(self._ask("listStreams", requests.named(namespace), timeout)["streams"])

    def append(
        self,
        stream: str,
        values: Iterable[bytes | str],
        *,
        partition: int = 0,
        at: int | None = None,
        files: Sequence[str] = (),
        marks: Sequence[int] = (),
        timeout: float | None = None,
        namespace: str = "",
    ) -> tuple[int, int]:
        """Append records to a partition of a stream. Returns the offset of the first record, and
        the number of appended records. If consumers are slow, only the first records may be
        appended. If ``at`` is given, the first record must get this offset; otherwise nothing is
        appended, and WrongOffset is raised. files has one list for each record, with the names of
        the files to which the record refers. marks has one 64-bit number of the producer for each
        record.
        """
        data: dict[str, Any] = {"stream": stream, "partition": partition}
        data["records"] = [json.loads("{" + value_json(v)[1:] + "}") for v in values]
        if marks:
            for record, mark in zip(data["records"], marks, strict=True):
                record["mark"] = mark
        if files:
            for record in data["records"]:
                record["files"] = list(files)
        if at is not None:
            data["at"] = at
        answer = self._ask("append", requests.named(namespace, **data), timeout, True)
        return int(answer["offset"]), int(answer["appended"])

    def publish(
        self,
        stream: str,
        values: Iterable[bytes | str],
        *,
        subject: str = "",
        ids: Sequence[str] = (),
        timeout: float | None = None,
        namespace: str = "",
    ) -> list[int]:
        """Append records to a stream that JetStream stores, and return their sequences. If
        JetStream has not stored all records in time, only the first records have sequences. ids has
        one id for each record, by which JetStream recognizes records that it already has.
        """
        records = [json.loads("{" + value_json(v)[1:] + "}") for v in values]
        if ids and len(ids) != len(records):
            raise ValueError(f"{len(ids)} ids for {len(records)} records")
        for i, record in enumerate(records):
            record.update({"subject": subject} if subject else {}, **({"id": ids[i]} if ids else {}))
        answer = self._ask("append", requests.named(namespace, stream=stream, records=records), timeout, True)
        return [int(n) for n in answer["sequences"]]

    def read_stream(
        self, stream: str, partition: int = 0, *, timeout: float | None = None, namespace: str = "", **how: Any
    ) -> dict[str, Any]:
        """Read records of a partition. docs/node-api.md describes the keywords and the answer under
        read.
        """
        wait = how.get("waitMs", 0) / 1000
        data = {k: v for k, v in how.items() if v or k == "offset"}
        text = requests.named(namespace, stream=stream, partition=partition, **data)
        return self._ask("read", text, (self._timeout if timeout is None else timeout) + wait)

    # # Closing.

    def close(self, wait: float = 5.0) -> None:
        """Release locks and registrations, wait at most wait seconds until calls under way are
        answered, and end the client. If calls of other threads are not answered by then, they fail,
        and this method raises Timeout.
        """
        if not self._thread.is_alive():
            return
        try:
            self._run(self._aio.close(wait))
        finally:
            self._stop()

    def _stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


async def _taken(taking: aio.Taking) -> aio.Held:
    return await taking


class _Follower(Generic[T]):
    """The common part of watches."""

    def __init__(self, client: Client, watch: Any) -> None:
        self._client = client
        self._watch = watch

    def next(self, timeout: float | None = None) -> T:
        """Wait for the next event. Raises Timeout after timeout seconds, Closed after close."""
        found: T = self._client._run(self._watch.next(timeout))
        return found

    def close(self) -> None:
        """Close the watch. A loop that waits for the next event ends."""
        self._client._soon(self._watch.close)

    def __iter__(self) -> Self:
        """The watch itself."""
        return self

    def __next__(self) -> T:
        """The next event."""
        try:
            return self.next()
        except Closed:
            raise StopIteration from None

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the watch."""
        self.close()


class Watch(_Follower[Event]):
    """A watch of keys. The library resumes it after a reconnection. If the program does not take a
    key's events in time, only the newest event is kept, and the skipped events are counted.
    """


class ServiceWatch(_Follower[list[Instance]]):
    """A watch of the instances of a service."""


class Held:
    """A lock, a leadership or a permit. The client keeps it until :meth:`release`, unless it is
    lost.

    ``name`` is the name of the lock, leadership or semaphore. ``token`` is the fencing token, which
    grows with each holder of the name. ``lease`` is the lease to which the object is bound.
    ``lost`` is a threading.Event. It is set when the object is released, or may no longer be held.
    """

    def __init__(self, client: Client, held: aio.Held) -> None:
        self._client = client
        self._held = held
        self.name = held.name
        self.token = held.token
        self.lease = held.lease
        self.lost = threading.Event()
        held.on_lost = self.lost.set
        if held.lost.is_set():
            self.lost.set()

    @property
    def error(self) -> NodeError | None:
        """Why the lock, leadership or permit was lost, or None."""
        return self._held.error

    def release(self, timeout: float | None = None) -> None:
        """Release the lock, leadership or permit. If that fails, it expires within its time to
        live. Raises NotHeld if it was already lost. A second release does nothing.
        """
        self._client._run(self._held.release(timeout))

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        """Release it. Raises NotHeld if it was lost."""
        if kind is None:
            self.release()
            return
        with contextlib.suppress(NodeError):
            self.release()


class Registration:
    """An instance of a service. The client keeps it registered until :meth:`deregister`."""

    def __init__(self, client: Client, registration: aio.Registration) -> None:
        self._client = client
        self._registration = registration
        self.service = registration.service
        self.instance = registration.instance
        self.address = registration.address

    @property
    def lease(self) -> str:
        """The lease to which the instance is bound. It changes if the client registers the instance
        again.
        """
        return self._registration.lease

    def deregister(self, timeout: float | None = None) -> None:
        """Remove the instance. If that fails, the instance expires within its time to live."""
        self._client._run(self._registration.deregister(timeout))

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove the instance."""
        self.deregister()
