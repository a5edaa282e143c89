# SPDX-License-Identifier: Apache-2.0
"""On a cluster of three control-plane nodes, kill, pause and cut off programs and nodes, one after
the other, for any time, and record the histories of all API servers.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from e2e import chain
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.controlplanes import CONFIRMED, answers, etcd_leader, kill, leader, wait_whole
from e2e.histories import Histories, require_answers
from e2e.kubectl import until
from e2e.node import Node

PAUSE = 8
"""Seconds for which a program is stopped, or a node is cut off or without power: longer than
etcd's election takes, and longer than a member of the chain may be silent.
"""

Fault = Callable[[Cluster, Node], None]


def _stop(program: str) -> Fault:
    def fault(_: Cluster, node: Node) -> None:
        node.run("sh", "-c", f"pids=$(pidof {program}) && kill -STOP $pids && sleep {PAUSE}; kill -CONT $pids")

    return fault


def _kill(program: str) -> Fault:
    return lambda _, node: kill(node, program)


def _power(cluster: Cluster, node: Node) -> None:
    node.power_off()
    time.sleep(PAUSE)
    node.start()
    cluster.wait_node(node)


def _cut(cluster: Cluster, node: Node) -> None:
    with cluster.lan.cut({node.index: node.number}):
        time.sleep(PAUSE)


FAULTS: dict[str, Fault] = {
    "kill API server": _kill("kube-apiserver"),
    "kill gateway": _kill("etcd-monitor"),
    "kill etcd": _kill("etcd"),
    "kill agent": _kill("netcraq-agent"),
    "stop gateway": _stop("etcd-monitor"),
    "stop etcd": _stop("etcd"),
    "stop agent": _stop("netcraq-agent"),
    "power": _power,
    "cut": _cut,
}
"""The faults of a node. Half of the time, the node is one that leads."""

ONLY_CHAIN = ("kill agent", "stop agent")
"""Faults during which the watches of the node's API server must stay current."""

ALL_COME = 900
"""Seconds within which each kind of fault must occur: enough for a round on a busy machine."""


def _victim(cluster: Cluster, name: str, chance: random.Random) -> Node:
    if chance.random() < 0.5:
        return chance.choice(cluster.controls)
    return cluster.node(leader(cluster)) if "agent" in name else etcd_leader(cluster)


def kills(cluster: Cluster, seconds: float = 60) -> str:
    """Inject faults for some seconds, one after the other, each after the cluster has recovered.
    Each round has all kinds of faults, in a random order.
    """
    until("keys are placed", lambda: chain.settled(cluster.kubectl), every=5)
    seed = time.time_ns() % 1_000_000
    cluster.say(f"kills for {seconds:.0f} s: seed {seed}")
    chance, whole_after, round_ = random.Random(seed), defaultdict[str, list[float]](list), list[str]()
    end = time.monotonic() + seconds
    with Histories(cluster) as histories:
        while time.monotonic() < end:
            if not round_:
                round_ = chance.sample(list(FAULTS), len(FAULTS))
            name = round_.pop()
            victim = _victim(cluster, name, chance)
            excused = name not in ONLY_CHAIN
            if excused:
                histories.excuse(victim)
            histories.mark(f"{name} {victim.name}")
            FAULTS[name](cluster, victim)
            begin = time.monotonic()
            if excused:
                until(f"{victim.name}'s API server is ready", lambda node=victim: answers(cluster, node), 300, 0.5)
                histories.expect(victim)
            wait_whole(cluster)
            took = time.monotonic() - begin
            whole_after[name].append(took)
            cluster.say(f"{name} {victim.name}: whole after {took:.1f} s")
            time.sleep(chance.uniform(1, 6))
    require_answers(histories, cluster.controls, CONFIRMED)
    return f"{_told(whole_after, seconds)} (seed {seed}); {histories.summary()}"


def _told(whole_after: Mapping[str, Sequence[float]], seconds: float) -> str:
    """A summary of the faults, with the longest recovery of each kind. Raises CheckError if a kind
    of fault did not occur although there was time for it.
    """
    left = [name for name in FAULTS if name not in whole_after]
    require(not left or seconds < ALL_COME, f"in {seconds:.0f} s there was no {', no '.join(left)}")
    require(len(whole_after) > 0, "nothing was killed")
    kinds = ", ".join(f"{len(took)} {name} ({max(took):.0f} s)" for name, took in sorted(whole_after.items()))
    return (
        f"{sum(map(len, whole_after.values()))} faults in {seconds:.0f} s, all whole after each (after so long at most): {kinds}"
        + (f"; time for no {', no '.join(left)}" if left else "")
    )
