# SPDX-License-Identifier: Apache-2.0
"""NetChain, the baseline, on real switches: reads and writes of all hosts, and a failing switch."""

import json
import subprocess

import pytest

from topologies import network_namespaces, p4app
from topologies.controller import declaration
from topologies.network import ChainNetwork, wait_until

HOSTS = ["h1", "h2", "h3", "h4"]


@pytest.fixture(scope="module")
def chain(kind, tmp_path_factory):
    """Run a line of four NetChain switches; yield the network and a function that runs a command of
    ``netchain`` in a host.
    """
    out = tmp_path_factory.mktemp("netchain")
    topology = p4app.load(p4app.ROOT / "topologies" / "chain-4.json")
    file = out / "netchain.json"
    file.write_text(json.dumps(declaration(topology)))
    with network_namespaces.private(), ChainNetwork(topology, **kind, out=out, controller=False) as net:
        command = [str(p4app.ROOT / "bin" / "netchain"), "control", "--topology", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
            try:
                assert controller.stdout.readline().startswith("ready: 4 switches")

                def run(host, *arguments):
                    done = net.execute(host, [command[0], *arguments, "--topology", str(file)], check=False)
                    return done.stdout if done.returncode == 0 else done.stderr

                yield net, run
            finally:
                controller.kill()


def test_what_one_host_writes_every_host_reads(chain):
    _, run = chain
    for n, writer in enumerate(HOSTS):
        assert "OK, number 0.1," in run(writer, "put", str(n), f"from {writer}")
        for reader in HOSTS:
            assert f"from {writer}" in run(reader, "get", str(n))


def test_every_value_that_a_load_reads_is_right(chain):
    _, run = chain
    gets = puts = 0
    for duration in ("300ms", "1s", "3s", "9s"):  # longer if the machine is busy
        report = json.loads(run("h1", "bench", "-n", "8", "--puts", "20", "--duration", duration))
        assert report["wrong"] == 0 and report["failed"] == 0
        gets += report["ops"]["get"]["queries"]
        puts += report["ops"]["put"]["queries"]
        if gets > 100 and puts > 20:
            break
    else:
        pytest.fail(f"only {gets} reads and {puts} writes in 13 s")


def operate(*command):
    """Send a command to the controller; return the exit status and the output."""
    done = subprocess.run([str(p4app.ROOT / "bin" / "netchain"), *command], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_switches_go_on_without_a_tail_that_is_gone_and_with_it_when_it_is_back(chain):
    net, run = chain
    run("h1", "put", "200", "before")
    net.kill_switch("s4")
    assert operate("fail", "s4") == (0, "")
    status, said = operate("fail", "s4")
    assert status == 1 and "s4 is gone already" in said
    wait_until("the chain to go on", lambda: "before" in run("h1", "get", "200"))
    assert "OK" in run("h2", "put", "200", "after")
    for reader in HOSTS[:3]:
        assert "after" in run(reader, "get", "200")
    status, said = operate("recover", "s3")
    assert status == 1 and "the place of s3 is not free: s3 has it" in said
    net.restart_switch("s4")
    status, said = operate("recover", "s4")
    assert status == 0 and "s4 has the place of s4: 256 keys in 100 virtual groups" in said, said
    for reader in HOSTS:
        assert "after" in run(reader, "get", "200")
    assert "OK" in run("h4", "put", "200", "again")
    assert "again" in run("h1", "get", "200")
