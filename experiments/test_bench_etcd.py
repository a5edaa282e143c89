# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the measurements of experiments/bench_etcd.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from experiments import bench_etcd


def load(rate: float, latency: float, **more: float) -> list[dict[str, float]]:
    """Return three repetitions of a way; in the last one the machine was busy for every way."""
    one = {"queries_per_second": rate, "read_p50_us": latency, "read_p99_us": 3 * latency, "write_p50_us": 2 * latency}
    one |= {"hit_rate": 0.0, "etcd_cpu_us_per_query": 200.0} | more
    busy = one | {name: one[name] * by for name, by in (("queries_per_second", 0.5), ("read_p50_us", 2.0))}
    return [dict(one), dict(one), busy]


def measured(**changes: Any) -> dict[str, Any]:
    mix = {
        "etcd": load(5000, 900),
        "gateway": load(6000, 500, hit_rate=0.6, etcd_cpu_us_per_query=120.0),
        "direct": load(9000, 90),
        "grpc-proxy": load(4000, 1100),
    }
    own = {way: [{"rate": rate, "p50": p50}] for way, rate, p50 in (("etcd", 10_000, 500.0), ("gateway", 9_000, 600.0))}
    own["grpc-proxy"] = [{"rate": 8_000, "p50": 700.0}]
    result: dict[str, Any] = {
        "load": {"few": copy.deepcopy(mix), "many": mix},
        "warm_up": {"seconds_to_half": 12.4},
        "one_at_a_time_us": {
            "etcd": [400.0, 420.0, 2000.0],
            "gateway": [90.0, 100.0, 900.0],
            "direct": [9.0, 12.0, 14.0],
            "native": [8.0, 10.0, 11.0],
        },
        "unplaced": {"ranges": own},
    }
    for path, value in changes.items():
        at = result
        *way, last = path.split("__")
        for step in way:
            at = at[step]
        for one in at if isinstance(at, list) else [at]:
            one[last] = value
    return result


def missed(result: dict[str, Any]) -> list[str]:
    return [what.strip() for what, _, _, mark in bench_etcd.judge(result) if mark == "MISSED"]


def test_all_aims_met() -> None:
    rows = bench_etcd.judge(measured())
    assert missed(measured()) == []
    text = bench_etcd.table(rows)
    for part in (
        "12 s",
        "60 %",
        "420 µs",
        "100.0 µs, 0.238 of that",
        "12.0 µs, 0.029 of that",
        "10.0 µs, 0.024 of that",
        "5,000 queries/s",
        "1.20 of that; reads' p50 0.56",
        "0.90",
        "1.12, 0.86",
    ):
        assert part in text, (part, text)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"warm_up__seconds_to_half": None}, "until half of the reads are hits"),
        ({"warm_up__seconds_to_half": 30.1}, "until half of the reads are hits"),
        ({"load__few__gateway__hit_rate": 0.49}, "hits of the gateway's reads"),
        ({"load__few__gateway__queries_per_second": 2499.0}, "gateway"),
        ({"load__many__direct__queries_per_second": 2249.0}, "direct"),
        ({"one_at_a_time_us__gateway": [105.5]}, "through the gateway"),
        ({"one_at_a_time_us__direct": [13.0]}, "by client/etcd"),
        ({"one_at_a_time_us__native": [21.5]}, "by the native client"),
        ({"load__many__gateway__etcd_cpu_us_per_query": 200.0}, "etcd's processor time, behind the gateway"),
        ({"unplaced__ranges__gateway__rate": 8_400.0}, "the gateway's rate"),
        ({"unplaced__ranges__gateway__p50": 660.0}, "its p50"),
        ({"unplaced__ranges__grpc-proxy__rate": 9_100.0}, "rate and p50 by grpc-proxy's"),
    ],
)
def test_what_misses_its_aim_is_marked(change: dict[str, Any], what: str) -> None:
    assert missed(measured(**change)) == [what]


def test_what_was_not_measured_is_left_out() -> None:
    """Only make bench-etcd builds etcd's own benchmark."""
    assert missed(measured(unplaced={})) == []


def test_a_proxy_that_hangs_is_a_line_of_the_report() -> None:
    result = measured()
    ways = result["unplaced"]["ranges"]
    for way in ("etcd", "gateway", "grpc-proxy"):
        ways[way] = [dict(ways[way][0]) for _ in range(3)]
    ways["grpc-proxy"][1] = {"failed": "not at its end after 60 s"}
    text = bench_etcd.table(bench_etcd.judge(result))
    assert "2 of 3" in text
    assert "1.12, 0.86" in text, "of the two that ended"
    ways["grpc-proxy"] = [{"failed": "not at its end after 60 s"}] * 3
    text = bench_etcd.table(bench_etcd.judge(result))
    assert "0 of 3" in text
    assert "by grpc-proxy's" not in text
    assert missed(result) == []


def test_parts_that_were_measured_before_the_run_ended_are_shown() -> None:
    result = measured()
    del result["one_at_a_time_us"], result["unplaced"], result["warm_up"]
    text = bench_etcd.table(bench_etcd.judge(result))
    assert "5,000 queries/s" in text
    assert "a hot read" not in text
