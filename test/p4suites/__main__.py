# SPDX-License-Identifier: Apache-2.0
"""``make p4-suites``: run programs and tests that other projects wrote for BMv2, on
``netcraq-switch`` and on BMv2.

Environment variables name the checkouts, which are copied and run in separate namespaces. For a
missing checkout, the command to clone it is printed. At the end, the table and
``DIR/p4-suites.json`` are written.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import corpus, learning, originals, programs, ptf, sources, tutorials
from .outcome import Outcome, seen, table
from .sandbox import BMV2, ENGINES, Tools

ROOT = Path(__file__).resolve().parents[2]

SUITES = ("tutorials", "iperf", "tutorials-ptf", "p4-guide", "ngsdn", "p4-learning", "p4c", "originals", "programs")
"""The suites, by the names that ``--suite`` takes."""

Case = tuple[str, Callable[[], dict[str, Outcome]]]


def cases(suite: str, tools: Tools, work: Path, go: str) -> Iterator[Case] | str:
    """The cases of a suite, each with the function that runs it; or why there are none."""
    if suite == "programs":
        return _programs(tools, work, go)
    if suite == "originals":
        return _originals(tools, work)
    wanted = {
        "tutorials": sources.TUTORIALS,
        "iperf": sources.TUTORIALS,
        "tutorials-ptf": sources.TUTORIALS,
        "p4-guide": sources.GUIDE,
        "ngsdn": sources.NGSDN,
        "p4-learning": sources.LEARNING,
        "p4c": sources.P4C,
    }
    source = wanted[suite].find()
    if isinstance(source, str):
        return source
    if suite == "tutorials":
        return (
            (x.name, lambda x=x: {x.name: tutorials.attempt(x, source, work / x.name, tools)})
            for x in tutorials.EXERCISES
        )
    if suite == "iperf":
        return ((x[0], lambda x=x: {x[0]: tutorials.iperf(*x, source, work / x[0], tools)}) for x in tutorials.IPERF)
    if suite == "tutorials-ptf":
        tested = [p.parent.name for p in sorted(source.glob("exercises/*/runptf.sh"))]
        return ((x, lambda x=x: ptf.tutorial(source, work / x, x, tools)) for x in tested)
    if suite == "p4-guide":
        return ((x, lambda x=x: ptf.guide(source, work / x.replace("/", "-"), x, tools)) for x in ptf.GUIDE)
    if suite == "ngsdn":
        return iter([("ngsdn", lambda: ptf.ngsdn(source, work / "ngsdn", tools))])
    if suite == "p4-learning":
        utils = sources.UTILS.find()
        if isinstance(utils, str):
            return utils
        return (
            (x, lambda x=x: {x: learning.attempt(x, source, utils, work / "network", tools)})
            for x in learning.networks(source)
        )
    return iter([("p4c", lambda: corpus.corpus(source, ROOT, tools.engine, go, work / "go-test.log"))])


def _programs(tools: Tools, work: Path, go: str) -> Iterator[Case] | str:
    """The programs of each checkout. They are compiled once for all engines."""
    found = {x.variable: x.find() for x in sources.ALL}
    there = {name: path for name, path in found.items() if isinstance(path, Path)}
    if not there:
        return "; ".join(str(why) for why in found.values())
    for name in found.keys() - there.keys():
        print(f"SKIPPED programs of {name}: {found[name]}", flush=True)

    def attempt(name: str, path: Path) -> dict[str, Outcome]:
        folder = work.parents[1] / "programs" / name.lower()
        outcomes = programs.attempt(path, ROOT, folder, tools.engine, go, work / f"{name.lower()}.log")
        passed = sum(x.passed for x in outcomes.values())
        if outcomes:
            print(f"     {name}: {passed} of {len(outcomes)} on {tools.engine}", flush=True)
        return {f"{name}/{case}": x for case, x in outcomes.items()}

    return ((name, lambda name=name, path=path: attempt(name, path)) for name, path in there.items())


def _originals(tools: Tools, work: Path) -> Iterator[Case] | str:
    """The programs of NetChain and NetCache, each compared with BMv2."""
    reference = Tools(work.parents[1] / "originals" / "tools", "bmv2", tools.switch, tools.python)
    found: list[Case] = []
    missing: list[str] = []
    for source, make in ((sources.NETCHAIN, originals.netchain), (sources.NETCACHE, originals.netcache)):
        path = source.find()
        if isinstance(path, str):
            missing.append(path)
            continue
        found += [
            (x.name, lambda x=x, path=path: {x.name: originals.attempt(x, path, work / x.name, tools, reference)})
            for x in make(path)
        ]
    if not found:
        return "; ".join(missing)
    for why in missing:
        print(f"SKIPPED originals: {why}", flush=True)
    return iter(found)


_LEARNING = ("mn", "ethtool", "brctl", "iperf")
"""What p4-utils asks for; ``brctl`` is in Debian's bridge-utils."""


def lacking(suite: str, engine: str, python: Path) -> str | None:
    """What a machine lacks for a suite on an engine; None if it lacks nothing."""
    more = {"p4-learning": _LEARNING, "originals": ("simple_switch", "simple_switch_CLI")}.get(suite, ())
    for name in ("unshare", "p4c-bm2-ss", "make", *more, *(BMV2 if engine == "bmv2" else ())):
        if shutil.which(name) is None:
            return f"{name} is not on PATH"
    module = [str(python), "-c", "import mininet, sswitch_runtime, bm_runtime"]
    if suite == "p4-learning" and (done := subprocess.run(module, capture_output=True, text=True)).returncode:
        last = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"{last}: Mininet's and BMv2's modules are to be on PYTHONPATH"
    return None


def main() -> int:
    """Run the chosen suites. The exit code is 1 if a case passes on BMv2 and not here."""
    parser = argparse.ArgumentParser(prog="make p4-suites", description=__doc__)
    parser.add_argument("--suite", default=",".join(SUITES), help="suites to run, with commas")
    parser.add_argument("--engine", default=",".join(ENGINES), help="engines to run the suites on, with commas")
    parser.add_argument("--only", default="", help="only cases whose names contain this text")
    parser.add_argument("--switch", type=Path, default=ROOT / "bin" / "netcraq-switch", help="netcraq-switch")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="Python with the group p4-suites of pyproject.toml"
    )
    parser.add_argument("--go", default="go", help="Go, for p4c's corpus")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "p4-suites", help="directory for copies and logs")
    args = parser.parse_args()
    suites, engines = args.suite.split(","), args.engine.split(",")
    for name, known in [*((x, SUITES) for x in suites), *((x, ENGINES) for x in engines)]:
        if name not in known:
            parser.error(f"there is no {name}: {', '.join(known)}")
    if not args.switch.exists():
        parser.error(f"there is no {args.switch}: make build")
    args.out = args.out.resolve()
    results: dict[str, dict[str, dict[str, Outcome]]] = {}
    for suite in suites:
        for engine in engines:
            if (missing := lacking(suite, engine, args.python)) is not None:
                print(f"SKIPPED {suite} on {engine}: {missing}", flush=True)
                continue
            tools = Tools(args.out / engine / "tools", engine, args.switch, args.python)
            found = cases(suite, tools, args.out / engine / suite, args.go)
            if isinstance(found, str):
                print(f"SKIPPED {suite}: {found}", flush=True)
                break
            for name, attempt in found:
                if args.only not in name:
                    continue
                begun = time.monotonic()
                for case, x in attempt().items():
                    results.setdefault(suite, {}).setdefault(engine, {})[case] = x
                    if x.passed and suite == "programs":
                        continue
                    how = "ok  " if x.passed else "FAIL"
                    took = time.monotonic() - begun
                    print(f"{how} {suite} {engine} {case} {took:.0f} s {x.engine} {x.reason}".rstrip(), flush=True)
    rates = results.pop("iperf", {})
    if results:
        print("\n" + table(results))
    if rates:
        print("\n" + seen(rates))
        results["iperf"] = rates
    args.out.mkdir(parents=True, exist_ok=True)
    plain = {s: {e: {c: dataclasses.asdict(x) for c, x in m.items()} for e, m in r.items()} for s, r in results.items()}
    (args.out / "p4-suites.json").write_text(json.dumps(plain, indent=1) + "\n")
    worse = [
        case
        for outcomes in results.values()
        for case, theirs in outcomes.get("bmv2", {}).items()
        for engine, mine in outcomes.items()
        if engine != "bmv2" and theirs.passed and case in mine and not mine[case].passed
    ]
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
