# SPDX-License-Identifier: Apache-2.0
"""Tests of the client by names with a reference chain, whose controller moves and removes keys."""

from __future__ import annotations

import threading
import time

import pytest
from netcraq.admin import Admin, AdminError
from netcraq.client import CASFailed, NetCRAQError, NotFound, Timeout
from netcraq.names import Names


@pytest.fixture()
def bed(make_chain, make_controller):
    """A chain, its controller, and a client by names."""
    chain = make_chain()
    controller = make_controller(chain)
    with Names(Admin(controller.url), make=True, timeout=5, patience=0.2) as names:
        yield chain, controller, names


def test_a_names_life(bed) -> None:
    """A name is created, written, moved with its version, deleted, removed, and created again."""
    _, controller, names = bed
    with pytest.raises(NotFound) as absent:
        names.get("k")
    assert absent.value.version == 0
    with pytest.raises(CASFailed):
        names.cas("k", 7, b"no")
    assert "k" not in controller.keys
    made = names.cas("k", 0, b"one")
    with pytest.raises(CASFailed) as failed:
        names.cas("k", 0, b"no")
    assert (failed.value.version, failed.value.value) == (made.version, b"one")
    version = names.put("k", b"two").version
    assert version > made.version
    for n in range(3):
        controller.move("k")
        got = names.get("k")
        assert (got.value, got.version) == (b"two", version)
        with pytest.raises(CASFailed):
            names.cas("k", version - 1, b"no")
        version = names.cas("k", version, b"two").version
        controller.move("k")
        assert names.put("k", b"two").version == version + 1, n
        version += 1
    version = names.delete("k").version
    with pytest.raises(NotFound) as deleted:
        names.get("k")
    assert deleted.value.version == version
    controller.remove("k")
    with pytest.raises(NotFound) as absent:
        names.get("k")
    assert absent.value.version == 0
    controller.details["k"] = {}
    assert names.cas("k", 0, b"again").version > 0


def test_a_write_on_its_way_when_the_key_moves(bed) -> None:
    """A put fails with an unknown outcome. A cas continues, and its success is certain."""
    _, controller, names = bed
    names.put("k", b"1")
    version = names.get("k").version
    controller.move("k", settled=0)
    with pytest.raises(NotFound) as e:
        names.put("k", b"2")
    assert e.value.outcome_unknown
    assert names.get("k").value == b"1"
    controller.move("k", settled=0)
    version = names.cas("k", version, b"2").version
    controller.move("k", settled=0)
    with pytest.raises(CASFailed) as f:
        names.cas("k", version - 1, b"3")
    assert f.value.outcome_unknown


def test_it_waits_while_a_key_moves(bed) -> None:
    """The client waits while the controller answers that it is not ready yet."""
    _, controller, names = bed
    names.put("k", b"1")
    controller.moving.add("k")
    controller.move("k")
    done = threading.Timer(0.3, lambda: controller.moving.discard("k"))
    done.start()
    assert names.get("k").value == b"1"
    done.join()
    controller.moving.add("k")
    controller.move("k")
    names.timeout = 0.3
    begun = time.monotonic()
    with pytest.raises(Timeout, match="is being moved"):
        names.get("k")
    assert time.monotonic() - begun < 5


def test_without_a_controller(make_chain, make_controller) -> None:
    """Calls for cached names continue."""
    controller = make_controller(make_chain())
    with Names(Admin(controller.url), make=True, patience=0.1) as names:
        names.put("k", b"1")
        controller.server.shutdown()
        controller.server.server_close()
        names.put("k", b"2")
        assert names.get("k").value == b"2"
        with pytest.raises(AdminError, match="is it running"):
            names.put("new", b"1")
        # A write is refused because the key has moved, and no controller says when that happened.
        controller.remove("k")
        with pytest.raises(NetCRAQError, match="is it running") as e:
            names.put("k", b"3")
        assert e.value.outcome_unknown
