# SPDX-License-Identifier: Apache-2.0
"""examples/kubernetes in the cluster, as its README says."""

from __future__ import annotations

import time

from e2e import cluster_images
from e2e.acceptance import pods, require
from e2e.cluster import Cluster
from e2e.kubectl import until

MANIFEST = cluster_images.EXAMPLE / "deployment.yaml"
REPLICAS = 3

HANDED_OVER = 30.0
"""Seconds from the deletion of the leader's pod to the next leader, at most. The leader resigns
when it is stopped, so nobody waits for its lease.
"""


def leaders(cluster: Cluster) -> list[str]:
    """The pods whose program says that it leads."""
    names = [pod["metadata"]["name"] for pod in pods(cluster, "election")]
    said = {name: cluster.kubectl.execute("logs", name, check=False).stdout for name in names}  # a pod may be starting
    return [name for name, lines in said.items() if f"{name} leads" in lines.splitlines()]


def election(cluster: Cluster) -> str:
    """The Deployment's replicas find the node API of their nodes; one leads. Its pod is deleted,
    and another one leads.
    """
    kubectl = cluster.kubectl
    kubectl("apply", "-f", str(MANIFEST))
    try:
        kubectl.rollout("deployment/election")
        running = pods(cluster, "election")
        require(len(running) == REPLICAS, f"the Deployment has {len(running)} pods, and not {REPLICAS}")
        until("one leads", lambda: leaders(cluster))
        first = leaders(cluster)
        require(len(first) == 1, f"several pods lead: {first}")
        shown = kubectl("logs", "-l", "app=election", "--prefix").splitlines()  # the README's command
        line = f"[pod/{first[0]}/election] {first[0]} leads"
        require(line in shown, f"kubectl logs shows {shown}, and not {line}")

        begin = time.monotonic()
        kubectl("delete", "pod", first[0], "--wait=true")
        until("another one leads", lambda: [name for name in leaders(cluster) if name != first[0]], every=0.2)
        took = time.monotonic() - begin
        second = leaders(cluster)
        require(len(second) == 1 and second != first, f"after {first} the leaders are {second}")
        require(took <= HANDED_OVER, f"the next one leads {took:.1f} s after the leader's pod was deleted")
        kubectl.rollout("deployment/election")
        restarts = {
            pod["metadata"]["name"]: status["restartCount"]
            for pod in pods(cluster, "election")
            for status in pod["status"]["containerStatuses"]
        }
        require(not any(restarts.values()), f"programs of the example failed and were started again: {restarts}")
        nodes = {pod["spec"]["nodeName"] for pod in running}
        return f"{REPLICAS} replicas on {len(nodes)} nodes, one leads; {took:.1f} s after its end another one does"
    finally:
        kubectl("delete", "-f", str(MANIFEST), "--wait=true")
