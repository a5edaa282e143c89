# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ chained after another CNI plugin, which is the cluster's network. That plugin continues
to work as before, as fast as before, and is alone again when NetCRAQ is removed.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Sequence

from e2e import acceptance, chain, fixtures, install, nodeapi
from e2e.acceptance import pods, require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.node import Node, NodeError

TURNS = 15
"""Pairs of measurements of each kind: one without NetCRAQ, one with it."""

ROUNDS = 4
"""On a busy machine, up to this many times TURNS pairs are measured, until the result is LEAST."""

LEAST = 0.97
"""The least accepted speed with NetCRAQ, as a part of the speed without it."""

SETTLE = 5
"""A node that has not changed for this many seconds counts as stable."""

_before: dict[str, tuple[int, str]] = {}
"""By node name: the first process and the picture of the node before NetCRAQ was installed."""

OF_A_POD = re.compile(r"\bveth[0-9a-f]+\b")
"""Matches the name of the node's end of a pod's interface."""

MADE_ANEW = (
    (OF_A_POD, "veth"),
    (re.compile(r"^([^:]+: )\d+: "), r"\1"),  # an interface's index
    (re.compile(r"@if\d+\b"), "@if"),
    (re.compile(r"\blink-netns(?:id)? \S+"), "link-netns"),
    (re.compile(r"\b8000\.(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}\b"), "BRIDGE"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"), "MAC"),
    (re.compile(r"\bfe80::[0-9a-f:]+"), "LINK-LOCAL"),
    # whether a bridge has an active port, because the pods may be on other nodes than before
    (re.compile(r"\bNO-CARRIER,|,LOWER_UP\b| linkdown\b"), ""),
    (re.compile(r"\bstate (?:UP|DOWN|UNKNOWN)\b"), "state"),
)
"""Properties that differ whenever an interface is made again, and what replaces them."""

OF_ANOTHER_POD = (
    (re.compile(r"\b\d+(?:\.\d+){3}\b"), "ADDRESS"),
    (re.compile(r"\bport_(id|no) 0x[0-9a-f]+\b"), r"port_\1"),
    (re.compile(r"\bdesignated_port \d+\b"), "designated_port"),
)
"""Properties in which another pod's interface differs as well."""


def there(cluster: Cluster) -> str:
    """The other plugin's network works, and has pods that are older than NetCRAQ's installation."""
    kubectl = cluster.kubectl
    kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=240s")
    kubectl.apply(fixtures.daemon_set("plain"))
    kubectl.rollout("daemonset/plain")
    acceptance.system(cluster)  # includes a lookup of service names
    found = acceptance.network(cluster)
    kubectl("delete", "daemonset", "web", "peer")
    until("the tests' pods are gone", lambda: not pods(cluster, "web", "peer"))
    for node in cluster.nodes:
        seen = until(f"the pods' interfaces on {node.name} are gone", lambda node=node: _settled(node))
        _before[node.name] = node.pid, seen
    return f"{len(cluster.nodes)} nodes Ready with {cluster.other.name}; {found}"


def joins(cluster: Cluster) -> str:
    """NetCRAQ's agents chain themselves after the existing plugin."""
    begin = time.monotonic()
    install.install(cluster)
    install.wait(cluster)
    for node in cluster.nodes:

        def last(node: Node = node) -> bool:
            types = [plugin["type"] for plugin in json.loads(cluster.other.list_on(node))["plugins"]]
            return types[-1] == "netcraq-cni" and types.count("netcraq-cni") == 1 and types[0] == cluster.other.name

        until(f"netcraq-cni is in {node.name}'s list", last)
        found = node.run("ls", "/etc/cni/net.d").split()
        require(len(found) == 1, f"{node.name} has other files than the other plugin's: {found}")
        routes = node.run("ip", "route", "show", "proto", "78")
        require(not routes, f"{node.name} has routes of NetCRAQ's to pods: {routes}")
        require(" ncqvx" not in node.run("ip", "-o", "link"), f"{node.name} has NetCRAQ's tunnels for pods")
    return f"agents ready and in each node's list {time.monotonic() - begin:.0f} s after the manifests"


def speed(cluster: Cluster) -> str:
    """Pods with a port at the switch are as fast as pods from before NetCRAQ's installation. The
    two take turns, between pods of two nodes and of one node.
    """
    kubectl = cluster.kubectl
    kubectl.apply(fixtures.daemon_set("ported"))
    kubectl.rollout("daemonset/ported")
    at = {(app, pod["spec"]["nodeName"]): pod for app in ("plain", "ported") for pod in pods(cluster, app)}
    first, second = cluster.nodes[-2].name, cluster.nodes[-1].name
    said = []
    for verb, unit in (("pour", "bytes a second"), ("dials", "connections a second")):

        def measure(app: str, verb: str = verb) -> float:
            server = at[app, second]["status"]["podIP"]
            client = at[app, first]["metadata"]["name"]
            return float(kubectl.inside(client, "/testpod", verb, f"http://{server}:8080/", "0.5").stdout)

        ratios: list[float] = []
        rates: dict[str, list[float]] = {"plain": [], "ported": []}
        for turn in range(TURNS * ROUNDS):
            if turn and turn % TURNS == 0 and statistics.median(ratios) >= LEAST:
                break
            for app in ("plain", "ported") if turn % 2 else ("ported", "plain"):
                rates[app].append(measure(app))
            ratios.append(rates["ported"][-1] / rates["plain"][-1])
        ratio = statistics.median(ratios)
        require(ratio >= LEAST, f"{unit}: {ratio:.3f} of what it is without NetCRAQ, in {len(ratios)} pairs: {ratios}")
        said.append(
            f"{unit} {statistics.median(rates['ported']):.3g}, without {statistics.median(rates['plain']):.3g}: "
            f"ratio {ratio:.3f} (median of {len(ratios)} pairs, {min(ratios):.2f} to {max(ratios):.2f})"
        )
    kubectl("delete", "daemonset/ported")
    return "; ".join(said)


def leaves(cluster: Cluster) -> str:
    """After NetCRAQ's removal, the other plugin's files and interfaces are as before, and its pods
    run. NetCRAQ leaves only a binary that nothing calls. On a node that was switched off in
    between, changes from the restart do not count: see :func:`but_for_a_start`.
    """
    kubectl = cluster.kubectl
    kubectl("delete", "netcraqchain", "--all")
    until("no key is in the network", lambda: not chain.placed(cluster))
    nodeapi.tidy(cluster)
    kubectl.apply(fixtures.daemon_set("web"), fixtures.daemon_set("peer"))
    for app in ("web", "peer"):
        kubectl.rollout(f"daemonset/{app}")
    anew = [node.name for node in cluster.nodes if node.pid != _before[node.name][0]]
    begin = time.monotonic()
    kubectl("delete", "-k", install.manifests(cluster), "--ignore-not-found", "--timeout=180s")
    for node in cluster.nodes:
        until(f"{node.name}'s list is as it was", lambda node=node: _list_as_it_was(cluster, node), 120)
        until(f"{node.name} is clean", lambda node=node: _clean(node), 60)
    took = time.monotonic() - begin
    talk = acceptance.network(cluster)  # uses pods that had a port
    kubectl("delete", "daemonset", "web", "peer")
    until("the tests' pods are gone", lambda: not pods(cluster, "web", "peer"))
    for node in cluster.nodes:
        until(f"{node.name}'s interfaces are as they were", lambda node=node: _as_it_was(node, anew), 120)
    started = f" (but for what a start of {', '.join(anew)} changes)" if anew else ""
    return (
        f"lists and interfaces as they were{started} {took:.0f} s after the manifests were deleted, "
        f"no command on a node; {talk}"
    )


def picture(node: Node) -> str:
    """The other plugin's interfaces on a node: links, addresses, routes, queueing disciplines,
    filters and programs, without those that belong to single pods.
    """
    seen = []
    for command in (
        "ip -d -o link",
        "ip -o address",
        "ip route show table all",
        "ip rule",
        "tc qdisc",
        "tc filter show dev eth0 ingress",
    ):
        said = node.execute(command.split(), check=False).stdout
        said = re.sub(r"(\w+_timer) +[\d.]+", r"\1", said)  # bridge timers, which count down all the time
        seen += [f"{command}: {' '.join(line.split())}" for line in said.splitlines()]
    return "\n".join(sorted(seen))


def but_for_a_start(seen: str, *, here: bool) -> str:
    """A node's picture without what a restart of nodes changes. On all nodes the pods are new ones,
    whose interfaces differ only in names and addresses. On the restarted node (``here``) all
    interfaces are new.
    """
    lines = set()
    for line in seen.splitlines():
        pod = OF_A_POD.search(line) is not None
        for pattern, instead in (*(MADE_ANEW if pod or here else ()), *(OF_ANOTHER_POD if pod else ())):
            line = pattern.sub(instead, line)
        lines.add(line)
    return "\n".join(sorted(lines))


def _settled(node: Node) -> str:
    """The picture of a node if it is stable for a while; otherwise an empty string."""
    first = picture(node)
    time.sleep(SETTLE)
    return first if picture(node) == first else ""


def _as_it_was(node: Node, anew: Sequence[str]) -> bool:
    """Raise NodeError if a node has changed. ``anew`` are the nodes restarted in between."""
    now, before = picture(node), _before[node.name][1]
    if anew:
        now, before = (but_for_a_start(seen, here=node.name in anew) for seen in (now, before))
    more, less = set(now.splitlines()) - set(before.splitlines()), set(before.splitlines()) - set(now.splitlines())
    if more or less:
        raise NodeError(f"{node.name} has {sorted(more)}, and had {sorted(less)}")
    return True


def _list_as_it_was(cluster: Cluster, node: Node) -> bool:
    found = cluster.other.list_on(node)
    if found != cluster.other.lists[node.name]:
        raise NodeError(f"{node.name}: {found}")
    files = node.run("ls", "/etc/cni/net.d").split()
    if len(files) != 1:
        raise NodeError(f"{node.name}: {files}")
    return True


def _clean(node: Node) -> bool:
    left = [line for line in node.run("ip", "-o", "link").splitlines() if ": ncq" in line]
    left += [line for line in node.run("ip", "route", "show", "table", "all").splitlines() if "ncq" in line]
    left += [
        line for line in node.execute(["nft", "list", "tables"], check=False).stdout.splitlines() if "netcraq" in line
    ]
    if left:
        raise NodeError(f"{node.name} keeps {left}")
    return True
