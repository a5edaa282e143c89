# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ and NetChain, brought up on the same switches and links, under the same load made in the kernel."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.bench import CPU, ENGINES, ROOT, topology
from topologies import namespaces
from topologies.controller import declaration
from topologies.network import ChainNetwork

KEYS = 256
SYSTEMS = ("NetCRAQ", "NetChain")
BITS = 128
"""Of values: the paper's."""


class Failed(Exception):
    """A measurement that gave no figure, with what was said."""


class Network:
    """A line of switches, a host at each, all of them members of one chain: ``h1`` is at the head."""

    def __init__(self, system: str, net: ChainNetwork, file: Path) -> None:
        self.system = system
        self.net = net
        self._file = file

    def load(self, host: str, *, writes: int = 0, outstanding: int = 32, seconds: float = 0.5) -> dict[str, Any]:
        """Put load on the chain from a host and return the report of the load: ``queriesPerSecond``, ``latencyMicros`` and more.

        ``writes`` of 100 queries are writes. Failed where a value was wrong, or an answer was an error.
        """
        common = ["-n", str(outstanding), "--duration", f"{seconds}s", "--cpu", CPU]
        if self.system == "NetCRAQ":
            command = ["bin/netcraqctl", "bench", "-o", "json", "--kernel", "--mix", f"get={100 - writes},put={writes}", *common]
        else:
            command = ["bin/netchain", "bench", "--topology", str(self._file), "--keys", str(KEYS), "--puts", str(writes), *common]
        done = self.net.execute(host, command, timeout=seconds + 60, check=False)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout}") from None
        if done.returncode != 0 or report["failed"] or report["wrong"]:
            raise Failed(f"{' '.join(command)}: {report['failed']} failed, {report['wrong']} wrong: {done.stderr.strip()}")
        return report


@contextlib.contextmanager
def network(system: str, engine: str, nodes: int) -> Iterator[Network]:
    """Bring a system up on ``nodes`` switches of an engine (a key of :data:`experiments.bench.ENGINES`)."""
    checked = topology(nodes, BITS)
    # With all CPUs taken by the load, the controller's renewals come late; a lease that runs out is not what is measured.
    checked = replace(checked, chains=(replace(checked.chains[0], lease_ms=20_000),))
    with tempfile.TemporaryDirectory(prefix="netcraq-figures-") as out, namespaces.private():
        file = Path(out) / "netchain.json"
        with ChainNetwork(checked, **ENGINES[engine], out=Path(out) / "network", controller=system == "NetCRAQ") as net:
            if system == "NetCRAQ":
                net.admin.add_keys(checked.chains[0].name, {f"/figures/{i}": b"" for i in range(KEYS)})
                yield Network(system, net, file)
                return
            file.write_text(json.dumps(declaration(checked), indent=2) + "\n")
            with _netchain(file) as _:
                yield Network(system, net, file)


@contextlib.contextmanager
def _netchain(file: Path) -> Iterator[None]:
    """NetChain's controller, ready."""
    command = ["bin/netchain", "control", "--topology", str(file), "--keys", str(KEYS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            if not process.stdout.readline().startswith("ready:"):
                raise Failed(f"NetChain's controller does not come up: {process.stderr.read()}")
            yield
        finally:
            process.kill()
