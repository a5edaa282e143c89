# SPDX-License-Identifier: Apache-2.0
"""The cgroups of a node, in version 1 or 2, whichever this machine has."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from e2e.init import CGROUPS, CONTROLLERS


def version() -> int:
    """The cgroup version, 1 or 2. A machine with both (``/sys/fs/cgroup/unified``) counts as 1,
    because its controllers are in version 1.
    """
    return 2 if (CGROUPS / "cgroup.controllers").exists() else 1


def controllers() -> list[str]:
    """The hierarchies of version 1 on this machine; none with version 2."""
    return [] if version() == 2 else [name for name in CONTROLLERS if (CGROUPS / name / "cgroup.procs").exists()]


def make(group: str) -> list[str]:
    """Make the groups ``group`` (``a/b``), one in each hierarchy. Returns their folders."""
    if version() == 2:
        return [str(_make2(group))]
    folders = []
    for name in controllers():
        folder = CGROUPS / name
        for part in group.split("/"):
            folder /= part
            folder.mkdir(exist_ok=True)
            # All of the machine's CPUs and memory nodes: kubelet assigns to its pods those that it
            # finds in /sys, which a smaller set would not allow.
            if name == "cpuset":
                for kind in ("cpuset.cpus", "cpuset.mems"):
                    (folder / kind).write_text((folder.parent / kind).read_text())
        folders.append(str(folder))
    _give(CGROUPS / "cpu" / group.split("/")[0] / "cpu.shares", 1024)
    return folders


def _give(weight: Path, one: int) -> None:
    """Give all nodes together the CPU weight of eight processes. With the weight of one, they would
    not renew leases in time on a busy machine.
    """
    with contextlib.suppress(OSError):
        weight.write_text(str(8 * one))


def _make2(group: str) -> Path:
    folder = CGROUPS
    for part in group.split("/"):
        wanted = (folder / "cgroup.controllers").read_text().split()
        for name in wanted:
            with contextlib.suppress(OSError):  # not every node needs a controller that is unavailable here
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
        folder /= part
        folder.mkdir(exist_ok=True)
    _give(CGROUPS / group.split("/")[0] / "cpu.weight", 100)
    return folder


def remove(group: str, seconds: float = 15) -> None:
    """Remove the groups and all groups below them. They become empty while the processes of a
    killed node end.
    """
    roots = [CGROUPS / group] if version() == 2 else [CGROUPS / name / group for name in controllers()]
    deadline = time.monotonic() + seconds
    while True:
        for root in roots:
            for folder, _, _ in os.walk(root, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        if not any(root.exists() for root in roots) or time.monotonic() > deadline:
            return
        time.sleep(0.1)
