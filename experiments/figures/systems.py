# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ, NetCRAQ as in the paper, and NetChain, all up at once on equal switches and links, under
the same load made in the kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.bench import ENGINES, ROOT, topology
from experiments.figures import processors
from topologies import network_namespaces
from topologies.controller import declaration
from topologies.network import ChainNetwork, Sent
from topologies.nodes import DIE_WITH_PARENT

KEYS = 256
SHIPPED = "NetCRAQ"
PAPER = "NetCRAQ as in the paper"
NETCHAIN = "NetChain"
SYSTEMS = (SHIPPED, PAPER, NETCHAIN)
BITS = 128
"""The values' size, as in the paper."""


class Failed(Exception):
    """A failed measurement, with the error output."""


class Network:
    """A line of switches, each with a host, all of them members of one chain: ``h1`` is at the
    head.
    """

    def __init__(self, system: str, net: ChainNetwork, file: Path, cpus: Sequence[int]) -> None:
        self.system = system
        self.net = net
        self.cpus = cpus
        self.best: dict[tuple[Any, ...], int] = {}
        """The number of outstanding queries with the highest rate, by load."""
        self._file = file
        self._filled = False
        self._home = os.readlink("/proc/thread-self/ns/net")
        self._processes = [switch.process.pid for switch in net.switches.values() if switch.process]
        self._in_kernel = net.running_engine.startswith("ebpf")

    def sent(self) -> Sent:
        """Return the traffic that left all switch ports, and that hosts sent into them, since their
        creation.
        """
        if os.readlink("/proc/thread-self/ns/net") == self._home:
            return self.net.sent()
        with network_namespaces.entered(self._processes[0]):  # switches are in the network's namespace
            return self.net.sent()

    def _command(
        self,
        *,
        writes: int,
        outstanding: int,
        seconds: float,
        cpus: Sequence[int] | None = None,
        dirty_ttl: int = 0,
        **flags: Any,
    ) -> list[str]:
        common = ["-n", str(outstanding), "--duration", f"{seconds}s"]
        common += ["--cpu", ",".join(map(str, self.cpus if cpus is None else cpus))]
        common += [f"--{name.replace('_', '-')}={str(value).lower()}" for name, value in flags.items()]
        if self.system == SHIPPED:
            mix = f"get={100 - writes},put={writes}"
            dirty = (
                ["--dirty-ttl", str(dirty_ttl), "--keys", ",".join(f"/figures/{i}" for i in range(DIRTY_KEYS))]
                if dirty_ttl
                else []
            )
            return ["bin/netcraqctl", "bench", "-o", "json", "--kernel", "--mix", mix, *dirty, *common]
        chain = ["--topology", str(self._file), "--keys", str(KEYS), "--puts", str(writes), *common]
        if self.system == PAPER:
            return ["bin/netcraq-paper", "bench", "--dirty-ttl", str(dirty_ttl), *chain]
        return ["bin/netchain", "bench", *chain]

    def load(
        self, host: str, *, writes: int = 0, outstanding: int = 32, seconds: float = 0.5, dirty_ttl: int = 0
    ) -> dict[str, Any]:
        """Put load on the chain from a host and return the load's report: ``queriesPerSecond``,
        ``latencyMicros``, ``cpuMicros`` and more. ``cpuMicros`` is the processor time of a query:
        for switches in the kernel the CPUs' time in software interrupts, otherwise the time of the
        switches' processes, which includes the interrupts that they cause.

        ``writes`` of 100 queries are writes. With ``dirty_ttl``, :data:`DIRTY_KEYS` keys are kept
        dirty by writes that live for that many hops; NetChain has no dirty keys. Raises Failed if a
        value was wrong, or a reply was an error.
        """
        self.fill()
        if dirty_ttl and self.system == SHIPPED:
            self._filled = False  # the keys stay dirty
        command = self._command(
            writes=writes, outstanding=outstanding, seconds=seconds, dirty_ttl=dirty_ttl, fill=bool(dirty_ttl)
        )
        before = self._used()
        done = self.net.execute(host, command, timeout=seconds + 60, check=False)
        used = self._used() - before
        report = self._report(command, done.returncode, done.stdout, done.stderr)
        if report["queries"] and used > 0:
            report["cpuMicros"] = 1e6 * used / report["queries"]
        return report

    def _used(self) -> float:
        return processors.softirq(self.cpus) if self._in_kernel else processors.seconds(self._processes)

    def fill(self) -> None:
        """Write values that a load can check to the keys, unless they have them."""
        if not self._filled:
            command = self._command(writes=0, outstanding=1, seconds=0.02)
            done = self.net.execute("h1", command, timeout=60, check=False)
            self._report(command, done.returncode, done.stdout, done.stderr)
            self._filled = True

    def program_time(self, host: str, *, writes: int, outstanding: int, seconds: float) -> tuple[float, float] | None:
        """Return the time in nanoseconds that the switches' eBPF programs take for a query, and how
        often they run for it, as the kernel counts. None if there are no such programs, or the
        kernel does not count.
        """
        with processors.counted_programs() as counted:
            if not counted or not (before := processors.programs(self._processes)):
                return None
            report = self.load(host, writes=writes, outstanding=outstanding, seconds=seconds)
            ns, runs = processors.run_between(before, processors.programs(self._processes))
        return ns / report["queries"], runs / report["queries"]

    def load_together(
        self, hosts: Sequence[str], *, outstanding: int = 32, seconds: float = 0.5
    ) -> list[dict[str, Any]]:
        """Let several hosts read at once, and return their reports."""
        self.fill()
        begin = int(1000 * (time.time() + 0.3 + 0.2 * len(hosts)))
        running = []
        for number, host in enumerate(hosts):
            command = self._command(
                writes=0,
                outstanding=outstanding,
                seconds=seconds,
                cpus=[self.cpus[number % len(self.cpus)]],
                fill=False,
                begin_at=begin,
            )
            running.append(
                (command, self.net.spawn(host, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            )
        if time.time() * 1000 > begin:
            raise Failed("the loads did not begin together: the machine is too busy")
        said = [
            (command, process.communicate(timeout=seconds + 60), process.returncode) for command, process in running
        ]
        return [self._report(command, code, out, err) for command, (out, err), code in said]

    @staticmethod
    def _report(command: list[str], code: int, out: str, err: str) -> dict[str, Any]:
        try:
            report = json.loads(out)
            failed, wrong = report["failed"], report["wrong"]
        except (ValueError, KeyError):  # an error message, perhaps as JSON
            raise Failed(f"{' '.join(command)}: {err.strip() or out.strip()}") from None
        if code != 0 or failed or wrong:
            raise Failed(f"{' '.join(command)}: {failed} failed, {wrong} wrong: {err.strip()}")
        return report

    def dirty_keys(self, *, writes: int, seconds: float) -> float:
        """Return how many of the keys are dirty at the head on average under such a load from
        ``h1``. It samples the state of one random key as often as there is time.
        """
        self.fill()
        command = self._command(writes=writes, outstanding=32, seconds=seconds + 0.5, fill=False)
        pick = random.Random(writes)
        with self.net.spawn("h1", command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(0.5)  # the load gives the keys their values first
            looks, dirty, until = 0, 0, time.monotonic() + seconds
            while time.monotonic() < until:
                # three digits: the name is not a prefix of another key's name
                state = self.net.admin.key_states(f"/figures/{pick.randrange(100, KEYS)}")
                looks += 1
                dirty += state[0]["status"] == "DIRTY"
            out, err = process.communicate(timeout=60)
        self._report(command, process.returncode, out, err)
        return KEYS * dirty / looks


DIRTY_KEYS = 16
"""So few that writing them again and again is no load."""


@contextlib.contextmanager
def together(engine: str, nodes: int, where: str = processors.ONE) -> Iterator[dict[str, Network]]:
    """Bring up all systems at once, each in a network namespace of its own, on the processors of a
    place.
    """
    with processors.placed(where) as cpus, contextlib.ExitStack() as stack:
        yield {system: stack.enter_context(network(system, engine, nodes, cpus)) for system in SYSTEMS}


@contextlib.contextmanager
def network(system: str, engine: str, nodes: int, cpus: Sequence[int] = (0,)) -> Iterator[Network]:
    """Bring up a system on ``nodes`` switches of an engine (a key of
    :data:`experiments.bench.ENGINES`). Loads start on ``cpus``, in turn.
    """
    checked = topology(nodes, BITS)
    # When the load uses all CPUs, the controller's renewals are late, so the lease is long: its
    # expiry is not measured here.
    checked = replace(checked, chains=(replace(checked.chains[0], lease_ms=20_000),))
    with tempfile.TemporaryDirectory(prefix="netcraq-figures-") as out, network_namespaces.private():
        file = Path(out) / "topology.json"
        with ChainNetwork(checked, **ENGINES[engine], out=Path(out) / "network", controller=system == SHIPPED) as net:
            if system == SHIPPED:
                # Without initial values: the load writes them, because a burst of so many writes
                # exceeds BMv2's queues.
                added = net.admin.add_keys(checked.chains[0].name, {f"/figures/{i}": None for i in range(KEYS)})
                if refused := [key["error"] for key in added if key.get("error")]:
                    raise Failed(f"{len(refused)} of {KEYS} keys could not be placed: {refused[0]}")
                yield Network(system, net, file, cpus)
                return
            file.write_text(json.dumps(declaration(checked), indent=2) + "\n")
            with _controlled(CONTROLLERS[system], file):
                yield Network(system, net, file, cpus)


CONTROLLERS = {
    PAPER: ["bin/netcraq-paper", "control"],
    NETCHAIN: ["bin/netchain", "control", "--keys", str(KEYS)],
}


@contextlib.contextmanager
def _controlled(controller: list[str], file: Path) -> Iterator[None]:
    """Run a system's controller, ready."""
    command = [*DIE_WITH_PARENT, *controller, "--topology", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            if not process.stdout.readline().startswith("ready:"):
                raise Failed(f"{controller[0]} does not come up: {process.stderr.read()}")
            yield
        finally:
            process.kill()
