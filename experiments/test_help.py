# SPDX-License-Identifier: Apache-2.0
"""The output of commands with ``--help`` is at most 80 columns wide: that of the built ones with
all their subcommands, and that of make. Python programs of this and other folders print their
docstrings, which are as wide as the source. With ``--version`` each built command prints the
version from which it was built.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WIDTH, SOURCE = 80, 100
BUILT = sorted(
    Path(folder).name
    for folder in re.search(r"^COMMANDS := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    if folder != "\\" and not folder.endswith("netcraq-cni")  # the container runtime calls netcraq-cni
)
SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("controlplane", "experiments", "p4src", "topologies")
    for path in (ROOT / folder).rglob("*.py")
    if "formatter_class=argparse.RawDescription" in path.read_text() and "test" not in path.name
)


def shown(*command: str) -> str:
    # Without the test's own make flags: they may have a job server, which this make could not
    # share.
    environment = {**os.environ, "COLUMNS": str(WIDTH), "MAKEFLAGS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def wide(text: str, most: int = WIDTH) -> list[str]:
    return [line for line in text.splitlines() if len(line) > most]


def below(text: str) -> list[str]:
    """Return the subcommands that a command's help lists."""
    listed = re.search(r"^Available Commands:\n((?:  .*\n)+)", text, re.M)
    names = [line.split()[0] for line in listed[1].splitlines()] if listed else []
    return [name for name in names if name not in ("completion", "help")]


@pytest.mark.parametrize("name", BUILT)
def test_commands(name):
    binary = ROOT / "bin" / name
    if not binary.exists():
        pytest.skip(f"there is no bin/{name}: make build")
    commands = [[str(binary)]]
    while commands:
        command = commands.pop()
        text = shown(*command, "--help")
        assert not wide(text), command
        commands += [[*command, name] for name in below(text)]


@pytest.mark.parametrize("name", BUILT)
def test_version(name):
    binary = ROOT / "bin" / name
    if not binary.exists():
        pytest.skip(f"there is no bin/{name}: make build")
    version = (ROOT / "api" / "buildinfo" / "VERSION").read_text().strip()
    assert shown(str(binary), "--version").startswith(f"{name} {version} (commit ")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts(script):
    assert not wide(shown(sys.executable, script, "--help"), SOURCE)


def test_make():
    assert not wide(shown("make", "-s", "help"))


def test_all_is_looked_at():
    assert "netcraqctl" in BUILT
    assert "experiments/query_generator.py" in SCRIPTS
    assert below("Available Commands:\n  get         Read\n  help        Help\n\nFlags:\n") == ["get"]
    assert wide("x" * 80 + "\n" + "x" * 81) == ["x" * 81]
