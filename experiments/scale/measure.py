#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure chains of 2 to 8 switches, each slice beside slices of a chain of one, for the comparison
with the model (``python -m experiments.scale.measure``; needs root and ``make build``).

The machine may be busy, so nothing here depends on elapsed time. A slice gives the time that the
switches' eBPF programs ran for a query, as the kernel counts it, and the processor time of a query
in software interrupts. The result goes to ``experiments/data/scale-chains.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from experiments.figures import pairs, processors, programs  # noqa: E402
from experiments.figures.systems import NETCHAIN, SHIPPED, Failed, Network, network  # noqa: E402
from experiments.provenance import record  # noqa: E402
from experiments.scale.costs import DATA  # noqa: E402
from experiments.scale.predict import OUTSTANDING, chain_loads  # noqa: E402

LENGTHS = (2, 4, 8)
SINGLE: dict[str, tuple[str, int]] = {"read": ("h1", 0), "write": ("h1", 100), "read past a switch": ("h2", 0)}
"""The loads on a chain of one, by name: the host, and the writes in 100 queries. The second switch
of the line is not a member, so it only forwards what its host sends.
"""
ROLES = {"NetCRAQ with leases": SHIPPED, NETCHAIN: NETCHAIN}
"""The systems of ``bin/netcraq-programs`` that this comparison uses."""


def one(net: Network, host: str, seconds: float, **load: Any) -> dict[str, float]:
    """Measure one slice: nanoseconds of the programs, their runs, and processor time of a query."""
    switch = load.pop("switch", None)
    command = net._command
    if switch:
        net._command = lambda **flags: [*command(**flags), "--switch", switch]  # type: ignore[method-assign]
    try:
        net.fill()
        with processors.counted_programs() as counted:
            if not counted:
                raise Failed("the kernel does not count the time of eBPF programs")
            before = processors.programs(net._processes)
            report = net.load(host, outstanding=OUTSTANDING, seconds=seconds, **load)
            ns, runs = processors.run_between(before, processors.programs(net._processes))
    finally:
        net._command = command  # type: ignore[method-assign]
    queries = report["queries"]
    return {
        "program_ns": round(ns / queries, 1),
        "runs": round(runs / queries, 3),
        "cpu_ns": round(1000 * report.get("cpuMicros", 0), 1),
        "rate": round(report["queriesPerSecond"]),
    }


def compare(system: str, engine: str, lengths: list[int], rounds: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure one system at one hook: for each length and round, the chain's slices beside those of
    a chain of one. A slice that failed is left out.
    """
    with processors.placed(processors.ONE) as cpus, contextlib.ExitStack() as stack:
        nets = {n: stack.enter_context(network(system, engine, n, cpus)) for n in (1, *lengths)}
        for number in range(rounds):
            for length in lengths:
                loads = [(1, name, {"writes": writes}, host) for name, (host, writes) in SINGLE.items()]
                loads += [(length, name, load, "h1") for name, load in chain_loads(system, length).items()]
                for n, name, load, host in pairs.turn(number, loads):
                    row = {"system": system, "engine": engine, "beside": length, "round": number}
                    try:
                        yield {**row, "length": n, "load": name, **one(nets[n], host, seconds, **load)}
                    except (Failed, subprocess.TimeoutExpired) as why:
                        print(f"{system}, {engine}, {n}, {name}: {str(why)[:200]}", file=sys.stderr)
            print(f"{system}, {engine}: round {number + 1} of {rounds}", flush=True)


def roles(engine: str) -> list[dict[str, Any]]:
    """Measure the program of one switch for each kind of packet, in memory, without devices."""
    found = programs.run(programs.ENGINES[engine], "--runs", "20000", "--systems", ",".join(ROLES), rounds=8)
    return [
        {
            "system": ROLES[row["system"]],
            "engine": engine,
            "kind": row["kind"],
            "ns": [round(x, 1) for x in row["rounds"]],
        }
        for row in found
    ]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="measure.py", description="Measure chains for the model of scale.")
    parser.add_argument("--engines", nargs="+", default=["ebpf tc", "ebpf xdp"], metavar="E", help="tc and XDP, or one")
    parser.add_argument("--systems", nargs="+", default=[SHIPPED, NETCHAIN], metavar="S", help="NetCRAQ and NetChain")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), metavar="N", help="chains' lengths")
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="slices of each load (default 8)")
    parser.add_argument("--seconds", type=float, default=0.15, metavar="S", help="of a slice (default 0.15)")
    parser.add_argument("--parts", nargs="+", default=["roles", "slices"], metavar="P", help="roles, slices, or both")
    parser.add_argument("--out", type=Path, default=DATA, metavar="FILE", help="default experiments/data/")
    options = parser.parse_args()
    result: dict[str, Any] = {"run": record(), "roles": [], "slices": []}
    for engine in options.engines:
        if "roles" in options.parts:
            result["roles"] += roles(engine)
            options.out.write_text(json.dumps(result) + "\n")
        for system in options.systems if "slices" in options.parts else ():
            for row in compare(system, engine, options.lengths, options.rounds, options.seconds):
                result["slices"].append(row)
                options.out.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
