# SPDX-License-Identifier: Apache-2.0
"""The load balancer in front of several API servers: Debian's haproxy in the nodes' network, with
the health checks that docs/kubernetes.md tells operators to configure.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.families import host
from e2e.lan import DIE_WITH_PARENT, Lan
from e2e.node import NodeError

_CONFIGURATION = """\
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
frontend api
  bind {address}:6443
  default_backend servers
backend servers
  balance roundrobin
  option httpchk GET /readyz
  http-check expect status 200
  default-server check check-ssl verify none inter 1s fastinter 500ms fall 2 rise 2 on-marked-down shutdown-sessions
"""
"""A server that is not ready, such as one that has lost its etcd, is given no connection, and those
that it has are closed: kubelets and pods go to another at once.
"""


class Balancer:
    """Forwards connections to one address to API servers that are ready."""

    def __init__(self, lan: Lan, address: str, servers: dict[str, str], folder: Path) -> None:
        config = folder / "haproxy.cfg"
        lines = [f"  server {name} {host(server)}:6443" for name, server in servers.items()]
        config.write_text(_CONFIGURATION.format(address=host(address)) + "\n".join(lines) + "\n")
        command = [*DIE_WITH_PARENT, *lan.command("haproxy", "-db", "-f", str(config))]
        with open(folder / "haproxy.log", "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return
        raise NodeError(f"haproxy ended with {code}: {(folder / 'haproxy.log').read_text()[-1000:]}")

    def close(self) -> None:
        """Stop the balancer."""
        self._process.kill()
        self._process.wait()
