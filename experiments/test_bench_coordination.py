# SPDX-License-Identifier: Apache-2.0
"""The servers that experiments/bench_coordination.py starts, and the evaluation of its
measurements.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("rich")

from rich.console import Console

from experiments import bench_coordination as coordination
from experiments.one_load import Failed, run

LOADS = ("calm", "busy")


def test_what_is_not_installed_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    left_out: dict[str, str] = {}
    with coordination.others(tmp_path, left_out) as others:
        assert others.running == []
        assert others.etcd() == ""
        found = coordination.coordinators({"node": "/s"}, 1, others, "")
    assert [each.address for each in found] == ["/s"]
    assert left_out == {
        "coordination by etcd": "etcd is not on PATH",
        "coordination by consul": "consul is not on PATH",
    }


@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed")
def test_an_etcd_serves_and_nothing_of_it_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "consul" else which(name))
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(coordination, "MEMORY", memory)
    left_out: dict[str, str] = {}
    with coordination.others(tmp_path, left_out) as others:
        assert [other.kind for other in others.running] == ["etcd", "etcd"]
        found = coordination.coordinators({"node": "/s", "durable": "/d"}, 1, others, "/real")
        assert [each.kind for each in found] == ["node", "node", "node", "etcd", "etcd"]
        assert found[2].address == "/d"
        assert set(found[2].servers) == {1, others.running[0].process.pid}
        with urllib.request.urlopen(others.etcd() + "/version", timeout=10) as answer:
            assert json.loads(answer.read())["etcdserver"].startswith("3.")
    assert all(other.process.poll() is not None for other in others.running)
    assert list(tmp_path.iterdir()) == [memory]
    assert list(memory.iterdir()) == []


def test_a_server_that_ends_is_told() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], text=True)
    process.wait()
    with pytest.raises(Failed, match="does not serve"):
        coordination.wait(coordination.Other("etcd", "etcd", process, "http://127.0.0.1:1"))


def test_the_file_system_is_that_of_the_innermost_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/with\\040space xfs rw 0 0\n"
    assert coordination.file_system("/nowhere/else", mounts) == "ext4"
    assert coordination.file_system("/tmp/x", mounts) == "tmpfs"
    assert coordination.file_system("/tmp/with space/x", mounts) == "xfs"


def test_a_load_that_fails_is_no_measurement() -> None:
    for script in ("import sys; sys.exit('no socket')", "print('ready'); import sys; input(); sys.exit('no socket')"):
        with pytest.raises(Failed, match="who: no socket"):
            run("who", [sys.executable, "-c", script], [])


def test_tables_have_medians_and_name_what_is_left_out() -> None:
    measured = {
        coordination.case("etcd", job, "calm"): [{"p50_us": p50, "p99_us": 9 * p50} for p50 in (100.0, 111.0, 999.0)]
        for job in coordination.JOBS
        if job != "watch"
    }
    console = Console(width=200, record=True, file=io.StringIO())
    for table in coordination.tables(measured, LOADS):
        console.print(table)
    text = console.export_text()
    assert "111" in text and "999" in text  # the median of p50s, and of p99s: 9 * 111
    assert "left out" in text
    assert "a calm machine" in text and "every core busy" in text


def test_durable_keys_are_compared_within_each_repetition() -> None:
    def repetition(p50: float) -> dict[str, float]:
        return {"p50_us": p50, "p99_us": 9 * p50, "way_cpu_us": 2 * p50}

    durable = [repetition(p50) for p50 in (120.0, 130.0, 500.0)]
    etcd = [repetition(p50) for p50 in (100.0, 100.0, 100.0)]
    name = coordination.DURABLE + ", fsync on ext4)"
    measured = {
        coordination.case(name, "put", "calm"): durable,
        coordination.case("etcd, fsync on ext4", "put", "calm"): etcd,
        coordination.case("etcd, fsync on tmpfs", "put", "calm"): [repetition(1.0)] * 3,
    }
    console = Console(width=200, record=True, file=io.StringIO())
    for table in coordination.tables(measured, ("calm",)):
        console.print(table)
    text = console.export_text()
    assert text.count("1.30") == 3, text
