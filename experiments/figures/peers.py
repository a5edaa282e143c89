# SPDX-License-Identifier: Apache-2.0
"""Common alternatives to NetCRAQ: etcd, Redis and memcached on the hosts of the same network, with
keys and values of the same size.

The client is the host at the head of a line of four switches. A single server is at the tail's
host; three members of etcd are at the three hosts behind the head's host. Each system is measured
with its own client library over sockets. NetCRAQ is also measured with the load that runs in the
kernel, because over a socket the client is the bottleneck. etcd's data is in memory (tmpfs), so no
disk is measured.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from matplotlib import pyplot

from experiments.bench import ROOT
from experiments.figures.store import Point, Store
from experiments.figures.systems import BITS, KEYS, Failed, Network, network
from topologies.network import ChainNetwork, wait_until

NAME = "peers"
TITLE = "What a user would pick instead"
ENGINE = "ebpf tc"
ETCD, ETCD_ONE, REDIS, MEMCACHED = "etcd, three members", "etcd, one member", "Redis", "memcached (UDP)"
SOCKET, KERNEL = "NetCRAQ, client's socket", "NetCRAQ, load from the kernel"
SYSTEMS = (ETCD, ETCD_ONE, REDIS, MEMCACHED, SOCKET, KERNEL)

MEASURES = {0: ("read", "p50"), 1: ("write", "p50"), 2: ("read", "rate"), 3: ("write", "rate")}
"""By x: the operation, and the measured value: microseconds with one outstanding query, or queries
a second with 64.
"""

OUTSTANDING = 64

explanation = (
    "A client at one end of a line of four switches, the stores at the hosts of the other switches (NetCRAQ: in the switches), 256 keys, values of "
    "16 bytes. Reads are linearizable in etcd and "
    "NetCRAQ. Latency is the median with one query on its way, throughput with 64. Each store is asked through its own client over sockets; NetCRAQ "
    "also by the load that is "
    "made in the kernel, because one client's socket is slower than a switch. All of it shares one machine's CPUs, clients too. etcd's log is in "
    "memory, so no disk is measured."
)


def missing() -> dict[str, str]:
    """Return the systems that are missing on this machine, with advice."""
    absent = {}
    for system, program in ((REDIS, "redis-server"), (MEMCACHED, "memcached")):
        if not shutil.which(program):
            absent[system] = f"there is no {program} on PATH: apt-get install {program.replace('-server', '')}"
    return absent


def build_etcd() -> Path:
    """Build etcd's server in the version of go.mod."""
    path = ROOT / "out" / "etcd"
    subprocess.run(["go", "build", "-o", str(path), "go.etcd.io/etcd/server/v3"], check=True, cwd=ROOT)
    return path


class Peer:
    """A running store, and the command that loads it."""

    def __init__(self, net: ChainNetwork, kind: str, endpoints: list[str]) -> None:
        self._net = net
        self._base = [
            "bin/netcraq-peers",
            kind,
            "--endpoints",
            ",".join(endpoints),
            "--keys",
            str(KEYS),
            "--value-size",
            str(BITS // 8),
        ]

    def ask(self, *, writes: int, outstanding: int, seconds: float) -> dict[str, Any]:
        """Put load on the store, and return the report."""
        command = [
            *self._base,
            "--mix",
            f"get={100 - writes},put={writes}",
            "-n",
            str(outstanding),
            "-d",
            f"{seconds}s",
        ]
        done = self._net.execute("h1", command, timeout=seconds + 60, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        if report["failed"] or report["lost"]:
            raise Failed(f"{' '.join(command)}: {report['failed']} failed, {report['lost']} lost: {report['error']}")
        return report


class Ours:
    """NetCRAQ, loaded through a socket or from the kernel."""

    def __init__(self, net: Network, kernel: bool) -> None:
        self._net = net
        self._kernel = kernel

    def ask(self, *, writes: int, outstanding: int, seconds: float) -> dict[str, Any]:
        """Put load on the chain, and return the report."""
        if self._kernel:
            return self._net.load("h1", writes=writes, outstanding=outstanding, seconds=seconds)
        how = (
            ["--serial"]
            if outstanding == 1
            else ["-n", str(outstanding), "--workers", "2", "--sessions", str(outstanding)]
        )
        command = [
            "bin/netcraqctl",
            "bench",
            "-o",
            "json",
            "--mix",
            f"get={100 - writes},put={writes}",
            "--value-size",
            str(BITS // 8),
            "--duration",
            f"{seconds}s",
            *how,
        ]
        done = self._net.net.execute("h1", command, timeout=seconds + 60, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        if report["failed"] or report["lost"]:
            raise Failed(f"{' '.join(command)}: {report['failed']} failed, {report['lost']} lost")
        return report


@contextlib.contextmanager
def up(system: str, net: Network, etcd: Path) -> Iterator[Peer | Ours]:
    """Start a store on the network's hosts."""
    if system in (SOCKET, KERNEL):
        yield Ours(net, system == KERNEL)
        return
    inner, hosts = net.net, net.net.topology.hosts
    address = {name: str(host.ip.ip) for name, host in hosts.items()}
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netcraq-peers-", dir="/dev/shm")))

        def start(host: str, *command: str) -> None:
            process = inner.spawn(host, command, stdout=subprocess.DEVNULL, stderr=(data / f"{host}.log").open("w"))
            stack.callback(process.wait)
            stack.callback(process.kill)

        if system in (ETCD, ETCD_ONE):
            members = ["h2", "h3", "h4"] if system == ETCD else ["h4"]
            cluster = ",".join(f"{name}=http://{address[name]}:2380" for name in members)
            for name in members:
                start(
                    name,
                    *(str(etcd), "--name", name, "--data-dir", str(data / name), "--log-level", "error"),
                    *(
                        "--listen-client-urls",
                        f"http://{address[name]}:2379",
                        "--advertise-client-urls",
                        f"http://{address[name]}:2379",
                    ),
                    *(
                        "--listen-peer-urls",
                        f"http://{address[name]}:2380",
                        "--initial-advertise-peer-urls",
                        f"http://{address[name]}:2380",
                    ),
                    *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
                )
            peer = Peer(inner, "etcd", [f"{address[name]}:2379" for name in members])
        elif system == REDIS:
            start(
                "h4",
                "redis-server",
                "--bind",
                address["h4"],
                "--port",
                "6379",
                "--save",
                "",
                "--appendonly",
                "no",
                "--protected-mode",
                "no",
                "--dir",
                str(data),
            )
            peer = Peer(inner, "redis", [f"{address['h4']}:6379"])
        else:
            start("h4", "memcached", "-u", "nobody", "-l", address["h4"], "-p", "11211", "-U", "11211")
            peer = Peer(inner, "memcached", [f"{address['h4']}:11211"])
        wait_until(f"{system} answers", lambda: _answers(peer), timeout=20, interval=0.2)
        yield peer


def _answers(peer: Peer) -> bool:
    try:
        peer.ask(writes=50, outstanding=1, seconds=0.1)
    except Failed:
        return False
    return True


def measure(store: Store, repetitions: int, seconds: float, step: Callable[[str], None]) -> list[str]:
    """Make the missing measurements of the systems that this machine has. Returns the failures."""
    failures = []
    systems = [system for system in SYSTEMS if system not in missing()]
    etcd: Path | None = None
    for repetition in range(repetitions):
        wanted = {
            system: [x for x in MEASURES if store.get(Point(NAME, system, ENGINE, 4, float(x), repetition)) is None]
            for system in (systems if repetition % 2 == 0 else systems[::-1])
        }
        if not any(wanted.values()):
            step("")
            continue
        step(f"{TITLE}: {repetition + 1}.")
        etcd = etcd or build_etcd()
        with network("NetCRAQ", ENGINE, 4) as net:
            for system, places in wanted.items():
                if not places:
                    continue
                try:
                    with up(system, net, etcd) as peer:
                        for x in places:
                            what, kind = MEASURES[x]
                            report = peer.ask(
                                writes=100 if what == "write" else 0,
                                outstanding=1 if kind == "p50" else OUTSTANDING,
                                seconds=seconds,
                            )
                            y = report["latencyMicros"]["p50"] if kind == "p50" else report["queriesPerSecond"]
                            values = {
                                "y": y,
                                "p99_us": report["latencyMicros"]["p99"],
                                "queries_per_second": report["queriesPerSecond"],
                            }
                            store.add(Point(NAME, system, ENGINE, 4, float(x), repetition), values)
                except (Failed, TimeoutError, AssertionError) as failure:
                    failures.append(f"{TITLE}: {system}: {failure}")
                time.sleep(0.2)
    return failures


def ratios(store: Store) -> list[dict[str, Any]]:
    """Return the ratios of NetCRAQ to etcd with three members, repetition by repetition, with the
    project's aims.
    """
    measured: dict[tuple[str, int], dict[int, float]] = {}
    for point, values in store.rows(NAME):
        measured.setdefault((point.system, int(point.x)), {})[point.repetition] = values["y"]
    out = []
    for what, x, ours, aim in (
        ("read p50: etcd's over NetCRAQ's, both through sockets", 0, SOCKET, 20.0),
        ("write p50: etcd's over NetCRAQ's, both through sockets", 1, SOCKET, None),
        ("reads a second: NetCRAQ's, loaded from the kernel, over etcd's", 2, KERNEL, 50.0),
        ("reads a second: NetCRAQ's through sockets (the client is the bottleneck) over etcd's", 2, SOCKET, None),
        ("writes a second: NetCRAQ's, loaded from the kernel, over etcd's", 3, KERNEL, None),
    ):
        us, them = measured.get((ours, x), {}), measured.get((ETCD, x), {})
        each = [them[n] / us[n] if x < 2 else us[n] / them[n] for n in us if n in them]
        if each:
            middle = statistics.median(each)
            out.append(
                {
                    "what": what,
                    "aim": aim,
                    "measured": middle,
                    "lowest": min(each),
                    "highest": max(each),
                    "repetitions": len(each),
                    "met": aim is None or middle >= aim,
                }
            )
    return out


def draw(store: Store, folder: Path) -> None:
    """Draw bars: latency and throughput, on logarithmic axes."""
    measured: dict[tuple[str, int], list[float]] = {}
    for point, values in store.rows(NAME):
        measured.setdefault((point.system, int(point.x)), []).append(values["y"])
    systems = [system for system in SYSTEMS if any(system == its for its, _ in measured)]
    canvas, panels = pyplot.subplots(1, 2, figsize=(11, 4.6))
    for axes, kind, label in (
        (panels[0], "p50", "microseconds (median), one query on its way"),
        (panels[1], "rate", f"queries a second, {OUTSTANDING} on their way"),
    ):
        for number, (x, (what, _)) in enumerate((x, measure) for x, measure in MEASURES.items() if measure[1] == kind):
            have = [(place, measured[system, x]) for place, system in enumerate(systems) if (system, x) in measured]
            middles = [statistics.median(values) for _, values in have]
            spread = [
                [middle - min(values) for middle, (_, values) in zip(middles, have, strict=True)],
                [max(values) - middle for middle, (_, values) in zip(middles, have, strict=True)],
            ]
            bars = axes.barh([place + 0.4 * number for place, _ in have], middles, 0.38, xerr=spread, label=what)
            axes.bar_label(
                bars,
                [f"{middle:,.1f}" if middle < 100 else f"{middle:,.0f}" for middle in middles],
                padding=4,
                fontsize=8,
            )
        axes.set_yticks(
            [place + 0.2 for place in range(len(systems))], systems if axes is panels[0] else [""] * len(systems)
        )
        axes.invert_yaxis()
        axes.set(xscale="log", xlabel=label)
        axes.set_xlim(right=axes.get_xlim()[1] * 4)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3, axis="x")
    canvas.suptitle(TITLE)
    canvas.tight_layout()
    for kind in ("png", "svg"):
        canvas.savefig(folder / f"{NAME}.{kind}", dpi=110)
    pyplot.close(canvas)
