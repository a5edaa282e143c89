# SPDX-License-Identifier: Apache-2.0
"""Start and stop a cluster."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from e2e import binaries, cgroups, cluster_images, kubeadm, lan, settings
from e2e.balancer import Balancer
from e2e.families import IPV4, Family
from e2e.kubectl import Kubectl
from e2e.lan import Lan
from e2e.node import Node, NodeError, mount_points
from e2e.other_network import OtherNetwork, other

NEEDED = ("containerd", "runc", "ctr", "conntrack", "nft", "iptables", "unshare", "nsenter", "setpriv", "ip")
"""Programs that the machine must have (make deps-k8s installs them)."""


class Say:
    """Prints progress, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        """Print a step."""
        print(f"[{time.monotonic() - self._start:6.1f} s] {text}", flush=True)


class Cluster:
    """A cluster of three nodes: a context manager that leaves only logs behind."""

    def __init__(
        self,
        say: Say,
        *,
        gateway: bool = True,
        size: int = 3,
        proxy_mode: str = "iptables",
        families: Sequence[Family] = (IPV4,),
        cni: str = "own",
        control_planes: int = 1,
        tainted: bool = False,
    ) -> None:
        self.say = say
        self._tainted = tainted
        self._control_planes = control_planes
        self.balancer: Balancer | None = None
        self.families = families
        self._other = None if cni == "own" else other(cni)
        self.gateway = gateway
        self._size = max(size, control_planes)
        self._proxy_mode = proxy_mode
        self._made: list[Path] = []
        self._archives: dict[str, Path] = {}
        self.group = "netcraq-" + hashlib.sha256(str(settings.OUT).encode()).hexdigest()[:8]
        self.folder = settings.OUT / "nodes"
        self.nodes: list[Node] = []

    def __enter__(self) -> Cluster:
        """Build, start and join the nodes. Pods have no network yet."""
        settings.OUT.mkdir(parents=True, exist_ok=True)
        self._lock = open(settings.OUT / "lock", "w")
        self._claim(30)  # a cluster that was told to end takes some seconds
        cgroups.remove(self.group)  # of a killed run; its processes have ended
        shutil.rmtree(self.folder, ignore_errors=True)
        kubernetes = binaries.kubernetes(self.say)
        self.say("building the project's commands and images")
        own = binaries.own(settings.OUT / "bin")
        self._archives = cluster_images.write(settings.OUT / "images", kubernetes, own)
        if self._other is not None and self._other.name == "flannel":
            flannel = cluster_images.of_flannel(binaries.flannel(self.say))
            self._archives |= cluster_images.archive(settings.OUT / "images", flannel)
        self._made = mount_points(settings.OUT / "mount-points")
        self.folder.mkdir(parents=True)
        self.lan = Lan(self.families)
        self.nodes = [Node(i + 1, self.folder, self.lan, [kubernetes, own], self.group) for i in range(self._size)]
        lan.write_files(self.folder, {node.name: node.address for node in self.nodes}, self.families[0].address(1))
        try:
            self._up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the cluster."""
        if self.balancer is not None:
            self.balancer.close()
        for node in self.nodes:
            node.power_off()
        self.lan.close()
        cgroups.remove(self.group)
        for node in self.nodes:
            node.forget()
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):  # another run may use the folder already
                folder.rmdir()
        (settings.OUT / "mount-points").unlink(missing_ok=True)
        self._lock.close()

    @property
    def first(self) -> Node:
        """The first control-plane node, which is usually the only one."""
        return self.nodes[0]

    @property
    def controls(self) -> list[Node]:
        """The control-plane nodes."""
        return self.nodes[: self._control_planes]

    @property
    def kubectl(self) -> Kubectl:
        """kubectl on the first control-plane node that is switched on. If there are several, it
        connects to any API server that is ready.
        """
        return Kubectl(next((node for node in self.controls if node.alive()), self.first))

    @property
    def other(self) -> OtherNetwork:
        """The network that NetCRAQ is chained after, if there is one."""
        if self._other is None:
            raise NodeError("NetCRAQ is this cluster's network")
        return self._other

    @property
    def chained(self) -> bool:
        """Whether NetCRAQ is chained after another network."""
        return self._other is not None

    def node(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def start_nodes(self, nodes: list[Node]) -> None:
        """Switch nodes on."""
        for node in nodes:
            node.start()
        for node in nodes:
            self.wait_node(node)

    def wait_node(self, node: Node) -> None:
        """Wait until a node is up, and then make the other network's routes on it."""
        node.wait()
        if self._other is not None:
            self._other.connect(node)

    def load_images(self, archives: dict[str, Path]) -> None:
        """Load images into the nodes' containerd."""
        loading = []
        for node in self.nodes:
            wanted = [
                path
                for name, path in archives.items()
                if node in self.controls or name not in cluster_images.CONTROL_PLANE
            ]
            script = " && ".join(f"ctr -n k8s.io images import --no-unpack {path}" for path in wanted)
            loading.append(
                (
                    node,
                    subprocess.Popen(
                        node.command(["sh", "-c", script]), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                    ),
                )
            )
        for node, process in loading:
            _, complaint = process.communicate()
            if process.returncode != 0:
                raise NodeError(f"{node.name}: importing images: {complaint}")

    def _claim(self, seconds: float) -> None:
        """Acquire the lock that allows one cluster per checkout."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NodeError("another cluster of this checkout is up") from None
                time.sleep(0.2)

    def _up(self) -> None:
        self.start_nodes(self.nodes)
        self.say(f"{len(self.nodes)} nodes are switched on")
        self.load_images(self._archives)
        self.say("images are on the nodes")
        server = self.first.address
        if self._control_planes > 1:
            server = self.families[0].address(1)
            self.balancer = Balancer(
                self.lan, server, {node.name: node.address for node in self.controls}, settings.OUT
            )
        config = kubeadm.init(
            self.first.name,
            self.first.addresses,
            [family.pods for family in self.families],
            [family.services for family in self.families],
            gateway=self.gateway,
            proxy_mode=self._proxy_mode,
            endpoint=server if self.balancer else None,
            tainted=self._tainted,
        )
        (self.first.folder / "mnt" / "kubeadm.yaml").write_text(config)
        for node in self.controls if self.gateway else []:
            shutil.copy(
                cluster_images.DEPLOY / "etcd-monitor" / "etcd-monitor.yaml",
                node.folder / "etc-kubernetes" / "manifests",
            )
        upload = ["--upload-certs"] if self.balancer else []
        self._finish(self.first, "init", self._start_kubeadm(self.first, "init", *upload))
        self.say("the control plane answers")
        joining = []
        for node in self.nodes[1:]:
            another = node in self.controls
            config = kubeadm.join(node.name, node.addresses, server, control_plane=another)
            (node.folder / "mnt" / "kubeadm.yaml").write_text(config)
            process = self._start_kubeadm(node, "join")
            if another:  # etcd accepts only one new member at a time
                self._finish(node, "join", process)
                self.say(f"{node.name} has joined the control plane")
            else:
                joining.append((node, process))
        for node, process in joining:
            self._finish(node, "join", process)
        self.say("the other nodes have joined")
        if self._other is not None:
            self._other.install(self.nodes, self.kubectl)
            self.say(f"the network is {self._other.name}")

    def _start_kubeadm(self, node: Node, verb: str, *flags: str) -> subprocess.Popen[bytes]:
        # The preflight checks assume a machine that belongs only to the node. They also reject
        # etcd-monitor's manifest, which exists before kubeadm's own.
        command = ["kubeadm", verb, "--config", "/mnt/kubeadm.yaml", "--ignore-preflight-errors=all", *flags]
        with open(node.folder / "log" / f"kubeadm-{verb}.log", "wb") as log:
            return subprocess.Popen(
                node.command(command), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    def _finish(self, node: Node, verb: str, process: subprocess.Popen[bytes]) -> None:
        if process.wait(timeout=900) != 0:
            raise NodeError(
                f"kubeadm {verb} on {node.name}: {(node.folder / 'log' / f'kubeadm-{verb}.log').read_text()[-3000:]}"
            )


NODES_TAKE = 4 * 2**30
"""Bytes of disk for three nodes and their images: about twice what runs have used."""


def missing(control_planes: int = 1) -> list[str]:
    """The reasons why this machine cannot run a cluster; an empty list if it can."""
    if os.geteuid() != 0:
        return ["root is needed"]
    needed = (*NEEDED, "haproxy") if control_planes > 1 else NEEDED
    problems = [f"{name} is missing (make deps-k8s installs it)" for name in needed if shutil.which(name) is None]
    probe = subprocess.run(
        ["unshare", "-m", "-u", "-i", "-n", "-p", "-C", "-f", "--", "mount", "-t", "proc", "proc", "/proc"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        problems.append(f"no namespaces: {probe.stderr.strip()}")
    if cgroups.version() == 1 and not {"cpu", "memory", "pids"} <= set(cgroups.controllers()):
        problems.append("no control groups for processors, memory and processes")
    return [*problems, *no_room(settings.ROOT)]


def no_room(folder: Path) -> list[str]:
    """The reasons why nodes may not have their disks in a folder; an empty list if they may. With
    less than a hundredth of the file system free, kubelet deletes images. Nothing here could pull
    them again, so a restarted node would start no pods.
    """
    disk = shutil.disk_usage(folder)
    if disk.free >= (least := disk.total // 100 + NODES_TAKE):
        return []
    return [f"{disk.free / 2**30:.1f} GiB are free at {folder}: {least / 2**30:.1f} are needed"]
