# SPDX-License-Identifier: Apache-2.0
"""An attacker takes over a node that is not in the chain. Other pods' keys, the pods and the leader
are not affected.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from e2e import chain
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.node import Node
from e2e.nodeapi import SPACE, own
from e2e.podprograms import Program

KEY, VALUE = f"ns/{SPACE}/guarded", "alice"

MEMORY = 256 << 10
"""Kilobytes by which the leader's agent may grow."""


def _memory(node: Node) -> int:
    """The kilobytes of memory of a node's agent."""
    return int(node.run("ps", "-C", "netcraq-agent", "-o", "rss=").split()[0])


def _exclude(cluster: Cluster, *nodes: str) -> None:
    """Make the chain continue without these nodes, and with all others."""
    spec = json.dumps({"spec": {"excludedNodes": list(nodes)}})
    cluster.kubectl("patch", "netcraqchain", chain.NAME, "--type=merge", "-p", spec)
    wanted = {node.name for node in cluster.nodes} - set(nodes)
    until("the chain has the others as members", lambda: set(chain.members(cluster.kubectl)) == wanted)


def worker(cluster: Cluster, seconds: float = 10) -> str:
    """The last node leaves the chain. Then root on that node sends everything through its tunnels
    that members accept from each other, while pods on the other nodes count.
    """
    bad, others = cluster.nodes[-1], cluster.nodes[:-1]
    _exclude(cluster, bad.name)

    def control(*words: str) -> Any:
        return json.loads(cluster.first.run("netcraqctl", "-o", "json", *words))

    key = control("chain", "add-key", KEY, VALUE)["keyId"]

    def cell() -> tuple[str, str]:
        found = control("get", str(key))
        return found["valueText"], found["version"]

    before, memory = cell(), _memory(cluster.first)
    switches = [f"10.0.255.{found['spec']['number']}" for found in cluster.kubectl.items("netcraqnodes")]
    addresses = [node.address for node in cluster.nodes]
    attack = {
        "--service": chain.status(cluster.kubectl)["serviceAddress"],
        "--switches": ",".join(switches),
        "--nodes": ",".join(addresses),
        "--victim": f"{cluster.first.address}:20035",
        "--key": str(key),
        "--value-bits": str(cluster.kubectl.json("get", "netcraqchain", chain.NAME)["spec"]["profile"]),
    }

    def counted(seconds: float) -> list[dict[str, Any]]:
        load = ("/testpod", "program", "load", "guarded", str(seconds), "5")
        running = [Program(cluster, SPACE, door.pod, *load) for door in own(cluster)[: len(others)]]
        return [one.result(seconds + 90) for one in running]

    alone = counted(6)
    words = [word for pair in attack.items() for word in pair]
    command = ["testpod", "attack", *words, "--seconds", str(seconds + 5), "tunnels"]
    with subprocess.Popen(bad.command(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as hostile:
        beside = counted(seconds)
        grown = _memory(cluster.first) - memory
        said = hostile.communicate(timeout=120)[0].strip()
    cluster.say(f"the hostile node: {said}")
    for found in (*alone, *beside):
        require(not found["wrong"], f"a pod's count is wrong: {found}")
        require(not found["failed"] and not found["unknown"], f"calls of a pod failed: {found}")
    after = cell()
    require(after == before, f"the key is {after}, and was {before}")
    require(grown < MEMORY, f"the leader's agent grew by {grown} kB")
    require(set(chain.members(cluster.kubectl)) == {node.name for node in others}, "the chain has other members")
    dropped = sum(control("switch", "counters", node.name)[0]["events"].get("drop_not_peer", 0) for node in others)
    require(dropped > 100, f"members dropped {dropped} messages that were no peer's: the test means nothing; {said}")
    control("chain", "remove-key", KEY)
    _exclude(cluster)
    until("the chain is whole again", lambda: chain.is_ready(cluster.kubectl))

    def told(found: list[dict[str, Any]]) -> str:
        return ", ".join(f"{1000 * one['median']:.1f} ms, p99 {1000 * one['p99']:.0f} ms" for one in found)

    return f"{said}; {dropped} were dropped by members; pods' increments: {told(beside)}; before: {told(alone)}; the leader grew by {grown} kB"
