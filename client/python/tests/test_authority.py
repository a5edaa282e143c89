# SPDX-License-Identifier: Apache-2.0
"""Tests of the client with restricted rights. They use forged replies, keys in realms of other
principals, and sessions of other hosts.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from netcraq import client as nc
from netcraq.admin import Admin, Session, host_address
from netcraq.client import Client
from netcraq.wire import REQUEST_WINDOW, Op, Packet, Status

KEY = 0x01000001
OTHER = "127.0.0.5"


@contextlib.contextmanager
def forger() -> Iterator[tuple[str, str, int]]:
    """A switch on loopback together with an attacker. The attacker knows all requests, including
    their numbers, and is faster than the switch. Before each answer of the switch, each of the
    attacker's sockets sends a forged answer. Yields the service address, the switch's own address,
    and the number of forged answers for a request.
    """
    with contextlib.ExitStack() as stack:

        def listen(host: str, port: int = 0) -> socket.socket:
            s = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            s.bind((host, port))
            s.settimeout(0.05)
            return s

        service = listen("127.0.0.1")
        port = service.getsockname()[1]
        own = listen("127.0.0.2", port)
        forgers = [listen("127.0.0.66", port), listen("127.0.0.1"), listen("127.0.0.2")]
        over = threading.Event()

        def serve(s: socket.socket) -> None:
            while not over.is_set():
                try:
                    payload, client = s.recvfrom(2048)
                except TimeoutError:
                    continue
                p = Packet.decode(payload, 128)
                reply = replace(p, op=p.op.reply or p.op, flags=type(p.flags)(0), epoch=1, version=1 << 48 | 1)
                for each in forgers:
                    each.sendto(replace(reply, value=b"forged").encode(128), client)
                service.sendto(replace(reply, value=b"true").encode(128), client)

        threads = [threading.Thread(target=serve, args=(s,)) for s in (service, own)]
        for t in threads:
            t.start()
        try:
            yield f"127.0.0.1:{port}", f"127.0.0.2:{port}", len(forgers)
        finally:
            over.set()
            for t in threads:
                t.join()


@pytest.mark.parametrize("asked", ["service", "switch", "to"])
def test_forged_replies(asked: str) -> None:
    """An attacker that knows the requests cannot forge answers. The attacker cannot send from an
    address that the client asked, nor from the service address.
    """
    with forger() as (service, own, forgeries):
        where = {"service": ([service, own], None), "switch": ([own], service), "to": ([service], None)}[asked]
        with Client(where[0], service=where[1], session=Session(1)) as c:
            for _ in range(20):
                r = c.get(KEY, to=own if asked == "to" else None)
                assert (r.value, r.answered_by) == (b"true", service)
                assert c.put(KEY, b"x").answered_by == service
            assert c.foreign == 40 * forgeries


def test_a_switch_alone_is_known() -> None:
    with forger() as (_, own, _), Client([own], timeout=0.3) as c:
        with pytest.raises(
            nc.Timeout, match=r"which was not asked: if that is the chain's service address, give it as service"
        ):
            c.get(KEY)
        assert c.foreign > 0
    with pytest.raises(ValueError, match="is no address"):
        Client([own], service="127.0.0.1:x")


def test_first_numbers_cannot_be_foretold(make_chain) -> None:
    chain = make_chain()
    numbers = set()
    take = chain._take
    chain._take = lambda i, payload, host: numbers.add(Packet.decode(payload, 128).request) or take(i, payload, host)
    for _ in range(64):
        with Client(chain.addresses) as c, pytest.raises(nc.NotFound):
            c.get(KEY)
    assert len(numbers) >= 63
    assert all(0 < sum(n >> bit & 1 for n in numbers) < len(numbers) for bit in range(32))


@pytest.mark.parametrize(
    ("principal", "may"), [(7, {"get", "put", "cas"}), (8, {"get"}), (9, {"put"}), (10, set()), (None, set())]
)
def test_denied(make_chain, principal: int | None, may: set[str]) -> None:
    chain = make_chain()
    chain.realms[KEY] = 7
    chain.grants |= {(8, 7): "r", (9, 7): "w"}
    if principal is not None:
        chain.principals["127.0.0.9"] = principal
    with Client(chain.addresses, session=Session(1), bind="127.0.0.9") as c:
        for what, do in (
            ("get", lambda k: c.get(k)),
            ("put", lambda k: c.put(k, b"x")),
            ("cas", lambda k: c.cas(k, 99, b"y")),
        ):
            with contextlib.suppress(nc.NotFound, nc.CASFailed):
                do(KEY + 1)  # this key has no realm
            asked = chain.requests
            if what in may:
                with contextlib.suppress(nc.NotFound, nc.CASFailed):
                    do(KEY)
                continue
            with pytest.raises(nc.Denied, match="access denied: ask the operator for access") as e:
                do(KEY)
            # another copy may have arrived while the right was granted
            assert e.value.outcome_unknown == (what != "get")
            assert chain.requests == asked + 1  # the client has not sent the request again
    assert chain.slots[KEY][0] == 0 or "put" in may


@pytest.mark.parametrize("refusal", ["NOT_FOUND", "DENIED", "BAD_SESSION", "NO_CHAIN", "FULL"])
@pytest.mark.parametrize("what", ["put", "delete", "cas"])
def test_a_refused_copy_says_nothing_of_the_other(make_chain, refusal: str, what: str) -> None:
    """The network duplicates a write. One copy is executed, and its answer is lost. Before the
    other copy arrives, the key, the right or the session that the write needs is removed.
    """
    chain = make_chain()
    chain.place(KEY)
    take = chain._take

    def take_twice(i: int, payload: bytes, host: str) -> Packet | None:
        reply = take(i, payload, host)
        if reply is not None and reply.op != Op.READ_REPLY:
            chain.refuse[0] = Status[refusal]
            reply = take(i, payload, host)
            chain.refuse.clear()
        return reply

    chain._take = take_twice
    with Client(chain.addresses, session=Session(1)) as c:
        with pytest.raises(nc.NetCRAQError) as e:
            {"put": lambda: c.put(KEY, b"x"), "delete": lambda: c.delete(KEY), "cas": lambda: c.cas(KEY, 0, b"x")}[
                what
            ]()
        assert chain.executed == 1
        assert e.value.outcome_unknown
        chain.refuse[0] = Status[refusal]
        with pytest.raises(nc.NetCRAQError) as e:
            c.get(KEY)
        assert not e.value.outcome_unknown


def test_sessions_are_leased_to_the_own_address(make_chain, make_controller) -> None:
    chain = make_chain()
    controller = make_controller(chain)
    with Client.from_controller(Admin(controller.url)) as c:
        c.put(KEY, b"x")
        # The switches now reject the sessions, because another host or another lease has them. A
        # CAS continues with a new lease. A write fails, and the next write uses a new lease.
        version = c.get(KEY).version
        chain.lease(1, OTHER)
        r = c.cas(KEY, version, b"y")
        assert (r.attempts, chain.executed) == (2, 2)
        chain.lease(2, "127.0.0.1", c._session.sessions[0].next_request - REQUEST_WINDOW - 1)
        with pytest.raises(nc.Refused, match="is not leased to this host") as e:
            c.put(KEY, b"z")
        assert e.value.outcome_unknown
        assert chain.executed == 2
        assert c.put(KEY, b"z").attempts == 1
    assert controller.hosts == ["127.0.0.1"] * 3
    assert controller.closed == ["L1", "L2", "L3"]
    assert host_address("127.0.0.1:7") == "127.0.0.1"
    assert host_address("256.0.0.1") is None


def test_one_session_of_several_is_not_taken(make_chain, make_controller) -> None:
    chain = make_chain()
    controller = make_controller(chain)
    with Client(chain.addresses, session=Admin(controller.url).lease_sessions(2, address="127.0.0.1")) as c:
        chain.lease(1, OTHER)
        r = c.cas(KEY, 0, b"x")
        assert r.attempts == 2
        assert chain.sessions[2][1] != 0
        assert controller.hosts == ["127.0.0.1"]
        chain.lease(2, OTHER)
        c.cas(KEY, r.version, b"y")
        assert controller.hosts == ["127.0.0.1"] * 2
        assert len(c._session.sessions) == 2


def test_a_cas_that_begins_again_and_fails_may_have_been_executed(make_chain, make_controller) -> None:
    chain = make_chain()
    controller = make_controller(chain)
    with Client(chain.addresses, session=Admin(controller.url).lease_sessions(2, address="127.0.0.1")) as c:
        with pytest.raises(nc.CASFailed) as e:
            c.cas(KEY, 99, b"x")
        assert not e.value.outcome_unknown
        chain.lease(1, OTHER)
        with pytest.raises(nc.CASFailed, match=r"the key has version .* not known$") as e:
            c.cas(KEY, 99, b"x")
        assert e.value.outcome_unknown


def test_no_lease_helps(make_chain, make_controller) -> None:
    chain = make_chain()
    controller = make_controller(chain)
    session = Admin(controller.url).lease_sessions(address=OTHER)
    with (
        Client(chain.addresses, session=session, timeout=0.3) as c,
        pytest.raises(nc.Refused, match="is not leased to this host") as e,
    ):
        c.cas(KEY, 0, b"x")
    assert e.value.status == Status.BAD_SESSION
    assert e.value.outcome_unknown
    assert chain.executed == 0
    assert 2 <= len(controller.hosts) <= 10  # the pauses between leases grow


def test_a_session_that_was_set_aside_is_not_taken(make_chain) -> None:
    chain = make_chain()
    chain.lease(1, OTHER)
    with Client(chain.addresses, session=Session(1)) as c:
        with pytest.raises(nc.Refused, match="BAD_SESSION") as e:
            c.put(KEY, b"x")
        assert e.value.outcome_unknown
        with pytest.raises(nc.NoSession) as e:
            c.put(KEY, b"x")
        assert not e.value.outcome_unknown
