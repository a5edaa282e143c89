# SPDX-License-Identifier: Apache-2.0
"""Compare the exported names of the Go modules with those of the last tagged version: ``make
api-diff``. It fails if something was taken away or changed in a way that breaks a program, unless
the changelog announces that. Go's apidiff decides what breaks a program.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import process
from process import HERE, ROOT, ReleaseError

#: Folders of the modules whose names are promised (docs/reference/promises.md).
MODULES = ("api", "client", "client/etcd")


def apart(*command: str | Path, cwd: Path) -> str:
    """Run a program on a module as others require it, by its own go.mod."""
    return process.run(*command, cwd=cwd, GOWORK="off", GOFLAGS="")


def last_tag(root: Path) -> str:
    """The newest version that HEAD comes after; empty if none is tagged."""
    words = ("git", "tag", "--merged", "HEAD", "--list", "v[0-9]*", "--sort", "-version:refname")
    return next(iter(process.run(*words, cwd=root).split()), "")


def incompatible(root: Path, tag: str, modules: tuple[str, ...], apidiff: Path, work: Path) -> list[str]:
    """What breaks programs that were written for a tag."""
    before = work / "before"
    process.run("git", "worktree", "add", "--quiet", "--detach", before, tag, cwd=root)
    try:
        found = []
        for folder in modules:
            if not (before / folder / "go.mod").exists():
                continue  # a module that the tag does not have
            name = re.search(r"^module (\S+)", (root / folder / "go.mod").read_text(), re.MULTILINE)[1]
            export = work / "export"
            apart(apidiff, "-m", "-w", export, name, cwd=before / folder)
            said = apart(apidiff, "-m", "-incompatible", export, name, cwd=root / folder)
            found += [f"{folder}: {line.removeprefix('- ')}" for line in said.splitlines() if line.startswith("- ")]
        return found
    finally:
        process.run("git", "worktree", "remove", "--force", before, cwd=root)


def announced(changelog: str) -> bool:
    """Whether the first section with entries says that something was changed or removed."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    newest = next((text for text in sections if "\n- " in text), "")
    return re.search(r"^### (Changed|Removed)$", newest, re.MULTILINE) is not None


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="make api-diff", description="compare exported names with the last version's")
    parser.add_argument("--go", default="go")
    options = parser.parse_args()
    try:
        tag = last_tag(ROOT)
        if not tag:
            print("no version is tagged in this checkout: there is nothing to compare with")
            return 0
        with tempfile.TemporaryDirectory(prefix="netcraq-api-diff-") as folder:
            work = Path(folder)
            apidiff = process.build_tool(options.go, "golang.org/x/exp/cmd/apidiff", HERE, work / "apidiff")
            found = incompatible(ROOT, tag, MODULES, apidiff, work)
    except ReleaseError as error:
        print(f"make api-diff: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"programs that were written for {tag} still compile")
        return 0
    print(f"programs that were written for {tag} may not compile any more:", *found, sep="\n  ")
    if announced((ROOT / "CHANGELOG.md").read_text()):
        return 0
    print("say so in CHANGELOG.md under Changed or Removed, or take it back", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
