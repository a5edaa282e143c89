# SPDX-License-Identifier: Apache-2.0
"""Networks start, and leave nothing behind. These tests are about processes, interfaces and
namespaces, so they use no controller and no program.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from topologies import network_namespaces, ownership, p4app
from topologies.network import Sent
from topologies.tests.conftest import processes_here, runs_here

network = pytest.importorskip("topologies.network", reason="Mininet is not installed (make deps)")

pytestmark = pytest.mark.usefixtures("private")

CHAIN_4 = p4app.load(p4app.ROOT / "topologies" / "chain-4.json")


def chain_network(tmp_path, switch, topology=CHAIN_4):
    return network.ChainNetwork(topology, switch=switch, out=tmp_path / "out", controller=False)


def interfaces():
    links = json.loads(subprocess.run(["ip", "-j", "link"], check=True, capture_output=True, text=True).stdout)
    return {link["ifname"] for link in links} - {"lo"}


def processes(run_id):
    """Return the processes with a run's id, as their command lines."""
    return [
        open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
        for pid, owner in ownership._processes()
        if owner == run_id
    ]


@pytest.fixture(autouse=True)
def nothing_left():
    """No test of this module leaves an interface, or begins with leftovers of others."""
    ownership.reap()
    yield
    assert interfaces() == set()


def test_everything_is_there_and_then_gone(tmp_path, switch):
    with chain_network(tmp_path, switch) as net:
        [run_id] = runs_here()
        assert interfaces() == set(CHAIN_4.interfaces())
        assert all(switch.alive() for switch in net.switches.values())
        assert "10.3.3.2/24" in net.execute("h3", ["ip", "-br", "address", "show", "h3-eth0"]).stdout
        assert net.execute("h3", ["ip", "route", "show", "default"]).stdout.split()[:3] == [
            "default",
            "via",
            "10.3.3.1",
        ]
        assert "02:4e:0a:00:ff:03" in net.execute("h3", ["ip", "neigh", "show", "10.3.3.1"]).stdout
        assert "tx-checksumming: off" in net.execute("h3", ["ethtool", "-k", "h3-eth0"]).stdout
        sleeper = net.spawn("h1", ["sleep", "300"])
    assert processes(run_id) == []
    assert sleeper.wait(timeout=5) == -signal.SIGKILL
    assert runs_here() == set()


def test_nobody_speaks_unless_spoken_to(tmp_path, switch):
    """No router solicitation, ARP or spanning tree frames: every packet counted later has a cause
    in the test.
    """
    with chain_network(tmp_path, switch) as net:
        time.sleep(1.5)  # the kernel's first router solicitation comes within a second
        assert net.sent() == Sent(0, 0)
        received = json.loads(
            subprocess.run(["ip", "-j", "-s", "link"], check=True, capture_output=True, text=True).stdout
        )
        assert {link["ifname"] for link in received if link["stats64"]["rx"]["packets"]} <= {"lo"}


def test_a_socket_made_inside_a_host_is_the_hosts(tmp_path, switch):
    with chain_network(tmp_path, switch) as net:
        with net.inside("h2"):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(("10.2.2.2", 0))
        with pytest.raises(OSError, match="Cannot assign"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside:
            outside.bind(("10.2.2.2", 0))
        sock.close()


def test_a_cut_loses_frames_of_one_direction(tmp_path, switch):
    with chain_network(tmp_path, switch) as net:
        frame = b"\xff" * 12 + b"\x88\xb5" + bytes(46)
        ends = {
            name: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
            for name in ("s1-eth2", "s2-eth2")
        }
        for name, end in ends.items():
            end.bind((name, 0x88B5))
            end.settimeout(0.3)

        def arrives(sender, receiver):
            ends[sender].send(frame)
            with contextlib.suppress(TimeoutError):
                return ends[receiver].recv(2048) == frame
            return False

        with net.cut("s1", "s2"):
            assert not arrives("s1-eth2", "s2-eth2")
            assert arrives("s2-eth2", "s1-eth2")
        assert arrives("s1-eth2", "s2-eth2")
        for end in ends.values():
            end.close()


def test_a_switch_can_be_killed_and_started_again(tmp_path, switch):
    with chain_network(tmp_path, switch) as net:
        net.kill_switch("s2")
        assert not net.switches["s2"].alive()
        assert "s2-eth1" in interfaces()
        net.restart_switch("s2")
        assert net.switches["s2"].alive()


def test_a_switch_that_does_not_start_is_reported_with_its_log_and_nothing_stays(tmp_path, switch):
    in_use = "TCP port 9561 on loopback, for the P4Runtime server of s3, is in use"
    with socket.create_server(("127.0.0.1", 9561)), pytest.raises(ownership.BusyError, match=in_use):
        chain_network(tmp_path, switch).start()
    if switch == "embedded":
        bad = replace(
            CHAIN_4, switches={**CHAIN_4.switches, "s2": replace(CHAIN_4.switches["s2"], args=("--no-such-option",))}
        )
        with pytest.raises(
            network.NodeError, match=r"switch s2 ended with status 2; the end of .*s2\.log:\n.*\n.*no-such-option"
        ):
            chain_network(tmp_path, switch, bad).start()


def test_another_controller_is_not_taken_for_its_own(tmp_path, switch, monkeypatch):
    """A controller that already answers at the socket would be used, because the network's own ends
    only later.
    """
    path = tmp_path / "controller.sock"
    monkeypatch.setattr(network, "socket_for", lambda run: f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        theirs.listen()
        with pytest.raises(ownership.BusyError, match=r"a program serves .*/controller\.sock already"):
            network.ChainNetwork(CHAIN_4, switch=switch, out=tmp_path / "out").start()
    assert interfaces() == set()


def test_without_root_it_says_so_and_makes_nothing(tmp_path, switch, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(network.NodeError, match="a network needs root"):
        chain_network(tmp_path, switch).start()
    assert not (tmp_path / "out").exists()


def test_a_second_network_is_refused_while_one_is_up(tmp_path, switch):
    with (
        chain_network(tmp_path, switch),
        pytest.raises(ownership.BusyError, match=rf"up already: .*chain-4\.json, process {os.getpid()}"),
    ):
        chain_network(tmp_path / "2", switch).start()


def test_interfaces_of_others_are_left_alone(tmp_path, switch):
    subprocess.run(["ip", "link", "add", "name", "s1-eth1", "type", "veth", "peer", "name", "other"], check=True)
    try:
        with pytest.raises(ownership.BusyError, match="s1-eth1: interfaces of these names exist and are not NetCRAQ's"):
            chain_network(tmp_path, switch).start()
        assert {"s1-eth1", "other"} <= interfaces()
    finally:
        subprocess.run(["ip", "link", "delete", "other"], check=True)


def test_a_cable_that_a_signal_left_half_made_goes_with_its_run():
    """The interface exists without its alias, because its command was killed in between. Another
    run's interfaces stay.
    """
    run = ownership.claim([])
    theirs = "nq0000000010"
    for name, peer in ((run.temporary_name(0), run.temporary_name(1)), (theirs, "nq0000000011")):
        subprocess.run(["ip", "link", "add", "name", name, "type", "veth", "peer", "name", peer], check=True)
    try:
        run.sweep()
        assert interfaces() == {theirs, "nq0000000011"}
    finally:
        run.release()
        subprocess.run(["ip", "link", "delete", theirs], check=True)


SCRIPT = """
import sys
from pathlib import Path
from topologies import network, p4app
net = network.ChainNetwork(p4app.load("topologies/chain-4.json"), switch=sys.argv[1], out=Path(sys.argv[2]), controller=False)
net.start()
net.hosts["h1"].cmd("setsid sleep 300 >/dev/null 2>&1 &")
print("ready", flush=True)
input()
"""


@pytest.mark.parametrize("moment", [0.1, 0.2, 0.3, 0.4, "up"])
def test_after_a_kill_the_next_start_cleans_up_and_works(tmp_path, switch, moment):
    """Killed at any moment of its start, or when it runs."""
    victim = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, switch, str(tmp_path / "victim")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=p4app.ROOT,
    )
    if moment == "up":
        assert victim.stdout.readline() == "ready\n"
        [run_id] = runs_here()
        network.wait_until("the command in h1 runs", lambda: "sleep 300" in " ".join(processes(run_id)))
    else:
        time.sleep(moment)
    victim.kill()
    victim.communicate()
    with chain_network(tmp_path, switch) as net:
        [mine] = runs_here()
        assert all(switch.alive() for switch in net.switches.values())
        if moment == "up":
            assert processes(run_id) == []
        assert {run_id for _, run_id in processes_here()} == {mine}
    assert runs_here() == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_launcher_takes_everything_down_on_a_signal(tmp_path, switch, number):
    """The launcher notices the missing controller only after the switches have started. A signal
    may come at any time; here: while it waits.
    """
    code = f"""
import sys
from pathlib import Path
from topologies import launch, network, p4app
launch.end_on_signals()
with network.ChainNetwork(p4app.load("topologies/chain-4.json"), switch="{switch}", out=Path("{tmp_path}/out"), controller=False):
    print("ready", flush=True)
    launch.wait_for_signal()
"""
    # Under nohup these tests ignore SIGHUP, and their child processes would ignore it, too.
    command = ["env", f"--default-signal={number.name.removeprefix('SIG')}", sys.executable, "-c", code]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=p4app.ROOT)
    try:
        assert launcher.stdout.readline() == "ready\n"
        [run_id] = runs_here()
        launcher.send_signal(number)
        launcher.communicate(timeout=20)
    finally:
        launcher.kill()
    assert interfaces() == set()
    assert processes(run_id) == []
    assert runs_here() == set()


def test_a_namespace_of_its_own_ends_with_the_block():
    outside = network_namespaces.identity()
    with network_namespaces.private():
        assert network_namespaces.identity() != outside
        assert interfaces() == set()
    assert network_namespaces.identity() == outside
