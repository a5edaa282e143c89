# SPDX-License-Identifier: Apache-2.0
"""The NetCRAQ chain, as its Kubernetes resource shows it."""

from __future__ import annotations

import time
from typing import Any

from e2e import cluster_images
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.gateway import ask
from e2e.kubectl import Kubectl, until

NAME = "main"


def status(kubectl: Kubectl) -> dict[str, Any]:
    """The chain's status; empty before the chain exists."""
    return kubectl.json("get", "netcraqchain", NAME).get("status", {})


def members(kubectl: Kubectl) -> list[str]:
    """The nodes of the chain, head first, if all of them are ready; otherwise none."""
    found = status(kubectl).get("members", [])
    return [member["node"] for member in found] if all(member["ready"] for member in found) else []


def is_ready(kubectl: Kubectl) -> bool:
    """Whether the chain serves, with the length in its specification."""
    found = {condition["type"]: condition["status"] for condition in status(kubectl).get("conditions", [])}
    return found.get("Ready") == found.get("FullLength") == "True"


PKI = (
    "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
    "--cert=/etc/kubernetes/pki/apiserver-etcd-client.crt",
    "--key=/etc/kubernetes/pki/apiserver-etcd-client.key",
)


ETCD = ("--endpoints=https://localhost:2379", *PKI)


def train(cluster: Cluster) -> None:
    """Train a dictionary on the cluster's own objects. Without it, large objects do not fit into a
    cell (docs/etcd.md).
    """
    cluster.first.run("sh", "-c", f"etcdctl {' '.join(ETCD)} get --prefix /registry/ -w json > /mnt/export.json")
    cluster.first.run("etcd-monitor", "dictionary", "train", "/mnt/export.json", *ETCD)


PLACED = "/netcraq/gateway/placed/"


def placed(cluster: Cluster, prefix: str = "") -> list[str]:
    """The etcd keys with a prefix that are in the network, according to etcd."""
    said = cluster.first.run("etcdctl", *ETCD, "get", "--prefix", PLACED + prefix, "--keys-only")
    return [line.removeprefix(PLACED) for line in said.splitlines() if line]


def forms(cluster: Cluster) -> str:
    """The chain forms from the nodes' switches."""
    train(cluster)
    kubectl, begin = cluster.kubectl, time.monotonic()
    kubectl("apply", "-f", str(cluster_images.DEPLOY / "chain.yaml"))
    until("the chain is ready", lambda: is_ready(kubectl))
    found = status(kubectl)
    require(len(found["members"]) == len(cluster.nodes), f"members: {found['members']}")
    roles = ", ".join(f"{member['node']} {member['role']}" for member in found["members"])
    return f"in {time.monotonic() - begin:.0f} s: {roles}; epoch {found['epoch']}, at {found['serviceAddress']}"


_before: list[int] = []


def settled(kubectl: Kubectl) -> int:
    """The number of placed keys, once it has almost stopped growing."""
    found = status(kubectl).get("placedKeys", 0)
    _before.append(found)
    return found if len(_before) > 1 and found > 20 and found <= 1.02 * _before[-2] else 0


def serves(cluster: Cluster) -> str:
    """Keys of the API server are placed, and the network answers reads of them."""
    kubectl = cluster.kubectl
    placed = until("keys are placed", lambda: settled(kubectl), every=5)
    before = ask(cluster.first)

    def answered() -> Any:
        kubectl.items("nodes")
        for name in [node.name for node in cluster.nodes]:
            kubectl.json("get", "node", name)
        found = ask(cluster.first) - before
        return found if found.network >= 10 else None

    found = until("the network answers", answered)
    return f"{placed} keys placed; of {found.gets} gets the network answered {found.network} ({found.share:.0%})"
