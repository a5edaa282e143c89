#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of a request in Python's clients, the blocking one and the one for asyncio, and
in Go's (``make bench-clients``).

A chain of three switches has 128-bit values. Every client runs in a host at the head and reads 64
keys, through a socket. The clients take turns, in alternating order, several times: with one
request at a time, and with 16 and 64 concurrent ones. The rate depends on other load on the
machine. The processor time of the client's process for each request is its cost. Start-up is
excluded: each client runs once for a short and once for a long time, and the difference counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from netcraq import aio, client  # noqa: E402
from netcraq.admin import Admin  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.provenance import record  # noqa: E402

KEYS = 64
SHORT = 0.3
"""Duration in seconds of the short run, which is subtracted from the longer one."""
CLIENTS = {
    "Go, 1": ("netcraqctl", 1),
    "Python, blocking": ("blocking", 1),
    "Python, asyncio, 1": ("asyncio", 1),
    "Go, 16": ("netcraqctl", 16),
    "Python, asyncio, 16": ("asyncio", 16),
    "Go, 64": ("netcraqctl", 64),
    "Python, asyncio, 64": ("asyncio", 64),
}


def names() -> list[str]:
    """The names of the keys."""
    return [f"/bench/{n}" for n in range(KEYS)]


def value(n: int) -> bytes:
    """The value of a key, to compare every answer with."""
    return b"value %d" % n


def run_blocking(keys: list[int], seconds: float) -> int:
    """Read sequentially, and return the number of reads."""
    done = 0
    with client.Client.from_controller() as c:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            n = done % KEYS
            assert c.get(keys[n]).value == value(n)
            done += 1
    return done


async def run_asyncio(keys: list[int], seconds: float, at_once: int) -> int:
    """Read with a number of concurrent readers, and return the number of reads."""
    done = 0
    async with await aio.Client.from_controller(in_flight=at_once, sessions=1) as c:
        end = time.monotonic() + seconds

        async def reader() -> None:
            nonlocal done
            while time.monotonic() < end:
                n = done % KEYS
                done += 1
                assert (await c.get(keys[n])).value == value(n)

        await asyncio.gather(*(reader() for _ in range(at_once)))
    return done


def inside(kind: str, at_once: int, seconds: float) -> None:
    """The load itself, in a host: print the number of answered reads."""
    placed = Admin().keys("/bench/")
    keys = [placed[name] for name in names()]
    done = run_blocking(keys, seconds) if kind == "blocking" else asyncio.run(run_asyncio(keys, seconds, at_once))
    print(json.dumps({"queries": done}))


def one(net: Any, kind: str, at_once: int, seconds: float) -> tuple[int, float]:
    """Run a client in the host. Return the number of reads, and the processor time of the client's
    process.
    """
    from topologies import nodes

    if kind == "netcraqctl":
        command = [nodes.built("netcraqctl"), "bench", "-o", "json", "-n", str(at_once), "-d", f"{seconds}s"]
        command += ["--serial"] if at_once == 1 else []
        command += ["--keys", ",".join(names())]
    else:
        command = [sys.executable, __file__, "--inside", kind, "--at-once", str(at_once), "--seconds", str(seconds)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = net.execute("h1", command, timeout=seconds + 60, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"bench_clients.py: {' '.join(command)}: {done.stderr.strip()[-500:]}")
    report = json.loads(done.stdout)
    if report.get("wrong") or report.get("failed"):
        sys.exit(f"bench_clients.py: {' '.join(command)}: wrong or failed answers: {report}")
    return report["queries"], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(net: Any, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Measure every client, in turn and in alternating order."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    for turn in range(options.repetitions):
        for name in CLIENTS if turn % 2 == 0 else reversed(CLIENTS):
            kind, at_once = CLIENTS[name]
            few, start = one(net, kind, at_once, SHORT)
            many, cpu = one(net, kind, at_once, SHORT + options.seconds)
            found[name].append(
                {
                    "per_second": round((many - few) / options.seconds),
                    "cpu_us": round((cpu - start) * 1e6 / max(1, many - few), 2),
                }
            )
    return found


def table(found: dict[str, list[dict[str, float]]]) -> Table:
    """A table of the medians."""
    out = Table("client, reads at once")
    for column in ("reads a second", "µs of processor time", "of Go's"):
        out.add_column(column, justify="right")
    for name, rows in found.items():
        go = found[f"Go, {CLIENTS[name][1]}"]
        ratios = sorted(a["cpu_us"] / b["cpu_us"] for a, b in zip(rows, go, strict=True) if b["cpu_us"])
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else "not measured"
        rate, cpu = (statistics.median(r[what] for r in rows) for what in ("per_second", "cpu_us"))
        out.add_row(name, f"{rate:,.0f}", f"{cpu:.1f}", spread)
    return out


def main() -> int:
    """Run the benchmark and return the exit status."""
    parser = argparse.ArgumentParser(prog="bench_clients.py", description="Measure what a request costs a client.")
    parser.add_argument("--seconds", type=float, default=1.5, metavar="N", help="length of each slice (default 1.5)")
    parser.add_argument("--repetitions", type=int, default=4, metavar="N", help="number of repetitions (default 4)")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench-clients.json", metavar="FILE")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--at-once", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.inside, options.at_once, options.seconds)
        return 0
    from topologies import launch, p4app

    try:
        from topologies.network import ChainNetwork, NodeError
    except ImportError as missing:
        sys.exit(f"{missing}: {launch.NO_MININET}")
    run = record()
    with tempfile.TemporaryDirectory(prefix="netcraq-bench-") as out:
        try:
            with ChainNetwork(p4app.check(p4app.line(3, lease_ms=2000), "three switches"), out=Path(out)) as net:
                net.admin.add_keys(net.topology.chains[0].name, {name: value(n) for n, name in enumerate(names())})
                found = measure(net, options)
                engine = net.running_engine
        except NodeError as why:
            sys.exit(f"bench_clients.py: {why}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"run": run, "clients": found, "engine": engine}, indent=2) + "\n")
    Console().print(table(found))
    load = f"load average before it began: {run['load_average']:.1f} on {os.cpu_count()} processors"
    print(f"engine {engine}; {load}; {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
