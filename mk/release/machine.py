# SPDX-License-Identifier: Apache-2.0
"""Boot a Debian root as a machine: its systemd is process 1, in its own namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from process import ReleaseError, run

#: Boots the root $2 in the cgroup $1. The machine has no network but loopback, has no devices, and
#: cannot change settings of the kernel.
BOOT = """
echo $$ > "$1/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net -- sh -ec '
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
	touch dev/$device
	mount --bind /dev/$device dev/$device
done
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
mkdir run/host
pivot_root . run/host
umount -l /run/host
rmdir /run/host
exec env -i container=try PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target
' sh "$2"
"""


def cgroup2() -> Path:
    """The mount point of cgroup 2, where the machine's cgroup is created."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise ReleaseError("no cgroup 2 is mounted, which systemd needs: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")


def wait(what: str, done: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until `done` returns true."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise ReleaseError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


@contextlib.contextmanager
def booted(root: Path) -> Iterator[Callable[..., str]]:
    """Boot a root. The result is a function that runs a program in it and returns the program's
    output.
    """
    group = cgroup2() / f"netcraq-try-{os.getpid()}"
    group.mkdir()
    machine = subprocess.Popen(["sh", "-ec", BOOT, "sh", group, root], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children")

    def inside(*words: str) -> str:
        enter = ("nsenter", "--target", children.read_text().split()[0], "--mount", "--pid", "--net", "--ipc", "--uts")
        return run(*enter, "--cgroup", "--root", "--wd", *words)

    def runs() -> bool:
        if machine.poll() is not None:
            raise ReleaseError(f"{root} does not boot: {machine.stderr.read()}")
        try:
            return inside("systemctl", "is-active", "basic.target") == "active\n"
        except (ReleaseError, OSError, IndexError):
            return False  # systemd is not process 1 yet

    try:
        wait("systemd is up", runs)
        yield inside
    finally:
        machine.kill()  # the machine's other processes end with its systemd
        machine.wait(30)
        wait("the machine's processes are gone", lambda: "populated 0" in (group / "cgroup.events").read_text())
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
