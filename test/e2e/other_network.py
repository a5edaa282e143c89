# SPDX-License-Identifier: Apache-2.0
"""A network for pods that the cluster has before NetCRAQ: the CNI project's bridge or ptp plugin,
with routes between the nodes' pods as an operator makes them by hand; or flannel, as its own
manifest installs it.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from e2e import binaries, settings
from e2e.kubectl import until
from e2e.node import Node

NAMES = ("bridge", "ptp", "flannel")
"""The networks that a test cluster can have before NetCRAQ."""

INSTALLED = ("loopback", "host-local", "portmap", "bridge", "ptp")
"""The plugins that the operator has put onto the nodes."""


class OtherNetwork:
    """The existing network, which knows nothing about NetCRAQ."""

    file = "10-others.conflist"
    """The file of this network's plugin list, in /etc/cni/net.d."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lists: dict[str, str] = {}
        """By node: the plugin list that this network has written."""
        self._routes: dict[str, list[str]] = {}

    def install(self, nodes: list[Node], kubectl: Any) -> None:
        """Install it as the network of all nodes."""

        def prefixes() -> dict[str, str] | None:
            found = {n["metadata"]["name"]: n["spec"].get("podCIDR", "") for n in kubectl.items("nodes")}
            return found if len(found) == len(nodes) and all(found.values()) else None

        cidrs = until("each node has a prefix for pods", prefixes)
        for node in nodes:
            _copy_plugins(node)
            self._routes[node.name] = [f"{cidrs[o.name]} via {o.address}" for o in nodes if o is not node]
            self.connect(node)
            self.lists[node.name] = self._list(cidrs[node.name])
            folder = node.folder / "etc-cni" / "net.d"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / self.file).write_text(self.lists[node.name])

    def connect(self, node: Node) -> None:
        """Make a node's routes, which are lost when it is switched off."""
        node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        for route in self._routes.get(node.name, []):
            node.run("ip", "route", "replace", *route.split())

    def list_on(self, node: Node) -> str:
        """The plugin list that a node has at this moment."""
        return (node.folder / "etc-cni" / "net.d" / self.file).read_text()

    def _list(self, prefix: str) -> str:
        ipam = {"type": "host-local", "ranges": [[{"subnet": prefix}]], "routes": [{"dst": "0.0.0.0/0"}]}
        makes: dict[str, Any] = {"type": self.name, "ipam": ipam}
        if self.name == "bridge":
            makes |= {"bridge": "cni0", "isGateway": True, "hairpinMode": True}
        plugins = [makes, {"type": "portmap", "capabilities": {"portMappings": True}}]
        return json.dumps({"cniVersion": "1.0.0", "name": "others", "plugins": plugins}, indent=2) + "\n"


class Flannel(OtherNetwork):
    """flannel with its defaults: a bridge for pods, VXLAN between nodes."""

    file = "10-flannel.conflist"

    def install(self, nodes: list[Node], kubectl: Any) -> None:
        """Apply flannel's manifest, and wait until it has written its plugin lists."""
        for node in nodes:
            _copy_plugins(node)
            self.connect(node)
        kubectl("apply", "-f", "-", stdin=binaries.flannel_manifest().read_text())
        kubectl.rollout("daemonset/kube-flannel-ds", "kube-flannel")
        for node in nodes:
            self.lists[node.name] = self.list_on(node)


def other(name: str) -> OtherNetwork:
    """The network with a name."""
    return Flannel(name) if name == "flannel" else OtherNetwork(name)


def _copy_plugins(node: Node) -> None:
    plugins = node.folder / "opt-cni" / "bin"
    plugins.mkdir(exist_ok=True)
    for name in INSTALLED:
        shutil.copy(settings.OUT / "bin" / name, plugins / name)
