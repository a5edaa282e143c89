#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plot the clients' view while a switch of the chain is killed and restored (``make timeline``).

After a while the victim is killed. The controller detects it, waits until its read lease expires,
and continues without it. Then the switch is restarted and rejoins: it is filled while the chain
works, compared with the tail while writes are paused, and made the tail. (NetChain, ``--system
NetChain``, waits for no lease, and fills one virtual group after the other.)
:mod:`experiments.timeline_run` describes the clients; every read value is checked.

``out/timeline.csv`` has a row for every 20 ms: answers a second and latency, of reads and of
writes. ``out/timeline-events.csv`` has the controller's events on the same clock.
``out/timeline.json`` has the conditions of the run, and the outages: the longest time without an
answer to any client.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

import matplotlib  # noqa: E402

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text in SVG

from matplotlib import pyplot  # noqa: E402

from experiments.chain_session import RunError  # noqa: E402
from experiments.provenance import versions  # noqa: E402
from topologies import launch, network_namespaces, p4app  # noqa: E402

try:
    from experiments.timeline_run import SYSTEMS, Event, Times, marks, rows, run
    from topologies.network import NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")


def plot(table: Sequence[dict[str, Any]], events: Sequence[Event], title: str, out: Path) -> None:
    """Draw the PNG and the SVG."""
    figure, (rate, latency) = pyplot.subplots(
        2, 1, sharex=True, figsize=(11, 6.5), height_ratios=(3, 2), layout="constrained"
    )
    x = [row["seconds"] for row in table]
    for name, colour in (("reads", "#1f6f8b"), ("writes", "#c8553d")):
        rate.plot(
            x,
            [row[f"{name}_per_second"] for row in table],
            color=colour,
            linewidth=1,
            label=name,
            drawstyle="steps-post",
        )
        for column, style in (("p50", {"linewidth": 1}), ("max", {"linewidth": 0, "marker": ".", "markersize": 2})):
            y = [row[f"{name}_{column}_ms"] for row in table]
            latency.plot(
                x, [float("nan") if v is None else v for v in y], color=colour, label=f"{name}, {column}", **style
            )
    rate.set_ylabel("answers a second")
    rate.set_ylim(bottom=0)
    rate.legend(loc="lower left", frameon=False)
    latency.set_ylabel("latency, ms")
    latency.set_xlabel("seconds")
    if any(row["reads_max_ms"] or row["writes_max_ms"] for row in table):
        latency.set_yscale("log")
        latency.set_ylim(top=latency.get_ylim()[1] * 10)  # room for the legend
    latency.legend(loc="upper left", frameon=False, ncols=4, fontsize="small")
    top = rate.get_ylim()[1]
    rate.set_ylim(top=top * 1.45)
    for number, (at, label) in enumerate(marks(events)):
        for axis in (rate, latency):
            axis.axvline(at, color="0.5", linewidth=0.8, linestyle=":")
        rate.annotate(
            label,
            (at, top * (1.38 - 0.1 * (number % 4))),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=8,
            va="center",
        )
    for axis in (rate, latency):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    for suffix in (".png", ".svg"):
        figure.savefig(out.with_suffix(suffix), dpi=150)
    pyplot.close(figure)


def write_csv(path: Path, table: Sequence[dict[str, Any]]) -> None:
    """Write rows with the same columns."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="timeline.py", description="Plot what clients see while a switch of the chain is killed and brought back."
    )
    parser.add_argument(
        "--system",
        choices=SYSTEMS,
        default="NetCRAQ",
        help="the system: NetCRAQ, or NetChain, the baseline (default NetCRAQ)",
    )
    launch.add_switch_arguments(parser)
    parser.add_argument(
        "--victim",
        choices=("s1", "s2", "s3", "s4"),
        default="s3",
        help="switch to kill: s1 is the head, s4 the tail (default s3)",
    )
    parser.add_argument("--lease", type=int, default=200, metavar="MS", help="read lease (default 200)")
    parser.add_argument(
        "--short-lease", type=int, metavar="MS", help="read lease while all members respond promptly (default: --lease)"
    )
    parser.add_argument(
        "--keys",
        type=int,
        default=1000,
        metavar="N",
        help="keys in the chain; 64 of them are read and written (default 1000)",
    )
    parser.add_argument(
        "--before", type=float, default=3, metavar="SECONDS", help="time before the switch is killed (default 3)"
    )
    parser.add_argument("--away", type=float, default=3, metavar="SECONDS", help="time until the restart (default 3)")
    parser.add_argument(
        "--after", type=float, default=5, metavar="SECONDS", help="minimum time after the restart (default 5)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "out" / "timeline",
        metavar="NAME",
        help="path of the files, without .png (default out/timeline)",
    )
    return parser


def go(options: argparse.Namespace) -> None:
    """Make the run, and write its files."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kind = launch.kind_of(options)
    times = Times(options.before, options.away, options.after)
    network = options.out.absolute().parent / "network"
    with network_namespaces.private():
        record = run(
            options.system,
            kind,
            network,
            victim=options.victim,
            lease_ms=options.lease,
            short_ms=options.short_lease,
            keys=options.keys,
            times=times,
        )
    table = rows(record.answers, record.seconds)
    write_csv(options.out.with_suffix(".csv"), table)
    write_csv(
        options.out.with_name(options.out.name + "-events.csv"),
        [{"seconds": round(e.at, 4), "event": e.kind, "switch": e.switch, "message": e.message} for e in record.events],
    )
    outages = record.outages()
    result = {
        "system": record.system,
        "engine": record.engine,
        "victim": options.victim,
        "lease_ms": options.lease,
        "keys": options.keys,
        "versions": versions(),
        "outages": outages,
    }
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    role = {"s1": "the head", "s4": "the tail"}.get(options.victim, "a replica")
    lease = f", lease {options.lease} ms" if record.system == "NetCRAQ" else ""
    plot(
        table,
        record.events,
        f"{record.system}: a chain of 4 ({record.engine}{lease}) loses {role} and gets it back",
        options.out,
    )
    about = f"{record.system}, {record.engine}"
    print(
        f"{about}: {options.victim} killed: no write for {outages['failover_write_ms']} ms, no read for {outages['failover_read_ms']} ms"
    )
    changed = f" (the chain was changed in {outages['changed_ms']} ms)" if outages["changed_ms"] else ""
    print(
        f"brought in again in {outages['recovery_seconds']} s: no write for {outages['recovery_write_ms']} ms{changed}"
    )
    print(f"{options.out}.png, .svg, .csv, -events.csv, .json")


def main() -> int:
    """Run the command and return the exit status."""
    try:
        go(arguments().parse_args())
    except (NodeError, RunError, p4app.TopologyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
