# SPDX-License-Identifier: Apache-2.0
"""What is made of the measurements of the controller."""

from __future__ import annotations

import pytest

from experiments import bench_controller


def found(switches: int, power: float, expired: int = 0) -> dict:
    times = ("ready", "filled", "fillCPU", "restCPU", "switchesCPU", "failover", "failoverLast", "back")
    return {
        **{name: 0.01 * switches**power for name in (*times, "takeover", "restart")},
        **{name: switches for name in ("switches", "writes", "memory", "record", "largest")},
        "chains": switches // 10,
        "members": switches // 5,
        "used": switches // 20,
        "leaseMillis": 200,
        "looks": 1500,
        "expired": expired,
        "failoverLooks": 300,
        "failoverExpired": 0,
    }


def test_exponent():
    assert bench_controller.exponent([(10, 5), (100, 50), (1000, 500)]) == pytest.approx(1)
    assert bench_controller.exponent([(10, 1), (100, 100)]) == pytest.approx(2)
    assert bench_controller.exponent([(10, 1), (10, 2)]) is None
    assert bench_controller.exponent([(10, 0), (100, 1)]) is None


def test_the_table_has_medians_and_exponents():
    rounds = [[found(10, 1, expired=1), found(100, 1)], [found(10, 1, expired=2), found(100, 1)]]
    table = bench_controller.table(rounds)
    rows = {cells[0]: cells[1:] for cells in zip(*(column.cells for column in table.columns), strict=True)}
    assert rows["all chains ready (s)"] == ("0.10", "1.00", "1.00")
    assert rows["leases that had run out, of those read at rest"] == ("3 of 3,000", "0 of 3,000", "")
    assert rows["chains"] == ("1", "10", "")
    assert len(rows) == table.row_count
