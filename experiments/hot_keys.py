#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show hot etcd keys moving into the network (``make hot-keys``).

1. etcd, the chain with its controller, the gateway in a host at the first switch, and Prometheus,
   which scrapes gateway and controller, start.
2. Keys are written through the gateway, then read and written by Zipf's law, with a line of figures
   each second: few keys take most of the reads.
3. Prometheus finds these hot keys, and the controller places them. The share of reads that the
   network answers rises, the median latency falls.
4. A switch in the middle of the chain is killed under this load, and later restored.
5. With ``--keep`` (``make hot-keys KEEP=1``) the load goes on until Ctrl-C.

Every read value is compared with the written value of its key. The run ends with exit status 1 if a
value is wrong, or if the network never answers half of the reads. ``out/hot-keys.json`` has the
figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from netcraq.admin import AdminError  # noqa: E402

from experiments.provenance import versions  # noqa: E402
from topologies import launch, ownership, p4app  # noqa: E402

try:
    from experiments.etcd_network import EtcdNetwork
    from topologies.network import NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

AT_ONCE = ("--placement-admit-after", "0s")
"""The controller's flag for how long a key must be hot before it is placed. A person waits here."""
FILLING = 64
"""Outstanding writes while the keys are filled: a disk syncs many as fast as one."""
ENOUGH = 0.5
"""The share of reads that the network must answer."""


class Story:
    """The results of the load, second by second."""

    def __init__(self, options: argparse.Namespace, network: EtcdNetwork) -> None:
        self.options = options
        self.network = network
        self.before: dict[str, float] = {}
        self.seconds: list[dict[str, Any]] = []

    def load(self, *arguments: str) -> dict[str, Any]:
        """Run the load for a while and return its report."""
        o = self.options
        keys = ["--keys", str(o.keys), "--value-size", str(o.value_size), "--zipf", str(o.zipf)]
        return self.network.load(*keys, *arguments)

    def fill(self) -> None:
        """Write every key once."""
        self.load("-n", str(FILLING), "--duration", "10ms")
        self.before = self.network.counted()

    def row(self) -> dict[str, Any]:
        """Run the load for a second, or for ``--row`` seconds, and return the figures. (The load
        needs a tenth of a second to start.)
        """
        took = ["--duration", f"{round(1000 * self.options.row) - 100}ms"]
        report = self.load("--fill=false", *took, "-n", str(self.options.outstanding), "--mix", self.options.mix)
        now = self.network.counted()
        new = {who: count - self.before.get(who, 0.0) for who, count in now.items()}
        self.before = now
        reads = sum(new.values())
        get = report["ops"].get("get", {"latencyMicros": {}})["latencyMicros"]
        figures = {
            "second": round((len(self.seconds) + 1) * self.options.row, 2),
            "queries_per_second": round(report["queriesPerSecond"]),
            "hit_rate": round(new.get("network", 0.0) / reads, 4) if reads else None,
            "read_p50_us": get.get("p50"),
            "read_p99_us": get.get("p99"),
            "failed": report["failed"] + report["lost"],
            "placed": sum(chain["placed"] for chain in self.placement()["chains"]),
        }
        self.seconds.append(figures)
        return figures

    def placement(self) -> dict[str, Any]:
        """Return the controller's placement. On a busy machine the controller may lose its
        leadership. It regains it soon, because there is no other controller, so this retries.
        """
        until = time.monotonic() + 10
        while True:
            try:
                return self.network.net.admin.placement()
            except AdminError as error:
                if error.code != "unavailable" or time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def tell(self, seconds: float) -> Iterator[None]:
        """Print rows for some seconds."""
        for _ in range(max(1, round(seconds / self.options.row))):
            print(line(self.row()), flush=True)
            yield

    def keep(self) -> None:
        """Print rows until Ctrl-C."""
        print("the load goes on, for you to watch the controller's page; Ctrl-C ends it", flush=True)
        try:
            while True:
                deque(self.tell(self.options.row))
        except KeyboardInterrupt:
            print("ending", flush=True)

    def hits(self, over: int = 3) -> float:
        """Return the least share of reads that the network answered in the last ``over`` rows."""
        last = [figures["hit_rate"] or 0.0 for figures in self.seconds[-over:]]
        return min(last) if len(last) == over else 0.0


def line(figures: dict[str, Any]) -> str:
    """Format a row."""
    percent = "-" if figures["hit_rate"] is None else f"{100 * figures['hit_rate']:.1f} %"
    p50, p99 = ("-" if figures[name] is None else f"{figures[name]:,.0f}" for name in ("read_p50_us", "read_p99_us"))
    counts = f"{figures['placed']:>8} {figures['failed']:>8}"
    return f"{figures['second']:>6g} {figures['queries_per_second']:>10,} {percent:>10} {p50:>10} {p99:>10} {counts}"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="hot_keys.py", description="Show hot etcd keys moving into the network.")
    parser.add_argument("--nodes", type=int, default=4, metavar="N", help="switches in a ring, 3 to 8 (default 4)")
    launch.add_switch_arguments(parser)
    sealed = [p for p in p4app.PROFILES if p >= 1024]  # cells are sealed, and the sealing does not fit into 128 bits
    parser.add_argument(
        "--profile", type=int, choices=sealed, default=1024, help="width of a value in bits (default 1024)"
    )
    parser.add_argument("--keys", type=int, default=1000, metavar="N", help="number of keys (default 1000)")
    parser.add_argument("--value-size", type=int, default=64, metavar="BYTES", help="size of each value (default 64)")
    parser.add_argument("--zipf", type=float, default=0.99, metavar="S", help="exponent of Zipf's law (default 0.99)")
    parser.add_argument("--mix", default="get=95,put=5", help="operations and their shares (default get=95,put=5)")
    parser.add_argument(
        "--outstanding", type=int, default=8, metavar="N", help="number of outstanding queries (default 8)"
    )
    parser.add_argument(
        "--seconds",
        type=int,
        default=60,
        metavar="N",
        help="time limit for the network to answer half of the reads (default 60)",
    )
    parser.add_argument(
        "--after",
        type=int,
        default=4,
        metavar="N",
        help="seconds of load after a switch is killed; 0: kill none (default 4)",
    )
    parser.add_argument("--keep", action="store_true", help="continue the load at the end until Ctrl-C")
    parser.add_argument(
        "--row",
        type=launch.seconds,
        default=1,
        metavar="SECONDS",
        help="length of load for each line of figures (default 1)",
    )
    parser.add_argument(
        "--bin",
        default="bin",
        metavar="FOLDER",
        help="folder of the programs etcd-monitor and netcraq-peers (default bin)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "out" / "hot-keys.json",
        metavar="FILE",
        help="file for the results (default out/hot-keys.json)",
    )
    return parser


def go(options: argparse.Namespace) -> int:
    """Run the whole demonstration, and return the exit status."""
    print("starting etcd, the chain, the gateway and Prometheus", flush=True)
    kind = {**launch.kind_of(options), "flags": AT_ONCE}
    out = options.out.absolute().parent / "hot-keys"
    with EtcdNetwork(out, switches=options.nodes, profile=options.profile, bin=options.bin, **kind) as network:
        net, story = network.net, Story(options, network)
        print(f"up: switches run by {net.running_engine}; logs are in {network.out}", flush=True)
        print(f"the controller's page, for one browser: {net.admin.page_link()}", flush=True)
        print(f"writing {options.keys:,} keys through the gateway", flush=True)
        story.fill()
        print(
            "second  queries/s    network    p50 µs     p99 µs   placed   failed   (reads: Zipf",
            options.zipf,
            options.mix + ")",
            flush=True,
        )
        for _ in story.tell(options.seconds):
            if story.hits() >= ENOUGH:
                break
        enough = story.hits() >= ENOUGH
        killed, last = None, story.seconds[-1]
        if enough and options.after:
            victim = network.topology.chains[0].members[options.nodes // 2]
            killed = {"switch": victim, "after_second": story.seconds[-1]["second"]}
            net.kill_switch(victim)
            print(f"{victim} was killed", flush=True)
            deque(story.tell(options.after))
            print(f"{victim} is started again and filled", flush=True)
            network.bring_back(victim)
            killed["back_after_second"] = story.seconds[-1]["second"]
            print(f"{victim} is back", flush=True)
            deque(story.tell(2 * options.row))
            for event in net.admin.events():
                if event["type"] in ("chain.failover", "chain.fenced", "chain.recovering", "chain.recovered"):
                    print(f"  {event['time'][11:23]} {event['type']}: {event['message']}")
        placement = story.placement()
        result = {
            "ok": enough,
            "versions": versions(),
            "engine": net.running_engine,
            "killed": killed,
            "seconds": story.seconds,
            "placed": placement["placed"],
            "others": placement["others"],
        }
        result["options"] = {
            name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
        if not enough:
            print(f"the network did not come to answer {100 * ENOUGH:.0f} % of the reads within {options.seconds} s")
            for key in placement["others"][:10]:
                print(f"  {key['key']}: {key['code']}: {key['reason']}")
        else:
            first = story.seconds[0]
            print(
                f"after {last['second']:g} s the network answers {100 * last['hit_rate']:.0f} % of the reads; "
                f"median {first['read_p50_us']:.0f} µs → {last['read_p50_us']:.0f} µs"
            )
            print("every value that was read is one that was written to its key")
        if options.keep:
            story.keep()
        return 0 if enough else 1


def main() -> int:
    """Run the command."""
    options = arguments().parse_args()
    if not 3 <= options.nodes <= 8:
        sys.exit("hot_keys.py: --nodes: 3 to 8, so that a chain is left when one is killed")
    try:
        return go(options)
    except (AdminError, NodeError, ownership.BusyError, OSError) as why:
        sys.exit(f"hot_keys.py: {why}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
