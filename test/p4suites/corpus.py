# SPDX-License-Identifier: Apache-2.0
"""p4c's own programs with STF files, run by this repository's Go tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from .outcome import Outcome

_TESTS = {
    "interp": ("github.com/netcraq/netcraq/switch/stf", "TestP4CCorpus"),
    "auto": ("github.com/netcraq/netcraq/switch/ebpf", "TestP4CCorpus"),
}


def corpus(source: Path, root: Path, engine: str, go: str, log: Path) -> dict[str, Outcome]:
    """Run every program of the corpus on an engine, except BMv2, which p4c's own tests cover."""
    if engine not in _TESTS:
        return {}
    package, test = _TESTS[engine]
    command = [go, "test", "-json", "-count", "1", "-timeout", "60m", "-run", f"^{test}$", package]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        environment = {**os.environ, "NETCRAQ_P4C_CORPUS": str(source)}
        subprocess.run(command, cwd=root, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    return read(log.read_text(errors="replace"), test)


def read(text: str, test: str) -> dict[str, Outcome]:
    """The outcomes in the output of ``go test -json``. A program that fails as listed has failed. A
    program that is not compiled for an engine, or that an engine rejects, has failed with the
    reason.
    """
    said: dict[str, list[str]] = {}
    found: dict[str, Outcome] = {}
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        name = event.get("Test", "")
        if not name.startswith(f"{test}/"):
            continue
        name = name.removeprefix(f"{test}/")
        if event["Action"] == "output":
            said.setdefault(name, []).append(event["Output"])
        elif event["Action"] in ("pass", "fail", "skip") and name.count("/") >= 1:
            why = [re.sub(r"^\s+\w+\.go:\d+: ", "", x).strip() for x in said.get(name, ()) if ".go:" in x]
            bad = event["Action"] != "pass" or any(x.startswith("fails as listed") for x in why)
            found[name] = Outcome(not bad, why[0][:200] if bad and why else "no reason" if bad else "")
    return found
