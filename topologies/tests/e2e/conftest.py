# SPDX-License-Identifier: Apache-2.0
"""One chain of four switches for each module and kind of switch."""

import contextlib
from dataclasses import replace

import pytest

from topologies import namespaces, p4app
from topologies.tests.conftest import why_not
from topologies.tests.e2e import tools

KINDS = {
    "interp": {"switch": "embedded", "engine": "interp"},
    "tc": {"switch": "embedded", "engine": "ebpf", "hook": "tc"},
    "xdp": {"switch": "embedded", "engine": "ebpf", "hook": "xdp"},
    "bmv2": {"switch": "bmv2"},
}
"""What the chain of these tests runs on."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """The kind of switch, as arguments of ChainNetwork."""
    kind = KINDS[request.param]
    if reason := why_not(kind["switch"]):
        pytest.skip(reason)
    return kind


@contextlib.contextmanager
def running(topology, kind, out):
    """A network of one chain in a namespace of its own.

    Read leases are ten times as long as usual: these tests say exactly which switch answers, and on a machine that is busy enough a lease of 200 ms
    does run out now and then, whereupon the tail answers.
    """
    from topologies.network import ChainNetwork

    topology = replace(topology, chains=(replace(topology.chains[0], lease_ms=2000),))
    if kind.get("hook") == "xdp":  # whose frames the kernel shows to nobody else
        (out / tools.PCAP).mkdir()
        recording = {name: replace(switch, args=(f"--pcap={out / tools.PCAP}",)) for name, switch in topology.switches.items()}
        topology = replace(topology, switches=recording)
    with namespaces.private(), ChainNetwork(topology, **kind, out=out) as network:
        yield network


@pytest.fixture(scope="module")
def net(kind, tmp_path_factory):
    """The chain of four that ``make run`` starts, with values of 16 bytes. Its hosts may do everything."""
    with running(p4app.load(p4app.ROOT / "topologies" / "chain-4.json"), kind, tmp_path_factory.mktemp("net")) as network:
        yield network


@pytest.fixture(scope="module")
def tenants(kind, tmp_path_factory):
    """The chain of four of tenants.json: its hosts may do what the file says. Only h6 has a bound, so that others attack as fast as they can."""
    topology = replace(p4app.load(p4app.ROOT / "topologies" / "tenants.json"), host_rate=0)
    with running(topology, kind, tmp_path_factory.mktemp("tenants")) as network:
        yield network


@pytest.fixture(autouse=True)
def left_clean(request):
    """No test leaves a key dirty: the controller would re-propagate it in the middle of another, which may be counting packets."""
    net = request.getfixturevalue("net") if "net" in request.fixturenames else None
    yield
    try:
        for name in tools.made:
            tools.all_clean(net, name)
    finally:
        tools.made.clear()
