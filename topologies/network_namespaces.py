# SPDX-License-Identifier: Apache-2.0
"""Working inside a network namespace without starting a process there.

A thread can move itself from one network namespace to another (setns(2)), and a socket belongs to
the namespace that it was made in, for good. So one Python process can hold a socket in every host
of a Mininet network: enter, make it, leave.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator

PRIVATE = "NETCRAQ_PRIVATE_NETWORK"
"""The variable that processes in a namespace of :func:`private` have in their environment. Such a
namespace does not keep files apart, so what is there for everybody on the machine, such as the
controller's socket, is not for those in there to take.
"""

_CLONE_NEWNET = 0x40000000  # <sched.h>
_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")


def identity() -> str:
    """The calling thread's network namespace, as ``net:[4026531840]``."""
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

    What is started there cannot meet what runs on the machine: neither its ports nor its
    interfaces. The kernel takes the namespace down with all that is in it when the last process in
    it has ended. For tests; a person wants to reach the controller from other terminals.
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
