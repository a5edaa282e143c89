#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the delay until a consumer is notified of a commit (part of ``make bench-streams``): by a
stream of keys with push, by the node API's watch, and by etcd's watch.

A chain has four switches, with a node API at the hosts of the first and the last one. A program
writes a key at the first one, by each way in turn, and follows it at the last one. There are two
etcds on this machine's loopback: one with three members and data on this machine's disk, as in
production; and one with one member and data in memory (tmpfs), which excludes the disk. Each write
starts when the previous one was notified, so other load on the machine affects all ways.

*told* is the time from the call of put to the callback; *answered* from the call to put's answer;
*after* from the answer, when the writer knows that the write is committed, to the callback:
negative if the callback came first. ``out/bench-streams-latency.json`` has every round.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.provenance import record  # noqa: E402
from topologies import launch, nodes, p4app  # noqa: E402

try:
    from topologies.network import ChainNetwork, NodeError
    from topologies.sidecar import Sidecar
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

WAYS = {
    "push": "a stream of keys, by push",
    "watch": "the node API's watch",
    "etcd": "etcd's watch, three members",
    "etcd-one": "etcd's watch, one member, no disk",
}
WHAT = ("told", "answered", "after")
SWITCHES = 4

Rounds = list[dict[str, dict[str, Any]]]
"""Reports of ``netcraq-streams follow``, by way."""


def free_port() -> int:
    """A free TCP port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def etcd(members: int, place: Path) -> Iterator[str]:
    """Run an etcd with its data in a folder of a place. Yield the client address of a member."""
    ports = [(free_port(), free_port()) for _ in range(members)]
    cluster = ",".join(f"m{n}=http://127.0.0.1:{peer}" for n, (_, peer) in enumerate(ports))
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netcraq-etcd-", dir=place)))
        processes = []
        for n, (client, peer) in enumerate(ports):
            here, there = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            command = ["etcd", "--name", f"m{n}", "--data-dir", str(data / f"m{n}"), "--logger", "zap"]
            command += ["--log-level", "error", "--listen-client-urls", here, "--advertise-client-urls", here]
            command += ["--listen-peer-urls", there, "--initial-advertise-peer-urls", there]
            command += ["--initial-cluster", cluster]
            with (data / f"m{n}.log").open("wb") as log:
                processes.append(subprocess.Popen([*nodes.DIE_WITH_PARENT, *command], stdout=log, stderr=log))
            stack.callback(nodes.stop_process, processes[-1])
        deadline = time.monotonic() + 60
        for n, (client, _) in enumerate(ports):
            while True:
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{client}/health", timeout=2):
                    break
                if processes[n].poll() is not None or time.monotonic() > deadline:
                    raise NodeError(f"etcd does not come up; {nodes.tail(data / f'm{n}.log')}")
                time.sleep(0.05)
        yield f"http://127.0.0.1:{ports[0][0]}"


def go(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds."""
    rounds: Rounds = []
    topology = p4app.check(p4app.line(SWITCHES, 1024), f"a line of {SWITCHES} switches")
    out = options.out.absolute()
    run, before = record(), os.getloadavg()
    left_out = {}
    with ExitStack() as stack:
        etcds = {}
        if shutil.which("etcd") is None:
            left_out["etcd's watch"] = "there is no etcd on PATH"
        else:
            out.mkdir(parents=True, exist_ok=True)
            etcds["etcd"] = stack.enter_context(etcd(3, out))
            memory = Path("/dev/shm")
            if memory.is_dir():
                etcds["etcd-one"] = stack.enter_context(etcd(1, memory))
            else:
                left_out[WAYS["etcd-one"]] = f"there is no {memory}"
        network = stack.enter_context(ChainNetwork(topology, **launch.kind_of(options), out=out / "bench-streams"))
        hosts = list(topology.hosts)
        sidecars = [Sidecar(network, host, ["--streams-memory", "64"]) for host in (hosts[0], hosts[-1])]
        for sidecar in sidecars:
            sidecar.wait_ready()
        command = [nodes.built("netcraq-streams"), "follow", "--writes", str(options.writes)]
        command += ["--writer", sidecars[0].socket, "--reader", sidecars[1].socket]
        for name, endpoint in etcds.items():
            command += ["--etcd", f"{name}={endpoint}"]
        for n in range(options.rounds):
            print(f"round {n + 1} of {options.rounds}", flush=True)
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                raise NodeError(f"the followers: {done.stderr.strip()}")
            rounds.append(json.loads(done.stdout))
        engine = network.running_engine
    return {
        "what": "microseconds",
        "engine": engine,
        "run": run,
        "load_average": {"before": before, "after": os.getloadavg()},
        "rounds": rounds,
        "left_out": left_out,
        "aim": judge(rounds),
    }


def median(rounds: Rounds, way: str, what: str, which: str) -> float:
    """The median over the rounds."""
    return statistics.median(r[way][f"{what}_us"][which] for r in rounds)


def judge(rounds: Rounds) -> dict[str, Any] | None:
    """Compare the latency of push with the aim, a tenth of the latency of etcd's watch. Return None
    unless every round measured etcd.
    """
    if not all("etcd" in r for r in rounds):
        return None
    found = {
        p: statistics.median(r["push"]["told_us"][p] / r["etcd"]["told_us"][p] for r in rounds) for p in ("p50", "p99")
    }
    after = {way: median(rounds, way, "after", "p50") for way in ("push", "etcd")}
    return {
        "what": "told by push to told by etcd's watch",
        **found,
        "aim": 0.1,
        "met": found["p50"] <= 0.1,
        "after_us": after,
    }


def table(rounds: Rounds) -> Table:
    """A table for people."""
    out = Table(title="from a write to who follows the key, microseconds")
    out.add_column("")
    for what in ("told", "put is answered", "told after that"):
        for which in ("p50", "p99"):
            out.add_column(f"{what}\n{which}", justify="right")
    for way, name in WAYS.items():
        if all(way in r for r in rounds):
            out.add_row(name, *(f"{median(rounds, way, what, which):.0f}" for what in WHAT for which in ("p50", "p99")))
    return out


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench_streams_latency.py",
        description="Measure the time from a commit until a consumer or an etcd watch receives it.",
    )
    launch.add_switch_arguments(parser)
    parser.add_argument(
        "--writes", type=int, default=1000, metavar="N", help="writes of a round by each way (default 1000)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default 3)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out", metavar="DIR", help="folder for the results (default out/)"
    )
    return parser


def main() -> int:
    """Run the benchmark and return the exit status."""
    options = arguments().parse_args()
    try:
        result = go(options)
    except (NodeError, OSError) as why:
        sys.exit(f"bench_streams_latency.py: {why}")
    except KeyboardInterrupt:
        return 130
    result["options"] = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "bench-streams-latency.json"
    file.write_text(json.dumps(result, indent=2) + "\n")
    console = Console(width=max(120, shutil.get_terminal_size().columns))
    console.print(table(result["rounds"]))
    if aim := result["aim"]:
        text = f"{aim['what']}: p50 {aim['p50']:.2f}, p99 {aim['p99']:.2f}; the aim is a p50 of {aim['aim']}"
        console.print(f"{text}: {'met' if aim['met'] else 'MISSED'}")
        after = aim["after_us"]
        console.print(f"told after put's answer, p50: by push {after['push']:.0f} us, by etcd {after['etcd']:.0f} us")
    for what, why in result["left_out"].items():
        console.print(f"left out: {what}: {why}")
    load = result["load_average"]
    console.print(
        f"{SWITCHES} switches ({result['engine']}); load average {load['before'][0]:.1f} before, {load['after'][0]:.1f} after, "
        f"on {len(os.sched_getaffinity(0))} cores; {file} has every round"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
