# SPDX-License-Identifier: Apache-2.0
"""Actions that the cluster must deny to a pod and to an agent's own account."""

from __future__ import annotations

from e2e.acceptance import pods, require
from e2e.cluster import Cluster
from e2e.install import NAMESPACE

INTERFACES = {
    "https://{}:9559/": "P4Runtime",
    "https://{}:9560/v1/pods": "the agent for the leader",
    "http://{}:9559/": "P4Runtime without TLS",
    "http://{}:20036/v1/chains": "the controller's admin API",
    "https://{}:23790/health": "the etcd gateway",
    "http://{}:23791/metrics": "the gateway's metrics",
}
"""Control interfaces of a node, from which no pod may get an answer."""

FORBIDDEN = (
    ("get", "secrets", "kube-system"),
    ("list", "secrets", NAMESPACE),
    ("get", "secrets/netcraq-authority", NAMESPACE),
    ("create", "secrets", NAMESPACE),
    ("update", "configmaps/netcraq-authorities", NAMESPACE),
    ("update", "certificatesigningrequests.certificates.k8s.io/approval", ""),
    ("update", "certificatesigningrequests.certificates.k8s.io/status", ""),
    ("create", "pods", "default"),
    ("get", "pods", "default"),
    ("update", "nodes", ""),
    ("patch", "nodes/status", ""),
    ("update", "netcraqchains", ""),
    ("update", "leases/netcraq-leader", NAMESPACE),
    ("create", "clusterrolebindings", ""),
)
"""Actions that a worker's agent may not do: verb, resource, namespace."""

ALLOWED = (
    ("list", "nodes", ""),
    ("get", "configmaps/netcraq-authorities", NAMESPACE),
    ("create", "certificatesigningrequests.certificates.k8s.io", ""),
    ("update", "netcraqnodes/status", ""),
)
"""Actions that a worker's agent may do. They show that the test asks the API server correctly."""


def security(cluster: Cluster) -> str:
    """A pod reaches none of the nodes' control interfaces, a worker's agent has few rights, and
    only root can use the socket.
    """
    pod = pods(cluster, "peer")[0]["metadata"]["name"]
    refused = 0
    for node in cluster.nodes:
        urls = [form.format(node.address) for form in INTERFACES]
        lines = cluster.kubectl.inside(pod, "/testpod", "get", *urls, check=False).stdout.splitlines()
        require(len(lines) == len(urls), f"a pod asks {len(urls)} interfaces of {node.name}, and hears {lines}")
        for url, what, line in zip(urls, INTERFACES.values(), lines, strict=True):
            # otherwise the line is the answer's text
            require(line.startswith(f'{url}: Get "'), f"a pod gets an answer of {what} on {node.name}: {line}")
        refused += len(urls)
    account = f"system:serviceaccount:{NAMESPACE}:netcraq-agent"
    for expected, questions in (("no", FORBIDDEN), ("yes", ALLOWED)):
        for verb, resource, namespace in questions:
            where = ("-n", namespace) if namespace else ()
            kind, _, name = resource.partition("/")
            what = (f"--subresource={name}", kind) if name in ("status", "approval") else (resource,)
            said = cluster.kubectl.execute(
                "auth", "can-i", verb, *what, *where, f"--as={account}", check=False
            ).stdout.split()
            require(said[:1] == [expected], f"may a worker's agent {verb} {resource} {namespace}? {said}")
    for node in cluster.nodes:
        modes = node.run("stat", "-c", "%a %U", "/run/netcraq", "/run/netcraq/agent.sock").split("\n")
        require(modes[1] == "600 root", f"{node.name}'s socket is {modes}")
    return f"{refused} requests of a pod to control interfaces refused; {len(FORBIDDEN)} rights that a worker's agent has not"
