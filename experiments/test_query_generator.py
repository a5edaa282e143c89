# SPDX-License-Identifier: Apache-2.0
"""The query generator against a reference chain: over sockets, and as frames through a pair of
interfaces.
"""

import csv
import io
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from netcraq import wire
from refchain import CHAIN, RefChain, RefController

from experiments import query_generator as qg

KEYS = "0x01000000-0x01000009"


@pytest.fixture
def make_chain():
    made = []

    def make(**config):
        c = RefChain(**config)
        c.place(*(CHAIN << 24 | n for n in range(10)))
        made.append(c)
        return c

    yield make
    for c in made:
        c.close()
    for c in made:
        assert c.violations == []


def generate(*args, capsys=None):
    code = qg.main(["--quiet", *map(str, args)])
    captured = capsys.readouterr() if capsys else None
    return (code, captured.out, captured.err) if captured else code


def rows_of(path):
    with Path(path).open(newline="") as f:
        return list(csv.DictReader(f))


def test_every_query_has_a_row_and_the_summary_adds_up(make_chain, tmp_path):
    chain = make_chain(addresses=2)
    table, summary = tmp_path / "deep" / "q.csv", tmp_path / "s.json"
    begun = time.time()
    args = [
        "--mix",
        "get=6,put=2,del=1,cas=1",
        "--rate",
        2000,
        "--count",
        600,
        "--seed",
        7,
        "--csv",
        table,
        "--summary",
        summary,
        "--keys",
        KEYS,
    ]
    assert generate("--target", chain.addresses[0], "--target", chain.addresses[1], *args) == 0
    rows = rows_of(table)
    assert len(rows) == 600
    assert tuple(rows[0]) == qg.COLUMNS
    kinds = Counter(r["op"] for r in rows)
    assert 320 < kinds["get"] < 400
    assert Counter(r["target"] for r in rows) == {chain.addresses[0]: 300, chain.addresses[1]: 300}
    assert {r["answered_by"] for r in rows} == {chain.addresses[0]}  # the service address answers all
    for r in rows:
        assert r["status"] in {"OK", "NOT_FOUND", "CAS_FAILED"}
        assert 0 < float(r["rtt_us"]) < 1e6
        assert begun - 1 < float(r["time"]) < time.time()
        assert (r["version"] == "0") == (r["status"] == "NOT_FOUND" and wire.parse_version(r["version"]) == 0)
    s = json.loads(summary.read_text())
    assert (s["sent"], s["replies"], s["lost"], s["seed"], s["keys"]) == (600, 600, 0, 7, 10)
    assert s["statuses"] == dict(Counter(r["status"] for r in rows))
    assert {k: v["sent"] for k, v in s["by_op"].items()} == dict(kinds)
    written = sum(r["op"] in {"put", "del"} or (r["op"] == "cas" and r["status"] == "OK") for r in rows)
    assert chain.executed == written
    assert any(r["op"] == "cas" and r["status"] == "OK" for r in rows)  # it learns versions from answers
    times = [float(r["rtt_us"]) for r in rows]
    assert (
        min(times)
        <= s["latency_us"]["p50"]
        <= s["latency_us"]["p99"]
        <= s["latency_us"]["max"]
        == pytest.approx(max(times), abs=0.1)
    )
    assert 0.28 < s["elapsed_s"] < 10


class Forged:
    """A socket with an attacker that knows all queries, including their numbers, and answers faster
    than the chain.
    """

    def __init__(self, inner, forgers):
        self.inner, self.forgers, self.ready = inner, forgers, []

    def send(self, target, payload):
        p = wire.Packet.decode(payload, 128)
        reply = replace(p, op=p.op.reply, flags=wire.NO_FLAGS, version=1 << 63, value=b"forged")
        self.ready += [qg.Received(reply.encode(128), forger, time.monotonic()) for forger in self.forgers]
        self.inner.send(target, payload)

    def receive(self, wait):
        forged, self.ready = self.ready, []
        return forged or self.inner.receive(wait)

    def close(self):
        self.inner.close()


def test_forged_replies_are_ignored(make_chain, monkeypatch, tmp_path):
    chain = make_chain(addresses=2)
    port = chain.addresses[0].rpartition(":")[2]
    forgers = [f"127.0.0.66:{port}", "127.0.0.1:53", "127.0.0.2:53"]
    make = qg.make_transport
    monkeypatch.setattr(qg, "make_transport", lambda *args: Forged(make(*args), forgers))
    table, summary = tmp_path / "q.csv", tmp_path / "s.json"
    args = [
        "--mix",
        "get=1,put=1,cas=1",
        "--rate",
        2000,
        "--count",
        200,
        "--csv",
        table,
        "--summary",
        summary,
        "--keys",
        KEYS,
    ]
    for where in (["--target", chain.addresses[0]], ["--target", chain.addresses[1], "--service", chain.addresses[0]]):
        assert generate(*where, *args) == 0
        assert {r["answered_by"] for r in rows_of(table)} == {chain.addresses[0]}
        assert all(r["version"].partition(".")[0] in {"0", "1"} for r in rows_of(table))
        s = json.loads(summary.read_text())
        assert (s["foreign"], s["lost"]) == (600, 0)


def test_answers_come_from_the_service_address(make_chain, capsys, tmp_path):
    chain = make_chain(addresses=2)
    controller = RefController(chain)
    try:
        args = ["--target", chain.addresses[1], "--keys", KEYS, "--value-bits", 128, "--count", 5, "--timeout", 0.1]
        assert generate(*args, "--service", chain.addresses[0]) == 0
        assert generate(*args, "--admin", controller.url) == 0
        code, _, err = generate(*args, "--admin", "127.0.0.1:9", capsys=capsys)
        assert code == 1
        assert f"5 packets came from {chain.addresses[0]}" in err
        assert "name it with --service" in err
    finally:
        controller.close()


def test_denied_queries_are_counted_so(make_chain, tmp_path):
    chain = make_chain()
    chain.realms[CHAIN << 24 | 1] = 7
    table = tmp_path / "q.csv"
    args = ["--mix", "get=1,put=1", "--count", 40, "--rate", 2000, "--csv", table, "--keys", "0x01000001"]
    assert generate("--target", chain.addresses[0], *args) == 0
    assert {r["status"] for r in rows_of(table)} == {"DENIED"}
    assert chain.executed == 0


def test_losses_are_reported(make_chain, tmp_path):
    chain = make_chain(loss=0.3, duplicate=0.2, seed=3)
    table, summary = tmp_path / "q.csv", tmp_path / "s.json"
    args = ["--rate", 2000, "--count", 400, "--timeout", 0.2, "--csv", table, "--summary", summary, "--keys", KEYS]
    assert generate("--target", chain.addresses[0], *args) == 0
    s = json.loads(summary.read_text())
    lost = [r for r in rows_of(table) if r["status"] == qg.LOST]
    assert 100 < len(lost) == s["lost"] < 300  # about half of them
    assert all(r["rtt_us"] == r["version"] == r["answered_by"] == "" for r in lost)
    assert s["sent"] == 400 == s["replies"] + s["lost"]
    assert s["strays"] > 0  # second copies


def test_the_same_seed_asks_the_same(make_chain, tmp_path):
    chain = make_chain()
    seen = []
    for name in ("a", "b"):
        table = tmp_path / name
        args = [
            "--mix",
            "get=1,put=1",
            "--distribution",
            "zipf",
            "--count",
            100,
            "--rate",
            5000,
            "--seed",
            11,
            "--csv",
            table,
            "--keys",
            KEYS,
        ]
        assert generate("--target", chain.addresses[0], *args) == 0
        seen.append(sorted((r["time"], r["op"], r["key"]) for r in rows_of(table)))
    assert [q[1:] for q in seen[0]] == [q[1:] for q in seen[1]]


def test_duration_rate_and_the_table_for_people(make_chain, capsys):
    chain = make_chain(value_bits=1024)
    begun = time.monotonic()
    args = [
        "--target",
        chain.addresses[0],
        "--keys",
        KEYS,
        "--value-bits",
        "1024",
        "--value-size",
        "128",
        "--mix",
        "put=1",
        "--rate",
        "200",
    ]
    assert qg.main([*args, "--duration", "0.5"]) == 0
    assert 0.5 <= time.monotonic() - begun < 10
    out = capsys.readouterr().out
    assert "queries in 0.5" in out
    assert "OK " in out
    assert "p99" in out
    assert "seed" in out
    assert 50 < chain.executed <= 101


def test_the_controller_is_asked_for_what_is_not_given(make_chain, capsys, tmp_path):
    chain = make_chain(addresses=3, value_bits=4096)
    controller = RefController(chain)
    try:
        assert generate("--admin", controller.url, "--count", 1, capsys=capsys)[0] == 1  # no key is placed
        controller.keys |= {"/a-b": 0x01000001, "/b": 0x01000002}
        table = tmp_path / "q.csv"
        common = ["--admin", controller.url, "--count", 20, "--rate", 1000, "--csv", table]
        assert generate(*common) == 0
        rows = rows_of(table)
        assert {r["key"] for r in rows} == {"0x01000001", "0x01000002"}
        assert {r["target"] for r in rows} == {chain.addresses[0]}
        assert generate(*common, "--keys", "/a-b", "--switch", "s2", "--switch", "s1") == 0
        rows = rows_of(table)
        assert {r["key"] for r in rows} == {"0x01000001"}
        assert {r["target"] for r in rows} == set(chain.addresses[1:])
        for args, said in (
            (["--keys", "/nowhere"], "no such keys: /nowhere"),
            (["--keys", "0x07000001"], "no chain 7"),
            (["--switch", "s9"], "has s1, s2"),
        ):
            code, _, err = generate(*common, *args, capsys=capsys)
            assert (code, said in err) == (1, True), err
    finally:
        controller.close()


def test_csv_and_summary_on_standard_output(make_chain, capsys):
    chain = make_chain()
    common = ["--target", chain.addresses[0], "--keys", KEYS, "--count", "10", "--rate", "1000"]
    assert qg.main([*common, "--csv", "-"]) == 0
    captured = capsys.readouterr()
    assert len(list(csv.DictReader(io.StringIO(captured.out)))) == 10
    assert "queries in" in captured.err
    code, out, _ = generate(*common, "--summary", "-", capsys=capsys)
    assert (code, json.loads(out)["sent"]) == (0, 10)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--mix", "get"], "want OPERATION=SHARE"),
        (["--mix", "frob=1"], "no operation 'frob'"),
        (["--mix", "get=-1"], "not negative"),
        (["--mix", "get=nan"], "not negative"),
        (["--mix", "get=0"], "nothing to do"),
        (["--rate", "0"], "--rate 0.0 makes no sense"),
        (["--count", "0"], "--count 0 makes no sense"),
        (["--duration", "inf"], "--duration inf"),
        (["--timeout", "-1"], "--timeout"),
        (["--value-size", "17"], "does not fit"),
        (["--zipf-exponent", "-1"], "--zipf-exponent"),
        (["--keys", "0x01000005-0x01000001"], "no range"),
        (["--keys", "0x01000005-0x02000001"], "no range"),
        (["--keys", "0x01000005,0x02000001"], "of one chain"),
        (["--target", "127.0.0.1:x"], "want ADDRESS"),
        (["--target", "127.0.0.1:70000"], "no port"),
        (["--service", "127.0.0.1:x"], "--service 127.0.0.1:x: "),
        (["--switch", "s1"], "either --target or --switch"),
        (["--csv", "-", "--summary", "-"], "cannot both"),
        (["--interface", "lo"], "for --transport scapy"),
        (["--csv", "/proc/none/q.csv"], "writing /proc/none/q.csv"),
        (["--transport", "scapy", "--interface", "none0"], "there are lo"),
    ],
)
def test_refuses(args, said, capsys):
    base = [] if args[0] == "--keys" else ["--keys", KEYS]
    code, _, err = generate("--target", "127.0.0.1:9", "--value-bits", 128, *base, *args, capsys=capsys)
    assert (code, said in err) == (1, True), err


def test_usage_and_help(capsys):
    for args in (["--frob"], ["--count", "x"], ["--count", "1", "--duration", "1"], ["--value-bits", "64"]):
        with pytest.raises(SystemExit) as e:
            qg.main(args)
        assert e.value.code == 2
    capsys.readouterr()
    with pytest.raises(SystemExit) as e:
        qg.main(["--help"])
    assert e.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("examples:", "columns of the CSV", "exit codes", "--zipf-exponent"))


def test_nobody_answers(capsys):
    code, _, err = generate(
        "--target", "127.0.0.1:9", "--keys", KEYS, "--value-bits", 128, "--count", 3, "--timeout", 0.05, capsys=capsys
    )
    assert code == 1
    assert "no query was answered" in err


def test_the_table_is_readable_at_80_columns():
    report = qg.Report(elapsed=60.0)
    for tally in (
        report.all,
        report.by_kind.setdefault("get", qg.Tally()),
        report.by_target.setdefault("10.0.255.111:9559", qg.Tally()),
    ):
        tally.sent, tally.latencies = 10_000_000, [0.000_123, 1.234567]
        tally.statuses.update({"OK": 9_000_000, "NOT_FOUND": 598, qg.LOST: 999_402})
    out = io.StringIO()
    qg.show(report, out)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    [row] = [line.split() for line in lines if line.startswith("10.0")]
    assert row == ["10.0.255.111:9559", "10,000,000", "999,402", "123", "1,234,567", "1,234,567", "1,234,567"]
    assert "get was answered: NOT_FOUND 598, OK 9,000,000" in lines
    assert "NOT_FOUND: the key has no value: nobody has put one yet, or it was deleted." in lines


def test_zipf_and_percentiles():
    pick = qg.zipf_keys([1, 2, 3, 4], 1, random.Random(1))
    seen = Counter(pick() for _ in range(50000))
    for key, share in ((1, 0.48), (2, 0.24), (3, 0.16), (4, 0.12)):  # 1, 1/2, 1/3, 1/4 of 25/12
        assert seen[key] / 50000 == pytest.approx(share, abs=0.01)
    ordered = list(range(1, 101))
    assert [qg.percentile(ordered, q) for q in (1, 50, 99, 99.9, 100)] == [1, 50, 99, 100, 100]
    assert qg.percentile([5], 50) == 5


@contextmanager
def pair_of_namespaces():
    """Two network namespaces with a veth pair between them: 10.77.0.1 and 10.77.0.2."""
    names = [f"ncqg{os.getpid()}{end}" for end in "ab"]

    def ip(*args):
        subprocess.run(["ip", *args], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "e0", "netns", names[0], "type", "veth", "peer", "name", "e0", "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{1 + i}/24", "dev", "e0")
            for link in ("lo", "e0"):
                ip("-n", name, "link", "set", link, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


SERVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1] / "test")!r})
from refchain import RefChain
chain = RefChain([("10.77.0.2", 20035)], value_bits=int(sys.argv[1]))
chain.place(*(1 << 24 | n for n in range(10)))
print("up", flush=True)
sys.stdin.read()
chain.close()
print(chain.executed, chain.violations, flush=True)
"""


def needs_namespaces():
    if os.geteuid() != 0:
        return "makes network namespaces: needs root"
    if not shutil.which("ip"):
        return "makes network namespaces: needs ip (iproute2)"
    try:
        with pair_of_namespaces():
            return None
    except subprocess.CalledProcessError as e:
        return f"makes network namespaces: {e.stderr.decode().strip()}"


@pytest.mark.parametrize("value_bits", [128, 8192])
def test_scapy_transport(value_bits, tmp_path):
    if why := needs_namespaces():
        pytest.skip(why)
    table, summary = tmp_path / "q.csv", tmp_path / "s.json"
    with pair_of_namespaces() as (here, there):
        server = subprocess.Popen(
            ["ip", "netns", "exec", there, sys.executable, "-c", SERVER, str(value_bits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout.readline() == "up\n"
            run = subprocess.run(
                ["ip", "netns", "exec", here, sys.executable, qg.__file__, "--transport", "scapy", "--target", "10.77.0.2", "--keys", KEYS,
                 "--value-bits", str(value_bits), "--mix", "get=1,put=1", "--rate", "50", "--count", "100", "--csv", table, "--summary", summary],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert run.returncode == 0, run.stderr
            out, _ = server.communicate(timeout=10)
        finally:
            server.kill()
            server.wait()
    rows, s = rows_of(table), json.loads(summary.read_text())
    assert (s["sent"], s["lost"], len(rows), s["transport"]) == (100, 0, 100, "scapy")
    assert {r["answered_by"] for r in rows} == {"10.77.0.2:20035"}
    puts = [r for r in rows if r["op"] == "put"]
    assert all(r["status"] == "OK" for r in puts)
    assert out == f"{len(puts)} []\n"


BURST = """
import time
from experiments import query_generator as qg
from netcraq import wire
from netcraq.wire import Op, Packet
transport, asked, got = qg.ScapyTransport("e0", 128, None), 300, set()
for request in range(asked):
    packet = Packet(Op.READ, 1 << 24, request=request)
    transport.send("10.77.0.2:20035", packet.encode(128))
end = time.monotonic() + 30
while len(got) < asked and time.monotonic() < end:
    got |= {Packet.decode(one.payload, 128).request for one in transport.receive(1)}
print(len(got), flush=True)
"""


def test_scapy_transport_holds_what_came_while_it_had_no_processor():
    """All queries are sent before the first answer is read."""
    if why := needs_namespaces():
        pytest.skip(why)
    with pair_of_namespaces() as (here, there):
        server = subprocess.Popen(
            ["ip", "netns", "exec", there, sys.executable, "-c", SERVER, "128"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout.readline() == "up\n"
            command = ["ip", "netns", "exec", here, sys.executable, "-c", BURST]
            run = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        finally:
            server.kill()
            server.wait()
    assert (run.returncode, run.stdout) == (0, "300\n"), run.stderr
