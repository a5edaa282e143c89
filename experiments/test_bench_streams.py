# SPDX-License-Identifier: Apache-2.0
"""The measurements of experiments/bench_streams.py, and their evaluation."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments import bench_streams as bench


def measured(todo: list[bench.Case], **read: int) -> bench.Measured:
    """Return three rounds of each case, the last of which is ten times slower in all cases."""
    rates = {"push": 4000, "pull": 1000, "compact": 2000, "jetstream": 5000} | read
    return {
        case.name: {
            way: [
                {
                    "read": rates[way] // slow,
                    "appended": rates[way] // slow,
                    "broker_cpu": 0.5,
                    "producer_cpu": [0.9, 0.1],
                    "consumer_cpu": [0.2, 0.2],
                    "read_per_broker_cpu": rates[way] // slow,
                    "read_per_cpu": rates[way] // slow,
                    "others_cpu": 0.7,
                    "limit": "producer",
                }
                for slow in (1, 1, 10)
            ]
            for way in bench.WAYS
        }
        for case in todo
    }


def test_all_parts_are_measured() -> None:
    todo = bench.cases(quick=False)
    assert {case.part for case in todo} == {case.part for case in bench.cases(quick=True)}
    assert {case.chunk for case in todo} >= set(bench.CHUNKS)
    assert {case.work for case in todo} == {"count", "filter", "words", "windows"}
    assert {case.producers for case in todo} == {case.consumers for case in todo if not case.all_read_all} == {1, 2, 4}
    assert len({case.name for case in todo}) == len(todo)
    for case in todo:  # each partition has one producer, and one consumer unless all consumers read all partitions
        for among in (case.producers, case.consumers):
            all_of = [n for k in range(among) for n in bench.shares(case.partitions, among, k).split(",")]
            assert case.all_read_all or sorted(all_of) == [str(n) for n in range(case.partitions)]


def test_what_misses_its_aim_is_marked() -> None:
    todo = [bench.Case(bench.SCARCE, cores=1), bench.Case(bench.COUNTS)]

    def missed(**read: int) -> list[str]:
        return [aim.what for aim in bench.judge(todo, measured(todo, **read)) if aim.met is False]

    assert missed() == []
    assert missed(compact=2100) == ["push to compact, the broker has 1 cores"]
    assert [what.split(":")[0] for what in missed(pull=4100)] == [
        "push to pull, the broker has 1 cores",
        "push to pull, anywhere",
    ]


def test_people_are_told_of_the_limits() -> None:
    todo = [bench.Case(bench.SCARCE, cores=1)]
    found = measured(todo)
    result: dict[str, Any] = {
        "measured": found,
        "aims": [vars(aim) for aim in bench.judge(todo, found)],
        "left_out": {"half a core": "there is no cgroup"},
        "load_average": {"before": (3.0,), "after": (4.0,)},
        "cores": 2,
        "limited_by": "a cgroup's quota",
    }
    console = Console(width=200, record=True, file=io.StringIO())
    bench.show(console, todo, result)
    text = console.export_text()
    for part in ("4.0*", "left out: half a core", "not calm", "a cgroup's quota", "4.00"):
        assert part in text


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({}, "waiting"),
        ({"broker_cpu": 0.45}, "broker"),
        ({"machine": 0.97}, "machine"),
        ({"producer_cpu": [0.1, 0.9]}, "producer"),
        ({"consumer_cpu": [0.95], "machine": 1.0}, "machine, consumer"),
    ],
)
def test_what_a_run_was_limited_by(changed: dict[str, Any], limit: str) -> None:
    found = {"broker_cpu": 0.1, "machine": 0.5, "producer_cpu": [0.1, 0.1], "consumer_cpu": [0.1]}
    assert bench.limit(bench.Case(bench.SCARCE, cores=0.5), found | changed) == limit


def test_without_a_cgroup_whole_cores_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.Share, "_probe", lambda _: (None, "the broker's affinity"))
    share = bench.Share()
    assert share.can(1) and share.can(0) and not share.can(0.5)
    process = subprocess.Popen(["sleep", "60"])
    try:
        share.apply(process.pid, 1)
        assert len(os.sched_getaffinity(process.pid)) == 1
    finally:
        process.kill()
        process.wait()
    share.close()


def test_a_load_that_fails_is_no_measurement() -> None:
    with pytest.raises(bench.Failed, match="boom"):
        bench.Load([sys.executable, "-c", "import sys; sys.exit('boom')"])


@pytest.mark.skipif(not bench.COMMAND.exists(), reason="make build makes bin/netcraq-streams")
def test_a_quick_run(tmp_path: Path) -> None:
    """Run the whole bench with a few cases: each has figures, and no process remains."""
    command = [sys.executable, str(bench.ROOT / "experiments" / "bench_streams.py"), "--quick", "--seconds", "0.2"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "bench-streams.json").read_text())
    assert set(result["measured"]) | set(result["left_out"]) - {"JetStream"} == set(result["cases"])
    for name, ways in result["measured"].items():
        wanted = set(bench.Case(**result["cases"][name]).ways)
        if not bench.JETSTREAM.exists():
            wanted -= set(bench.OF_JETSTREAM)
            assert "bench-streams" in result["left_out"]["JetStream"]
        assert set(ways) == wanted
        for way, rounds in ways.items():
            assert [r["missed"] for r in rounds] == [0], (name, way)
            assert all(r["broker_cpu"] >= 0 and len(r["consumer_cpu"]) for r in rounds)
    read = [r["read"] for ways in result["measured"].values() for rounds in ways.values() for r in rounds]
    assert sum(n > 0 for n in read) > len(read) / 2  # in so short a time on a busy machine a consumer may read nothing
    assert (tmp_path / "bench-streams.svg").stat().st_size > 1000
    assert "push to pull" in done.stdout
    for group in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        assert not list(group.glob(f"netcraq-bench-{result['pid']}")), "a cgroup was left behind"
