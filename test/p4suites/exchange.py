# SPDX-License-Identifier: Apache-2.0
"""Run a program on the ``simple_switch`` in PATH, in this network namespace: fill it in with
``simple_switch_CLI``, send packets, and record what comes out.

``exchange.py TASK OUT``. The task is JSON: ``program`` (a file), ``ports`` (their numbers) and
``steps``. A step has either ``commands`` for the CLI, or a packet: ``port``, ``frame`` and
``fence``, in hexadecimal. A frame ends with :data:`PACKET` and its number, and so do the frames
that result from it. The fence is another packet, which ends with :data:`FENCE` and the same number.
It follows the frame through the same port, and comes out after the switch has finished the frame.
Only then does the next step begin, however slow the switch is. OUT receives ``came``, the ports and
frames by number; ``strange``, the frames without a number; ``said``, the output of the CLI; and
``registers``, the CLI's output for the registers of fewer than 64 bits at the end.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

PACKET, FENCE = 0x5150, 0xFE0C
"""The first two of a frame's last four bytes. The frame's number follows."""

PATIENCE = 20.0
"""The most seconds for the start of the switch, and for each packet."""

QUIET = 1.0
"""For how long, in seconds, nothing must come at the end: copies may be late."""

_THRIFT = 9090
_SOL_PACKET, _IGNORE_OUTGOING, _ALL = 263, 23, 3


class Switch:
    """The switch, with sockets at the far ends of its ports' veth pairs."""

    def __init__(self, program: str, ports: list[int]) -> None:
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        interfaces: list[str] = []
        self._sockets: dict[socket.socket, int] = {}
        for n in ports:
            near, far = f"near{n}", f"far{n}"
            subprocess.run(["ip", "link", "add", near, "type", "veth", "peer", "name", far], check=True)
            for name in (near, far):
                subprocess.run(["ip", "link", "set", name, "up"], check=True)
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
            s.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
            s.bind((far, _ALL))
            s.setblocking(False)
            self._sockets[s] = n
            interfaces += ["-i", f"{n}@{near}"]
        # The log names the engine.
        options = ["--log-console", "--log-level", "info", "--thrift-port", str(_THRIFT)]
        command = ["simple_switch", *interfaces, *options, program]
        with Path("switch.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._await_thrift()
        # Send from one CPU, because packets from two CPUs may overtake each other.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        self.came: dict[int, list[tuple[int, str]]] = {}
        self.strange: list[tuple[int, str]] = []
        self._fence = -1

    def _await_thrift(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", _THRIFT)).close()
                return
            except ConnectionRefusedError:
                if (code := self._process.poll()) is not None:
                    raise SystemExit(f"the switch ended with {code}") from None
                if time.monotonic() > deadline:
                    raise SystemExit(f"the switch has no Thrift after {PATIENCE:g} s") from None
                time.sleep(0.1)

    def command(self, lines: list[str]) -> str:
        """Run commands in the CLI, and return its output."""
        cli = ["simple_switch_CLI", "--thrift-port", str(_THRIFT)]
        done = subprocess.run(cli, input="\n".join([*lines, ""]), capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise SystemExit(f"simple_switch_CLI ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def _take(self, timeout: float) -> bool:
        """Receive the frames that have arrived or arrive within a time limit."""
        ready, _, _ = select.select(list(self._sockets), [], [], timeout)
        for s in ready:
            frame = s.recv(65536)
            kind, number = struct.unpack(">HH", frame[-4:]) if len(frame) > 3 else (0, 0)
            if kind == FENCE:
                self._fence = number
            elif kind == PACKET:
                self.came.setdefault(number, []).append((self._sockets[s], frame.hex()))
            else:
                self.strange.append((self._sockets[s], frame.hex()))
        return bool(ready)

    def exchange(self, port: int, frame: str, fence: str) -> None:
        """Send a packet and its fence. Returns after the fence has come out."""
        by = next(s for s, n in self._sockets.items() if n == port)
        by.send(bytes.fromhex(frame))
        by.send(bytes.fromhex(fence))
        number = int(fence[-4:], 16)
        deadline = time.monotonic() + PATIENCE
        while self._fence != number:
            self._take(0.5)
            if time.monotonic() > deadline:
                raise SystemExit(f"what was sent behind packet {number} did not come in {PATIENCE:g} s")

    def drain(self) -> None:
        """Receive late frames."""
        while self._take(QUIET):
            pass


def main() -> None:
    """Execute a task."""
    task = json.loads(Path(sys.argv[1]).read_text())
    switch = Switch(task["program"], task["ports"])
    said = []
    for step in task["steps"]:
        if "commands" in step:
            said.append(switch.command(step["commands"]))
        else:
            switch.exchange(step["port"], step["frame"], step["fence"])
    switch.drain()
    arrays = json.loads(Path(task["program"]).read_text())["register_arrays"]
    # Thrift's numbers are signed and have 64 bits. BMv2 truncates wider registers, and
    # netcraq-switch refuses to print them.
    registers = switch.command([f"register_read {x['name']}" for x in arrays if x["bitwidth"] < 64])
    result = {"came": switch.came, "strange": switch.strange, "said": said, "registers": registers}
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
