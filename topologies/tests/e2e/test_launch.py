# SPDX-License-Identifier: Apache-2.0
"""The launcher, from its command line to its end in any way."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from netcraq.admin import AdminError
from netcraq.client import Client

from topologies import network_namespaces, p4app
from topologies.controller import Operator
from topologies.tests.conftest import processes_here, runs_here

LAUNCH = str(p4app.ROOT / "topologies" / "launch.py")


def run(*arguments, **options):
    """Run the launcher to its end."""
    return subprocess.run(
        [sys.executable, LAUNCH, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=p4app.ROOT,
        **options,
    )


class Launched:
    """A running launcher."""

    processes: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, switch, out, *arguments):
        command = [sys.executable, LAUNCH, "--switch", switch, "--out", str(out), "--no-cli", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=p4app.ROOT
        )
        self.processes.append(self.process)
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("ready:"):
                self.admin = Operator(json.loads(line.removeprefix("ready:"))["admin"])
                return
        pytest.fail("the launcher ended: " + "".join(self.said))

    def end(self, number):
        """Send a signal, wait, and return the exit status."""
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture(autouse=True)
def ended():
    """A failed test leaves no launcher, which would block all other tests."""
    yield
    while Launched.processes:
        process = Launched.processes.pop()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def serves(admin):
    try:
        admin.ready()
    except AdminError:
        return False
    return True


def interfaces():
    links = json.loads(subprocess.run(["ip", "-j", "link"], check=True, capture_output=True, text=True).stdout)
    return {link["ifname"] for link in links} - {"lo"}


def test_check_says_what_a_file_describes():
    done = run("topologies/leaf-spine.json", "--check")
    assert done.returncode == 0
    assert (
        "chain main (1): leaf1 → leaf2 → spine12 → leaf3; service address 10.0.100.1, values of 16 bytes, lease 200 ms"
        in done.stdout
    )
    assert (
        "  leaf4: 10.0.255.4, P4Runtime 127.0.0.1:9562, ports 1→h4 2→h5 11→spine11 12→spine12, hosts h4 (10.0.4.4), h5 (10.0.4.5)"
        in done.stdout
    )


def test_check_says_who_may_do_what(tmp_path):
    said = run("topologies/chain-4.json", "--check").stdout.splitlines()
    assert (
        said[-1]
        == "every host may read and write every key: topologies/chain-4.json says no access; see docs/security.md"
    )
    assert not any("access is restricted" in line for line in said)

    said = run("topologies/tenants.json", "--check").stdout.splitlines()
    assert said[-2:] == [
        "access is restricted: shop (h1, h4) may read and write shop; bank (h2, h6) may read and write bank; "
        "audit (h3) may read shop, bank, default; h5 is closed",
        "NetCRAQ packets a second that hosts may send: h1 50,000, h2 50,000, h3 50,000, h4 50,000, h5 50,000, h6 1,000",
    ]

    mixed = p4app.line(4)
    mixed["topology"]["hosts"] |= {"h1": {"access": {"default": "write"}, "rate": 5}, "h2": {"principal": "p"}}
    file = tmp_path / "mixed.json"
    file.write_text(json.dumps(mixed | {"program": str(p4app.ROOT / "p4src" / "netcraq.p4")}))
    assert run(str(file), "--check").stdout.splitlines()[-3:] == [
        f"h3, h4 may read and write every key: {file} says no access for h3, h4; see docs/security.md",
        "access is restricted: h1 may read and write default; p (h2) may touch no key",
        "NetCRAQ packets a second that hosts may send: h1 5, h2 no bound, h3 no bound, h4 no bound",
    ]


def test_a_bad_file_is_refused_before_anything_is_made(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"topology": {"links": [["h1", "s1"]], "hosts": {"h1": {}}, "switches": {"s1": {}, "s2": {}}}}')
    done = run(str(bad))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f'{bad}: topology.switches.s2: has no link: add ["s2", "a node"] to topology.links\n'


@pytest.mark.parametrize(
    "arguments", [("--nodes", "9"), ("--profile", "64"), ("--nodes", "3", "topologies/chain-4.json")]
)
def test_a_bad_command_line_is_refused(arguments):
    assert run(*arguments).returncode == 2


def test_killed_with_9_it_leaves_nothing_after_the_next_start(switch, private, tmp_path):
    first = Launched(switch, tmp_path / "1")
    key = first.admin.add_key("main", "/a", b"1")
    first.end(signal.SIGKILL)

    # fewer switches: the first run's additional ones must be gone, too
    second = Launched(switch, tmp_path / "2", "--nodes", "2")
    assert interfaces() == {"s1-eth1", "s1-eth2", "s2-eth1", "s2-eth2"}
    assert {run_id for _, run_id in processes_here()} == runs_here()
    assert second.admin.keys() == {}
    assert second.admin.add_key("main", "/a", b"2") == key
    assert second.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert interfaces() == set()
    assert processes_here() == []


def test_a_second_launcher_is_refused_and_does_no_harm_to_the_first(switch, private, tmp_path):
    from topologies.network import wait_until

    first = Launched(switch, tmp_path / "1")
    first.admin.add_key("main", "/a", b"1")
    done = run("--switch", switch, "--no-cli", "--out", str(tmp_path / "2"))
    assert done.returncode == 1
    assert (
        f"a NetCRAQ network is up already: {p4app.ROOT}/topologies/chain-4.json, process {first.process.pid}. End it first"
        in done.stderr
    )
    # a lease of 200 ms may expire when the second starts, and is renewed at once
    wait_until("the first serves", lambda: serves(first.admin))
    assert list(first.admin.keys()) == ["/a"]
    assert first.end(signal.SIGINT) == 130


def test_two_networks_in_two_namespaces_have_controllers_of_their_own(switch, private, tmp_path):
    first = Launched(switch, tmp_path / "1")
    with network_namespaces.private():
        second = Launched(switch, tmp_path / "2", "--nodes", "2")
        assert first.admin.url != second.admin.url
        first.admin.add_key("main", "/first", b"1")
        second.admin.add_key("main", "/second", b"2")
        assert (list(first.admin.keys()), list(second.admin.keys())) == (["/first"], ["/second"])
        for launched in (second, first):
            path = Path(launched.admin.url.removeprefix("unix://"))
            assert path.stat().st_mode & 0o777 == 0o660
            assert launched.end(signal.SIGTERM) == 128 + signal.SIGTERM
            assert list(path.parent.glob(f"{path.stem}.*")) == []


def test_who_has_no_token_asks_the_controller_in_vain(switch, private, tmp_path):
    launched = Launched(switch, tmp_path)
    nobody = Operator("127.0.0.1:20036")
    with pytest.raises(AdminError, match="asks for a token") as refused:
        nobody.add_key("main", "/a", b"1")
    assert refused.value.code == "unauthenticated"
    assert launched.admin.keys() == {}
    assert Operator("127.0.0.1:20036", token_file="/run/netcraq-admin/token").keys() == {}
    assert launched.end(signal.SIGTERM) == 128 + signal.SIGTERM


@pytest.mark.parametrize("seconds", [0.3, 0.6, 1.0])
def test_a_signal_while_it_comes_up_takes_down_what_there_is(switch, private, tmp_path, seconds):
    command = [sys.executable, LAUNCH, "--switch", switch, "--out", str(tmp_path), "--no-cli"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=p4app.ROOT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    # the latter before Python has set the handler
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM), said
    assert interfaces() == set()
    assert processes_here() == []


def test_the_prompt_runs_commands_in_hosts(switch, private, tmp_path):
    commands = """\
h1 bin/netcraqctl chain show
h1 bin/netcraqctl chain add-key /prompt on
h3 bin/netcraqctl get /prompt
h4 bin/netcraqctl put /prompt off
h2 bin/netcraqctl get /prompt
h1 ping -c 1 h4
"""
    done = run("--switch", switch, "--cli", "--out", str(tmp_path), input=commands)
    assert done.returncode == 0
    said = done.stdout + done.stderr
    for words in ("epoch 1, service address 10.0.100.1", '"on"', '"off"', " 0% packet loss"):
        assert words in said
    assert interfaces() == set()


@pytest.mark.parametrize("file", ["chain-2", "chain-8", "leaf-spine"])
def test_every_shipped_file_comes_up_and_serves(switch, private, tmp_path, file):
    from topologies.network import ChainNetwork, wait_until

    topology = p4app.load(p4app.ROOT / "topologies" / f"{file}.json")
    with ChainNetwork(topology, switch=switch, out=tmp_path) as net:
        check_everyone_reads_what_everyone_writes(net, wait_until)


@pytest.mark.parametrize("strategy", ["mixed", "l2", "manual"])
def test_every_assignment_strategy_carries_packets(switch, private, tmp_path, strategy):
    from topologies.network import ChainNetwork, wait_until

    file = p4app.line(2)
    file["topology"]["assignment_strategy"] = strategy
    if strategy == "manual":
        file["topology"]["hosts"] = {
            "h1": {"ip": "172.16.1.10/28", "gateway": "172.16.1.1"},
            "h2": {"ip": "192.168.7.7/24"},
        }
    topology = p4app.check(file, strategy)
    with ChainNetwork(topology, switch=switch, out=tmp_path) as net:
        check_everyone_reads_what_everyone_writes(net, wait_until)
        assert (
            " 0% packet loss"
            in net.execute("h1", ["ping", "-c", "1", "-W", "2", str(topology.hosts["h2"].ip.ip)]).stdout
        )


def check_everyone_reads_what_everyone_writes(net, wait_until):
    """Check for every host that its write is read back there and at every switch."""
    key = net.admin.add_key("main", "/a", b"0")
    for number, host in enumerate(net.topology.hosts):
        with net.inside(host):
            session = net.admin.lease_sessions(address=str(net.topology.hosts[host].ip.ip))
            client = Client([str(net.topology.chains[0].service)], session=session)
        value = f"{number} of {host}".encode()
        with client:
            written = client.put(key, value)
            wait_until(
                "every member has it",
                lambda: all(int(s["version"]) == written.version for s in net.admin.key_states("/a")),  # noqa: B023
            )
            assert client.get(key).value == value
            for member in net.topology.chains[0].members:
                assert client.get(key, to=str(net.topology.switches[member].address)).value == value
