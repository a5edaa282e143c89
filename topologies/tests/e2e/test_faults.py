# SPDX-License-Identifier: Apache-2.0
"""A chain whose cables lose, repeat and reorder frames, and switches that fail and return."""

import math
import threading
import time
from dataclasses import replace

import pytest
from netcraq.client import CASFailed, NetCRAQError, Timeout

from experiments.single_writer_history import Operation, violations
from topologies import network_namespaces, p4app
from topologies.network import ChainNetwork, wait_until
from topologies.tests.conftest import why_not
from topologies.tests.e2e import tools

LOSSY = "seed={seed}; *: loss=0.01, dup=0.05, reorder=0.02"
"""At every port, in each direction: a query to the tail and its reply can be lost at about twenty
points.
"""

HOSTS = ["h1", "h2", "h3", "h4"]


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """A chain of four with bad cables, which netcraq-switch simulates, so that kernels without
    netem suffice.
    """
    if reason := why_not("embedded"):
        pytest.skip(reason)
    topology = p4app.load(p4app.ROOT / "topologies" / "chain-4.json")
    faulty = {
        name: replace(switch, args=("--faults", LOSSY.format(seed=switch.device_id)))
        for name, switch in topology.switches.items()
    }
    with (
        network_namespaces.private(),
        ChainNetwork(replace(topology, switches=faulty), engine="interp", out=tmp_path_factory.mktemp("lossy")) as net,
    ):
        yield net


def test_over_bad_cables_nobody_reads_what_could_not_be(lossy):
    """Every host writes its own key and reads all keys; the history is linearizable."""
    keys = {host: lossy.admin.add_key("main", f"/{host}", b"0") for host in HOSTS}
    history: list[Operation] = []
    again = []

    def work(number, client):
        mine = HOSTS[number]
        for n in range(1, 41):
            asked = time.monotonic()
            try:
                again.append(client.put(keys[mine], b"%d" % n).attempts - 1)
                answered = time.monotonic()
            except Timeout:
                answered = math.inf
            history.append(Operation(mine, True, n, asked, answered, mine))
            for other in HOSTS:
                asked = time.monotonic()
                result = client.get(keys[other])
                again.append(result.attempts - 1)
                history.append(Operation(other, False, int(result.value), asked, time.monotonic(), mine))

    clients = [tools.client(lossy, host, timeout=5) for host in HOSTS]
    threads = [threading.Thread(target=work, args=(number, client)) for number, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    assert len(history) == 4 * 40 * 5, "a worker failed"
    assert sum(again) > 20, "hardly a frame was lost: the test tests nothing"
    assert sum(not operation.write for operation in history) == 4 * 40 * 4
    assert violations(history) == []


def test_over_bad_cables_nothing_is_done_twice(lossy):
    """One client increments a counter by CAS; the result equals the number of acknowledged
    increments.
    """
    key = lossy.admin.add_key("main", "/counter", b"0")
    done = unknown = again = 0
    with tools.client(lossy, "h1", timeout=5) as client:
        for _ in range(200):
            try:
                now = client.get(key)
                again += client.cas(key, now.version, b"%d" % (int(now.value) + 1)).attempts - 1
                done += 1
            except CASFailed as failure:
                pytest.fail(f"{failure}, though nobody else writes")
            except NetCRAQError as error:
                unknown += error.outcome_unknown
        assert again > 5, "hardly a frame was lost: the test tests nothing"
        assert done <= int(client.get(key).value) <= done + unknown
        assert done >= 195


def test_a_switch_that_was_killed_gets_its_program_again(net):
    """After its restart the switch is empty and no member until the controller brings it back; the
    others' keys stay readable.
    """
    name, key = tools.new_key(net, b"stays")
    tools.all_clean(net, name)
    net.kill_switch("s3")
    with tools.client(net, "h1", session=None) as client:
        assert client.get(key).value == b"stays"
    net.restart_switch("s3")

    def ready():
        return next(switch for switch in net.admin.switches() if switch["name"] == "s3")["ready"]

    wait_until("s3 has its program and its tables", ready, timeout=10)
    with tools.client(net, "h4", session=None) as client:
        assert client.get(key).value == b"stays"
