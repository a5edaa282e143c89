# SPDX-License-Identifier: Apache-2.0
"""The CNI plugin and the agent as docs/kubernetes.md has them under "Trying it by hand": each agent is a process, with a file of nodes."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from e2e import settings
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.lan import DIE_WITH_PARENT
from e2e.node import Node

PLUGINS = ("netcraq-cni", "loopback", "host-local", "portmap", "bandwidth")
SERVICE_ADDRESSES = "10.97.0.0/24"


class ByHand:
    """Agents as processes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    def install(self) -> None:
        """Start an agent on each node, and write the configuration for containerd."""
        nodes = []
        for node in self._cluster.nodes:
            spec = until(f"{node.name}'s prefix for pods", lambda node=node: self._spec(node))
            nodes.append({"name": node.name, "address": node.address, "podCIDRs": spec["podCIDRs"]})
        for node, facts in zip(self._cluster.nodes, nodes, strict=True):
            (node.folder / "netcraq" / "nodes.json").write_text(json.dumps({"nodes": nodes}))
            self.start_agent(node)
            plugins = node.folder / "opt-cni" / "bin"
            plugins.mkdir(exist_ok=True)
            for name in PLUGINS:
                shutil.copy(settings.OUT / "bin" / name, plugins)
            ipam = {"type": "host-local", "ranges": [[{"subnet": facts["podCIDRs"][0]}]], "routes": [{"dst": "0.0.0.0/0"}]}
            portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
            bandwidth = {"type": "bandwidth", "capabilities": {"bandwidth": True}}
            config = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "netcraq-cni", "ipam": ipam}, portmap, bandwidth]}
            folder = node.folder / "etc-cni" / "net.d"
            folder.mkdir(exist_ok=True)
            (folder / "10-netcraq.conflist").write_text(json.dumps(config))

    def start_agent(self, node: Node) -> None:
        """Start a node's agent, with a tunnel to each other node."""
        peers = [argument for other in self._cluster.nodes if other is not node for argument in ("--peer", f"{other.index}@{other.name}")]
        who = ("--nodes", "/var/lib/netcraq/nodes.json", "--node", node.name, "--device-id", str(node.index))
        command = ["netcraq-agent", *who, "--services", SERVICE_ADDRESSES, *peers]
        with open(node.folder / "log" / "netcraq-agent.log", "ab") as log:
            self._agents[node.name] = subprocess.Popen([*DIE_WITH_PARENT, *node.command(command)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _spec(self, node: Node) -> dict[str, Any] | None:
        spec = self._cluster.kubectl.json("get", "node", node.name)["spec"]
        return spec if spec.get("podCIDRs") else None
