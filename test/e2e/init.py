#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first process of a node. It turns its namespaces into a machine, and runs containerd and
kubelet there.

``init.py outside CONFIG`` joins the node's cgroups and continues as ``init.py inside CONFIG`` in
new namespaces. When that process is killed, the kernel ends all other processes of its PID
namespace, including containers'. The mounts and interfaces go with the last of them. That is a
power cut.

This file imports nothing from the project, because it must work before the node has its files.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "hugetlb")
"""Control groups of version 1 that kubelet and runc look for."""

CGROUPS = Path("/sys/fs/cgroup")

FLAGS = Path("/var/lib/kubelet/kubeadm-flags.env")
"""The file in which kubeadm writes kubelet's flags."""


def outside(config: dict[str, Any], path: str) -> None:
    """Join the node's cgroups, then become the first process of new namespaces."""
    for folder in config["cgroups"]:
        (Path(folder) / "cgroup.procs").write_text("0")
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--cgroup", "--pid")
    command = [
        "unshare",
        *namespaces,
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
        "--",
        sys.executable,
        __file__,
        "inside",
        path,
    ]
    os.execvp(command[0], command)


def mount(*arguments: str) -> None:
    """Mount a file system, or exit with mount's error."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


def inside(config: dict[str, Any]) -> None:
    """Run as the first process: mount file systems, start the node's programs, and reap orphaned
    processes.
    """
    state = Path(config["state"])
    own_id = os.readlink("/proc/self")  # /proc still shows the outer PID namespace
    socket.sethostname(config["name"])
    mount("-t", "proc", "proc", "/proc")
    subprocess.run(["umount", "-R", "-l", "/sys"], check=False)
    mount("-t", "sysfs", "sysfs", "/sys")  # sysfs of this network namespace
    if config["cgroupVersion"] == 2:
        cgroups2()
    else:
        cgroups1(config["controllers"])
    subprocess.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], check=False, capture_output=True)
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    for source, target in config["binds"].items():
        mount("--bind", source, target)
    mount("--make-rshared", "/")  # with this, containers that request it see later mounts, and kubelet sees theirs
    environment = {"PATH": config["path"], "HOME": "/root"}
    with open("/var/log/containerd.log", "ab") as log:
        subprocess.Popen(
            ["containerd", "--config", config["containerd"]],
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    partial = state / "pid.partial"
    partial.write_text(own_id)
    partial.rename(state / "pid")
    kubelet, due = 0, 0.0
    while True:
        if (
            not kubelet
            and time.monotonic() >= due
            and Path("/var/lib/kubelet/config.yaml").exists()
            and Path("/var/lib/kubelet/kubeadm-flags.env").exists()
        ):
            kubelet = start_kubelet(environment)
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            ended = 0
        if ended and ended == kubelet:
            kubelet, due = 0, time.monotonic() + 2  # restart after 2 s, as kubeadm's systemd unit does
        if not ended:
            time.sleep(0.2)


def cgroups1(controllers: list[str]) -> None:
    """Mount cgroups of version 1 for the node. A hierarchy that is mounted again starts at this
    namespace's group.
    """
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CGROUPS))
    for name in controllers:
        folder = CGROUPS / name
        folder.mkdir()
        mount("-t", "cgroup", "-o", "none,name=systemd" if name == "systemd" else name, "cgroup", str(folder))


def cgroups2() -> None:
    """Mount cgroups of version 2 for the node. There, a group with processes cannot have child
    groups with controllers, so this process moves to a group next to kubelet's.
    """
    mount("-t", "cgroup2", "cgroup2", str(CGROUPS))
    leaf = CGROUPS / "init"
    leaf.mkdir()
    (leaf / "cgroup.procs").write_text("0")
    wanted = (CGROUPS / "cgroup.controllers").read_text().split()
    (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))


def start_kubelet(environment: dict[str, str]) -> int:
    """Start kubelet as kubeadm's systemd unit does. Returns its process id."""
    flags = FLAGS.read_text().partition("=")[2].strip().strip('"').split()
    files = (
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/var/lib/kubelet/config.yaml",
    )
    with open("/var/log/kubelet.log", "ab") as log:
        return subprocess.Popen(
            ["kubelet", *files, *flags], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        ).pid


def main() -> None:
    """Read the configuration, and run the verb of the command line."""
    config = json.loads(Path(sys.argv[2]).read_text())
    if sys.argv[1] == "outside":
        outside(config, sys.argv[2])
    else:
        inside(config)


if __name__ == "__main__":
    main()
