# SPDX-License-Identifier: Apache-2.0
"""Mininet nodes: hosts, and the two P4 switches that a chain can run on.

Both switches take the same command line (netcraq-switch has simple_switch_grpc's), start without a
program and are given one over P4Runtime by the controller. A switch is a process alongside the
machine's own, as in p4-utils, with its ports in the machine's network namespace and its P4Runtime
server on loopback.
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
"""The port number by which a program sends to the controller and hears from it."""

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
"""Put before a command, ends it when its parent ends, however that ends. (setpriv is part of
util-linux, which every Linux machine has.)
"""


class NodeError(Exception):
    """A node that does not come up, with what it said."""


class _Owned:
    """A Mininet node whose shell, and what is run in it, belongs to a run and ends with it."""

    run: Run

    def _popen(self, cmd: Sequence[str], **params: Any) -> subprocess.Popen:
        params.setdefault("env", self.run.environment())
        return super()._popen([*DIE_WITH_PARENT, *cmd], **params)


class Host(_Owned, MininetHost):
    """A host: one interface, static routes and neighbours, and none of the offloads that would let
    frames out that are not yet what they are on a wire.
    """

    def __init__(self, name: str, run: Run, **params: Any) -> None:
        self.run = run
        super().__init__(name, **params)
        # The host's own addresses would have it send neighbour discovery, which counts at the
        # switches as packets that are no IPv4.
        self.cmd(
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 2>/dev/null; ip link set lo up"
        )

    def configure(self, host: p4app.Host, gateway_mac: str | None, neighbours: dict[str, str]) -> None:
        """Give the host its address, a default route, and the Ethernet addresses of others.
        NodeError where the kernel refuses.
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
        # A switch that reads frames from a veth sees UDP checksums that the hardware is to fill in,
        # and there is no hardware.
        offloads = f"ethtool -K {device} rx off tx off gso off gro off tso off"
        commands.append(f"{offloads} >/dev/null 2>&1 || echo {offloads}: failed")
        complaint = self.cmd(" && ".join(f"{{ {command}; }}" for command in commands)).strip()
        if complaint:
            raise NodeError(f"host {host.name}: {complaint}")
        interface = self.intf(device)  # Mininet's prompt asks these: "h1 ping h2"
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
        """The switch's command line."""
        raise NotImplementedError

    def port_arguments(self) -> list[str]:
        """``-i PORT@INTERFACE`` for each port."""
        return [
            argument
            for port, interface in sorted(self.intfs.items())
            if port > 0
            for argument in ("-i", f"{port}@{interface.name}")
        ]

    def target_arguments(self) -> list[str]:
        """What follows ``--``."""
        return ["--", "--grpc-server-addr", self.p4runtime, "--cpu-port", str(CPU_PORT)]

    @property
    def p4runtime(self) -> str:
        """Where the P4Runtime server listens."""
        return f"127.0.0.1:{self.switch.grpc_port}"

    @property
    def running_engine(self) -> str:
        """What runs the program."""
        raise NotImplementedError

    def start(self, controllers: Sequence[Any] = ()) -> None:
        """Start the process; :meth:`wait_ready` waits for its server. Nothing of what it knew
        before a stop or a kill is left.
        """
        if self.process is not None and self.process.poll() is None:
            raise NodeError(f"switch {self.name} runs already")
        self.process = start_process(self.run, self.command(), self.log)

    def wait_ready(self, timeout: float = 15) -> None:
        """Wait until the P4Runtime server accepts connections. NodeError, with the end of the log,
        where the process ends or hangs.
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
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL: the switch goes as in a power cut. Its ports stay, with
        nobody behind them.
        """
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Ask the process to end."""
        if self.alive():
            self.process.terminate()

    def stop(self, deleteIntfs: bool = True) -> None:
        """End the process and remove the ports."""
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
        """The switch's command line."""
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
        """What the switch said when it was ready, or, where it has changed that since (auto does,
        for a program that eBPF cannot run), said last.
        """
        said = re.findall(
            r"\bengine[= ]\"?([a-z]+(?: at [a-zA-Z]+)?)", self.log.read_text(errors="replace").rpartition("\n$ ")[2]
        )
        return said[-1] if said else self.engine


class Bmv2Switch(Switch):
    """BMv2's ``simple_switch_grpc``, from PATH. ``netcraq_args`` of the topology file are not for
    it.
    """

    program = "simple_switch_grpc"
    running_engine = "bmv2"

    def command(self) -> list[str]:
        """The switch's command line."""
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
    """A veth pair whose ends alongside the machine's own interfaces carry the run's mark before
    they carry their names.
    """

    def __init__(self, node1: Any, node2: Any, run: Run, index: int, **params: Any) -> None:
        self._run = run
        self._index = index
        super().__init__(node1, node2, **params)

    def makeIntfPair(self, intfname1, intfname2, addr1=None, addr2=None, node1=None, node2=None, deleteIntfs=True):
        """Make the pair, both ends with the mark, and move hosts' ends to them."""
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
        """Remove the pair; it is not a mistake if it is gone with a host's namespace."""
        for interface in (self.intf1, self.intf2):
            if not interface.node.inNamespace:
                subprocess.run(["ip", "link", "delete", interface.name], check=False, capture_output=True)


def ip_batch(commands: Sequence[str]) -> None:
    """Run several ip(8) commands at once. NodeError where one fails."""
    done = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NodeError(f"ip: {done.stderr.strip()}")


def _quiet_and_up(interface: str) -> None:
    """Bring up a switch's port so that only the switch speaks there: the machine's own IPv6 would
    send router solicitations into the network.
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
    """``netcraq-switch`` as built into ``bin/``."""
    return built("netcraq-switch")


def built(name: str, folder: str = "bin") -> str:
    """One of the project's executables. NodeError where it is not built."""
    path = p4app.ROOT / folder / name
    if not os.access(path, os.X_OK):
        raise NodeError(f"{folder}/{name} is not built: run make build")
    return str(path)


def bmv2_executable() -> str | None:
    """``simple_switch_grpc`` on PATH."""
    return shutil.which("simple_switch_grpc")


def _has_thrift(executable: str) -> bool:
    """Whether this BMv2 was built with Thrift: its server then needs a port for each switch."""
    return "--thrift-port" in subprocess.run([executable, "--help"], capture_output=True, text=True, check=False).stdout


def start_process(run: Run, command: Sequence[str], log: Path) -> subprocess.Popen:
    """Start a daemon of a run. Its command line and what it says are appended to ``log``."""
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
    """End a daemon: SIGTERM, and SIGKILL where it takes more than three seconds."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path, lines: int = 8) -> str:
    """The end of a log, for a message."""
    try:
        text = log.read_text(errors="replace").strip().splitlines()[-lines:]
    except OSError:
        text = []
    return f"the end of {log}:\n  " + "\n  ".join(text or ["(empty)"])


def exit_status(process: subprocess.Popen | None) -> str:
    """How a process ended, for a message."""
    if process is None:
        return "no process"
    code = process.returncode
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"status {code}"
