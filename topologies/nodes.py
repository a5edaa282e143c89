# SPDX-License-Identifier: Apache-2.0
"""Mininet nodes: hosts, and the two P4 switches on which a chain can run.

Both switches have the same command line (netcraq-switch has that of simple_switch_grpc). They start
without a program, and the controller loads one over P4Runtime. A switch is a process in the
machine's network namespace, as in p4-utils, with its ports there and its P4Runtime server on
loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mininet.link import Link
from mininet.node import Host as MininetHost
from mininet.node import Switch as MininetSwitch

from topologies import p4app
from topologies.ownership import Run

CPU_PORT = 510
"""The port number for packets between a program and the controller."""

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
"""A command prefix that ends the command when its parent ends in any way. (setpriv is part of
util-linux, which every Linux machine has.)
"""


class NodeError(Exception):
    """A node that does not start, with its output."""


class _Owned:
    """A Mininet node whose shell and commands belong to a run and end with it."""

    run: Run

    def _popen(self, cmd: Sequence[str], **params: Any) -> subprocess.Popen:
        params.setdefault("env", self.run.environment())
        return super()._popen([*DIE_WITH_PARENT, *cmd], **params)


class Host(_Owned, MininetHost):
    """A host: one interface, static routes and neighbours, and no offloads, because with offloads
    frames would leave unfinished.
    """

    def __init__(self, name: str, run: Run, **params: Any) -> None:
        self.run = run
        super().__init__(name, **params)
        # The host's IPv6 addresses would cause neighbour discovery, which the switches count as
        # non-IPv4 packets.
        self.cmd(
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 2>/dev/null; ip link set lo up"
        )

    def configure(self, host: p4app.Host, gateway_mac: str | None, neighbours: dict[str, str]) -> None:
        """Set the host's address, a default route, and the Ethernet addresses of others. NodeError
        if the kernel refuses.
        """
        device = host.interface
        commands = [f"ip link set {device} address {host.mac} up", f"ip address add {host.ip} dev {device}"]
        commands.append(f"ip route add default via {host.gateway} dev {device}")
        if gateway_mac is not None:
            commands.append(f"ip neighbour replace {host.gateway} lladdr {gateway_mac} dev {device} nud permanent")
        commands += [
            f"ip neighbour replace {address} lladdr {mac} dev {device} nud permanent"
            for address, mac in neighbours.items()
        ]
        # A switch that reads frames from a veth sees UDP checksums that hardware would complete,
        # but there is no hardware.
        offloads = f"ethtool -K {device} rx off tx off gso off gro off tso off"
        commands.append(f"{offloads} >/dev/null 2>&1 || echo {offloads}: failed")
        complaint = self.cmd(" && ".join(f"{{ {command}; }}" for command in commands)).strip()
        if complaint:
            raise NodeError(f"host {host.name}: {complaint}")
        interface = self.intf(device)  # Mininet's prompt uses these: "h1 ping h2"
        interface.ip, interface.prefixLen, interface.mac = str(host.ip.ip), str(host.ip.network.prefixlen), host.mac
        for command in host.commands:
            self.cmd(command)


class Switch(_Owned, MininetSwitch):
    """A P4 switch process."""

    program = ""
    """The executable's name, for messages."""

    def __init__(self, name: str, run: Run, switch: p4app.Switch, log: Path, **params: Any) -> None:
        self.run = run
        self.switch = switch
        self.log = log
        self.process: subprocess.Popen | None = None
        super().__init__(name, dpid=f"{switch.device_id:x}", **params)

    def command(self) -> list[str]:
        """Return the switch's command line."""
        raise NotImplementedError

    def port_arguments(self) -> list[str]:
        """Return ``-i PORT@INTERFACE`` for each port."""
        return [
            argument
            for port, interface in sorted(self.intfs.items())
            if port > 0
            for argument in ("-i", f"{port}@{interface.name}")
        ]

    def target_arguments(self) -> list[str]:
        """Return the arguments after ``--``."""
        return ["--", "--grpc-server-addr", self.p4runtime, "--cpu-port", str(CPU_PORT)]

    @property
    def p4runtime(self) -> str:
        """The address of the P4Runtime server."""
        return f"127.0.0.1:{self.switch.grpc_port}"

    @property
    def running_engine(self) -> str:
        """The engine that runs the program."""
        raise NotImplementedError

    def start(self, controllers: Sequence[Any] = ()) -> None:
        """Start the process; :meth:`wait_ready` waits for its server. The switch starts without any
        earlier state.
        """
        if self.process is not None and self.process.poll() is None:
            raise NodeError(f"switch {self.name} runs already")
        self.process = start_process(self.run, self.command(), self.log)

    def wait_ready(self, timeout: float = 15) -> None:
        """Wait until the P4Runtime server accepts connections. If the process ends or hangs, the
        NodeError has the end of the log.
        """
        deadline = time.monotonic() + timeout
        while self.alive():
            try:
                socket.create_connection(("127.0.0.1", self.switch.grpc_port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    slow = f"switch {self.name} does not serve P4Runtime at {self.p4runtime} after {timeout:g} s"
                    raise NodeError(f"{slow}; {tail(self.log)}") from None
                time.sleep(0.02)
        raise NodeError(f"switch {self.name} ended with {exit_status(self.process)}; {tail(self.log)}")

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL, like a power failure. Its ports remain."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Send SIGTERM to the process."""
        if self.alive():
            self.process.terminate()

    def stop(self, deleteIntfs: bool = True) -> None:
        """Stop the process and remove the ports."""
        stop_process(self.process)
        super().stop(deleteIntfs)


class EmbeddedSwitch(Switch):
    """``netcraq-switch``, which is part of this project."""

    program = "netcraq-switch"

    def __init__(self, name: str, engine: str = "auto", hook: str = "auto", **params: Any) -> None:
        self.engine = engine
        self.hook = hook
        super().__init__(name, **params)

    def command(self) -> list[str]:
        """Return the switch's command line."""
        own = ["--engine", self.engine, "--hook", self.hook, *self.switch.args]
        return [
            embedded_executable(),
            *self.port_arguments(),
            "--device-id",
            str(self.switch.device_id),
            "--no-p4",
            *own,
            *self.target_arguments(),
        ]

    @property
    def running_engine(self) -> str:
        """The engine that the switch reported when it was ready, or later. It can change: auto
        falls back if eBPF cannot run a program.
        """
        said = re.findall(
            r"\bengine[= ]\"?([a-z]+(?: at [a-zA-Z]+)?)", self.log.read_text(errors="replace").rpartition("\n$ ")[2]
        )
        return said[-1] if said else self.engine


class Bmv2Switch(Switch):
    """BMv2's ``simple_switch_grpc``, from PATH. It ignores the topology file's ``netcraq_args``."""

    program = "simple_switch_grpc"
    running_engine = "bmv2"

    def command(self) -> list[str]:
        """Return the switch's command line."""
        executable = bmv2_executable()
        if executable is None:
            raise NodeError("simple_switch_grpc is not on PATH: install BMv2, or use the embedded switch")
        command = [
            executable,
            *self.port_arguments(),
            "--device-id",
            str(self.switch.device_id),
            "--no-p4",
            "--log-console",
            "-L",
            "warn",
        ]
        thrift = ["--thrift-port", str(self.switch.grpc_port + 10_000)] if _has_thrift(executable) else []
        return [*command, *thrift, *self.target_arguments()]


class Cable(Link):
    """A veth pair. An end in the machine's namespace gets the run's alias before its final name."""

    def __init__(self, node1: Any, node2: Any, run: Run, index: int, **params: Any) -> None:
        self._run = run
        self._index = index
        super().__init__(node1, node2, **params)

    def makeIntfPair(self, intfname1, intfname2, addr1=None, addr2=None, node1=None, node2=None, deleteIntfs=True):
        """Make the pair, set the alias on both ends, and move hosts' ends into the hosts."""
        ends = [
            (node1, intfname1, self._run.temporary_name(2 * self._index)),
            (node2, intfname2, self._run.temporary_name(2 * self._index + 1)),
        ]
        batch = [f"link add name {ends[0][2]} type veth peer name {ends[1][2]}"]
        batch += [f"link set dev {temporary} alias '{self._run.alias}'" for _, _, temporary in ends]
        for node, name, temporary in ends:
            batch.append(f"link set dev {temporary} name {name}")
            if node.inNamespace:
                batch.append(f"link set dev {name} netns {node.pid}")
        ip_batch(batch)
        for node, name, _ in ends:
            if not node.inNamespace:
                _quiet_and_up(name)

    def stop(self) -> None:
        """Remove the pair. It may have disappeared with a host's namespace."""
        for interface in (self.intf1, self.intf2):
            if not interface.node.inNamespace:
                subprocess.run(["ip", "link", "delete", interface.name], check=False, capture_output=True)


def ip_batch(commands: Sequence[str]) -> None:
    """Run several ip(8) commands at once. NodeError if one fails."""
    done = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NodeError(f"ip: {done.stderr.strip()}")


def _quiet_and_up(interface: str) -> None:
    """Enable a switch's port such that only the switch sends there: the machine's IPv6 would send
    router solicitations into the network.
    """
    ipv6 = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
    if ipv6.exists():
        ipv6.write_text("1")
    subprocess.run(
        ["ethtool", "-K", interface, "rx", "off", "tx", "off", "gso", "off", "gro", "off", "tso", "off"],
        check=False,
        capture_output=True,
    )
    subprocess.run(["ip", "link", "set", "dev", interface, "up"], check=True)


def embedded_executable() -> str:
    """Return the path of ``netcraq-switch`` in ``bin/``."""
    return built("netcraq-switch")


def built(name: str, folder: str = "bin") -> str:
    """Return the path of one of the project's executables. NodeError if it is not built."""
    path = p4app.ROOT / folder / name
    if not os.access(path, os.X_OK):
        raise NodeError(f"{folder}/{name} is not built: run make build")
    return str(path)


def bmv2_executable() -> str | None:
    """Return the path of ``simple_switch_grpc`` on PATH."""
    return shutil.which("simple_switch_grpc")


def _has_thrift(executable: str) -> bool:
    """Return whether this BMv2 was built with Thrift: then each switch needs a Thrift port."""
    return "--thrift-port" in subprocess.run([executable, "--help"], capture_output=True, text=True, check=False).stdout


def start_process(run: Run, command: Sequence[str], log: Path) -> subprocess.Popen:
    """Start a daemon of a run. Its command line and output are appended to ``log``."""
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        return subprocess.Popen(
            [*DIE_WITH_PARENT, *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=run.environment(),
            start_new_session=True,  # Ctrl-C in the terminal is for the prompt, not for the daemons
        )


def stop_process(process: subprocess.Popen | None) -> None:
    """Stop a daemon: SIGTERM, and SIGKILL after three seconds."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path, lines: int = 8) -> str:
    """Return the end of a log, for a message."""
    try:
        text = log.read_text(errors="replace").strip().splitlines()[-lines:]
    except OSError:
        text = []
    return f"the end of {log}:\n  " + "\n  ".join(text or ["(empty)"])


def exit_status(process: subprocess.Popen | None) -> str:
    """Return how a process ended, for a message."""
    if process is None:
        return "no process"
    code = process.returncode
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"status {code}"
