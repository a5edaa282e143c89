# SPDX-License-Identifier: Apache-2.0
"""Several control-plane nodes, each with an etcd member, a gateway and an API server. The tests
kill and cut off parts of them while they record the histories of all API servers.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from e2e import chain, gateway, install
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.families import host
from e2e.histories import Histories, require_answers
from e2e.kubectl import until
from e2e.node import Node

QUIET = 30
"""Seconds of histories without a fault."""

CUT = 30
"""Seconds for which the network is cut in two: longer than a node counts as ready, a leader as
leading, a member of the chain as alive.
"""

API_SERVER = "/etc/kubernetes/manifests/kube-apiserver.yaml"
ETCD = "/etc/kubernetes/manifests/etcd.yaml"

CONFIRMED = 10
"""The number of answers that each API server must have given at least."""


@dataclass
class Member:
    """An etcd member."""

    name: str
    id: str
    """The member's id, in hexadecimal."""
    leads: bool


def etcd(node: Node) -> list[Member]:
    """The members of the cluster's etcd, according to one of them."""
    members = json.loads(node.run("etcdctl", *chain.ETCD, "member", "list", "-w", "json"))["members"]
    leader = json.loads(node.run("etcdctl", *chain.ETCD, "endpoint", "status", "-w", "json"))[0]["Status"]["leader"]
    return [Member(one.get("name", ""), f"{one['ID']:x}", one["ID"] == leader) for one in members]


def etcd_leader(cluster: Cluster, but: Node | None = None) -> Node:
    """The node of etcd's leader. With ``but``, the leader according to the other nodes, and not
    ``but``.
    """
    asked = next(node for node in cluster.controls if node.alive() and node is not but)

    def led() -> Node | None:
        names = [one.name for one in etcd(asked) if one.leads]
        return next((node for node in cluster.controls if node.name in names and node is not but), None)

    return until("etcd has a leader", led, 60)


def living(cluster: Cluster) -> Node:
    """A control-plane node that is switched on."""
    return next(node for node in cluster.controls if node.alive())


def others(cluster: Cluster, node: Node) -> list[Node]:
    """All control-plane nodes except ``node``."""
    return [one for one in cluster.controls if one is not node]


def leader(cluster: Cluster) -> str:
    """The node whose agent runs the controller."""
    lease = cluster.kubectl.json("-n", install.NAMESPACE, "get", "lease", "netcraq-leader")
    return lease["spec"].get("holderIdentity", "")


def answers(cluster: Cluster, node: Node) -> bool:
    """Whether a node's API server is ready, and answers a request that needs current data: a list,
    for which it queries etcd. Readiness alone does not prove that the gateway and the etcd member
    are alive. The server checks those once a second, and repeats the last result in between.
    """
    pki = cluster.first.folder / "etc-kubernetes" / "pki"
    client = f"{pki}/apiserver-kubelet-client"  # an administrator's certificate, which needs no role
    administrator = ("--cert", f"{client}.crt", "--key", f"{client}.key")
    server = f"https://{host(node.address)}:6443"
    urls = (f"{server}/readyz", f"{server}/api/v1/namespaces?limit=1")
    said = cluster.lan.run("curl", "-skf", "--fail-early", "--max-time", "3", *administrator, *urls, check=False)
    return said.startswith("ok{")


def whole(cluster: Cluster) -> bool:
    """Whether everything is in order: all etcd members, API servers, nodes, and the chain."""
    nodes = cluster.kubectl.items("nodes")
    ready = [
        node
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready" and condition["status"] == "True"
    ]
    return (
        all(answers(cluster, node) for node in cluster.controls)
        and len(etcd(living(cluster))) == len(cluster.controls)
        and len(ready) == len(cluster.nodes)
        and chain.is_ready(cluster.kubectl)
    )


def wait_whole(cluster: Cluster) -> float:
    """Wait until everything is in order. Returns the seconds that this took."""
    begin = time.monotonic()
    until("the control plane and the chain are whole", lambda: whole(cluster), 300, 0.5)
    return time.monotonic() - begin


def kill(node: Node, program: str) -> None:
    """Kill all processes of a program on a node. There must be at least one."""
    node.run("sh", "-c", f"kill -KILL $(pidof {program})")


def seen(cluster: Cluster) -> str:
    """All API servers get requests at once. An object that one server has written is in every list
    that another server makes afterwards, and reaches every watch. The network answers some of the
    reads.
    """
    placed = until("keys are placed", lambda: chain.settled(cluster.kubectl), every=5)
    before = [gateway.ask(node) for node in cluster.controls]
    with Histories(cluster) as histories:
        time.sleep(QUIET)
    require_answers(histories, cluster.controls, CONFIRMED)
    by_network = [(gateway.ask(node) - was).network for node, was in zip(cluster.controls, before, strict=True)]
    require(all(by_network), f"a gateway's reads were not answered by the network at all: {by_network}")
    return f"{placed} keys placed; {histories.summary()}; the network answered {', '.join(map(str, by_network))} of the reads"


def leader_killed(cluster: Cluster) -> str:
    """The agent with the controller is killed. The chain continues, and another agent leads, or the
    restarted agent of that node.
    """
    with Histories(cluster) as histories:
        time.sleep(5)
        name, begin = leader(cluster), time.monotonic()
        epoch = chain.status(cluster.kubectl)["epoch"]
        kill(cluster.node(name), "netcraq-agent")

        def leads() -> str:
            now = leader(cluster)
            found = chain.status(cluster.kubectl)
            return now if chain.is_ready(cluster.kubectl) and found["epoch"] > epoch else ""

        after = until("the chain is whole under another leader", leads, every=0.5)
        took = time.monotonic() - begin
        wait_whole(cluster)
        time.sleep(5)
    require_answers(histories, cluster.controls, CONFIRMED)
    return f"{name}'s agent killed: {after}'s leads, and the chain is whole after {took:.1f} s; {histories.summary()}"


def etcd_leader_off(cluster: Cluster) -> str:
    """The node of etcd's leader loses its power, and gets it back."""
    victim = etcd_leader(cluster)
    with Histories(cluster) as histories:
        time.sleep(5)
        begin = time.monotonic()
        victim.power_off()
        histories.excuse(victim)
        after = etcd_leader(cluster, victim)
        time.sleep(10)
        until("the chain goes on", lambda: chain.members(cluster.kubectl), every=0.5)
        without = time.monotonic() - begin
        begin = time.monotonic()
        victim.start()
        cluster.wait_node(victim)
        until(f"{victim.name}'s API server is ready", lambda: answers(cluster, victim), 300, 0.5)
        back = time.monotonic() - begin
        histories.expect(victim)
        recovered = back + wait_whole(cluster)
        time.sleep(5)
    require_answers(histories, cluster.controls, CONFIRMED)
    found = histories.excused(victim)
    require(found["resumed"] >= 0, "no write was acknowledged while a node was away")
    return (
        f"{victim.name} without power for {without:.0f} s: {after.name} leads etcd, the first write after "
        f"{found['resumed']:.1f} s; back: its API server ready after {back:.0f} s, all whole after "
        f"{recovered:.0f} s; {histories.summary()}"
    )


def member_replaced(cluster: Cluster) -> str:
    """An etcd member is replaced as docs/kubernetes.md describes: removed, its data deleted, and
    added again.
    """
    victim = others(cluster, etcd_leader(cluster))[-1]
    other = others(cluster, victim)[0]
    with Histories(cluster) as histories:
        time.sleep(5)
        begin = time.monotonic()
        histories.excuse(victim)
        removed = next(one for one in etcd(other) if one.name == victim.name)
        replace_member(cluster, victim, other, removed.id)
        until(f"{victim.name}'s API server is ready", lambda: answers(cluster, victim), 300, 0.5)
        took = time.monotonic() - begin
        histories.expect(victim)
        wait_whole(cluster)
        time.sleep(5)
    require_answers(histories, cluster.controls, CONFIRMED)
    now = next(one for one in etcd(other) if one.name == victim.name)
    require(now.id != removed.id, f"{victim.name} is the member that it was")
    return (
        f"{victim.name}'s member {removed.id} removed, its data thrown away, {now.id} in its place after {took:.0f} s; "
        f"{histories.summary()}"
    )


ALL_BUT_ETCD = (
    "preflight",
    "control-plane-prepare",
    "kubelet-start",
    "kubelet-wait-bootstrap",
    "control-plane-join",
    "wait-control-plane",
)
"""All phases of kubeadm join except the one that adds a member to etcd. That phase cannot be run
alone.
"""


def replace_member(cluster: Cluster, victim: Node, other: Node, member: str) -> None:
    """The commands that docs/kubernetes.md tells an operator to type."""
    other.run("etcdctl", *chain.ETCD, "member", "remove", member)
    victim.run("rm", ETCD)

    # the balancer may not know yet that this node's API server has lost its etcd
    def forgotten() -> bool:
        cluster.kubectl("-n", "kube-system", "delete", "pod", f"etcd-{victim.name}", "--force", "--ignore-not-found")
        return True

    until("the member's pod is deleted", forgotten, 60)
    until("the member's process has ended", lambda: not victim.execute(["pidof", "etcd"], check=False).stdout, 60)
    victim.run("rm", "-rf", "/var/lib/etcd/member")
    phases = f"--skip-phases={','.join(ALL_BUT_ETCD)}"
    victim.run("kubeadm", "join", "--config", "/mnt/kubeadm.yaml", phases, seconds=400)


def lead_etcd(cluster: Cluster, node: Node) -> None:
    """Make a node's member the leader of etcd."""
    before = etcd_leader(cluster)
    if before is not node:
        member = next(one for one in etcd(before) if one.name == node.name)
        before.run("etcdctl", *chain.ETCD, "move-leader", member.id)
        until(f"{node.name} leads etcd", lambda: etcd_leader(cluster) is node, 60)


def cut_in_two(cluster: Cluster) -> str:
    """The network is cut. On one side is the node whose agent and whose etcd member lead, on the
    other side the majority. The lone node's API server answers no request that needs current data.
    The other API servers continue.
    """
    victim = cluster.node(leader(cluster))
    lead_etcd(cluster, victim)
    with Histories(cluster) as histories:
        time.sleep(5)
        histories.excuse(victim)
        with cluster.lan.cut({victim.index: victim.number}):
            time.sleep(CUT)
            rest = others(cluster, victim)
            after = etcd_leader(cluster, victim)
            ready = [node.name for node in cluster.controls if answers(cluster, node)]
            histories.expect(victim)  # the time of the cut ends here: the server may answer from now on
            histories.excuse(victim)
        begin = time.monotonic()
        until(f"{victim.name}'s API server is ready", lambda: answers(cluster, victim), 300, 0.5)
        healed = time.monotonic() - begin
        histories.expect(victim)
        recovered = healed + wait_whole(cluster)
        time.sleep(5)
    require_answers(histories, cluster.controls, CONFIRMED)
    found = histories.excused(victim, 0)
    require(ready == [node.name for node in rest], f"ready while the network was cut: {ready}")
    require(
        not found["reads"] and not found["writes"],
        f"{victim.name}, which was cut off, has answered {found['reads']} reads and {found['writes']} writes",
    )
    require(found["resumed"] >= 0, "the majority has acknowledged no write")
    return (
        f"{victim.name} cut off for {CUT} s: it answered nothing, the others acknowledged {found['othersWrites']} "
        f"writes under {after.name}'s lead of etcd, "
        f"the first after {found['resumed']:.1f} s; healed: ready after {healed:.1f} s, all whole after {recovered:.0f} s; "
        f"{histories.summary()}"
    )
