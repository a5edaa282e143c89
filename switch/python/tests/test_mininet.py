# SPDX-License-Identifier: Apache-2.0
"""``netcraq-switch`` in Mininet: hosts reach one another, and nothing is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SWITCH = ROOT / "bin" / "netcraq-switch"
PROGRAM = Path(__file__).resolve().parent / "testdata" / "l2"

pytest.importorskip("mininet", reason="Mininet is not installed (apt install mininet)")

from mininet.net import Mininet  # noqa: E402
from netcraq_switch.mininet import NetcraqSwitch, SwitchError  # noqa: E402

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, for Mininet")


@pytest.fixture(autouse=True)
def built():
    assert SWITCH.exists(), "bin/netcraq-switch is not built: run make build"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def interfaces() -> str:
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("engine", ["ebpf", "interp"])
def test_hosts_reach_one_another(engine, tmp_path):
    """Entries come from a P4Runtime controller, as in the tutorials."""
    name = f"ncm{os.getpid() % 10000}"
    net = Mininet(controller=None, autoSetMacs=True, autoStaticArp=True)
    switch = net.addSwitch(
        name,
        cls=NetcraqSwitch,
        sw_path=str(SWITCH),
        json_path=f"{PROGRAM}.json",
        p4info=f"{PROGRAM}.p4info.txtpb",
        grpc_port=free_port(),
        thrift_port=free_port(),
        device_id=1,
        cpu_port=255,
        engine=engine,
        log_file=str(tmp_path / "switch.log"),
    )
    try:
        for h in ("h1", "h2"):
            net.addLink(net.addHost(f"{h}{name}"), switch)
        net.start()
        with socket.create_connection(("127.0.0.1", switch.thrift_port), timeout=5):
            pass
        controller = f"""
import p4runtime_sh.shell as sh
sh.setup(device_id=1, grpc_addr="127.0.0.1:{switch.grpc_port}", election_id=(0, 1), verbose=False)
for port in (1, 2):
    e = sh.TableEntry("MyIngress.forward")(action="MyIngress.send")
    e.match["hdr.eth.dst"] = f"00:00:00:00:00:0{{port}}"
    e.action["port"] = str(port)
    e.insert()
sh.teardown()
"""
        python = str(ROOT / ".venv" / "bin" / "python")
        subprocess.run([python, "-c", controller], check=True, timeout=60)
        lost = net.ping(timeout="5")
        assert lost == 0, (tmp_path / "switch.log").read_text()
        pid = switch.process.pid
    finally:
        net.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert name not in interfaces()


def test_a_switch_that_cannot_start_says_why(tmp_path):
    with pytest.raises(SwitchError, match="compile the program first"):
        NetcraqSwitch("ncms", sw_path=str(SWITCH), json_path="/nowhere.json")
    with pytest.raises(SwitchError, match="not on PATH"):
        NetcraqSwitch("ncms", sw_path="no-such-switch")
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    switch = NetcraqSwitch("ncms", sw_path=str(SWITCH), json_path=str(broken), log_file=str(tmp_path / "log"))
    try:
        with pytest.raises(SwitchError, match="the program"):
            switch.start()
        assert switch.process is None
    finally:
        switch.stop()
