#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start a chain, load keys of a real etcd into it, query every switch, write at the head, and show what happened (``make run``).

Every value that is read is compared with the value that was written; a difference, or a query without an answer, ends the run with status 1. The
export and the trace come from a real kubeadm cluster (``experiments/data/README.md``); ``--keys`` takes another export, as
``etcdctl get --prefix / -w json`` prints it.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from netcraq.client import Client, NetCRAQError, NotFound  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from experiments import etcd_data  # noqa: E402
from topologies import launch, ownership, p4app  # noqa: E402

CHAIN = "main"
LOAD_KEYS = 64


class WrongError(Exception):
    """A value that was read is not the value that was written, or there was no answer."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4, help="switches in the chain, 2 to 8 (default: 4)")
    parser.add_argument("--switch", choices=("embedded", "bmv2"), default="embedded", help="netcraq-switch, or BMv2's simple_switch_grpc from PATH")
    parser.add_argument("--engine", default="auto", help="what runs the program in netcraq-switch: auto, interp (default: auto)")
    parser.add_argument(
        "--profile", type=int, choices=(128, 1024, 4096, 8192), default=8192, help="bits of a value (default: 8192; etcd's are large)"
    )
    parser.add_argument("--keys", type=Path, default=etcd_data.EXPORT, help="an etcd export (default: the recorded one)")
    parser.add_argument("--trace", type=Path, default=etcd_data.TRACE, help="a recorded trace of requests to replay (default: the recorded one)")
    parser.add_argument("--replay", type=float, default=6.0, metavar="SECONDS", help="what to compress the trace into (default: 6)")
    parser.add_argument("--load", type=float, default=2.0, metavar="SECONDS", help="of full load at every switch at once (default: 2)")
    parser.add_argument("--keep", action="store_true", help="leave the network up, with a prompt")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "run.json", help="where the figures go (default: out/run.json)")
    return parser


class Run:
    """One run: the network, a client in the host at each switch, and what every key should hold."""

    def __init__(self, net: Any, console: Console, options: argparse.Namespace) -> None:
        self.net = net
        self.console = console
        self.options = options
        self.switches = list(net.topology.chains[0].members)
        self.host = {name: net.topology.hosts_at(name)[0].name for name in self.switches}
        self.address = {name: str(net.topology.switches[name].address) for name in self.switches}
        service = str(net.topology.chains[0].service)
        self.clients: dict[str, Client] = {}
        for name in self.switches:
            with net.inside(self.host[name]):
                self.clients[name] = Client([service], value_bits=options.profile, session=net.admin.lease_sessions())
        self.ids: dict[str, int] = {}
        self.expected: dict[str, bytes] = {}
        self.queries: Counter[str] = Counter()
        self.report: dict[str, Any] = {"switch": net.switch, "engine": net.engine, "nodes": len(self.switches), "profile": options.profile}

    def load_keys(self) -> None:
        """Place what fits of the export; say what does not, and why."""
        entries = etcd_data.read_export(self.options.keys)
        fit, left = etcd_data.fit(entries, self.options.profile // 8)
        start = time.monotonic()
        self.ids, refused = etcd_data.place(self.net.admin, CHAIN, fit)
        took = time.monotonic() - start
        self.expected = {entry.key: entry.value for entry in fit if entry.key in self.ids}
        self.console.print(f"{len(self.ids)} of {len(entries)} keys of {self.options.keys.name} are in the switches ({took:.1f} s); not placed:")
        for line in etcd_data.reasons([*left, *refused]):
            self.console.print(f"  {line}")
        if not self.ids:
            raise WrongError(f"no key of {self.options.keys} fits values of {self.options.profile // 8} bytes: nothing to show; give --profile 8192")
        self.report["keys"] = {"export": len(entries), "placed": len(self.ids), "seconds": took, "left": etcd_data.reasons([*left, *refused])}

    def read(self, switch: str, key: str, direct: bool = True) -> None:
        """Read a key from the host at a switch, by the switch's own address or the service's, and compare."""
        self.queries["reads"] += 1
        try:
            result = self.clients[switch].get(self.ids[key], to=self.address[switch] if direct else None)
        except NotFound:
            raise WrongError(f"{key} read at {switch}: not found; it was written with {len(self.expected[key])} bytes") from None
        except NetCRAQError as error:
            raise WrongError(f"{key} read at {switch}: {error}") from None
        if result.value != self.expected[key]:
            raise WrongError(f"{key} read at {switch}: {result.value!r}; written was {self.expected[key]!r} (version {result.version:#x})")

    def write(self, switch: str, key: str, value: bytes) -> None:
        """Write a key from the host at a switch."""
        self.queries["writes"] += 1
        try:
            self.clients[switch].put(self.ids[key], value)
        except NetCRAQError as error:
            raise WrongError(f"{key} written at {switch}: {error}") from None
        self.expected[key] = value

    def read_everywhere(self) -> None:
        """Read every key at every switch."""
        with self.progress("read every key at every switch", len(self.ids) * len(self.switches)) as step:
            for key in self.ids:
                for switch in self.switches:
                    self.read(switch, key)
                    step()

    def replay(self) -> None:
        """Replay the gets and puts of the recorded trace, compressed in time, each from the next host in turn."""
        requests = [r for r in etcd_data.read_trace(self.options.trace) if r.kind in ("get", "txn-put")]
        if not requests:
            return
        scale = self.options.replay / max(requests[-1].seconds, 1e-9)
        done: Counter[str] = Counter()
        late, begun = 0.0, time.monotonic()
        with self.progress(f"replay {requests[-1].seconds:.0f} s of a real cluster's requests", len(requests)) as step:
            for number, request in enumerate(requests):
                due = begun + request.seconds * scale
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
                late = max(late, time.monotonic() - due)
                if request.key not in self.ids:
                    done["not placed: " + ("gets" if request.kind == "get" else "puts")] += 1
                elif request.kind == "get":
                    self.read(self.switches[number % len(self.switches)], request.key, direct=False)
                    done["gets"] += 1
                else:
                    value = f"put {number} ".encode() + self.expected[request.key]
                    self.write(self.switches[0], request.key, value[: self.options.profile // 8])
                    done["puts"] += 1
                step()
        self.console.print(
            f"replayed {done['gets']} gets and {done['puts']} puts, all values right; "
            f"{done['not placed: gets']} gets and {done['not placed: puts']} puts were of keys that are not placed; at most {late * 1000:.0f} ms late"
        )
        self.report["replay"] = {**done, "max_late_ms": late * 1000, "compressed": 1 / scale}

    def load(self) -> dict[str, dict[str, Any]]:
        """Full load at once: readers at every switch's own host, and a writer at the head; each switch's report by netcraqctl bench."""
        names = {f"/load/{i}": f"value {i}".encode() for i in range(LOAD_KEYS)}
        ids = [answer["keyId"] for answer in self.net.admin.add_keys(CHAIN, names)]
        keys = ",".join(f"{key:#x}" for key in ids)
        seconds = self.options.load
        common = ["bin/netcraqctl", "bench", "-o", "json", "--duration", f"{seconds}s", "--keys", keys]
        results: dict[str, dict[str, Any]] = {}
        failures: list[str] = []

        def drive(name: str, host: str, extra: list[str]) -> None:
            done = self.net.execute(host, [*common, *extra], timeout=seconds + 60, check=False)
            if done.returncode != 0:
                failures.append(f"the load at {name}: {done.stderr or done.stdout}")
            else:
                results[name] = json.loads(done.stdout)

        threads = [threading.Thread(target=drive, args=(s, self.host[s], ["--switch", s, "--outstanding", "8"])) for s in self.switches]
        threads.append(
            threading.Thread(target=drive, args=("writes", self.host[self.switches[0]], ["--mix", "put=1", "--outstanding", "2", "--sessions", "2"]))
        )
        with self.progress(f"{seconds:g} s of load: readers at every switch, a writer at the head", int(seconds * 10)) as step:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
                step()
        if failures:
            raise WrongError("\n".join(failures))
        for name, result in results.items():
            if result["lost"] or result["failed"]:
                raise WrongError(f"the load at {name}: {result['lost']} lost, {result['failed']} failed")
        return results

    def progress(self, what: str, total: int) -> Any:
        """A progress bar as a context; its value is called once a step."""
        return _Progress(self.console, what, total)


class _Progress:
    def __init__(self, console: Console, what: str, total: int) -> None:
        self.bar = Progress(TextColumn(f"{what:<64}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), console=console)
        self.total = total

    def __enter__(self) -> Any:
        self.bar.start()
        task = self.bar.add_task("", total=self.total)
        return lambda: self.bar.advance(task)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def table(run: Run, moved: dict[str, dict[str, int]], load: dict[str, dict[str, Any]]) -> Table:
    """What each switch did in the whole run (its own counters) and how fast it answered under load (the readers' measurement)."""
    out = Table(title=f"{len(run.switches)} switches ({run.net.switch}), {run.options.profile}-bit values")
    out.add_column("switch")
    out.add_column("role")
    for column in ("reads served", "forwarded to tail", "writes", "ACKs", "under load: reads/s", "p50 µs", "p99 µs"):
        out.add_column(column, justify="right")
    roles = {member["switch"]: member["role"] for member in run.net.admin.chain(CHAIN)["members"]}
    for name in run.switches:
        events = moved[name]
        served = sum(events.get(event, 0) for event in ("read_clean", "read_dirty", "read_not_found"))
        writes = sum(events.get(event, 0) for event in ("write_assigned", "write_stored", "write_committed"))
        latency = load[name]["latencyMicros"]
        out.add_row(
            name,
            str(roles[name]).lower(),
            f"{served:,}",
            f"{events.get('read_forwarded', 0):,}",
            f"{writes:,}",
            f"{events.get('ack_committed', 0) + events.get('ack_old', 0):,}",
            f"{load[name]['queriesPerSecond']:,.0f}",
            f"{latency['p50']:,.0f}",
            f"{latency['p99']:,.0f}",
        )
    return out


def main() -> int:
    """Run; returns the exit status."""
    options = arguments().parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=140)
    try:
        topology = p4app.check(p4app.line(options.nodes, options.profile), f"a line of {options.nodes}")
        etcd_data.read_export(options.keys)
    except (p4app.TopologyError, etcd_data.DataError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        from topologies.network import ChainNetwork, NodeError
    except ImportError as missing:
        print(f"{missing}: Mininet is a Debian package, for Debian's Python only: run make deps, then use .venv/bin/python", file=sys.stderr)
        return 1
    launch.end_on_signals()
    begun = time.monotonic()
    try:
        with ChainNetwork(topology, switch=options.switch, engine=options.engine) as net:
            chain = " ─▶ ".join(topology.chains[0].members)
            console.print(
                f"the chain is up ({time.monotonic() - begun:.1f} s): {chain}, one host at each, service address {topology.chains[0].service}"
            )
            run = Run(net, console, options)
            before = net.all_counters()
            run.load_keys()
            run.read_everywhere()
            run.replay()
            load = run.load()
            run.read_everywhere()
            moved = {name: counters.since(before[name]) for name, counters in net.all_counters().items()}
            console.print(table(run, moved, load))
            total, writes = sum(result["queries"] for result in load.values()), load["writes"]
            console.print(
                f"verified: {run.queries['reads']:,} reads and {run.queries['writes']:,} writes, every value read was the value written.\n"
                f"under load: {total:,} queries in {options.load:g} s, none lost; writes {writes['queriesPerSecond']:,.0f}/s, "
                f"p50 {writes['latencyMicros']['p50']:,.0f} µs, p99 {writes['latencyMicros']['p99']:,.0f} µs"
            )
            run.report |= {"verified": dict(run.queries), "load": load, "events": moved, "seconds": time.monotonic() - begun}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(run.report, indent=2) + "\n")
            where = options.out.relative_to(ROOT) if options.out.is_relative_to(ROOT) else options.out
            console.print(f"{time.monotonic() - begun:.0f} s in all; figures in {where}")
            if options.keep:
                console.print(launch.HINTS, markup=False)
                launch.prompt(net.mininet)
    except WrongError as error:
        console.print(f"[bold red]wrong:[/bold red] {error}")
        return 1
    except (NodeError, ownership.BusyError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
