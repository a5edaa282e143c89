# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the measurements of pipelets."""

from __future__ import annotations

from experiments import bench_pipelets


def found(scale: float, read: int) -> dict:
    return {
        "millis": [scale * p for p in range(1, 101)],
        "bytes": read,
        "stored": 1000,
        "seconds": 2.0,
        "cpu": {"clients": 1.0, "source": 0.5, "destination": 0.2},
        "busy": 0.5,
    }


def test_aims_and_pictures(tmp_path):
    rounds = [
        {"poll 1s": found(10, 9000), "poll 100ms": found(1, 9000), "apart": found(2, 9500), "merged": found(0.3, 1100)}
    ]
    aims = bench_pipelets.aims(rounds)
    assert [(aim.measured, aim.met) for aim in aims] == [
        ("0.03", True),
        ("0.03", True),
        ("0.03", True),
        ("0.30", True),
        ("0.30", True),
        ("0.30", False),
        ("1.10 times", True),
        ("9.5 times", None),
    ]
    assert bench_pipelets.table(rounds).row_count == 4
    for file in bench_pipelets.draw(rounds, tmp_path):
        assert file.stat().st_size > 1000
