# SPDX-License-Identifier: Apache-2.0
"""Runs other projects' scripts isolated from the machine: in separate network, process and mount
namespaces. Every process of a script ends with the script, which has a time limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ENGINES = ("interp", "auto", "bmv2")
"""The engines: the interpreter, the kernel if it can run the program, and BMv2."""

BMV2 = ("simple_switch", "simple_switch_grpc")

_SUDO = """#!/bin/sh
# sudo for scripts that are run by root already: assignments, then a command.
while :; do
  case "$1" in
    -E|-n|-H) shift ;;
    [A-Za-z_]*=*) export "$1"; shift ;;
    *) break ;;
  esac
done
exec "$@"
"""

# p4c's driver, for scripts that call it on machines that have only the back end.
_P4C = """#!/bin/sh
out=. p4info= std= program= more=
while [ $# -gt 0 ]; do
  case "$1" in
    --target|-b|--arch|-a) shift ;;
    --std|-x) std=$2; shift ;;
    --p4runtime-files) p4info=$2; shift ;;
    --p4runtime-file) p4info=$2; shift ;;
    --p4runtime-format) shift ;;
    -o) out=$2; shift ;;
    -*) more="$more $1" ;;
    *) program=$1 ;;
  esac
  shift
done
mkdir -p "$out"
name=$(basename "$program")
exec p4c-bm2-ss ${std:+--std "$std"} ${p4info:+--p4runtime-files "$p4info"} $more -o "$out/${name%.*}.json" "$program"
"""

# $1 is a folder, $2 the folders of /tmp that are needed. /tmp is a new file system, because
# Mininet's clean-up removes files in /tmp, and BMv2 has sockets there that are named by device
# numbers. Host names are in files, because a lookup would wait for a name server that is not
# reachable from here.
_INSIDE = """
mount --make-rprivate / && mount -t sysfs sysfs /sys && mount -t proc proc /proc || exit 70
[ ! -e /etc/nsswitch.conf ] || mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf || exit 70
mount -t tmpfs tmpfs "$1/tmp" || exit 70
for name in $2; do
  mkdir "$1/tmp/$name" && mount --rbind "/tmp/$name" "$1/tmp/$name" || exit 70
done
mount --move "$1/tmp" /tmp && chmod 1777 /tmp && cd "$PWD" || exit 70
shift 2
ip link set dev lo up
exec "$@"
"""

_NAMES = "passwd: files\ngroup: files\nhosts: files\n"


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True)
class Result:
    """The result of a command: its exit code (None if its time was up), and its output."""

    code: int | None
    output: str


class Tools:
    """A directory for PATH in which BMv2's names run one of the engines.

    Scripts look for ``simple_switch`` and ``simple_switch_grpc``. These run BMv2, or
    ``netcraq-switch`` with an engine.
    """

    def __init__(self, directory: Path, engine: str, switch: Path, python: Path) -> None:
        if engine not in ENGINES:
            raise ValueError(f"no engine {engine}: {', '.join(ENGINES)}")
        # Scripts run in other directories. Resolving the path would leave the link's environment.
        self.directory, self.engine, self.python, self.switch = directory, engine, python.absolute(), switch
        shutil.rmtree(directory, ignore_errors=True)
        # The processes have BMv2's names, too, because scripts look for them.
        behind = directory / "behind"
        behind.mkdir(parents=True)
        for name in BMV2:
            if engine == "bmv2":
                real = shutil.which(name)
                if real is not None:
                    (directory / name).symlink_to(real)
                continue
            (behind / name).symlink_to(switch.resolve())
            _script(directory / name, f'#!/bin/sh\nexec {behind / name} --engine {engine} "$@"\n')
        (behind / "nsswitch.conf").write_text(_NAMES)
        (behind / "tmp").mkdir()
        if shutil.which("sudo") is None:
            _script(directory / "sudo", _SUDO)
        if shutil.which("p4c") is None:
            _script(directory / "p4c", _P4C)

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """The environment with this directory first on PATH, and then Python's."""
        path = f"{self.directory}:{self.python.parent}:{os.environ['PATH']}"
        # P4C means a checkout to this package, but the compiler to many Makefiles. Scripts expect
        # PYTHONPATH to be one folder.
        left = ("P4C", "PYTHONPATH")
        given = {name: value for name, value in os.environ.items() if name not in left and not name.startswith("MAKE")}
        return {**given, "PATH": path, "PYTHONUNBUFFERED": "1", **(more or {})}


def run(
    command: list[str],
    tools: Tools,
    directory: Path,
    log: Path,
    timeout: float,
    text: str = "",
    environment: dict[str, str] | None = None,
) -> Result:
    """Run a command in ``directory``, in separate namespaces, with ``text`` as its input. Its
    output is also in ``log``. When the command has ended, or after ``timeout`` seconds, every
    process that it started is killed.
    """
    # If this process ends, unshare ends, and with it everything in the namespaces.
    wrapped = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "--",
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--",
        "/bin/sh",
        "-c",
    ]
    inside = tools.environment(environment)
    named = [*inside["PATH"].split(":"), *inside.get("PYTHONPATH", "").split(":")]
    paths = [directory, tools.directory, tools.switch, *map(Path, named)]
    needed = {p.absolute().parts[2] for p in paths if p.absolute().parts[:2] == ("/", "tmp") and p != Path("/tmp")}
    behind = str((tools.directory / "behind").absolute())
    wrapped += [_INSIDE, "sandbox", behind, " ".join(x for x in needed if (Path("/tmp") / x).is_dir()), *command]
    log.parent.mkdir(parents=True, exist_ok=True)
    code: int | None = None
    with log.open("wb") as out:
        process = subprocess.Popen(
            wrapped,
            cwd=directory,
            env=inside,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.communicate(text.encode(), timeout=timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            pass
        except BrokenPipeError:
            code = process.wait()
        finally:
            process.kill()
            process.wait()
    return Result(code, log.read_text(errors="replace"))
