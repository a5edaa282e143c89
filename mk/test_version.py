# SPDX-License-Identifier: Apache-2.0
"""There is one version, and `version.py set` writes another one everywhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import version

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tree(tmp_path):
    """A checkout with copies of the files that contain the version."""
    files = {path for path, *_ in version.places(ROOT)} | {ROOT / version.SOURCE, ROOT / "mk" / "version.py"}
    for path in files:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def run(tree, *arguments):
    """Runs the script of a tree; returns its output and its exit code."""
    done = subprocess.run([sys.executable, tree / "mk" / "version.py", *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode


def test_here():
    """All files of this tree have the same version."""
    now = (ROOT / version.SOURCE).read_text().strip()
    assert version.check(ROOT, now) == []


def test_set(tree):
    """A release candidate is written everywhere, for Python in PEP 440's spelling."""
    assert run(tree, "set", "7.8.9-rc1") == ("", 0)
    assert run(tree) == ("7.8.9-rc1\n", 0)
    assert run(tree, "check") == ("", 0)
    assert 'version = "7.8.9rc1"' in (tree / "client/python/pyproject.toml").read_text()
    assert "github.com/netcraq/netcraq/api v7.8.9-rc1" in (tree / "client/go.mod").read_text()
    assert "golang.org/x/net v0." in (tree / "client/go.mod").read_text()


@pytest.mark.parametrize("name", ["client/js/package.json", "client/java/netcraq-flink/pom.xml", "client/go.mod"])
def test_differs(tree, name):
    """A file with another version is reported, with the command that fixes it."""
    now = (tree / version.SOURCE).read_text().strip()
    path = tree / name
    path.write_text(re.sub(re.escape(now), "9.9.9", path.read_text(), count=1))
    said, code = run(tree, "check")
    assert code == 1 and f"{name}: has the version 9.9.9" in said and f"set {now}" in said


@pytest.mark.parametrize("bad", ["1.0", "v1.0.0", "1.0.0+build", "01.0.0", "1.0.0-next"])
def test_refused(tree, bad):
    """A malformed version is refused, and nothing is written."""
    said, code = run(tree, "set", bad)
    assert code == 2 and "is not MAJOR.MINOR.PATCH" in said
    assert run(tree, "check") == ("", 0)
