# SPDX-License-Identifier: Apache-2.0
"""The controller's admin API inside the hosts.

A host's loopback is its own, so ``netcraqctl`` in a host would not find the controller at ``127.0.0.1``. Each host gets a listening socket there,
made in the host's namespace and served by this process, which passes bytes to and from the controller outside: a cable for management, beside the
network under test.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from topologies import namespaces


class Relay:
    """Passes connections to one address in hosts on to the same address outside."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._listeners: list[socket.socket] = []

    def open(self, pid: int) -> None:
        """Listen in the network namespace of a process."""
        with namespaces.entered(pid):
            listener = socket.create_server(self._address)
        self._listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        self._listeners.clear()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return
            try:
                outside = socket.create_connection(self._address, timeout=5)
                outside.settimeout(None)
            except OSError:
                inside.close()
                continue
            for source, target in ((inside, outside), (outside, inside)):
                threading.Thread(target=_pass, args=(source, target), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    """Copy one direction until it ends, and end it on the other side."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
