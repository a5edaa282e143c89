#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the interfaces ("doors") of a node side by side (``make bench-nodeapi``): the node API
over a Unix socket, as JSON lines and in the compact framing; and gRPC over a Unix socket and over
TCP; each with a client in Go, in Python and in Node.js. A bare echo over the same socket is the
limit. Also measure locks, small keys and watches by the node API, etcd and Consul
(bench_coordination.py).

One process (``netcraq-doors serve``) has all doors, with the same in-memory store behind them, so
the comparison covers only the doors: none involves a switch. A client makes sequential calls, like
a service that waits for each answer. The clients take turns in each repetition, on a calm machine
and with every core busy. A figure is the median of the repetitions.

A missed aim is marked, but the exit status is still 0, because the speed and the other load of a
machine are not mistakes. ``out/bench-nodeapi.json`` has every repetition.
docs/benchmarks/node-api.md has the rest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments import bench_coordination as coordination  # noqa: E402
from experiments.one_load import Failed, Measured, figure, run  # noqa: E402
from experiments.provenance import record  # noqa: E402

SOURCES = ROOT / "experiments" / "doors"
COMMAND = ROOT / "bin" / "netcraq-doors"
INSTALLED = ROOT / "out" / "bench-nodeapi"

LANGUAGES = ("Go", "Python", "Node.js")
LOADS = ("calm", "busy")


@dataclass(frozen=True)
class Door:
    """An interface to the store: its name in the loads, and its socket at the server."""

    name: str
    kind: str
    socket: str


ECHO = Door("echo, Unix socket (the limit)", "echo", "echo")
JSON = Door("node API, JSON, Unix socket", "json", "node")
COMPACT = Door("node API, compact, Unix socket", "compact", "node")
GRPC_UNIX = Door("gRPC, Unix socket", "grpc", "grpc-unix")
GRPC_TCP = Door("gRPC, TCP", "grpc", "grpc-tcp")
DOORS = (ECHO, JSON, COMPACT, GRPC_UNIX, GRPC_TCP)

ARTICLE = {("gRPC", "calm"): 600, ("gRPC", "busy"): 1800, ("JSON", "calm"): 200, ("JSON", "busy"): 600}
"""The latencies in the article about Node.js services and a sidecar in Go, in microseconds a call:
"Inner Pod Communication in Pipedrive Using Streaming Unix Domain Sockets" (2023).
"""


def case(door: Door, language: str, load: str) -> str:
    """The name of a case in the results."""
    return f"{door.name} | {language} | {load}"


# ---- Installation ----


def install() -> dict[str, str]:
    """Install the loads' dependencies outside of the project into out/. Return the reasons why a
    language's other doors are skipped, by language.
    """
    missing: dict[str, str] = {}
    INSTALLED.mkdir(parents=True, exist_ok=True)
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing["Node.js"] = "Node.js and npm are not installed"
    else:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, INSTALLED / name)
        # Native builds by npm are optional: the packages work without them.
        npm = ["npm", "install", "--no-save", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
        once(INSTALLED / ".npm", [INSTALLED / "package-lock.json"], npm, missing, "Node.js")
    return missing


def once(stamp: Path, inputs: list[Path], command: list[str], missing: dict[str, str], language: str) -> None:
    """Run an installation, unless it was already done for the same inputs."""
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in inputs)).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing what the load in {language} needs", flush=True)
    done = subprocess.run(command, cwd=INSTALLED, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no reason was given").splitlines()
        missing[language] = f"{command[0]} could not install its packages: {lines[-1]}"
        return
    stamp.write_text(wanted)


def left_out(door: Door, language: str, missing: dict[str, str]) -> str:
    """The reason why a case is skipped; "" if it is measured."""
    if language == "Node.js" and shutil.which("node") is None:
        return "Node.js is not installed"
    return missing.get(language, "") if door.kind in ("grpc", "compact") else ""


# ---- One measurement ----


class Server:
    """The server with all doors."""

    def __init__(self, directory: str, etcd: str = "") -> None:
        command = [str(COMMAND), "serve", "--directory", directory]
        if etcd:
            command += ["--etcd", etcd]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"netcraq-doors: {self.process.communicate()[1].strip()}")
        self.sockets: dict[str, str] = json.loads(line)

    def close(self) -> None:
        """End the server."""
        self.process.terminate()
        self.process.wait()


def client(door: Door, language: str, address: str, seconds: float) -> list[str]:
    """The command of a load."""
    if language == "Go":
        return [str(COMMAND), "client", "--door", door.kind, "--address", address, "--seconds", str(seconds)]
    if language == "Python":
        return [sys.executable, str(SOURCES / "client.py"), door.kind, address, str(seconds), "500"]
    return ["node", str(SOURCES / "client.cjs"), door.kind, address, str(seconds), "2000", str(INSTALLED)]


def measure(server: Server, door: Door, language: str, seconds: float) -> dict[str, Any]:
    """Run one load through one door."""
    command = client(door, language, server.sockets[door.socket], seconds)
    return run(f"{language}, {door.name}", command, [server.process.pid])


@contextmanager
def busy_cores(load: str) -> Iterator[None]:
    """Keep every core busy with other work, if the load says so."""
    burners = []
    try:
        if load == "busy":
            burners = [subprocess.Popen([COMMAND, "burn"]) for _ in os.sched_getaffinity(0)]
            time.sleep(0.2)
        yield
    finally:
        for burner in burners:
            burner.terminate()
            burner.wait()


@contextmanager
def served(etcd: str = "") -> Iterator[Server]:
    """Run the server until the end of the context."""
    with tempfile.TemporaryDirectory(prefix="netcraq-doors-") as directory:
        server = Server(directory, etcd)
        try:
            yield server
        finally:
            server.close()


def turns(repetitions: int, what: str) -> Iterator[str]:
    """Yield the loads in turn, each several times, with the machine as busy as the load says."""
    began, count = time.monotonic(), repetitions * len(LOADS)
    for turn in range(count):
        load = LOADS[turn % len(LOADS)]
        print(f"{time.monotonic() - began:4.0f} s: {what}, turn {turn + 1} of {count}, {load}", flush=True)
        with busy_cores(load):
            yield load


def coordinate(options: argparse.Namespace, versions: dict[str, Any], left_out: dict[str, str]) -> Measured:
    """Measure the coordination calls of all available coordinators."""
    measured: Measured = {}
    with coordination.others(INSTALLED, left_out) as others, served(others.etcd()) as server:
        versions.update(others.versions)
        found = coordination.coordinators(server.sockets, server.process.pid, others, options.node_api)
        for load in turns(options.repetitions, "coordination"):
            for each in found:
                for job in coordination.JOBS:
                    one = each.measure(COMMAND, job, options.seconds)
                    versions["clients"][each.name] = one.pop("version")
                    measured.setdefault(coordination.case(each.name, job, load), []).append(one)
    return measured


def go(options: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements, in turn."""
    missing = install()
    cases = [(door, language) for door in DOORS for language in options.languages]
    out = {f"{door.name} | {language}": why for door, language in cases if (why := left_out(door, language, missing))}
    cases = [(door, language) for door, language in cases if f"{door.name} | {language}" not in out]
    measured: Measured = {}
    result: dict[str, Any] = {
        "engine": "none: store.Memory, in the process that has the doors",
        "run": record(),
        "versions": {"clients": {}},
        "load_average": os.getloadavg(),
        "left_out": out,
    }
    with served() as server:
        for load in turns(options.repetitions, "doors"):
            for door, language in cases:
                found = measure(server, door, language, options.seconds)
                result["versions"]["clients"][f"{door.name} | {language}"] = found.pop("version")
                measured.setdefault(case(door, language, load), []).append(found)
    result["measured"] = measured
    result["coordination"] = coordinate(options, result["versions"], out)
    result["aims"] = [
        {"what": what, "measured": found, "aim": aim, "met": met} for what, found, aim, met in judge(measured)
    ]
    result["article_us"] = {" | ".join(key): value for key, value in ARTICLE.items()}
    result["options"] = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    return result


# ---- Output ----


def median(measured: Measured, door: Door, language: str, load: str, what: str) -> float | None:
    """The median of the repetitions; None if the case was skipped."""
    found = measured.get(case(door, language, load))
    return round(statistics.median(each[what] for each in found), 1) if found else None


def ratio(measured: Measured, of: Door, to: Door, language: str, load: str) -> float | None:
    """The median of the ratios of the medians (p50) within each repetition."""
    mine, others = measured.get(case(of, language, load)), measured.get(case(to, language, load))
    if not mine or not others:
        return None
    return statistics.median(a["p50_us"] / b["p50_us"] for a, b in zip(mine, others, strict=True))


def judge(measured: Measured) -> list[tuple[str, str, str, bool]]:
    """Compare the measurements with the aims."""
    rows = []
    for load in LOADS:
        for language, name in (("Node.js", "@grpc/grpc-js"), ("Go", "grpc-go"), ("Python", "grpcio")):
            for grpc in (GRPC_UNIX, GRPC_TCP):
                found = ratio(measured, JSON, grpc, language, load)
                if found is None:
                    continue
                what = f"{language}, {load}: p50 of JSON to that of {name}, {grpc.name.split(', ')[1]}"
                note = "1/3" if language != "Python" else "none"
                if language == "Node.js":
                    note += ", better 1/5" + (": reached" if found <= 1 / 5 else "")
                rows.append((what, f"{found:.2f}", note, language == "Python" or found <= 1 / 3))
        found = ratio(measured, COMPACT, ECHO, "Go", load)
        if found is not None:
            rows.append((f"Go, {load}: p50 of compact to that of the echo", f"{found:.2f}", "1.5", found <= 1.5))
    return rows


def tables(measured: Measured, languages: list[str]) -> Iterator[Table]:
    """Yield a table for each load, with the article's figures next to ours."""
    for load in LOADS:
        table = Table(title=f"a get, {'a calm machine' if load == 'calm' else 'every core busy'}, microseconds")
        table.add_column("door")
        for language in languages:
            table.add_column(f"{language}\np50", justify="right")
            table.add_column("\np99", justify="right")
            table.add_column("CPU client\n+ server", justify="right")
        for door in DOORS:
            row = [door.name]
            for language in languages:
                p50, p99, mine, theirs = (
                    median(measured, door, language, load, what)
                    for what in ("p50_us", "p99_us", "client_cpu_us", "server_cpu_us")
                )
                row += [figure(p50), figure(p99), f"{figure(mine)} + {figure(theirs)}" if p50 is not None else ""]
            table.add_row(*row)
        yield table
    table = Table(title="Node.js, microseconds a call: the article's beside ours (p50)")
    for column in ("", "the article, calm", "ours", "the article, busy", "ours"):
        table.add_column(column, justify="left" if not column else "right")
    for name, kind, door in (("gRPC, TCP", "gRPC", GRPC_TCP), ("JSON, Unix socket", "JSON", JSON)):
        row = [name]
        for load in LOADS:
            row += [str(ARTICLE[kind, load]), figure(median(measured, door, "Node.js", load, "p50_us"))]
        table.add_row(*row)
    yield table


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench_nodeapi.py", description="Measure the node API beside gRPC, with clients in three languages."
    )
    parser.add_argument("--seconds", type=float, default=1, metavar="N", help="length of each measurement (default 1)")
    parser.add_argument(
        "--repetitions", type=int, default=5, metavar="N", help="repetitions of each measurement (default 5)"
    )
    parser.add_argument(
        "--node-api",
        default="",
        metavar="SOCKET",
        help="address of a running server (of make run, for example), to measure its coordination, too",
    )
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=list(LANGUAGES), metavar="LANGUAGE")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "out" / "bench-nodeapi.json",
        metavar="FILE",
        help="file for the results (default out/bench-nodeapi.json)",
    )
    return parser


def main() -> int:
    """Run the benchmark and return the exit status."""
    options = arguments().parse_args()
    try:
        result = go(options)
    except (Failed, OSError) as why:
        sys.exit(f"bench_nodeapi.py: {why}")
    except KeyboardInterrupt:
        return 130
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    console = Console(width=max(140, shutil.get_terminal_size().columns))
    for table in tables(result["measured"], options.languages):
        console.print(table)
    for table in coordination.tables(result["coordination"], LOADS):
        console.print(table)
    aims = Table(title="the aims")
    for column in ("", "measured", "aim", ""):
        aims.add_column(column)
    for aim in result["aims"]:
        mark = "" if aim["aim"] == "none" else "met" if aim["met"] else "MISSED"
        aims.add_row(aim["what"], aim["measured"], aim["aim"], mark)
    console.print(aims)
    for what, why in result["left_out"].items():
        console.print(f"left out: {what}: {why}")
    load = result["load_average"][0]
    console.print(
        f"load average before it began: {load:.1f} on {os.cpu_count()} processors"
        + (" (this machine was not calm)" if load > 0.5 * (os.cpu_count() or 1) else "")
        + f"; {options.out} has every repetition"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
