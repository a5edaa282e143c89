# SPDX-License-Identifier: Apache-2.0
"""What breaks programs is found, between a tag and a checkout."""

import shutil
import subprocess
from pathlib import Path

import api_diff
import process
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tree(tmp_path):
    """A repository with one module, whose first version is tagged."""
    module = tmp_path / "tree" / "api"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example.org/api\n\ngo 1.26.0\n")
    (module / "api.go").write_text("package api\n\nfunc Get(name string) {}\n\nfunc Put(name string) {}\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    commands = (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"], ["tag", "v0.1.0"], ["tag", "later"])
    for command in commands:
        subprocess.run([*git, *command], cwd=module.parent, check=True)
    return module.parent


def test_tag(tree):
    """The last version is the highest one, and other tags are none."""
    subprocess.run(["git", "tag", "v0.10.0"], cwd=tree, check=True)
    subprocess.run(["git", "tag", "v0.9.0"], cwd=tree, check=True)
    assert api_diff.last_tag(tree) == "v0.10.0"


def test_incompatible(tree, tmp_path):
    """A name that is gone and a signature that is another one are found, a new name is not."""
    if not (go := shutil.which("go")):
        pytest.skip("go is not on PATH")
    work = tmp_path / "work"
    work.mkdir()
    apidiff = process.build_tool(go, "golang.org/x/exp/cmd/apidiff", process.HERE, work / "apidiff")
    find = lambda: api_diff.incompatible(tree, "v0.1.0", ("api", "client"), apidiff, work)  # noqa: E731
    source = tree / "api" / "api.go"
    source.write_text(source.read_text() + "\nfunc New() {}\n")
    assert find() == []
    source.write_text("package api\n\nfunc Get(name string, force bool) {}\n")
    found = find()
    assert len(found) == 2 and "Get" in found[0] and "Put: removed" in found[1]
    assert not (work / "before").exists()


def test_announced():
    """The newest section with entries counts."""
    head = "# Changelog\n\n## [Unreleased]\n\n"
    assert api_diff.announced(head + "### Removed\n\n- Get\n\n## [0.1.0]\n\n### Added\n\n- Get\n")
    assert not api_diff.announced(head + "### Added\n\n- Put\n\n## [0.1.0]\n\n### Removed\n\n- Get\n")
    assert api_diff.announced(head + "## [0.2.0]\n\n### Changed\n\n- Get\n")
