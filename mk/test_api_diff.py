# SPDX-License-Identifier: Apache-2.0
"""api_diff finds what breaks users between a release and a checkout."""

import re
import shutil
import subprocess
from pathlib import Path

import api_diff
import process
import pytest
import surfaces

ROOT = Path(__file__).resolve().parent.parent


def git(*words):
    """Run git in this checkout, and return its output; None if git fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def test_releases():
    """A release has one line. If the checkout has the release's tag, it points at the line's
    commit.
    """
    releases = process.releases(ROOT)
    assert releases and len({version for version, _ in releases}) == len(releases)
    for version, commit in releases:
        assert re.fullmatch(r"v\d+\.\d+\.\d+(-(alpha|beta|rc)\d+)?", version)
        assert re.fullmatch(r"[0-9a-f]{40}", commit)
        assert git("rev-parse", "-q", "--verify", f"refs/tags/{version}^{{commit}}") in (None, commit), version


def test_tags_are_listed():
    """The list of releases has every version tag that is an ancestor of HEAD."""
    tags = git("tag", "--merged", "HEAD~", "--list", "v[0-9]*")
    if tags is None:
        pytest.skip("this is not a checkout with a history")
    assert set(tags.split()) <= {version for version, _ in process.releases(ROOT)}


@pytest.fixture
def trees(tmp_path):
    """Two checkouts with one Go module."""
    for name in ("before", "after"):
        module = tmp_path / name / "api"
        module.mkdir(parents=True)
        (module / "go.mod").write_text("module example.org/api\n\ngo 1.26.0\n")
        (module / "api.go").write_text("package api\n\nfunc Get(name string) {}\n\nfunc Put(name string) {}\n")
    return tmp_path / "before", tmp_path / "after"


def test_incompatible(trees, tmp_path):
    """A removed name and a changed signature are found; a new name is not."""
    if not (go := shutil.which("go")):
        pytest.skip("go is not on PATH")
    before, after = trees
    work = tmp_path / "work"
    work.mkdir()
    apidiff = process.build_tool(go, "golang.org/x/exp/cmd/apidiff", process.HERE, work / "apidiff")
    find = lambda: api_diff.incompatible(before, after, ("api", "client"), apidiff, work)  # noqa: E731
    source = after / "api" / "api.go"
    source.write_text(source.read_text() + "\nfunc New() {}\n")
    assert find() == []
    source.write_text("package api\n\nfunc Get(name string, force bool) {}\n")
    found = find()
    assert len(found) == 2 and "Get" in found[0] and "Put: removed" in found[1]
    shutil.rmtree(after / "api")
    assert find() == ["api: the module example.org/api is gone"]


def test_checkout(tmp_path):
    """A commit is checked out within the context, and no worktree remains."""
    with api_diff.checkout(ROOT, "HEAD", tmp_path / "head") as head:
        assert (head / "Makefile").exists()
    assert not head.exists() and str(head) not in git("worktree", "list")


@pytest.fixture
def copies(tmp_path):
    """Two copies of those files of this checkout that are compared."""
    for name in ("before", "after"):
        for pattern in [pattern for pattern, _ in surfaces.FILES] + ["client/python/netcraq/**/*.py"]:
            for path in ROOT.glob(pattern):
                copy = tmp_path / name / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
    return tmp_path / "before", tmp_path / "after"


CHAINS = "cni-plugin/deploy/crd/netcraq.io_netcraqchains.yaml"
ADMIN = "docs/reference/admin-api.yaml"
PYTHON = "client/python"
#: A file, a pattern, its replacement, and the break that this plants.
PLANTED = [
    ("docs/reference/cli.md", r"      --fill .*\n", "", "netcraq bench --fill is gone"),
    ("docs/reference/cli.md", r"  -d, --duration", "      --duration", "netcraq bench -d is gone"),
    ("docs/reference/cli.md", r"(?s)## netcraq cas\n.*?(?=## )", "", "netcraq cas is gone"),
    ("docs/reference/metrics.md", r"\| `netcraq_chain_ready` .*\n", "", "netcraq_chain_ready is gone"),
    (
        "docs/reference/metrics.md",
        r"(`netcraq_switch_ready` \|) `switch`",
        r"\1 `device`",
        "netcraq_switch_ready with `switch` is gone",
    ),
    ("docs/reference/errors.md", r"\| `not_held` .*\n", "", "not_held is gone"),
    ("docs/reference/events.md", r"\| `chain.ready` .*\n", "", "chain.ready is gone"),
    ("docs/reference/chart.md", r"\| `cni.chained` .*\n", "", "cni.chained is gone"),
    ("docs/reference/chart.md", r"(`cni.chained` \|) `false`", r"\1 `true`", "cni.chained with `false` is gone"),
    (ADMIN, r"(?s)  /v1/watches:\n.*?(?=components:)", "", "PUT /v1/watches is gone"),
    (ADMIN, r"name: prefix\n", "name: begin\n", "GET /v1/keys prefix is gone"),
    (ADMIN, r"name: limit\n", "name: limit\n        required: true\n", "GET /v1/keys demands limit"),
    (ADMIN, r"      - count\n", "      - count\n      - owner\n", "SessionsRequest demands owner"),
    (CHAINS, r"leaseMillis:", "leaseSeconds:", "NetcraqChain v1alpha1.spec.leaseMillis is gone"),
    (CHAINS, r"- leaseMillis\n", "- pause\n", "NetcraqChain v1alpha1.spec demands pause"),
    ("api/admin/types.go", r"leaseGivenMillis,", "leaseGiven,", "Chain.leaseGivenMillis is gone"),
    ("client/js/index.d.cts", r"  eventual\?: boolean\n", "", "ReadOptions.eventual is gone"),
    ("client/js/index.d.cts", r"export type Permit = Held\n", "", "Permit is gone"),
    (PYTHON + "/netcraq/admin.py", r"def lease_sessions", "def sessions", "netcraq.admin.Admin.lease_sessions is gone"),
    (
        PYTHON + "/netcraq/admin.py",
        r"def lookup\(self, ",
        "def lookup(self, chain, ",
        "netcraq.admin.Admin.lookup demands chain",
    ),
]


@pytest.mark.parametrize(("name", "pattern", "into", "broken"), PLANTED, ids=[broken for *_, broken in PLANTED])
def test_planted(copies, name, pattern, into, broken):
    """Each kind of break is found and named. Without a planted break, none is found."""
    before, after = copies
    if not name.startswith(PYTHON):
        shutil.rmtree(before / PYTHON)  # importing it takes a second
    path = after / name
    text, replaced = re.subn(pattern, into, path.read_text())
    assert replaced, "the file does not have what the test replaces"
    path.write_text(text)
    where = PYTHON if name.startswith(PYTHON) else name
    assert f"{where}: {broken}" in surfaces.breaks(before, after)


def test_additions(copies):
    """An addition breaks nobody; a removed file does."""
    before, after = copies
    assert surfaces.breaks(before, after) == []
    assert surfaces.breaks(after, after) == []
    (before / "docs/reference/errors.md").write_text("| `timeout` | late |\n")
    (before / PYTHON / "netcraq/names.py").unlink()
    assert surfaces.breaks(before, after) == []
    (after / "docs/reference/errors.md").unlink()
    assert surfaces.breaks(before, after) == ["docs/reference/errors.md: timeout is gone"]


def test_announced():
    """Only the newest section with entries counts, if it is newer than the last release."""
    announced = lambda text: api_diff.announced("# Changelog\n\n## [Unreleased]\n\n" + text, "v0.1.0")  # noqa: E731
    assert announced("### Removed\n\n- Get\n\n## [0.1.0]\n\n### Added\n\n- Get\n")
    assert not announced("### Added\n\n- Put\n\n## [0.1.0]\n\n### Removed\n\n- Get\n")
    assert announced("## [0.2.0]\n\n### Changed\n\n- Get\n")
    assert not announced("## [0.1.0]\n\n### Changed\n\n- Get\n")
    assert api_diff.announced("## [0.1.0]\n\n### Changed\n\n- Get\n", "v0.1.0-rc1")
