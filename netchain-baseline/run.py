#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run NetChain on four switches in a ring, with a host at each, and a prompt (``make
netchain``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from topologies import launch, ownership, p4app  # noqa: E402
from topologies.controller import declaration  # noqa: E402
from topologies.nodes import DIE_WITH_PARENT  # noqa: E402

try:
    from topologies.network import ChainNetwork, NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

HINTS = """In its prompt h1 to h4 are hosts, and sh is this machine:

  h1 bin/netchain put 7 hello        write key 7 at the head
  h3 bin/netchain get 7              read it at the tail
  h1 bin/netchain bench --puts 20    queries a second, every value checked
  py s3.kill()                       s3 is gone; the controller goes around it
  py s3.start(), s3.wait_ready()     s3 is started again, empty ...
  sh bin/netchain recover s3         ... filled, and part of the chain again
  sh bin/netchain events             what the controller has done

exit, or Ctrl-D, ends the network."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="run.py", description="Start NetChain, the baseline, on four switches in a ring, and show a prompt."
    )
    launch.add_switch_arguments(parser)
    parser.add_argument(
        "--seq-bits", choices=("16", "128"), default="128", help="width of sequence numbers (default 128)"
    )
    parser.add_argument("--groups", default="100", help="number of virtual groups of keys (default 100)")
    parser.add_argument("--keys", default="256", help="number of keys (default 256)")
    return parser


def go(options: argparse.Namespace) -> None:
    """Start everything, show the prompt, and stop everything."""
    content = p4app.line(4)
    content["topology"]["links"].append(["s4", "s1"])
    topology = p4app.check(content, "a ring of 4 switches")
    out = ROOT / "out" / "netchain"
    kind = launch.kind_of(options)
    with ChainNetwork(topology, **kind, out=out, controller=False) as net:
        file = out / "netchain.json"
        file.write_text(json.dumps(declaration(topology), indent=2) + "\n")
        same = [
            "--topology",
            str(file.relative_to(ROOT)),
            "--keys",
            options.keys,
            "--groups",
            options.groups,
            "--seq-bits",
            options.seq_bits,
        ]
        command = [*DIE_WITH_PARENT, "bin/netchain", "control", *same, "--detect", "1ms"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as controller:
            try:
                assert controller.stdout is not None
                if not (ready := controller.stdout.readline()).startswith("ready:"):
                    raise NodeError("NetChain's controller does not come up: it has said why above")
                print(f"NetChain is up: {ready.removeprefix('ready: ').strip()}.")
                print(HINTS, flush=True)
                launch.prompt(net.mininet)
            finally:
                controller.kill()


def main() -> int:
    """Run the command and return the exit status."""
    launch.end_on_signals()
    try:
        go(arguments().parse_args())
    except (NodeError, ownership.BusyError, p4app.TopologyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
