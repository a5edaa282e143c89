# SPDX-License-Identifier: Apache-2.0
"""Attacks of hosts on others' keys, sessions and answers. Each attack has its own section, and none
succeeds.

The attacker is h2, a tenant with its own access, or h5, which has no access. The victims are the
tenant shop's hosts h1 and h4, and h3, which reads.
"""

import collections
import itertools
import os
import random
import socket
import threading
from dataclasses import replace

import pytest
from netcraq import wire
from netcraq.client import Client
from netcraq.wire import Flags, Op, Packet, Status
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from topologies.network import wait_until
from topologies.tests.e2e import frames, tools
from topologies.tests.e2e.frames import FORGED, FORGED_REPLIES, NEWER, address, packet, send
from topologies.tests.e2e.tools import Capture, Moved

SECRET = b"shop's secret"
SESSIONS = range(1, 4096)
"""All sessions of which the program has records."""


@pytest.fixture(scope="module")
def net(tenants):
    return tenants


class Victim:
    """A key of the tenant shop, which no other tenant may use."""

    def __init__(self, net):
        self.net = net
        self.name, self.key = tools.new_key(net, SECRET, "/shop/")
        self.version = tools.all_clean(net, self.name)

    def unharmed(self):
        """Check that every member holds the original value, and hosts with read access read it."""
        assert tools.all_clean(self.net, self.name) == self.version
        for host in ("h1", "h3", "h4"):
            with tools.client(self.net, host, session=None) as client:
                assert client.get(self.key).value == SECRET


@pytest.fixture(scope="module")
def victim(net):
    return Victim(net)


def wait_for_events(net, before, count, *names):
    """Wait until switches have counted this many events of these names since ``before``."""

    def counted():
        return (
            sum(
                net.counters(switch).event(name) - before[switch].event(name)
                for switch in net.topology.switches
                for name in names
            )
            >= count
        )

    wait_until(f"{count:.0f} events {', '.join(names)}", counted, timeout=30)


# ---- Any pod reads and rewrites every placed etcd key with a plain UDP socket. KEY_IDs count up
# from one. ----


def test_a_plain_udp_socket_reads_and_rewrites_no_key_whose_key_id_it_guesses(net, victim):
    for number in range(8):
        tools.new_key(net, SECRET, "/shop/")
        tools.new_key(net, b"mine", "/bank/")
        tools.new_key(net, SECRET, f"/other/{number}/")
    placed = {key: name for name, key in net.admin.keys().items()}
    before = {name: net.admin.key_states(name) for name in placed.values() if not name.startswith("/bank/")}
    guesses = range(min(placed), max(placed) + 16)
    assert set(placed) <= set(guesses)
    service = (tools.service(net), wire.PORT)
    seen = {}
    with net.inside("h2"):
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with plain:
        plain.settimeout(2)
        requests = [
            request
            for key in guesses
            for request in (
                Packet(Op.READ, key, request=key),
                Packet(Op.READ, key, request=key, flags=Flags.EVENTUAL),
                Packet(Op.WRITE, key, request=key, value=b"mallory"),
                Packet(Op.CAS, key, request=key, version=0, value=b"mallory"),
            )
        ]
        for request in requests:
            plain.sendto(request.encode(net.topology.profile), service)
            data = plain.recv(4096)
            reply = Packet.decode(data, net.topology.profile)
            assert (reply.op, reply.key) == (request.op.reply, request.key)
            assert b"secret" not in data
            seen.setdefault(placed.get(request.key, "/none/").split("/")[1], set()).add(reply.status)
    assert seen["shop"] == seen["other"] == {Status.DENIED}
    assert seen["none"] == {Status.NOT_FOUND}
    assert Status.DENIED not in seen["bank"]  # its own
    assert {name: net.admin.key_states(name) for name in before} == before
    victim.unharmed()


# ---- A pod forges fabric packets: behind tags, in tunnels, in fragments, behind options, with
# others' addresses. ----


def behind(types):
    """Return a function that puts tags before a packet."""
    return lambda net, whole: [frames.tagged(types, whole)]


DISGUISES = {
    "as it is": lambda net, whole: [whole],
    "behind IP options": lambda net, whole: [IP(src=whole.src, dst=whole.dst, options=frames.options()) / whole[UDP]],
    "behind the most IP options": lambda net, whole: [
        IP(src=whole.src, dst=whole.dst, options=frames.options(10)) / whole[UDP]
    ],
    "in fragments": frames.fragments,
    "in one fragment, which is the first": lambda net, whole: [
        IP(src=whole.src, dst=whole.dst, flags="MF") / whole[UDP]
    ],
    **{f"behind {name}": behind(types) for name, types in frames.TAGS.items()},
}
SOURCES = ["h2", "s4", "service", "h1"]
"""The attacker's own address (for h5 its own), a switch's, the service address, and the victim's.
"""


def forged(net, key, source):
    """Yield all packets that only a switch or the controller may send, to every node that might
    believe them.
    """
    epoch = net.admin.chain("main")["epoch"]
    for what, forgery in (FORGED | FORGED_REPLIES).items():
        targets = (
            ["service", "s1", "s4", "h3", "controller"]
            if what in FORGED
            else ["h1", "h3", "s1", "service", "controller"]
        )
        for target in targets:
            yield packet(net, replace(forgery, key=key, epoch=epoch), source, target)


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("host", ["h2", "h5"])
def test_a_host_forges_no_fabric_packets(net, victim, host, disguise):
    """Neither acknowledgements nor stamped writes, replies or the controller's packets: the host's
    own port drops and counts each.
    """
    expected = collections.Counter()
    made = []
    for source in [host if source == "h2" else source for source in SOURCES]:
        of_source = [frame for whole in forged(net, victim.key, source) for frame in DISGUISES[disguise](net, whole)]
        event = "drop_closed_port" if host == "h5" else "drop_untrusted" if source == host else "drop_source"
        if "IP options" in disguise or "fragment" in disguise:
            event = "drop_not_plain"
        elif "tag" in disguise:
            event = "drop_not_ipv4"
        expected[event] += len(of_source)
        made += of_source
    switch = net.topology.hosts[host].switch
    with tools.port_of(net, "h1") as ear, Capture(net) as capture, Moved(net) as moved:
        send(net, host, made, pause=0.01)
        assert tools.silence(ear)
    assert moved.settled() == {switch: expected}
    assert not any(moved.slots.values())
    assert {(seen.sender, seen.receiver) for seen in capture.packets} <= {(host, switch)}
    victim.unharmed()


@pytest.mark.parametrize("tags", frames.TAGS)
def test_what_a_host_may_send_it_sends_without_tags(net, tags):
    """A request behind tags is dropped, even from a host with every right."""
    name, key = tools.new_key(net, SECRET, "/shop/")
    tools.all_clean(net, name)
    request = packet(net, Packet(Op.WRITE, key, request=3, value=b"tagged"), "h1", "service")
    with tools.port_of(net, "h1") as port, Moved(net) as moved:
        send(net, "h1", [frames.tagged(frames.TAGS[tags], request)])
        assert tools.silence(port)
    assert moved.settled() == {"s1": {"drop_not_ipv4": 1}}


@pytest.mark.parametrize("tags", [(), (0x8100,), (0x8100, 0x8100)])
def test_a_tunnels_packet_is_no_fabric_packet(net, victim, tags):
    """VXLAN to the tunnel port of switches in Kubernetes, with an acknowledgement or a reply
    inside.
    """
    insides = [Packet(op, victim.key, epoch=1, version=NEWER, value=b"forged") for op in (Op.ACK, Op.READ_REPLY)]
    for inside, target in itertools.product(insides, ("s1", "s4", "service", "h1")):
        inner = Ether(dst=net.topology.switches["s1"].mac, src=net.topology.switches["s2"].mac) / packet(
            net, inside, "s2", "s1"
        )
        outer = (
            IP(src=address(net, "h2"), dst=address(net, target))
            / UDP(sport=5000, dport=20037, chksum=0)
            / VXLAN(vni=1)
            / inner
        )
        with tools.port_of(net, "h1") as ear:
            send(net, "h2", [frames.tagged(tags, outer) if tags else outer])
            assert tools.silence(ear, 0.05)
    victim.unharmed()


# ---- A few thousand UDP packets end all writes of a chain for good. ----


def test_a_few_thousand_packets_end_nobodys_writes(net):
    """Send a write with every session and the last request number, also with the controller's
    sessions. A restored switch copies nothing of it.
    """
    victim = Victim(net)
    _, own = tools.new_key(net, b"mine", "/bank/")
    lease = tools.sessions_of(net, "h1")
    held = lease.sessions[0]
    _, key = tools.new_key(net, b"x", "/shop/")
    before = net.all_counters()
    with tools.port_of(net, "h2"), tools.port_of(net, "h5"):
        poison = [Packet(Op.WRITE, own, session=session, request=0xFFFFFFFF, value=b"poison") for session in SESSIONS]
        sent = send(net, "h2", (packet(net, p, "h2", "service") for p in poison), pause=0.02, burst=32)
        wait_for_events(net, before, 0.95 * sent, "bad_session")  # BMv2 may lose some on a busy machine
        assert lease.keep()
        send(net, "h5", (packet(net, p, "h5", "service") for p in poison), pause=0.02, burst=32)
        wait_for_events(net, before, 0.95 * sent, "drop_closed_port")

    def everybody_writes(value):
        for host, name in (("h1", victim.name), ("h4", victim.name), ("h2", None)):
            with tools.client(net, host) as client:  # under a new session
                client.put(victim.key if name else own, value)
            assert lease.keep()
        reply = ask(net, "h1", Packet(Op.WRITE, key, session=held.id, request=held.next_request, value=value))
        held.next_request += 1
        assert reply.status == Status.OK  # under the session that was held all the time
        for number in range(70):  # all of the controller's own sessions
            net.admin.add_key("main", f"/other/poison/{value.decode()}/{number}", b"written")
            lease.keep()

    everybody_writes(b"after")
    tools.all_clean(net, victim.name)
    net.execute("h1", ["bin/netcraqctl", "chain", "fail", "s4"])
    wait_until("the chain goes on without s4", lambda: len(net.admin.chain("main")["members"]) == 3)
    assert lease.keep()
    net.admin.recover("main", "s4")
    everybody_writes(b"after recovery")


def ask(net, host, request):
    """Return the answer to one packet of a host."""
    with tools.port_of(net, host) as port:
        send(net, host, [packet(net, request, host, "service")])
        return tools.answer(net, port)[0]


def test_a_holder_does_not_end_its_own_session_by_a_slip(net):
    """A request number far above the recorded one is refused; the next one is accepted."""
    _, own = tools.new_key(net, b"mine", "/bank/")
    session = tools.sessions_of(net, "h2").sessions[0]
    assert (
        ask(net, "h2", Packet(Op.WRITE, own, session=session.id, request=session.next_request, value=b"1")).status
        == Status.OK
    )
    far = (session.next_request + wire.REQUEST_WINDOW + 1) & 0xFFFFFFFF
    assert (
        ask(net, "h2", Packet(Op.WRITE, own, session=session.id, request=far, value=b"2")).status == Status.BAD_SESSION
    )
    assert (
        ask(net, "h2", Packet(Op.WRITE, own, session=session.id, request=session.next_request + 1, value=b"3")).status
        == Status.OK
    )


# ---- An acknowledged write is somebody else's: sessions and first request numbers can be foretold.
# ----


def test_an_acknowledged_write_is_the_writers_own(net, victim):
    """A host may send the next numbers of another host's session first, for its own key or another.
    Its value is not stored, and the victim's write does not count as a retry.
    """
    _, own = tools.new_key(net, b"mine", "/bank/")
    name, key = tools.new_key(net, b"x", "/shop/")
    lease = tools.sessions_of(net, "h1")
    session = lease.sessions[0]
    with tools.port_of(net, "h2"):
        ahead = [
            packet(
                net,
                Packet(Op.WRITE, target, session=session.id, request=session.next_request + number, value=b"mallory"),
                host,
                "service",
            )
            for number in range(32)
            for target in (own, key)
            for host in ("h2", "h1")
        ]
        send(net, "h2", ahead, pause=0.01)
    with tools.client(net, "h1", session=lease) as client:
        for number in range(40):
            value = b"alice %d" % number
            version = client.put(key, value).version
            result = client.get(key)
            assert (result.value, result.version) == (value, version)
    tools.all_clean(net, name)
    victim.unharmed()


def test_first_request_numbers_cannot_be_foretold(net):
    leases = [tools.sessions_of(net, "h1") for _ in range(8)]
    first = [lease.sessions[0].next_request for lease in leases]
    assert all(abs(a - b) > 1000 for a, b in itertools.combinations(first, 2))  # fails by chance once in 80,000 runs
    again = leases[0].sessions[0].id
    for lease in leases:
        lease.close()
    numbers = {}
    for _ in range(3):  # the same sessions, leased again
        lease = tools.sessions_of(net, "h1")
        numbers.setdefault(lease.sessions[0].id, []).append(lease.sessions[0].next_request)
        lease.close()
    assert again not in numbers or abs(numbers[again][0] - first[0]) > 1000


# ---- Replies are forged by fragments and by IP options where the program owns its ports. ----


def options_that_arrive(net, whole, hops=2):
    """Return the packet behind IP options, with a checksum that is right after ``hops`` switches
    have decremented the time to live without checking it.
    """
    late = bytearray(bytes(IP(src=whole.src, dst=whole.dst, ttl=64 - hops, options=frames.options()) / whole[UDP]))
    late[8] = 64
    return [b"\x08\x00" + bytes(late)]


REPLIES = {name: DISGUISES[name] for name in ("as it is", "in fragments", "behind IP options")} | {
    "behind IP options that arrive": options_that_arrive
}


@pytest.mark.parametrize("disguise", REPLIES)
@pytest.mark.parametrize("source", ["h2", "s1", "service"])
def test_a_waiting_client_is_told_nothing_by_another_host(net, victim, disguise, source):
    """The attacker knows the request's number and the client's port, and answers first, but the
    client accepts only the chain's answer.
    """
    with net.inside("h1"):
        client = Client([tools.service(net)], session=None, timeout=2)
    with client:
        port = client._socket.getsockname()[1]
        replies = []
        for ahead in range(1, 9):
            number = (client._number + ahead) & 0xFFFFFFFF
            lie = Packet(Op.READ_REPLY, victim.key, request=number, version=NEWER, epoch=1, value=b"forged")
            replies += REPLIES[disguise](net, packet(net, lie, source, "h1", dport=port))
        for _ in range(8):
            send(net, "h2", replies)
            assert client.get(victim.key).value == SECRET
        assert client.foreign == 0
    victim.unharmed()


def test_packets_with_options_leave_with_a_right_checksum(net):
    """Packets of other protocols, which hosts may send: the receiver's kernel drops wrong
    checksums.
    """
    with net.inside("h4"):
        ear = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with ear:
        ear.settimeout(2)
        for words in range(11):
            ping = (
                IP(src=address(net, "h1"), dst=address(net, "h4"), options=frames.options(words))
                / ICMP(id=77, seq=words)
                / Raw(b"options")
            )
            send(net, "h1", [ping])
            while True:
                heard = IP(ear.recv(2000))
                if heard[ICMP].type == 8 and (heard[ICMP].id, heard[ICMP].seq) == (77, words):
                    break
            assert heard.ihl == 5 + words
            assert heard.ttl == 64 - 4


# ---- A host that has sent no request gets no answer. ----


@pytest.mark.parametrize(
    "source",
    ["h1", "h4", "h5", "s1", "s2", "service", "controller", "10.99.9.9", "0.0.0.0", "255.255.255.255", "127.0.0.1"],
)
def test_nobody_is_made_to_be_answered(net, victim, source):
    name, own = tools.new_key(net, b"mine", "/bank/")
    tools.all_clean(net, name)
    with tools.port_of(net, "h1") as one, tools.port_of(net, "h4") as two, Moved(net) as moved, Capture(net) as capture:
        requests = [
            Packet(Op.READ, own),
            Packet(Op.READ, victim.key),
            Packet(Op.WRITE, own, value=b"x"),
            Packet(Op.CAS, own, value=b"x"),
        ]
        made = [
            packet(net, request, source, target) for request in requests for target in ("service", "s1", "s2", "s4")
        ]
        send(net, "h2", made)
        assert tools.silence(one)
        assert tools.silence(two, 0.05)
    assert moved.settled() == {"s2": {"drop_source": len(made)}}
    assert {(seen.sender, seen.receiver) for seen in capture.packets} == {("h2", "s2")}
    victim.unharmed()


# ---- Any host could delay the controller's work by sending it packets. ----


@pytest.mark.parametrize("host", ["h2", "h3", "h5"])
def test_a_host_tells_the_controller_nothing(net, victim, host):
    ends = {"src": address(net, host), "dst": address(net, "controller")}
    plain = [
        IP(**ends) / UDP(sport=5000, dport=53, chksum=0) / Raw(b"x"),
        IP(**ends) / ICMP() / Raw(b"x"),
        IP(**ends, proto=6) / Raw(b"x" * 20),
    ]
    requests = [
        packet(net, Packet(op, victim.key, value=b"x"), host, "controller") for op in (Op.READ, Op.WRITE, Op.CAS)
    ]
    switch = net.topology.hosts[host].switch
    with Moved(net) as moved:
        send(net, host, plain + requests)
        wait_for_events(net, moved._before, len(plain), "drop_untrusted")
    expected = {"drop_untrusted": 3, "drop_closed_port": 3} if host == "h5" else {"drop_untrusted": 6}
    assert moved.settled() == {switch: expected}
    victim.unharmed()


# ---- Whatever a host sends. ----


def mutated(net, rng, key, bank, host, session):
    """Return frames, right and nearly right: with wrong bits in all fields that a switch checks."""
    sources = [host, host, host, "h1", "h3", "s1", "s4", "service", "controller"]
    targets = ["service", "s1", "s2", "s3", "s4", "h1", "h3", "h4", "controller"]
    payloads = [
        *(replace(forgery, key=key) for forgery in [*FORGED.values(), *FORGED_REPLIES.values()]),
        *(Packet(op, of, value=b"random", session=of_session, request=session.next_request) for op in (Op.READ, Op.WRITE, Op.CAS)
          for of in (key, bank) for of_session in (0, session.id, 1)),
    ]  # fmt: skip
    bases = []
    for payload in payloads:
        for source, target in itertools.product(sources, targets):
            whole = packet(net, payload, source, target)
            bases.append(b"\x08\x00" + bytes(whole))
            if rng.random() < 0.1:
                bases += [b"\x08\x00" + bytes(part) for part in frames.fragments(net, whole)]
                bases.append(
                    b"\x08\x00"
                    + bytes(IP(src=whole.src, dst=whole.dst, options=frames.options(rng.randrange(1, 11))) / whole[UDP])
                )
                bases.append(frames.tagged(rng.choice(list(frames.TAGS.values())), whole))
    while True:
        frame = bytearray(rng.choice(bases))
        for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
            frame[rng.randrange(len(frame))] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
        if rng.random() < 0.1:
            del frame[rng.randrange(2, len(frame)) :]
        if rng.random() < 0.05:
            frame += rng.randbytes(rng.randrange(1, 600))
        ihl = 4 * (frame[2] & 15) if len(frame) > 2 else 0
        if frame[:2] == b"\x08\x00" and 20 <= ihl <= len(frame) - 2 and rng.random() < 0.9:
            frame[12:14] = b"\0\0"
            frame[12:14] = tools.checksum(bytes(frame[2 : 2 + ihl])).to_bytes(2, "big")
        yield bytes(frame)


@pytest.mark.parametrize("host", ["h5", "h2"])
def test_random_frames_change_nothing_of_others_and_cost_them_no_answer(net, victim, host):
    """Send NETCRAQ_HOSTILE_FRAMES frames (default 3,000) from a host without access and from one
    with access to one realm.
    """
    count = int(os.environ.get("NETCRAQ_HOSTILE_FRAMES", "3000"))
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"\n{count} frames of {host}, seed {seed}", end=" ")
    lease = tools.sessions_of(net, "h1")
    name, key = tools.new_key(net, b"0", "/shop/")
    _, bank = tools.new_key(net, b"mine", "/bank/")
    others_keys = [of for of in net.admin.keys("") if of != name and not of.startswith("/bank/")]
    before = {of: net.admin.key_states(of) for of in others_keys}
    over, read, wrong = threading.Event(), [0], []

    def others():
        with tools.client(net, "h3", session=None) as reader:
            while not over.is_set():
                try:
                    if reader.get(victim.key).value != SECRET:
                        wrong.append("another value")
                except Exception as error:
                    wrong.append(error)
                read[0] += 1

    thread = threading.Thread(target=others)
    thread.start()
    try:
        frames_ = itertools.islice(mutated(net, random.Random(seed), victim.key, bank, host, lease.sessions[0]), count)
        with tools.client(net, "h1", session=lease) as writer:
            for number in range(1, 21):
                send(net, host, itertools.islice(frames_, count // 20), pause=0.005, burst=32)
                assert writer.put(key, b"%d" % number).version
                assert writer.get(key).value == b"%d" % number
    finally:
        over.set()
        thread.join()
    assert not wrong, f"seed {seed}"
    assert read[0] > 20
    tools.all_clean(net, name)
    assert {of: net.admin.key_states(of) for of in before} == before, f"seed {seed}"
    victim.unharmed()
