# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the measurements of experiments/bench_streams_latency.py."""

from __future__ import annotations

import io
from typing import Any

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from rich.console import Console

from experiments import bench_streams_latency as bench


def rounds(push: float, ways: tuple[str, ...] = tuple(bench.WAYS)) -> bench.Rounds:
    """Return three rounds, the last of which is slow in all ways."""

    def way(name: str, slow: float) -> dict[str, Any]:
        p50 = (push if name == "push" else 1000.0) * slow
        return {f"{what}_us": {"p50": p50, "p99": 3 * p50} for what in bench.WHAT} | {"writes": 10}

    return [{name: way(name, slow) for name in ways} for slow in (1, 1, 7)]


def test_the_aim_is_a_tenth_of_etcds_watch() -> None:
    for push, met in ((99.0, True), (101.0, False)):
        aim = bench.judge(rounds(push))
        assert aim is not None
        assert aim["met"] is met
        assert aim["p50"] == pytest.approx(push / 1000)


def test_without_etcd_nothing_is_judged() -> None:
    assert bench.judge(rounds(99.0, ("push", "watch"))) is None


def test_people_are_shown_medians() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(bench.table(rounds(99.0)))
    text = console.export_text()
    assert "99" in text and "297" in text and "1000" in text and "693" not in text
