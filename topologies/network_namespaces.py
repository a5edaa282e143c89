# SPDX-License-Identifier: Apache-2.0
"""Sockets in other network namespaces without a process there.

A thread can move itself to another network namespace (setns(2)), and a socket stays in the
namespace in which it was made. So one Python process can hold a socket in every host of a Mininet
network: enter, make the socket, leave.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator

PRIVATE = "NETCRAQ_PRIVATE_NETWORK"
"""The environment variable of processes in a namespace of :func:`private`. Such a namespace does
not isolate files, so these processes must not use files that are shared on the machine, such as the
controller's socket.
"""

_CLONE_NEWNET = 0x40000000  # <sched.h>
_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")


def identity() -> str:
    """Return the calling thread's network namespace, as ``net:[4026531840]``."""
    return os.readlink("/proc/thread-self/ns/net")


@contextlib.contextmanager
def entered(pid: int) -> Iterator[None]:
    """Run the block in the network namespace of a process. Only the calling thread moves, and it
    moves back.
    """
    with open("/proc/thread-self/ns/net") as home, open(f"/proc/{pid}/ns/net") as there:
        _call("setns", there.fileno(), _CLONE_NEWNET)
        try:
            yield
        finally:
            _call("setns", home.fileno(), _CLONE_NEWNET)


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Run the block in a new network namespace that has only a loopback interface.

    Processes started there share neither ports nor interfaces with the machine. The kernel removes
    the namespace and its interfaces when its last process has ended. This is for tests: interactive
    users want to reach the controller from other terminals.
    """
    with open("/proc/thread-self/ns/net") as home:
        _call("unshare", _CLONE_NEWNET)
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            before, os.environ[PRIVATE] = os.environ.get(PRIVATE), identity()
            try:
                yield
            finally:
                os.environ.pop(PRIVATE)
                if before is not None:
                    os.environ[PRIVATE] = before
        finally:
            _call("setns", home.fileno(), _CLONE_NEWNET)
