# SPDX-License-Identifier: Apache-2.0
"""``make timeline``: the evaluation of the answers, and a short run."""

import csv
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from experiments import timeline, timeline_run
from experiments.chain_client import digest, value_of
from experiments.chain_session import RunError
from experiments.timeline_run import Answer, Event
from topologies import p4app
from topologies.tests.conftest import why_not


def test_a_row_has_the_answers_of_its_time():
    answers = [
        Answer("get", 0.001, 0.0001),
        Answer("get", 0.019, 0.0003),
        Answer("put", 0.021, 0.002),
        Answer("get", -0.1, 1),
        Answer("get", 0.041, 1),
    ]
    first, second = timeline_run.rows(answers, 0.04)
    assert (first["reads_per_second"], first["reads_p50_ms"], first["reads_max_ms"]) == (100, 0.1, 0.3)
    assert (first["writes_per_second"], first["writes_p50_ms"]) == (0, None)
    assert (second["seconds"], second["reads_per_second"], second["writes_per_second"], second["writes_max_ms"]) == (
        0.02,
        0,
        50,
        2,
    )


def test_the_gap_counts_from_the_moment_to_the_end():
    answers = [Answer("put", at, 0.001) for at in (0.9, 1.1, 1.2, 1.5, 1.9)] + [Answer("get", 1.3, 0.001)]
    assert timeline_run.longest_gap(answers, "put", 1.0, 1.6) == 300
    assert timeline_run.longest_gap(answers, "put", 1.0, 1.9) == 400
    assert timeline_run.longest_gap(answers, "get", 1.0, 1.4) == 300
    assert timeline_run.longest_gap([], "get", 1.0, 1.4) == 400


def test_the_pause_ends_with_the_thaw_not_with_the_freeze():
    events = [
        Event(1.0, "chain.installed", "", "epoch 3: s1 -> s2, lease 200ms"),
        Event(2.0, "chain.installing", "", "epoch 4: s1 -> s2 (shadow s3), lease 200ms, frozen"),
        Event(2.1, "chain.installed", "", "epoch 4: s1 -> s2 (shadow s3), lease 200ms, frozen"),
        Event(2.2, "chain.installed", "", "epoch 5: s1 -> s2 -> s3, lease 200ms"),
    ]
    assert timeline_run.changed(events) == (2.0, 2.2)
    assert timeline_run.changed(events[:3]) is None
    assert timeline_run.changed(events[:1]) is None


def test_a_plot_of_nothing_but_an_outage(tmp_path):
    timeline.plot(timeline_run.rows([], 0.1), [Event(0.05, "killed", "s3", "")], "nobody answers", tmp_path / "x")
    assert (tmp_path / "x.png").stat().st_size > 1000
    assert "s3 killed" in (tmp_path / "x.svg").read_text()


def done(kind, key, what, asked, answered, wrong=None):
    return (SimpleNamespace(host="h1", switch="s1"), [kind, key, what, asked, answered, 1, wrong, answered - asked])


def value(number):
    return digest(value_of(timeline_run.FIRST, number))


def test_a_run_with_a_value_that_could_not_have_been_read_is_no_run():
    puts = [done("put", 7, 1, 1.0, 1.1), done("put", 7, 2, 1.2, 3.2, "lost")]
    answers = timeline_run._judge([*puts, done("get", 7, value(1), 1.3, 1.4), done("get", 7, value(2), 1.5, 1.6)], 1.0)
    assert [(answer.kind, round(answer.at, 3)) for answer in answers] == [("put", 0.1), ("get", 0.4), ("get", 0.6)]
    for read, why in (
        (done("get", 7, value(0), 1.3, 1.4), "stale, value 1 had been written before"),
        (done("get", 7, value(3), 1.3, 1.4), "a value that nobody wrote"),
        (done("get", 7, None, 1.3, 1.4, "not found"), "h1 at s1: not found"),
    ):
        with pytest.raises(RunError, match=why):
            timeline_run._judge([*puts, read], 1.0)


EVENTS = {
    "NetCRAQ": [
        "killed",
        "switch.disconnected",
        "chain.failover",
        "chain.fenced",
        "chain.installed",
        "restarted",
        "chain.copied",
        "chain.compared",
        "chain.recovered",
    ],
    "NetChain": ["killed", "failed", "around", "restarted", "recovering", "recovered"],
}


@pytest.mark.parametrize("system", timeline_run.SYSTEMS)
@pytest.mark.parametrize("switch", ["embedded", "bmv2"])
def test_a_short_run(tmp_path, switch, system):
    if reason := why_not(switch):
        pytest.skip(reason)
    out = tmp_path / "timeline"
    short = ["--system", system, "--switch", switch, "--keys", "100"]
    # With the usual lease of 200 ms a busy machine loses live members. The switch is away for
    # longer than the lease, so that the chain continues without it before it returns.
    short += ["--before", "1", "--away", "4", "--after", "1", "--lease", "1000", "--out", str(out)]
    ended = subprocess.run(
        [sys.executable, "experiments/timeline.py", *short],
        cwd=p4app.ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outages = json.loads(out.with_suffix(".json").read_text())["outages"]
    assert 0 < outages["failover_write_ms"] < 5000
    assert 0 < outages["recovery_seconds"] < 60
    assert system == "NetChain" or 0 < outages["changed_ms"] < 5000
    with out.with_suffix(".csv").open() as file:
        table = list(csv.DictReader(file))
    # the run continued until the switch had been a member for a while
    assert len(table) * timeline_run.BIN > 2 + outages["recovery_seconds"] + timeline_run.SETTLED - 0.1
    assert sum(int(row["reads_per_second"]) for row in table) * timeline_run.BIN > 300
    with (tmp_path / "timeline-events.csv").open() as file:
        kinds = [row["event"] for row in csv.DictReader(file)]
    assert [kind for kind in dict.fromkeys(kinds) if kind in EVENTS[system]] == EVENTS[system]
    for suffix in (".png", ".svg"):
        assert out.with_suffix(suffix).stat().st_size > 10_000
