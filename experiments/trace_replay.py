#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replay a real Kubernetes cluster's etcd requests through the gateway (``make replay``) and report
the share that the network answers.

The cluster's keys are put into etcd, the rules from docs/etcd.md for Kubernetes are made, and a
dictionary is trained on the cluster's objects. Then the trace of experiments/data is sent to the
gateway at ``--speed`` times its recorded speed. Every get is compared with the written values; for
each one the gateway reports who answered it, and why.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from experiments.etcd_data import EXPORT, TRACE  # noqa: E402
from experiments.etcd_network import ETCD, GATEWAY, HOST, EtcdNetwork  # noqa: E402
from topologies import nodes  # noqa: E402
from topologies.network import NodeError  # noqa: E402

RULES = (("pin", "/registry/"), ("exclude", "/registry/leases/"), ("exclude", "/registry/events/"))
"""The rules of docs/etcd.md."""


class Replay(EtcdNetwork):
    """The network, with a dictionary that the gateway loads at its start."""

    def __init__(self, out: Path, export: Path | None) -> None:
        super().__init__(out, profile=8192)
        self.export = export

    def _start_gateway(self) -> None:
        if self.export:
            command = [
                nodes.built("etcd-monitor"),
                "dictionary",
                "train",
                "--endpoints",
                f"127.0.0.1:{ETCD}",
                str(self.export),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NodeError(f"training a dictionary: {done.stderr.strip()}")
        super()._start_gateway()


def go(options: argparse.Namespace) -> int:
    """Replay the trace, and return the exit status."""
    with Replay(options.out.absolute().parent / "replay", options.export if options.dictionary else None) as stack:
        gateway = f"127.0.0.1:{GATEWAY}"

        def run(*command: str, seconds: float = 60) -> str:
            done = stack.net.execute(HOST, [nodes.built(command[0]), *command[1:]], timeout=seconds, check=False)
            if done.returncode != 0:
                raise NodeError(f"{' '.join(command)}: {done.stderr.strip()}")
            return done.stdout

        for choice, prefix in RULES:
            run("netcraqctl", "placement", choice, "--prefix", prefix)
        replay = [
            "netcraq-replay",
            "--endpoint",
            gateway,
            "--trace",
            str(options.trace),
            "--export",
            str(options.export),
            "--speed",
            str(options.speed),
        ]
        said = run(*replay, "-o", "json", seconds=600)
        report = json.loads(said)
        options.out.write_text(said)
    eligible, network = report["eligible"].get("eligible", 0), report["network"].get("eligible", 0)
    print(f"requests: {report['requests']}; failed: {report['failed'] or 'none'}")
    print(f"gets in the first minute, by who answered: {report['warmUp']}")
    print(f"gets after it: {report['gets']}")
    for could, count in sorted(report["eligible"].items()):
        print(f"  {could}: {count} gets, {report['network'].get(could, 0)} answered by the network")
    print(
        f"{100 * network / max(1, eligible):.0f} % of the {eligible} eligible gets after the first minute were answered by the network; {options.out}"
    )
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="trace_replay.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1,
        help="speed: 1 as recorded, 10 ten times as fast (default 1, which takes 192 s)",
    )
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--export", type=Path, default=EXPORT)
    parser.add_argument(
        "--no-dictionary", dest="dictionary", action="store_false", help="compress values without a dictionary"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "replay.json", help="file for the results (default out/replay.json)"
    )
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        return go(options)
    except (NodeError, OSError) as why:
        sys.exit(f"trace_replay.py: {why}")


if __name__ == "__main__":
    sys.exit(main())
