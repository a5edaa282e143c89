# SPDX-License-Identifier: Apache-2.0
"""Which switch answers a read, and with which value."""

import pytest
from netcraq.client import NotFound
from netcraq.wire import Op, Packet

from topologies.tests.e2e import tools
from topologies.tests.e2e.tools import Capture, Moved

HOSTS = ["h1", "h2", "h3", "h4"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_clean_read_is_answered_by_the_nearest_switch_alone(net, host):
    name, key = tools.new_key(net, b"value")
    tools.all_clean(net, name)
    switch = net.topology.hosts[host].switch
    with tools.client(net, host) as client, Moved(net) as moved, Capture(net) as capture:
        result = client.get(key)
    assert result.value == b"value"
    assert result.answered_by == f"{tools.service(net)}:20035"
    assert moved.settled() == {switch: {"read_clean": 1}}
    assert {name: slots for name, slots in moved.slots.items() if slots} == {switch: {name: {"reads": 1}}}
    assert capture.of(Op.READ) == [(host, switch)]
    assert capture.of(Op.READ_REPLY) == [(switch, host)]
    assert len(capture.packets) == 2


@pytest.mark.parametrize("asked", ["s1", "s2", "s3", "s4"])
def test_a_switch_that_is_asked_by_its_own_address_answers_itself(net, asked):
    name, key = tools.new_key(net, b"value")
    tools.all_clean(net, name)
    with tools.client(net, "h1") as client, Moved(net) as moved:
        assert client.get(key, to=str(net.topology.switches[asked].address)).value == b"value"
    on_the_way = ["s1", "s2", "s3", "s4"][: int(asked[1]) - 1]
    assert moved.settled() == {
        **{switch: {"transit": 1, "reply_passed": 1} for switch in on_the_way},
        asked: {"read_clean": 1},
    }


@pytest.mark.parametrize("host", ["h1", "h2", "h3"])
def test_a_dirty_read_is_answered_by_the_tail_with_the_newest_committed_value(net, host):
    dirty = {"s1": "DIRTY", "s2": "DIRTY", "s3": "DIRTY", "s4": "OK"}
    for _ in range(5):  # sometimes an acknowledgement passes as soon as the cable works again
        name, key = tools.new_key(net, b"old")
        tools.all_clean(net, name)
        switch = net.topology.hosts[host].switch
        passed = ["s1", "s2", "s3"][int(switch[1]) - 1 :]
        with tools.acknowledgements_lost(net, key, b"new", b"newest"), tools.frozen(net):
            net.set_cut("s4", "s3", False)
            if tools.states(net, name) != dirty:
                continue
            with tools.client(net, host) as client:
                with Moved(net) as moved:
                    # an eventual read returns any committed value; the key is dirty here
                    assert client.get(key, eventual=True).value == b"old"
                assert moved.settled() == {switch: {"read_clean": 1}}
                with Moved(net) as moved:
                    assert client.get(key).value == b"newest"
                expected = {other: {"transit": 1, "reply_repaired": 1} for other in passed}
                assert moved.settled() == {
                    **expected,
                    switch: {"read_forwarded": 1, "reply_repaired": 1},
                    "s4": {"read_clean": 1},
                }
                assert moved.slots[switch] == {name: {"forwards": 1}}
                assert moved.slots["s4"] == {name: {"reads": 1}}

                with Moved(net) as moved:  # the reply cleaned its path (read repair)
                    assert client.get(key).value == b"newest"
                assert moved.settled() == {switch: {"read_clean": 1}}
            assert tools.states(net, name) == {
                other: "OK" if other in (*passed, "s4") else "DIRTY" for other in ("s1", "s2", "s3", "s4")
            }
        tools.all_clean(net, name)  # after the thaw the controller re-propagates dirty keys
        return
    pytest.fail("the key was never dirty")


def test_a_write_that_is_lost_on_its_way_is_not_seen_and_completed_later(net):
    """The client's retry completes it, or the controller, which re-propagates dirty keys: whichever
    is first.
    """
    name, key = tools.new_key(net, b"old")
    version = tools.all_clean(net, name)
    session = tools.sessions_of(net, "h1").sessions[0]
    write = tools.request(
        net, "h1", Packet(Op.WRITE, key, session=session.id, request=session.next_request, value=b"new")
    )
    with net.cut("s2", "s3"):
        tools.from_host(net, "h1", write)
        tools.wait_until("s2 has the write", lambda: tools.states(net, name)["s2"] == "DIRTY")
        with tools.frozen(net):
            net.set_cut("s2", "s3", False)
            assert tools.states(net, name) == {"s1": "DIRTY", "s2": "DIRTY", "s3": "OK", "s4": "OK"}
            with tools.client(net, "h1") as client:
                for _ in range(2):
                    result = client.get(key)
                    assert (result.value, result.version) == (b"old", version)
    with tools.port_of(net, "h1") as port:
        tools.from_host(net, "h1", write)
        reply, _ = tools.answer(net, port)
        assert (reply.op, reply.status, reply.version) == (Op.WRITE_REPLY, 0, version + 1)
    assert tools.all_clean(net, name) == version + 1
    with tools.client(net, "h1") as client:
        assert client.get(key).value == b"new"


@pytest.mark.parametrize("host", HOSTS)
def test_a_key_without_a_value_is_not_found(net, host):
    name, without_value = tools.new_key(net, None)
    tools.all_clean(net, name)
    not_placed = 0x01FFFFFF
    with tools.client(net, host) as client:
        for key in (without_value, not_placed):
            with Moved(net) as moved, pytest.raises(NotFound) as answer:
                client.get(key)
            assert moved.settled() == {net.topology.hosts[host].switch: {"read_not_found": 1}}
    assert answer.value.version == 0


def test_a_frozen_and_thawed_chain_reads_on(net):
    """In a frozen chain the head answers writes with RETRY, which the client repeats until its
    timeout; reads continue.
    """
    name, key = tools.new_key(net, b"value")
    tools.all_clean(net, name)
    with tools.frozen(net), tools.port_of(net, "h1") as port, tools.client(net, "h2") as client:
        tools.from_host(net, "h1", tools.request(net, "h1", Packet(Op.WRITE, key, value=b"no")))
        reply, _ = tools.answer(net, port)
        assert (reply.op, reply.status) == (Op.WRITE_REPLY, 3)
        assert client.get(key).value == b"value"
    with tools.client(net, "h1") as client:
        client.put(key, b"after")
        assert client.get(key).value == b"after"
