#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the protocol model (netcraq.pml and the files that it includes) with Spin. README.md
describes the model and what the results mean.

check.py model [CONFIGURATION...]
    searches configurations of the complete protocol exhaustively; there must be no violation
check.py mutants [ID...]
    removes one rule at a time, and searches breadth first for a violation with the fewest steps
check.py quick
    makes a few small searches of both kinds, in seconds
check.py trail ID...
    prints, in words, each step of the counter-example to the protocol without a rule
check.py list [--json|--markdown]
    lists the rules; each has the name of the mutant that lacks it

`spin` and `gcc` must be on PATH (Debian has both). A search needs up to 4 GB of memory. --jobs sets
how many searches run at a time, by default one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rules import CONFIGURATIONS, MUTANTS, QUICK_CONFIGURATIONS, QUICK_MUTANTS, Mutant

MODEL = sorted(Path(__file__).resolve().parent.glob("*.pml"))

# A search that ends has seen every reachable state, for two reasons. Partial order reduction is
# off: it would reduce nothing, because each step changes variables that other processes read. And
# states are stored completely, because COLLAPSE compresses without loss.
COMPILE = ["gcc", "-w", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", "-DVECTORSZ=1024"]
MEMORY_MB = 4000


@dataclass
class Result:
    """The result of one search."""

    states: float = 0
    transitions: float = 0
    depth: int = 0
    seconds: float = 0
    megabytes: float = 0
    violation: str = ""  # the violated property; empty if there is no violation
    trail: list[str] = field(default_factory=list)  # the steps to the violation, in words


class ModelError(Exception):
    """The search could not start, or did not end."""


STEP = re.compile(r" *(node|client|controller|hostile host|a WRITE|an ACK|a CAS|a request|VIOLATION)")


def search(flags: list[str], breadth_first: bool, optimize: str = "-O1") -> Result:
    """Search the model with the given macros to the end or the first violation. With -O2 the model
    takes 1.5 s longer to compile, and the search is faster.
    """
    if breadth_first:
        flags = [*flags, "-DBREADTH_FIRST"]
    with tempfile.TemporaryDirectory(prefix="netcraq-model-") as d:
        for part in MODEL:
            (Path(d) / part.name).write_bytes(part.read_bytes())
        run(["spin", "-a", *flags, "netcraq.pml"], d)
        run(
            [*COMPILE, optimize, f"-DMEMLIM={MEMORY_MB}", *(["-DBFS"] if breadth_first else []), "-o", "pan", "pan.c"],
            d,
        )
        began = time.monotonic()
        # -E: a state in which no process can continue is not an error (with QUIET, a process of the
        # model checks such states). -w24: the hash table's first size.
        out = run(["./pan", "-E", "-w24", "-m100000"], d)
        r = Result(seconds=time.monotonic() - began)
        for name, pattern in [
            ("states", r"([\d.e+]+) states, stored"),
            ("transitions", r"([\d.e+]+) transitions"),
            ("megabytes", r"([\d.]+)\s+total actual memory"),
        ]:
            if m := re.search(pattern, out):
                setattr(r, name, float(m.group(1)))
        if m := re.search(r"depth reached (\d+)", out):
            r.depth = int(m.group(1))
        errors = re.search(r"errors: (\d+)", out)
        if not errors or "max search depth too small" in out or "out of memory" in out or "reached -DMEMLIM" in out:
            raise ModelError(f"the search did not end:\n{out[-2000:]}")
        if errors.group(1) == "0":
            if "Search not completed" in out:
                raise ModelError(f"the search was cut short:\n{out[-2000:]}")
            return r
        what = re.search(r"^pan:\d+: (.*?)(?: \(at depth \d+\))?$", out, re.M)
        r.violation = meaning(what.group(1) if what else "?")
        steps = run(["spin", "-k", "netcraq.pml.trail", "-t", *flags, "netcraq.pml"], d)
        for line in steps.splitlines():
            if STEP.match(line):
                r.trail.append(line.strip())
            if "VIOLATION" in line:
                break
        return r


def meaning(assertion: str) -> str:
    """The meaning of a failed assertion of the model. Raises ModelError if the assertion is about
    the bounds of the model's arrays, because these are not a property of the protocol.
    """
    if assertion == "assertion violated ok":
        return "not linearizable"
    if "learn" in assertion:
        return "one version, two values"
    if assertion == "assertion violated settled":
        return "dirty at rest"
    if assertion == "assertion violated answered":
        return "never answered"
    if assertion == "assertion violated once":
        return "executed, and failed"
    if assertion == "assertion violated concealed":
        return "told to a stranger"
    raise ModelError(f"a bound of the model is too small, or it is broken: {assertion}")


def run(command: list[str], cwd: str) -> str:
    """Run a command and return its output. Raises ModelError if the command fails."""
    r = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if r.returncode < 0 or (r.returncode != 0 and command[0] != "./pan"):
        raise ModelError(f"{' '.join(command)} ended with {r.returncode}: {r.stdout[-2000:]}{r.stderr[-2000:]}")
    return r.stdout + r.stderr


def missing_tools() -> list[str]:
    """The programs that the model needs and this machine does not have."""
    return [t for t in ("spin", "gcc") if shutil.which(t) is None]


def mutate(m: Mutant) -> tuple[str, Result]:
    """Search for a mutant's violation. Returns the configuration in which it was found and that
    search's result; if none was found, all configurations and the sum of their results.
    """
    total = Result()
    for where in m.where:
        r = search(m.flags(where), breadth_first=not m.redundant)
        if r.violation:
            return where, r
        total.states += r.states
        total.seconds += r.seconds
    return ", ".join(m.where), total


def check_model(names: Iterable[str], jobs: int) -> bool:
    """Search configurations. Returns whether they have no violation."""
    good = True
    print(
        f"{'configuration':17} {'states':>11} {'transitions':>12} {'depth':>6} {'time':>7} {'memory':>8}  result (each search is exhaustive)"
    )
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        chosen = [CONFIGURATIONS[n] for n in names]
        futures = {c.name: pool.submit(search, c.flags(), False, "-O2") for c in chosen}
        for c in chosen:
            r = futures[c.name].result()
            print(
                f"{c.name:17} {r.states:11,.0f} {r.transitions:12,.0f} {r.depth:6} {r.seconds:6.1f}s {r.megabytes:6,.0f}MB  "
                f"{r.violation or 'no violation'}: {c.what}",
                flush=True,
            )
            if r.violation:
                good = False
                print("\n".join("    " + s for s in r.trail))
    return good


def check_mutants(mutants: list[Mutant], jobs: int) -> bool:
    """Remove rules one by one. Returns whether exactly the rules that are not redundant cause a
    violation when they are missing.
    """
    good = True
    print(f"{'mutant':29} {'kept by':10} {'found':24} {'steps':>5} {'states':>10} {'time':>7}  in: rule removed")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for m, (where, r) in zip(mutants, pool.map(mutate, mutants), strict=True):
            found = r.violation or ("nothing: redundant" if m.redundant else "NOTHING")
            print(
                f"{m.id:29} {m.layer:10} {found:24} {len(r.trail):5} {r.states:10,.0f} {r.seconds:6.1f}s  {where}: {m.rule}",
                flush=True,
            )
            if m.redundant and not r.violation:
                print(f"    {m.shows}")
            if bool(r.violation) == m.redundant:
                good = False
                print("    NOT AS EXPECTED", *r.trail, sep="\n    ")
    print(
        f"{len(mutants)} rules: {sum(not m.redundant for m in mutants)} are needed, {sum(m.redundant for m in mutants)} are redundant in the model"
        if good
        else "not as expected"
    )
    return good


def print_trails(names: list[str]) -> bool:
    """Print the counter-example of each mutant, or that it has none."""
    for n in names:
        m = next(m for m in MUTANTS if m.id == n)
        where, r = mutate(m)
        print(f"Without: {m.rule} ({where})", f"Found: {r.violation or 'nothing'}. {m.shows}", *r.trail, sep="\n    ")
    return True


def as_markdown() -> str:
    """The table of mutants in README.md."""
    rows = ["| mutant | rule | kept by | without it |", "| --- | --- | --- | --- |"]
    for m in MUTANTS:
        rows.append(
            f"| `{m.id}`{' (paper)' if m.paper else ''} | {m.rule} | {m.layer} | {'*Redundant:* ' if m.redundant else ''}{m.shows} |"
        )
    return "\n".join(rows)


def print_list(form: str) -> bool:
    """Print the mutants."""
    if form == "json":
        print(json.dumps([asdict(m) for m in MUTANTS], indent=1))
    elif form == "markdown":
        print(as_markdown())
    else:
        for m in MUTANTS:
            print(f"{m.id:29} {m.layer:10} {'redundant' if m.redundant else '':9} {m.rule}")
    return True


def main() -> int:
    """Run the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["model", "mutants", "quick", "trail", "list"])
    p.add_argument("names", nargs="*", help="configurations (model), or ids of mutants; none: all")
    p.add_argument("--jobs", type=int, default=1, help="searches at a time")
    p.add_argument("--json", dest="form", action="store_const", const="json", default="text", help="list: for programs")
    p.add_argument("--markdown", dest="form", action="store_const", const="markdown", help="list: as in README.md")
    a = p.parse_args()
    known = list(CONFIGURATIONS) if a.command == "model" else [m.id for m in MUTANTS]
    if unknown := [n for n in a.names if n not in known]:
        print(f"no such name: {', '.join(unknown)}. There are: {', '.join(known)}", file=sys.stderr)
        return 2
    if a.command == "list":
        print_list(a.form)
        return 0
    if lacking := missing_tools():
        print(
            f"not on PATH: {', '.join(lacking)}. On Debian and Ubuntu: sudo apt-get install {' '.join(lacking)}",
            file=sys.stderr,
        )
        return 2
    began = time.monotonic()
    names = a.names or known
    try:
        match a.command:
            case "model":
                good = check_model(names, a.jobs)
            case "mutants":
                good = check_mutants([m for m in MUTANTS if m.id in names], a.jobs)
            case "trail":
                good = print_trails(names)
            case _:
                good = check_model(QUICK_CONFIGURATIONS, a.jobs)
                good = check_mutants([m for m in MUTANTS if m.id in QUICK_MUTANTS], a.jobs) and good
    except ModelError as e:
        print(e, file=sys.stderr)
        return 2
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
