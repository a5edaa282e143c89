# SPDX-License-Identifier: Apache-2.0
"""``make bench``: the shortest possible run, and the evaluation of its figures."""

import json
import os
import subprocess
import sys

import pytest

from experiments import bench
from topologies import p4app
from topologies.tests.conftest import why_not


def measured(engine, rate, p50=1.0, mode="throughput", case="one switch: read", bits=128):
    """Return one measurement, as a load run reports it."""
    return {
        "engine": engine,
        "bits": bits,
        "case": case,
        "mode": mode,
        "queries_per_second": rate,
        "p50_us": p50,
        "p99_us": 2 * p50,
        "sent_again": 1,
    }


def test_a_case_has_the_median_and_the_spread_of_its_repetitions():
    [row] = bench.summarise([measured("interp", rate) for rate in (300, 100, 200)])
    assert (row["queries_per_second"], row["slowest"], row["fastest"], row["repetitions"], row["sent_again"]) == (
        200,
        100,
        300,
        3,
        3,
    )


def test_ratios_are_to_bmv2_and_to_the_reflector_at_the_same_hook():
    rows = [
        measured("ebpf xdp", 800),
        measured("BMv2", 20, p50=50),
        measured("reflector xdp", 1000, case="reflector"),
        measured("reflector tc", 9, case="reflector"),
    ]
    row = next(row for row in bench.summarise(rows) if row["engine"] == "ebpf xdp")
    assert row["throughput_to_bmv2"] == 40
    assert row["p50_to_bmv2"] == 0.02
    assert row["share_of_ceiling"] == 0.8


@pytest.mark.parametrize(("rate", "met"), [(20.0, True), (19.9, False)])
def test_an_aim_that_is_missed_is_said_to_be(rate, met):
    rows = bench.summarise([measured("ebpf tc", rate), measured("BMv2", 1.0)])
    assert [(value, reached) for text, value, _, reached in bench.aims(rows, []) if "20 times" in text] == [(rate, met)]


def test_the_programs_alone_are_compared_at_their_own_hook():
    alone = [
        {"program": "tc/reflector", "ns_per_packet": 40.0},
        {"program": "tc/128/READ", "ns_per_packet": 81.0},
        {"program": "xdp/128/READ", "ns_per_packet": 1.0},
    ]
    [(text, value, _, met)] = bench.aims([], alone)
    assert "ebpf tc, 128 bits" in text
    assert (round(value, 2), met) == (2.02, False)


def test_wrong_and_missing_answers_are_no_measurement():
    good = {"wrong": 0, "failed": 0, "lost": 0, "queries": 1000}
    for spoilt in ({"wrong": 1}, {"failed": 11}, {"lost": 11}):
        done = subprocess.CompletedProcess([], 0, json.dumps(good | spoilt), "")
        with pytest.raises(bench.Failed):
            bench.checked(done, ["load"])
    assert bench.checked(subprocess.CompletedProcess([], 0, json.dumps(good), ""), ["load"]) == good


@pytest.mark.timeout(900)  # a minute if nothing else runs
def test_a_short_run(tmp_path):
    if reason := why_not("embedded"):
        pytest.skip(reason)
    out = tmp_path / "bench.json"
    small = [
        "--quick",
        "--seconds",
        "0.5",
        "--bits",
        "128",
        "--chains",
        "1",
        "--engines",
        "ebpf tc,interp",
        "--out",
        str(out),
    ]
    # The run gets its own network namespace; bench.py makes another for each network.
    done = subprocess.run(
        [sys.executable, "experiments/bench.py", *small],
        cwd=p4app.ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert {row["engine"] for row in result["rows"]} == {"ebpf tc", "interp", "reflector tc", "reflector xdp"}
    assert {row["mode"] for row in result["rows"]} == {"throughput", "serial", "serial, socket"}
    assert all(row["queries_per_second"] > 20 for row in result["rows"])
    assert not result["failures"]
    assert "reflector" in done.stdout
    alone = [row["program"] for row in result["programs"]]
    assert {"tc/reflector", "tc/128/READ", "tc/128/READ_leased", "tc/128/WRITE"} <= set(alone)
    assert all(name.startswith(("tc/128/", "tc/reflector")) for name in alone), alone  # only the requested ones
