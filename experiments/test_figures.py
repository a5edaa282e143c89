# SPDX-License-Identifier: Apache-2.0
"""What the figures are made of, without a network: the store, the ratios, the report."""

import csv

from experiments import timeline_run
from experiments.figures import failover, peers, plots, report
from experiments.figures.__main__ import points
from experiments.figures.definitions import FIGURES, Options, attainable
from experiments.figures.store import Point, Store

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


def test_ratios_are_of_the_same_repetition(tmp_path):
    store = Store(tmp_path / "m", {})
    for repetition, (ours, theirs) in enumerate([(400, 100), (900, 300), (1000, 200)]):
        measured(store, "NetCRAQ", 3.0, repetition, ours)
        measured(store, "NetChain", 3.0, repetition, theirs)
    measured(store, "NetCRAQ", 3.0, 3, 1e9)  # NetChain gave no figure
    [row] = plots.ratios(DISTANCE, store)
    assert (row["measured"], row["lowest"], row["highest"], row["repetitions"], row["met"]) == (4.0, 3.0, 5.0, 3, False)


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
    ):
        assert part in text
    assert (tmp_path / "figures" / "distance.svg").stat().st_size > 1000


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
    assert not points([figure], ["ebpf tc"], 1)
    assert all(path.stat().st_size > 1000 for path in plots.draw(figure, store, {}, tmp_path))


def test_peers_are_compared_repetition_by_repetition(tmp_path):
    store = Store(tmp_path / "m", {})
    for repetition, (ours, theirs) in enumerate([(10, 100), (5, 200)]):
        store.add(Point(peers.NAME, peers.SOCKET, peers.ENGINE, 4, 0.0, repetition), {"y": ours})
        store.add(Point(peers.NAME, peers.ETCD, peers.ENGINE, 4, 0.0, repetition), {"y": theirs})
    [row] = peers.ratios(store)
    assert (row["measured"], row["lowest"], row["highest"], row["aim"], row["met"]) == (25.0, 10.0, 40.0, 20.0, True)
    peers.draw(store, tmp_path)
    assert "aim" in report.peers_section(tmp_path, [row])


def test_the_attainable_rate_is_the_highest_and_says_at_what_latency():
    rates = {1: 100.0, 8: 500.0, 32: 450.0}

    class Net:
        def load(self, host, *, writes, outstanding, seconds, dirty_ttl):
            assert (host, writes, seconds, dirty_ttl) == ("h1", 25, 0.1, 0)
            return {
                "queriesPerSecond": rates[outstanding],
                "latencyMicros": {"p50": outstanding},
                "outstanding": outstanding,
            }

    assert attainable(Net(), "h1", 25, Options(0.1, (1, 8, 32))) == {"y": 500.0, "p50_us": 8, "outstanding": 8}


def test_the_systems_take_turns_in_being_first():
    first = {point.repetition: point.system for point in reversed(points([DISTANCE], ["interp"], 2))}
    assert first == {0: "NetCRAQ", 1: "NetChain"}


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
