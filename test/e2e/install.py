# SPDX-License-Identifier: Apache-2.0
"""Install NetCRAQ as an operator does: its manifests, and a Prometheus that scrapes the gateway."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from e2e import cluster_images, settings
from e2e.cluster import Cluster
from e2e.lan import DIE_WITH_PARENT
from e2e.node import NodeError

NAMESPACE = "netcraq-system"
AGENTS = ("netcraq-agent", "netcraq-agent-control-plane")


STREAMS_MIB = 64

_OVERLAY = f"""\
# What this cluster's operator changes of the project's manifests.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{{deploy}}]
images: [{{{{name: localhost/netcraq/netcraq-agent, newTag: {{tag}}}}}}]
patches:
  - target: {{{{kind: DaemonSet, name: netcraq-agent.*}}}}
    patch: |
      - {{{{op: add, path: /spec/template/spec/containers/0/args/-, value: "--node-api-streams={STREAMS_MIB}"}}}}
"""


def manifests(cluster: Cluster, source: Path = settings.ROOT, tag: str = "dev") -> str:
    """The folder with a kustomize overlay over the project's manifests in a source tree, with a tag
    for the agent's image.
    """
    folder = settings.OUT / "overlay"
    folder.mkdir(parents=True, exist_ok=True)
    deploy = os.path.relpath(source / cluster_images.DEPLOY.relative_to(settings.ROOT), folder)
    behind = f"components: [{deploy}/chained]\n" if cluster.chained else ""
    (folder / "kustomization.yaml").write_text(_OVERLAY.format(deploy=deploy, tag=tag) + behind)
    return str(folder)


def install(cluster: Cluster, source: Path = settings.ROOT, tag: str = "dev") -> None:
    """Apply the manifests of a source tree."""
    cluster.kubectl("apply", "-k", manifests(cluster, source, tag))


def wait(cluster: Cluster) -> None:
    """Wait until all agents are ready."""
    for name in AGENTS:
        cluster.kubectl.rollout(f"daemonset/{name}", NAMESPACE)


@contextlib.contextmanager
def prometheus(cluster: Cluster):
    """Run Debian's Prometheus on the first node, with the project's scrape configuration."""
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
