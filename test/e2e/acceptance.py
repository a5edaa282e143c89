# SPDX-License-Identifier: Apache-2.0
"""The basic checks of a cluster. Each check raises CheckError, or returns its observation in one
line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from e2e import fixtures, install, leaks
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.node import Node, NodeError

Check = Callable[[Cluster], str]
STORM = 100


class CheckError(Exception):
    """The cluster is not in the state that a check requires."""


def require(condition: Any, what: str) -> None:
    """Raise CheckError if ``condition`` does not hold."""
    if not condition:
        raise CheckError(what)


def ready(cluster: Cluster) -> str:
    """All nodes are Ready, with only this CNI."""
    begin = time.monotonic()
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=240s")
    took = time.monotonic() - begin
    install.wait(cluster)
    for node in cluster.nodes:
        found = node.run("ls", "/etc/cni/net.d").split()
        require(found == ["10-netcraq.conflist"], f"{node.name} has other networks than NetCRAQ's: {found}")
    return f"{len(cluster.nodes)} nodes Ready {took:.0f} s after the CNI was installed"


def system(cluster: Cluster) -> str:
    """The components that kubeadm installs run."""
    cluster.kubectl.rollout("daemonset/kube-proxy", "kube-system")
    cluster.kubectl.rollout("deployment/coredns", "kube-system")
    return "kube-proxy and CoreDNS run"


def pods(cluster: Cluster, *apps: str) -> list[dict[str, Any]]:
    """The pods of ``apps``."""
    return cluster.kubectl.items("pods", "-l", f"app in ({','.join(apps)})")


def network(cluster: Cluster) -> str:
    """Pods reach pods of the same node and of others, and services by address and by name. The
    outside reaches services through any node.
    """
    kubectl = cluster.kubectl
    kubectl.apply(fixtures.daemon_set("web"), fixtures.daemon_set("peer"), fixtures.service("web", fixtures.NODE_PORT))
    for app in ("web", "peer"):
        kubectl.rollout(f"daemonset/{app}")
    web, peers = pods(cluster, "web"), pods(cluster, "peer")
    require(
        len(web) == len(peers) == len(cluster.nodes), f"{len(web)} and {len(peers)} pods for {len(cluster.nodes)} nodes"
    )
    address = kubectl.json("get", "service", "web")["spec"]["clusterIP"]
    services = [
        f"http://{address}/",
        "http://web.default.svc.cluster.local/",
        f"http://{cluster.nodes[-1].address}:{fixtures.NODE_PORT}/",
    ]
    urls = [f"http://{pod['status']['podIP']}:8080/" for pod in web] + services
    names = [pod["metadata"]["name"] for pod in web]

    def shared(source: str) -> bool:
        # kube-proxy chooses a backend for each connection.
        answer = kubectl.inside(source, "/testpod", "get", *([services[0]] * 40), check=False).stdout
        return all(name in answer for name in names)

    # kube-proxy learns of ready pods a moment after the API server.
    for source in peers:
        until(
            f"each of the service's pods answers on {source['spec']['nodeName']}",
            lambda name=source["metadata"]["name"]: shared(name),
        )
    asked = 0
    for source in peers:
        answer = kubectl.inside(source["metadata"]["name"], "/testpod", "get", *urls, check=False)
        require(answer.returncode == 0, f"from {source['spec']['nodeName']}: {answer.stdout}{answer.stderr}")
        for pod in web:
            line = next(
                line for line in answer.stdout.splitlines() if line.startswith(f"http://{pod['status']['podIP']}:")
            )
            require(pod["metadata"]["name"] in line, f"another pod answered: {line}")
            require(source["status"]["podIP"] in line, f"the address was changed on the way: {line}")
        asked += len(urls)
    for node in cluster.nodes:
        answer = cluster.lan.run("curl", "-sS", "--max-time", "10", f"http://{node.address}:{fixtures.NODE_PORT}/")
        require("web-" in answer, f"{node.name}'s port {fixtures.NODE_PORT}: {answer!r}")
    found = kubectl.inside(
        peers[-1]["metadata"]["name"], "/testpod", "lookup", "kubernetes.default.svc.cluster.local"
    ).stdout
    require("10.96.0.1" in found, f"DNS says {found!r}")
    return f"{asked} requests from pods, to pods of the same and of other nodes, services, names; {len(cluster.nodes)} from outside"


def storm(cluster: Cluster) -> str:
    """Many pods are created and deleted, and leave nothing behind."""
    kubectl = cluster.kubectl
    before = {node.name: leaks.look(node) for node in cluster.nodes}
    kubectl.apply(fixtures.deployment("storm", 0, probe=False))
    begin = time.monotonic()
    kubectl("scale", "deployment/storm", f"--replicas={STORM}")
    kubectl.rollout("deployment/storm", seconds=600)
    up = time.monotonic() - begin
    addresses = [pod["status"]["podIP"] for pod in pods(cluster, "storm")]
    require(len(set(addresses)) == STORM, f"{len(set(addresses))} addresses for {STORM} pods")
    begin = time.monotonic()
    kubectl("scale", "deployment/storm", "--replicas=0")
    until("the pods go", lambda: not pods(cluster, "storm"), 600)
    # The API server drops pods seconds before the runtime has removed the last of them.
    for node in cluster.nodes:
        until(f"{node.name} is as before", lambda node=node: _as_before(node, before[node.name]), 300)
    kubectl("delete", "deployment/storm")
    return f"{STORM} pods up in {up:.0f} s, down and nothing left in {time.monotonic() - begin:.0f} s"


def _as_before(node: Node, before: leaks.Traces) -> bool:
    """Whether a node has no traces of pods that it did not have before. Otherwise raises NodeError,
    which names the leftovers.
    """
    left = leaks.look(node) - before
    if left:
        raise NodeError(f"{node.name} keeps {left}")
    return True
