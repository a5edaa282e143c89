# SPDX-License-Identifier: Apache-2.0
"""Pipelets between the etcds of two clusters, through the operator's manifests and kubectl."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

from e2e import cluster_images
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.kubectl import Kubectl, until
from e2e.lan import DIE_WITH_PARENT
from e2e.node import Node

DEPLOY = cluster_images.PIPELETS
NAMESPACE = OPERATOR = "netcraq-pipelets"
SUM = "SELECT value->>'k' AS key, sum((value->>'n')::INT) AS value FROM src WHERE value IS NOT NULL GROUP BY 1"


class Etcd:
    """An etcd process on a node, which stands for another cluster's."""

    def __init__(self, node: Node, name: str, port: int) -> None:
        self._node, self._folder = node, f"/mnt/{name}"
        self.endpoint = f"http://{node.address}:{port}"
        self._peer = f"http://127.0.0.1:{port + 1}"
        self._name = name

    @contextlib.contextmanager
    def running(self) -> Iterator[Etcd]:
        """Run the etcd for the duration of the context."""
        command = self._node.command(
            [
                "etcd",
                f"--data-dir={self._folder}",
                f"--listen-client-urls={self.endpoint}",
                f"--advertise-client-urls={self.endpoint}",
                f"--listen-peer-urls={self._peer}",
                f"--initial-advertise-peer-urls={self._peer}",
                f"--initial-cluster=default={self._peer}",
                "--log-level=warn",
            ]
        )
        with open(self._node.folder / "log" / f"etcd-{self._name}.log", "ab") as log:
            process = subprocess.Popen([*DIE_WITH_PARENT, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until(f"the etcd {self._name}", lambda: self.get("x") is not None, seconds=60)
            yield self
        finally:
            process.kill()
            process.wait()

    def ctl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run etcdctl, and return its output."""
        command = ["etcdctl", f"--endpoints={self.endpoint}", *arguments]
        return self._node.execute(command, stdin=stdin, seconds=30).stdout

    def put(self, *pairs: tuple[str, str]) -> None:
        """Put keys in one transaction."""
        puts = "".join(f"put {key} {json.dumps(value)}\n" for key, value in pairs)
        self.ctl("txn", stdin=f"\n{puts}\n\n")

    def get(self, prefix: str) -> list[dict[str, Any]]:
        """The keys with a prefix, in the order of their creation."""
        found = json.loads(self.ctl("get", prefix, "--prefix", "-w", "json", "--sort-by=CREATE")).get("kvs", [])
        for pair in found:
            for part in ("key", "value"):
                pair[part] = base64.b64decode(pair.get(part, "")).decode()
        return found


class Writer(threading.Thread):
    """Puts numbered records, some in each second, until it is stopped."""

    def __init__(self, etcd: Etcd) -> None:
        super().__init__(daemon=True)
        self._etcd, self._told, self.written = etcd, threading.Event(), 0

    def run(self) -> None:
        """Put records until :meth:`end`."""
        while not self._told.is_set():
            batch = range(self.written, self.written + 5)
            self._etcd.put(*((f"load/{n:06d}", json.dumps({"k": "xy"[n % 2], "n": n})) for n in batch))
            self.written += 5
            time.sleep(0.1)

    def end(self) -> int:
        """Stop. Returns the number of records."""
        self._told.set()
        self.join()
        return self.written


def pipelet(name: str, source: Etcd, destination: Etcd, **spec: Any) -> dict[str, Any]:
    """A Pipelet that copies from load/ to NAME/."""
    return {
        "apiVersion": "netcraq.io/v1alpha1",
        "kind": "Pipelet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "src": [{"etcd": {"endpoints": [source.endpoint], "prefix": "load/"}}],
            "dst": [{"etcd": {"endpoints": [destination.endpoint], "prefix": f"{name}/"}}],
            "eoio": True,
            **spec,
        },
    }


def state(kubectl: Kubectl, name: str) -> str:
    """The status for the current specification."""
    found = kubectl.json("get", "pipelet", name)
    status = found.get("status", {})
    return status.get("state", "") if status.get("observedGeneration") == found["metadata"]["generation"] else ""


def replica(kubectl: Kubectl, name: str) -> str:
    """The pod that the pipelet is assigned to."""
    return str(kubectl.json("get", "pipelet", name).get("status", {}).get("assigned", ""))


def pipelets(cluster: Cluster) -> str:
    """Sums arrive in a second cluster's etcd each second. When the pipelet is edited, they change;
    when it is suspended, they stop; when it is deleted, it ends. A wrong flow is refused. The
    operator's replicas share the pipelets. When one replica is killed, the other takes over, and
    each record arrives once, in order.
    """
    kubectl, node = cluster.kubectl, cluster.first
    kubectl("apply", "-k", str(DEPLOY))
    kubectl.rollout(f"deployment/{OPERATOR}", NAMESPACE)
    until("a leader", lambda: kubectl.json("-n", NAMESPACE, "get", "lease", OPERATOR)["spec"].get("holderIdentity"))
    try:
        with Etcd(node, "source", 12379).running() as source, Etcd(node, "second", 22379).running() as second:
            return _life(kubectl, source, second)
    finally:
        kubectl("delete", "-k", str(DEPLOY), "--wait=true")


def _life(kubectl: Kubectl, source: Etcd, second: Etcd) -> str:
    sums = pipelet("sums", source, second, flow=SUM, interval=1)
    kubectl.apply(sums, pipelet("copy", source, second))
    writer = Writer(source)
    writer.start()

    def version(key: str) -> int:
        return next((pair["version"] for pair in second.get(key)), 0)

    def arrives(key: str, seconds: float) -> float:
        begin, before = time.monotonic(), version(key)
        time.sleep(seconds)
        return (version(key) - before) / (time.monotonic() - begin)

    until("the sums", lambda: version("sums/x"), seconds=60, every=0.5)
    until("each replica has one", lambda: len({replica(kubectl, name) for name in ("sums", "copy")}) == 2, seconds=60)
    every = arrives("sums/x", 8)
    require(0.6 <= every <= 1.4, f"sums/x arrives {every:.2f} times a second, with an interval of a second")

    wrong = kubectl.execute(
        "apply",
        "-f",
        "-",
        check=False,
        stdin=json.dumps({**sums, "spec": {**sums["spec"], "flow": "SELECT key FORM src"}}),
    )
    require(
        wrong.returncode != 0 and "LINE 1" in wrong.stderr, f"a wrong flow is taken: {wrong.stderr or wrong.stdout}"
    )

    sums["spec"]["flow"] = SUM.replace("value->>'k' AS key", "'edited-' || (value->>'k') AS key")
    kubectl.apply(sums)
    until("the edited flow's sums", lambda: version("sums/edited-x"), seconds=30, every=0.5)
    require(arrives("sums/x", 3) == 0, "what the flow made before it was edited arrives")

    kubectl("patch", "pipelet", "sums", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    until("it is suspended", lambda: state(kubectl, "sums") == "Suspended", seconds=30)
    require(arrives("sums/edited-x", 4) == 0, "a suspended Pipelet writes")
    kubectl("patch", "pipelet", "sums", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    until("it goes on", lambda: arrives("sums/edited-x", 2) > 0, seconds=30)

    victim = replica(kubectl, "copy")
    before = len(second.get("copy/"))
    kubectl("-n", NAMESPACE, "delete", "pod", victim, "--force", "--grace-period=0")
    begin = time.monotonic()
    until("another replica has it", lambda: replica(kubectl, "copy") != victim, seconds=90, every=0.5)
    until("it goes on there", lambda: len(second.get("copy/")) > before + 50, seconds=90, every=0.5)
    gap = time.monotonic() - begin

    time.sleep(3)
    written = writer.end()
    until("all have arrived", lambda: len(second.get("copy/")) == written, seconds=60)
    found = second.get("copy/")
    numbers = [int(pair["key"].removeprefix("copy/")) for pair in found]
    require(numbers == list(range(written)), "the records are not in their order")
    require(all(pair["version"] == 1 for pair in found), "a record was written twice")
    table = kubectl("get", "pipelets")
    require("Running" in table and "LAG" in table, f"kubectl get pipelets says {table}")

    kubectl("delete", "pipelet", "sums", "copy", "--wait=true")
    time.sleep(1)
    source.put(("load/999999", json.dumps({"k": "x", "n": 1})))
    time.sleep(4)
    require(not second.get("copy/999999"), "a Pipelet that was deleted writes")
    return (
        f"sums arrived {every:.2f} times a second; {written} records once, in order, over a killed replica "
        f"({gap:.0f} s until 50 more were there); edited, suspended, deleted"
    )
