# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the gateway's metrics and the load's reports by experiments/hot_keys.py."""

from __future__ import annotations

import sys
import urllib.request
from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from netcraq.admin import AdminError

from experiments import etcd_network, hot_keys
from experiments.etcd_network import EtcdNetwork

METRICS = """# TYPE etcd_monitor_reads_total counter
etcd_monitor_reads_total{answered="forwarded",reason="not placed"} 40
etcd_monitor_reads_total{answered="miss",reason="clear"} 8
etcd_monitor_reads_total{answered="miss",reason="guard"} 2
etcd_monitor_reads_total{answered="network",reason=""} 1.5e+02
etcd_monitor_requests_total{kind="get"} 200
"""


class FakeAdmin:
    """A controller with keys in two chains."""

    def placement(self) -> dict[str, Any]:
        return {"chains": [{"placed": 3}, {"placed": 4}]}


class FakeChain:
    def __init__(self) -> None:
        self.admin = FakeAdmin()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> hot_keys.Story:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: BytesIO(METRICS.encode()))
    network = EtcdNetwork(tmp_path)
    network.net = FakeChain()  # type: ignore[assignment]
    made = hot_keys.Story(hot_keys.arguments().parse_args([]), network)
    latency = {"p50": 80.0, "p99": 900.0}
    made.load = lambda *_: {
        "queriesPerSecond": 1234.4,
        "failed": 1,
        "lost": 2,
        "ops": {"get": {"latencyMicros": latency}},
    }  # type: ignore[method-assign]
    return made


def test_counts_are_of_reads_by_who_answered(story: hot_keys.Story) -> None:
    assert story.network.counted() == {"forwarded": 40, "miss": 10, "network": 150}


def test_a_row_is_what_is_new(story: hot_keys.Story) -> None:
    story.before = {"forwarded": 30, "miss": 10, "network": 120}
    figures = story.row()
    assert figures == {
        "second": 1,
        "queries_per_second": 1234,
        "hit_rate": 0.75,
        "read_p50_us": 80.0,
        "read_p99_us": 900.0,
        "failed": 3,
        "placed": 7,
    }
    assert hot_keys.line(figures).split() == ["1", "1,234", "75.0", "%", "80", "900", "7", "3"]
    assert story.row()["hit_rate"] is None  # there were no reads
    assert "-" in hot_keys.line(story.seconds[-1])


def test_a_controller_that_stands_by_is_asked_again(story: hot_keys.Story, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [AdminError("unavailable", "this controller stands by"), AdminError("unavailable", "stands by")]

    def placement() -> dict[str, Any]:
        if errors:
            raise errors.pop()
        return {"chains": [{"placed": 3}]}

    monkeypatch.setattr(story.network.net.admin, "placement", placement)
    assert story.row()["placed"] == 3
    assert not errors

    errors.append(AdminError("unauthenticated", "no token"))
    with pytest.raises(AdminError, match="no token"):
        story.row()


def test_enough_is_enough_for_some_rows(story: hot_keys.Story) -> None:
    for rate, least in ((0.9, 0.0), (0.8, 0.0), (0.6, 0.6), (None, 0.0), (0.7, 0.0), (0.7, 0.0), (0.7, 0.7)):
        story.seconds.append({"hit_rate": rate})
        assert story.hits() == least


def test_a_chain_must_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hot_keys.py", "--nodes", "2"])
    with pytest.raises(SystemExit, match="--nodes"):
        hot_keys.main()


def test_with_keep_the_load_goes_on_until_ctrl_c(story: hot_keys.Story, capsys: pytest.CaptureFixture[str]) -> None:
    load, rows = story.load, 0

    def interrupted(*arguments: str) -> dict[str, Any]:
        nonlocal rows
        rows += 1
        if rows > 5:
            raise KeyboardInterrupt
        return load(*arguments)

    story.load = interrupted  # type: ignore[method-assign]
    story.keep()
    assert len(story.seconds) == 5
    assert len(capsys.readouterr().out.splitlines()) == 2 + 5  # its output before and after
    assert hot_keys.arguments().parse_args(["--keep"]).keep


def test_etcd_is_the_one_that_make_builds_if_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(etcd_network.p4app, "ROOT", tmp_path)
    assert etcd_network.etcd_program() == "etcd"  # on PATH
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "etcd").touch()
    assert etcd_network.etcd_program() == str(tmp_path / "bin" / "etcd")
