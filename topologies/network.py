# SPDX-License-Identifier: Apache-2.0
"""A running NetCRAQ network.

::

    with ChainNetwork(p4app.load("topologies/chain-4.json")) as net:
        net.admin.add_key("main", "/leader", b"s1")
        with net.inside("h3"):                     # a socket made here is h3's
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        net.execute("h1", ["ping", "-c", "1", "10.1.2.2"])
        net.kill_switch("s2")

When the block ends in any way, everything is removed: processes, interfaces, namespaces. If this
process is killed before that, the kernel kills its children, and the next network that starts
removes the rest (:mod:`topologies.ownership`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from mininet.log import lg
from mininet.net import Mininet

from topologies import network_namespaces, nodes, ownership, p4app
from topologies.controller import ADMIN, SYSTEM_SOCKET, Controller, Operator, socket_for
from topologies.nodes import Bmv2Switch, Cable, EmbeddedSwitch, Host, NodeError, Switch

OUT = p4app.ROOT / "out" / "network"


class ChainNetwork:
    """A topology in Mininet with its switches and controller.

    ``switch`` is ``embedded`` or ``bmv2``; ``engine`` is for the embedded one, ``hook`` for its
    eBPF. ``out`` is the folder of the logs and the controller's file. The controller serves its
    admin API on a Unix socket, ``admin_url``, which hosts can also reach. ``admin`` is the address
    of its page and its metrics, in this network namespace. ``controller=False`` leaves the switches
    without a controller and without a program; ``controller_flags`` are additional flags.
    """

    def __init__(
        self,
        topology: p4app.Topology,
        *,
        switch: str = "embedded",
        engine: str = "auto",
        hook: str = "auto",
        out: Path = OUT,
        admin: str = ADMIN,
        controller: bool = True,
        controller_flags: Sequence[str] = (),
    ) -> None:
        if switch not in p4app.SWITCHES:
            raise ValueError(f"switch {switch!r} is none of {', '.join(p4app.SWITCHES)}")
        if engine not in p4app.ENGINES:
            raise ValueError(f"engine {engine!r} is none of {', '.join(p4app.ENGINES)}")
        if hook not in p4app.HOOKS:
            raise ValueError(f"hook {hook!r} is none of {', '.join(p4app.HOOKS)}")
        self.topology = topology
        self.switch = switch
        self.engine = engine
        self.hook = hook
        self.out = out
        self.admin_address = admin
        self.admin_url = ""
        self.mininet: Mininet | None = None
        self.hosts: dict[str, Host] = {}
        self.switches: dict[str, Switch] = {}
        self.controller: Controller | None = None
        self._with_controller = controller
        self._controller_flags = controller_flags
        self._run: ownership.Run | None = None

    # ---- Starting and stopping ----

    def __enter__(self) -> ChainNetwork:
        """Start the network."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the network."""
        self.stop()

    def start(self) -> None:
        """Start everything; return when the chain serves. On failure everything is stopped again.

        Raises NodeError if a process does not start, and BusyError if another network or process
        uses the same resources.
        """
        self._check_machine()
        self.out.mkdir(parents=True, exist_ok=True)
        for log in self.out.glob("*.log"):
            log.unlink()
        self._run = ownership.claim(self.topology.interfaces(), topology=self.topology.source, phase="up")
        if self._with_controller:
            self.admin_url = socket_for(self._run)
            if self.admin_url != SYSTEM_SOCKET:
                self._run.variables["NETCRAQ_ADMIN"] = self.admin_url  # for commands started in hosts
        try:
            self._check_ports()
            self._build(self._run)
            for switch in self.switches.values():
                switch.start()
            for switch in self.switches.values():
                switch.wait_ready()
            if self._with_controller:
                self.controller = Controller(
                    self._run, self.topology, self.out, self.admin_url, self.admin_address, self._controller_flags
                )
                self.controller.start()
                self.controller.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything. Does nothing if the network is not running."""
        run, self._run = self._run, None
        if run is None:
            return
        run.note(topology=self.topology.source, phase="stopping")
        try:
            if self.controller is not None:
                self.controller.stop()
            for switch in self.switches.values():
                switch.end()  # all at once, because Mininet stops them one by one
            if self.mininet is not None:
                # If a signal interrupted a Mininet command, Mininet refuses the next one; the sweep
                # removes the rest.
                with contextlib.suppress(AssertionError):
                    self.mininet.stop()
        finally:
            self.mininet, self.controller, self.hosts, self.switches = None, None, {}, {}
            run.sweep()
            run.release()

    def _check_machine(self) -> None:
        """Raise NodeError if this machine lacks something, before anything is made."""
        if os.geteuid() != 0:
            raise NodeError("a network needs root: interfaces and namespaces are made (use sudo)")
        if self.switch == "embedded":
            nodes.embedded_executable()
        elif nodes.bmv2_executable() is None:
            raise NodeError("simple_switch_grpc is not on PATH: install BMv2, or use --switch embedded")
        if self._with_controller:
            nodes.built("netcraq-controller")

    def _check_ports(self) -> None:
        """Check that the TCP ports and the socket of the network are free."""
        wanted = {
            switch.grpc_port: f"the P4Runtime server of {switch.name}" for switch in self.topology.switches.values()
        }
        if self._with_controller:
            wanted[int(self.admin_address.rpartition(":")[2])] = "the controller's admin API"
        for port, what in wanted.items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    raise ownership.BusyError(
                        f"TCP port {port} on loopback, for {what}, is in use by another program"
                    ) from None
        if self._with_controller:
            # A controller in another network namespace has separate ports, but the same file
            # system.
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                probe.connect(self.admin_url.removeprefix("unix://"))
                raise ownership.BusyError(
                    f"a program serves {self.admin_url} already, so this network's controller could not: end it first"
                )

    def _build(self, run: ownership.Run) -> None:
        """Make nodes and cables."""
        lg.setLogLevel("error")
        # Mininet would set kernel parameters of the whole machine, for far larger networks, and not
        # reset them.
        Mininet.inited = True
        self.mininet = net = Mininet(topo=None, build=False, controller=None, link=Cable, waitConnected=False)
        for name in self.topology.hosts:
            self.hosts[name] = net.addHost(name, cls=Host, run=run)
        for name, switch in self.topology.switches.items():
            own = (
                {"cls": EmbeddedSwitch, "engine": self.engine, "hook": self.hook}
                if self.switch == "embedded"
                else {"cls": Bmv2Switch}
            )
            self.switches[name] = net.addSwitch(name, run=run, switch=switch, log=self.out / f"{name}.log", **own)
        for index, link in enumerate(self.topology.links):
            a, b = (net.get(end.node) for end in link.ends)
            net.addLink(a, b, port1=link.a.port, port2=link.b.port, run=run, index=index)
            for end in link.ends:
                self._shape(end, link.shape)
        for host in self.topology.hosts.values():
            gateway = self.topology.switches[host.switch].mac if self.topology.auto_gw_arp else None
            self.hosts[host.name].configure(host, gateway, self._neighbours(host))
        net.built = True

    def _neighbours(self, host: p4app.Host) -> dict[str, str]:
        """Return the Ethernet addresses that a host gets besides its gateway's: those of its
        subnet.
        """
        if not self.topology.auto_arp_tables:
            return {}
        gateway = self.topology.switches[host.switch].mac
        found = {other.ip.ip: other.mac for other in self.topology.hosts.values() if other is not host}
        # Chains and switches do not answer ARP. If the strategy puts them into the host's subnet,
        # the route to them leads through the host's switch.
        found.update({chain.service: gateway for chain in self.topology.chains})
        found.update({switch.address: gateway for switch in self.topology.switches.values()})
        return {str(address): mac for address, mac in found.items() if address in host.ip.network}

    @property
    def admin(self) -> Operator:
        """The controller's admin API."""
        assert self.controller is not None, "the network is not up, or has no controller"
        return self.controller.admin

    # ---- Commands in hosts ----

    def inside(self, host: str) -> contextlib.AbstractContextManager[None]:
        """Run a block in a host's network namespace: sockets made there are the host's. Only the
        calling thread moves.
        """
        return network_namespaces.entered(self.hosts[host].pid)

    def execute(
        self, host: str, command: Sequence[str], timeout: float = 30, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host and wait for it."""
        argv = ["mnexec", "-a", str(self.hosts[host].pid), *command]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, check=check, env=self._environment(), cwd=p4app.ROOT
        )

    @property
    def run_id(self) -> str:
        """The id of the run, which is the prefix of its names."""
        assert self._run is not None, "the network is not up"
        return self._run.id

    def spawn(self, host: str, command: Sequence[str], **options: Any) -> subprocess.Popen:
        """Start a command in a host. It is killed when the network stops or this process ends."""
        argv = [*nodes.DIE_WITH_PARENT, "mnexec", "-a", str(self.hosts[host].pid), *command]
        return subprocess.Popen(argv, env=self._environment(), cwd=options.pop("cwd", p4app.ROOT), **options)

    def _environment(self) -> dict[str, str]:
        assert self._run is not None, "the network is not up"
        return self._run.environment()

    # ---- Switches ----

    def kill_switch(self, name: str) -> None:
        """Cut a switch's power: SIGKILL."""
        self.switches[name].kill()

    def restart_switch(self, name: str) -> None:
        """Start a killed switch. It starts empty; the controller loads its program and, when it is
        a member again, its state.
        """
        self.switches[name].start()
        self.switches[name].wait_ready()

    @property
    def running_engine(self) -> str:
        """The engine that runs the program, as the switches report it: ``interp``, ``ebpf at tc``;
        ``bmv2`` for BMv2. If the switches differ, all of them.
        """
        return ", ".join(sorted({switch.running_engine for switch in self.switches.values()}))

    def counters(self, switch: str) -> Counters:
        """Return a switch's counters, read over P4Runtime."""
        answer = self.admin.counters(switch)
        slots = {slot["name"]: slot for slot in answer.get("slots") or [] if slot.get("name")}
        return Counters(switch, {name: int(count) for name, count in answer["events"].items()}, slots)

    def all_counters(self) -> dict[str, Counters]:
        """Return the counters of every switch."""
        return {name: self.counters(name) for name in self.topology.switches}

    # ---- Cables ----

    def interface(self, node: str, neighbour: str) -> str:
        """Return the Linux interface of ``node`` on its link to ``neighbour``."""
        return self.topology.port(node, neighbour).interface

    @contextlib.contextmanager
    def cut(self, sender: str, receiver: str) -> Iterator[None]:
        """Drop every frame from one switch to a neighbour, in that direction only, during the
        block.
        """
        self.set_cut(sender, receiver, True)
        try:
            yield
        finally:
            self.set_cut(sender, receiver, False)

    def set_cut(self, sender: str, receiver: str, cut: bool) -> None:
        """Begin or end dropping every frame from one switch to a neighbour."""
        end = self.topology.port(sender, receiver)
        if end.node not in self.topology.switches:
            raise ValueError(f"{sender} is no switch")
        subprocess.run(["tc", "qdisc", "del", "dev", end.interface, "root"], check=False, capture_output=True)
        if cut:  # blackhole drops every frame, and every kernel has it
            subprocess.run(
                ["tc", "qdisc", "add", "dev", end.interface, "root", "blackhole"], check=True, capture_output=True
            )
            if self.hook == "xdp":  # XDP frames bypass the qdisc until the switch detects it; it checks twice a second
                time.sleep(0.7)
        else:
            self._shape(end, next(link.shape for link in self.topology.links if end in link.ends))

    def _shape(self, end: p4app.End, shape: p4app.Shape) -> None:
        """Give one end of a link its bandwidth, delay, loss and queue."""
        if not shape:
            return
        arguments = ["tc", "qdisc", "add", "dev", end.interface, "root", "netem"]
        if shape.delay:
            arguments += ["delay", shape.delay]
        if shape.bw:
            arguments += ["rate", f"{shape.bw}mbit"]
        if shape.loss:
            arguments += ["loss", f"{shape.loss}%"]
        if shape.max_queue_size:
            arguments += ["limit", str(shape.max_queue_size)]
        if end.node in self.hosts:
            arguments = ["mnexec", "-a", str(self.hosts[end.node].pid), *arguments]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = done.stderr.strip()
            raise NodeError(
                f"{end.interface} cannot be given {shape}: {why} (bw, delay, loss and max_queue_size need tc-netem in the kernel)"
            )

    def sent(self) -> Sent:
        """Return the traffic that left all switch ports, and that hosts sent into them, since their
        creation.
        """
        links = json.loads(
            subprocess.run(["ip", "-j", "-s", "link", "show"], check=True, capture_output=True, text=True).stdout
        )
        by_name = {link["ifname"]: link["stats64"] for link in links}
        counted = [by_name[name]["tx"] for name in self.topology.interfaces()]
        counted += [by_name[self.interface(host.switch, name)]["rx"] for name, host in self.topology.hosts.items()]
        return Sent(frames=sum(of["packets"] for of in counted), bytes=sum(of["bytes"] for of in counted))


@dataclass(frozen=True)
class Sent:
    """The traffic sent on all links."""

    frames: int
    bytes: int
    """Including Ethernet headers, without checksums."""


@dataclass(frozen=True)
class Counters:
    """The counters of one switch."""

    switch: str
    events: dict[str, int]
    """Packets by event: the names of ``p4src/include/events.p4`` in lower case."""
    slots: dict[str, dict[str, Any]]
    """``reads``, ``forwards`` and ``writes`` of each placed key, by name."""

    def event(self, name: str) -> int:
        """Return one event's count; 0 if the controller omits it."""
        return self.events.get(name, 0)

    def since(self, before: Counters) -> dict[str, int]:
        """Return the events whose counts changed, and by how much."""
        names = self.events.keys() | before.events.keys()
        return {name: moved for name in sorted(names) if (moved := self.event(name) - before.event(name))}


def wait_until(what: str, condition: Any, timeout: float = 5, interval: float = 0.02) -> Any:
    """Poll until ``condition()`` is true, and return its result. The TimeoutError after the timeout
    names ``what``.
    """
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(interval)
    return result
