#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plot what clients see while a switch of the chain is killed and brought back (``make timeline``).

A chain of four in a ring, so that there is a way around each, with a reader and a writer at every switch but the one that dies. Each sends its next
query when it has the answer to the last. After a while the victim is killed; the controller notices, waits for its read lease to run out, and goes on
without it. Then it is restarted and brought in again: filled while the chain works, compared with the tail while no write is taken, made the tail.

``out/timeline.csv`` has a row for every 20 ms: answers a second and latency, of reads and of writes. ``out/timeline-events.csv`` has the controller's
events on the same clock. ``out/timeline.json`` says what was measured with what, and the outages: the longest time without an answer to any client.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

import matplotlib  # noqa: E402

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text

from matplotlib import pyplot  # noqa: E402

from experiments.bench import versions  # noqa: E402
from experiments.chain_run import Client, RunError  # noqa: E402
from experiments.query_generator import percentile  # noqa: E402
from topologies import launch, namespaces, p4app  # noqa: E402

try:
    from topologies.network import ENGINES, HOOKS, SWITCHES, ChainNetwork, NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

BIN = 0.02
"""Seconds of a row."""

WRITTEN = 64
"""Keys that are read and written; the others only have to be brought into the switch that comes back."""

KINDS = {"get": "reads", "put": "writes"}

LABELS = {
    "chain.failover": "given up",
    "chain.recovering": "being filled",
    "chain.copied": "filled",
    "chain.recovered": "is the tail",
}
"""Of the controller's events, those that the plot names."""


@dataclass(frozen=True)
class Answer:
    """A query that was answered; seconds since the start."""

    kind: str
    at: float
    took: float


@dataclass(frozen=True)
class Event:
    """Something that happened; seconds since the start."""

    at: float
    kind: str
    switch: str
    message: str


# ---- What is made of the answers ----


def rows(answers: Sequence[Answer], seconds: float) -> list[dict[str, Any]]:
    """A row for each BIN: of reads and of writes, the answers a second, and the median and the longest latency in milliseconds (None: no answers)."""
    bins: list[dict[str, list[float]]] = [{name: [] for name in KINDS.values()} for _ in range(round(seconds / BIN))]
    for answer in answers:
        if 0 <= answer.at < len(bins) * BIN:
            bins[min(int(answer.at / BIN), len(bins) - 1)][KINDS[answer.kind]].append(answer.took * 1e3)
    table = []
    for number, took in enumerate(bins):
        row: dict[str, Any] = {"seconds": round(number * BIN, 3)}
        for name, all_of in took.items():
            all_of.sort()
            row[f"{name}_per_second"] = round(len(all_of) / BIN)
            row[f"{name}_p50_ms"] = round(percentile(all_of, 50), 3) if all_of else None
            row[f"{name}_max_ms"] = round(all_of[-1], 3) if all_of else None
        table.append(row)
    return table


def longest_gap(answers: Sequence[Answer], kind: str, start: float, end: float) -> float:
    """The longest time from ``start`` to ``end`` without an answer of a kind, in milliseconds."""
    at = [start, *sorted(answer.at for answer in answers if answer.kind == kind and start < answer.at < end), end]
    return round(max(after - before for before, after in pairwise(at)) * 1e3, 1)


def frozen(events: Sequence[Event]) -> tuple[float, float] | None:
    """When the chain took no writes: from the decision to freeze to the last member's thaw. None: never."""
    start = next((event.at for event in events if event.kind == "chain.installing" and event.message.endswith(", frozen")), None)
    if start is None:
        return None
    thawed = (e.at for e in events if e.kind == "chain.installed" and e.at > start and not e.message.endswith(", frozen"))
    end = next(thawed, None)
    return None if end is None else (start, end)


def plot(table: Sequence[dict[str, Any]], events: Sequence[Event], title: str, out: Path) -> None:
    """The PNG and the SVG."""
    figure, (rate, latency) = pyplot.subplots(2, 1, sharex=True, figsize=(11, 6.5), height_ratios=(3, 2), layout="constrained")
    x = [row["seconds"] for row in table]
    for name, colour in (("reads", "#1f6f8b"), ("writes", "#c8553d")):
        rate.plot(x, [row[f"{name}_per_second"] for row in table], color=colour, linewidth=1, label=name, drawstyle="steps-post")
        for column, style in (("p50", {"linewidth": 1}), ("max", {"linewidth": 0, "marker": ".", "markersize": 2})):
            y = [row[f"{name}_{column}_ms"] for row in table]
            latency.plot(x, [float("nan") if v is None else v for v in y], color=colour, label=f"{name}, {column}", **style)
    rate.set_ylabel("answers a second")
    rate.set_ylim(bottom=0)
    rate.legend(loc="lower left", frameon=False)
    latency.set_ylabel("latency, ms")
    latency.set_xlabel("seconds")
    if any(row["reads_max_ms"] or row["writes_max_ms"] for row in table):
        latency.set_yscale("log")
        latency.set_ylim(top=latency.get_ylim()[1] * 10)  # room for the legend
    latency.legend(loc="upper left", frameon=False, ncols=4, fontsize="small")
    named = [(e, e.kind if e.kind in ("killed", "restarted") else LABELS.get(e.kind)) for e in events]
    marks: list[tuple[float, str]] = []
    for event, label in named:
        if label and not (marks and marks[-1][1].endswith(label)):
            marks.append((event.at, f"{event.switch} {label}".strip()))
    if pause := frozen(events):
        marks.append((pause[0], f"frozen for {(pause[1] - pause[0]) * 1e3:.0f} ms"))
    top = rate.get_ylim()[1]
    rate.set_ylim(top=top * 1.45)
    for number, (at, label) in enumerate(sorted(marks)):
        for axis in (rate, latency):
            axis.axvline(at, color="0.5", linewidth=0.8, linestyle=":")
        rate.annotate(label, (at, top * (1.38 - 0.1 * (number % 4))), xytext=(3, 0), textcoords="offset points", fontsize=8, va="center")
    for axis in (rate, latency):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    for suffix in (".png", ".svg"):
        figure.savefig(out.with_suffix(suffix), dpi=150)
    pyplot.close(figure)


def write_csv(path: Path, table: Sequence[dict[str, Any]]) -> None:
    """Rows with the same columns."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


# ---- The run ----


def ring(lease_ms: int) -> p4app.Topology:
    """Four switches in a ring, with a host at each, and a chain over all of them."""
    content = p4app.line(4, lease_ms=lease_ms)
    content["topology"]["links"].append(["s4", "s1"])
    return p4app.check(content, "a ring of 4 switches")


class Timeline:
    """One run on a network that is up."""

    def __init__(self, net: ChainNetwork, victim: str, keys: int) -> None:
        """Places the keys."""
        self.net = net
        self.victim = victim
        self.chain = net.topology.chains[0]
        value = b"0123456789abcdef"
        placed = net.admin.add_keys(self.chain.name, {f"key-{number}": value for number in range(keys)})
        if bad := next((key["error"] for key in placed if key.get("error")), None):
            raise RunError(f"placing {keys} keys: {bad['message']}")
        self.ids = [key["keyId"] for key in placed]
        self.firsts = {str(key): base64.b64encode(value).decode() for key in self.ids[:WRITTEN]}
        self.clients: list[tuple[str, Client]] = []
        self.marks: list[tuple[float, str]] = []

    def start_clients(self) -> None:
        """A reader and a writer at every switch but the victim."""
        script = ["nice", "-n", "10", sys.executable, str(ROOT / "experiments" / "chain_client.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        for host in self.net.topology.hosts.values():
            for kind in KINDS if host.switch != self.victim else ():
                client = Client(host.name, host.switch, self.net.spawn(host.name, script, **pipes))
                client.tell({"host": host.name, "chain": self.chain.name, "writes": kind == "put", "firsts": self.firsts})
                self.clients.append((kind, client))
        for _, client in self.clients:
            client.hear()

    def run(self, before: float, away: float, after: float) -> tuple[list[Answer], list[Event]]:
        """Kill the victim after ``before`` seconds, restart it after ``away`` more, bring it in, and end ``after`` seconds after that restart."""
        start = time.monotonic() + 0.3
        wall = time.time() - time.monotonic()
        until = start + before + away + after
        for seed, (kind, client) in enumerate(self.clients):
            pause = {"put": 0.002, "get": 0.0005}[kind]
            client.tell({"loop": {"kind": kind, "keys": self.ids[:WRITTEN], "start": start, "until": until, "seed": seed, "pause": pause}})
        self._wait(start + before)
        self._mark("killed")
        self.net.kill_switch(self.victim)
        self._wait(start + before + away)
        self._mark("restarted")
        self.net.restart_switch(self.victim)
        self._until_set_up()
        self.net.admin.recover(self.chain.name, self.victim)
        if time.monotonic() > until - 0.5:
            raise RunError(f"bringing {self.victim} in took longer than the {after:g} s that there were: give --after more")
        answers: list[Answer] = []
        for kind, client in self.clients:
            for _, _, _, asked, answered, _, wrong in client.hear()["done"]:
                if wrong is None:
                    answers.append(Answer(kind, answered - start, answered - asked))
                elif wrong != "lost":
                    raise RunError(f"{client.host} at {client.switch}: {wrong}")
        events = [Event(at - start, kind, self.victim, "") for at, kind in self.marks]
        for event in self.net.admin.events():
            at = datetime.fromisoformat(event["time"]).timestamp() - wall - start
            if at > 0:
                events.append(Event(at, event["type"], event.get("switch", ""), event["message"]))
        return answers, sorted(events, key=lambda event: event.at)

    def _mark(self, kind: str) -> None:
        self.marks.append((time.monotonic(), kind))

    @staticmethod
    def _wait(until: float) -> None:
        time.sleep(max(0.0, until - time.monotonic()))

    def _until_set_up(self) -> None:
        for _ in range(1000):
            if next(switch for switch in self.net.admin.switches() if switch["name"] == self.victim)["ready"]:
                return
            time.sleep(0.02)
        raise RunError(f"{self.victim} was restarted, and the controller has not set it up within 20 s")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="timeline.py", description="Plot what clients see while a switch of the chain is killed and brought back.")
    parser.add_argument("--switch", choices=SWITCHES, default="embedded", help="netcraq-switch, or simple_switch_grpc from PATH")
    parser.add_argument("--engine", choices=ENGINES, default="auto", help="engine of the embedded switch")
    parser.add_argument("--hook", choices=HOOKS, default="auto", help="where the embedded switch's eBPF meets frames")
    parser.add_argument("--victim", choices=("s1", "s2", "s3", "s4"), default="s3", help="who dies: s1 is the head, s4 the tail (default s3)")
    parser.add_argument("--lease", type=int, default=200, metavar="MS", help="read lease (default 200)")
    parser.add_argument("--keys", type=int, default=1000, metavar="N", help="keys in the chain; 64 of them are read and written (default 1000)")
    parser.add_argument("--before", type=float, default=3, metavar="SECONDS", help="before the switch dies (default 3)")
    parser.add_argument("--away", type=float, default=3, metavar="SECONDS", help="until it is restarted (default 3)")
    parser.add_argument("--after", type=float, default=5, metavar="SECONDS", help="from then on (default 5)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "timeline", metavar="NAME", help="of the files, without .png (default out/timeline)"
    )
    return parser


def go(options: argparse.Namespace) -> None:
    """The run, and what it leaves behind."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    network = {"switch": options.switch, "engine": options.engine, "hook": options.hook}
    with namespaces.private(), ChainNetwork(ring(options.lease), **network, out=options.out.absolute().parent / "network") as net:
        run = Timeline(net, options.victim, options.keys)
        run.start_clients()
        answers, events = run.run(options.before, options.away, options.after)
        engine = net.running_engine
    seconds = options.before + options.away + options.after
    table = rows(answers, seconds)
    write_csv(options.out.with_suffix(".csv"), table)
    write_csv(
        options.out.with_name(options.out.name + "-events.csv"),
        [{"seconds": round(e.at, 4), "event": e.kind, "switch": e.switch, "message": e.message} for e in events],
    )
    killed, restarted = (next(e.at for e in events if e.kind == kind) for kind in ("killed", "restarted"))
    joined = next((e.at for e in events if e.kind == "chain.recovered"), seconds)
    pause = frozen(events)
    result = {
        "engine": engine,
        "victim": options.victim,
        "lease_ms": options.lease,
        "keys": options.keys,
        "versions": versions(),
        "failover": {name: longest_gap(answers, kind, killed, restarted) for kind, name in (("put", "write_outage_ms"), ("get", "read_outage_ms"))},
        "recovery": {
            **{name: longest_gap(answers, kind, restarted, joined + 0.5) for kind, name in (("put", "write_pause_ms"), ("get", "read_pause_ms"))},
            "frozen_ms": round((pause[1] - pause[0]) * 1e3, 1) if pause else None,
        },
    }
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    role = {"s1": "the head", "s4": "the tail"}.get(options.victim, "a replica")
    plot(table, events, f"A chain of 4 ({engine}, lease {options.lease} ms) loses {role} and gets it back", options.out)
    failover, recovery = result["failover"], result["recovery"]
    print(f"{engine}: {options.victim} killed: no write for {failover['write_outage_ms']} ms, no read for {failover['read_outage_ms']} ms")
    print(f"brought in again: no write for {recovery['write_pause_ms']} ms (frozen for {recovery['frozen_ms']} ms)")
    print(f"{options.out}.png, .svg, .csv, -events.csv, .json")


def main() -> int:
    """The exit status."""
    try:
        go(arguments().parse_args())
    except (NodeError, RunError, p4app.TopologyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
