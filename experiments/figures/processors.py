# SPDX-License-Identifier: Apache-2.0
"""Which processor does the work, and for how long.

With a switch in the kernel, a frame is handled on the CPU that sent it, in software interrupts. A
switch in a process works on the CPUs that its threads may use. So if every sender (switches,
controllers, loads) may use only one CPU, all forwarding happens on that CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.one_load import cpu_seconds

ONE, ALL = "one", "all"
PLACES = (ONE, ALL)
"""One CPU for everything that forwards, or all of them."""


def steering() -> bool:
    """Return whether the kernel hands received frames to other CPUs on its own (RPS). Then no work
    can be kept on one CPU.
    """
    with contextlib.suppress(OSError):
        return int(Path("/proc/sys/net/core/rps_default_mask").read_text().strip().replace(",", "") or "0", 16) != 0
    return False


@contextlib.contextmanager
def placed(where: str) -> Iterator[list[int]]:
    """Let processes started in the block use the CPUs of a place, and yield these CPUs. :data:`ONE`
    is the last of this process's CPUs.
    """
    before = os.sched_getaffinity(0)
    cpus = sorted(before) if where == ALL else [max(before)]
    os.sched_setaffinity(0, cpus)
    try:
        yield cpus
    finally:
        os.sched_setaffinity(0, before)


def softirq(cpus: Sequence[int]) -> float:
    """Return the seconds that these CPUs have handled software interrupts, in any context. The
    kernel samples them at the clock interrupt, about 250 a second, and reports hundredths.
    """
    wanted = {f"cpu{cpu}" for cpu in cpus}
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    return sum(int(row[7]) for row in rows if row and row[0] in wanted) / os.sysconf("SC_CLK_TCK")


def seconds(pids: Iterable[int]) -> float:
    """Return the processor time of these threads and processes."""
    return sum(cpu_seconds(pid) for pid in pids)


# ---- The kernel's statistics of programs ----

_BPF = {"x86_64": 321, "aarch64": 280}
_ENABLE_STATS = 32  # BPF_ENABLE_STATS of linux/bpf.h; its only kind, 0, is the run time


@contextlib.contextmanager
def counted_programs() -> Iterator[bool]:
    """Have the kernel count the runs and the run time of eBPF programs during the block. It costs
    each run about 20 ns. Yields False if the kernel does not support it.
    """
    number = _BPF.get(platform.machine())
    attribute = ctypes.create_string_buffer(struct.pack("I", 0), 128)
    handle = -1
    if number is not None:
        handle = ctypes.CDLL(None, use_errno=True).syscall(number, _ENABLE_STATS, attribute, 128)
    try:
        yield handle >= 0
    finally:
        if handle >= 0:
            os.close(handle)


def programs(pids: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return the eBPF programs that processes hold: nanoseconds and runs, by program ID."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{pid}/fdinfo").iterdir():
                with contextlib.suppress(OSError, ValueError):
                    fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
                    if "run_cnt" in fields:
                        found[int(fields["prog_id"])] = (int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return found


def run_between(before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the nanoseconds and runs between two results of :func:`programs`."""
    ns = runs = 0
    for number, (time, count) in after.items():
        old = before.get(number, (0, 0))
        ns, runs = ns + time - old[0], runs + count - old[1]
    return ns, runs
