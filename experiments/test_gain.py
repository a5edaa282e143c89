# SPDX-License-Identifier: Apache-2.0
"""The output of experiments/gain.py for its measurements."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from rich.console import Console

from experiments import gain


def hot(p50: float, p99: float) -> dict[str, Any]:
    return {"p50_us": p50, "p99_us": p99, "reads": 2000, "reads_per_second": 1000, "failed": 0, "by_network": 0}


def processor(etcd: int, gateway: int | None, client: int) -> dict[str, Any]:
    times = {"etcd_ms": etcd, "gateway_ms": gateway, "client_ms": client, "requests_per_second": 2000}
    return times | {"by_network": 0.78, "read_p50_us": 90.0, "write_p50_us": 1200.0, "failed": 0}


def died(longest: float, over: int, failed: int) -> dict[str, Any]:
    return {"requests": 1600, "longest_ms": longest, "over_10_ms": over, "failed": failed}


RECORDED: dict[str, Any] = {
    "switches": 4,
    "keys": 500,
    "hot_rate": 1000,
    "mix_rate": 2000,
    "lease_ms": 1000,
    "load_average": 0.4,
    "processors": 2,
    "hot": {
        "etcd": hot(412.2, 1204.0),
        "from_etcd": hot(601.9, 1410.3),
        "gateway": hot(187.4, 650.1),
        "direct": hot(24.91, 91.3),
        "native": hot(18.77, 80.2),
    },
    "lock": {"etcd": {"p50_us": 1824.3, "p99_us": 24150.2, "calls": 1000}, "node": {"p50_us": 182.5, "p99_us": 810.4}},
    "processor": {
        "etcd": processor(500, None, 100),
        "gateway": processor(200, 120, 90),
        "direct": processor(180, None, 110),
    },
    "failover": {
        "switch": "s3",
        "back_seconds": 1.2,
        "loads": {
            "gateway": {"get": died(212.5, 88, 0), "put": died(240.1, 31, 2)},
            "native": {"get": died(14.9, 3, 0), "put": died(197.7, 40, 0)},
        },
    },
}
"""The result of a run on a quiet machine."""


def printed(result: dict[str, Any], **terminal: Any) -> str:
    out = io.StringIO()
    gain.report(Console(file=out, width=gain.WIDTH, **terminal), result)
    return out.getvalue()


@pytest.fixture
def result() -> dict[str, Any]:
    return copy.deepcopy(RECORDED)


def test_every_row_is_there_with_what_was_measured(result: dict[str, Any]) -> None:
    rows = {line[:30].strip(): line[30:].split() for line in printed(result).splitlines()}
    assert rows["etcd's concurrency package"] == ["1,824", "24,150", "1.000"]
    assert rows["node API, by the switches"] == ["182", "810", "0.100"]
    assert rows["gateway, from etcd"] == ["602", "1,410", "1.460"]
    assert rows["gateway, from the network"] == ["187", "650", "0.455"]
    assert rows["client/etcd"] == ["180", "-", "110", "290"]  # the last table with this row
    assert rows["native client"] == ["18.8", "80.2", "0.046"]
    assert rows["through the gateway"] == ["200", "120", "90", "410"]
    assert rows["gateway, reads"] == ["212.5", "88", "0", "1,600"]
    assert rows["gateway, writes"] == ["240.1", "31", "2", "1,600"]
    assert rows["native client, reads"] == ["14.9", "3", "0", "1,600"]
    assert rows["native client, writes"] == ["197.7", "40", "0", "1,600"]
    assert "60 % saved by the gateway, 64 % saved by client/etcd" in printed(result)
    assert "s3 was a member again 1.2 s after its restart; read leases last 1,000 ms at most" in printed(result)


def test_what_is_worse_than_etcd_is_printed(result: dict[str, Any]) -> None:
    assert gain.worse(result) == ["a read, gateway, from etcd: p50 1.5 and p99 1.2 times etcd's"]
    result["hot"]["native"]["p99_us"] = 2408.0
    result["lock"]["node"]["p50_us"] = 3648.6
    result["processor"]["direct"]["etcd_ms"] = 700
    result["processor"]["gateway"]["write_p50_us"] = 1800.0
    result["load_average"] = 24.6
    result["hot"]["etcd"] |= {"failed": 3, "reads_per_second": 400}
    result["processor"]["direct"]["requests_per_second"] = 900
    found = printed(result)
    for line in (
        "a read, native client: p99 2.0 times etcd's",
        "lock and unlock, node API: p50 2.0 times etcd's",
        "40 % more by client/etcd",
        "client/etcd: etcd, gateway and client use more processor time together",
        "a write of the mix, gateway: p50 1.5 times etcd's",
        "the machine was busy before this began: load average 25, 2 processors",
        "slower than their rate, so that requests waited: etcd, mix by direct",
        "3 requests failed while nothing was killed",
    ):
        assert line in found, found


def test_it_fits_two_screens_also_at_its_worst(result: dict[str, Any]) -> None:
    for of in result["hot"].values():
        of |= {"p50_us": 9_999_999.0, "p99_us": 9_999_999.0, "failed": 999, "reads_per_second": 1}
    result["hot"]["etcd"] |= {"p50_us": 10_000.0, "p99_us": 10_000.0}
    result["lock"]["node"] = {"p50_us": 9_999_999.0, "p99_us": 9_999_999.0}
    for of in result["processor"].values():
        of |= {"etcd_ms": 99_999, "client_ms": 99_999, "write_p50_us": 999_999.0, "requests_per_second": 1}
    result["processor"]["etcd"] |= {"etcd_ms": 1000, "write_p50_us": 1000.0}
    for of in result["failover"]["loads"].values():
        for op in of.values():
            op |= {"longest_ms": 99_999.9, "over_10_ms": 99_999, "failed": 99_999, "requests": 99_999}
    result["load_average"] = 99.0
    lines = printed(result).splitlines()
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
    assert len(lines) <= 48 - 7, "the demonstration prints seven lines besides the report"


def test_without_colour_where_nobody_sees_it(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in printed(result)
    assert "\x1b[32m" in printed(result, force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(result, force_terminal=True)


def test_an_etcd_too_idle_to_measure_is_not_a_percentage(result: dict[str, Any]) -> None:
    result["processor"]["etcd"]["etcd_ms"] = 0
    assert "not measured by the gateway" in printed(result)


def test_three_switches_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["gain.py", "--nodes", "2"])
    with pytest.raises(SystemExit, match="pass 3 to 8"):
        gain.main()


def of_load(**answered: int) -> dict[str, Any]:
    """Return a load's report in which this many of 24 requests of each operation were answered."""
    ops = {
        op: {
            "queries": 24,
            "ok": ok,
            "lost": 24 - ok,
            "failed": 0,
            "over10ms": 0,
            "latencyMicros": {"p50": 0.0, "max": 0.0},
        }
        for op, ok in answered.items()
    }
    return {"queries": 24 * len(ops), "ops": ops}


def test_what_nobody_answered_is_not_a_latency() -> None:
    """A stuck way would otherwise have a median of 0, and be the fastest of all."""
    gain.check_answered(of_load(get=1, put=24), "etcd", "get", "put")
    for report, operation in ((of_load(get=0), "get"), (of_load(get=24), "put"), (of_load(get=24, put=0), "put")):
        with pytest.raises(gain.NodeError, match=f"the load by etcd got no answer to a {operation}"):
            gain.check_answered(report, "etcd", "get", operation)


def test_a_failover_without_answers_has_no_longest_one(result: dict[str, Any]) -> None:
    died = gain.cost_of_kill(of_load(put=0), "put")
    assert died == {"requests": 24, "longest_ms": None, "over_10_ms": 0, "failed": 24}
    assert gain.cost_of_kill(of_load(get=24), "put")["requests"] == 0
    result["failover"]["loads"]["gateway"]["put"] = died
    rows = {line[:30].strip(): line[30:].split() for line in printed(result).splitlines()}
    assert rows["gateway, writes"] == ["-", "0", "24", "24"]
