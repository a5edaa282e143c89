# SPDX-License-Identifier: Apache-2.0
"""A hostile pod attacks the node API without success, and other pods continue."""

from __future__ import annotations

from typing import Any

from e2e import install
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.nodeapi import SPACE, own
from e2e.podprograms import Program, pod

HOSTILE = "door-siege"
"""The namespace of the hostile pod."""

SECONDS = 12
"""How long it besieges the socket."""

PROBE = 6
"""How long others are looked at, before and meanwhile."""

MEMORY = 1 << 20
"""Kilobytes that an agent may have then."""


def _agents(cluster: Cluster) -> dict[str, Any]:
    """The number of restarts of each agent's container."""
    return {
        found["metadata"]["name"]: found["status"]["containerStatuses"][0]["restartCount"]
        for found in cluster.kubectl.items("pods", "-n", install.NAMESPACE)
    }


def siege(cluster: Cluster) -> str:
    """A pod floods the socket with requests and connections, forges frames, reads no answers, and
    requests another namespace's keys. Another pod on the same node continues.
    """
    kubectl, node = cluster.kubectl, cluster.nodes[-1]
    door = own(cluster)[-1]
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTILE}})
    until("the namespace has a service account", lambda: kubectl.items("serviceaccounts", "-n", HOSTILE))
    kubectl.apply(pod(HOSTILE, "hostile", node.name))
    kubectl("wait", "-n", HOSTILE, "pod/hostile", "--for=condition=Ready", "--timeout=120s")
    agents, before = _agents(cluster), door.one("getMany", keys=["color", "count"])
    held = door.one("get", key="color")

    def probe() -> dict[str, Any]:
        found = Program(cluster, SPACE, door.pod, "/testpod", "program", "load", "beside", str(PROBE), "5").result()
        require(not found["wrong"], f"beside a hostile pod: {found}")
        return found

    alone = probe()
    hostile = Program(cluster, HOSTILE, "hostile", "/testpod", "besiege", SPACE, str(SECONDS))
    until("it besieges the socket", lambda: _connections(cluster) > 500, every=0.2)
    beside = probe()
    memory = int(node.run("ps", "-C", "netcraq-agent", "-o", "rss=").split()[0])
    found = hostile.result()
    cluster.say(f"the hostile pod: {found}")
    require(not found["breaches"], f"a pod of {HOSTILE} gets at {SPACE}: {found['breaches']}")
    require(found["refusals"].get("permission_denied", 0) > 100, f"it was hardly refused anything: {found}")
    require(not beside["failed"] and not beside["unknown"], f"a pod beside it is not served: {beside}")
    require(beside["done"] >= 50, f"a pod beside it hardly gets on: {beside}")
    require(memory < MEMORY, f"the agent has {memory} kB")
    require(_agents(cluster) == agents, f"agents were started anew: {_agents(cluster)}, before {agents}")
    after = door.one("getMany", keys=["color", "count"])
    require(after == before and door.one("get", key="color") == held, f"{SPACE}'s keys are others: {after}, {before}")
    until("its connections are gone", lambda: _connections(cluster) < 100)
    kubectl("delete", "namespace", HOSTILE, "--wait=false")
    refused = sum(found["refusals"].values())
    return (
        f"{found['requests']} requests, {found['forged']} forged frames, {found['connections']} connections "
        f"({found['turnedAway']} turned away), {refused} tries at another namespace got nowhere; a pod beside it: "
        f"{_told(beside)}, before {_told(alone)}; the agent had {memory // 1024} MB"
    )


def _told(found: dict[str, Any]) -> str:
    rate = found["done"] / PROBE
    return f"{rate:.0f} increments a second, median {1000 * found['median']:.1f} ms, p99 {1000 * found['p99']:.0f} ms"


def _connections(cluster: Cluster) -> int:
    """The number of open connections to the last node's agent."""
    node = cluster.nodes[-1]
    text = node.run("curl", "-sS", "--max-time", "10", f"http://{node.address}:9561/metrics")
    lines = [line for line in text.splitlines() if line.startswith("netcraq_nodeapi_connections ")]
    return int(float(lines[0].split()[1])) if lines else 0
