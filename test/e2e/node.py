# SPDX-License-Identifier: Apache-2.0
"""A node: a set of namespaces in which a kubelet and a containerd run.

A node has its own processes, network, host name, cgroups, ``/run``, and those folders under
``/etc``, ``/var`` and ``/opt`` that Kubernetes writes to. It shares everything else with the
machine. Its folders outlive it, like a disk, so it can be switched on again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from e2e import cgroups, settings
from e2e.lan import DIE_WITH_PARENT, Lan

FOLDERS = {
    "etc-kubernetes": "/etc/kubernetes",
    "etc-cni": "/etc/cni",
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "cni": "/var/lib/cni",
    "etcd": "/var/lib/etcd",
    "netcraq": "/var/lib/netcraq",
    "log": "/var/log",
    "opt-cni": "/opt/cni",
    "mnt": "/mnt",
}
"""The node's own folders, and where it sees them."""

UPGRADED = "/mnt/bin"
"""The first folder in a node's PATH. It has the programs that a run has upgraded."""

CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:{pause}"
  # No sandbox starts where lowering the score is not permitted.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


class NodeError(Exception):
    """A failure of a node, or of a command on it."""


class Node:
    """A node of the cluster, which is switched off until :meth:`start`."""

    def __init__(self, index: int, folder: Path, lan: Lan, path: Sequence[Path], group: str) -> None:
        self.index = index
        self.name = f"n{index}"
        self.number = 10 + index
        self.addresses = [family.address(self.number) for family in lan.families]
        self.address = self.addresses[0]
        self.folder = folder / self.name
        self._shared = folder
        self._lan = lan
        self._path = ":".join(
            [UPGRADED, *map(str, path), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        )
        self._group = f"{group}/{self.name}"
        self._process: subprocess.Popen | None = None
        self.pid = 0
        for name in FOLDERS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "etc-kubernetes" / "manifests").mkdir(exist_ok=True)  # kubelet reads it every second

    def start(self) -> None:
        """Switch the node on. :meth:`wait` waits until containerd answers."""
        (self.folder / "pid").unlink(missing_ok=True)
        config = self.folder / "init.json"
        containerd = self.folder / "containerd.toml"
        # An overlay cannot use an overlay as its upper layer, and a checkout in a container is on
        # one.
        overlay = (
            subprocess.run(
                ["stat", "-f", "-c", "%T", str(self.folder)], capture_output=True, text=True, check=False
            ).stdout.strip()
            == "overlayfs"
        )
        containerd.write_text(CONTAINERD.format(pause=settings.PAUSE, snapshotter="native" if overlay else "overlayfs"))
        binds = {str(self.folder / name): target for name, target in FOLDERS.items()}
        binds |= {str(self._shared / name): f"/etc/{name}" for name in ("hosts", "resolv.conf")}
        facts = {
            "name": self.name,
            "state": str(self.folder),
            "cgroups": cgroups.make(self._group),
            "cgroupVersion": cgroups.version(),
            "controllers": cgroups.controllers(),
            "binds": binds,
            "path": self._path,
            "containerd": str(containerd),
        }
        config.write_text(json.dumps(facts))
        with open(self.folder / "init.log", "ab") as log:
            command = [*DIE_WITH_PARENT, sys.executable, str(settings.HERE / "init.py"), "outside", str(config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def wait(self, seconds: float = 60) -> None:
        """Wait until the node is up, connect it, and wait for containerd."""
        deadline = time.monotonic() + seconds
        while not (self.folder / "pid").exists():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise NodeError(f"{self.name} does not start: {(self.folder / 'init.log').read_text()[-1000:]}")
            time.sleep(0.05)
        self.pid = int((self.folder / "pid").read_text())
        self._lan.connect(self.index, self.pid, self.number)
        while self.execute(["ctr", "version"], check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise NodeError(
                    f"containerd on {self.name} does not answer: {(self.folder / 'log' / 'containerd.log').read_text()[-1000:]}"
                )
            time.sleep(0.2)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs ``command`` on the node."""
        if not self.alive():
            raise NodeError(f"{self.name} is switched off")
        return [
            "nsenter",
            "-t",
            str(self.pid),
            "-a",
            "--wd=/",
            "--",
            "env",
            "-i",
            "HOME=/root",
            f"PATH={self._path}",
            *command,
        ]

    def execute(
        self, command: Sequence[str], *, check: bool = True, seconds: float = 300, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the node until it ends."""
        done = subprocess.run(
            self.command(command), capture_output=True, text=True, check=False, timeout=seconds, input=stdin
        )
        if check and done.returncode != 0:
            raise NodeError(f"{self.name}: {' '.join(command)}: {(done.stderr or done.stdout).strip()[-3000:]}")
        return done

    def run(self, *command: str, seconds: float = 300) -> str:
        """Run a command on the node, and return its output."""
        return self.execute(command, seconds=seconds).stdout

    def alive(self) -> bool:
        """Whether the node is switched on."""
        return self._process is not None and self._process.poll() is None

    def power_off(self) -> None:
        """Cut the node's power: no program can shut down."""
        self._lan.disconnect(self.index)
        if self._process is None:
            return
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        self.pid = 0
        cgroups.remove(self._group)

    def forget(self) -> None:
        """Delete the node's disk, except for the logs."""
        for name in FOLDERS:
            if name != "log":
                shutil.rmtree(self.folder / name, ignore_errors=True)


def mount_points(record: Path) -> list[Path]:
    """Make the folders that must exist on the machine so that a node can mount its own there.
    Returns the folders that a run of this program has made.

    ``record`` has the folders of killed runs, which could not remove them.
    """
    made = [Path(line) for line in record.read_text().splitlines()] if record.exists() else []
    for target in FOLDERS.values():
        missing = [folder for folder in (Path(target), *Path(target).parents) if not folder.exists()]
        made += reversed(missing)
        record.write_text("".join(f"{folder}\n" for folder in made))
        Path(target).mkdir(parents=True, exist_ok=True)
    return made
