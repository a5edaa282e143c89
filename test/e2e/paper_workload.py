# SPDX-License-Identifier: Apache-2.0
"""The paper's workload (CNSM 2022, section II-D): pods are scaled from 2 to 25 and deleted, and
etcd's requests are counted by kind and key.

The numbers are the API server's requests to the gateway, which is in front of etcd in both cases.
With NetCRAQ, keys are placed in the network.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from e2e import fixtures
from e2e.acceptance import require
from e2e.api import Api, Watch
from e2e.cluster import Cluster
from e2e.gateway import Counts, ask
from e2e.kubectl import until

APP = "scaled"
PODS = "/api/v1/namespaces/default/pods"
FEW, MANY = 2, 25
HOTTEST = 25
"""How many of the hottest keys the paper's share is of."""

REST = 10.0
"""Seconds of rest before each run, in which the cluster is only watched."""


@dataclass
class Run:
    """One run of the workload."""

    seconds: float
    counted: Counts
    starts: list[float]
    """Seconds from a pod's creation to its being ready, as a watch heard of both."""

    def summary(self) -> dict[str, Any]:
        """The run's numbers, in the form of the JSON file."""
        hottest = self.counted.key_reads.most_common(HOTTEST)
        keyed = self.counted.key_reads.total()
        return {
            "seconds": round(self.seconds, 1),
            "requests": dict(self.counted.requests.most_common()),
            "gets": self.counted.gets,
            "answered": {" ".join(who).strip(): count for who, count in self.counted.reads.most_common()},
            "networkShare": round(self.counted.share, 4),
            "hottest": dict(hottest),
            "hottestShare": round(sum(count for _, count in hottest) / keyed, 4) if keyed else None,
            "keysRead": len(self.counted.key_reads),
            "podStartSeconds": [round(start, 3) for start in self.starts],
            "podStartMedian": round(statistics.median(self.starts), 3),
            "meanSeconds": means(self.counted),
        }


def means(counted: Counts) -> dict[str, float]:
    """The mean duration of the gateway's round trips to the network and to etcd, by kind."""
    found = {}
    for name, total in counted.seconds.items():
        series, _, label = name.partition(" ")
        number = counted.seconds.get(f"{series.removesuffix('_sum')}_count {label}", 0)
        if series.endswith("_sum") and number:
            found[f"{series.partition('_')[0]} {label}"] = round(total / number, 6)
    return found


class Comparison:
    """Runs without and with NetCRAQ, and the page that compares them."""

    def __init__(self, repetitions: int) -> None:
        self.runs: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
        self._repetitions = repetitions

    def without(self, cluster: Cluster) -> str:
        """Run the workload before there is a chain: etcd answers everything."""
        return self._several(cluster, "without")

    def with_netcraq(self, cluster: Cluster) -> str:
        """Run the workload with the API server's keys in the network."""
        return self._several(cluster, "with")

    def _several(self, cluster: Cluster, which: str) -> str:
        with Api(cluster.first) as api:
            for _ in range(self._repetitions):
                self.runs[which].append(run(cluster, api).summary())
        last = self.runs[which][-1]
        hottest = (
            f", {last['hottestShare']:.0%} of them of the {HOTTEST} hottest of {last['keysRead']} keys"
            if last["hottestShare"]
            else ""
        )
        return (
            f"{sum(last['requests'].values())} requests in {last['seconds']} s; {last['gets']} gets{hottest}; the network answered "
            f"{last['networkShare']:.0%}; a pod starts in {last['podStartMedian']:.2f} s (median)"
        )


def run(cluster: Cluster, api: Api) -> Run:
    """Scale 0 → 2 → 25 → 0 once."""
    kubectl = cluster.kubectl
    kubectl.apply(fixtures.deployment(APP, 0, probe=False))
    time.sleep(REST)
    before, begin = ask(cluster.first), time.monotonic()
    path = f"{PODS}?labelSelector=app%3D{APP}"
    watch = Watch(api, path, api.get(path)["metadata"]["resourceVersion"])
    try:
        for replicas in (FEW, MANY, 0):
            api.merge(f"/apis/apps/v1/namespaces/default/deployments/{APP}", {"spec": {"replicas": replicas}})
            until(f"{replicas} pods", lambda replicas=replicas: _alive(watch) == (replicas, replicas), every=0.2)
        seconds, counted = time.monotonic() - begin, ask(cluster.first) - before
    finally:
        watch.close()
    starts = _starts(watch)
    require(len(starts) >= MANY, f"only {len(starts)} pods were seen to start")
    kubectl("delete", f"deployment/{APP}")
    return Run(seconds, counted, starts)


def _ready(pod: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", [])
    )


def _alive(watch: Watch) -> tuple[int, int]:
    """The number of pods, and the number of ready pods."""
    pods = {pod["metadata"]["name"]: None if kind == "DELETED" else pod for _, kind, pod in list(watch.events)}
    there = [pod for pod in pods.values() if pod is not None]
    return len(there), sum(map(_ready, there))


def _starts(watch: Watch) -> list[float]:
    made: dict[str, float] = {}
    ready: dict[str, float] = {}
    for heard, kind, pod in watch.events:
        name = pod["metadata"]["name"]
        if kind == "ADDED":
            made[name] = heard
        if kind != "DELETED" and _ready(pod):
            ready.setdefault(name, heard)
    return sorted(ready[name] - made[name] for name in ready if name in made)
