# SPDX-License-Identifier: Apache-2.0
"""Tests of the node API's clients, blocking and asyncio, with servers that misbehave and with a
real server."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from netcraq import node
from netcraq.node import aio, engine
from netcraq.node.values import version_key

PATIENCE = 20.0  # maximum seconds to wait for something that must happen
ROOT = Path(__file__).resolve().parents[3]


def until(what: str, so: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)


class Peer:
    """A client's connection to a Fake."""

    def __init__(self, fake: Fake, sock: socket.socket, number: int) -> None:
        self.fake, self.sock, self.number = fake, sock, number

    def say(self, text: str | bytes) -> None:
        with contextlib.suppress(OSError):  # the client may have closed the connection
            self.sock.sendall(text if isinstance(text, bytes) else text.encode() + b"\n")

    def answer(self, request: dict[str, Any], data: object, more: bool = False) -> None:
        self.say(json.dumps({"id": request["id"], "data": data, **({"more": True} if more else {})}))

    def fail(self, request: dict[str, Any], code: str) -> None:
        self.say(json.dumps({"id": request["id"], "error": {"code": code, "message": "said by the fake"}}))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class Fake:
    """A node server that misbehaves as a test requires. If its hook does not handle a request, it
    answers with {}.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.hook: Callable[[Peer, dict[str, Any]], bool] = lambda peer, request: False
        self.known: Callable[[str], bool] | None = None
        self.peers: list[Peer] = []
        self.hellos: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.seen: set[str] = set()
        self.threads: list[threading.Thread] = []
        self.listener: socket.socket | None = None

    def start(self) -> Fake:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread(self.accept)
        return self

    def thread(self, target: Callable[..., None], *args: object) -> None:
        t = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(t)
        t.start()

    def accept(self) -> None:
        assert self.listener is not None
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            peer = Peer(self, sock, len(self.peers))
            self.peers.append(peer)
            self.thread(self.serve, peer)

    def serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError), peer.sock, peer.sock.makefile("rb") as lines:
            for line in lines:
                try:
                    request = json.loads(line)
                except ValueError:
                    self.errors.append(f"the client sent {line!r}")
                    return
                if request["func"] == "hello":
                    hello = request["data"]
                    self.hellos.append(hello)
                    client = hello["client"]
                    known = self.known(client) if self.known else client in self.seen
                    self.seen.add(client)
                    peer.answer(request, {"server": "fake", "known": known, "inFlight": 1024})
                    continue
                self.requests.append(request)
                if not self.hook(peer, request):
                    peer.answer(request, {})

    def of(self, func: str) -> list[dict[str, Any]]:
        return [r for r in self.requests if r["func"] == func]

    def stop(self) -> None:
        if self.listener is not None:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        for peer in self.peers:
            peer.close()
        for t in self.threads:
            t.join(PATIENCE)
            assert not t.is_alive()
        assert self.errors == []


@pytest.fixture()
def fake() -> Iterator[Fake]:
    with tempfile.TemporaryDirectory() as place:
        made = Fake(os.path.join(place, "s"))
        yield made
        made.stop()


class Sync:
    """Wraps asyncio objects so that they look blocking. So one test covers both clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self.loop, self.inner = loop, inner

    def run(self, awaitable: Any) -> Any:
        async def wait() -> Any:
            return await awaitable

        result = asyncio.run_coroutine_threadsafe(wait(), self.loop).result(3 * PATIENCE)
        own = isinstance(result, aio.Client | aio.Watch | aio.ServiceWatch | aio.Held | aio.Registration)
        return Sync(self.loop, result) if own else result

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **how: Any) -> Any:
            async def wait() -> Any:  # this runs on the client's event loop
                result = found(*args, **how)
                return await result if inspect.isawaitable(result) else result

            return self.run(wait())

        return call


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A function that connects clients. They are closed at the end of the test, and no thread of
    them may remain."""
    before = set(threading.enumerate())
    made: list[Any] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)

    def make(*args: Any, **how: Any) -> Any:
        how.setdefault("timeout", PATIENCE)
        waits = request.param == "blocking"
        client = node.connect(*args, **how) if waits else Sync(loop, None).run(aio.connect(*args, **how))
        made.append(client)
        return client

    thread.start()
    yield make
    for client in made:
        with contextlib.suppress(node.Timeout):
            client.close(wait=0)
    if request.param == "asyncio":
        until("the loop to be empty", lambda: not asyncio.all_tasks(loop))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    left = {t for t in set(threading.enumerate()) - before if t.name == "netcraq-node"}
    assert not left


def item(key: str, value: str, version: str) -> dict[str, Any]:
    return {"key": key, "found": True, "value": value, "version": version}


def together(*work: Callable[[], Any]) -> list[Any]:
    """Calls functions in separate threads. Returns their results or exceptions."""
    results: list[Any] = [None] * len(work)

    def do(i: int) -> None:
        try:
            results[i] = work[i]()
        except Exception as e:
            results[i] = e

    threads = [threading.Thread(target=do, args=(i,)) for i in range(len(work))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def test_it_waits_for_the_server(fake: Fake, connect: Callable[..., Any]) -> None:
    timer = threading.Timer(0.1, fake.start)
    timer.start()
    connect(fake.path)
    timer.join()


ONE_TRY = 0.5
"""The number of seconds in which a client certainly tries to connect, even on a busy machine."""


def test_a_server_that_never_comes(
    tmp_path: Path, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = tmp_path / "nobody"
    monkeypatch.setenv("NETCRAQ_NODE_SOCKET", str(nobody))
    for how in ({"socket": nobody}, {}):
        with pytest.raises(node.Unavailable) as e:
            connect(**how, wait=ONE_TRY)
        assert str(nobody) in e.value.message
        assert "No such file" in e.value.message
        assert "NETCRAQ_NODE_SOCKET" in e.value.do
        assert "netcraq-sidecar" in e.value.do
    with pytest.raises(node.Unavailable, match="Connect call failed"):
        connect("tcp://127.0.0.1:1", wait=ONE_TRY)
    with pytest.raises(node.Unavailable, match=r"within 1e-06 s: it has not answered yet \("):
        connect("tcp://127.0.0.1:1", wait=1e-6)
    with pytest.raises(node.InvalidArgument, match="want tcp"):
        connect("tcp://nowhere", wait=PATIENCE)


def test_it_finds_a_running_netcraq_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETCRAQ_NODE_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dev = tmp_path / "netcraq.sock"
    assert engine.find_socket() == engine.DEFAULT_SOCKET
    dev.touch()
    assert engine.find_socket() == engine.DEFAULT_SOCKET  # an ordinary file is not a server's socket
    dev.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dev))
        assert engine.find_socket() == str(dev)
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        folder = tmp_path / f"netcraq-{os.geteuid()}"
        folder.mkdir(mode=0o700)
        moved = dev.rename(folder / "netcraq.sock")
        assert engine.find_socket() == str(moved)
        folder.chmod(0o777)  # another user could have put the socket there
        assert engine.find_socket() == engine.DEFAULT_SOCKET
    monkeypatch.setenv("NETCRAQ_NODE_SOCKET", "tcp://h:1")
    assert engine.find_socket() == "tcp://h:1"


def test_it_does_not_wait_in_silence(
    tmp_path: Path, connect: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SILENT_WAIT", ONE_TRY)
    with pytest.raises(node.Unavailable, match="within 1 s"):
        connect(tmp_path / "nobody", wait=2 * ONE_TRY)
    (record,) = caplog.records
    assert record.name == "netcraq.node"
    assert record.levelname == "WARNING"
    for what in (str(tmp_path / "nobody"), "No such file", "NETCRAQ_NODE_SOCKET"):
        assert what in record.getMessage()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_forked_child_does_not_use_the_parents_client(fake: Fake) -> None:
    fake.hook = lambda p, r: r["func"] == "get" and not p.answer(r, item("k", "v", "1.1"))
    fake.start()
    client = node.connect(fake.path, timeout=PATIENCE)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:  # any thread may hold the lock at the moment of the fork
        with engine_of(client).lock:
            held.set()
            go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        uses: tuple[Callable[[], object], ...] = (
            lambda: client.get("k"),
            lambda: client.lock("l"),
            lambda: client.grant(1),
            lambda: client.watch("k"),
        )
        for use in uses:
            try:
                use()
            except node.Closed as e:
                said += "closed " if "make a client in the child" in str(e) else f"{e} "
            except BaseException as e:
                said += f"{e!r} "
        client.close()
        os.write(writer, (said + "end").encode())
        os._exit(0)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], PATIENCE)
        assert ready, "the child hangs"
        assert os.read(reader, 4096).decode() == "closed closed closed closed end"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        go.set()
        holder.join()
    assert client.get("k").text == "v"
    client.close()


def test_a_server_that_refuses_the_greeting(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.start()
    fake.known = lambda client: fake.peers[-1].say('{"id":0,"error":{"code":"permission_denied","message":"not you"}}')
    with pytest.raises(node.PermissionDenied, match="not you"):
        connect(fake.path, wait=PATIENCE)


def test_a_connection_that_ends_in_the_middle_of_a_line(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if peer.number == 0:
            peer.say(b'{"id":%d,"data":{"versi' % r["id"])
            peer.close()
        else:
            peer.answer(r, item("k", "v", "1.1"))
        return True

    fake.hook = hook
    assert connect(fake.start().path).put("k", "v") == "1.1"
    first, second = fake.of("put")
    assert first["once"] == second["once"] == 1
    assert fake.hellos[0]["client"] == fake.hellos[1]["client"]
    assert len(fake.hellos[0]["client"]) == 32


def test_a_server_that_was_started_anew(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.known = lambda client: False

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if peer.number > 0:
            peer.answer(r, item("k", "v", "1.1"))
        return True

    fake.hook = hook
    client = connect(fake.start().path)

    def cut() -> None:
        until("both to be asked", lambda: len(fake.requests) == 2)
        fake.peers[0].close()

    put, got, _ = together(lambda: client.put("k", "v"), lambda: client.get("k"), cut)
    assert isinstance(put, node.OutcomeUnknown)
    assert got.text == "v"
    assert client.put("k", "v") == "1.1"
    assert len(fake.of("put")) == 2
    assert fake.hellos[-1]["client"] != fake.hellos[0]["client"]


def test_answers_out_of_order(fake: Fake, connect: Callable[..., Any]) -> None:
    waiting: list[dict[str, Any]] = []

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        waiting.append(r)
        if len(waiting) == 10:
            for w in reversed(waiting):
                peer.answer(w, item(w["data"]["key"], "of " + w["data"]["key"], "1.1"))
        return True

    fake.hook = hook
    client = connect(fake.start().path)
    found = together(*(lambda i=i: client.get(f"k{i}").text for i in range(10)))
    assert found == [f"of k{i}" for i in range(10)]


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400\r\n\r\n", b"{}}\n", b"[1,2]\n", b'{"id":"x"}\n', b"\x00\xff\n", b"x" * (5 << 20)]
)
def test_garbage(fake: Fake, connect: Callable[..., Any], garbage: bytes) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if peer.number < 2:
            peer.say(garbage)
        else:
            peer.answer(r, item("k", "v", "1.1"))
        return True

    fake.hook = hook
    assert connect(fake.start().path).get("k").value == b"v"
    assert len(fake.peers) == 3


def test_messages_of_a_newer_server(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        peer.say('{"push":"hello","data":{"id":7}}')
        peer.say('{"id":999999,"data":{"x":1},"more":true}')
        peer.say('{"id":999998,"error":{"code":"odd","message":"odd"}}')
        peer.say(json.dumps({"news": [1], "id": r["id"], "data": {**item("k", "v", "1.1"), "color": "red"}}))
        return True

    fake.hook = hook
    assert connect(fake.start().path).get("k").text == "v"
    assert len(fake.peers) == 1


def test_a_slow_server(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.hook = lambda peer, r: r["func"] in ("get", "put")
    client = connect(fake.start().path)
    with pytest.raises(node.Timeout):
        client.get("k", timeout=0.05)
    with pytest.raises(node.OutcomeUnknown):
        client.put("k", "v", timeout=0.05)
    until("the server to be told", lambda: len(fake.of("cancel")) == 2)
    assert all(r["timeoutMs"] == 50 for r in fake.of("get") + fake.of("put"))
    fake.peers[0].answer(fake.of("get")[0], item("k", "late", "1.1"))  # this answer belongs to no call
    assert not client.leader("x").found
    assert len(fake.peers) == 1


def test_calls_in_flight_are_bounded(fake: Fake, connect: Callable[..., Any]) -> None:
    held: list[tuple[Peer, dict[str, Any]]] = []
    hold = True

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        held.append((peer, r))
        if not hold:
            peer.answer(r, item("k", "v", "1.1"))
        return True

    fake.hook = hook
    client = connect(fake.start().path, in_flight=3)

    def check() -> Exception | None:
        nonlocal hold
        until("three calls", lambda: len(held) == 3)
        until("seven that wait", lambda: engine_of(client).under_way() == 10)
        try:
            client.put("k", "v", timeout=0.05)  # this call has no effect
        except node.Timeout:
            assert len(held) == 3
        else:
            raise AssertionError("there was room")
        hold = False
        for peer, r in list(held):
            peer.answer(r, item("k", "v", "1.1"))
        return None

    *got, checked = together(*(lambda: client.get("k").text for _ in range(10)), check)
    assert checked is None
    assert got == ["v"] * 10


def engine_of(client: Any) -> Any:
    return (client.inner if isinstance(client, Sync) else client)._engine


def test_a_server_that_does_not_read(fake: Fake, connect: Callable[..., Any]) -> None:
    resume = threading.Event()
    fake.hook = lambda peer, r: not resume.wait(PATIENCE)
    client = connect(fake.start().path)
    big = "x" * (200 << 10)
    for e in together(*(lambda: client.put("k", big, timeout=0.3) for _ in range(30))):
        assert isinstance(e, node.OutcomeUnknown | node.Timeout), e
    resume.set()
    assert client.get("k").found is False


def test_a_server_that_refuses_as_it_drains(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.known = lambda client: False

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if peer.number == 0:
            peer.fail(r, "draining")
        else:
            peer.answer(r, {"version": "1.1"})
        return True

    fake.hook = hook
    assert connect(fake.start().path).put("k", "v") == "1.1"


def test_a_server_that_says_that_it_drains(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.known = lambda client: False

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if r["func"] == "watch":
            peer.answer(r, {"started": True}, more=True)
        elif peer.number > 0:
            peer.answer(r, item("k", "new", "1.2"))
        return True

    fake.hook = hook
    client = connect(fake.start().path)
    watch = client.watch("k")

    def move() -> Any:
        until("the put", lambda: fake.of("put"))
        fake.peers[0].say('{"id":0,"data":{"draining":true}}')
        until("the watch at the successor", lambda: len(fake.of("watch")) == 2)
        found = client.get("k").text
        fake.peers[0].answer(fake.of("put")[0], {"version": "1.1"})
        return found

    assert together(lambda: client.put("k", "v"), move) == ["1.1", "new"]
    until("the old connection to end", lambda: not fake.threads[1].is_alive())
    assert len(fake.of("put")) == 1
    assert fake.hellos[0]["drainNotice"] is True
    watch.close()


def test_close_waits_for_answers(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.hook = lambda peer, r: r["func"] == "put"
    client = connect(fake.start().path)

    def close() -> None:
        until("the put", lambda: fake.of("put"))
        client.close(wait=PATIENCE)

    def answer() -> None:
        until("the client to be closing", lambda: engine_of(client).closing)
        with pytest.raises(node.Closed):
            client.get("k")
        fake.peers[0].answer(fake.of("put")[0], {"version": "1.1"})

    assert together(lambda: client.put("k", "v"), close, answer) == ["1.1", None, None]


def test_close_does_not_wait_for_ever(fake: Fake, connect: Callable[..., Any]) -> None:
    fake.hook = lambda peer, r: r["func"] == "put"
    client = connect(fake.start().path)

    def close() -> None:
        until("the put", lambda: fake.of("put"))
        client.close(wait=0.05)

    put, closed = together(lambda: client.put("k", "v"), close)
    assert isinstance(put, node.OutcomeUnknown)
    assert isinstance(closed, node.Timeout)


def test_errors_of_the_server(fake: Fake, connect: Callable[..., Any]) -> None:
    code = "no_room"

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        peer.say(
            json.dumps({"id": r["id"], "error": {"code": code, "message": "full", "do": "delete some", "more": 1}})
        )
        return True

    fake.hook = hook
    client = connect(fake.start().path)
    with pytest.raises(node.NoRoom) as e:
        client.put("k", "v")
    assert (e.value.code, e.value.message, e.value.do) == ("no_room", "full", "delete some")
    code = "of_a_newer_server"
    with pytest.raises(node.NodeError) as other:
        client.put("k", "v")
    assert other.value.code == code
    for wrong in (
        lambda: client.put("\ud800", "v"),
        lambda: client.put("k", 7),
        lambda: client.increment("k", 1 << 63),
    ):
        with pytest.raises(node.InvalidArgument):
            wrong()
    with pytest.raises(node.InvalidArgument):
        client.get_many(["\ud800"])
    with pytest.raises(node.TooLarge):
        client.put("k", b"x" * (300 << 10))
    assert len(fake.requests) == 2


def test_requests_are_written_as_the_contract_says(fake: Fake, connect: Callable[..., Any]) -> None:
    client = connect(fake.start().path, "shop")
    odd = 'a"b\\c\n\x01ü\u2028'
    client.put(odd, odd, namespace="other", lease='l"1')
    client.put("k", b"\xff\x00")
    client.cas("k", "7.8", b"v")
    client.delete("k", version="1.2")
    client.increment("k", -5)
    client.get("k", eventual=True)
    assert fake.hellos[0]["namespace"] == "shop"
    assert [(r["func"], r["data"]) for r in fake.requests] == [
        ("put", {"namespace": "other", "key": odd, "value": odd, "lease": 'l"1'}),
        ("put", {"key": "k", "valueBase64": "/wA="}),
        ("cas", {"key": "k", "value": "v", "version": "7.8"}),
        ("delete", {"key": "k", "version": "1.2"}),
        ("increment", {"key": "k", "by": -5}),
        ("get", {"key": "k", "eventual": True}),
    ]
    assert (fake.requests[2]["once"], fake.requests[2]["done"]) == (3, 3)


def test_what_waits_is_not_done(fake: Fake, connect: Callable[..., Any]) -> None:
    """However long a request waits, no other request reports it to the server as done before it is
    answered."""
    waiting: list[tuple[Peer, dict[str, Any]]] = []

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if r["func"] == "lock":
            waiting.append((peer, r))
        return r["func"] == "lock"

    fake.hook = hook
    client = connect(fake.start().path)
    client.put("k", b"v")
    locks = threading.Thread(target=lambda: client.lock("x", lease="l"))
    locks.start()
    until("the lock to be asked for", lambda: waiting)
    client.put("k", b"v")
    client.put("k", b"v")
    peer, lock = waiting[0]
    assert all(r.get("done", 1) <= min(lock["once"], r["once"]) for r in fake.of("put"))
    peer.answer(lock, {"held": True, "name": "x", "token": "5", "lease": "l"})
    locks.join(PATIENCE)
    client.put("k", b"v")
    last = fake.of("put")[3]
    assert last["done"] == last["once"]


def test_a_watch_is_taken_up(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if r["func"] != "watch":
            return False
        peer.answer(r, {"started": True}, more=True)
        if peer.number == 0:
            peer.answer(r, {"events": [item("a", "1", "1.9"), item("b", "1", "1.1")]}, more=True)
        else:
            newer = {**item("a", "2", "1.10"), "overtaken": 3}
            peer.answer(r, {"events": [item("b", "1", "1.1"), newer]}, more=True)
        return True

    fake.hook = hook
    watch = connect(fake.start().path).watch(prefix="", after={"z": "5.5"}, namespace="other")
    assert [watch.next(PATIENCE).key for _ in "ab"] == ["a", "b"]
    fake.peers[0].close()
    event = watch.next(PATIENCE)
    assert (event.key, event.text, event.overtaken) == ("a", "2", 3)
    assert fake.of("watch")[1]["data"] == {
        "namespace": "other",
        "prefix": "",
        "after": {"z": "5.5", "a": "1.9", "b": "1.1"},
    }
    watch.close()
    with pytest.raises(node.Closed):
        watch.next(PATIENCE)
    until("the server to be told", lambda: fake.of("cancel"))


def test_a_watch_of_many_keys_is_taken_up(fake: Fake, connect: Callable[..., Any]) -> None:
    """A watch with more keys than a watch may name, or more versions than the quota allows, is
    resumed.
    """
    names = [f"a-key-of-some-length/{i:04}" for i in range(5000)]

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if r["func"] != "watch":
            return False
        after = r["data"].get("after", {})
        if len(after) > 4096 or (peer.number == 2 and after):
            peer.fail(r, "quota_exceeded")
            return True
        peer.answer(r, {"started": True}, more=True)
        for i in range(0, len(names), 500):
            new = [item(name, "1", "1.1") for name in names[i : i + 500] if name not in after]
            peer.answer(r, {"events": new}, more=True)
        if peer.number:
            peer.answer(r, {"events": [item("news", "1", f"1.{peer.number}")]}, more=True)
        return True

    fake.hook = hook
    watch = connect(fake.start().path).watch(prefix="")
    assert [watch.next(PATIENCE).key for _ in names] == names
    for again in (0, 1):
        fake.peers[again].close()
        event = watch.next(PATIENCE)
        assert (event.key, event.version) == ("news", f"1.{again + 1}")
    assert 0 < len(fake.of("watch")[1]["data"]["after"]) <= 1024


def test_a_watch_forgets_what_was_deleted(fake: Fake, connect: Callable[..., Any]) -> None:
    """A watch does not remember every key that was ever deleted under its prefix."""
    names = [f"job/{i:05}" for i in range(5000)]

    def gone(name: str, version: str = "1.2") -> dict[str, Any]:
        return {"key": name, "found": False, "version": version}

    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if r["func"] != "watch":
            return False
        peer.answer(r, {"started": True}, more=True)
        if peer.number:
            # on the second connection, the fake behaves like a server that does not know the
            # watch's versions
            news = [gone(names[0]), gone(names[-1]), gone("named", "1.1"), item("stays", "1", "1.1")]
            peer.answer(r, {"events": [*news, item(names[1], "2", "1.3")]}, more=True)
            return True
        peer.answer(r, {"events": [item("stays", "1", "1.1"), gone("named", "1.1")]}, more=True)
        for i in range(0, len(names), 250):
            peer.answer(r, {"events": [item(name, "1", "1.1") for name in names[i : i + 250]]}, more=True)
            peer.answer(r, {"events": [gone(name) for name in names[i : i + 250]]}, more=True)
        return True

    fake.hook = hook
    watch = connect(fake.start().path).watch(["named"], prefix="")
    deleted = 0
    while deleted <= len(names):
        deleted += not watch.next(PATIENCE).found
    inner = getattr(watch, "inner", watch)  # unwraps the asyncio variant
    inner = getattr(inner, "_watch", inner)  # unwraps the blocking variant
    assert len(inner._last) <= 1024 + 2
    assert len(inner._graves) <= 1024
    fake.peers[0].close()
    events = [watch.next(PATIENCE), watch.next(PATIENCE)]
    assert [(e.key, e.version) for e in events] == [(names[0], "1.2"), (names[1], "1.3")]


def test_a_watch_keeps_the_newest(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if r["func"] != "watch":
            return False
        for v in ("1.1", "1.2", "1.3"):
            peer.answer(r, {"events": [{**item("a", v, v), "overtaken": 1}]}, more=True)
        return True

    fake.hook = hook
    client = connect(fake.start().path)
    watch = client.watch(["a"])
    client.get("x")  # the server answers this call after it has sent all events
    event = watch.next(PATIENCE)
    assert (event.version, event.overtaken) == ("1.3", 5)


def test_a_watch_of_a_server_in_trouble(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        match len(fake.of("watch")):
            case 1:
                peer.answer(r, {"started": True}, more=True)
                peer.fail(r, "unavailable")
            case 2:
                peer.answer(r, {})
            case _:
                peer.answer(r, {"events": [item("a", "1", "1.1")]}, more=True)
        return True

    fake.hook = hook
    assert connect(fake.start().path).watch("a").next(PATIENCE).version == "1.1"


def test_a_watch_that_is_refused(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        peer.fail(r, "permission_denied")
        return True

    fake.hook = hook
    client = connect(fake.start().path)
    with pytest.raises(node.PermissionDenied):
        client.watch("a").next(PATIENCE)
    assert engine_of(client).calls == {}


def test_versions() -> None:
    versions = ["0.0", "0.1", "0.9", "0.10", "1.1", "2.0", "10.0"]
    assert sorted(reversed(versions), key=version_key) == versions
    assert version_key("0") == version_key("0.0")


# Tests with a real server.


class MemServer:
    """A node API server with a store in memory. A test can kill it and start it again."""

    def __init__(self, program: str, path: str) -> None:
        self.program, self.path = program, path
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.process = subprocess.Popen(
            [self.program, "--socket", self.path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "listening":
                return
        raise AssertionError("memserver did not start")

    def end(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@pytest.fixture()
def server(memserver_program: str) -> Iterator[MemServer]:
    with tempfile.TemporaryDirectory() as place:
        made = MemServer(memserver_program, os.path.join(place, "s"))
        made.start()
        yield made
        made.end()


def test_keys(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path)
    assert client.info["server"] == "memserver"
    assert not client.get("k").found
    assert client.get("k").value is None
    version = client.put("k", "blue")
    got = client.get("k")
    assert (got.found, got.value, got.text, got.version) == (True, b"blue", "blue", version)
    swap = client.cas("k", version, b"\xff\x00")
    assert swap.swapped
    assert swap.item.value == b"\xff\x00"
    assert client.get("k", eventual=True).value == b"\xff\x00"
    again = client.cas("k", version, b"no")
    assert not again.swapped
    assert again.item.version == swap.item.version
    assert client.cas("new", node.NEVER, "").swapped
    assert client.get("new").value == b""
    assert [client.increment("n", by).number for by in (1, 41, -(1 << 62))] == [1, 42, 42 - (1 << 62)]
    assert not client.delete("k", version=version).deleted
    assert client.delete("k").deleted
    assert [i.found for i in client.get_many(["k", "n", "new"] * 100)] == [False, True, True] * 100
    assert not client.get("new", namespace="other").found
    with pytest.raises(node.TooLarge):
        client.put("k", b"x" * 5000)


def test_transactions(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path)
    made = client.transact(
        compare=[node.Comparison("a", absent=True), node.Comparison("b", version=node.NEVER)],
        write=[node.Put("a", "1"), node.Put("b", b"\xff\0"), node.Put("c", ""), node.Delete("never")],
    )
    first = made.versions[0]
    assert made == node.Transacted(True, [first, first, first, node.NEVER], [])
    lease = client.grant(60)
    again = client.transact(
        compare=(node.Comparison(k, value=v) for k, v in {"a": "1", "b": b"\xff\0", "c": b""}.items()),
        write=[node.Put("a", b"2", lease=lease.id), node.Delete("b")],
    )
    assert again.done
    a, b = client.get_many(["a", "b"])
    assert (a.text, a.lease, a.version) == ("2", lease.id, again.versions[0])
    assert (b.found, b.version) == (False, again.versions[1])
    late = client.transact(
        compare=[
            node.Comparison("a", version=first),
            node.Comparison("b", absent=True),
            node.Comparison("never", value="x"),
        ],
        write=[node.Put("a", "no"), node.Put("new", "no")],
    )
    assert (late.done, late.versions) == (False, [])
    assert [(i.key, i.found, i.text, i.version) for i in late.failed] == [
        ("a", True, "2", again.versions[0]),
        ("never", False, None, node.NEVER),
    ]
    assert [i.text for i in client.get_many(["a", "new"])] == ["2", None]
    assert client.transact(compare=[node.Comparison("a", absent=True)], namespace="empty").done
    names = [f"long/{n}" for n in range(40)]
    client.transact(write=[node.Put(name, "x" * 1000) for name in names])
    failed = client.transact(compare=[node.Comparison(name, absent=True) for name in names]).failed
    assert [(i.key, i.found, i.value) for i in failed] == [
        (name, True, b"x" * 1000 if n < 32 else None) for n, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"write": [node.Put("k", "v"), node.Delete("k")]},
        {"write": [node.Put("k", 1)]},  # type: ignore[arg-type]
        {"write": ["k"]},
        {"write": [node.Comparison("k", absent=True)]},
        {"write": [node.Put("", "v")]},
        {"compare": [node.Comparison("k")]},
        {"compare": [node.Comparison("k", version="new")]},
        {"compare": [node.Comparison("k", version="1.1", value="v")]},
        {"compare": [node.Comparison("k", value="", absent=True)]},
        {"compare": [node.Comparison("\ud800", absent=True)]},
        {"compare": [node.Delete("k")]},
        {"compare": [node.Comparison("k", absent=True)] * 2},
    ],
)
def test_transactions_that_cannot_be(server: MemServer, connect: Callable[..., Any], how: dict[str, Any]) -> None:
    client = connect(server.path)
    with pytest.raises(node.InvalidArgument):
        client.transact(**how)
    assert not client.get("k").found


def test_transactions_that_are_too_large(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path)
    with pytest.raises(node.TooLarge, match="at most 64"):
        client.transact(compare=[node.Comparison(f"k{n}", absent=True) for n in range(65)])
    with pytest.raises(node.TooLarge):
        client.transact(write=[node.Put("k", "v"), node.Put("l", "x" * 5000)])
    assert not client.get("k").found


def test_a_transaction_is_sent_again_under_its_number(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, r: dict[str, Any]) -> bool:
        if peer.number == 0:
            peer.close()
        else:
            peer.answer(r, {"done": True, "versions": ["1.1"]})
        return True

    fake.hook = hook
    assert connect(fake.start().path).transact(write=[node.Put("k", "v")]).versions == ["1.1"]
    first, second = fake.of("transact")
    assert first["once"] == second["once"] == 1
    assert first["data"] == second["data"] == {"compare": [], "write": [{"key": "k", "value": "v"}]}


def listed(client: Any, prefix: str, **how: Any) -> list[Any]:
    """All items that list_all yields, with the blocking or the asyncio client."""
    found = client.list_all(prefix, **how)
    if not hasattr(found, "__aiter__"):
        return list(found)

    async def collect() -> list[Any]:
        return [i async for i in found]

    collected: list[Any] = client.run(collect())
    return collected


def test_lists(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path)
    names = [f"conf/{n:03}" for n in range(300)]
    versions = [client.put(name, name) for name in names]
    client.put("other", b"\xff")
    client.put("conf/gone", "x")
    client.delete("conf/gone")
    for how in ({}, {"page_size": 7}):
        found = listed(client, "conf/", **how)
        assert [(i.key, i.text, i.version, i.found) for i in found] == [
            (name, name, version, True) for name, version in zip(names, versions, strict=True)
        ]
    found = listed(client, "conf/", keys_only=True)
    assert [(i.key, i.value, i.version) for i in found] == [
        (name, None, version) for name, version in zip(names, versions, strict=True)
    ]
    assert [(i.key, i.value) for i in listed(client, "o")] == [("other", b"\xff")]
    assert listed(client, "none") == []
    assert len(listed(client, "")) == 301
    assert listed(client, "", namespace="empty") == []
    page = client.list_page("conf/")
    assert len(page.items) == 100
    page = client.list_page("conf/", cursor=page.cursor, page_size=1)
    assert [i.key for i in page.items] == ["conf/100"]
    with pytest.raises(node.InvalidArgument, match="not a cursor") as e:
        client.list_page("other", cursor=page.cursor)
    assert "without a cursor" in e.value.do
    with pytest.raises(node.TooLarge):
        client.list_page("", page_size=257)
    with pytest.raises(node.InvalidArgument):
        client.list_page("\ud800")


def test_lists_of_servers_that_are_old_or_go_on_for_ever(fake: Fake, connect: Callable[..., Any]) -> None:
    def hook(peer: Peer, request: dict[str, Any]) -> bool:
        if request["data"].get("prefix") == "for ever":
            peer.answer(request, {"items": [item("k", "v", "1.1")], "cursor": "c"})
        else:
            peer.fail(request, "invalid_argument")
        return True

    fake.hook = hook
    client = connect(fake.start().path)
    with pytest.raises(node.InvalidArgument, match=r"the node's server \(fake\) is older") as e:
        client.list_page("a")
    assert "watch the prefix" in e.value.do
    with pytest.raises(node.Internal, match="the cursor that it was given"):
        listed(client, "for ever")
    assert len(fake.of("list")) == 3


def test_watches(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path)
    version = client.put("a/1", "old")
    watch = client.watch(prefix="a/", after={"a/1": version})
    client.put("b/1", "not this one")
    client.put("a/1", "new")
    client.put("a/2", b"\xff")
    events = {e.key: e.value for e in (watch.next(PATIENCE), watch.next(PATIENCE))}
    assert events == {"a/1": b"new", "a/2": b"\xff"}
    client.delete("a/1")
    assert not watch.next(PATIENCE).found
    with pytest.raises(node.Timeout):
        watch.next(0.05)


def test_many_calls_at_once(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path, in_flight=4)
    results = together(*(lambda: [client.increment("n").number for _ in range(50)] for _ in range(8)))
    assert sorted(n for r in results for n in r) == list(range(1, 401))


def test_a_server_that_is_killed(server: MemServer, connect: Callable[..., Any]) -> None:
    """Each increment that succeeded was executed once, even if the server died meanwhile. The store
    is lost with the server, so the test counts separately for each server process.
    """
    client = connect(server.path)
    over = threading.Event()
    numbers: list[int] = []

    def work() -> None:
        while not over.is_set():
            with contextlib.suppress(node.OutcomeUnknown):
                numbers.append(client.increment("n").number)

    def kill() -> None:
        for _ in range(3):
            at = len(numbers)
            until("increments", lambda at=at: len(numbers) > at + 20)
            server.end()
            server.start()
        at = len(numbers)
        until("increments", lambda: len(numbers) > at + 20)
        over.set()

    assert together(work, kill) == [None, None]
    lives = sum(b <= a for a, b in pairwise(numbers))
    assert lives == 3


def test_leases(server: MemServer, connect: Callable[..., Any]) -> None:
    client = connect(server.path)
    lease = client.grant(0.7)
    assert lease.ttl == 0.7
    client.put("k", "v", lease=lease.id)
    assert client.get("k").lease == lease.id
    assert client.keep_alive(lease.id) == lease
    client.revoke(lease.id)
    assert not client.get("k").found
    with pytest.raises(node.LeaseGone):
        client.keep_alive(lease.id)


def test_locks(server: MemServer, connect: Callable[..., Any]) -> None:
    a, b = connect(server.path), connect(server.path)
    held = a.lock("l", ttl=2)
    assert (held.name, held.token > 0, held.lost.is_set()) == ("l", True, False)
    for wait in (0, 0.02):
        with pytest.raises(node.NotHeld):
            b.lock("l", wait=wait)

    def release() -> None:
        until("somebody to wait", lambda: engine_of(b).under_way())
        held.release()

    other, _ = together(lambda: b.lock("l"), release)
    assert other.token > held.token
    assert held.lost.is_set()
    assert held.error is None
    held.release()  # a second release does nothing
    assert a.lock("other", ttl=2).lease == held.lease  # the idle lease is used again
    b.close()
    assert a.lock("l").token > other.token


def test_a_lock_outlives_its_connection(server: MemServer, connect: Callable[..., Any]) -> None:
    """A lock outlives its connection if the client keeps its lease alive. A restarted server would
    not know the lease, so this test only ends the connection.
    """
    client = connect(server.path)
    held = client.lock("l", ttl=2)
    engine = engine_of(client)
    engine.loop.call_soon_threadsafe(engine._drop, engine.link, None)
    time.sleep(2.5)  # longer than the lease's time to live
    assert held.error is None
    held.release()
    lost = client.lock("l", ttl=1)
    server.end()
    until("the loss to be told", lost.lost.is_set)
    assert isinstance(lost.error, node.NotHeld)
    with pytest.raises(node.NotHeld):
        lost.release()


def test_with(server: MemServer) -> None:
    with node.connect(server.path) as client:
        with client.lock("l") as held, client.campaign("e", "me") as leadership, client.acquire("s", 1):
            assert client.leader("e") == node.Leader(True, "me", leadership.token)
            with pytest.raises(node.NotHeld):
                client.acquire("s", 1, wait=0)
        assert held.lost.is_set()
        assert not client.leader("e").found
        with client.watch("k") as events:
            client.put("k", "v")
            assert next(e for e in events if e.found).text == "v"
    with pytest.raises(node.Closed):
        client.get("k")

    async def same() -> None:
        async with await aio.connect(server.path) as client:
            async with client.lock("l") as held, client.campaign("e", "me"), client.acquire("s", 1):
                assert (await client.leader("e")).value == "me"
            assert held.lost.is_set()
            async with client.watch("k") as events:
                assert (await anext(events)).text == "v"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.watch("k", after={"k": "9.9"}).next(), 0.05)
            task = asyncio.create_task(client.get("k"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(same())


def test_services(server: MemServer, connect: Callable[..., Any]) -> None:
    a, b = connect(server.path), connect(server.path)
    watch = b.watch_service("web")

    def see(*addresses: str) -> None:
        end = time.monotonic() + PATIENCE
        while sorted(i.address for i in watch.next(PATIENCE)) != list(addresses):
            assert time.monotonic() < end

    one = a.register_service("web", "h:1", ttl=1)
    two = a.register_service("web", "h:2", instance="two")
    assert one.instance
    assert two.instance == "two"
    see("h:1", "h:2")
    assert len(b.get_service("web", order="nearest")) == 2
    two.deregister()
    see("h:1")
    b.revoke(one.lease)  # the client registers it again
    see()
    see("h:1")
    a.close()
    see()
