# SPDX-License-Identifier: Apache-2.0
"""Install NetCRAQ as an operator does: its manifests, and a Prometheus that scrapes the gateway."""

from __future__ import annotations

import contextlib
import subprocess

from e2e import cluster_images
from e2e.cluster import Cluster
from e2e.lan import DIE_WITH_PARENT
from e2e.node import NodeError

NAMESPACE = "netcraq-system"
AGENTS = ("netcraq-agent", "netcraq-agent-control-plane")


def install(cluster: Cluster) -> None:
    """Apply the manifests."""
    cluster.kubectl("apply", "-k", str(cluster_images.DEPLOY))


def wait(cluster: Cluster) -> None:
    """Wait until all agents are ready."""
    for name in AGENTS:
        cluster.kubectl.rollout(f"daemonset/{name}", NAMESPACE)


@contextlib.contextmanager
def prometheus(cluster: Cluster):
    """Debian's Prometheus on the control-plane node, with the project's scrape configuration."""
    node = cluster.first
    config, data = cluster_images.DEPLOY / "prometheus" / "scrape.yaml", node.folder / "mnt" / "prometheus"
    data.mkdir(exist_ok=True)
    command = node.command(
        [
            "prometheus",
            f"--config.file={config}",
            "--storage.tsdb.path=/mnt/prometheus",
            "--web.listen-address=127.0.0.1:9090",
            "--log.level=warn",
        ]
    )
    with open(node.folder / "log" / "prometheus.log", "ab") as log:
        process = subprocess.Popen([*DIE_WITH_PARENT, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        if process.poll() is not None:
            raise NodeError("prometheus ended at once; its log is beside kubelet's")
        yield process
    finally:
        process.kill()
        process.wait()
