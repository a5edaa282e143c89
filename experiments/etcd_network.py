# SPDX-License-Identifier: Apache-2.0
"""A chain with everything that hot etcd keys need around it: etcd, the gateway, Prometheus.

::

                      host h1                             this machine
    netcraq-peers ──▶ etcd-monitor ──── management ────▶ etcd, Prometheus, netcraq-controller
     (the load)            └── s1 ── s2 ── s3 ── s4 ── s1    (a ring, so that there is a way around each)

The gateway and its clients run in a host of the chain's network. A separate management cable leads
from the host to etcd.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from experiments.one_load import all_cpu_seconds
from topologies import nodes, p4app
from topologies.controller import ADMIN
from topologies.network import ChainNetwork, NodeError

HERE, THERE = "169.254.79.1", "169.254.79.2"
"""This machine's and the host's ends of the cable. The addresses are link-local (RFC 3927), so they
conflict with no others.
"""

CABLE = ("nq-mgmt", "nq-mgmt-host")
ETCD, PROMETHEUS, GATEWAY, METRICS, PROXY = 12379, 19090, 2379, 2382, 23790
IN_TURN, IN_TURN_METRICS = 2389, 2392
"""TCP ports. They differ from the usual ones, where Debian's packages run etcd and Prometheus. An
etcd member has three: for clients, its peers and its health; the next member's are ten higher.
"""

HOST = "h1"
LEASE_MS = 1000
"""The read lease: clients, gateway, etcd and Prometheus can keep the controller off the CPU for
longer than the usual 200 ms.
"""
SAMPLES, WINDOW = "500ms", "2s"
"""Prometheus's scrape interval, and the window of its rates."""
BENCHMARK = "etcd-benchmark"
"""etcd's own tool, which ``make bench-etcd`` builds into bin/."""


def run_ip(*arguments: str, check: bool = True) -> None:
    """Run ip(8)."""
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


def etcd_program() -> str:
    """Return the path of etcd: bin/etcd, which make builds in the version of go.mod, otherwise the
    one on PATH.
    """
    built = p4app.ROOT / "bin" / "etcd"
    return str(built) if built.exists() else "etcd"


class EtcdNetwork:
    """All the running processes. ``members`` is the number of etcd members. With ``tls``, etcd, the
    gateway and their clients use TLS.
    """

    def __init__(
        self,
        out: Path,
        *,
        switches: int = 4,
        profile: int = 1024,
        members: int = 1,
        tls: bool = False,
        flags: Sequence[str] = (),
        bin: str = "bin",
        etcd: str | None = None,
        **kind: str,
    ) -> None:
        """``flags`` are additional flags of the controller. The gateway and the load are started
        from the folder ``bin``; ``etcd`` is the program of etcd's members and of its proxy
        (etcd_program).

        ``kind`` is ChainNetwork's ``switch``, ``engine`` and ``hook``.
        """
        self.out = out
        self.members = members
        self.tls = tls
        self.flags = flags
        self.bin = bin
        self.program = etcd or etcd_program()
        self.kind = kind
        self.net: ChainNetwork | None = None
        self.etcd: list[subprocess.Popen] = []
        self.gateways: list[subprocess.Popen] = []
        self._stack = ExitStack()
        content = p4app.line(switches, profile, LEASE_MS)
        content["topology"]["links"].append([f"s{switches}", "s1"])
        self.topology = p4app.check(content, f"a ring of {switches} switches")

    def __enter__(self) -> EtcdNetwork:
        """Start everything; on failure stop everything again."""
        try:
            self._up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._stack.close()

    # ---- Processes ----

    def _daemon(self, name: str, command: Sequence[str], inside: bool = False) -> subprocess.Popen:
        """Start a process that ends with this one."""
        log = (self.out / f"{name}.log").open("wb")
        self._stack.callback(log.close)
        if inside:
            process = self.net.spawn(HOST, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        else:
            process = subprocess.Popen(
                [*nodes.DIE_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._stack.callback(nodes.stop_process, process)
        return process

    def _wait(self, name: str, process: subprocess.Popen, url: str, seconds: float = 30) -> None:
        """Wait until a process answers at its URL."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError), urllib.request.urlopen(url, timeout=2):
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise NodeError(f"{name} does not come up; {nodes.tail(self.out / f'{name}.log')}")
            time.sleep(0.02)

    def _up(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        for program in (self.program, "prometheus", *(["openssl"] if self.tls else [])):
            if shutil.which(program) is None:
                raise NodeError(
                    f"{program} is not on PATH: make deps installs it (Debian's packages etcd-server, prometheus, openssl)"
                )
        etcd_ports = [ETCD + 10 * member + n for member in range(self.members) for n in range(3)]
        for port in (*etcd_ports, PROMETHEUS):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    raise NodeError(
                        f"TCP port {port} on loopback is in use by another program: stop that first"
                    ) from None
        run_ip("link", "delete", CABLE[0], check=False)  # left by a killed run
        run_ip("link", "add", CABLE[0], "type", "veth", "peer", "name", CABLE[1])
        self._stack.callback(run_ip, "link", "delete", CABLE[0], check=False)
        run_ip("address", "add", f"{HERE}/30", "dev", CABLE[0])
        run_ip("link", "set", CABLE[0], "up")
        if self.tls:
            self._certificates()
        self._start_etcd()
        prometheus = self._start_prometheus()
        here = ",".join(f"127.0.0.1:{ETCD + 10 * n}" for n in range(self.members))
        flags = ["--etcd", here, "--prometheus", f"http://127.0.0.1:{PROMETHEUS}", "--heat-window", WINDOW, *self.flags]
        if self.tls:
            flags += ["--etcd-cacert", str(self.out / "ca.pem")]
        self.net = ChainNetwork(self.topology, **self.kind, out=self.out / "network", controller_flags=flags)
        self.net.start()
        self._stack.callback(self.net.stop)
        run_ip("link", "set", CABLE[1], "netns", str(self.net.hosts[HOST].pid))
        for command in (["address", "add", f"{THERE}/30", "dev", CABLE[1]], ["link", "set", CABLE[1], "up"]):
            self.net.execute(HOST, ["ip", *command])
        self._start_gateway("etcd-monitor", GATEWAY, METRICS)
        self._wait("prometheus", prometheus, f"http://127.0.0.1:{PROMETHEUS}/-/ready")

    def _certificates(self) -> None:
        """Make one certificate authority, and one certificate for all servers."""
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = ["-extfile", "names", "-out", "cert.pem"]
        (self.out / "names").write_text(f"subjectAltName=IP:127.0.0.1,IP:{HERE},IP:{THERE}\n")
        for command in (
            [
                "req",
                "-x509",
                *key,
                "-keyout",
                "ca-key.pem",
                "-out",
                "ca.pem",
                "-days",
                "2",
                "-subj",
                "/O=netcraq/CN=for this run",
            ],
            ["req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/O=netcraq"],
            [
                "x509",
                "-req",
                "-in",
                "request.pem",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca-key.pem",
                "-CAcreateserial",
                "-days",
                "2",
                *names,
            ],
        ):
            subprocess.run(["openssl", *command], cwd=self.out, check=True, capture_output=True)

    def _start_etcd(self) -> None:
        scheme = "https" if self.tls else "http"
        peers = [f"{scheme}://127.0.0.1:{ETCD + 10 * n + 1}" for n in range(self.members)]
        for n in range(self.members):
            clients = f"{scheme}://127.0.0.1:{ETCD + 10 * n},{scheme}://{HERE}:{ETCD + 10 * n}"
            command = [self.program, "--name", f"etcd{n}", "--data-dir", str(self.out / f"etcd{n}"), "--logger", "zap"]
            command += [
                "--listen-client-urls",
                clients,
                "--advertise-client-urls",
                f"{scheme}://{HERE}:{ETCD + 10 * n}",
            ]
            command += ["--listen-peer-urls", peers[n], "--initial-advertise-peer-urls", peers[n]]
            command += ["--initial-cluster", ",".join(f"etcd{i}={url}" for i, url in enumerate(peers))]
            command += ["--listen-metrics-urls", f"http://127.0.0.1:{ETCD + 10 * n + 2}"]
            if self.tls:
                files = {"cert-file": "cert.pem", "key-file": "key.pem", "peer-trusted-ca-file": "ca.pem"}
                files |= {"peer-cert-file": "cert.pem", "peer-key-file": "key.pem"}
                command += [part for flag, name in files.items() for part in (f"--{flag}", str(self.out / name))]
            self.etcd.append(self._daemon(f"etcd{n}", command))
        for n, process in enumerate(self.etcd):
            self._wait(f"etcd{n}", process, f"http://127.0.0.1:{ETCD + 10 * n + 2}/health")

    def _start_gateway(self, name: str, port: int, metrics: int, *flags: str) -> None:
        scheme = "https" if self.tls else "http"
        upstream = ",".join(f"{scheme}://{address}" for address in self.etcd_addresses())
        command = [
            nodes.built("etcd-monitor", self.bin),
            "--endpoints",
            upstream,
            "--listen-client-urls",
            f"{scheme}://127.0.0.1:{port}",
            *flags,
        ]
        command += ["--metrics-addr", f"{THERE}:{metrics}", "--controller", self.net.admin_url]
        if self.tls:
            command += [
                "--cacert",
                str(self.out / "ca.pem"),
                "--cert-file",
                str(self.out / "cert.pem"),
                "--key-file",
                str(self.out / "key.pem"),
            ]
        self.gateways.append(self._daemon(name, command, inside=True))
        self._wait(name, self.gateways[-1], f"http://{THERE}:{metrics}/metrics")

    def _start_prometheus(self) -> subprocess.Popen:
        """Start Prometheus. It becomes ready while the network starts."""
        config = {
            "global": {"scrape_interval": SAMPLES, "scrape_timeout": SAMPLES},
            "scrape_configs": [
                {"job_name": "etcd-monitor", "static_configs": [{"targets": [f"{THERE}:{METRICS}"]}]},
                {"job_name": "netcraq-controller", "static_configs": [{"targets": [ADMIN]}]},
            ],
        }
        (self.out / "prometheus.yml").write_text(json.dumps(config, indent=2))  # JSON is YAML
        command = [
            "prometheus",
            f"--config.file={self.out / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.out / 'prometheus'}",
        ]
        command += [f"--web.listen-address=127.0.0.1:{PROMETHEUS}", "--log.level=warn"]
        return self._daemon("prometheus", command)

    # ---- Requests and measurements ----

    def etcd_addresses(self) -> list[str]:
        """Return the addresses of etcd's members, as the host reaches them."""
        return [f"{HERE}:{ETCD + 10 * n}" for n in range(self.members)]

    def start_in_turn(self) -> None:
        """Start a second gateway, which sends writes to etcd's members in turn and not to their
        leader.
        """
        self._start_gateway("etcd-monitor-in-turn", IN_TURN, IN_TURN_METRICS, "--writes-to-leader=false")

    def start_proxy(self) -> None:
        """Start etcd's own proxy in the host, to compare it with the gateway."""
        command = [self.program, "grpc-proxy", "start", "--listen-addr", f"127.0.0.1:{PROXY}"]
        scheme = "https" if self.tls else "http"
        command += ["--endpoints", ",".join(f"{scheme}://{address}" for address in self.etcd_addresses())]
        # etcd 3.6 checks its own health over the advertised URL. It ends after five seconds if it
        # cannot verify its own certificate, and its only CA for that is the one for client
        # certificates.
        command += ["--advertise-client-url="]
        if self.tls:
            files = {"cacert": "ca.pem", "cert-file": "cert.pem", "key-file": "key.pem"}
            files |= {"cert": "cert.pem", "key": "key.pem"}  # etcd 3.6 does not start without these
            command += [part for flag, name in files.items() for part in (f"--{flag}", str(self.out / name))]
        proxy = self._daemon("grpc-proxy", command, inside=True)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.load("--keys", "1", "--value-size", "64", "-n", "1", "--duration", "100ms", way="grpc-proxy")
                time.sleep(6)
                if proxy.poll() is not None:
                    raise NodeError("it has ended")
                return
            except NodeError as why:
                if time.monotonic() > deadline or proxy.poll() is not None:
                    raise NodeError(
                        f"etcd's proxy does not come up: {why}; {nodes.tail(self.out / 'grpc-proxy.log')}"
                    ) from None
                time.sleep(0.5)

    def endpoints(self, way: str) -> list[str]:
        """Return the addresses of a way to etcd: ``gateway``, ``in-turn`` (the second gateway),
        ``grpc-proxy``, or etcd's members themselves.
        """
        port = {"gateway": GATEWAY, "in-turn": IN_TURN, "grpc-proxy": PROXY}.get(way)
        return self.etcd_addresses() if port is None else [f"127.0.0.1:{port}"]

    def load(self, *arguments: str, way: str = "gateway", timeout: float = 300) -> dict[str, Any]:
        """Run netcraq-peers in the host and return its report. way: against the ``gateway``, the
        gateway ``in-turn``, ``etcd`` itself, its ``grpc-proxy``, ``direct`` (client/etcd, without a
        process in between), or ``native`` (keys of the chain, with the Go client).
        """
        command = [
            "nice",
            "-n",
            "5",
            nodes.built("netcraq-peers", self.bin),
            way if way in ("direct", "native") else "etcd",
            "--endpoints",
            ",".join(self.endpoints(way)),
            *arguments,
        ]
        if way in ("direct", "native"):
            command += ["--controller", self.net.admin_url]
        if self.tls:
            command += ["--cacert", str(self.out / "ca.pem")]
        done = self.net.execute(HOST, command, timeout=timeout, check=False)
        if done.returncode != 0:
            raise NodeError(f"the load ended: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def benchmark(self, way: str, arguments: Sequence[str], total: int) -> dict[str, float]:
        """Run etcd's own benchmark in the host: 64 clients on 8 connections. Returns requests a
        second, and the median and 99th percentile latency in microseconds. NodeError: it failed, or
        took longer than a minute.
        """
        command = [nodes.built(BENCHMARK, self.bin), "--endpoints", ",".join(self.endpoints(way))]
        command += ["--conns", "8", "--clients", "64", "--precise", "--total", str(total)]
        if self.tls:
            command += ["--cacert", str(self.out / "ca.pem")]
        try:
            done = self.net.execute(
                HOST, [*command[:1], *arguments[:1], *command[1:], *arguments[1:]], timeout=60, check=False
            )
        except subprocess.TimeoutExpired as hung:
            raise NodeError(f"etcd's benchmark by {way}: not at its end after {hung.timeout:.0f} s") from None
        found = {
            name: re.search(rf"{text}\s*(?:in )?([0-9.]+)", done.stdout)
            for name, text in (("rate", "Requests/sec:"), ("p50", r"50\.?0*% in"), ("p99", r"99\.?0*% in"))
        }
        if done.returncode != 0 or "Error distribution" in done.stdout or not all(found.values()):
            raise NodeError(f"etcd's benchmark by {way}: {done.stderr.strip() or done.stdout[-500:]}")
        number = {name: float(match[1]) for name, match in found.items() if match}
        return {"rate": number["rate"], "p50": number["p50"] * 1e6, "p99": number["p99"] * 1e6}

    def counted(self) -> dict[str, float]:
        """Return the gateway's counters of single-key reads, by who answered."""
        with urllib.request.urlopen(f"http://{THERE}:{METRICS}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for who, count in re.findall(r'^etcd_monitor_reads_total\{answered="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE):
            found[who] = found.get(who, 0.0) + float(count)
        return found

    def placed(self) -> list[dict[str, Any]]:
        """Return the placed keys, the hottest first."""
        return self.net.admin.placement()["placed"]

    def etcd_seconds(self) -> float:
        """Return the processor time that etcd's members have used."""
        return sum(all_cpu_seconds(process.pid) for process in self.etcd)

    def gateway_seconds(self) -> float:
        """Return the processor time that the gateways have used."""
        return sum(all_cpu_seconds(process.pid) for process in self.gateways)

    def bring_back(self, switch: str) -> None:
        """Restart a switch and wait until it is back in the chain."""
        self.net.restart_switch(switch)
        deadline = time.monotonic() + 20
        while not next(found["ready"] for found in self.net.admin.switches() if found["name"] == switch):
            if time.monotonic() > deadline:
                raise NodeError(f"the controller does not get {switch} set up within 20 s")
            time.sleep(0.05)
        self.net.admin.recover(self.topology.chains[0].name, switch)
