# SPDX-License-Identifier: Apache-2.0
"""``make hot-keys`` and ``make bench-etcd``: etcd, the gateway, Prometheus, the controller and the
switches together.
"""

import json
import shutil
import subprocess
import sys

import pytest

from experiments import gain
from topologies import network_namespaces, p4app
from topologies.tests.conftest import processes_here, why_not

OUTSTANDING = 8
"""The number of outstanding requests of bench_etcd.py's load."""
BENCHMARK = p4app.ROOT / "bin" / "etcd-benchmark"


@pytest.fixture
def hot_keys(tmp_path):
    """Return a function that runs the script in a namespace of its own."""
    if reason := why_not("embedded"):
        pytest.skip(reason)
    for program in ("etcd", "prometheus"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on PATH (make deps installs Debian's package)")

    def run(*arguments, script="hot_keys.py"):
        command = [
            sys.executable,
            str(p4app.ROOT / "experiments" / script),
            "--out",
            str(tmp_path / "hot-keys.json"),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=p4app.ROOT)
        return done, tmp_path / "hot-keys.json"

    with network_namespaces.private():
        yield run
        assert processes_here() == []
        links = subprocess.run(["ip", "-j", "link"], check=True, capture_output=True, text=True).stdout
        assert [link["ifname"] for link in json.loads(links)] == ["lo"]


def test_hot_keys_come_into_the_network(hot_keys):
    done, out = hot_keys("--keys", "300", "--outstanding", "4", "--after", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["ok"] is True
    first, last = result["seconds"][0], result["seconds"][-3:]
    assert first["hit_rate"] == 0 and first["placed"] == 0
    # A switch was killed and has returned. Other programs may take the machine for any single
    # second.
    assert max(second["hit_rate"] or 0 for second in last) >= 0.4 and last[-1]["placed"] > 20
    assert {f"/bench/{n:08}" for n in range(10)} <= {key["key"] for key in result["placed"]}
    assert "chain.failover" in done.stdout and "chain.recovered" in done.stdout


def test_too_little_time_is_a_failure_that_gives_reasons(hot_keys):
    done, out = hot_keys("--keys", "50", "--outstanding", "2", "--seconds", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "did not come to answer 50 % of the reads within 2 s" in done.stdout
    assert json.loads(out.read_text())["ok"] is False


def test_the_bench_measures_all_ways(hot_keys):
    done, out = hot_keys("--keys", "200", "--seconds", "1", "--repetitions", "1", script="bench_etcd.py")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["warm_up"]["seconds_to_half"] is not None, result["warm_up"]
    # Moves continue during the measured second: on a busy machine the share may be a third.
    assert len(result["load"]) == 2
    for ways in result["load"].values():
        one = {way: repetitions[0] for way, repetitions in ways.items()}
        assert one["gateway"]["hit_rate"] >= 0.1 > one["etcd"]["hit_rate"] == 0
        # On such a machine each outstanding request may fail once while keys are moved.
        assert all(load["failed"] <= OUTSTANDING for load in one.values()), one
    one = {way: values[0] for way, values in result["one_at_a_time_us"].items()}
    assert one["native"] < one["gateway"] < one["etcd"] > one["direct"], one
    # Only make bench-etcd builds etcd's own benchmark: if it is missing, the output says so.
    assert set(result["unplaced"]) == ({"ranges", "puts"} if BENCHMARK.exists() else set())
    assert ("is not built" in done.stdout) != BENCHMARK.exists()
    assert "by the native client" in done.stdout


def test_the_second_half_of_make_run_shows_the_gain(hot_keys):
    done, out = hot_keys("--keys", "100", "--seconds", "1", script="gain.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 48 and "\x1b" not in done.stdout, done.stdout
    for row in (*gain.WAYS.values(), "etcd's concurrency package", "node API, by the switches", "through the gateway"):
        assert any(line.startswith(row + "  ") for line in lines), f"{row}: {done.stdout}"
    result = json.loads(out.read_text())
    hot = result["hot"]
    assert hot["etcd"]["by_network"] == hot["from_etcd"]["by_network"] == 0
    for way in ("gateway", "direct", "native"):  # etcd also answers when leases expire on a busy machine
        assert hot[way]["by_network"] >= 0.5 * hot[way]["reads"] > 0, (way, hot[way])
    assert result["placed"]["share"] >= gain.ENOUGH
    assert result["lock"]["node"]["calls"] > 0 < result["lock"]["etcd"]["calls"]
    killed = result["failover"]
    assert killed["switch"] == "s3"
    for load in killed["loads"].values():
        assert load["get"]["requests"] > load["put"]["requests"] > 0
        assert load["put"]["longest_ms"] > 10, "nothing waited, though a member of the chain was killed"
