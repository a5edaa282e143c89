# SPDX-License-Identifier: Apache-2.0
"""A node loses its power while objects are written, and gets it back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any

from e2e import chain, coordination, fixtures
from e2e.acceptance import pods, require
from e2e.api import Api, ApiError
from e2e.cluster import Cluster
from e2e.kubectl import Kubectl, until

APP = "spread"
REPLICAS = 6
ELECTION = 40
"""Seconds for which pods want to lead."""

PATH = "/api/v1/namespaces/default/configmaps"


class Writer(threading.Thread):
    """Creates and changes objects, one after the other, and remembers the acknowledged writes."""

    def __init__(self, api: Api, acknowledged: dict[str, int] | None = None) -> None:
        super().__init__(daemon=True)
        self.acknowledged = dict(acknowledged or {})
        self.refused: list[str] = []
        self.longest = 0.0
        """Seconds of the longest wait for an acknowledgement."""
        self._api = api
        self._end = threading.Event()

    def run(self) -> None:
        """Write until :meth:`stop`."""
        number = 0
        while not self._end.is_set():
            number += 1
            begin = time.monotonic()
            try:
                self._write(number)
            except (ApiError, OSError, HTTPException) as error:
                self.refused.append(f"{number}: {error}")
            self.longest = max(self.longest, time.monotonic() - begin)
            self._end.wait(0.1)

    def once(self) -> bool:
        """Write once; whether the write is acknowledged."""
        try:
            self._write(5_000_000)  # an object that does not exist yet
        except (ApiError, OSError, HTTPException):
            return False
        return True

    def _write(self, number: int) -> None:
        """Write an object. Four of five writes change an object, and one creates a new one. A
        failed write may have been executed or not.
        """
        name = f"written-{number // 5}"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"number": str(number)},
        }
        if name in self.acknowledged:
            self._api.merge(f"{PATH}/{name}", {"data": {"number": str(number)}})
        else:
            self._api.request("POST", PATH, body)
        self.acknowledged[name] = number

    def stop(self) -> None:
        """Stop writing."""
        self._end.set()
        self.join(120)

    def lost(self) -> list[str]:
        """The acknowledged writes that are missing."""
        return [
            f"{name}: {found}, not {number}"
            for name, number in list(self.acknowledged.items())
            if (found := self._number(name)) < number
        ]

    def _number(self, name: str) -> int:
        return int(self._api.get(f"{PATH}/{name}")["data"]["number"])


def power_off(cluster: Cluster) -> str:
    """A node is switched off. The chain continues without it, its pods start on other nodes, and
    one of those pods leads. No acknowledged write is lost. When the node is back, it is a member
    again.
    """
    kubectl, victim = cluster.kubectl, cluster.nodes[-1]
    kubectl.apply(fixtures.deployment(APP, REPLICAS))
    kubectl.rollout(f"deployment/{APP}")
    with Api(cluster.first) as api:
        writer = Writer(api)
        writer.start()
        until("some objects are written", lambda: len(writer.acknowledged) > 5, every=0.1)
        election = coordination.Election(cluster, ELECTION)
        begin, died = time.monotonic(), time.time()
        victim.power_off()
        failed_over = until("the chain goes on without it", lambda: _without(kubectl, victim.name), every=0.2) - begin
        led_after = election.passed_on(died)
        elsewhere = until("its pods are made elsewhere", lambda: _elsewhere(cluster, victim.name)) - begin
        lost_while_away = writer.lost()
        begin = time.monotonic()
        victim.start()
        cluster.wait_node(victim)
        until("the node is Ready", lambda: _ready(kubectl, victim.name))
        back = time.monotonic() - begin
        recovered = until("the chain has it again", lambda: chain.is_ready(kubectl) and time.monotonic()) - begin
        require(victim.name in chain.members(kubectl), f"{victim.name} is not among {chain.members(kubectl)}")
        writer.stop()
        lost = lost_while_away + writer.lost()
    election.judge(died)
    patience = coordination.after_death(coordination.LEADER_TTL) + failed_over + coordination.SLACK
    require(
        led_after <= patience, f"another pod led {led_after:.1f} s after the leader's node had died, not {patience}"
    )
    require(not lost, f"acknowledged writes are lost: {lost}")
    written = max(writer.acknowledged.values())
    kubectl("delete", f"deployment/{APP}")
    kubectl("delete", "configmap", *writer.acknowledged)
    return (
        f"chain without it after {failed_over:.1f} s, its pods elsewhere after {elsewhere:.0f} s; back: Ready after {back:.0f} s, in the chain after "
        f"{recovered:.0f} s; {written} writes, {len(writer.refused)} refused, none lost, the slowest took {writer.longest:.1f} s; "
        f"another pod led {led_after:.1f} s after the one that did, with a time to live of {coordination.LEADER_TTL:.0f} s"
    )


def blackout(cluster: Cluster) -> str:
    """All nodes lose their power at once, and get it back. The switches are empty, but all
    acknowledged writes are there.
    """
    kubectl = cluster.kubectl
    with Api(cluster.first) as api:
        writer = Writer(api)
        writer.start()
        until("some objects are written", lambda: len(writer.acknowledged) > 5, every=0.1)
        for node in reversed(cluster.nodes):
            node.power_off()
        writer.stop()
    begin = time.monotonic()
    cluster.start_nodes(cluster.nodes)
    until("the API server answers", lambda: kubectl.items("nodes"), every=0.5)
    answers = time.monotonic() - begin
    with Api(cluster.first) as api:
        after = Writer(api)
        until("objects can be written", lambda: after.once(), every=0.5)
        writes = time.monotonic() - begin
        until("all nodes are Ready", lambda: all(_ready(kubectl, node.name) for node in cluster.nodes))
        until("the chain is whole", lambda: chain.is_ready(kubectl))
        whole = time.monotonic() - begin
        lost = Writer(api, writer.acknowledged).lost()
        require(not lost, f"acknowledged writes are lost: {lost}")
    written = {**writer.acknowledged, **after.acknowledged}
    # When placement has found that slots were lost, it writes their keys again.
    until("what was written can be deleted", lambda: _delete(kubectl, written), every=0.5)
    deleted = time.monotonic() - begin
    return (
        f"the API server answers after {answers:.0f} s, objects are written after {writes:.0f} s, the chain is whole after {whole:.0f} s, what "
        f"was in the network is written again after {deleted:.0f} s at most; none of "
        f"{max(writer.acknowledged.values())} writes lost"
    )


def _delete(kubectl: Kubectl, names: Iterable[str]) -> bool:
    kubectl("delete", "configmap", "--ignore-not-found", *names)
    return True


def _without(kubectl: Kubectl, name: str) -> float | None:
    found = chain.members(kubectl)
    return time.monotonic() if found and name not in found else None


def _ready(kubectl: Kubectl, name: str) -> bool:
    conditions = kubectl.json("get", "node", name)["status"]["conditions"]
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _elsewhere(cluster: Cluster, name: str) -> float | None:
    def runs(pod: dict[str, Any]) -> bool:
        ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions", [])
        )
        return ready and pod["spec"]["nodeName"] != name and "deletionTimestamp" not in pod["metadata"]

    return time.monotonic() if sum(map(runs, pods(cluster, APP))) == REPLICAS else None
