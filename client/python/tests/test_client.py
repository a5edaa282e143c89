# SPDX-License-Identifier: Apache-2.0
"""Tests of the UDP client and of the admin API's client with reference servers."""

from __future__ import annotations

import threading
import time

import pytest
from netcraq import client as nc
from netcraq.admin import Admin, AdminError, Session
from netcraq.client import Client
from netcraq.wire import Status, format_version

KEY = 0x01000001


@pytest.mark.parametrize("value_bits", [128, 1024, 4096, 8192])
def test_operations(make_chain, value_bits: int) -> None:
    chain = make_chain(value_bits=value_bits)
    with Client(chain.addresses, value_bits=value_bits, session=Session(3)) as c:
        with pytest.raises(nc.NotFound) as missing:
            c.get(KEY)
        assert missing.value.version == 0
        value = b"v" * (value_bits // 8)
        put = c.put(KEY, value)
        got = c.get(KEY)
        assert (got.value, got.version, got.answered_by, got.attempts) == (value, put.version, chain.addresses[0], 1)
        assert c.get(KEY, eventual=True).value == value
        swapped = c.cas(KEY, put.version, b"w")
        with pytest.raises(nc.CASFailed) as failed:
            c.cas(KEY, put.version, b"x")
        assert (failed.value.version, failed.value.value, failed.value.outcome_unknown) == (
            swapped.version,
            b"w",
            False,
        )
        assert c.cas(KEY, swapped.version, None).version > swapped.version
        with pytest.raises(nc.NotFound) as deleted:
            c.get(KEY)
        assert deleted.value.version > swapped.version
        c.put(KEY, b"")
        assert c.get(KEY).value == b""
        c.delete(KEY)
        with pytest.raises(nc.ValueTooLarge):
            c.put(KEY, value + b"v")
        with pytest.raises(nc.NotFound):
            c.put(0x01000099, b"")
        with pytest.raises(nc.NoChain):
            c.get(0x09000001)


def test_writes_execute_once(make_chain) -> None:
    chain = make_chain(addresses=2, loss=0.2, duplicate=0.2, seed=1)
    with Client(chain.addresses, session=Session(3, 17), retransmit=0.005, timeout=5) as c:
        attempts = 0
        for n in range(60):
            r = c.put(KEY, b"%d" % n)
            attempts += r.attempts
            assert r.version & 0xFFFF == n + 1  # each write has its own version, in order
            assert c.get(KEY).value == b"%d" % n
    assert chain.executed == 60
    assert attempts > 60
    assert chain.sessions[3][0] == 17 + 59


def test_redirect_and_refusals(make_chain) -> None:
    chain = make_chain(addresses=2)
    with Client(chain.addresses, session=Session(3)) as c:
        chain.down.add(0)
        r = c.put(KEY, b"x")
        assert (r.attempts, chain.executed) == (2, 1)
        assert r.rtt >= 0.05
        chain.down.clear()
        chain.refuse[0] = Status.NOT_SERVING
        r = c.get(KEY)
        assert r.attempts == 2
        assert r.rtt < 0.045
        chain.refuse.clear()
        chain.frozen = True
        thaw = threading.Timer(0.06, lambda: setattr(chain, "frozen", False))
        thaw.start()
        r = c.put(KEY, b"y")
        thaw.join()
        assert r.rtt >= 0.055
        assert 3 < r.attempts < 60
        chain.refuse[0] = Status.FULL
        with pytest.raises(nc.Refused, match="FULL"):
            c.put(KEY, b"z")
        chain.refuse[0] = Status.DIRTY
        with pytest.raises(nc.Refused, match="DIRTY") as e:
            c.put(KEY, b"z")
        assert e.value.outcome_unknown


@pytest.mark.parametrize("write", [False, True])
def test_a_lost_switch(make_chain, write: bool) -> None:
    """If a switch stops answering, another switch answers the client within 50 ms plus the time
    that the client waits for an answer.
    """
    chain = make_chain(addresses=3)
    with Client(chain.addresses, session=Session(3)) as c:
        c.put(KEY, b"x")
        chain.down.add(0)
        r = c.put(KEY, b"y") if write else c.get(KEY)
        assert r.attempts == 2
        assert 0.05 <= r.rtt <= 0.1
        assert c.get(KEY).value == (b"y" if write else b"x")


def test_nothing_leaves() -> None:
    """The operating system sends no packet from a loopback address to another address."""
    with Client(["192.0.2.1"], bind="127.0.0.1", session=Session(3), timeout=0.12) as c:
        with pytest.raises(nc.Timeout, match=r"sending fails: .*\(nothing was sent\)$") as e:
            c.put(KEY, b"x")
        assert not e.value.outcome_unknown


def test_timeout(make_chain) -> None:
    chain = make_chain(loss=1)
    with Client(chain.addresses, session=Session(3), timeout=0.12) as c:
        with pytest.raises(nc.Timeout, match="not known") as e:
            c.put(KEY, b"x")
        assert e.value.outcome_unknown
        with pytest.raises(nc.Timeout) as e:
            c.get(KEY)
        assert not e.value.outcome_unknown
        chain.loss = 0
        c.put(KEY, b"y")  # this write has the next number
    assert chain.sessions[3][0] == 2


def test_sessions(make_chain) -> None:
    chain = make_chain()
    with Client(chain.addresses) as c, pytest.raises(nc.NoSession):
        c.put(KEY, b"x")
    with Client(chain.addresses, at_least_once=True) as c:
        c.put(KEY, b"x")
    chain.session_table = 5
    with Client(chain.addresses, session=Session(5)) as c, pytest.raises(nc.Refused, match="BAD_SESSION"):
        c.put(KEY, b"x")
    with pytest.raises(ValueError, match="is no address"):
        Client(["127.0.0.1:x"])
    with pytest.raises(ValueError, match="no address"):
        Client([])


def test_send_failure_is_said() -> None:
    # A socket that is bound to a loopback address cannot send to other addresses. The kernel
    # refuses, and nothing leaves the machine.
    with Client(["192.0.2.1"], timeout=0.06, bind="127.0.0.1") as c, pytest.raises(nc.Timeout, match="sending fails"):
        c.get(KEY)


def test_controller(make_chain, make_controller) -> None:
    chain = make_chain(addresses=3, value_bits=1024)
    controller = make_controller(chain, ttl=1.2)
    controller.keys["/registry/a.b/.."] = KEY
    admin = Admin(controller.url)
    assert admin.key_id("/registry/a.b/..") == KEY
    assert admin.keys("/registry") == {"/registry/a.b/..": KEY}
    assert admin.keys("/other") == {}
    with pytest.raises(AdminError) as e:
        admin.key_id("/nowhere")
    assert e.value.code == "not_found"
    with Client.from_controller(admin, key=KEY) as c:
        assert len(c.addresses) == 3
        c.put(KEY, b"x" * 128)
        time.sleep(0.5)
        c.put(KEY, b"y")
        assert controller.kept == ["L1"]
        controller.gone.add("L1")
        time.sleep(0.5)
        c.put(KEY, b"z")  # this write has a new session
        time.sleep(1.2)
        c.put(KEY, b"w")  # this fails, because the lease has expired
        assert sorted(chain.sessions) == [1, 2, 3]
        assert format_version(c.get(KEY).version) == "1.4"
    assert controller.closed == ["L3"]
    with pytest.raises(AdminError, match="no chain 9"):
        Client.from_controller(admin, key=0x09000001)
    with pytest.raises(AdminError, match="is it running"):
        Admin("127.0.0.1:9").chains()


def test_admin_by_socket_and_by_token(make_chain, make_controller, tmp_path, monkeypatch) -> None:
    chain = make_chain()
    path, token = tmp_path / "c.sock", tmp_path / "token"
    token.write_text("a" * 40 + "\n")
    by_socket = make_controller(chain, socket_path=str(path))
    by_token = make_controller(chain, token="a" * 40)
    assert by_socket.url == f"unix://{path}"
    for admin in (
        Admin(by_socket.url),
        Admin(by_token.url, token_file=token),
        Admin(by_token.url.removeprefix("http://"), token_file=str(token)),
    ):
        assert [c.name for c in admin.chains()] == ["main"]
        assert admin.page_link() == "http://127.0.0.1:1/?token=x"
        with Client.from_controller(admin, key=KEY) as c:
            c.put(KEY, b"x")
    with pytest.raises(AdminError, match="a token is asked for") as e:
        Admin(by_token.url).chains()
    assert e.value.code == "unauthenticated"
    (tmp_path / "wrong").write_text("b" * 40)
    with pytest.raises(AdminError, match="a token is asked for"):
        Admin(by_token.url, token_file=tmp_path / "wrong").chains()
    with pytest.raises(AdminError, match="the token for the controller"):
        Admin(by_token.url, token_file=tmp_path / "none").chains()
    monkeypatch.setenv("NETCRAQ_ADMIN", by_token.url)
    monkeypatch.setenv("NETCRAQ_TOKEN_FILE", str(token))
    assert Admin().chains()
    monkeypatch.setenv("NETCRAQ_ADMIN", by_socket.url)
    monkeypatch.delenv("NETCRAQ_TOKEN_FILE")
    assert Admin().chains()
    with pytest.raises(AdminError, match=r"unix://.*none.*No such file"):
        Admin(f"unix://{tmp_path}/none").chains()
    with pytest.raises(AdminError, match="neither unix:///PATH nor"):
        Admin("ftp://x").chains()
