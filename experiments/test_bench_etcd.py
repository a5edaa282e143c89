# SPDX-License-Identifier: Apache-2.0
"""What experiments/bench_etcd.py makes of what was measured."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from experiments import bench_etcd


def measured(**changes: Any) -> dict[str, Any]:
    result = {
        "load": {
            "etcd": {"read_p50_us": 900.0, "queries_per_second": 5000, "etcd_cpu_us_per_query": 200.0},
            "gateway": {
                "read_p50_us": 500.0,
                "queries_per_second": 8000,
                "etcd_cpu_us_per_query": 120.0,
                "hit_rate": 0.6,
            },
        },
        "warm_up": {"seconds_to_half": 12.4},
        "one_at_a_time_us": {
            "etcd": [400.0, 420.0, 2000.0],
            "gateway": [130.0, 140.0, 900.0],
            "native": [8.0, 10.0, 11.0],
        },
    }
    for path, value in changes.items():
        at = result
        *way, last = path.split("__")
        for step in way:
            at = at[step]
        at[last] = value
    return result


def missed(result: dict[str, Any]) -> list[str]:
    return [what.strip() for what, _, _, mark in bench_etcd.judge(result) if mark == "MISSED"]


def test_all_aims_met() -> None:
    rows = bench_etcd.judge(measured())
    assert missed(measured()) == []
    text = bench_etcd.table(rows)
    for part in ("12 s", "60 %", "420 µs", "140 µs, 0.33 of that", "10.0 µs, 0.024 of that", "120 µs, 0.60 of 200"):
        assert part in text, text


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"warm_up__seconds_to_half": None}, "until half of the reads are hits"),
        ({"warm_up__seconds_to_half": 30.1}, "until half of the reads are hits"),
        ({"load__gateway__hit_rate": 0.49}, "hits under load after that"),
        ({"one_at_a_time_us__gateway": [211.0]}, "through the gateway"),
        ({"one_at_a_time_us__native": [21.5]}, "by the native client"),
        ({"load__gateway__etcd_cpu_us_per_query": 200.0}, "etcd's processor time for a query"),
    ],
)
def test_what_misses_its_aim_is_marked(change: dict[str, Any], what: str) -> None:
    assert missed(measured(**change)) == [what]
