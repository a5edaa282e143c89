# SPDX-License-Identifier: Apache-2.0
"""The part of ``make bench-nodeapi`` that compares coordination: acquiring a free lock, passing on
a lock, writing a small key, and the delay until a watcher is notified. It uses the node API, etcd's
client and Consul's API, with two clients in Go each.

The systems differ in durability, as the tables say. The node API's volatile keys are in memory; no
switch is involved here, so the round trips to switches are missing (``--node-api`` measures a
server with switches). Its durable keys are in the same etcd that etcd's client uses. That etcd
writes to a disk; another one that writes to memory is measured as well. Each system has one member
on the loopback, so the cost of agreement between members is missing for all.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.one_load import Failed, Measured, figure, run

JOBS = {
    "lock": "lock and unlock",
    "pass": "lock passed on",
    "put": "put of a key",
    "watch": "put until told",
}
"""The jobs of ``netcraq-doors coordinate``, and their names in the tables."""

MEMORY = Path("/dev/shm")

DURABLE = "node API, durable (etcd"
"""The beginning of the name of the node API's durable keys. The name of their etcd follows."""


@dataclass
class Other:
    """A server of another project: its process and its address."""

    kind: str
    name: str
    process: subprocess.Popen[str]
    url: str


@dataclass
class Others:
    """The running servers of other projects. The first etcd writes to the disk."""

    running: list[Other] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def etcd(self) -> str:
        """The address for durable keys; "" if there is no etcd."""
        return next((other.url for other in self.running if other.kind == "etcd"), "")


@dataclass(frozen=True)
class Coordinator:
    """A measured system: its kind for ``netcraq-doors``, and the processes that do the work. If
    ``own`` is set, the first process is the project's server. The others are etcd or Consul.
    """

    name: str
    kind: str
    address: str
    servers: tuple[int, ...]
    own: bool = False

    def measure(self, command: Path, job: str, seconds: float) -> dict[str, Any]:
        """Measure one job for a while."""
        flags = ["--door", self.kind, "--address", self.address, "--job", job, "--seconds", str(seconds)]
        # A client waits some time for a lock before it is passed on, so there are few such calls.
        flags += ["--warm", "2" if job == "pass" else "20", "--least", "10"]
        found = run(f"{self.name}, {JOBS[job]}", [str(command), "coordinate", *flags], self.servers)
        found["way_cpu_us"] = found["client_cpu_us"] + (found["first_server_cpu_us"] if self.own else 0)
        return found


def case(name: str, job: str, load: str) -> str:
    """The name of a case in the results."""
    return f"{name} | {JOBS[job]} | {load}"


def coordinators(sockets: dict[str, str], pid: int, others: Others, node_api: str) -> list[Coordinator]:
    """All systems that can be measured. The sockets are those of ``netcraq-doors serve``, whose
    process is ``pid``.
    """
    found = [Coordinator("node API, volatile (memory, no switch)", "node", sockets["node"], (pid,), own=True)]
    if node_api:
        found.append(Coordinator("node API, --node-api", "node", node_api, ()))
    for other in others.running:
        if other.url == others.etcd():
            name = other.name.replace("etcd", DURABLE, 1) + ")"
            found.append(Coordinator(name, "node", sockets["durable"], (pid, other.process.pid), own=True))
    found += [Coordinator(other.name, other.kind, other.url, (other.process.pid,)) for other in others.running]
    return found


# ---- Servers that are not the project's ----


@contextmanager
def others(directory: Path, left_out: dict[str, str]) -> Iterator[Others]:
    """Start etcd, on a disk and in memory, and Consul, if they are installed. The reasons for
    missing ones go into left_out.
    """
    found = Others()
    with ExitStack() as stack:
        for program, kind, where in (
            ("etcd", "etcd", directory),
            ("etcd", "etcd", MEMORY),
            ("consul", "consul", directory),
        ):
            if shutil.which(program) is None:
                left_out[f"coordination by {program}"] = f"{program} is not on PATH"
                continue
            if not where.is_dir():
                left_out[f"coordination by {program} in memory"] = f"there is no {where}"
                continue
            found.versions[program] = version(program)
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{program}-", dir=where))
            other = etcd(data) if kind == "etcd" else consul(data)
            stack.callback(end, other.process)
            wait(other)
            found.running.append(other)
        yield found


def version(program: str) -> str:
    """The first line of a program's version output."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return (said.splitlines() or ["?"])[0].strip()


def ports(count: int) -> list[int]:
    """Currently free TCP ports of the loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def etcd(data: str) -> Other:
    """Start an etcd of one member with defaults: it waits for its disk."""
    client, peer = (f"http://127.0.0.1:{port}" for port in ports(2))
    command = [
        "etcd",
        "--name",
        "bench",
        "--data-dir",
        data,
        "--log-level",
        "error",
        "--initial-cluster",
        f"bench={peer}",
    ]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    return Other("etcd", f"etcd, fsync on {file_system(data)}", daemon(command), client)


def consul(data: str) -> Other:
    """Start a Consul of one server."""
    http, server, serf = ports(3)
    command = ["consul", "agent", "-server", "-bootstrap-expect=1", "-bind=127.0.0.1", f"-data-dir={data}"]
    command += ["-node=bench", "-log-level=error", f"-http-port={http}", f"-server-port={server}"]
    command += [f"-serf-lan-port={serf}", "-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1"]
    name = f"Consul, fsync on {file_system(data)}"
    return Other("consul", name, daemon(command), f"http://127.0.0.1:{http}")


def daemon(command: list[str]) -> subprocess.Popen[str]:
    """Start a server."""
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a server, whose data are not needed."""
    process.kill()
    process.wait()


def wait(other: Other, limit: float = 60) -> None:
    """Wait until a server has a leader."""
    questions: dict[str, tuple[str, Callable[[bytes], bool]]] = {
        "etcd": ("/health", lambda text: json.loads(text).get("health") == "true"),
        "consul": ("/v1/status/leader", lambda text: len(text.strip()) > 2),
    }
    path, good = questions[other.kind]
    deadline = time.monotonic() + limit
    while True:
        try:
            with urllib.request.urlopen(other.url + path, timeout=5) as answer:
                if good(answer.read()):
                    return
        except (urllib.error.URLError, OSError, ValueError):
            pass
        if other.process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{other.name} does not serve (exit status {other.process.poll()})")
        time.sleep(0.1)


def file_system(path: str, mounts: str = "") -> str:
    """The type of a path's file system."""
    place, best, kind = Path(path).resolve(), -1, "?"
    for line in (mounts or Path("/proc/mounts").read_text()).splitlines():
        _, where, found, *_ = line.split(" ")
        root = Path(where.replace("\\040", " "))
        if (place == root or root in place.parents) and len(root.parts) >= best:
            best, kind = len(root.parts), found
    return kind


# ---- Output ----


def tables(measured: Measured, loads: tuple[str, ...]) -> Iterator[Table]:
    """Yield a table for each load, with medians of the repetitions."""
    names = list(dict.fromkeys(key.split(" | ")[0] for key in measured))
    for load in loads:
        table = Table(title=f"coordination, {'a calm machine' if load == 'calm' else 'every core busy'}, microseconds")
        table.add_column("two clients in Go by", no_wrap=True)
        for what in JOBS.values():
            table.add_column(f"{what}\np50", justify="right")
            table.add_column("\np99", justify="right")
        for name in names:
            row = [name]
            for job in JOBS:
                found = measured.get(case(name, job, load))
                for what in ("p50_us", "p99_us"):
                    row.append(figure(statistics.median(each[what] for each in found) if found else None))
            table.add_row(*row)
        yield table
        if any(name.startswith(DURABLE) for name in names):
            yield ratios(measured, names, load)


def ratios(measured: Measured, names: list[str], load: str) -> Table:
    """How durable keys compare to etcd's own client on the same etcd: medians of the ratios within
    each repetition. The processor time is that of the clients and the project's server, without
    etcd's.
    """
    table = Table(title=f"durable keys, {load}: times etcd's own client on the same etcd")
    for column in ("call", "p50", "p99", "processor time"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for name in names:
        if not name.startswith(DURABLE):
            continue
        etcd = name.replace(DURABLE, "etcd", 1).removesuffix(")")
        for job, what in JOBS.items():
            pairs = list(
                zip(measured.get(case(name, job, load), []), measured.get(case(etcd, job, load), []), strict=False)
            )
            if pairs:
                found = [
                    statistics.median(a[key] / b[key] for a, b in pairs) for key in ("p50_us", "p99_us", "way_cpu_us")
                ]
                table.add_row(what, *(f"{each:.2f}" for each in found))
    return table
