#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the joint rate of two clients at two ports of one switch, each on a separate CPU, and of
each client alone (``make bench-cores``).

The switch is the whole chain. Each client has its own keys and sessions, and makes its queries in
the kernel, where each answer triggers the next query on the CPU on which it arrived. So the queries
from a port are processed entirely on that client's CPU. Slices of one client, of both and of the
other one follow each other in alternating order (:mod:`experiments.figures.pairs`). A ratio is the
sum of both clients' concurrent rates, divided by the mean of the rates of one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.figures import pairs  # noqa: E402
from experiments.provenance import record  # noqa: E402

KEYS = 16
"""Keys of each client."""
OUTSTANDING = 8
HOSTS = ("h1", "h3")
LOADS = {"reads": "get=1", "writes": "put=1"}
ENGINES = {"ebpf tc": {"engine": "ebpf", "hook": "tc"}, "ebpf xdp": {"engine": "ebpf", "hook": "xdp"}}
WARM = 1.0
"""Warm-up in seconds with both clients: a switch locks by slots once packets meet."""


class Failed(Exception):
    """A slice that is not a measurement."""


def topology() -> Any:
    """A line in which one switch with two hosts is the whole chain. The second switch is not a
    member; a line needs at least two.
    """
    from topologies import p4app

    content = p4app.line(2, lease_ms=2000)
    content["topology"]["links"].append(["h3", "s1"])
    content["topology"]["hosts"]["h3"] = {}
    content["netcraq"]["chains"][0]["members"] = ["s1"]
    return p4app.check(content, "one switch, two hosts")


def ratios(rows: list[dict[str, float]]) -> list[float]:
    """The ratio of each turn: both clients' concurrent rates, added, to the mean of one alone."""
    return [row["both"] / statistics.mean((row["first"], row["second"])) for row in rows]


class Network:
    """One switch, and the loads of its clients."""

    def __init__(self, net: Any, cpus: list[int]) -> None:
        self.net, self.cpus = net, cpus

    def rates(self, clients: tuple[int, ...], mix: str, seconds: float) -> list[float]:
        """The queries a second of each of these clients, which start together."""
        begin = int(1000 * (time.time() + 0.4 + 0.2 * len(clients)))
        running = []
        for n in clients:
            command = ["bin/netcraqctl", "bench", "-o", "json", "--kernel", "--mix", mix, "-n", str(OUTSTANDING)]
            command += ["--duration", f"{seconds}s", "--cpu", str(self.cpus[n]), "--begin-at", str(begin)]
            command += ["--keys", ",".join(f"/cores/{n}/{i}" for i in range(KEYS))]
            running.append(self.net.spawn(HOSTS[n], command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        if time.time() * 1000 > begin:
            for process in running:
                process.kill()
            raise Failed("the loads did not begin together: the machine is too busy")
        found = []
        for process in running:
            out, err = process.communicate(timeout=seconds + 60)
            try:
                report = json.loads(out)
            except ValueError:
                raise Failed(err.strip() or out.strip()) from None
            if process.returncode != 0 or report["failed"] or report.get("wrong"):
                raise Failed(f"{report['failed']} failed, {report.get('wrong')} wrong: {err.strip()}")
            found.append(report["queriesPerSecond"])
        return found

    def turn(self, number: int, mix: str, seconds: float) -> dict[str, float]:
        """Measure one client, both, and the other one; in reverse order every second time."""
        out: dict[str, float] = {}
        for what, clients in pairs.turn(number, (("first", (0,)), ("both", (0, 1)), ("second", (1,)))):
            out[what] = sum(self.rates(clients, mix, seconds))
        return out


def table(found: dict[str, dict[str, list[dict[str, float]]]]) -> Table:
    """A table of the medians."""
    out = Table("", title="queries a second")
    for column in ("one client", "two", "times"):
        out.add_column(column, justify="right")
    for engine, loads in found.items():
        for what, rows in loads.items():
            times = pairs.estimate(ratios(rows))
            one = statistics.mean(statistics.median(row[name] for row in rows) for name in ("first", "second"))
            both = statistics.median(row["both"] for row in rows)
            said = f"{times.middle:.2f} ({times.low:.2f} to {times.high:.2f})"
            said += "" if times.measured else " not measured"
            out.add_row(f"{engine}, {what}", f"{one:,.0f}", f"{both:,.0f}", said)
    return out


def main() -> int:
    """Run the benchmark and return the exit status."""
    parser = argparse.ArgumentParser(prog="bench_cores.py", description="Two clients at two ports, beside one.")
    parser.add_argument("--seconds", type=float, default=0.3, metavar="N", help="length of each slice (default 0.3)")
    parser.add_argument(
        "--turns", type=int, default=8, metavar="N", help="number of turns, of three slices each (default 8)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench-cores.json", metavar="FILE")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("bench_cores.py: this process may use one CPU, and it takes two")
    from topologies import launch

    try:
        from topologies.network import ChainNetwork, NodeError
    except ImportError as missing:
        sys.exit(f"{missing}: {launch.NO_MININET}")
    run = record()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for engine, kind in ENGINES.items():
        found[engine] = {}
        with tempfile.TemporaryDirectory(prefix="netcraq-bench-") as out:
            try:
                with ChainNetwork(topology(), **kind, out=Path(out)) as net:
                    chain = net.topology.chains[0].name
                    net.admin.add_keys(chain, {f"/cores/{n}/{i}": b"" for n in range(2) for i in range(KEYS)})
                    network = Network(net, cpus[:2])
                    for what, mix in LOADS.items():
                        network.rates((0, 1), mix, WARM)
                        found[engine][what] = [network.turn(n, mix, options.seconds) for n in range(options.turns)]
            except (Failed, NodeError) as why:
                sys.exit(f"bench_cores.py: {engine}: {why}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"run": run, "turns": found}, indent=2) + "\n")
    Console().print(table(found))
    print(f"load average before it began: {run['load_average']:.1f} on {os.cpu_count()} processors; {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
