# SPDX-License-Identifier: Apache-2.0
"""The origin of a measurement: the commit, the machine, the command and the date."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    """Return the versions of the software and the machine that made the figures."""

    def said(*command: str) -> str:
        try:
            return (
                subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
                .stdout.strip()
                .splitlines()[0]
            )
        except (OSError, IndexError):
            return ""

    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    return {
        "commit": said("git", "rev-parse", "HEAD") + ("-dirty" if said("git", "status", "--porcelain") else ""),
        "kernel": platform.release(),
        "cpu": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} x {model}",
        "netcraq-switch": said("bin/netcraq-switch", "--version"),
        "simple_switch_grpc": said("simple_switch_grpc", "--version")
        if shutil.which("simple_switch_grpc")
        else "not installed",
    }


def record() -> dict[str, Any]:
    """Return the origin of a run that begins at this moment. Benchmarks write it into their file,
    as ``run``, and bench_page.py prints it.
    """
    program = Path(sys.argv[0]).resolve()
    shown = program.relative_to(ROOT) if program.is_relative_to(ROOT) else Path(program.name)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": shlex.join([str(shown), *sys.argv[1:]]),
        "load_average": os.getloadavg()[0],
        **versions(),
    }
