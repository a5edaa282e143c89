# SPDX-License-Identifier: Apache-2.0
"""The API server with etcd-monitor in front of etcd: does it work as before, and how many of its
reads does the network answer?
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from e2e import kubeadm
from e2e.acceptance import require
from e2e.api import Api, ApiError, Watch
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.node import Node

NAMESPACE = "smoke"
METRICS = "http://127.0.0.1:23791/metrics"


@dataclass
class Counts:
    """The counters of a gateway since its start."""

    requests: Counter[str] = field(default_factory=Counter)
    reads: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Gets of one key, by who answered and why."""
    key_reads: Counter[str] = field(default_factory=Counter)
    key_writes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    """Sums and numbers of the gateway's histograms, by name and labels."""

    def __sub__(self, before: Counts) -> Counts:
        """The counts since ``before``."""
        changed = {name: value - before.seconds.get(name, 0) for name, value in self.seconds.items()}
        parts = [
            getattr(self, name) - getattr(before, name) for name in ("requests", "reads", "key_reads", "key_writes")
        ]
        return Counts(*parts, changed)

    @property
    def gets(self) -> int:
        """The gets of one key."""
        return sum(self.reads.values())

    @property
    def network(self) -> int:
        """The gets that the network answered."""
        return sum(count for (who, _), count in self.reads.items() if who == "network")

    @property
    def share(self) -> float:
        """The share of gets that the network answered, 0 to 1."""
        return self.network / self.gets if self.gets else 0.0


SAMPLE = re.compile(r"^etcd_monitor_(\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def counts(text: str) -> Counts:
    """Parse the text of ``/metrics``."""
    found = Counts()
    for name, labels, value in SAMPLE.findall(text):
        label = dict(LABEL.findall(labels))
        match name:
            case "requests_total":
                found.requests[label["kind"]] = round(float(value))
            case "reads_total":
                found.reads[label["answered"], label["reason"]] = round(float(value))
            case "key_reads_total":
                found.key_reads[label["key"]] = round(float(value))
            case "key_writes_total":
                found.key_writes[label["key"]] = round(float(value))
            case "network_seconds_sum" | "network_seconds_count" | "etcd_seconds_sum" | "etcd_seconds_count":
                found.seconds[f"{name} {next(iter(label.values()))}"] = float(value)
    return found


def ask(node: Node) -> Counts:
    """The counters of the gateway on a control-plane node."""
    return counts(node.run("curl", "-sS", "--max-time", "20", METRICS))


def _object(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def _samples() -> dict[str, dict[str, Any]]:
    """Objects of several kinds, by the path of their collection: of several API groups, small and
    large, with and without controllers.
    """
    core, rbac = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    labels = {"matchLabels": {"app": "smoke"}}
    template = {
        "metadata": {"labels": {"app": "smoke"}},
        "spec": {"containers": [{"name": "none", "image": "none.test/none:1", "imagePullPolicy": "Never"}]},
    }
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "smoke"}
    user = {"kind": "User", "name": "smoke", "apiGroup": "rbac.authorization.k8s.io"}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none",
    }
    return {
        f"{core}/configmaps": _object("v1", "ConfigMap", "smoke", data={"small": "value"}),
        f"{core}/secrets": _object("v1", "Secret", "smoke", stringData={"large": "x" * 20_000}),
        f"{core}/services": _object(
            "v1", "Service", "smoke", spec={"selector": {"app": "smoke"}, "ports": [{"port": 80}]}
        ),
        f"{core}/serviceaccounts": _object("v1", "ServiceAccount", "smoke"),
        f"{core}/persistentvolumeclaims": _object("v1", "PersistentVolumeClaim", "smoke", spec=claim),
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments": _object(
            "apps/v1", "Deployment", "smoke", spec={"replicas": 0, "selector": labels, "template": template}
        ),
        f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs": _object(
            "batch/v1",
            "CronJob",
            "smoke",
            spec={
                "schedule": "0 0 1 1 *",
                "suspend": True,
                "jobTemplate": {"spec": {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}},
            },
        ),
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases": _object(
            "coordination.k8s.io/v1", "Lease", "smoke", spec={"holderIdentity": "a"}
        ),
        f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies": _object(
            "networking.k8s.io/v1", "NetworkPolicy", "smoke", spec={"podSelector": {}}
        ),
        f"{rbac}/roles": _object("rbac.authorization.k8s.io/v1", "Role", "smoke", rules=[rule]),
        f"{rbac}/rolebindings": _object(
            "rbac.authorization.k8s.io/v1", "RoleBinding", "smoke", roleRef=role, subjects=[user]
        ),
    }


def smoke(cluster: Cluster) -> str:
    """Objects of many kinds are created, read, changed, watched and deleted through the gateway."""
    process = cluster.first.run("sh", "-c", "tr '\\0' '\\n' < /proc/$(pgrep -x kube-apiserver)/cmdline")
    require(f"--etcd-servers={kubeadm.GATEWAY}" in process.split(), "the API server does not use the gateway")
    before = ask(cluster.first)
    with Api(cluster.first) as api:
        begin = time.monotonic()
        api.request(
            "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        samples = _samples()
        for path, sample in samples.items():
            _one(api, path, sample)
        api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        until("the namespace is gone with all that is in it", lambda: api.gone(f"/api/v1/namespaces/{NAMESPACE}"))
        seconds = time.monotonic() - begin
    found = ask(cluster.first) - before
    require(found.requests.total() > 0, "the gateway has counted nothing")
    return f"{len(samples)} kinds in {seconds:.0f} s; meanwhile {found.gets} gets, {found.share:.0%} answered in the network"


def _one(api: Api, path: str, sample: dict[str, Any]) -> None:
    """Create, read, watch, change and list an object, check that a stale change is refused, and
    delete it.
    """
    watch = Watch(api, path, api.get(path)["metadata"]["resourceVersion"])
    try:
        made = api.request("POST", path, sample)
        name = f"{path}/{sample['metadata']['name']}"
        read = api.get(name)
        require(read["metadata"]["uid"] == made["metadata"]["uid"], f"{name}: another object is read than was made")
        changed = api.merge(name, {"metadata": {"labels": {"smoke": "changed"}}})
        read = api.get(name)
        seen = int(read["metadata"]["resourceVersion"])
        require(read["metadata"]["labels"]["smoke"] == "changed", f"{name}: an older object is read than was written")
        require(seen >= int(changed["metadata"]["resourceVersion"]), f"{name}: the version went back")
        try:
            api.request("PUT", name, made)
        except ApiError as error:
            require(error.status == 409, f"{name}: a stale change is refused with {error}")
        else:
            require(False, f"{name}: a stale change is not refused")
        listed = [item for item in api.get(path)["items"] if item["metadata"]["uid"] == made["metadata"]["uid"]]
        require(
            len(listed) == 1 and listed[0]["metadata"]["labels"]["smoke"] == "changed", f"{name}: listed as {listed}"
        )
        api.request("DELETE", name)
        until(f"{name} is gone", lambda: api.gone(name), 60, 0.1)

        def kinds() -> list[str]:
            return [
                kind for _, kind, thing in list(watch.events) if thing["metadata"].get("uid") == made["metadata"]["uid"]
            ]

        until(f"{name}: a watch hears of the deletion", lambda: "DELETED" in kinds(), 60, 0.1)
        heard = kinds()
        require(
            heard[0] == "ADDED" and heard[-1] == "DELETED" and "MODIFIED" in heard, f"{name}: a watch hears {heard}"
        )
    finally:
        watch.close()
