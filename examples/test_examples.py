# SPDX-License-Identifier: Apache-2.0
"""Runs each example against one ``netcraq dev``, and reads what it prints."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import netcraq
import pytest
from netcraq.node.engine import DEFAULT_SOCKET

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PATIENCE = 120.0  # seconds; on an idle machine each wait takes only a few
LANGUAGES = ("go", "python", "js")


def wait_for(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Program:
    """A process, and what it has printed."""

    def __init__(self, command: list[str], log: Path, **options) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **options)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until it has printed something."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            ended = self.process.poll() is not None
            found.extend(re.finditer(pattern, self.said))
            assert found or not ended, f"{self.process.args} ended without printing {pattern!r}: {self.said}"
            return bool(found)

        wait_for(f"{pattern!r} of {self.process.args}", look)
        return found[0]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Callable[[str], list[str]]:
    """The command that starts an example. It builds examples in Go, and installs the dependency of
    those in JavaScript.
    """
    folder = tmp_path_factory.mktemp("built")

    def command(name: str, source: str) -> list[str]:
        if source == "main.go":
            go = shutil.which("go") or shutil.which(ROOT / ".venv/bin/go") or pytest.skip("Go is not installed")
            if not (folder / name).exists():
                subprocess.run([go, "build", "-o", folder / name, f"./examples/{name}"], cwd=ROOT, check=True)
            return [str(folder / name)]
        if source.endswith(".mjs"):
            node = shutil.which("node") or pytest.skip("Node.js is not installed")
            # The effect of npm install, without the network.
            shutil.copytree(HERE / name, folder / name, dirs_exist_ok=True, ignore=lambda *_: {"node_modules"})
            (folder / name / "node_modules").mkdir(exist_ok=True)
            link = folder / name / "node_modules" / "netcraq"
            if not link.exists():
                link.symlink_to(ROOT / "client" / "js")
            return [node, str(folder / name / source)]
        return [sys.executable, str(HERE / name / source)]

    return command


@pytest.fixture(scope="module")
def dev(tmp_path_factory) -> Iterator[dict[str, str]]:
    """A running netcraq dev. Returns the environment with which programs find it, and GATEWAY."""
    assert (ROOT / "bin" / "netcraq").exists(), "bin/netcraq is not built: run make netcraq"
    folder = tmp_path_factory.mktemp("dev")
    path, gateway = str(folder / "netcraq.sock"), f"127.0.0.1:{free_port()}"
    command = [str(ROOT / "bin" / "netcraq"), "dev", "--socket", path, "--page", "none", "--gateway", gateway]
    server = Program(command, folder / "log")
    try:
        server.says("ready in")
        yield {**os.environ, "NETCRAQ_NODE_SOCKET": path, "GATEWAY": f"http://{gateway}"}
    finally:
        server.signal(signal.SIGINT)
        server.ends()


@pytest.fixture
def start(build, dev, tmp_path) -> Iterator[Callable[..., Program]]:
    """Start an example: start(name, source, *arguments). It ends with the test."""
    programs: list[Program] = []

    def run(name: str, source: str, *arguments: str) -> Program:
        command = [*build(name, source), *arguments]
        programs.append(Program(command, tmp_path / f"log-{len(programs)}", env=dev))
        return programs[-1]

    yield run
    for p in programs:
        p.signal(signal.SIGCONT)
        p.process.kill()
        p.process.wait()


@pytest.mark.parametrize("language", LANGUAGES)
def test_lock(start, language):
    """The next holder takes over from a killed one, whose late write is refused."""
    source = {"go": "main.go", "python": "lock.py", "js": "lock.mjs"}[language]
    address = f"127.0.0.1:{free_port()}"

    def run(role: str) -> Program:
        return start(f"lock-{language}", source, role, address)

    def post(token: int) -> str:
        with socket.create_connection(address.split(":")) as s:
            s.sendall(f"POST /{token} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            return s.makefile().readline().split()[1]

    storage = run("storage")
    host, port = address.split(":")
    wait_for("the storage", lambda: socket.socket().connect_ex((host, int(port))) == 0)
    first = run("first")
    token = int(first.says(r"first: token (\d+): 200\n")[1])
    second = run("second")
    first.signal(signal.SIGKILL)
    newer = int(second.says(r"second: token (\d+): 200\n")[1])
    assert newer > token
    assert post(token) == "409"
    assert post(newer) == "200"
    assert storage.process.poll() is None


def test_election_go(start):
    """An interrupted leader hands over, and the next one need not wait for the lease to expire."""
    first = start("election-go", "main.go", "first")
    first.says("first leads\n")
    second = start("election-go", "main.go", "second")
    second.says("second waits, because this one leads: first\n")
    first.signal(signal.SIGTERM)
    second.says("second leads\n")
    assert first.ends() == 0
    assert "first has handed over\n" in first.said
    second.signal(signal.SIGINT)
    assert second.ends() == 0


def test_service_discovery_js(start):
    """The balancer follows instances that start, stop, and die."""
    a, b = sorted(f"127.0.0.1:{free_port()}" for _ in range(2))
    balancer = start("service-discovery-js", "service.mjs", "balancer")
    first = start("service-discovery-js", "service.mjs", "instance", a)
    first.says("registered")
    second = start("service-discovery-js", "service.mjs", "instance", b)
    balancer.says(f"instances: {a} {b}\n")
    balancer.says(f"hello from {a}\n")
    balancer.says(f"hello from {b}\n")
    first.signal(signal.SIGTERM)
    balancer.says(f"instances: {a} {b}\n(.*\n)*instances: {b}\n")
    assert first.ends() == 0
    second.signal(signal.SIGKILL)
    balancer.says(f"instances: {b}\n(.*\n)*instances: none\n")


def test_stream_python(start, dev):
    """A consumer that was stopped gets the number of records that it has missed."""
    consumer = start("stream-python", "stream.py", "consumer")
    start("stream-python", "stream.py", "producer")
    consumer.says("read .* records")
    consumer.signal(signal.SIGSTOP)
    with netcraq.connect(socket=dev["NETCRAQ_NODE_SOCKET"]) as client:

        def appended() -> int:
            return client.open_stream("clicks")["partitions"][0]["next"]

        behind = appended() + 1000
        wait_for("1,000 records that the consumer does not read", lambda: appended() > behind)
    consumer.signal(signal.SIGCONT)
    assert int(consumer.says(r"missed (\d+) records before offset \d+\n")[1]) > 100


def test_rate_limiter_python(start):
    """Three workers make 5 calls each, and there are at most 5 calls in one second."""
    limiter = start("rate-limiter-python", "limiter.py")
    assert limiter.ends() == 0, limiter.said
    # Processes with unbuffered output write a line and its end separately.
    calls = re.findall(r"(\d\d): worker (\d) makes call (\d)", limiter.said)
    assert len(calls) == 15
    seconds = [second for second, _, _ in calls]
    assert max(map(seconds.count, seconds)) <= 5


def test_size():
    """Each example fits on a screen: one file of at most 60 lines."""
    for folder in sorted(p for p in HERE.iterdir() if (p / "README.md").exists()):
        for source in (p for p in folder.iterdir() if p.suffix in {".go", ".py", ".mjs", ".p4"}):
            lines = len(source.read_text().splitlines())
            assert lines <= 60, f"{source}: {lines} lines"


def test_etcd_before_after(start, dev, tmp_path):
    """The same program reads a key directly from etcd, and through the gateway."""
    etcd = shutil.which("etcd") or pytest.skip("etcd is not installed")
    before, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    urls = ["--listen-client-urls", before, "--advertise-client-urls", before, "--listen-peer-urls", peers]
    server = Program([etcd, "--data-dir", str(tmp_path / "etcd"), *urls], tmp_path / "etcd.log")
    try:
        program = start("etcd-before-after", "main.go", before, dev["GATEWAY"])
        assert program.ends() == 0, program.said
        for endpoint in (before, dev["GATEWAY"]):
            assert re.search(rf"{endpoint} +read p50 [\d.]+[mµ]?s, p99 [\d.]+[mµ]?s\n", program.said), program.said
    finally:
        server.process.kill()
        server.ends()


def test_p4_counter(start, tmp_path):
    """The program's counters match the sent packets."""
    pytest.importorskip("p4runtime_sh", reason="p4runtime-shell is not installed")
    binary = ROOT / "bin" / "netcraq-switch"
    if not binary.exists():
        pytest.skip("bin/netcraq-switch is not built: run make build")
    address = f"127.0.0.1:{free_port()}"
    command = [str(binary), "--engine", "interp", "--device-id", "1", "--no-p4", "--"]
    switch = Program([*command, "--grpc-server-addr", address, "--cpu-port", "255"], tmp_path / "switch.log")
    try:
        switch.says("ready")
        p4 = str(ROOT / "switch" / "p4rtserver" / "testdata" / "entities")
        program = start("p4-counter", "counter.py", address, f"{p4}.p4info.txtpb", f"{p4}.json")
        assert program.ends() == 0, program.said
        assert program.said == "port 1: 1 packets\nport 2: 2 packets\nentry for 02:00:00:00:00:02: 0 packets\n"
    finally:
        switch.process.kill()
        switch.ends()


def test_kubernetes():
    """The Deployment mounts the folder where libraries look; the alerts are documented."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    folder = HERE / "kubernetes"
    pod = yaml.safe_load((folder / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    documented = (ROOT / "docs" / "kubernetes.md").read_text()
    assert pod["volumes"][0]["hostPath"]["path"] == "/run/netcraq-node"
    assert "`/run/netcraq-node/node.sock`" in documented
    mounted = pod["containers"][0]["volumeMounts"][0]["mountPath"]
    assert f"{mounted}/node.sock" == DEFAULT_SOCKET
    blocks = re.findall(r"```yaml\n(- alert:.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.S)
    known = {rule["alert"]: rule for block in blocks for rule in yaml.safe_load(block)}
    (group,) = yaml.safe_load((folder / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule.pop("annotations")["summary"]
        assert rule == known[rule["alert"]]


def test_arrow_pipeline(start):
    """Three processes pass batches, and the middle one copies only the column that it adds."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: make test-arrow installs it")
    report, enrich = (start("arrow-pipeline", "pipeline.py", step) for step in ("report", "enrich"))
    produce = start("arrow-pipeline", "pipeline.py", "produce")
    for step in (produce, enrich, report):
        assert step.ends() == 0, step.said
    assert report.said == "200000 rows: 999900000 cents net, 1999800000 cents gross\n"
    assert enrich.said == "enrich copied 1600000 bytes, and shared 1600000\n"


@pytest.fixture
def postgresql(tmp_path) -> Iterator[Callable[[str], str]]:
    """A PostgreSQL at .port. psql(statements) returns their output."""
    found = shutil.which("initdb") or next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)
    folder = Path(found).resolve().parent if found else pytest.skip("PostgreSQL is not installed")
    data, port = Path(tempfile.mkdtemp()), str(free_port())
    who = {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        who["user"] = "nobody"
        shutil.chown(data, "nobody")
    subprocess.run([folder / "initdb", "-D", data / "d", "-U", "netcraq", "-A", "trust"], check=True, cwd="/", **who)
    options = ["-h", "127.0.0.1", "-p", port, "-k", str(data), "-c", "fsync=off"]
    server = Program([str(folder / "postgres"), "-D", str(data / "d"), *options], tmp_path / "postgres", cwd="/", **who)

    def psql(statements: str) -> str:
        command = [folder / "psql", "-X", "-qtA", "-h", "127.0.0.1", "-p", port, "-U", "netcraq", "postgres"]
        done = subprocess.run(command, input=statements, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    psql.port = port
    try:
        server.says("ready to accept connections")
        yield psql
    finally:
        server.signal(signal.SIGINT)
        server.ends()
        shutil.rmtree(data)


def test_postgres_to_parquet(postgresql, tmp_path):
    """Each row arrives once, although the pipelet is killed while it copies."""
    binary = ROOT / "bin" / "netcraq-pipelets"
    if not binary.exists():
        pytest.skip("bin/netcraq-pipelets is not built: run make test-pipelets")
    example, lake = HERE / "postgres-to-parquet", tmp_path / "lake"
    lake.mkdir()
    postgresql((example / "orders.sql").read_text())
    text = (example / "orders.yaml").read_text()
    pipelet = tmp_path / "orders.yaml"
    pipelet.write_text(text.replace("127.0.0.1:5432", f"127.0.0.1:{postgresql.port}").replace("/tmp/lake", str(lake)))
    run = [str(binary), "run", str(pipelet)]
    first = Program(run, tmp_path / "first")
    try:
        wait_for("a file", lambda: list(lake.rglob("*.parquet")) or first.process.poll() is not None)
    finally:
        first.process.kill()
        first.ends()
    postgresql((example / "orders.sql").read_text().replace("order-", "later-"))
    # A second pipelet reads the files, so that PostgreSQL can count their rows.
    postgresql("CREATE TABLE copied (key text, value text)")
    back = tmp_path / "back.yaml"
    folder = next(lake.rglob("*.parquet")).parent
    target = f'{{address: "127.0.0.1:{postgresql.port}", database: postgres, table: copied, append: true}}'
    back.write_text(f"""apiVersion: netcraq.io/v1alpha1
kind: Pipelet
metadata: {{name: back}}
spec: {{src: [{{parquet: {{path: {folder}}}}}], dst: [{{postgresql: {target}}}], eoio: true}}
""")
    second, reader = Program(run, tmp_path / "second"), Program([str(binary), "run", str(back)], tmp_path / "back")
    try:
        count = "SELECT count(*), count(DISTINCT key), sum(value::int) FROM copied"
        wait_for("all rows", lambda: int(postgresql(count).split("|")[0]) >= 10_000)
        assert postgresql(count) == f"10000|10000|{2 * 5000 * 5001 // 2}"
    finally:
        for p in (second, reader):
            p.signal(signal.SIGTERM)
            p.ends()
