# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ is upgraded under running pods, removed from the cluster, and installed again."""

from __future__ import annotations

import subprocess
import time

from e2e import binaries, chain, cluster_images, coordination, fixtures, install, nodeapi, settings
from e2e.acceptance import pods, require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.node import Node, NodeError

SECONDS = 90
"""How long two pods talk, and others count by the node API, while the agents are replaced."""


def upgrade(cluster: Cluster) -> str:
    """All agents are replaced by those of the last release, and then by this tree's, one after the
    other. Pods keep their connections, and the chain is complete again.
    """
    kubectl = cluster.kubectl
    # While the agent with the controller is away, keys in the network cannot be written. If the
    # network had these keys, that agent could never come back.
    for kind in ("pods", "daemonsets", "leases"):
        own = chain.placed(cluster, f"/registry/{kind}/{install.NAMESPACE}/")
        require(not own, f"keys that it takes to replace the agents are in the network: {own}")
    former = settings.OUT / "release"
    version, _ = settings.last_release()
    if has := binaries.last_release(former):
        cluster.load_images(cluster_images.archive(former, [cluster_images.of_release(former)]))
    server, client = pods(cluster, "web")[0], pods(cluster, "peer")[-1]
    url = f"http://{server['status']['podIP']}:8080/"
    command = [
        "env",
        "KUBECONFIG=/etc/kubernetes/admin.conf",
        "kubectl",
        "exec",
        client["metadata"]["name"],
        "--",
        "/testpod",
        "talk",
        url,
        str(SECONDS),
    ]
    talking = subprocess.Popen(
        cluster.first.command(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    counted = coordination.loads(cluster, SECONDS)
    begin = time.monotonic()
    if has:
        install.install(cluster, former / "source", version)
        install.wait(cluster)
        back = f"by those of {version} in {time.monotonic() - begin:.0f} s, and again"
        install.install(cluster)
    else:
        back = f"by themselves (the checkout lacks the commit of {version})"
        for name in install.AGENTS:
            kubectl("-n", install.NAMESPACE, "rollout", "restart", f"daemonset/{name}")
    install.wait(cluster)
    replaced = time.monotonic() - begin
    said, _ = talking.communicate(timeout=SECONDS + 60)
    require(talking.returncode == 0, f"pods that talk are cut off: {said}")
    counts = counted()
    until("the chain is whole", lambda: chain.is_ready(kubectl))
    return (
        f"agents replaced {back} in {replaced:.0f} s, the chain whole after {time.monotonic() - begin:.0f} s; meanwhile "
        f"between two pods: {said.strip()}; by the node API {counts}"
    )


def remove(cluster: Cluster) -> str:
    """Removing NetCRAQ as docs/kubernetes.md describes leaves nothing. After a new installation,
    everything is as before.
    """
    kubectl = cluster.kubectl
    kubectl("delete", "netcraqchain", "--all")
    # Without agents, keys could not leave the network any more, and the gateway would refuse to
    # write them.
    until("no key is in the network", lambda: not chain.placed(cluster))
    nodeapi.tidy(cluster)
    kubectl("delete", "daemonsets", "--all")  # the tests' pods, because their interfaces go with them
    until("the tests' pods are gone", lambda: not pods(cluster, "web", "peer"))
    kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=0")
    until(
        "the cluster's own pods are gone",
        lambda: not kubectl.items("pods", "-n", "kube-system", "-l", "k8s-app=kube-dns"),
    )
    kubectl("delete", "-k", install.manifests(cluster), "--ignore-not-found", "--timeout=120s")
    for node in cluster.nodes:
        node.run("netcraq-agent", "cleanup")
        until(f"{node.name} is clean", lambda node=node: _clean(node), 60)
    install.install(cluster)
    install.wait(cluster)
    kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=2")
    kubectl.apply(fixtures.daemon_set("web"))
    kubectl.rollout("daemonset/web")
    kubectl.rollout("deployment/coredns", "kube-system")
    kubectl("delete", "daemonset/web")
    return "nothing left on the nodes; installed again, pods run"


def _clean(node: Node) -> bool:
    """Whether NetCRAQ has left nothing on a node. Raises NodeError with what it has left."""
    left = [
        f"interface {line.split(':')[1].strip()}"
        for line in node.run("ip", "-o", "link").splitlines()
        if ": ncq" in line
    ]
    left += [
        f"route {line}"
        for line in node.run("ip", "route", "show", "table", "all").splitlines()
        if "ncq" in line or "10.244." in line
    ]
    tables = node.execute(["nft", "list", "tables"], check=False).stdout
    left += [line for line in tables.splitlines() if "netcraq_policies" in line]
    left += [f"file {name}" for name in node.run("ls", "/etc/cni/net.d").split()]
    if left:
        raise NodeError(f"{node.name} keeps {left}")
    return True
