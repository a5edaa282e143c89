# SPDX-License-Identifier: Apache-2.0
"""The node API's keys after all agents of a cluster have ended at once."""

from __future__ import annotations

import time

from e2e import chain, install
from e2e.acceptance import CheckError, require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.nodeapi import Door, own
from e2e.podprograms import pod

LASTING = "door-lasting"
"""A namespace whose keys are durable."""


def lasting(cluster: Cluster) -> str:
    """All agents are killed at once. Afterwards, a durable namespace's keys have their values. A
    volatile namespace's keys read as deleted, or have their values if a switch has kept them, and
    can be written again.
    """
    kubectl = cluster.kubectl
    metadata = {"name": LASTING, "annotations": {"netcraq.io/keys": "durable"}}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    until("the namespace has a service account", lambda: kubectl.items("serviceaccounts", "-n", LASTING))
    ends = (cluster.nodes[0], cluster.nodes[-1])
    for node in ends:
        kubectl.apply(pod(LASTING, f"own-{node.name}", node.name))
    for node in ends:
        kubectl("wait", "-n", LASTING, f"pod/own-{node.name}", "--for=condition=Ready", "--timeout=120s")
    here, there = (Door(cluster, LASTING, f"own-{node.name}") for node in ends)
    require(here.one("hello")["durable"], "an annotated namespace is not durable")
    version = here.one("put", key="color", value="gold")["version"]
    require(there.one("get", key="color")["value"] == "gold", "another node reads another value")
    counted = [int(door.one("increment", key="count")["value"]) for door in (here, there, here)]
    require(counted == [counted[0] + n for n in range(3)], f"counts of two nodes: {counted}")
    volatile = own(cluster)[0]
    before = volatile.one("put", key="lasting", value="silver")["version"]

    begin = time.monotonic()
    for node in cluster.nodes:
        node.run("sh", "-c", "kill -KILL $(pidof netcraq-agent) || true")
    until("durable keys are read again", lambda: _readable(there, "color") and _readable(here, "color"), every=0.2)
    again = time.monotonic() - begin
    found = there.one("get", key="color")
    require((found["value"], found["version"]) == ("gold", version), f"it was gold in {version}: {found}")
    require(int(here.one("increment", key="count")["value"]) == counted[2] + 1, "a count has changed")
    install.wait(cluster)
    until("the chain is whole", lambda: chain.is_ready(kubectl))
    until("volatile keys are read again", lambda: _readable(volatile, "lasting"))
    left = volatile.one("get", key="lasting")
    require(
        (left["found"] and left["version"] == before) or (not left["found"] and _newer(left["version"], before)),
        f"a volatile key had {before}: {left}",
    )
    after = volatile.one("put", key="lasting", value="tin")["version"]
    require(_newer(after, left["version"]), f"it is written in {after}, after {left}")
    kubectl("delete", "namespace", LASTING, "--wait=false")
    kept = "was kept" if left["found"] else f"reads as deleted in {left['version']}, was {before}"
    return f"all agents killed: durable keys are read after {again:.0f} s, as they were; a volatile one {kept}"


def _readable(door: Door, key: str) -> bool:
    try:
        return "data" in door.ask(("get", {"key": key}))[0]
    except CheckError:  # nothing listens
        return False


def _newer(version: str, before: str) -> bool:
    return [int(part) for part in version.split(".")] > [int(part) for part in before.split(".")]
