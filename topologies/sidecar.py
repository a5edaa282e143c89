# SPDX-License-Identifier: Apache-2.0
"""The node API for a host of a network: a ``netcraq-sidecar`` in the host, and its socket."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from topologies import nodes
from topologies.ownership import SOCKETS

if TYPE_CHECKING:
    from topologies.network import ChainNetwork

VARIABLE = "NETCRAQ_NODE_SOCKET"
"""The variable from which the libraries take the socket."""


class Sidecar:
    """A ``netcraq-sidecar`` in a host, which stops with the network. ``flags`` are additional
    flags.
    """

    def __init__(self, net: ChainNetwork, host: str, flags: Sequence[str] = ()) -> None:
        """Start the sidecar. NodeError if it is not built."""
        self.host = host
        self.socket = str(SOCKETS / f"{net.run_id}.{host}.sock")
        self.log = net.out / f"sidecar-{host}.log"
        command = [nodes.built("netcraq-sidecar"), "--listen", f"unix://{self.socket}", "--node", host, *flags]
        if net.admin_url:
            command += ["--admin", net.admin_url]
        if group := os.environ.get("SUDO_GID"):  # sudo's user may use the socket without sudo
            command += ["--socket-group", group]
        with self.log.open("w") as log:
            self.process = net.spawn(host, command, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_ready(self, timeout: float = 30) -> None:
        """Wait until the sidecar serves. If it does not, the NodeError has the end of its log."""
        deadline, said = time.monotonic() + timeout, ""
        while not said.startswith("ready:"):
            readable, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            said = self.process.stdout.readline() if readable else ""
            if not said:
                raise nodes.NodeError(f"the node API of {self.host} does not come up; {nodes.tail(self.log)}")
