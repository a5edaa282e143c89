# SPDX-License-Identifier: Apache-2.0
"""Compare a version's promises with those of the last release: ``make api-diff``. It fails if
something was removed or changed in a way that breaks users, unless the changelog announces that.
apidiff finds what breaks a Go program, and surfaces.py compares everything else.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import process
import surfaces
from process import HERE, ROOT, ReleaseError

#: Folders of the modules whose names are promised (docs/reference/promises.md).
MODULES = ("api", "client", "client/etcd")


def apart(*command: str | Path, cwd: Path) -> str:
    """Run a program on a module with the module's own go.mod, as for a user outside the tree."""
    return process.run(*command, cwd=cwd, GOWORK="off", GOFLAGS="")


@contextlib.contextmanager
def checkout(root: Path, commit: str, before: Path) -> Iterator[Path]:
    """A worktree of a commit, which is removed at the end of the context."""
    process.run("git", "worktree", "add", "--quiet", "--detach", before, commit, cwd=root)
    try:
        yield before
    finally:
        process.run("git", "worktree", "remove", "--force", before, cwd=root)


def incompatible(before: Path, after: Path, modules: tuple[str, ...], apidiff: Path, work: Path) -> list[str]:
    """The changes between two checkouts that break Go programs."""
    found = []
    for folder in modules:
        if not (before / folder / "go.mod").exists():
            continue  # a new module
        name = re.search(r"^module (\S+)", (before / folder / "go.mod").read_text(), re.MULTILINE)[1]
        if not (after / folder / "go.mod").exists():
            found.append(f"{folder}: the module {name} is gone")
            continue
        export = work / "export"
        apart(apidiff, "-m", "-w", export, name, cwd=before / folder)
        said = apart(apidiff, "-m", "-incompatible", export, name, cwd=after / folder)
        found += [f"{folder}: {line.removeprefix('- ')}" for line in said.splitlines() if line.startswith("- ")]
    return found


def announced(changelog: str, released: str) -> bool:
    """Whether the first section with entries announces a change or a removal. The last release's
    section and older ones do not count.
    """
    coming = changelog.split(f"\n## [{released.removeprefix('v')}]")[0]
    sections = re.split(r"^## ", coming, flags=re.MULTILINE)[1:]
    newest = next((text for text in sections if "\n- " in text), "")
    return re.search(r"^### (Changed|Removed)$", newest, re.MULTILINE) is not None


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make api-diff", description="compare what a version promises with the last release"
    )
    parser.add_argument("--go", default="go")
    options = parser.parse_args()
    version, commit = process.releases(ROOT)[0]
    try:
        process.run("git", "cat-file", "-e", f"{commit}^{{commit}}", cwd=ROOT)
    except ReleaseError:
        print(f"nothing was compared: this checkout lacks the commit of {version}. Run git fetch --unshallow")
        return 0
    try:
        with (
            tempfile.TemporaryDirectory(prefix="netcraq-api-diff-") as folder,
            checkout(ROOT, commit, Path(folder) / "before") as before,
        ):
            work = Path(folder)
            apidiff = process.build_tool(options.go, "golang.org/x/exp/cmd/apidiff", HERE, work / "apidiff")
            found = incompatible(before, ROOT, MODULES, apidiff, work) + surfaces.breaks(before, ROOT)
    except ReleaseError as error:
        print(f"make api-diff: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"users of {version} need to change nothing")
        return 0
    print(f"users of {version} may have to change something:", *found, sep="\n  ")
    if announced((ROOT / "CHANGELOG.md").read_text(), version):
        return 0
    print("say so in CHANGELOG.md under Changed or Removed, or take it back", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
