# SPDX-License-Identifier: Apache-2.0
"""The measurements of experiments/bench_arrow.py, and their evaluation."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from experiments import bench_arrow as bench


def measured(todo: list[bench.Case], **mib: float) -> bench.Measured:
    """Return three rounds of each case, the last of which is ten times slower in all cases."""
    return {
        case.name: {
            way: [
                {
                    "mib": mib.get(way, 100.0) / slow,
                    "mib_per_cpu": mib.get(way, 100.0) / slow,
                    "cpu": 1.5,
                    "cpu_server": 0.25,
                    "copied": 1 << 20,
                    "pss": 100.0 + 50 * case.count,
                    "files": 64.0,
                }
                for slow in (1, 1, 10)
            ]
            for way in bench.WAYS[case.part]
        }
        for case in todo
    }


@pytest.fixture(autouse=True)
def no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the memory of a program before its work, as if it had been measured."""
    monkeypatch.setattr(bench, "PROGRAM", [50.0])


def test_all_parts_are_measured() -> None:
    todo = bench.cases(quick=False)
    assert {case.part for case in todo} == {case.part for case in bench.cases(quick=True)} == set(bench.WAYS)
    assert {case.count for case in todo if case.part == bench.CONSUMERS} == {1, 2, 4, 8, 16}
    assert {case.count for case in todo if case.part == bench.CHAIN} == {1, 2, 4, 8}
    assert len({case.name for case in todo}) == len(todo)


def test_what_misses_its_aim_is_marked() -> None:
    todo = [bench.Case(bench.CONSUMERS, n) for n in (1, 8)]
    aims = {aim.what: aim for aim in bench.judge(todo, measured(todo, sealed=299, rewritable=300))}
    assert aims["sealed to ipc, 8 consumers: by the clock"].met is False
    assert aims["rewritable to ipc, 8 consumers: by the clock"].met is True
    assert aims["rewritable to ipc, 8 consumers: by the clock"].measured == "3.00 (3.00 to 3.00)"
    assert aims["rewritable to ipc, 1 consumers: by the clock"].met is None
    # Of 150 MiB the two programs account for 100, and of 500 MiB the nine programs account for 450.
    assert aims["sealed: PSS of all, 1 and 8 consumers, without programs"].measured == "50 and 50 MiB"


def test_a_chain_is_joined() -> None:
    """Each step reads the output of the step before it, in each way."""
    for way in bench.WAYS[bench.CHAIN]:
        started = list(bench.processes(bench.Case(bench.CHAIN, 3), way, "/d", "/d/s"))
        assert [role for role, _ in started] == ["first", "step", "step", "step", "last"]
        options = [dict(itertools.pairwise(o)) for _, o in started]
        assert [o.get("--source") for o in options[1:]] == [o.get("--to") for o in options[:-1]]


def test_it_says_what_it_found() -> None:
    todo = bench.cases(quick=True)
    found = measured(todo, sealed=200)
    result = {
        "measured": found,
        "aims": [vars(aim) for aim in bench.judge(todo, found)],
        "load_average": {"before": (1.0, 0, 0), "after": (2.0, 0, 0)},
        "cores": 2,
    }
    out = io.StringIO()
    bench.show(Console(file=out, width=150), todo, result)
    text = out.getvalue()
    for word in ("one input, many consumers", "a chain of steps", "the cache, of Parquet", "2.00"):
        assert word in text


def test_it_measures(tmp_path: Path) -> None:
    """Run a real measurement of one part, as short as possible."""
    pytest.importorskip("pyarrow", reason="Arrow has tests of its own: make test-arrow")
    if not bench.COMMAND.exists():
        pytest.skip(f"there is no {bench.COMMAND}: make build")
    command = [sys.executable, bench.__file__, "--quick", "--parts", "chain", "cache", "--out", str(tmp_path)]
    subprocess.run(command, check=True, timeout=240, capture_output=True)
    result = json.loads((tmp_path / "bench-arrow.json").read_text())
    for ways in result["measured"].values():
        for (found,) in ways.values():
            assert found["mib"] > 0
            assert found["cpu"] > 0
            assert found["pss"] > 0
    (chain,) = (m for name, m in result["measured"].items() if bench.CHAIN in name)
    assert chain["references"][0]["shared"] > 2 * chain["references"][0]["copied"]  # three columns of four
    assert chain["copies"][0]["shared"] == 0
    assert (tmp_path / "bench-arrow.png").stat().st_size > 1000


def alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(what: str, done: Callable[[], bool]) -> None:
    """Wait until ``done`` returns true."""
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left(tmp_path: Path, how: signal.Signals) -> None:
    """A killed benchmark leaves no process behind, and a terminated one leaves no file behind
    either.
    """
    pytest.importorskip("pyarrow", reason="Arrow has tests of its own: make test-arrow")
    if not bench.COMMAND.exists():
        pytest.skip(f"there is no {bench.COMMAND}: make build")
    command = [sys.executable, bench.__file__, "--seconds", "60", "--parts", "chain", "--out", str(tmp_path / "out")]
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")})
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until("the broker and three programs to be there", lambda: len(children.read_text().split()) >= 4)
        begun = [int(pid) for pid in children.read_text().split()]
        process.send_signal(how)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    until("all to have ended", lambda: not any(map(alive, begun)))
    if how == signal.SIGTERM:
        assert not list((tmp_path / "tmp").iterdir())
