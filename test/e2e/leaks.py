# SPDX-License-Identifier: Apache-2.0
"""The traces that pods leave on a node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from e2e.node import Node


@dataclass
class Traces:
    """The traces of pods on a node. Each field has the entries that belong to pods."""

    interfaces: set[str] = field(default_factory=set)
    routes: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    attachments: set[str] = field(default_factory=set)
    rules: set[str] = field(default_factory=set)

    def __sub__(self, other: Traces) -> Traces:
        """The traces that are here and not in ``other``."""
        return Traces(**{name: mine - getattr(other, name) for name, mine in vars(self).items()})

    def __bool__(self) -> bool:
        """Whether there are any traces."""
        return any(vars(self).values())

    def __str__(self) -> str:
        """Formats the traces for a message."""
        return "; ".join(f"{name} {sorted(entries)}" for name, entries in vars(self).items() if entries) or "nothing"


def look(node: Node) -> Traces:
    """The traces on a node."""
    links = json.loads(node.run("ip", "-j", "link"))
    routes = json.loads(node.run("ip", "-j", "route", "show", "table", "all"))
    # host-local keeps a file for each address, containerd a mount for each namespace, and the agent
    # a file for each attachment.
    listing = node.run("sh", "-c", "ls /var/lib/cni/networks/*/ 2>/dev/null | grep -E '^[0-9]+\\.'; true").split()
    namespaces = node.run("sh", "-c", "ls /run/netns 2>/dev/null; true").split()
    records = node.run("sh", "-c", "ls /run/netcraq/attachments 2>/dev/null; true").split()
    rules = [
        line
        for line in node.run("sh", "-c", "iptables-save -t nat; true").splitlines()
        if "CNI-" in line or "HOSTPORT" in line
    ]
    return Traces(
        {
            link["ifname"]
            for link in links
            if link.get("linkinfo", {}).get("info_kind") == "veth" or link["ifname"].startswith("ncq")
        },
        {f"{route['dst']} dev {route.get('dev')}" for route in routes if route.get("dev", "").startswith("ncq")},
        set(listing),
        set(namespaces),
        set(records),
        set(rules),
    )
