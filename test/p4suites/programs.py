# SPDX-License-Identifier: Apache-2.0
"""Checks which of other projects' v1model programs the engines accept: every program in a checkout
that p4c compiles, on the interpreter and, at both hooks, in the kernel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .outcome import Outcome

# A program that p4c's back end for v1model may accept contains this.
_PACKAGE = re.compile(r"\bV1Switch\s*\(")


def sources(checkout: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """The programs of a checkout, each with its compiler options. In p4c's own checkout these are
    the samples, because other folders have the output of p4c's passes.
    """
    samples = checkout / "testdata" / "p4_16_samples"
    found = samples.glob("*.p4") if samples.exists() else checkout.rglob("*.p4")
    programs = [(p, ()) for p in sorted(found) if p.is_file() and _PACKAGE.search(p.read_text(errors="replace"))]
    old = sorted((checkout / "testdata" / "p4_14_samples").glob("*.p4"))
    return [*programs, *((p, ("--std", "p4-14")) for p in old)]


def _compile(program: Path, more: tuple[str, ...], out: Path) -> str | None:
    """Compile a program. Returns the reason if that fails."""
    command = ["p4c-bm2-ss", *more, "-o", str(out), program.name]
    try:
        done = subprocess.run(
            command, cwd=program.parent, capture_output=True, text=True, errors="replace", timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return "not compiled after 300 s"
    if done.returncode == 0 and out.exists():
        return None
    out.unlink(missing_ok=True)
    wrong = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    return (wrong or [f"the compiler ends with {done.returncode}"])[0]


def compiled(checkout: Path, folder: Path) -> dict[str, str]:
    """Compile a checkout's programs into a folder, where they stay. Returns the reasons why
    programs do not compile, which are also in ``not-compiled.json``.
    """
    listed = folder / "not-compiled.json"
    if listed.exists():
        return json.loads(listed.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        (p, more, folder / f"{'__'.join(p.relative_to(checkout).with_suffix('').parts)}.json")
        for p, more in sources(checkout)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = list(pool.map(lambda x: _compile(*x), wanted))
    wrong = {str(x[0].relative_to(checkout)): why for x, why in zip(wanted, reasons, strict=True) if why}
    listed.write_text(json.dumps(wrong, indent=1) + "\n")
    return wrong


def attempt(checkout: Path, root: Path, folder: Path, engine: str, go: str, log: Path) -> dict[str, Outcome]:
    """Run every program of a checkout on an engine: ``interp``, or ``auto`` for the kernel. In the
    kernel a program passes if both hooks accept it, with and without a CPU port.
    """
    if engine not in ("interp", "auto"):
        return {}
    wrong = compiled(checkout, folder / "compiled")
    names = {p.stem for p in (folder / "compiled").glob("*.json")} - {"not-compiled"}
    print(f"     {checkout.name}: {len(names)} programs compile, {len(wrong)} do not: {folder}", flush=True)
    if not names:
        return {}
    which = "^TestLoads$/./^interp$" if engine == "interp" else "^TestLoads$"
    package = "github.com/netcraq/netcraq/switch/ebpf"
    command = [go, "test", "-json", "-count", "1", "-timeout", "60m", "-run", which, package]
    command += ["-args", "-corpus", str(folder / "compiled")]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        subprocess.run(command, cwd=root, stdout=out, stderr=subprocess.STDOUT, check=False)
    return read(log.read_text(errors="replace"), names)


def read(text: str, names: set[str]) -> dict[str, Outcome]:
    """The outcomes of programs in the output of ``go test -json`` for ``TestLoads``. A program
    passes if it was loaded or skipped, and failed nowhere. A program without output did not pass.
    """
    said: dict[str, list[str]] = {}
    found: dict[str, Outcome] = {}
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        _, program, where = (*event.get("Test", "").split("/"), "", "")[:3]
        if program not in names or not where:
            continue
        key = f"{program}/{where}"
        if event["Action"] == "output":
            said.setdefault(key, []).append(event["Output"])
        elif event["Action"] in ("pass", "fail", "skip"):
            why = [re.sub(r"^\s+\w+\.go:\d+: (/\S+: )?", "", x).strip() for x in said.get(key, ()) if ".go:" in x]
            before = found.get(program, Outcome(True))
            reason = f"{where}: {why[0][:200] if why else 'no reason'}"
            found[program] = before if event["Action"] == "pass" or not before.passed else Outcome(False, reason)
    return {x: found.get(x, Outcome(False, "nothing was said of it")) for x in sorted(names)}
