# SPDX-License-Identifier: Apache-2.0
"""``netcraq-switch`` in Mininet::

    from netcraq_switch.mininet import NetcraqSwitch

    net = Mininet(controller=None)
    s1 = net.addSwitch("s1", cls=NetcraqSwitch, json_path="build/l2.json")

The arguments are those of the switch classes that come with BMv2 and with p4lang/tutorials, so that
a script for them changes the name of the class.

Mininet is a package of the distribution (``apt install mininet``) and no requirement of this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mininet.log import info
from mininet.node import Switch


class SwitchError(Exception):
    """A switch could not be started. The message says why, and what to do."""


def executable(name: str = "netcraq-switch") -> str:
    """The switch's program: a path, or a name on PATH. SwitchError if there is none."""
    path = shutil.which(name)
    if path is None:
        raise SwitchError(f"{name} is not on PATH: install it, or give sw_path=")
    return path


class NetcraqSwitch(Switch):
    """A ``netcraq-switch`` process with the switch's interfaces as its ports.

    :param json_path: the program that ``p4c-bm2-ss`` wrote; None waits for a controller to push one
    :param p4info: the program's P4Info, so that controllers can read and write at once
    :param device_id: P4Runtime's device id; by default switches are numbered from 1
    :param grpc_port: the port of the P4Runtime server, by default 50050 + device_id
    :param thrift_port: the port for ``simple_switch_CLI``, by default 9089 + device_id; 0 serves no
        Thrift
    :param cpu_port: the port number of packet-in and packet-out; None disables both
    :param engine: ``auto``, ``ebpf`` or ``interp``
    :param sw_path: the program, by default ``netcraq-switch`` on PATH
    :param pcap_dump: True or a directory: record the packets of each port
    :param log_file: the file of the log, by default /tmp/netcraq-switch.NAME.log
    :param args: further arguments of the command line, before ``--``

    ``log_console``, ``verbose`` and ``enable_debugger`` of the other classes are accepted and
    ignored. The log is always written.
    """

    START_TIMEOUT: ClassVar[float] = 15
    """Seconds until a switch must be ready."""

    _last_id: ClassVar[int] = 0

    def __init__(
        self,
        name: str,
        sw_path: str | None = None,
        json_path: str | None = None,
        p4info: str | None = None,
        device_id: int | None = None,
        grpc_port: int | None = None,
        thrift_port: int | None = None,
        cpu_port: int | None = None,
        engine: str = "auto",
        pcap_dump: bool | str = False,
        log_file: str | None = None,
        log_console: bool = False,
        verbose: bool = False,
        enable_debugger: bool = False,
        args: Sequence[str] = (),
        **params: Any,
    ) -> None:
        for path in (json_path, p4info):
            if path is not None and not os.path.isfile(path):
                raise SwitchError(f"switch {name}: there is no file {path}: compile the program first")
        if device_id is None:
            device_id = NetcraqSwitch._last_id + 1
        NetcraqSwitch._last_id = max(NetcraqSwitch._last_id, device_id)
        self.sw_path = executable(sw_path or "netcraq-switch")
        params.setdefault("dpid", f"{device_id:x}")
        super().__init__(name, **params)
        self.json_path, self.p4info, self.device_id = json_path, p4info, device_id
        self.grpc_port = 50050 + device_id if grpc_port is None else grpc_port
        self.thrift_port = 9089 + device_id if thrift_port is None else thrift_port
        self.cpu_port, self.engine, self.args = cpu_port, engine, list(args)
        self.pcap_dump = pcap_dump
        self.log_file = Path(log_file or Path(tempfile.gettempdir()) / f"netcraq-switch.{name}.log")
        self.process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        """The command line."""
        command = [self.sw_path, "--engine", self.engine, "--device-id", str(self.device_id), "--log-console"]
        for port, interface in sorted(self.intfs.items()):
            if interface.name != "lo" and not interface.IP():
                command += ["-i", f"{port}@{interface.name}"]
        if self.thrift_port:
            command += ["--thrift-port", str(self.thrift_port)]
        if self.pcap_dump:
            directory = self.pcap_dump if isinstance(self.pcap_dump, str) else "."
            command.append(f"--pcap={directory}")
        if self.p4info:
            command += ["--p4info", self.p4info]
        command += [*self.args, self.json_path or "--no-p4", "--", "--grpc-server-addr", f"127.0.0.1:{self.grpc_port}"]
        if self.cpu_port is not None:
            command += ["--cpu-port", str(self.cpu_port)]
        return command

    def start(self, controllers: Sequence[Any] = ()) -> None:
        """Start the switch, and wait until it is ready. If it does not become ready, SwitchError
        has the end of its log.
        """
        info(f"{self.name} ")
        for interface in self.intfs.values():
            if interface.name != "lo" and not interface.IP():
                # The machine's own IPv6 would speak on the switch's ports.
                self.cmd(f"sysctl -qw net.ipv6.conf.{interface.name}.disable_ipv6=1")
                self.cmd(f"ip link set dev {interface.name} up")
        with self.log_file.open("wb") as log:
            # The switch ends with this process, even if it is killed.
            command = ["setpriv", "--pdeathsig", "KILL", "--", *self.command()]
            self.process = self.popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + self.START_TIMEOUT
        while "ready: device" not in self.log_file.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                how = "ended" if self.process.poll() is not None else f"is not ready after {self.START_TIMEOUT:g} s"
                self._end()
                lines = self.log_file.read_text(errors="replace").strip().splitlines()[-6:]
                raise SwitchError(f"switch {self.name} {how}; the end of {self.log_file}:\n" + "\n".join(lines))
            time.sleep(0.02)

    def _end(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self, deleteIntfs: bool = True) -> None:
        """End the switch and remove its interfaces."""
        self._end()
        super().stop(deleteIntfs)
