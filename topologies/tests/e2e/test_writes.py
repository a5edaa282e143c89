# SPDX-License-Identifier: Apache-2.0
"""The packets of a write, and when it is executed or not."""

import itertools
import threading

import pytest
from netcraq.client import CASFailed, NetCRAQError, NotFound
from netcraq.wire import Op, Packet, Status

from topologies.tests.e2e import tools
from topologies.tests.e2e.tools import Capture, Moved

MEMBERS = ["s1", "s2", "s3", "s4"]


def path(*nodes):
    """Return the hops along some nodes."""
    return list(itertools.pairwise(nodes))


@pytest.mark.parametrize(
    ("host", "to_head", "reply", "acks"),
    [
        # the reply passes all switches, so it is also the acknowledgement
        ("h1", path("h1", "s1"), path("s4", "s3", "s2", "s1", "h1"), []),
        ("h2", path("h2", "s2", "s1"), path("s4", "s3", "s2", "h2"), path("s2", "s1")),
        ("h4", path("h4", "s4", "s3", "s2", "s1"), path("s4", "h4"), path("s4", "s3", "s2", "s1")),  # n - 1
    ],
)
def test_a_write_goes_down_the_chain_and_is_acknowledged_once_to_each_switch(net, host, to_head, reply, acks):
    name, key = tools.new_key(net)
    before = tools.all_clean(net, name)
    with tools.client(net, host) as client:
        with Moved(net) as moved, Capture(net) as capture:
            result = client.put(key, b"second")
        assert capture.of(Op.WRITE) == [*to_head, *path(*MEMBERS)]
        assert sorted(capture.of(Op.WRITE_REPLY)) == sorted(reply)
        assert sorted(capture.of(Op.ACK)) == sorted(acks)
        assert len(capture.packets) == len(to_head) + 3 + len(reply) + len(acks)
        stamped = [
            seen.version
            for seen in capture.packets
            if seen.op != Op.WRITE or (seen.sender, seen.receiver) not in to_head
        ]
        assert stamped == [before + 1] * len(stamped)
        assert result.version == before + 1
        assert tools.all_clean(net, name) == before + 1
        passed = {sender for sender, _ in reply}
        for switch, accepted in (("s1", "write_assigned"), ("s2", "write_stored"), ("s3", "write_stored")):
            assert {
                kind: n for kind, n in moved.events[switch].items() if kind not in ("transit", "write_to_head")
            } == {
                accepted: 1,
                "reply_repaired" if switch in passed else "ack_committed": 1,
            }
        assert moved.events["s4"]["write_committed"] == 1
        assert moved.slots == {switch: {name: {"writes": 1}} for switch in MEMBERS}


@pytest.mark.parametrize("host", ["h1", "h2", "h3", "h4"])
def test_after_a_write_from_anywhere_every_switch_has_it(net, host):
    name, key = tools.new_key(net)
    with tools.client(net, host) as client:
        written = client.put(key, b"second").version
    assert tools.all_clean(net, name) == written
    for reader in ("h1", "h2", "h3", "h4"):
        with tools.client(net, reader) as client, Moved(net) as moved:
            result = client.get(key)
        assert (result.value, result.version) == (b"second", written)
        assert moved.settled() == {net.topology.hosts[reader].switch: {"read_clean": 1}}


@pytest.mark.parametrize("value", [b"", b"x", b"\0" * 16, bytes(range(16))])
def test_values_of_every_length_come_back_as_they_were(net, value):
    _, key = tools.new_key(net)
    with tools.client(net, "h1") as writer, tools.client(net, "h3") as reader:
        writer.put(key, value)
        assert reader.get(key).value == value


def test_cas_executes_only_on_the_expected_version(net):
    name, key = tools.new_key(net, b"1")
    version = tools.all_clean(net, name)
    with tools.client(net, "h2") as client:
        swapped = client.cas(key, version, b"2")
        assert swapped.version == version + 1
        tools.all_clean(net, name)
        with pytest.raises(CASFailed) as failure, Moved(net) as moved:
            client.cas(key, version, b"3")
        assert (failure.value.version, failure.value.value) == (version + 1, b"2")
        assert client.get(key).value == b"2"
        assert tools.all_clean(net, name) == version + 1
    with tools.client(net, "h2") as client, Moved(net) as moved, pytest.raises(CASFailed):
        client.cas(key, version, b"3")
    assert moved.events["s1"]["cas_to_tail"] == 1
    assert moved.events["s4"]["cas_failed"] == 1
    assert not any(moved.slots.values())


def test_cas_on_a_dirty_key_is_executed_on_the_newest_version(net):
    """The head executes the CAS although it does not know whether the newest version is committed.
    The tail answers a CAS that expects an older version.
    """
    name, key = tools.new_key(net, b"old")
    version = tools.all_clean(net, name)
    with tools.acknowledgements_lost(net, key, b"new"), Moved(net) as moved:
        committed = net.counters("s4").event("write_committed")
        for expected, value in ((version, b"no"), (version + 1, b"newer")):
            packet = Packet(Op.CAS, key, version=expected, value=value)
            tools.from_host(net, "h1", tools.request(net, "h1", packet))
        tools.wait_until("the CAS commits", lambda: net.counters("s4").event("write_committed") > committed)
    for switch, counted in (("s1", {"cas_to_tail": 1}), ("s4", {"cas_failed": 1})):
        assert {event: n for event, n in moved.events[switch].items() if event.startswith("cas")} == counted
    with tools.client(net, "h1") as client:
        result = client.get(key)
        assert (result.value, result.version) == (b"newer", version + 2)
        assert client.cas(key, version + 2, b"newest").version == version + 3


def test_delete_leaves_no_value_and_a_put_brings_one_back(net):
    name, key = tools.new_key(net, b"here")
    version = tools.all_clean(net, name)
    with tools.client(net, "h1") as client:
        assert client.delete(key).version == version + 1
        tools.all_clean(net, name)
        for host in ("h1", "h2", "h3", "h4"):
            with tools.client(net, host) as reader, pytest.raises(NotFound) as answer:
                reader.get(key)
            assert answer.value.version == version + 1
        assert client.put(key, b"back").version == version + 2
        assert client.get(key).value == b"back"


def test_a_retry_is_answered_again_and_executed_once(net):
    name, key = tools.new_key(net)
    version = tools.all_clean(net, name)
    session = tools.sessions_of(net, "h1").sessions[0]
    write = Packet(Op.WRITE, key, session=session.id, request=session.next_request + 1, value=b"once")
    with tools.port_of(net, "h1") as port, Moved(net) as moved:
        for _ in range(5):
            tools.from_host(net, "h1", tools.request(net, "h1", write))
            reply, _ = tools.answer(net, port)
            assert (reply.op, reply.status, reply.version, reply.request) == (
                Op.WRITE_REPLY,
                Status.OK,
                version + 1,
                write.request,
            )
        # An older request of the session is a late copy of a completed one.
        old = Packet(Op.WRITE, key, session=session.id, request=session.next_request, value=b"late")
        tools.from_host(net, "h1", tools.request(net, "h1", old))
        assert tools.silence(port)
    assert tools.all_clean(net, name) == version + 1
    assert moved.events["s1"]["write_assigned"] == 1
    assert moved.events["s1"]["write_retried"] == 4
    assert moved.events["s1"]["drop_old_request"] == 1
    assert moved.events["s4"]["write_repeated"] == 4
    assert moved.slots == {switch: {name: {"writes": 1}} for switch in MEMBERS}


def test_a_retry_after_a_newer_write_of_another_does_not_undo_it(net):
    name, key = tools.new_key(net)
    session = tools.sessions_of(net, "h1").sessions[0]
    write = Packet(Op.WRITE, key, session=session.id, request=session.next_request, value=b"older")
    with tools.port_of(net, "h1") as port, tools.client(net, "h4") as other:
        tools.from_host(net, "h1", tools.request(net, "h1", write))
        first, _ = tools.answer(net, port)
        newer = other.put(key, b"newer")
        tools.from_host(net, "h1", tools.request(net, "h1", write))
        again, _ = tools.answer(net, port)
        assert (again.status, again.version) == (Status.SUPERSEDED, first.version)
        assert tools.all_clean(net, name) == newer.version
        assert other.get(key).value == b"newer"


def test_concurrent_increments_lose_none(net):
    """Four clients at four switches increment one counter by CAS. It contains every acknowledged
    increment exactly once.
    """
    _, key = tools.new_key(net, b"0")
    rounds = 25
    failures: list[BaseException] = []
    unknown = itertools.count()

    def add(client):
        try:
            for _ in range(rounds):
                while True:
                    now = client.get(key)
                    try:
                        client.cas(key, now.version, str(int(now.value) + 1).encode())
                        break
                    except CASFailed:
                        continue
                    except NetCRAQError as error:
                        assert error.outcome_unknown
                        next(unknown)
                        break
        except BaseException as error:
            failures.append(error)

    clients = [tools.client(net, host) for host in ("h1", "h2", "h3", "h4")]
    threads = [threading.Thread(target=add, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    uncertain = next(unknown)
    count = int(clients[0].get(key).value)
    assert 4 * rounds - uncertain <= count <= 4 * rounds
    for client in clients:
        client.close()
