# SPDX-License-Identifier: Apache-2.0
"""One measurement of ``make bench-nodeapi``: a load process, and its servers' processor time."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Measured = dict[str, list[dict[str, float]]]
"""Repetitions, by the name of a case."""


class Failed(Exception):
    """A run that is no valid measurement."""


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, to the nanosecond if the kernel counts that
    precisely.
    """
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return all_cpu_seconds(pid)


def all_cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, including its ended threads, in clock-tick
    resolution.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime (proc_pid_stat(5): 14, 15)


def run(name: str, command: list[str], servers: Iterable[int]) -> dict[str, Any]:
    """Run a load process: it prints "ready", begins on a line "go", and ends with a line of JSON.
    servers are the processes that answer it.
    """
    servers = list(servers)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        if process.stdout.readline().strip() != "ready":
            raise Failed(f"{name}: {process.communicate()[1].strip()}")
        before = list(map(cpu_seconds, servers))
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        used = [cpu_seconds(server) - begin for server, begin in zip(servers, before, strict=True)]
        errors = process.communicate(timeout=60)[1]
        if not line or process.returncode != 0:
            raise Failed(f"{name}: {errors.strip()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    report = json.loads(line)
    return {
        "p50_us": round(report["p50_us"], 2),
        "p99_us": round(report["p99_us"], 2),
        "client_cpu_us": round(report["cpu_us"] / report["calls"], 2),
        "server_cpu_us": round(sum(used) * 1e6 / report["calls"], 2),
        "first_server_cpu_us": round(sum(used[:1]) * 1e6 / report["calls"], 2),
        "calls": report["calls"],
        "version": report["version"],
    }


def figure(value: float | None) -> str:
    """Format a figure."""
    return "left out" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"
