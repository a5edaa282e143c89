#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the protocol model, netcraq.pml, with Spin. docs/model.md says what the model is and what the results mean.

check.py model     searches every configuration exhaustively, all rules present: there must be no violation
check.py mutants   removes one rule at a time: there must be a violation, found breadth first, so that its trail is as short as any
check.py quick     a few seconds' worth of both
check.py trail X   the trail of mutant (or finding) X, in words

Needs `spin` (Debian: spin) and `gcc` on PATH, up to 4 GB of memory a job, and no more than 2 jobs (--jobs) unless told otherwise.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "netcraq.pml"

# Compiled without partial order reduction (every step touches what others read, so there is nothing to reduce), states kept whole (COLLAPSE is a
# lossless
# compression): a search that ends has seen every reachable state.
COMPILE = ["gcc", "-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", "-DVECTORSZ=1024"]
MEMORY_MB = 8000


@dataclass(frozen=True)
class Configuration:
    """Bounds of one search, as the model's macros."""

    name: str
    what: str
    bounds: dict[str, int]

    def flags(self) -> list[str]:
        """The -D that set them."""
        return [f"-D{k}={v}" for k, v in self.bounds.items()]


CHAIN_OF_2 = 0b110100  # nodes 0, 1; node 2 is spare
CHAIN_OF_3 = 0b100100  # nodes 0, 1, 2


def bounds(chain: int, writes: tuple[int, int], reads: tuple[int, int], **more: int) -> dict[str, int]:
    """The bounds of a search: the chain, then writes and reads by client."""
    return {"CHAIN": chain, "WRITES0": writes[0], "WRITES1": writes[1], "READS0": reads[0], "READS1": reads[1], **more}


CONFIGURATIONS = {
    c.name: c
    for c in [
        Configuration(
            "steady",
            "one configuration: loss, duplication, reordering, retries; 2 WRITEs or CASes and 2 READs a client",
            bounds(CHAIN_OF_3, (2, 2), (2, 2), CASES=3),
        ),
        Configuration(
            "failover",
            "any 1 of 3 members given up at any moment (crashed, cut off, or wrongly suspected); 2 WRITEs or CASes against 1 WRITE",
            bounds(CHAIN_OF_3, (1, 2), (1, 1), CASES=2, REMOVALS=1),
        ),
        Configuration(
            "failover-twice",
            "any 2 of 3 members given up, the second at any moment of the first's failover",
            bounds(CHAIN_OF_3, (1, 1), (1, 1), REMOVALS=2),
        ),
        Configuration(
            "recovery",
            "a spare or a removed node joins a chain of 2; 1 member given up, before, after or amid; CAS",
            bounds(CHAIN_OF_2, (1, 1), (1, 1), CASES=2, REMOVALS=1, JOINS=1),
        ),
        Configuration(
            "recovery-twice",
            "the same with 2 members given up, so that the newcomer can be left alone",
            bounds(CHAIN_OF_2, (1, 1), (2, 0), REMOVALS=2, JOINS=1),
        ),
        Configuration(
            "same-value",
            "for EVENTUAL reads: no two ACKs or replies ever give one version two values",
            bounds(CHAIN_OF_3, (1, 2), (0, 1), CASES=2, REMOVALS=1, SAME_VALUE=1),
        ),
        Configuration(
            "settles",
            "2 members given up, loss until the last of it, clients gone: at rest, no member is left dirty",
            bounds(CHAIN_OF_3, (1, 1), (0, 0), REMOVALS=2, QUIET=1),
        ),
        Configuration(
            "settles-recovery",
            "the same for a chain of 2 with 1 member given up and 1 let in",
            bounds(CHAIN_OF_2, (1, 1), (0, 0), REMOVALS=1, JOINS=1, QUIET=1),
        ),
    ]
}

# Where a mutant needs fewer operations than the configurations have.
SMALL = {
    "two-writes": bounds(CHAIN_OF_3, (1, 1), (1, 1)),
    "two-by-one": bounds(CHAIN_OF_3, (2, 1), (1, 2), CASES=3),
    "failover": bounds(CHAIN_OF_3, (1, 1), (1, 1), REMOVALS=1),
    "failover-cas": CONFIGURATIONS["failover"].bounds,
    "failover-twice": bounds(CHAIN_OF_3, (1, 1), (1, 1), REMOVALS=2),
    "failover-one-writer": bounds(CHAIN_OF_3, (1, 0), (1, 1), REMOVALS=2),
    "recovery-one-writer": bounds(CHAIN_OF_2, (1, 0), (1, 1), REMOVALS=1, JOINS=1),
    "recovery-no-cas": bounds(CHAIN_OF_2, (1, 1), (1, 1), REMOVALS=1, JOINS=1),
    "recovery-twice": CONFIGURATIONS["recovery-twice"].bounds,
    "same-value": CONFIGURATIONS["same-value"].bounds,
    "settles-once": bounds(CHAIN_OF_3, (1, 1), (0, 0), REMOVALS=1, QUIET=1),
    "settles": CONFIGURATIONS["settles"].bounds,
    "lossy": bounds(CHAIN_OF_3, (1, 0), (0, 0), QUIET=1, LOSSY_FOR_EVER=1),
    "guess": bounds(CHAIN_OF_3, (1, 1), (1, 1), CASES=2),
}


@dataclass(frozen=True)
class Mutant:
    """One rule removed."""

    rule: str
    define: str  # the macros that remove it, with + between
    where: tuple[str, ...]  # searched in this order
    redundant: str = ""  # why there is none to be found, where that is so

    def flags(self, where: str) -> list[str]:
        """The -D of its search."""
        return [f"-D{k}={v}" for k, v in SMALL[where].items()] + [f"-D{d}" for d in self.define.split("+") if d]


MUTANTS = [
    Mutant("the version in the ACK is compared", "NO_ACK_VERSION", ("two-writes",)),
    Mutant("an ACK cleans only its own version (the paper's ACK has none)", "ACK_OF_ANYTHING", ("two-by-one",)),
    Mutant("ACKs come from the tail alone", "ACK_FROM_ANY", ("two-by-one",)),
    Mutant("the ACK carries the value", "ACK_WITHOUT_VALUE", ("recovery-one-writer",)),
    Mutant("a node stores only what is newer than its latest", "NO_STORE_ORDER", ("two-writes",)),
    Mutant("the tail commits only what is newer", "NO_COMMIT_ORDER", ("two-writes",)),
    Mutant("the head knows a retry by its session record", "NO_SESSION", ("two-writes",)),
    Mutant("the head drops requests older than the recorded one", "NO_OLD_DROP", ("two-by-one",)),
    Mutant("every node records the session, not only the head", "SESSION_AT_HEAD_ONLY", ("failover",)),
    Mutant("a node records the session of an overtaken write too", "SESSION_NOT_WHEN_OVERTAKEN", ("failover",)),
    Mutant("STAMPED packets of another epoch are dropped", "NO_EPOCH", ("failover",)),
    Mutant("reads take a live lease", "NO_LEASE", ("failover",)),
    Mutant("the controller waits for the lease of a removed node", "NO_WAIT", ("failover",)),
    Mutant("a LEASE counts from the clock that the switch itself named", "LATE_LEASE", ("failover",)),
    Mutant("a configuration is durable before any switch has it", "NO_PERSIST", ("failover-one-writer",)),
    Mutant("a re-driven write carries its session and request", "REDRIVE_WITHOUT_SESSION", ("failover-twice",)),
    Mutant("what is dirty is driven down again (at rest)", "NO_REDRIVE", ("settles-once",)),
    Mutant("... from every member, not only from the head (at rest)", "REDRIVE_HEAD_ONLY", ("settles-once",)),
    Mutant("... in a chain of one too (at rest)", "REDRIVE_NOT_ALONE", ("settles",)),
    Mutant("writes are frozen while donor and newcomer are compared", "NO_FREEZE", ("recovery-no-cas",)),
    Mutant("recovery copies the sessions", "COPY_WITHOUT_SESSIONS", ("recovery-twice",)),
    Mutant("a switch that comes back has no role until it is configured", "JOINS_WITH_OLD_ROLE", ("recovery-no-cas",)),
    Mutant("a CAS expects only a version that its client was told", "GUESS", ("guess",)),
    Mutant("a CAS that fails is answered by the tail, not the head", "CAS_FAILED_BY_HEAD", ("failover-cas",)),
    Mutant("read repair believes OK, CAS_FAILED and NOT_FOUND alone", "REPAIR_BY_ANY_STATUS", ("same-value",)),
]


@dataclass
class Result:
    """What came of one search."""

    states: float = 0
    transitions: float = 0
    depth: int = 0
    seconds: float = 0
    megabytes: float = 0
    violation: str = ""  # what was violated; empty: nothing was
    trail: list[str] = field(default_factory=list)  # its steps, in words


class ModelError(Exception):
    """The search could not be made, or did not end."""


STEP = re.compile(r" *(node|client|controller|a WRITE|an ACK|VIOLATION)")


def search(flags: list[str], breadth_first: bool) -> Result:
    """Searches the model with the given macros to the end or the first violation."""
    if breadth_first:
        flags = [*flags, "-DBREADTH_FIRST"]
    with tempfile.TemporaryDirectory(prefix="netcraq-model-") as d:
        (Path(d) / "model.pml").write_text(MODEL.read_text())
        run(["spin", "-a", *flags, "model.pml"], d)
        run([*COMPILE, f"-DMEMLIM={MEMORY_MB}", *(["-DBFS"] if breadth_first else []), "-o", "pan", "pan.c"], d)
        began = time.monotonic()
        # -E: that nothing is left to do is no error (QUIET has its own process to judge that); -w24: the hash table grows from there.
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
        steps = run(["spin", "-k", "model.pml.trail", "-t", *flags, "model.pml"], d)
        r.trail = [line.strip() for line in steps.splitlines() if STEP.match(line)]
        return r


def meaning(assertion: str) -> str:
    """What a failed assertion of the model says. The bounds of its arrays are no property of the protocol."""
    if assertion == "assertion violated ok":
        return "not linearizable"
    if "learn" in assertion:
        return "one version, two values"
    if "present[now_config]" in assertion:
        return "dirty at rest"
    raise ModelError(f"a bound of the model is too small, or it is broken: {assertion}")


def run(command: list[str], cwd: str) -> str:
    """Runs a command and gives what it wrote; raises where that fails."""
    r = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if r.returncode != 0 and command[0] != "./pan":
        raise ModelError(f"{' '.join(command)}: {r.stdout[-2000:]}{r.stderr[-2000:]}")
    return r.stdout + r.stderr


def missing_tools() -> list[str]:
    """What this machine lacks to run the model."""
    return [t for t in ("spin", "gcc") if shutil.which(t) is None]


def mutate(m: Mutant) -> tuple[str, Result]:
    """Searches for a mutant's violation; gives the search that found it, or the last."""
    where, r = "", Result()
    for where in m.where:
        r = search(m.flags(where), breadth_first=True)
        if r.violation:
            break
    return where, r


def check_model(names: Iterable[str], jobs: int) -> bool:
    """Searches configurations; says whether there was no violation."""
    good = True
    print(f"{'configuration':17} {'states':>11} {'transitions':>12} {'depth':>6} {'time':>7} {'memory':>8}  result (each search is exhaustive)")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        chosen = [CONFIGURATIONS[n] for n in names]
        # The long ones first; the table in the order of the list.
        longest_first = sorted(chosen, key=lambda c: c.bounds.get("REMOVALS", 0) + c.bounds.get("JOINS", 0), reverse=True)
        futures = {c.name: pool.submit(search, c.flags(), False) for c in longest_first}
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
    """Removes rules one by one; says whether each was noticed that has to be."""
    good = True
    print(f"{'rule removed':66} {'macro':27} {'found':24} {'steps':>5} {'states':>10} {'time':>7}  in")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for m, (where, r) in zip(mutants, pool.map(mutate, mutants), strict=True):
            expected = not m.redundant
            found = r.violation or "nothing"
            print(f"{m.rule:66} {m.define:27} {found:24} {len(r.trail):5} {r.states:10,.0f} {r.seconds:6.1f}s  {where}", flush=True)
            if m.redundant:
                print(f"    {m.redundant}")
            if bool(r.violation) != expected:
                good = False
                print("    NOT AS EXPECTED")
                print("\n".join("    " + s for s in r.trail))
    return good


QUICK_CONFIGURATIONS = ["steady"]
QUICK_MUTANTS = ["NO_ACK_VERSION", "NO_LEASE", "NO_REDRIVE"]


def main() -> int:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["model", "mutants", "quick", "trail"])
    p.add_argument("names", nargs="*", help="configurations, or macros of mutants; none: all")
    p.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="searches at a time")
    a = p.parse_args()
    if lacking := missing_tools():
        print(f"not on PATH: {', '.join(lacking)}. On Debian and Ubuntu: sudo apt-get install {' '.join(lacking)}", file=sys.stderr)
        return 2
    by_define = {m.define: m for m in MUTANTS}
    known = CONFIGURATIONS if a.command == "model" else by_define
    if unknown := [n for n in a.names if n not in known]:
        print(f"no such name: {', '.join(unknown)}. There are: {', '.join(known)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        if a.command == "trail":
            for n in a.names or by_define:
                where, r = mutate(by_define[n])
                print(f"{by_define[n].rule}: removed ({where}): {r.violation or 'no violation'}", *r.trail, sep="\n    ")
            return 0
        good = True
        if a.command in ("model", "quick"):
            good = check_model(a.names or (QUICK_CONFIGURATIONS if a.command == "quick" else CONFIGURATIONS), a.jobs)
        if a.command in ("mutants", "quick"):
            names = a.names or (QUICK_MUTANTS if a.command == "quick" else by_define)
            good = check_mutants([by_define[n] for n in names], a.jobs) and good
    except ModelError as e:
        print(e, file=sys.stderr)
        return 2
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
