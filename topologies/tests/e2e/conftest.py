# SPDX-License-Identifier: Apache-2.0
"""One chain of four switches for each module and kind of switch."""

import contextlib
from dataclasses import replace

import pytest

from topologies import network_namespaces, p4app
from topologies.tests.conftest import why_not
from topologies.tests.e2e import tools

KINDS = {
    "interp": {"switch": "embedded", "engine": "interp"},
    "tc": {"switch": "embedded", "engine": "ebpf", "hook": "tc"},
    "xdp": {"switch": "embedded", "engine": "ebpf", "hook": "xdp"},
    "bmv2": {"switch": "bmv2"},
}
"""The kinds of switches for the chain of these tests."""


LONG = {
    "test_hot_keys": 30,
    "test_netchain_readme": 20,
    "test_netchain_histories": 15,
    "test_faults": 6,
    "test_experiments": 6,
    "test_launch": 3,
}
"""Seconds for one test of a module, if far from the usual half second: they balance the lanes."""


def pytest_addoption(parser):
    """Add the flag that selects a lane. Lanes run in parallel, because the tests wait more than
    they compute.
    """
    parser.addoption(
        "--lane",
        default="1/1",
        metavar="I/N",
        help="run only part I of N parts of these tests, which take about the same time",
    )


def pytest_collection_modifyitems(config, items):
    """Deselect the tests of other lanes. Tests of one module and kind of switch share a network,
    and stay in one lane.
    """
    lane, lanes = (int(number) for number in config.getoption("--lane").split("/"))
    assert 1 <= lane <= lanes
    groups = {}
    for item in items:
        if "e2e" in item.path.parts and item.path.parent.parent.name == "tests":
            kind = getattr(item, "callspec", None)
            groups.setdefault(
                (item.path.stem, kind and str(kind.params.get("kind", kind.params.get("switch")))), []
            ).append(item)
    skipped = {"bmv2"} if why_not("bmv2") else set()
    length = {of: 0 if of[1] in skipped else len(tests) * LONG.get(of[0], 0.5) for of, tests in groups.items()}
    filled, chosen = [0.0] * lanes, set(items)
    for of in sorted(groups, key=lambda of: (-length[of], str(of))):
        shortest = filled.index(min(filled))
        filled[shortest] += length[of]
        if shortest != lane - 1:
            chosen -= set(groups[of])
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """The kind of switch, as arguments of ChainNetwork."""
    kind = KINDS[request.param]
    if reason := why_not(kind["switch"]):
        pytest.skip(reason)
    return kind


@contextlib.contextmanager
def running(topology, kind, out):
    """Run a network of one chain in a namespace of its own.

    Read leases are ten times as long as usual: these tests expect exact answers from particular
    switches. On a busy machine a lease of 200 ms sometimes expires, and then the tail answers.
    """
    from topologies.network import ChainNetwork

    topology = replace(topology, chains=(replace(topology.chains[0], lease_ms=2000),))
    if kind.get("hook") == "xdp":  # packet sockets do not see frames that XDP handles
        (out / tools.PCAP).mkdir()
        recording = {
            name: replace(switch, args=(f"--pcap={out / tools.PCAP}",)) for name, switch in topology.switches.items()
        }
        topology = replace(topology, switches=recording)
    with network_namespaces.private(), ChainNetwork(topology, **kind, out=out) as network:
        yield network


@pytest.fixture(scope="module")
def net(kind, tmp_path_factory):
    """The chain of four that ``make run`` starts, with values of 16 bytes. Its hosts may do
    everything.
    """
    with running(
        p4app.load(p4app.ROOT / "topologies" / "chain-4.json"), kind, tmp_path_factory.mktemp("net")
    ) as network:
        yield network


@pytest.fixture(scope="module")
def tenants(kind, tmp_path_factory):
    """The chain of four of tenants.json, whose hosts have the file's access. Only h6 has a rate
    limit, so that others attack as fast as they can.
    """
    topology = replace(p4app.load(p4app.ROOT / "topologies" / "tenants.json"), host_rate=0)
    with running(topology, kind, tmp_path_factory.mktemp("tenants")) as network:
        yield network


@pytest.fixture(autouse=True)
def left_clean(request):
    """No test leaves a key dirty: the controller would re-propagate it during another test, which
    may be counting packets.
    """
    net = request.getfixturevalue("net") if "net" in request.fixturenames else None
    yield
    try:
        for name in tools.made:
            tools.all_clean(net, name)
    finally:
        tools.made.clear()
