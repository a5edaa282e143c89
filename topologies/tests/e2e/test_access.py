# SPDX-License-Identifier: Apache-2.0
"""Access control in a network with tenants: shop (h1, h4), bank (h2, h6), h3, which only reads, and
h5, which is closed.
"""

import itertools
import json
import sys
from dataclasses import replace

import pytest
from netcraq.admin import AdminError
from netcraq.client import Denied, NotFound, Timeout
from netcraq.wire import Flags, Op, Packet, Status

from topologies import p4app
from topologies.network import wait_until
from topologies.tests.e2e import frames, tools
from topologies.tests.e2e.tools import Moved

KEYS = {"shop": "/shop/", "bank": "/bank/", "bank's, by the longer prefix": "/shop/payments/", "nobody's": "/other/"}


@pytest.fixture(scope="module")
def net(tenants):
    return tenants


@pytest.fixture(scope="module")
def keys(net):
    """Place a key of each kind; return its name and KEY_ID."""
    return {whose: tools.new_key(net, whose.encode()[:16], prefix) for whose, prefix in KEYS.items()}


def ask(net, host, packet, target="service"):
    """Return the answer to one packet of a host."""
    with tools.port_of(net, host) as port:
        frames.send(net, host, [frames.packet(net, packet, host, target)])
        return tools.answer(net, port)[0]


@pytest.mark.parametrize(
    ("host", "whose"),
    [("h1", "shop"), ("h4", "shop"), ("h2", "bank"), ("h6", "bank"), ("h2", "bank's, by the longer prefix")],
)
def test_a_tenant_does_everything_with_its_own_keys_from_each_of_its_hosts(net, keys, host, whose):
    name, key = keys[whose]
    with tools.client(net, host) as client:
        written = client.put(key, b"put")
        assert client.get(key).value == b"put"
        tools.all_clean(net, name)
        swapped = client.cas(key, written.version, b"swapped")
        tools.all_clean(net, name)
        assert client.get(key).version == swapped.version
        client.delete(key)
        with pytest.raises(NotFound):
            client.get(key)
        client.put(key, whose.encode()[:16])


STRANGERS = [
    ("h1", "bank"),
    ("h1", "bank's, by the longer prefix"),
    ("h1", "nobody's"),
    ("h2", "shop"),
    ("h2", "nobody's"),
    ("h4", "bank"),
    ("h6", "shop"),
]


@pytest.mark.parametrize(("host", "whose"), STRANGERS)
def test_a_tenant_does_nothing_with_the_keys_of_another(net, keys, host, whose):
    name, key = keys[whose]
    version = tools.all_clean(net, name)
    with tools.client(net, host) as client, Moved(net) as moved:
        for what in (
            client.get,
            lambda key: client.get(key, eventual=True),
            lambda key: client.put(key, b"mine"),
            client.delete,
        ):
            with pytest.raises(Denied):
                what(key)
        for expected in (0, version):
            with pytest.raises(Denied):
                client.cas(key, expected, b"mine")
    # After a denial clients may ask the chain's other members: each request was denied by one of
    # them, and no other event was counted.
    assert sum(events.get("denied", 0) for events in moved.settled().values()) >= 6
    assert not any(moved.slots.values())
    assert tools.all_clean(net, name) == version


@pytest.mark.parametrize("member", ["service", "s1", "s2", "s3", "s4"])
def test_denied_at_every_member_and_told_nothing(net, keys, member):
    """Each member can answer a read, so each member checks the sender."""
    _, key = keys["shop"]
    for flags in (Flags(0), Flags.EVENTUAL):
        reply = ask(net, "h2", Packet(Op.READ, key, flags=flags, request=5), member)
        assert (reply.op, reply.status, reply.value, reply.version) == (Op.READ_REPLY, Status.DENIED, b"", 0)
    for op in (Op.WRITE, Op.CAS):
        reply = ask(net, "h2", Packet(op, key, request=6, value=b"mine"), member)
        assert (reply.op, reply.status, reply.version) == (op.reply, Status.DENIED, 0)
        assert reply.value in (b"", b"mine")  # its own value, and never the stored one


@pytest.mark.parametrize("whose", KEYS)
def test_a_read_only_host_reads_and_does_nothing_else(net, keys, whose):
    name, key = keys[whose]
    version = tools.all_clean(net, name)
    with tools.client(net, "h3") as client:
        assert client.get(key).value == whose.encode()[:16]
        assert client.get(key, to=frames.address(net, "s4")).version == version
        for what in (
            lambda: client.put(key, b"x"),
            lambda: client.delete(key),
            lambda: client.cas(key, version, b"x"),
            lambda: client.cas(key, 0, b"x"),
        ):
            with pytest.raises(Denied):
                what()
    assert tools.all_clean(net, name) == version


CLOSED = {
    "a read": Packet(Op.READ, 0, request=1),
    "a write": Packet(Op.WRITE, 0, request=1, value=b"x"),
    "a CAS": Packet(Op.CAS, 0, request=1, value=b"x"),
    "a write under a session": Packet(Op.WRITE, 0, session=100, request=1, value=b"x"),
    "a reply": Packet(Op.READ_REPLY, 0, version=frames.NEWER, value=b"x"),
    "an acknowledgement": Packet(Op.ACK, 0, epoch=1, version=frames.NEWER, value=b"x"),
    "a sync": Packet(Op.SYNC, 0, epoch=1, version=frames.NEWER, value=b"x"),
    "nothing": b"",
}


@pytest.mark.parametrize("what", CLOSED)
def test_a_closed_host_gets_no_answer_and_is_counted(net, keys, what):
    targets = ["service", "s1", "s4", "h1", "controller"]
    packet = CLOSED[what] and replace(CLOSED[what], key=keys["nobody's"][1])
    with tools.port_of(net, "h5") as own, tools.port_of(net, "h1") as other, Moved(net) as moved:
        for target in targets:
            frames.send(net, "h5", [frames.packet(net, packet, "h5", target)])
        assert tools.silence(own)
        assert tools.silence(other, 0.05)
    assert moved.settled() == {"s1": {"drop_closed_port": len(targets)}}


def test_a_closed_host_reaches_other_hosts(net):
    assert (
        " 0% packet loss"
        in net.execute("h5", ["ping", "-c", "2", "-i", "0.2", "-W", "2", frames.address(net, "h4")]).stdout
    )


# ---- Sessions ----


def test_sessions_are_leased_to_hosts_that_may_use_the_network(net):
    for address, words in (
        (None, "say which host's the sessions are"),
        ("10.9.9.9", "no host of this network has the address"),
        ("h1", "is not an IPv4"),
    ):
        with pytest.raises(AdminError, match=words):
            net.admin.lease_sessions(address=address)
    with pytest.raises(AdminError, match="the port of h5 is closed"):
        net.admin.lease_sessions(address=frames.address(net, "h5"))


def test_a_session_is_not_another_hosts(net, keys):
    """Neither another tenant's session, nor one of the same tenant's other host."""
    name, key = keys["shop"]
    session = tools.sessions_of(net, "h1").sessions[0]
    numbers = itertools.count(session.next_request)
    assert (
        ask(net, "h1", Packet(Op.WRITE, key, session=session.id, request=next(numbers), value=b"first")).status
        == Status.OK
    )
    thief = next(numbers)
    for host, whose in (("h2", "bank"), ("h3", "nobody's"), ("h4", "shop"), ("h6", "bank")):
        for request in (thief - 1, thief, thief + 1, thief + (1 << 20)):
            for op in (Op.WRITE, Op.CAS):
                packet = Packet(op, keys[whose][1], session=session.id, request=request, value=b"stolen")
                assert ask(net, host, packet).status == Status.BAD_SESSION, (host, packet)
    tools.all_clean(net, name)
    assert ask(net, "h1", Packet(Op.WRITE, key, session=session.id, request=thief, value=b"second")).status == Status.OK
    assert ask(net, "h1", Packet(Op.READ, key)).value == b"second"


@pytest.mark.parametrize("host", ["h1", "h2", "h4"])
def test_the_controllers_sessions_are_no_hosts(net, keys, host):
    key = keys["bank" if host == "h2" else "shop"][1]
    for session in range(1, 65):
        packet = Packet(Op.WRITE, key, session=session, request=0xFFFFFFFF, value=b"x")
        assert ask(net, host, packet).status == Status.BAD_SESSION
    for number in range(70):  # it has 64 sessions, which it uses in turn
        assert net.admin.add_key("main", f"/other/{host}/{number}", b"written by the c") > 0
    for number in range(70):
        net.admin.remove_key("main", f"/other/{host}/{number}")


def test_sessions_that_were_given_back_are_nobodys(net, keys):
    key = keys["shop"][1]
    lease = tools.sessions_of(net, "h1")
    session = lease.sessions[0]
    assert (
        ask(net, "h1", Packet(Op.WRITE, key, session=session.id, request=session.next_request, value=b"x")).status
        == Status.OK
    )
    lease.close()

    def refused():
        return (
            ask(
                net, "h1", Packet(Op.WRITE, key, session=session.id, request=session.next_request + 1, value=b"y")
            ).status
            == Status.BAD_SESSION
        )

    wait_until("the switch takes the session no more", refused)


def test_rights_change_while_the_network_runs(net, keys):
    """A new reader of a tenant, a read-only host that gains write access, a closed port that is
    opened; then the original rights again.
    """
    shop, bank = keys["shop"][1], keys["bank"][1]

    def allowed(host, packet):
        with tools.port_of(net, host) as port:
            frames.send(net, host, [frames.packet(net, packet, host, "service")])
            return not tools.silence(port) if host == "h5" else tools.answer(net, port)[0].status == Status.OK

    cases = {"h1": Packet(Op.READ, bank), "h3": Packet(Op.WRITE, shop, value=b"shop"), "h5": Packet(Op.READ, shop)}
    with tools.client(net, "h1") as client:
        client.put(shop, b"shop")
        assert not any(allowed(host, packet) for host, packet in cases.items())
        both, more = {"bank": "read"}, {"shop": "write", "bank": "read", "default": "read"}
        tools.change_hosts(
            net, h1={"access": both}, h4={"access": both}, h3={"access": more}, h5={"access": {"shop": "read"}}
        )
        try:
            for host, packet in cases.items():
                wait_until(f"{host} may", lambda host=host, packet=packet: allowed(host, packet))
        finally:
            tools.change_hosts(net)
        for host, packet in cases.items():
            wait_until(f"{host} may not", lambda host=host, packet=packet: not allowed(host, packet))
        assert client.put(shop, b"shop").version  # under its earlier session


# ---- Programs in hosts ----


def netcraqctl(net, host, *arguments):
    return net.execute(host, ["bin/netcraqctl", *arguments], check=False)


def test_the_command_line_says_what_a_host_may_not(net, keys):
    name = keys["shop"][0]
    assert netcraqctl(net, "h1", "put", name, "by hand").returncode == 0
    assert '"by hand"' in netcraqctl(net, "h3", "get", name).stdout
    for host, *command in (("h2", "get", name), ("h2", "put", name, "x"), ("h3", "put", name, "x")):
        done = netcraqctl(net, host, *command)
        assert done.returncode != 0
        assert "access denied" in done.stderr
    done = netcraqctl(net, "h5", "get", name)
    assert done.returncode != 0
    with pytest.raises(Timeout), tools.client(net, "h5", session=None, timeout=0.3) as client:
        client.get(keys["shop"][1])


def test_the_query_generator_counts_what_is_denied(net, tmp_path):
    for prefix in ("/shop/generated/", "/bank/generated/"):
        net.admin.add_keys("main", {f"{prefix}{i}": b"x" for i in range(4)})
    script = [
        sys.executable,
        str(p4app.ROOT / "experiments" / "query_generator.py"),
        "--quiet",
        "--rate",
        "400",
        "--count",
        "120",
        "--mix",
        "get=1,put=1,cas=1",
    ]
    done_or_not = {"OK", "CAS_FAILED", "RETRY"}
    for host, prefix, statuses in (
        ("h1", "/shop/", done_or_not),
        ("h2", "/shop/", {"DENIED"}),
        ("h2", "/bank/", done_or_not),
    ):
        keys = ",".join(f"{prefix}generated/{i}" for i in range(4))
        summary = tmp_path / f"{host}.json"
        done = net.execute(host, [*script, "--keys", keys, "--summary", str(summary)], check=False)
        assert done.returncode == 0, done.stderr
        said = json.loads(summary.read_text())
        assert said["replies"] > 100  # BMv2 may lose one on a busy machine, and each is sent once
        assert said["statuses"].keys() - {"LOST"} <= statuses
