# SPDX-License-Identifier: Apache-2.0
"""The parts of the figures without a network: the store, the ratios, the report."""

import csv
import math
import os
import random
from types import SimpleNamespace

import pytest
from rich.console import Console

from experiments import timeline_run
from experiments.figures import failover, pairs, peers, plots, processors, programs, report
from experiments.figures.__main__ import points, show
from experiments.figures.definitions import FIGURES, Options, attainable
from experiments.figures.store import Point, Store
from experiments.figures.systems import NETCHAIN, PAPER, SHIPPED, SYSTEMS, Network

DISTANCE = next(figure for figure in FIGURES if figure.name == "distance")


def measured(store, system, x, repetition, y):
    store.add(Point("distance", system, "ebpf tc", 4, x, repetition), {"y": y})


def test_a_run_goes_on_where_it_was_but_not_under_other_conditions(tmp_path):
    file = tmp_path / "measurements.jsonl"
    point = Point("distance", "NetCRAQ", "interp", 4, 3.0, 0)
    Store(file, {"commit": "a"}).add(point, {"y": 5.0})
    assert Store(file, {"commit": "a"}).get(point) == {"y": 5.0}
    assert Store(file, {"commit": "b"}).get(point) is None
    Store(file, {"commit": "c"}).add(point, {"y": 6.0})
    assert Store.last(file).get(point) == {"y": 6.0}
    assert Store.last(tmp_path / "none").get(point) is None


def test_ratios_are_of_the_same_pair_and_place(tmp_path):
    store = Store(tmp_path / "m", {})
    ours = [400, 810, 400, 410, 420, 4100, 430]
    theirs = [100, 200, 100, 100, 100, 1000, 100]  # the machine was twice as fast once, and ten times as fast once
    for repetition in range(7):
        measured(store, "NetCRAQ", 3.0, repetition, ours[repetition])
        measured(store, "NetChain", 3.0, repetition, theirs[repetition])
    measured(store, "NetCRAQ", 3.0, 7, 1e9)  # NetChain's measurement is missing
    for system, y in (("NetCRAQ", 300), ("NetChain", 100)):
        store.add(Point("distance", system, "ebpf tc", 4, 3.0, 0, "all"), {"y": y, "cpu_us": 10 / y})
    one, every = plots.ratios(DISTANCE, store)
    assert (one["cpus"], one["pairs"], one["valid"], one["met"]) == ("one", 7, True, True)
    assert (one["measured"], one["lowest"], one["highest"]) == (4.1, 4.0, 4.3)
    assert one["cpu"]["measured"] is None
    # one pair has no interval
    assert (every["cpus"], every["measured"], every["valid"], every["met"]) == ("all", 3.0, False, False)
    assert every["cpu"]["measured"] == pytest.approx(3.0)
    assert report.said(every) == "~3.00 (3.00 to 3.00, 1 pairs)"


def test_each_netcraq_has_a_ratio_of_its_own(tmp_path):
    store = Store(tmp_path / "m", {})
    for repetition in range(6):
        for system, y in ((SHIPPED, 300), (PAPER, 400), (NETCHAIN, 100)):
            measured(store, system, 3.0, repetition, y)
    rows = plots.ratios(DISTANCE, store)
    assert [(row["system"], row["measured"]) for row in rows] == [(PAPER, 4.0), (SHIPPED, 3.0)]
    assert report.overview(rows).count("clean reads at the head of 4 nodes") == 2
    (tmp_path / "figures").mkdir()
    assert all(path.stat().st_size > 1000 for path in plots.draw(DISTANCE, store, {}, tmp_path / "figures"))


def test_each_system_has_a_load_of_its_own(tmp_path):
    net = SimpleNamespace(switches={}, running_engine="interp")
    commands = {
        system: Network(system, net, tmp_path, [0])._command(
            writes=20, outstanding=8, seconds=0.1, dirty_ttl=3, fill=False
        )
        for system in SYSTEMS
    }
    assert [command[0] for command in commands.values()] == ["bin/netcraqctl", "bin/netcraq-paper", "bin/netchain"]
    assert all("--fill=false" in command for command in commands.values())
    assert commands[PAPER][1:4] == ["bench", "--dirty-ttl", "3"]
    assert "--dirty-ttl" not in commands[NETCHAIN]


def test_programs_are_compared_round_by_round_and_summed_over_a_chain(tmp_path):
    kinds = {kind for parts in programs.SUMS[programs.READ].values() for kind in parts}
    results = [
        {"system": system, "kind": kind, "engine": "tc", "rounds": [ns * drift for drift in (1, 2, 1, 2, 1, 2)]}
        for system, ns in ((NETCHAIN, 10.0), (PAPER, 20.0))
        for kind in sorted(kinds)
    ]
    each = programs.rounds(results)
    assert each[NETCHAIN, programs.READ] == [70, 140, 70, 140, 70, 140]
    assert each[PAPER, programs.READ] == [20, 40, 20, 40, 20, 40]
    assert (PAPER, programs.WRITE) not in each
    store = Store(tmp_path / "m", {"commit": "abc"})
    store.add(Point(programs.NAME, "all", "ebpf tc", 1, 0.0, 0), {"results": results})
    [row] = [row for row in programs.rows(store) if (row["system"], row["kind"]) == (PAPER, programs.READ)]
    assert row["ratio"].middle == 3.5 and row["ratio"].measured  # the drift is gone
    assert row["ns"].middle == 30 and not row["ns"].measured
    text = programs.section(store)
    assert "3.50 (3.50 to 3.50)" in text and "~30 (20 to 40)" in text
    assert programs.write_csv(store, tmp_path)
    with (tmp_path / "programs.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 6 * len(results) and table[0]["commit"] == "abc"


def test_slices_take_turns_so_that_what_drifts_cancels_out():
    order = [system for pair in range(4) for system in pairs.turn(pair, ("A", "B"))]
    assert "".join(order) == "ABBAABBA"
    # B is twice as fast as A, and the machine slows by 2 % with each slice
    rates = {"A": {}, "B": {}}
    for at, system in enumerate(order):
        rates[system][at // 2] = (1 if system == "A" else 2) * (1 - 0.02 * at)
    assert pairs.ratio(rates["B"], rates["A"]).middle == pytest.approx(2, rel=0.002)


def test_an_interval_has_the_median_in_it_as_often_as_it_says():
    """The ranks match the tables of the binomial distribution, and a simulation confirms them."""
    assert [pairs.rank(n) for n in (1, 5, 6, 8, 9, 20, 40)] == [None, None, 1, 1, 2, 6, 14]
    pick, inside = random.Random(1), 0
    for _ in range(2000):
        # far from a normal distribution: its median is e
        of = pairs.estimate([math.exp(pick.expovariate(math.log(2))) for _ in range(20)])
        inside += of.low <= math.e <= of.high
    assert 0.94 < inside / 2000 < 0.98


def test_what_is_too_wide_or_too_few_is_uncertain():
    assert pairs.estimate([1.0, 1.01, 1.02, 0.99, 1.0, 1.03]).measured
    assert not pairs.estimate([1.0, 1.01, 1.02, 0.99, 1.0]).measured
    wide = pairs.estimate([0.8, 1.0, 1.0, 1.0, 1.0, 1.2])
    assert (wide.low, wide.high, wide.measured) == (0.8, 1.2, False)
    assert pairs.ratio({1: 2.0}, {2: 1.0}) is None
    assert pairs.ratio({1: 2.0}, {1: 0.0}) is None


def test_an_uncertain_ratio_is_shown_and_marked(capsys):
    sure = plots.described(pairs.estimate([1.0] * 6))
    busy = plots.described(pairs.estimate([0.8, 1.0, 1.2, 1.2, 1.3, 3.0]))
    assert report.said(sure, "[green]", "[/]") == "[green]1.00[/] (1.00 to 1.00)"
    assert report.said(busy, "[green]", "[/]") == "~1.20 (0.80 to 3.00, 6 pairs)"
    assert report.said(plots.described(None)) == ""
    row = {
        "what": "reads",
        "system": "NetCRAQ",
        "engine": "interp",
        "cpus": "one",
        "paper": 1.5,
        "met": False,
        "cpu": sure,
        "program": sure,
    }
    for rate, noted in ((busy, True), (sure, False)):
        show(Console(width=100), {"ratios": [{**row, **rate}], "peers": [], "absent": {}, "failures": []})
        told = capsys.readouterr().out
        assert ("~1.20" in told and "The machine was busy" in told) == noted


def test_what_is_started_in_one_place_has_one_cpu():
    before = os.sched_getaffinity(0)
    with processors.placed(processors.ONE) as cpus:
        assert cpus == [max(before)]
        assert os.sched_getaffinity(0) == set(cpus)
    assert os.sched_getaffinity(0) == before
    with processors.placed(processors.ALL) as cpus:
        assert cpus == sorted(before)


def test_the_runs_of_programs_are_those_between_two_looks():
    before, after = {3: (100, 2), 4: (7, 1)}, {3: (400, 5), 4: (7, 1), 9: (50, 1)}
    assert processors.run_between(before, after) == (350, 4)


def test_the_report_shows_what_falls_short_why_and_what_gave_no_figure(tmp_path):
    store = Store(tmp_path / "m", {})
    measured(store, "NetCRAQ", 3.0, 0, 300)
    measured(store, "NetChain", 3.0, 0, 100)
    for system, frames in (("NetCRAQ", 2.0), ("NetChain", 8.0)):
        store.add(Point("packets", system, "ebpf tc", 4, 3.0, 0), {"y": frames})
    (tmp_path / "figures").mkdir()
    plots.draw(DISTANCE, store, {"ebpf tc": 1000.0}, tmp_path / "figures")
    ratios = plots.ratios(DISTANCE, store)
    report.write(tmp_path / "report.html", [DISTANCE], ratios, {"commit": "abc"}, ["length: <it> broke"], [])
    text = (tmp_path / "report.html").read_text()
    for part in (
        "class=short",
        "4.08",
        "3.00",
        "data:image/png",
        "&lt;it&gt; broke",
        "commit: abc",
        "2.0 frames in NetCRAQ and 8.0 in NetChain",
        "~3.00 (3.00 to 3.00, 1 pairs)",
        report.UNCERTAIN,
    ):
        assert part in text
    assert (tmp_path / "figures" / "distance.svg").stat().st_size > 1000


def test_what_was_measured_on_all_cpus_alone_is_drawn(tmp_path):
    store = Store(tmp_path / "m", {})
    for system, rate in (("NetCRAQ", 300.0), ("NetChain", 100.0)):
        store.add(Point("distance", system, "ebpf tc", 4, 3.0, 0, processors.ALL), {"y": rate})
    assert all(path.stat().st_size > 1000 for path in plots.draw(DISTANCE, store, {}, tmp_path))
    assert plots.series(store, DISTANCE)["NetCRAQ", "ebpf tc"] == {3.0: [300.0]}


def test_a_distribution_is_drawn_from_what_another_figure_measured(tmp_path):
    figure = next(figure for figure in FIGURES if figure.name == "distribution")
    store = Store(tmp_path / "m", {})
    for repetition in range(2):
        store.add(
            Point("latency", "NetCRAQ", "ebpf tc", 4, 3.0, repetition),
            {"y": 1.0, "quantiles": [[50, 1.0 + repetition], [99, 9.0]]},
        )
        store.add(Point("latency", "NetCRAQ", "ebpf tc", 4, 0.0, repetition), {"y": 1.0, "quantiles": [[50, 77.0]]})
    assert plots.series(store, figure) == {("NetCRAQ", "ebpf tc"): {50: [1.0, 2.0], 99: [9.0, 9.0]}}
    assert not points([figure], ["ebpf tc"], 1, 1, ["one"])
    assert all(path.stat().st_size > 1000 for path in plots.draw(figure, store, {}, tmp_path))


def test_peers_are_compared_repetition_by_repetition(tmp_path):
    store = Store(tmp_path / "m", {})
    for repetition, (ours, theirs) in enumerate([(10, 100), (5, 200)]):
        store.add(Point(peers.NAME, peers.SOCKET, peers.ENGINE, 4, 0.0, repetition), {"y": ours})
        store.add(Point(peers.NAME, peers.ETCD, peers.ENGINE, 4, 0.0, repetition), {"y": theirs})
    [row] = peers.ratios(store)
    assert (row["measured"], row["lowest"], row["highest"], row["aim"], row["met"]) == (25.0, 10.0, 40.0, 20.0, True)
    peers.draw(store, tmp_path)
    assert "aim" in report.peers_section(tmp_path, [row], {})


def test_a_peer_that_is_absent_is_a_line_of_the_report_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = peers.missing()
    assert set(absent) == {peers.REDIS, peers.MEMCACHED}
    assert "redis-server" in absent[peers.REDIS]
    store = Store(tmp_path / "m", {})
    store.add(Point(peers.NAME, peers.SOCKET, peers.ENGINE, 4, 0.0, 0), {"y": 5})
    for system in peers.SYSTEMS:
        for x in peers.MEASURES:
            store.add(Point(peers.NAME, system, peers.ENGINE, 4, float(x), 0), {"y": 5})
    assert peers.measure(store, 1, 0.1, lambda what: None) == []
    peers.draw(store, tmp_path)
    assert "Left out: Redis: there is no redis-server" in report.peers_section(tmp_path, [], absent)


def test_the_attainable_rate_is_the_highest_and_says_at_what_latency():
    # one slice with 32 was lucky
    rates = {1: [100.0] * 3, 8: [500.0, 510.0, 490.0, 505.0], 32: [450.0, 900.0, 455.0]}

    class Net:
        def __init__(self):
            self.best = {}

        def load(self, host, *, writes, outstanding, seconds, dirty_ttl):
            assert (host, writes, seconds, dirty_ttl) == ("h1", 25, 0.1, 0)
            return {
                "queriesPerSecond": rates[outstanding].pop(0),
                "latencyMicros": {"p50": outstanding},
                "cpuMicros": 1.5,
            }

        def program_time(self, host, *, writes, outstanding, seconds):
            assert (host, writes, outstanding, seconds) == ("h1", 25, 8, 0.05)
            return 800.0, 2.0

    options = Options(0.1, (1, 8, 32))
    assert attainable(Net(), "h1", 25, options) == {
        "y": 505.0,
        "p50_us": 8,
        "outstanding": 8,
        "cpu_us": 1.5,
        "program_ns": 800.0,
        "program_runs": 2.0,
    }


def test_all_systems_are_asked_in_turn_at_each_place():
    order = [(p.x, p.repetition, p.system) for p in points([DISTANCE], ["interp"], 2, 2, ["one"])]
    assert order[:3] == [(0.0, 0, system) for system in SYSTEMS]
    assert order[3:6] == [(0.0, 1, system) for system in reversed(SYSTEMS)]
    assert {repetition for _, repetition, _ in order} == {0, 1, 2, 3}
    counted = next(figure for figure in FIGURES if figure.name == "packets")
    assert {p.repetition for p in points([counted], ["interp"], 2, 8, ["one"])} == {0, 8}


def test_a_failover_is_drawn_from_its_time_series(tmp_path):
    store = Store(tmp_path / "m", {"commit": "abc"})
    answers = [
        timeline_run.Answer(kind, at / 100, 20e-6)
        for at in range(100)
        for kind in ("get", "put")
        if not (kind == "put" and 40 < at < 60)
    ]
    for point in failover.points(["ebpf tc", "BMv2"], 2):
        system_events = {"NetCRAQ": ["chain.failover", "chain.recovered"], "NetChain": ["around", "recovered"]}[
            point.system
        ]
        what = [(0.3, "killed"), (0.4, system_events[0]), (0.6, "restarted"), (0.9, system_events[1])]
        events = [timeline_run.Event(at, kind, "s3", "") for at, kind in what]
        record = timeline_run.Record(point.system, "ebpf at tc", "s3", 1.0, answers, events)
        store.add(
            point, {"y": 1.0, **record.outages(), "rows": failover.rows(record), "marks": timeline_run.marks(events)}
        )
    assert failover.write_csv(store, tmp_path)
    with (tmp_path / "failover.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2 * 2 * 2 * 20
    first, gap = table[0], table[9]
    assert (first["system"], first["engine"], first["t"], first["commit"]) == ("NetCRAQ", "BMv2", "0.0", "abc")
    assert (first["queries_per_second"], first["reads_per_second"], first["writes_p50_us"]) == ("200", "100", "20.0")
    assert (gap["t"], gap["writes_per_second"], gap["writes_p50_us"], gap["reads_per_second"]) == (
        "0.45",
        "0",
        "",
        "100",
    )
    assert all(path.stat().st_size > 1000 for path in failover.draw(store, tmp_path))
    text = failover.section(store, tmp_path)
    for part in ("200", "0.3", "<td>NetChain", "data:image/png"):
        assert part in text
    assert "s3 is back" in (tmp_path / "failover.svg").read_text()
