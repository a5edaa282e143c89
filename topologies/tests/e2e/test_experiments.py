# SPDX-License-Identifier: Apache-2.0
"""``make run``, and the query generator, on networks of their own."""

import base64
import json
import subprocess
import sys
import time

import pytest

from experiments import etcd_data
from experiments.chain_session import CHANGED, ChainRun, RunError
from topologies import p4app
from topologies.tests.conftest import processes_here
from topologies.tests.e2e import tools

DEMO = [sys.executable, str(p4app.ROOT / "experiments" / "demo.py")]


def export(tmp_path, **values):
    """Write an etcd export with these keys."""
    pairs = [
        {"key": base64.b64encode(f"/{key}".encode()).decode(), "value": base64.b64encode(value).decode()}
        for key, value in values.items()
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"kvs": pairs, "count": len(pairs)}))
    return path


def trace(tmp_path, *rows):
    path = tmp_path / "trace.csv"
    path.write_text("seconds,kind,key\n" + "".join(f"{row}\n" for row in rows))
    return path


def demo(switch, tmp_path, *arguments):
    """Run ``make run``. Run it again if the machine was too busy for leases of a second, which
    parallel tests can cause; any other failure counts.
    """
    command = [*DEMO, "--switch", switch, "--out", str(tmp_path / "run.json"), *arguments]
    for _ in range(4):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=p4app.ROOT)
        if CHANGED not in " ".join(done.stdout.split()):
            break
        print(done.stdout)
        time.sleep(5)
    return done


def test_make_run_shows_the_recorded_cluster_and_ends_0(switch, private, tmp_path):
    done = demo(switch, tmp_path, "--replay", "1", "--load", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "230 of 284 keys of experiments/data/etcd-export.json placed" in done.stdout
    assert "left in etcd: 53 larger than 1,024 bytes (1,027 to 7,625)" in done.stdout
    assert "42 of 658 gets, 228 of 704 puts" in done.stdout
    assert (
        "every host may read and write every key: a line of 4 switches says no access; see docs/security.md"
        in " ".join(done.stdout.split())
    )
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["ok"] is True
    assert result["wrong"] == []
    assert [row["role"] for row in result["switches"]] == ["head", "replica", "replica", "tail"]
    for row in result["switches"]:
        assert row["clean_reads"] >= 2 * 230 > 0
        assert row["writes"] == result["summary"]["writes"] > 228
        assert 0 < row["p50_us"] <= row["p99_us"]
    assert result["phases"]["sweep"]["reads"] == 4 * 230
    assert result["phases"]["replay"] | {"sent_again": 0} == {"reads": 42, "writes": 228, "lost": 0, "sent_again": 0}
    assert len(result["keys"]["left"]) == 54
    assert processes_here() == []


def test_another_export_another_length_another_profile(switch, private, tmp_path):
    keys = export(tmp_path, a=b"", b=b"x" * 16, c=b"y" * 17)
    requests = trace(tmp_path, "0.0,get,/a", "0.5,txn-put,/b", "0.6,range,/", "1.0,get,/c", "2.0,get,/b")
    arguments = [
        "--nodes",
        "2",
        "--profile",
        "128",
        "--keys",
        str(keys),
        "--trace",
        str(requests),
        "--replay",
        "0.2",
        "--load",
        "0.5",
    ]
    done = demo(switch, tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "run.json").read_text())
    assert (result["keys"]["placed"], [left["key"] for left in result["keys"]["left"]]) == (2, ["/c"])
    assert result["replay"]["gets"] == {"recorded": 3, "replayed": 2}
    assert result["replay"]["puts"] == {"recorded": 1, "replayed": 1}
    assert result["chain"]["members"] == ["s1", "s2"]


def test_make_run_works_where_hosts_have_access(switch, private, tmp_path):
    """Its writer leases sessions for its own host."""
    topology = p4app.line(2)
    topology["program"] = str(p4app.ROOT / "p4src" / "netcraq.p4")
    topology["topology"]["hosts"] = {"h1": {"access": {"default": "write"}}, "h2": {"access": {"default": "read"}}}
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(topology))
    keys, requests = export(tmp_path, a=b"1", b=b"2"), trace(tmp_path, "0.0,get,/a", "0.5,txn-put,/b", "1.0,get,/b")
    arguments = ["--profile", "128", "--keys", str(keys), "--trace", str(requests), "--replay", "0.2", "--load", "0.5"]
    done = demo(switch, tmp_path, "--topology", str(file), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "access is restricted: h1 may read and write default; h2 may read default" in " ".join(done.stdout.split())
    assert json.loads((tmp_path / "run.json").read_text())["summary"]["writes"] > 1


def test_a_file_whose_hosts_may_not_read_everything_is_refused(switch, private, tmp_path):
    topology = json.loads((p4app.ROOT / "topologies" / "tenants.json").read_text())
    hosts = topology["topology"]["hosts"]
    hosts |= {name: {"access": {realm: "read" for realm in ("shop", "bank", "default")}} for name in hosts}
    for changed, words in (({"access": {}}, "h5 may not read the realm "), ({}, "h1 may not write the realm ")):
        file = tmp_path / "topology.json"
        hosts["h5"] = changed or hosts["h2"]
        topology["program"] = str(p4app.ROOT / "p4src" / "netcraq.p4")
        file.write_text(json.dumps(topology))
        done = demo(switch, tmp_path, "--topology", str(file))
        assert done.returncode == 1
        assert words in done.stderr and f"change {file}" in done.stderr


def test_an_export_of_which_nothing_fits_is_an_error(switch, private, tmp_path):
    done = demo(switch, tmp_path, "--nodes", "2", "--profile", "128", "--keys", str(export(tmp_path, a=b"z" * 100)))
    assert done.returncode == 1
    assert "none of the 1 keys" in done.stderr
    assert "1 larger than 16 bytes" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--keys", "Makefile"], "Makefile: line 1, column 1: not JSON"),
        (["--keys", "gone.json"], "gone.json: No such file or directory"),
        (["--trace", "README.md"], "README.md: has no column"),
        (["--nodes", "1"], "a chain has 2 to 8 switches, not 1"),
        (["--topology", "gone.json"], "gone.json: there is no such file"),
    ],
)
def test_bad_files_are_refused_before_anything_starts(tmp_path, arguments, words):
    done = demo("embedded", tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


@pytest.fixture
def running(net, tmp_path):
    """A run with two placed keys on a running network."""
    said = []
    run = ChainRun(net, said.append, said.append)
    run.spawn_clients()
    run.place(path := export(tmp_path, one=b"1", two=b"2"), etcd_data.read_export(path))
    run.start_clients()
    yield run
    for client in [*run.readers, run.writer]:
        client.process.kill()
    for name in run.ids:
        net.admin.remove_key("main", name)


def test_a_value_that_nobody_wrote_is_found(net, running):
    before = net.all_counters()
    running.read_everything()
    assert running.wrong(before, net.all_counters()) == []
    with tools.client(net, "h2") as stranger:
        stranger.put(running.ids["/one"], b"forged")
    running.read_everything("again")
    wrong = running.wrong(before, net.all_counters())
    assert len(wrong) == 4
    assert all(line.startswith("/one: h") and line.endswith(": a value that nobody wrote") for line in wrong)


def test_an_old_value_is_found(net, running):
    before = net.all_counters()
    with tools.client(net, "h3") as stranger:
        key = running.ids["/one"]
        running.together("writes", [(running.writer, {"ops": [["put", key, None], ["put", key, None]]})])
        written = stranger.get(key).value
        running.together("reads", [(running.readers[0], {"ops": [["get", key, None]]})])
        # except for the count of reads, which includes the stranger's read
        assert running.wrong(before, net.all_counters())[1:] == []
        stranger.put(key, b"1")  # the original value
        running.together("late reads", [(running.readers[0], {"ops": [["get", key, None]]})])
    assert written == b"#2 "
    assert any(": stale, value 2 had been written before" in line for line in running.wrong(before, net.all_counters()))


def test_a_key_that_went_away_is_found(net, running):
    before = net.all_counters()
    with tools.client(net, "h1") as stranger:
        stranger.delete(running.ids["/two"])
    running.read_everything()
    assert [line for line in running.wrong(before, net.all_counters()) if "not found" in line] == [
        f"/two: {host} get: not found" for host in net.topology.hosts
    ]


def test_a_client_that_ends_is_reported(running):
    running.readers[1].process.kill()
    running.readers[1].process.wait()
    with pytest.raises((RunError, BrokenPipeError)):
        running.read_everything()


@pytest.mark.parametrize("transport", ["socket", "scapy"])
def test_the_query_generator_asks_a_chain(net, tmp_path, transport):
    keys = [hex(tools.new_key(net, b"value")[1]) for _ in range(4)]
    out = tmp_path / "queries.csv"
    command = [
        sys.executable,
        "experiments/query_generator.py",
        "--keys",
        ",".join(keys),
        "--mix",
        "get=80,put=20",
        "--rate",
        "400" if transport == "socket" else "100",  # scapy makes frames slowly
        "--count",
        "200",
        "--timeout",
        "20",  # on a shared machine BMv2 takes seconds for its queued packets
    ]
    command += [
        "--transport",
        transport,
        "--csv",
        str(out),
        "--seed",
        "1",
        *(["--interface", "h2-eth0"] if transport == "scapy" else []),
    ]
    done = net.execute("h2", command, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = out.read_text().splitlines()
    assert len(lines) == 201
    assert sum(",OK," in line for line in lines) >= 195
