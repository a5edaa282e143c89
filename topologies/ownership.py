# SPDX-License-Identifier: Apache-2.0
"""Ownership of resources, so that a run can clean up after a killed run, and touches nothing else.

Each run has its own id. Everything it makes has that id from the beginning:

* every process has ``NETCRAQ_RUN=<id>`` in its environment, which its children inherit;
* every interface in the machine's namespace has the alias ``netcraq <id>`` (it gets its final name
  only after that; its temporary name is made from the id).

A running run holds a lock on ``/run/netcraq/<id>``; the kernel releases the lock when the process
ends in any way. So a resource with an id whose lock is free is a leftover, and :func:`reap` removes
it. Process ids, interface names and namespaces get reused and prove nothing; ids are not reused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from topologies import network_namespaces

DIRECTORY = Path("/run/netcraq")
SOCKETS = Path("/run/netcraq-admin")
"""The folder of controllers' sockets; the names of runs' sockets begin with the run's id."""
VARIABLE = "NETCRAQ_RUN"
ALIAS = "netcraq "


class BusyError(Exception):
    """Another process uses something that the run needs."""


class Run:
    """A run, from :func:`claim` to :meth:`release`."""

    def __init__(self, run_id: str, file: int) -> None:
        self.id = run_id
        self.variables: dict[str, str] = {}
        """Additional environment variables of its processes."""
        self._file = file

    @property
    def alias(self) -> str:
        """The alias of the run's interfaces."""
        return ALIAS + self.id

    def temporary_name(self, index: int | str) -> str:
        """Return the name of the run's ``index``-th interface until it has its alias: at most 15
        characters, Linux's maximum.
        """
        return f"nq{self.id[:8]}{index}"

    def environment(self) -> dict[str, str]:
        """The environment of the run's processes."""
        return {**os.environ, **self.variables, VARIABLE: self.id}

    def note(self, **facts: Any) -> None:
        """Record information about this run for other runs."""
        text = json.dumps({"pid": os.getpid(), "namespace": network_namespaces.identity(), **facts}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text, 0)

    def sweep(self) -> None:
        """Remove everything with the run's id: commands left in hosts, interfaces."""
        _end_processes({self.id})
        _delete_interfaces({self.id})
        # if a signal killed the command that sets the alias
        _delete_half_made(lambda name: name.startswith(self.temporary_name("")))

    def release(self) -> None:
        """End the run: nothing has its id after that."""
        _delete_sockets({self.id})
        with contextlib.suppress(FileNotFoundError):
            (DIRECTORY / self.id).unlink()
        os.close(self._file)


def claim(interfaces: list[str], **facts: Any) -> Run:
    """Remove the leftovers of dead runs, and begin a new run, which will make ``interfaces``.

    Raises BusyError if another run is active in this network namespace, or one of the interfaces
    exists.
    """
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with _directory_lock():
        _reap()
        here = network_namespaces.identity()
        for run_id, what in _living(wait_for_stopping_in=here).items():
            if what.get("namespace") == here:
                topology, pid = what.get("topology", f"run {run_id}"), what.get("pid", "unknown")
                raise BusyError(f"a NetCRAQ network is up already: {topology}, process {pid}. End it first")
        # Leftovers of a dead run can take a moment to disappear: the kernel removes the namespaces
        # of its hosts in the background.
        deadline = time.monotonic() + 3
        while (
            taken := sorted({link["ifname"] for link in _links()} & set(interfaces))
        ) and time.monotonic() < deadline:
            time.sleep(0.05)
            _reap()
        if taken:
            names = ", ".join(taken)
            raise BusyError(
                f"{names}: interfaces of these names exist and are not NetCRAQ's; is another Mininet up? (After a crash of it: mn -c)"
            )
        run_id = uuid.uuid4().hex
        file = os.open(DIRECTORY / run_id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        run = Run(run_id, file)
        run.note(**facts)
        return run


def reap() -> None:
    """Remove leftovers of dead runs: processes anywhere, interfaces of this network namespace
    (those of another namespace end with it).
    """
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with _directory_lock():
        _reap()


def _reap() -> None:
    living = set(_living())
    _end_processes({run_id for _, run_id in _processes()} - living)
    _delete_interfaces({run_id for _, run_id in _interfaces()} - living)
    _delete_half_made(lambda name: not any(name.startswith(f"nq{run_id[:8]}") for run_id in living))
    _delete_sockets({path.name[:32] for path in SOCKETS.glob("*") if re.match(r"[0-9a-f]{32}\.", path.name)} - living)
    for file in _notes():
        if file.name not in living:
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _directory_lock() -> Iterator[None]:
    """Serialize runs while they look for others, clean up and begin."""
    file = os.open(DIRECTORY / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _living(wait_for_stopping_in: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the runs whose lock is held, with their notes. If asked, wait for a run that is
    stopping in a namespace.
    """
    living = {}
    deadline = time.monotonic() + 15
    for path in _notes():
        while (what := _held(path)) is not None:
            leaving = what.get("phase") == "stopping" and what.get("namespace") == wait_for_stopping_in
            if not leaving or time.monotonic() > deadline:
                living[path.name] = what
                break
            time.sleep(0.02)
    return living


def _notes() -> list[Path]:
    """Return the files of runs. A node agent keeps other files in the same folder."""
    return [path for path in DIRECTORY.glob("*") if re.fullmatch(r"[0-9a-f]{32}", path.name)]


def _held(path: Path) -> dict[str, Any] | None:
    """Return the notes of the run with this lock file; None if the lock is free."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError as why:
        if why.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise
        try:
            return json.loads(os.pread(file, 65536, 0))
        except ValueError:  # between truncation and writing
            return {}
    finally:
        os.close(file)


def _processes() -> Iterator[tuple[int, str]]:
    """Yield the processes of all runs, with their run's id."""
    marker = f"{VARIABLE}=".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes()
        except OSError:  # it has ended, or this process may not read it
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(marker) and int(path.name) != os.getpid():
                yield int(path.name), entry[len(marker) :].decode(errors="replace")


def _end_processes(run_ids: set[str]) -> None:
    """Kill the processes of these runs and wait until they have ended."""
    deadline = time.monotonic() + 5
    while run_ids:
        found = [pid for pid, run_id in _processes() if run_id in run_ids]
        if not found or time.monotonic() > deadline:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _links() -> list[dict[str, Any]]:
    return json.loads(
        subprocess.run(["ip", "-j", "link", "show"], check=True, capture_output=True, text=True).stdout or "[]"
    )


def _interfaces() -> Iterator[tuple[str, str]]:
    """Yield the interfaces of all runs in this network namespace, with their run's id."""
    for link in _links():
        if link.get("ifalias", "").startswith(ALIAS):
            yield link["ifname"], link["ifalias"][len(ALIAS) :]


def _delete_half_made(chosen: Callable[[str], bool]) -> None:
    """Delete interfaces, by name, that runs made without setting the alias."""
    for link in _links():
        if re.fullmatch(r"nq[0-9a-f]{8}[0-9]+", link["ifname"]) and chosen(link["ifname"]):
            subprocess.run(["ip", "link", "delete", link["ifname"]], check=False, capture_output=True)


def _delete_sockets(run_ids: set[str]) -> None:
    for run_id in run_ids:
        for path in SOCKETS.glob(f"{run_id}.*"):
            path.unlink(missing_ok=True)


def _delete_interfaces(run_ids: set[str]) -> None:
    for name, run_id in _interfaces():
        if run_id in run_ids:  # deleting the cable's other end may have deleted this end
            subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
