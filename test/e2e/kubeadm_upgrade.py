# SPDX-License-Identifier: Apache-2.0
"""kubeadm upgrades the cluster, which uses the gateways, to the next patch release, one
control-plane node after the other.
"""

from __future__ import annotations

import json
import time

from e2e import binaries, cluster_images, kubeadm, settings
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.controlplanes import API_SERVER, CONFIRMED, answers, wait_whole
from e2e.families import host
from e2e.histories import Histories, require_answers
from e2e.kubectl import until
from e2e.node import Node

GATEWAY = "/etc/kubernetes/manifests/etcd-monitor.yaml"


def upgrade(cluster: Cluster) -> str:
    """Run ``kubeadm upgrade apply`` on the first node and ``upgrade node`` on the others, and
    restart each node's kubelet after it. Meanwhile, API servers continue to use the gateways, and
    the others answer for the one that restarts.
    """
    version, folder = settings.next_patch(), binaries.next_patch(cluster.say)
    images = cluster_images.of_kubernetes(folder, version)
    cluster.load_images(cluster_images.archive(settings.OUT / "images-next", images))
    manifests = {node.name: node.run("cat", GATEWAY) for node in cluster.controls}
    took: list[str] = []
    with Histories(cluster) as histories:
        for node in cluster.controls:
            begin = time.monotonic()
            histories.excuse(node)
            _one(cluster, node, ["apply"] if node is cluster.first else ["node"], str(folder))
            histories.expect(node)
            wait_whole(cluster)
            took.append(f"{node.name} {time.monotonic() - begin:.0f} s")
    require_answers(histories, cluster.controls, CONFIRMED)
    proxy = cluster.kubectl.json("-n", "kube-system", "get", "daemonset", "kube-proxy")
    image = proxy["spec"]["template"]["spec"]["containers"][0]["image"]
    require(image.endswith(f":{version}"), f"kube-proxy is of {image}")  # upgraded together with the last node
    for node in cluster.controls:
        server = node.run("cat", API_SERVER)
        require(f"kube-apiserver:{version}" in server, f"{node.name}'s API server is not of {version}")
        require(f"--etcd-servers={kubeadm.GATEWAY}" in server, f"{node.name}'s API server does not ask the gateway")
        require(node.run("cat", GATEWAY) == manifests[node.name], f"{node.name}: the gateway's manifest has changed")
        says = cluster.lan.run("curl", "-skf", "--max-time", "5", f"https://{host(node.address)}:6443/version")
        require(json.loads(says)["gitVersion"] == version, f"{node.name}'s API server says {says}")
    kubelets = {
        one["metadata"]["name"]: one["status"]["nodeInfo"]["kubeletVersion"] for one in cluster.kubectl.items("nodes")
    }
    require(set(kubelets.values()) == {version}, f"kubelets are of {kubelets}")
    return f"{settings.KUBERNETES} to {version}: {', '.join(took)}; each API server asks its gateway; {histories.summary()}"


def _one(cluster: Cluster, node: Node, verb: list[str], folder: str) -> None:
    """Upgrade a node, as docs/kubernetes.md describes."""
    (node.folder / "mnt" / "upgrade.yaml").write_text(kubeadm.upgrade(settings.next_patch()))
    yes = ["--yes"] if verb == ["apply"] else []
    node.run(f"{folder}/kubeadm", "upgrade", *verb, "--config", "/mnt/upgrade.yaml", *yes, seconds=1200)
    (node.folder / "mnt" / "bin").mkdir(exist_ok=True)
    for name in ("kubelet", "kubeadm", "kubectl"):
        (node.folder / "mnt" / "bin" / name).symlink_to(f"{folder}/{name}")
    node.run("sh", "-c", "kill $(pidof kubelet)")  # the node's first process restarts kubelet, as systemd does
    until(f"{node.name}'s API server is ready", lambda: answers(cluster, node), 300, 0.5)
    until(
        f"{node.name}'s kubelet is upgraded",
        lambda: (
            cluster.kubectl.json("get", "node", node.name)["status"]["nodeInfo"]["kubeletVersion"]
            == settings.next_patch()
        ),
    )
