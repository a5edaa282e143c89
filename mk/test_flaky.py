# SPDX-License-Identifier: Apache-2.0
"""Tests the record of tests that failed once."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture
def run(tmp_path):
    """Runs a copy of the script in its own tree; returns its output, exit code and rows."""
    (tmp_path / "mk").mkdir()
    script = tmp_path / "mk" / "flaky.py"
    script.write_text((HERE / "flaky.py").read_text())

    def run(*arguments):
        done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)
        out = tmp_path / "out" / "flaky.csv"
        return done.stdout, done.returncode, list(csv.reader(out.open()))[1:] if out.exists() else []

    return run


def test_go(run, tmp_path):
    """From gotestsum's report, each test becomes a row, and a later run appends."""
    report = tmp_path / "report"
    assert run("go", report) == ("", 0, []), "nothing was run again"
    report.write_text("example/a.TestOne: 2 runs, 1 failures\nexample/b.TestTwo/part: 2 runs, 1 failures\n")
    said, code, rows = run("go", report)
    assert code == 0
    assert "TestTwo/part" in said
    assert [row[0] for row in rows] == ["example/a.TestOne", "example/b.TestTwo/part"]
    assert len(run("go", report)[2]) == 4


def test_python(run, tmp_path):
    """From pytest's list, up to N tests are run again. If pytest itself failed, none is."""
    report = tmp_path / "lastfailed"
    assert run("python", report)[1] == 1
    report.write_text(json.dumps({"test_a.py::test_x": True, "test_a.py::test_y": True}))
    assert run("python", report, "--most", "1")[1:] == (1, [])
    assert [row[0] for row in run("python", report, "--most", "2")[2]] == ["test_a.py::test_x", "test_a.py::test_y"]
