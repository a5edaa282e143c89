# SPDX-License-Identifier: Apache-2.0
"""Running programs, for the scripts of a release."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent


class ReleaseError(Exception):
    """A program failed, or an artifact is missing or does not work."""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a program and return its output. `environment` is added to this process's environment."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(words)}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def releases(root: Path) -> list[tuple[str, str]]:
    """The released versions of a checkout and their commits, the newest first."""
    lines = (root / "mk" / "release" / "releases").read_text().splitlines()
    return [(version, commit) for version, commit in (line.split() for line in lines if not line.startswith("#"))]


def build_tool(go: str, package: str, module: Path, to: Path) -> Path:
    """Build a program that a Go module pins, and return its path."""
    run(go, "build", "-o", to, package, cwd=module, GOWORK="off", GOFLAGS="")
    return to
