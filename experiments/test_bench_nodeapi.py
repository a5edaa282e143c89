# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the measurements of experiments/bench_nodeapi.py."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from rich.console import Console

from experiments import bench_nodeapi as bench
from experiments.one_load import cpu_seconds

P50 = {bench.ECHO: 20.0, bench.JSON: 40.0, bench.COMPACT: 29.0, bench.GRPC_UNIX: 150.0, bench.GRPC_TCP: 160.0}


def measured(**changes: float) -> bench.Measured:
    """Return three repetitions of each case, the last of which is slower in all cases."""
    found: bench.Measured = {}
    for load in bench.LOADS:
        for language in bench.LANGUAGES:
            for door, p50 in P50.items():
                value = changes.get(f"{language.replace('.', '')}_{door.socket.replace('-', '')}_{door.kind}", p50)
                found[bench.case(door, language, load)] = [
                    {
                        "p50_us": value * slow,
                        "p99_us": 9 * value,
                        "client_cpu_us": value / 2,
                        "server_cpu_us": value / 4,
                    }
                    for slow in (1, 1, 5)
                ]
    return found


def missed(found: bench.Measured) -> set[str]:
    return {what for what, _, _, met in bench.judge(found) if not met}


def test_all_aims_met() -> None:
    rows = bench.judge(measured())
    assert missed(measured()) == set()
    assert len(rows) == len(bench.LOADS) * (len(bench.LANGUAGES) * 2 + 1)
    assert ("Node.js, calm: p50 of JSON to that of @grpc/grpc-js, Unix socket", "0.27", "1/3, better 1/5", True) in rows
    assert ("Go, busy: p50 of compact to that of the echo", "1.45", "1.5", True) in rows


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"Nodejs_node_json": 51.0}, "Node.js, calm: p50 of JSON to that of @grpc/grpc-js, Unix socket"),
        ({"Nodejs_grpctcp_grpc": 119.0}, "Node.js, busy: p50 of JSON to that of @grpc/grpc-js, TCP"),
        ({"Go_node_json": 51.0}, "Go, calm: p50 of JSON to that of grpc-go, Unix socket"),
        ({"Go_node_compact": 30.1}, "Go, calm: p50 of compact to that of the echo"),
    ],
)
def test_what_misses_its_aim_is_marked(change: dict[str, float], what: str) -> None:
    assert what in missed(measured(**change))


def test_the_better_aim_is_told() -> None:
    assert any(note.endswith("1/5: reached") for _, _, note, _ in bench.judge(measured(Nodejs_node_json=29.0)))


def test_what_was_left_out_is_neither_judged_nor_shown() -> None:
    found = measured()
    for load in bench.LOADS:
        for door in (bench.GRPC_UNIX, bench.GRPC_TCP):
            del found[bench.case(door, "Node.js", load)]
    assert not any("grpc-js" in what for what, *_ in bench.judge(found))
    console = Console(width=200, record=True, file=io.StringIO())
    for table in bench.tables(found, list(bench.LANGUAGES)):
        console.print(table)
    text = console.export_text()
    assert "left out" in text
    assert "every core busy" in text
    assert "600" in text and "1800" in text


def test_a_language_without_its_packages_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    missing = {"Node.js": "npm could not install its packages: no network"}
    assert bench.left_out(bench.GRPC_TCP, "Node.js", missing) == missing["Node.js"]
    assert bench.left_out(bench.JSON, "Node.js", missing) == ""
    assert bench.left_out(bench.GRPC_TCP, "Go", missing) == ""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert bench.left_out(bench.JSON, "Node.js", {}) == "Node.js is not installed"


def test_an_installation_is_done_once_and_its_failure_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "INSTALLED", tmp_path)
    wanted, stamp = tmp_path / "wanted", tmp_path / "stamp"
    wanted.write_text("1")
    count = [sys.executable, "-c", "open('ran', 'a').write('x')"]
    missing: dict[str, str] = {}
    for text in ("1", "1", "2"):
        wanted.write_text(text)
        bench.once(stamp, [wanted], count, missing, "Python")
    assert (tmp_path / "ran").read_text() == "xx"
    assert missing == {}
    fails: list[Any] = [sys.executable, "-c", "import sys; sys.exit('no such package')"]
    bench.once(tmp_path / "other", [wanted], fails, missing, "Python")
    assert "no such package" in missing["Python"]
    assert not (tmp_path / "other").exists()


def test_what_a_process_used_is_counted() -> None:
    before = cpu_seconds(os.getpid())
    sum(i * i for i in range(300_000))
    assert cpu_seconds(os.getpid()) > before
