# SPDX-License-Identifier: Apache-2.0
"""The model of scale: its event loop against closed forms, its bounds against the event loop, and
its predictions against the committed measurements.
"""

import itertools
import random
import statistics

import pytest

pytest.importorskip("simpy", reason="SimPy is not installed (make deps)")

from experiments.scale import bounds, costs, fabric, placement, predict, study
from experiments.scale.model import Station, Visit, closed_load, open_load
from experiments.scale.systems import Chains, Etcd, Workload


@pytest.mark.parametrize("used", [0.3, 0.6, 0.8])
def test_one_station_waits_as_in_m_d_1(used: float) -> None:
    """Pollaczek and Khinchine: with constant service, the mean wait is used / (2 (1 - used)) times
    the service.
    """
    station, service = Station("s"), 1000.0
    out = open_load(
        lambda env, draw: ("read", iter([Visit(station, service)])), [station], 1e9 * used / service, 30_000
    )
    wait = statistics.mean(out.latencies["read"]) - service
    assert wait == pytest.approx(service * used / (2 * (1 - used)), rel=0.1)
    assert out.used["s"] == pytest.approx(used, rel=0.03)


def test_a_closed_load_reaches_the_bottleneck_law() -> None:
    """The rate is min(clients / sum of demands, 1 / greatest demand)."""
    stations = [Station("a"), Station("b"), Station("two", 2)]
    steps = [Visit(stations[0], 300), Visit(stations[1], 500), Visit(stations[2], 800, 400)]
    for clients, rate in ((1, 1e9 / 2000), (16, 1e9 / 500)):
        out = closed_load(lambda env, draw: ("write", iter(steps)), stations, clients, 2000)
        assert out.rate == pytest.approx(rate, rel=0.02)
        for station in stations:
            station.free = [0.0] * len(station.free)


@pytest.mark.parametrize("system", [costs.NETCRAQ, costs.NETCHAIN])
def test_a_line_takes_the_frames_of_the_protocol(system: str) -> None:
    """A write takes 2 n - 1 packets in a chain of n, a read of the head 1 in NetCRAQ."""
    for length in (2, 4, 8):
        single = predict.Single(1, 0, 0)
        assert predict.packets(system, costs.TC, length, "write", single).total() == pytest.approx(2 * length - 1)
        read = predict.packets(system, costs.TC, length, "read", single).total()
        assert read == pytest.approx(1 if system == costs.NETCRAQ else 2 * length - 1)


@pytest.mark.parametrize(("system", "chains"), [(costs.NETCRAQ, 20), (costs.NETCHAIN, 160)])
def test_the_bound_is_what_the_event_loop_uses(system: str, chains: int) -> None:
    setup = study.Setup(system, costs.TC, 16, chains)
    work = Workload(0.9, keys=1000, skew=0.5)
    model = setup.model(work)
    share = 0.5
    out = open_load(model.operation, model.stations, share * setup.bound(work).rate, 6_000)
    assert max(out.used.values()) == pytest.approx(share, rel=0.15)


def test_dirty_reads_go_to_the_tail() -> None:
    model = Chains(costs.NETCRAQ, fabric.Line(3), [range(3)], Workload(1.0, keys=1), lambda kind: 1.0)
    model._dirty[0, 0] = 1
    draw = random.Random(1)
    assert len(list(model.read(0, 0, 0, draw))) == 1 + 5  # the client, then s1, s2, s3, s2, s1
    model._dirty[0, 0] = 0
    assert len(list(model.read(0, 0, 0, draw))) == 1 + 1


def test_a_write_leaves_nothing_dirty() -> None:
    setup = study.Setup(costs.NETCRAQ, costs.TC, 16, 10)
    model = setup.model(Workload(0.5, keys=100))
    open_load(model.operation, model.stations, 1e6, 2_000)
    assert set(model._dirty.values()) == {0}


def test_groups_are_spread_and_stay() -> None:
    found = fabric.groups(64, 640, 3)
    assert found == fabric.groups(64, 640, 3)
    assert all(len(set(members)) == 3 for members in found)
    assert len(set(itertools.chain(*found))) > 60


def test_etcd_is_bound_by_its_leader() -> None:
    few, more = bounds.etcd(3, Workload(0.0)), bounds.etcd(5, Workload(0.0))
    assert few.rate == more.rate
    assert bounds.etcd(5, Workload(1.0)).rate > bounds.etcd(3, Workload(1.0)).rate
    etcd = Etcd(3, Workload(0.5))
    out = open_load(etcd.operation, etcd.stations, 1000, 2000)
    assert out.quantile("read", 0.5) == pytest.approx(386, rel=0.05)


def test_placement_by_load_follows() -> None:
    found = {(c.placement, c.moment): c for c in placement.cases(8, 1e6, 1500)}
    assert found["by load", "followed"].hits > 2 * found["fixed", "followed"].hits
    assert found["by load", "before"].near > found["fixed", "before"].near


def test_predictions_beside_measurements() -> None:
    """The model predicts the committed measurements within the aim, except what the page names."""
    found = predict.compare()
    assert found
    outside = {(c.system, c.engine, c.length, c.load) for c in found if not c.within}
    assert outside <= predict.KNOWN, outside - predict.KNOWN


def test_every_number_has_a_source() -> None:
    for name, cost in costs.NUMBERS.items():
        assert cost.source and cost.unit and cost.value > 0, name
        if cost.source.startswith("docs/"):
            assert (costs.ROOT / cost.source.split(",")[0]).exists(), name
