# SPDX-License-Identifier: Apache-2.0
"""Tests the nodes' network with namespaces instead of nodes."""

import contextlib
import os
import subprocess
import sys

import pytest

from e2e.families import IPV4
from e2e.kubectl import until
from e2e.lan import DIE_WITH_PARENT, Lan

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))"
LISTEN = (
    "import socket, sys, time; s = socket.create_server(('', int(sys.argv[1]))); print(flush=True); time.sleep(1000)"
)


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are root's")
def test_cut():
    """When the network is cut, each side works by itself. The router reaches both sides, but the
    lone side reaches no API server through it. When the cut is over, everything is as before.
    """
    lan = Lan((IPV4,))
    with contextlib.ExitStack() as after:
        after.callback(lan.close)

        def start(*command: str) -> int:
            process = subprocess.Popen([*DIE_WITH_PARENT, *command], stdout=subprocess.PIPE)
            after.callback(process.wait)
            after.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process.pid

        pids = [start("unshare", "--net", "--", sys.executable, "-c", LISTEN, "8000") for _ in range(3)]
        start(*lan.command(sys.executable, "-c", LISTEN, "6443"))
        for index, pid in enumerate(pids):
            lan.connect(index, pid, 11 + index)
        inside = [["nsenter", "-t", str(pid), "-n", "--"] for pid in pids]

        def reaches(before: list[str], number: int, port: int, seconds: float) -> bool:
            command = [*before, sys.executable, "-c", CONNECT, IPV4.address(number), str(port), str(seconds)]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        ways = [(inside[0], 12, 8000), (inside[1], 11, 8000), (inside[0], 1, 6443)]
        kept = [(inside[1], 13, 8000), (inside[2], 1, 6443), (lan.command(), 11, 8000), (lan.command(), 12, 8000)]
        for way in ways + kept:
            until(f"{way[1:]} is reached", lambda way=way: reaches(*way, 1), 30, 0.1)
        with lan.cut({0: 11}):
            for way in kept:
                until(f"{way[1:]} is reached", lambda way=way: reaches(*way, 1), 30, 0.1)
            assert not any(reaches(*way, 1) for way in ways)
        for way in ways + kept:
            until(f"{way[1:]} is reached", lambda way=way: reaches(*way, 1), 30, 0.1)
