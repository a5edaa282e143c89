#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show hot etcd keys moving into the network (``make hot-keys``).

::

                      host h1                             this machine
    netcraq-peers ──▶ etcd-monitor ──── management ────▶ etcd, Prometheus, netcraq-controller
     (the load)            └── s1 ── s2 ── s3 ── s4 ── s1    (a ring, so that there is a way around each)

1. etcd, the chain with its controller, the gateway in a host at the first switch, and Prometheus, which scrapes gateway and controller, come up.
2. Keys are written through the gateway, then read and written by Zipf's law, a line of figures each second: few keys take most of the reads.
3. Prometheus sees which, and the controller places them. The share of reads that the network answers rises, the median latency falls.
4. A switch in the middle of the chain is killed under this load, and later brought back.

Every value that is read is compared with what was written to its key; a wrong one, or a network that does not come to answer half of the reads, ends
the run with exit status 1. ``out/hot-keys.json`` has the figures.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from experiments.bench import versions  # noqa: E402
from topologies import launch, nodes, p4app  # noqa: E402

try:
    from topologies.network import ENGINES, HOOKS, SWITCHES, ChainNetwork, NodeError
except ImportError as missing:
    sys.exit(f"{missing}: {launch.NO_MININET}")

HERE, THERE = "192.0.2.1", "192.0.2.2"
"""This machine's and the host's ends of a cable for management, beside the network under test (RFC 5737: addresses that nobody has)."""

CABLE = ("nq-mgmt", "nq-mgmt-host")
ETCD, ETCD_PEER, PROMETHEUS, GATEWAY, METRICS = 12379, 12380, 19090, 2379, 2382
"""TCP ports. Debian's packages have etcd and Prometheus run at their usual ones."""
HOST = "h1"
WINDOW = "5s"
"""What Prometheus takes rates over, of a sample a second."""

ENOUGH = 0.5
"""The share of reads that the network is to answer."""


def run_ip(*arguments: str, check: bool = True) -> None:
    """Run ip(8)."""
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


class Story:
    """Everything that runs, and what the load saw."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = options.out.absolute().parent / "hot-keys"
        self.stack = ExitStack()
        self.net: ChainNetwork | None = None
        self.before: dict[str, float] = {}
        self.seconds: list[dict[str, Any]] = []

    def __enter__(self) -> Story:
        """Bring everything up; on failure everything is taken down again."""
        try:
            self.up()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take everything down."""
        self.stack.close()

    # ---- Processes ----

    def daemon(self, name: str, command: Sequence[str], inside: bool = False) -> subprocess.Popen:
        """Start a process that ends with this one."""
        log = (self.out / f"{name}.log").open("wb")
        self.stack.callback(log.close)
        if inside:
            process = self.net.spawn(HOST, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        else:
            process = subprocess.Popen([*nodes.DIE_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stack.callback(nodes.stop_process, process)
        return process

    def wait(self, name: str, process: subprocess.Popen, url: str, seconds: float = 30) -> None:
        """Wait until a process answers."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError), urllib.request.urlopen(url, timeout=2):
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise NodeError(f"{name} does not come up; {nodes.tail(self.out / f'{name}.log')}")
            time.sleep(0.1)

    def up(self) -> None:
        """Start everything."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        for program in ("etcd", "prometheus"):
            if shutil.which(program) is None:
                raise NodeError(f"{program} is not on PATH: make deps installs it (Debian's packages etcd-server and prometheus)")
        for port, what in ((ETCD, "etcd"), (ETCD_PEER, "etcd"), (PROMETHEUS, "Prometheus")):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    raise NodeError(
                        f"TCP port {port} on loopback, for {what}, is in use by another program: stop it (systemctl stop {what.lower()}?)"
                    ) from None
        run_ip("link", "delete", CABLE[0], check=False)  # of a run that was killed
        run_ip("link", "add", CABLE[0], "type", "veth", "peer", "name", CABLE[1])
        self.stack.callback(run_ip, "link", "delete", CABLE[0], check=False)
        run_ip("address", "add", f"{HERE}/30", "dev", CABLE[0])
        run_ip("link", "set", CABLE[0], "up")
        clients = f"http://127.0.0.1:{ETCD},http://{HERE}:{ETCD}"
        peer = f"http://127.0.0.1:{ETCD_PEER}"
        command = ["etcd", "--data-dir", str(self.out / "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", f"http://{HERE}:{ETCD}"]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--logger", "zap"]
        self.wait("etcd", self.daemon("etcd", command), f"http://127.0.0.1:{ETCD}/health")

        content = p4app.line(self.options.nodes, self.options.profile)
        content["topology"]["links"].append([f"s{self.options.nodes}", "s1"])
        topology = p4app.check(content, f"a ring of {self.options.nodes} switches")
        flags = ["--etcd", f"127.0.0.1:{ETCD}", "--prometheus", f"http://127.0.0.1:{PROMETHEUS}", "--heat-window", WINDOW]
        choice = {"switch": self.options.switch, "engine": self.options.engine, "hook": self.options.hook}
        self.net = ChainNetwork(topology, **choice, out=self.out / "network", controller_flags=flags)
        self.net.start()
        self.stack.callback(self.net.stop)
        pid = str(self.net.hosts[HOST].pid)
        run_ip("link", "set", CABLE[1], "netns", pid)
        for command in (["address", "add", f"{THERE}/30", "dev", CABLE[1]], ["link", "set", CABLE[1], "up"]):
            self.net.execute(HOST, ["ip", *command])
        command = [nodes.built("etcd-monitor"), "--endpoints", f"http://{HERE}:{ETCD}", "--listen-client-urls", f"http://127.0.0.1:{GATEWAY}"]
        command += ["--metrics-addr", f"{THERE}:{METRICS}", "--controller", f"http://{self.net.admin_address}"]
        self.wait("etcd-monitor", self.daemon("etcd-monitor", command, inside=True), f"http://{THERE}:{METRICS}/metrics")

        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": "etcd-monitor", "static_configs": [{"targets": [f"{THERE}:{METRICS}"]}]},
                {"job_name": "netcraq-controller", "static_configs": [{"targets": [self.net.admin_address]}]},
            ],
        }
        (self.out / "prometheus.yml").write_text(json.dumps(config, indent=2))  # JSON is YAML
        command = ["prometheus", f"--config.file={self.out / 'prometheus.yml'}", f"--storage.tsdb.path={self.out / 'prometheus'}"]
        command += [f"--web.listen-address=127.0.0.1:{PROMETHEUS}", "--log.level=warn"]
        self.wait("prometheus", self.daemon("prometheus", command), f"http://127.0.0.1:{PROMETHEUS}/-/ready")

    # ---- Load ----

    def load(self, *arguments: str) -> dict[str, Any]:
        """Run the load for a while and give its report."""
        command = ["nice", "-n", "5", nodes.built("netcraq-peers"), "etcd", "--endpoints", f"127.0.0.1:{GATEWAY}", "--keys", str(self.options.keys)]
        command += ["--value-size", str(self.options.value_size), "--zipf", str(self.options.zipf), "-n", str(self.options.outstanding)]
        done = self.net.execute(HOST, [*command, *arguments], timeout=300, check=False)
        if done.returncode != 0:
            raise NodeError(f"the load ended: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def fill(self) -> None:
        """Write every key once."""
        self.load("--duration", "10ms")
        self.before = self.counted()

    def counted(self) -> dict[str, float]:
        """Reads of single keys by who answered, as the gateway has counted them."""
        with urllib.request.urlopen(f"http://{THERE}:{METRICS}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for who, count in re.findall(r'^etcd_monitor_reads_total\{answered="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE):
            found[who] = found.get(who, 0.0) + float(count)
        return found

    def second(self) -> dict[str, Any]:
        """One second of load, and what became of it."""
        report = self.load("--fill=false", "--duration", "900ms", "--mix", self.options.mix)
        now = self.counted()
        new = {who: count - self.before.get(who, 0.0) for who, count in now.items()}
        self.before = now
        reads = sum(new.values())
        get = report["ops"].get("get", {"latencyMicros": {}})["latencyMicros"]
        figures = {
            "second": len(self.seconds) + 1,
            "queries_per_second": round(report["queriesPerSecond"]),
            "hit_rate": round(new.get("network", 0.0) / reads, 4) if reads else None,
            "read_p50_us": get.get("p50"),
            "read_p99_us": get.get("p99"),
            "failed": report["failed"] + report["lost"],
            "placed": sum(chain["placed"] for chain in self.net.admin.placement()["chains"]),
        }
        self.seconds.append(figures)
        return figures

    def bring_back(self, switch: str) -> None:
        """Restart a switch and bring it into the chain again."""
        self.net.restart_switch(switch)
        deadline = time.monotonic() + 20
        while not next(found["ready"] for found in self.net.admin.switches() if found["name"] == switch):
            if time.monotonic() > deadline:
                raise NodeError(f"the controller does not get {switch} set up within 20 s")
            time.sleep(0.05)
        self.net.admin.recover(self.net.topology.chains[0].name, switch)

    def hits(self, over: int = 3) -> float:
        """The share of reads that the network answered in each of the last seconds: the least."""
        last = [figures["hit_rate"] or 0.0 for figures in self.seconds[-over:]]
        return min(last) if len(last) == over else 0.0


def line(figures: dict[str, Any]) -> str:
    """A second, for people."""
    percent = "-" if figures["hit_rate"] is None else f"{100 * figures['hit_rate']:.1f} %"
    p50, p99 = ("-" if figures[name] is None else f"{figures[name]:,.0f}" for name in ("read_p50_us", "read_p99_us"))
    return (
        f"{figures['second']:>6} {figures['queries_per_second']:>10,} {percent:>10} {p50:>10} {p99:>10} {figures['placed']:>8} {figures['failed']:>8}"
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="hot_keys.py", description="Show hot etcd keys moving into the network.")
    parser.add_argument("--nodes", type=int, default=4, metavar="N", help="switches in a ring, 3 to 8 (default 4)")
    parser.add_argument("--switch", choices=SWITCHES, default="embedded", help="netcraq-switch, or simple_switch_grpc from PATH")
    parser.add_argument("--engine", choices=ENGINES, default="auto", help="engine of the embedded switch")
    parser.add_argument("--hook", choices=HOOKS, default="auto", help="where the embedded switch's eBPF meets frames")
    parser.add_argument("--profile", type=int, choices=p4app.PROFILES, default=1024, help="width of a value in bits (default 1024)")
    parser.add_argument("--keys", type=int, default=1000, metavar="N", help="keys (default 1000)")
    parser.add_argument("--value-size", type=int, default=64, metavar="BYTES", help="of each value (default 64)")
    parser.add_argument("--zipf", type=float, default=0.99, metavar="S", help="exponent of Zipf's law (default 0.99)")
    parser.add_argument("--mix", default="get=95,put=5", help="operations and their shares (default get=95,put=5)")
    parser.add_argument("--outstanding", type=int, default=8, metavar="N", help="queries on their way at once (default 8)")
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="N", help="within which half of the reads are to be answered by the network (default 60)"
    )
    parser.add_argument("--after", type=int, default=8, metavar="N", help="seconds after a switch was killed; 0: none is (default 8)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "hot-keys.json", metavar="FILE", help="where the figures go (default out/hot-keys.json)"
    )
    return parser


def go(options: argparse.Namespace) -> int:
    """The whole story; the exit status."""
    print("starting etcd, the chain, the gateway and Prometheus", flush=True)
    with Story(options) as story:
        page = f"http://{story.net.admin_address}/"
        print(f"up: switches run by {story.net.running_engine}; the controller's page is {page}, logs are in {story.out}", flush=True)
        print(f"writing {options.keys:,} keys through the gateway", flush=True)
        story.fill()
        print("second  queries/s    network    p50 µs     p99 µs   placed   failed   (reads: Zipf", options.zipf, options.mix + ")", flush=True)
        for _ in range(options.seconds):
            print(line(story.second()), flush=True)
            if story.hits() >= ENOUGH:
                break
        enough = story.hits() >= ENOUGH
        killed = None
        if enough and options.after:
            victim = story.net.topology.chains[0].members[options.nodes // 2]
            killed = {"switch": victim, "after_second": len(story.seconds)}
            story.net.kill_switch(victim)
            print(f"{victim} was killed", flush=True)
            for _ in range(options.after):
                print(line(story.second()), flush=True)
            story.bring_back(victim)
            killed["back_after_second"] = len(story.seconds)
            print(f"{victim} is back", flush=True)
            for _ in range(3):
                print(line(story.second()), flush=True)
            for event in story.net.admin.events():
                if event["type"] in ("chain.failover", "chain.fenced", "chain.recovering", "chain.recovered"):
                    print(f"  {event['time'][11:23]} {event['type']}: {event['message']}")
        placement = story.net.admin.placement()
        result = {
            "ok": enough,
            "versions": versions(),
            "engine": story.net.running_engine,
            "killed": killed,
            "seconds": story.seconds,
            "placed": placement["placed"],
            "others": placement["others"],
        }
        result["options"] = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
        if not enough:
            print(f"the network did not come to answer {100 * ENOUGH:.0f} % of the reads within {options.seconds} s")
            for key in placement["others"][:10]:
                print(f"  {key['key']}: {key['code']}: {key['reason']}")
            return 1
        first, last = story.seconds[0], story.seconds[(killed or {"after_second": len(story.seconds)})["after_second"] - 1]
        print(
            f"after {last['second']} s the network answers {100 * last['hit_rate']:.0f} % of the reads; median {first['read_p50_us']:.0f} µs → "
            f"{last['read_p50_us']:.0f} µs; every value that was read is one that was written to its key"
        )
        return 0


def main() -> int:
    """The command."""
    options = arguments().parse_args()
    if not 3 <= options.nodes <= 8:
        sys.exit("hot_keys.py: --nodes: 3 to 8, so that a chain is left when one is killed")
    try:
        return go(options)
    except (NodeError, OSError) as why:
        sys.exit(f"hot_keys.py: {why}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
