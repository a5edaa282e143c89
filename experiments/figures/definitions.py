# SPDX-License-Identifier: Apache-2.0
"""The definition of each figure, and the paper's value for it (CNSM 2022)."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.figures.store import Store
from experiments.figures.systems import KEYS, NETCHAIN, SHIPPED, Network


@dataclass(frozen=True)
class Ratio:
    """NetCRAQ's figure divided by NetChain's at one place (or the reverse, if less is better), and
    the paper's ratio.
    """

    what: str
    nodes: int
    x: float
    paper: float


@dataclass(frozen=True)
class Options:
    """The durations and loads of the measurements."""

    seconds: float = 0.4
    outstanding: Sequence[int] = (2, 8, 32)
    """Candidates for the number of outstanding queries. BMv2 drops bursts of more than 32 frames a
    port.
    """
    looks: int = 3
    """Slices at each number of outstanding queries, to find the best one."""


Measure = Callable[[Network, int, float, Options], dict[str, Any]]
"""(network, switches, x, options): the measured values, ``y`` and more."""


@dataclass(frozen=True)
class Figure:
    """A figure: its axes, its place of measurement, and its measuring function."""

    name: str
    title: str
    x_label: str
    y_label: str
    places: tuple[tuple[int, float], ...]
    """(switches, x)"""
    measure: Measure
    explanation: str
    ratios: tuple[Ratio, ...] = ()
    reflector: bool = False
    """Whether to draw the rate that the load reaches against a bare reflector."""
    second: tuple[str, str] | None = None
    """The second axis: the name of its measured value, and the axis' label."""
    curve: str | None = None
    """The name of another figure's list of [x, y] that this figure draws instead of its own
    measurements.
    """
    log: bool = False
    why: Callable[[Store, str], str] | None = None
    """Explains for an engine, from the measurements, why a ratio is below the paper's."""
    counted: bool = False
    """The measurement counts, with the same result each time: one for each network is enough."""


def attainable(net: Network, host: str, writes: int, options: Options, dirty_ttl: int = 0) -> dict[str, Any]:
    """Measure one slice at the attainable response rate: with the number of outstanding queries
    that gives the highest rate, which is searched once for each network and load.

    A closed loop sends a query only after a reply, so replies never fall behind; only latency
    rises.
    """
    same = (host, writes, dirty_ttl)
    if same not in net.best:
        net.best[same] = most_attainable(net, host, writes, options, dirty_ttl)
    outstanding = net.best[same]
    report = net.load(host, writes=writes, outstanding=outstanding, seconds=options.seconds, dirty_ttl=dirty_ttl)
    out = {"y": report["queriesPerSecond"], "p50_us": report["latencyMicros"]["p50"], "outstanding": outstanding}
    if "cpuMicros" in report:
        out["cpu_us"] = report["cpuMicros"]
    if not dirty_ttl:
        took = net.program_time(host, writes=writes, outstanding=outstanding, seconds=options.seconds / 2)
        if took:
            out["program_ns"], out["program_runs"] = took
    return out


def most_attainable(net: Network, host: str, writes: int, options: Options, dirty_ttl: int) -> int:
    """Return the number of outstanding queries with the highest rate. Each rate is the median of a
    few slices, so that a lucky slice does not decide.
    """
    best, highest = options.outstanding[0], 0.0
    for outstanding in options.outstanding:
        rate = statistics.median(
            net.load(host, writes=writes, outstanding=outstanding, seconds=options.seconds, dirty_ttl=dirty_ttl)[
                "queriesPerSecond"
            ]
            for _ in range(options.looks)
        )
        if rate > highest:
            best, highest = outstanding, rate
        elif rate < 0.9 * highest:
            break
    return best


def by_distance(net: Network, nodes: int, x: float, options: Options) -> dict[str, Any]:
    """Measure reads from the host ``x`` switches before the tail."""
    return attainable(net, f"h{nodes - int(x)}", 0, options)


def dirty_by_distance(net: Network, nodes: int, x: float, options: Options) -> dict[str, Any]:
    """Measure reads of keys that are dirty at all switches but the tail, from the host ``x``
    switches before the tail.
    """
    host = nodes - int(x)
    if net.system == NETCHAIN:
        return attainable(net, f"h{host}", 0, options)
    # hops to the head, and on to the last switch before the tail
    dirty_ttl = (host - 1) + (nodes - 1)
    if net.system != SHIPPED:  # its load fails if the keys are not dirty
        return attainable(net, f"h{host}", 0, options, dirty_ttl=dirty_ttl)
    before = net.net.counters(f"s{host}")
    out = attainable(net, f"h{host}", 0, options, dirty_ttl=dirty_ttl)
    events = net.net.counters(f"s{host}").since(before)
    reads = events.get("read_forwarded", 0) + events.get("read_clean", 0)
    return {**out, "dirty_share": events.get("read_forwarded", 0) / reads}


def by_length(net: Network, _: int, __: float, options: Options) -> dict[str, Any]:
    """Measure reads at the head."""
    return attainable(net, "h1", 0, options)


def by_writes(net: Network, _: int, x: float, options: Options) -> dict[str, Any]:
    """Measure a load at the head of which ``x`` % are writes."""
    out = attainable(net, "h1", int(x), options)
    if net.system == SHIPPED and ("dirty", x) not in net.best:  # once for each network
        net.best["dirty", x] = 1
        out["dirty_keys"] = net.dirty_keys(writes=int(x), seconds=0.4)
    return out


def by_congestion(net: Network, nodes: int, x: float, options: Options) -> dict[str, Any]:
    """Measure reads by clients at ``x`` % of the switches at once: the rate that all of them reach
    at the same time, averaged over the choice of switches.

    This is the slowest client's rate, times the number of clients. The sum of the rates would
    include the share that a client at the tail gets while the others wait.
    """
    loaded = round(nodes * x / 100)
    sustained, sums = [], []
    for hosts in itertools.combinations([f"h{n}" for n in range(1, nodes + 1)], loaded):
        rates = [report["queriesPerSecond"] for report in net.load_together(hosts, seconds=options.seconds)]
        sustained.append(loaded * min(rates))
        sums.append(sum(rates))
    return {"y": statistics.mean(sustained), "sum": statistics.mean(sums), "sets": len(sums)}


def serial(net: Network, host: str, writes: int, options: Options) -> dict[str, Any]:
    """Measure the quantiles of the latency of one query at a time."""
    latency = net.load(host, writes=writes, outstanding=1, seconds=options.seconds)["latencyMicros"]
    return {
        "y": latency["p50"],
        "p99_us": latency["p99"],
        "quantiles": [[share, latency[name]] for share, name in QUANTILES],
    }


QUANTILES = ((50, "p50"), (90, "p90"), (99, "p99"), (99.9, "p999"))


def latency_by_distance(net: Network, nodes: int, x: float, options: Options) -> dict[str, Any]:
    """Measure one read at a time, from the host ``x`` switches before the tail."""
    return serial(net, f"h{nodes - int(x)}", 0, options)


def latency_by_writes(net: Network, _: int, x: float, options: Options) -> dict[str, Any]:
    """Measure one query at a time at the head, ``x`` % of them writes."""
    return serial(net, "h1", int(x), options)


def latency_by_length(net: Network, _: int, __: float, options: Options) -> dict[str, Any]:
    """Measure one read at a time at the head."""
    return serial(net, "h1", 0, options)


def on_the_wire(net: Network, host: str, writes: int, options: Options) -> tuple[float, float]:
    """Return the frames and bytes that switches and hosts send for a query on all links together,
    from the interfaces' counters.
    """
    # the start of a load sends the same number of additional frames both times
    net.load(host, writes=writes, outstanding=1, seconds=0.05)
    before = net.sent()
    first = net.load(host, writes=writes, outstanding=1, seconds=0.05)
    between = net.sent()
    second = net.load(host, writes=writes, outstanding=1, seconds=max(options.seconds, 0.2))
    after = net.sent()
    queries = second["queries"] - first["queries"]
    frames, size = (
        (getattr(after, kind) - getattr(between, kind)) - (getattr(between, kind) - getattr(before, kind))
        for kind in ("frames", "bytes")
    )
    return frames / queries, size / queries


def packets_by_distance(net: Network, nodes: int, x: float, options: Options) -> dict[str, Any]:
    """Measure the frames of a read, from the host ``x`` switches before the tail."""
    return {"y": on_the_wire(net, f"h{nodes - int(x)}", 0, options)[0]}


def packets_by_writes(net: Network, _: int, x: float, options: Options) -> dict[str, Any]:
    """Measure the frames of a query at the head, ``x`` % of them writes."""
    return {"y": on_the_wire(net, "h1", int(x), options)[0]}


def bytes_by_length(net: Network, _: int, __: float, options: Options) -> dict[str, Any]:
    """Measure the bytes of a read at the head."""
    frames, size = on_the_wire(net, "h1", 0, options)
    return {"y": size, "bytes_a_frame": size / frames}


def bytes_of_writes_by_length(net: Network, _: int, __: float, options: Options) -> dict[str, Any]:
    """Measure the bytes of a write at the head."""
    frames, size = on_the_wire(net, "h1", 100, options)
    return {"y": size, "bytes_a_frame": size / frames}


def medians(store: Store, figure: str, engine: str, name: str = "y") -> dict[tuple[str, float], float]:
    """Return the median of a figure's measurements on an engine, by system and x."""
    found: dict[tuple[str, float], list[float]] = {}
    for point, values in store.rows(figure):
        if point.engine == engine and name in values:
            found.setdefault((point.system, point.x), []).append(values[name])
    return {key: statistics.median(values) for key, values in found.items()}


def a_frame(
    rates: dict[tuple[str, float], float], frames: dict[tuple[str, float], float], system: str, x: float
) -> str:
    """Return the time of a query at the attainable rate, divided by NetChain's number of frames for
    a read. A dirty read takes the same path as a NetChain read.
    """
    return f"{1e6 / rates[system, x] / frames['NetChain', x]:.2f} µs"


def why_clean(store: Store, engine: str) -> str:
    """Explain the ratio of clean reads: the frames' ratio is the limit, counted for four
    switches.
    """
    frames = medians(store, "packets", engine)
    if ("NetChain", 3.0) not in frames or ("NetCRAQ", 3.0) not in frames:
        return ""
    ours, theirs = frames["NetCRAQ", 3.0], frames["NetChain", 3.0]
    return (
        f"A read at the head of four takes {ours:.1f} frames in NetCRAQ and {theirs:.1f} in NetChain (counted), of eight 2 and 16: where all "
        "switches "
        f"share the same CPUs and a frame costs the same in both systems, the ratios are {theirs / ours:.1f} and 8. Here a frame costs more in "
        "NetCRAQ: the switch "
        f"that answers looks up a key, where most of NetChain's frames are only routed on. More than the frames' ratio, as in the paper, takes "
        "switches that slow "
        f"down, or lose frames, when they are loaded."
    )


def why_mixed(store: Store, engine: str) -> str:
    """Explain the ratio of mixed loads: the frames measured for both systems limit it."""
    frames, rates = medians(store, "packets-mixed", engine), medians(store, "mixed", engine)
    shares = sorted({x for system, x in frames if ("NetCRAQ", x) in frames and ("NetChain", x) in frames})
    if not shares or any((system, 100.0) not in each for each in (frames, rates) for system in ("NetCRAQ", "NetChain")):
        return ""
    said = ", ".join(f"{frames['NetChain', x] / frames['NetCRAQ', x]:.2f} at {x:g} %" for x in shares)
    return (
        f"All switches share the CPUs of one machine, so what counts is how many frames they handle. A write at the head takes "
        f"{frames['NetCRAQ', 100.0]:.1f} frames in NetCRAQ and {frames['NetChain', 100.0]:.1f} in NetChain (counted): down the chain and back in "
        "both. So "
        f"only reads can be cheaper. NetChain's frames over NetCRAQ's: {said}. Twice the throughput at each share of writes is not in this. Where "
        "the "
        f"measured ratio is lower than that of the frames, it is because a NetCRAQ write does more in each switch (sessions, so that a retry is "
        f"executed once; dirty cells; the answer commits where it passes): {a_frame(rates, frames, 'NetCRAQ', 100.0)} a frame to "
        f"{a_frame(rates, frames, 'NetChain', 100.0)}."
    )


def why_congested(store: Store, engine: str) -> str:
    """Explain the ratio under congestion: the CPUs of one machine are the bottleneck."""
    sums = medians(store, "congestion", engine, "sum")
    one, every = (sums.get(("NetChain", x)) for x in (25.0, 100.0))
    if not one or not every:
        return ""
    return (
        f"The paper does not say how its switches were congested; here one is when a client at it reads as fast as it can. The sum of NetChain's "
        f"clients goes from {one:,.0f} to {every:,.0f} reads a second between one switch and all ({every / one:.2f} times): its tail is no "
        "bottleneck "
        f"of its own, since all switches share the same CPUs. Averaged over the clients' places NetChain's reads take 5 frames (2, 4, 6, 8) to "
        f"NetCRAQ's 2."
    )


def why_dirty(store: Store, engine: str) -> str:
    """Explain the ratio of dirty reads: both systems use the same path, so they send the same
    frames.
    """
    rates, frames = medians(store, "dirty", engine), medians(store, "packets", engine)
    if ("NetChain", 3.0) not in frames or ("NetCRAQ", 3.0) not in rates:
        return ""
    share = medians(store, "dirty", engine, "dirty_share").get(("NetCRAQ", 3.0), 0)
    return (
        f"{100 * share:.1f} % of the reads at the head were of a dirty key (counted), and went to the tail and back as NetChain's do: "
        f"{frames['NetChain', 3.0]:.1f} frames each. What is left is what a switch does with a frame: "
        f"{a_frame(rates, frames, 'NetCRAQ', 3.0)} in NetCRAQ, {a_frame(rates, frames, 'NetChain', 3.0)} in NetChain (the time for a read by the "
        "frames). "
        "NetCRAQ's frames are smaller; but at the head it looks a key up before it sends the read on, where NetChain only routes, the tail asks its "
        "lease, and each member that the answer passes looks whether it is news (read repair)."
    )


FIGURES = (
    Figure(
        "distance",
        "Read throughput against distance from the tail",
        "switches between the client's and the tail",
        "reads a second",
        tuple((4, float(x)) for x in range(4)),
        by_distance,
        "A chain of four; a client at each switch reads clean keys. NetCRAQ answers at the client's own switch, wherever that is. NetChain answers "
        "at the tail alone, so the farther the client is from it the more links and switches each query takes.",
        (Ratio("clean reads at the head of 4 nodes", 4, 3.0, 4.08),),
        reflector=True,
        why=why_clean,
    ),
    Figure(
        "dirty",
        "Throughput of dirty reads against distance from the tail",
        "switches between the client's and the tail",
        "reads a second",
        tuple((4, float(x)) for x in range(4)),
        dirty_by_distance,
        "The same, with keys that are dirty at all switches but the tail: writes are on their way all the time that end before it. NetCRAQ's "
        "switches send "
        "such a read on to the tail, so that both systems go the same way. NetChain knows no dirty keys; its reads are those of the figure above.",
        (Ratio("dirty reads at the tail", 4, 0.0, 1.22), Ratio("dirty reads at the head", 4, 3.0, 1.10)),
        reflector=True,
        why=why_dirty,
    ),
    Figure(
        "length",
        "Read throughput at the head against the length of the chain",
        "switches in the chain",
        "reads a second",
        tuple((nodes, float(nodes)) for nodes in range(4, 9)),
        by_length,
        "A client at the head reads clean keys of longer and longer chains. NetChain's queries have longer and longer ways to the tail.",
        (Ratio("clean reads at the head of 8 nodes", 8, 8.0, 9.46),),
        reflector=True,
        why=why_clean,
    ),
    Figure(
        "congestion",
        "Read throughput with clients at several switches at once",
        "switches with a client that reads as fast as it can (%)",
        "reads a second that all clients can have together",
        tuple((4, x) for x in (25.0, 50.0, 75.0, 100.0)),
        by_congestion,
        "A chain of four; 25 to 100 % of its switches have a client that keeps 32 reads on their way. The rate of the slowest of these clients, as "
        "many "
        "times as there are clients: what all of them can have. Averaged over all sets of so many switches. NetChain's reads all meet at the tail, "
        "and a client far from it waits longest; NetCRAQ's meet nobody else's. (The CSV has the sums, too.)",
        (
            Ratio("25 % of the switches congested", 4, 25.0, 2.25),
            Ratio("50 % congested", 4, 50.0, 2.8),
            Ratio("100 % congested", 4, 100.0, 4.73),
        ),
        why=why_congested,
    ),
    Figure(
        "mixed",
        "Throughput against the share of writes",
        "writes in 100 queries",
        "queries a second",
        tuple((4, float(x)) for x in (0, 25, 50, 75, 100)),
        by_writes,
        "A chain of four; a client at the head reads and writes. Writes go down the whole chain and back in both systems. Reads of keys that are "
        "being written go on to "
        f"the tail; the second axis says how many of the {KEYS} keys are dirty at the head at a time, with 32 queries on their way (looked at one "
        "by one while the load runs).",
        tuple(Ratio(f"{x} % writes", 4, float(x), 2.0) for x in (25, 50, 75, 100)),
        second=("dirty_keys", f"keys dirty at the head, of {KEYS}"),
        why=why_mixed,
    ),
    Figure(
        "latency",
        "Latency of a read against distance from the tail",
        "switches between the client's and the tail",
        "microseconds (median)",
        tuple((4, float(x)) for x in range(4)),
        latency_by_distance,
        "One read on its way at a time, measured in the kernel: without the share of a client's socket.",
    ),
    Figure(
        "latency-length",
        "Latency of a read at the head against the length of the chain",
        "switches in the chain",
        "microseconds (median)",
        tuple((nodes, float(nodes)) for nodes in range(4, 9)),
        latency_by_length,
        "The same at the head of longer and longer chains.",
    ),
    Figure(
        "latency-mixed",
        "Latency against the share of writes",
        "writes in 100 queries",
        "microseconds (median)",
        tuple((4, float(x)) for x in (0, 25, 50, 75, 100)),
        latency_by_writes,
        "One query on its way at a time at the head of four, a part of them writes.",
    ),
    Figure(
        "distribution",
        "Latency distribution of reads at the head of four",
        "share of the reads that are not slower (%)",
        "microseconds",
        ((4, 3.0),),
        latency_by_distance,
        "The figure “Latency of a read against distance from the tail” at its right end, with the slower ones too: the median, and what 90, 99 and "
        "99.9 % stay below.",
        curve="latency",
        log=True,
    ),
    Figure(
        "distribution-mixed",
        "Latency distribution at the head of four, half of the queries writes",
        "share of the queries that are not slower (%)",
        "microseconds",
        ((4, 50.0),),
        latency_by_writes,
        "The same of “Latency against the share of writes” at 50 %.",
        curve="latency-mixed",
        log=True,
    ),
    Figure(
        "packets",
        "Frames for each read against distance from the tail",
        "switches between the client's and the tail",
        "frames sent",
        tuple((4, float(x)) for x in range(4)),
        packets_by_distance,
        "All frames that hosts and switches sent on all links, divided by the reads that were answered.",
        counted=True,
    ),
    Figure(
        "packets-mixed",
        "Frames for each query against the share of writes",
        "writes in 100 queries",
        "frames sent",
        tuple((4, float(x)) for x in (0, 25, 50, 75, 100)),
        packets_by_writes,
        "The same for a client at the head that reads and writes. A write takes as many frames in both systems: NetCRAQ's reply to it is the "
        "acknowledgement for the switches that it passes.",
        counted=True,
    ),
    Figure(
        "bytes",
        "Bytes on all links for a read at the head against the length of the chain",
        "switches in the chain",
        "bytes",
        tuple((nodes, float(nodes)) for nodes in range(4, 9)),
        bytes_by_length,
        "Frames as above with their sizes, Ethernet headers included; values of 16 bytes. NetChain carries the addresses of the chain in each "
        "packet; this one has room for eight, always. "
        "With a list of the chain's own length, its frames would be shorter by 4 bytes for each switch less than eight: a tenth of a frame at four "
        "switches.",
        counted=True,
    ),
    Figure(
        "bytes-write",
        "Bytes on all links for a write at the head against the length of the chain",
        "switches in the chain",
        "bytes",
        tuple((nodes, float(nodes)) for nodes in range(4, 9)),
        bytes_of_writes_by_length,
        "The same for writes.",
        counted=True,
    ),
)
