#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure streams by push and by pull (``make bench-streams``): the benchmarks of "Colocating
Real-time Storage and Processing: An Analysis of Pull-based versus Push-based Streaming" (Marcu and
Bouvry, 2022), with our broker on one machine. For comparison, measure NATS JetStream with its own
client.

Broker, producers and consumers are separate processes. A producer has one outstanding request for
each of its partitions, with a chunk that was encoded beforehand. One consumer reads a partition, as
in the paper, or, in the last part, all do. The ways take turns in each case and round; ratios are
within a round. A cgroup limits the broker's cores if this user may make one, otherwise its CPU
affinity (whole cores only).

A figure names its bottleneck: ``broker`` if the broker used its share of the processors,
``machine`` if all processors were busy for any reason, ``producer`` or ``consumer`` if such a
process used a whole core. If a producer was the bottleneck, the broker could have done more; such
figures are marked. A missed aim is marked, too, but the exit status is still 0.
``out/bench-streams.json`` has every round, ``out/bench-streams.svg`` and ``.png`` a figure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from netcraq import node  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments.bench_rounds import Aim, Bench, Failed, show_aims, show_load  # noqa: E402
from experiments.one_load import all_cpu_seconds  # noqa: E402

COMMAND = ROOT / "bin" / "netcraq-streams"
JETSTREAM = ROOT / "bin" / "netcraq-bench-jetstream"
"""NATS JetStream and its loads. It belongs to a separate Go module, so it may be missing."""

PYTHON_CONSUMER = ROOT / "experiments" / "streams_consumer.py"

WAYS = ("push", "pull", "compact", "jetstream")
"""``pull`` is the libraries' client (JSON). ``compact`` is the fastest known client: pull in the
compact framing, and nothing else. ``jetstream`` is JetStream's pull consumer, whose client requests
in advance, with the stream in memory.
"""

OF_JETSTREAM = {
    "jetstream": ("messages", "memory"),
    "js-fetch": ("fetch", "memory"),
    "js-push": ("push", "memory"),
    "js-file": ("messages", "file"),
}
"""How JetStream's client reads, and where the stream is: batch after batch, by a push consumer with
flow control, and with the stream in a file, which JetStream syncs every two minutes.
"""

ALL_WAYS = (*WAYS, *(way for way in OF_JETSTREAM if way not in WAYS))

CHUNKS = (1, 4, 16, 64, 128)
"""Producers' chunk sizes in KiB. A consumer receives at most 128 KiB at once, as in the paper."""

CONSUMER_CHUNK = 128 << 10
RING = 1 << 20
"""Bytes of a partition: few, so that slow consumers soon hold up the producers."""

FULL = 0.85
"""A process that used this share of its allowed CPU time was the bottleneck."""


@dataclass(frozen=True)
class Case:
    """A case, which each way measures."""

    part: str
    work: str = "count"
    producers: int = 4
    consumers: int = 4
    partitions: int = 4
    chunk: int = 32
    record: int = 100
    cores: float = 0
    """Cores of the broker; 0: all."""
    all_read_all: bool = False
    language: str = "Go"

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways that measure this case."""
        if self.language != "Go":
            return "push", "pull"
        return ("push", *OF_JETSTREAM) if self.part == JETSTREAMS else WAYS

    @property
    def name(self) -> str:
        """The name in the results."""
        return " | ".join(f"{k}={v}" for k, v in asdict(self).items())


COUNTS, SCARCE, WORDS, CROWD, OTHERS, JETSTREAMS = (
    "iterate and count",
    "the broker's cores limited",
    "word count",
    "all consumers read all",
    "in Python",
    "JetStream's ways",
)


def cases(quick: bool) -> list[Case]:
    """All cases."""
    if quick:
        return [
            Case(COUNTS, chunk=16, producers=1, consumers=1, partitions=2),
            Case(SCARCE, "filter", chunk=16, producers=2, consumers=2, partitions=2, cores=1),
            Case(WORDS, "windows", producers=1, consumers=1, partitions=2, record=2048),
            Case(CROWD, producers=1, consumers=2, partitions=1, all_read_all=True),
            Case(OTHERS, producers=1, consumers=1, partitions=1, language="Python"),
            Case(JETSTREAMS, chunk=16, producers=1, consumers=1, partitions=2),
        ]
    out = [Case(COUNTS, producers=n, consumers=n, chunk=chunk) for n in (1, 2, 4) for chunk in CHUNKS]
    out += [
        Case(SCARCE, work, chunk=chunk, cores=cores)
        for work, cores, chunk in itertools.product(("count", "filter"), (1, 0.5, 0.25), CHUNKS)
    ]
    out += [Case(WORDS, work, 1, n, record=2048) for work in ("words", "windows") for n in (1, 2, 4)]
    out += [Case(CROWD, producers=1, consumers=n, partitions=1, all_read_all=True) for n in (1, 2, 4, 8)]
    out += [Case(OTHERS, producers=1, consumers=n, partitions=4, language="Python") for n in (1, 2)]
    out += [Case(JETSTREAMS, chunk=chunk, cores=cores) for cores, chunk in itertools.product((0, 0.5), (1, 16, 128))]
    return out


# ---- The broker's cores ----


class Share:
    """The limit of the broker's cores."""

    def __init__(self) -> None:
        self.group, self.how = self._probe()

    def _probe(self) -> tuple[Path | None, str]:
        """Return our own cgroup, if we may make one: version 1's, or version 2's if cpu is
        delegated.
        """
        tries = []
        for parent, name in ((Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us"), (Path("/sys/fs/cgroup"), "cpu.max")):
            group = parent / f"netcraq-bench-{os.getpid()}"
            try:
                group.mkdir()
            except OSError as why:
                tries.append(f"{parent}: {why.strerror}")
                continue
            if os.access(group / name, os.W_OK):
                return group, f"a cgroup's quota ({parent}/.../{name})"
            group.rmdir()
            tries.append(f"{parent}: there is no {name}")
        return None, "the broker's affinity, so whole cores only (" + "; ".join(tries) + ")"

    def can(self, cores: float) -> bool:
        """Whether such a limit is possible."""
        return self.group is not None or cores == int(cores)

    def apply(self, pid: int, cores: float) -> None:
        """Limit a process that has just started, and all its future children."""
        if not cores:
            return
        if self.group is None:
            os.sched_setaffinity(pid, sorted(os.sched_getaffinity(0))[: int(cores)])
            return
        period = 10_000  # in µs; short, because a used-up quota stops the broker for the rest of the period
        if (self.group / "cpu.max").exists():
            (self.group / "cpu.max").write_text(f"{int(cores * period)} {period}")
        else:
            (self.group / "cpu.cfs_period_us").write_text(str(period))
            (self.group / "cpu.cfs_quota_us").write_text(str(int(cores * period)))
        (self.group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove the empty group."""
        if self.group is not None:
            for _ in range(100):
                try:
                    self.group.rmdir()
                    return
                except OSError:
                    time.sleep(0.05)


# ---- Processes ----


class Load:
    """A producer or a consumer."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self._expect("ready\n")
        except BaseException:
            self.close()
            raise

    def _expect(self, wanted: str = "") -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line or (wanted and line != wanted):
            self.process.kill()
            raise Failed(f"{' '.join(self.command)}: {line or self.process.communicate()[1].strip()}")
        return line

    def say(self) -> None:
        """Make the process start, or answer with a mark."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            self._expect("nothing")

    def mark(self) -> dict[str, Any]:
        """Return the process's answer."""
        found: dict[str, Any] = json.loads(self._expect())
        return found

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
"""A killed benchmark leaves no broker behind. Loads end when their standard input closes."""


@contextmanager
def broker(command: list[str], share: Share, cores: float) -> Iterator[tuple[int, str]]:
    """Run a broker. Yield its process ID, and its output when it serves. The limit is applied
    before it starts, when Go determines the number of cores.
    """
    process = subprocess.Popen(
        [*DIE_WITH_PARENT, "sh", "-c", 'read -r _ && exec "$@"', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        share.apply(process.pid, cores)
        process.stdin.write("\n")
        process.stdin.flush()
        ready, _, where = process.stdout.readline().strip().partition(" ")
        if ready != "ready":
            process.kill()
            raise Failed(f"the broker: {process.communicate()[1].strip()}")
        yield process.pid, where
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def serving(case: Case, way: str, share: Share) -> Iterator[tuple[int, list[str], list[str], str]]:
    """Run a broker with the stream. Yield its process ID, the commands of producers and consumers,
    and the consumer's name for the way.
    """
    with tempfile.TemporaryDirectory(prefix="netcraq-streams-") as directory:
        if way in OF_JETSTREAM:
            how, storage = OF_JETSTREAM[way]
            serve = [str(JETSTREAM), "serve", "--dir", directory, "--storage", storage]
            serve += ["--partitions", str(case.partitions), "--bytes", str(RING)]
            with broker(serve, share, case.cores) as (pid, url):
                yield pid, [str(JETSTREAM), "produce", "--url", url], [str(JETSTREAM), "consume", "--url", url], how
            return
        socket = f"{directory}/s"
        where = ["--socket", socket, "--stream", "s"]
        program = [str(COMMAND), "consume"] if case.language == "Go" else [sys.executable, str(PYTHON_CONSUMER)]
        with broker([str(COMMAND), "serve", "--socket", socket], share, case.cores) as (pid, _):
            with node.connect(socket) as client:
                size = CONSUMER_CHUNK
                client.open_stream("s", {"partitions": case.partitions, "objectBytes": size, "objects": RING // size})
            yield pid, [str(COMMAND), "produce", *where], [*program, *where], way


def shares(partitions: int, among: int, number: int) -> str:
    """The partitions that one of several processes handles."""
    return ",".join(str(n) for n in range(partitions) if n % among == number)


def machine_seconds() -> tuple[float, float]:
    """The busy time of all processors together, and their total time."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def measure(case: Case, way: str, share: Share, seconds: float) -> dict[str, Any]:
    """Run one case once."""
    with ExitStack() as stack:
        pid, produce, consume, how = stack.enter_context(serving(case, way, share))
        consumers, producers = [], []
        for n in range(case.consumers):
            which = shares(case.partitions, 1, 0) if case.all_read_all else shares(case.partitions, case.consumers, n)
            options = ["--name", f"c{n}", "--partitions", which, "--way", how, "--work", case.work]
            consumers.append(Load([*consume, *options, "--batch", str(CONSUMER_CHUNK)]))
            stack.callback(consumers[-1].close)
        for n in range(case.producers):
            options = ["--partitions", shares(case.partitions, case.producers, n)]
            producers.append(Load([*produce, *options, "--chunk", str(case.chunk << 10), "--record", str(case.record)]))
            stack.callback(producers[-1].close)
        loads = consumers + producers
        for load in loads:
            load.say()
        time.sleep(max(0.3, seconds / 2))  # until all run, and slow consumers' rings are full
        first, used, busy = marks(loads), all_cpu_seconds(pid), machine_seconds()
        begun = time.monotonic()
        time.sleep(seconds)
        last, used, took = marks(loads), all_cpu_seconds(pid) - used, time.monotonic() - begun
        busy = tuple(b - a for a, b in zip(busy, machine_seconds(), strict=True))
    rates = [
        {k: (b[k] - a[k]) * 1e9 / (b["at_ns"] - a["at_ns"]) for k in ("records", "bytes", "found", "cpu_us")}
        for a, b in zip(first, last, strict=True)
    ]
    mine, theirs = rates[: case.consumers], rates[case.consumers :]
    found = {
        "read": round(sum(r["records"] for r in mine)),
        "appended": round(sum(r["records"] for r in theirs)),
        "found": round(sum(r["found"] for r in mine)),
        "missed": sum(m["missed"] for m in last[: case.consumers]),
        "refused": sum(b["missed"] - a["missed"] for a, b in list(zip(first, last, strict=True))[case.consumers :]),
        "broker_cpu": round(used / took, 3),
        "consumer_cpu": [round(r["cpu_us"] / 1e6, 3) for r in mine],
        "producer_cpu": [round(r["cpu_us"] / 1e6, 3) for r in theirs],
        "machine": round(busy[0] / busy[1], 3) if busy[1] else 0.0,
    }
    own = found["broker_cpu"] + sum(found["consumer_cpu"]) + sum(found["producer_cpu"])
    found["others_cpu"] = round(max(0.0, found["machine"] * (os.cpu_count() or 1) - own), 3)
    found["read_per_broker_cpu"] = round(found["read"] / max(0.01, found["broker_cpu"]))
    found["read_per_cpu"] = round(found["read"] / max(0.01, own))
    return found | {"limit": limit(case, found)}


def marks(loads: list[Load]) -> list[dict[str, Any]]:
    """Read the marks of all loads, as simultaneously as possible."""
    for load in loads:
        load.say()
    return [load.mark() for load in loads]


def limit(case: Case, found: dict[str, Any]) -> str:
    """Name the bottlenecks of a run: everything that was used up."""
    out = []
    cores = case.cores or len(os.sched_getaffinity(0))
    if found["broker_cpu"] >= FULL * cores:
        out.append("broker")
    if found["machine"] >= 1 - (1 - FULL) / 2:
        out.append("machine")
    if max(found["producer_cpu"]) >= FULL:
        out.append("producer")
    if max(found["consumer_cpu"]) >= FULL:
        out.append("consumer")
    return ", ".join(out) or "waiting"


Measured = dict[str, dict[str, list[dict[str, Any]]]]
"""Rounds, by the name of a case and by way."""


def go(options: argparse.Namespace, todo: list[Case], say: Callable[[str], None]) -> dict[str, Any]:
    """Run everything, in turn."""
    share = Share()
    before, began = os.getloadavg(), time.monotonic()
    measured: Measured = {}
    out: dict[str, str] = {}
    try:
        for turn in range(options.rounds):
            for n, case in enumerate(todo):
                if not share.can(case.cores):
                    out[case.name] = f"{case.cores} cores cannot be had by {share.how}"
                    continue
                if n % 10 == 0:
                    say(
                        f"{time.monotonic() - began:4.0f} s: round {turn + 1} of {options.rounds}, case {n + 1} of {len(todo)}"
                    )
                ways = [way for way in case.ways if way not in OF_JETSTREAM or JETSTREAM.exists()]
                if len(ways) < len(case.ways):
                    out["JetStream"] = f"there is no {JETSTREAM.name}, which make bench-streams builds"
                for k in range(len(ways)):
                    way = ways[(turn + k) % len(ways)]
                    found = measure(case, way, share, options.seconds)
                    measured.setdefault(case.name, {}).setdefault(way, []).append(found)
    finally:
        share.close()
    return {
        "pid": os.getpid(),
        "what": "push against pull and JetStream; rates are records a second, CPU is in processors",
        "cores": len(os.sched_getaffinity(0)),
        "limited_by": share.how,
        "load_average": {"before": before, "after": os.getloadavg()},
        "cases": {case.name: asdict(case) for case in todo},
        "measured": measured,
        "left_out": out,
        "aims": [asdict(aim) for aim in judge(todo, measured)],
    }


# ---- Output ----


def median(rounds: list[dict[str, Any]], what: str) -> float:
    """The median over the rounds. If a round's value is a list, its sum counts."""
    return statistics.median(sum(r[what]) if isinstance(r[what], list) else r[what] for r in rounds)


def ratio(ways: dict[str, list[dict[str, Any]]], other: str, what: str = "read") -> float:
    """Push relative to another way: the median of the rounds' ratios."""
    return statistics.median(a[what] / max(1, b[what]) for a, b in zip(ways["push"], ways[other], strict=True))


def judge(todo: list[Case], measured: Measured) -> list[Aim]:
    """The aims: twice the throughput of pull if cores are scarce, and at least equal otherwise.
    There is no aim relative to JetStream.
    """
    out = []
    for other in ALL_WAYS[1:]:
        found = [(case, ratio(ways, other)) for case in todo if other in (ways := measured.get(case.name, {}))]
        for cores in sorted({case.cores for case, _ in found if case.cores}, reverse=True):
            r = [x for case, x in found if case.cores == cores]
            text = f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})"
            aim, met = ("", None) if other in OF_JETSTREAM else ("2", statistics.median(r) >= 2)
            out.append(Aim(f"push to {other}, the broker has {cores:g} cores", text, aim, met))
        if found:
            case, worst = min(found, key=lambda each: each[1])
            what = f"push to {other}, anywhere: the worst ({case.part}, {case.work}, {case.consumers} consumers, "
            what += f"{case.chunk} KiB" + (f", {case.cores:g} cores)" if case.cores else ")")
            aim, met = ("", None) if other in OF_JETSTREAM else ("1", worst >= 1)
            out.append(Aim(what, f"{worst:.2f}", aim, met))
        # These figures are comparable even if other work uses the machine, too.
        for what, name in (("read_per_broker_cpu", "the broker's CPU"), ("read_per_cpu", "CPU, of all processes")):
            r = [ratio(measured[case.name], other, what) for case, _ in found]
            if r:
                text = f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})"
                out.append(Aim(f"push to {other}, records for each second of {name}", text, "", None))
    return out


def thousands(value: float) -> str:
    """Format a number in thousands."""
    return f"{value / 1000:,.0f}" if value >= 10_000 else f"{value / 1000:,.1f}"


def tables(todo: list[Case], measured: Measured) -> Iterator[Table]:
    """Yield a table for each part."""
    for part, group in itertools.groupby(todo, key=lambda case: case.part):
        table = Table(title=f"{part}: thousands of records a second")
        for column in ("work", "producers,\nconsumers", "chunk,\nKiB", "broker's\ncores", "way"):
            table.add_column(column)
        for column in (
            "appended",
            "read",
            "push\nto it",
            "CPU\nbroker",
            "of all\nproducers",
            "of all\nconsumers",
            "read for 1 s\nof broker's CPU",
            "of all\nCPU",
        ):
            table.add_column(column, justify="right")
        table.add_column("limit")
        for case in group:
            for way, rounds in sorted(measured.get(case.name, {}).items(), key=lambda each: ALL_WAYS.index(each[0])):
                limits = [r["limit"] for r in rounds]
                most = max(set(limits), key=limits.count)
                what = [
                    case.work,
                    f"{case.producers}, {case.consumers}",
                    str(case.chunk),
                    f"{case.cores:g}" if case.cores else "all",
                ]
                table.add_row(
                    *(what if way == "push" else [""] * len(what)),
                    way,
                    thousands(median(rounds, "appended")) + ("*" if "producer" in most else ""),
                    thousands(median(rounds, "read")),
                    "" if way == "push" else f"{ratio(measured[case.name], way):.2f}",
                    *(f"{median(rounds, what):.2f}" for what in ("broker_cpu", "producer_cpu", "consumer_cpu")),
                    *(thousands(median(rounds, what)) for what in ("read_per_broker_cpu", "read_per_cpu")),
                    most,
                )
        yield table


def draw(todo: list[Case], measured: Measured, folder: Path) -> list[Path]:
    """Draw the read rate over the chunk size, for each limit of the broker's cores."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[Case]] = {}
    for case in todo:
        if case.part in (COUNTS, SCARCE) and case.name in measured:
            cores = f"{case.cores:g} cores" if case.cores else "all cores"
            title = f"{case.work}, {case.producers} and {case.consumers},\nbroker: {cores}"
            panels.setdefault(title, []).append(case)
    if not panels:
        return []
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.6 * columns, 2.8 * rows), squeeze=False, sharex=True)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, some) in zip(axes.flat, panels.items(), strict=False):
        for way, marker in zip(WAYS, "os^d", strict=True):
            points = [case for case in some if way in measured[case.name]]
            if not points:
                continue
            values = [median(measured[case.name][way], "read") / 1000 for case in points]
            ax.plot([case.chunk for case in points], values, marker=marker, label=way)
        ax.set_title(title, fontsize=9)
        ax.set_xscale("log", base=2)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("producers' chunk, KiB")
    for row in axes:
        row[0].set_ylabel("thousand records read a second")
    axes.flat[0].legend()
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "bench-streams.svg", folder / "bench-streams.png"]
    for file in files:
        figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return files


def show(console: Console, todo: list[Case], result: dict[str, Any]) -> None:
    """Print all results."""
    for table in tables(todo, result["measured"]):
        console.print(table)
    console.print("*: a producer used a core of its own: the broker could have taken more")
    show_aims(console, "the aims", result["aims"])
    for what, why in result["left_out"].items():
        console.print(f"left out: {what}: {why}")
    console.print(f"the broker's cores are limited by {result['limited_by']}")
    show_load(console, result)
    others = [r["others_cpu"] for ways in result["measured"].values() for rounds in ways.values() for r in rounds]
    if others:
        quiet = statistics.median(others) < 0.1
        text = f"what does not belong to it used {statistics.median(others):.1f} processors meanwhile (the median)"
        console.print(text + ("" if quiet else ": this machine was not calm"))


def main() -> int:
    """Run the benchmark and return the exit status."""
    bench = Bench(
        "bench_streams", "Measure streams by push, by pull and by JetStream.", seconds=1, quick_seconds=0.4, width=170
    )
    return bench.main(cases, go, draw, show)


if __name__ == "__main__":
    sys.exit(main())
