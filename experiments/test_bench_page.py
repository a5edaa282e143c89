# SPDX-License-Identifier: Apache-2.0
"""A benchmark's file becomes a section of a page of docs/benchmarks/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import bench_page, provenance

RUN = {
    "date": "2026-11-30 13:00 UTC",
    "command": "experiments/bench_cores.py --turns 6",
    "load_average": 0.4,
    "commit": "abc",
    "kernel": "6.18.1",
    "cpu": "2 of 2 x EPYC",
}
TURN = {"first": 100.0, "second": 300.0, "both": 380.0}


def file(folder: Path, name: str, result: dict[str, Any]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result))
    return path


def test_a_run_has_its_origin_and_its_table(tmp_path: Path) -> None:
    path = file(tmp_path, "bench-cores", {"run": RUN, "turns": {"ebpf tc": {"reads": [TURN] * 8}}})
    text = bench_page.page(path)
    assert text.startswith(
        "### Run of 2026-11-30\n\n- `experiments/bench_cores.py --turns 6`, 13:00 UTC\n- commit abc\n"
    )
    assert "| ebpf tc, reads | 200 | 380 | 1.90 (1.90 to 1.90) |" in text
    assert "load average 0.4" in text


def test_cells_stay_in_their_columns() -> None:
    lines = bench_page.markdown(bench_page.columns([("a\nb", "c"), ("x | y", "z")]))
    assert lines == ["| a b | c |", "| --- | --- |", "| x \\| y | z |", ""]


@pytest.mark.parametrize(
    ("name", "result", "why"),
    [("report", {}, "no benchmark writes"), ("bench-cores", {"turns": {}}, "does not say where")],
)
def test_a_file_that_is_not_a_run_is_refused(tmp_path: Path, name: str, result: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bench_page.page(file(tmp_path, name, result))


def test_the_benchmarks_that_the_index_names_are_known() -> None:
    index = (provenance.ROOT / "docs" / "benchmarks" / "README.md").read_text()
    for name in bench_page.BENCHES:
        assert f"out/{name}.json" in index, name


def test_a_record_has_what_a_page_prints() -> None:
    assert RUN.keys() <= provenance.record().keys()
