# SPDX-License-Identifier: Apache-2.0
"""Third parties drive the switch: p4runtime-shell from PyPI, and P4Runtime's published
protobufs.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "p4src" / "compiled" / "netcraq-128"
NAMESPACE = f"ncshell-{secrets.token_hex(4)}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module", params=["ebpf", "interp", "bmv2"])
def session(request, tmp_path_factory):
    """The results of one session with a fresh switch."""
    if os.getuid() != 0:
        pytest.skip("needs root, for a network namespace")
    if request.param == "bmv2":
        if not shutil.which("simple_switch_grpc"):
            pytest.skip("BMv2 is not installed: no simple_switch_grpc on PATH")
        switch = ["simple_switch_grpc", "--log-level", "off"]
    else:
        assert (ROOT / "bin" / "netcraq-switch").exists(), "bin/netcraq-switch is not built: run make build"
        switch = [str(ROOT / "bin" / "netcraq-switch"), "--engine", request.param]
    inside = ["ip", "netns", "exec", NAMESPACE]
    ip("netns", "add", NAMESPACE)
    process = None
    try:
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        for port in (1, 2):
            ip("-n", NAMESPACE, "link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}")
            ip("-n", NAMESPACE, "link", "set", f"s{port}", "up")
            ip("-n", NAMESPACE, "link", "set", f"h{port}", "up")
        ports = [
            "-i",
            "1@s1",
            "-i",
            "2@s2",
            "--device-id",
            "1",
            "--no-p4",
            "--",
            "--grpc-server-addr",
            "127.0.0.1:9559",
            "--cpu-port",
            "510",
        ]
        process = subprocess.Popen([*inside, *switch, *ports], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        text = tmp_path_factory.mktemp("program") / "netcraq-128.json"
        text.write_bytes(gzip.decompress(Path(f"{PROGRAM}.json.gz").read_bytes()))
        program = [f"{PROGRAM}.p4info.txtpb", str(text)]
        driver = [*inside, sys.executable, str(Path(__file__).with_name("shell_session.py")), *program]
        done = subprocess.run(driver, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        yield request.param, json.loads(done.stdout.strip().splitlines()[-1])
    finally:
        if process is not None:
            process.kill()
            process.wait()
        ip("netns", "del", NAMESPACE)


def test_the_pipeline_is_pushed_and_its_tables_are_there(session):
    _, said = session
    assert said["tables"] == [
        "access",
        "chain_config",
        "chain_peer",
        "ipv4_lpm",
        "key_index",
        "local_address",
        "port_trust",
        "session_lease",
        "watched_chain",
        "watched_key",
        "watcher",
    ]


def test_entries_are_written_and_read(session):
    _, said = session
    entries = said["entries"]
    assert len(entries["seen"]) == 1 and "\\002" in entries["seen"][0]
    assert len(entries["changed"]) == 1 and entries["changed"] != entries["seen"]
    assert entries["left"] == 0
    assert "ALREADY_EXISTS" in entries["refused"]["insert"]
    assert "NOT_FOUND" in entries["refused"]["delete"]


def test_packets_go_out_and_come_in_and_are_counted(session):
    _, said = session
    counted = {"packet_out_events": 1, "closed_port_events": 1}
    assert said["packets"] == {"out": "out of the shell", "in": ["for you!"], "ingress_port": [1], **counted}


def test_a_meter_is_set_and_taken_back(session):
    _, said = session
    assert said["meters"]["set"] == [1000, 64, 1000, 64]
    assert said["meters"]["other"] == said["meters"]["after"] != said["meters"]["set"]


def test_a_register_is_written_and_read_with_the_published_protobufs(session):
    switch, said = session
    if switch == "bmv2":
        assert said["registers"] == {"refused": "UNIMPLEMENTED"} or "refused" in said["registers"]
    else:
        assert int(said["registers"]["values"][0], 16) == 0x12345678
