# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicy: which pods reach which under each of a list of policies."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from e2e import fixtures, install
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.families import host

PODS = {"a": "x", "b": "x", "c": "y"}
"""Pods and their namespaces, each on another node where there are three."""

PAIRS = tuple((source, target) for source in PODS for target in PODS if source != target)

ANY = frozenset(PAIRS)

A: dict[str, Any] = {"matchLabels": {"app": "a"}}
B: dict[str, Any] = {"matchLabels": {"app": "b"}}
IN_Y: dict[str, Any] = {"matchLabels": {"kubernetes.io/metadata.name": "y"}}


def to(target: str) -> frozenset[tuple[str, str]]:
    """The pairs whose connection goes to a pod."""
    return frozenset(pair for pair in PAIRS if pair[1] == target)


def by(*sources: str) -> frozenset[tuple[str, str]]:
    """The pairs whose connection comes from one of these pods."""
    return frozenset(pair for pair in PAIRS if pair[0] in sources)


def cases(address: str) -> dict[str, tuple[dict[str, Any], frozenset[tuple[str, str]]]]:
    """Policies of the namespace x, and the pairs that they allow to connect to TCP port 8080.
    ``address`` is the address of the pod c.
    """
    one = f"{address}/{128 if ':' in address else 32}"
    every = "::/0" if ":" in address else "0.0.0.0/0"
    ingress = {"podSelector": A, "policyTypes": ["Ingress"]}
    egress = {"podSelector": {}, "policyTypes": ["Egress"]}
    port = {"protocol": "TCP", "port": 8080}
    return {
        "ingress to a denied": (ingress, ANY - to("a")),
        "ingress to a from b": (ingress | {"ingress": [{"from": [{"podSelector": B}]}]}, ANY - {("c", "a")}),
        "ingress to a from namespace y": (
            ingress | {"ingress": [{"from": [{"namespaceSelector": IN_Y}]}]},
            ANY - {("b", "a")},
        ),
        "ingress to a from b in namespace y, of which there is none": (
            ingress | {"ingress": [{"from": [{"namespaceSelector": IN_Y, "podSelector": B}]}]},
            ANY - to("a"),
        ),
        "ingress to a by its port": (ingress | {"ingress": [{"ports": [port]}]}, ANY),
        "ingress to a by another port": (ingress | {"ingress": [{"ports": [port | {"port": 81}]}]}, ANY - to("a")),
        "ingress to a by a range of ports": (
            ingress | {"ingress": [{"ports": [port | {"port": 8000, "endPort": 8080}]}]},
            ANY,
        ),
        "ingress to a by its port of UDP": (
            ingress | {"ingress": [{"ports": [port | {"protocol": "UDP"}]}]},
            ANY - to("a"),
        ),
        "ingress to a from c's address": (
            ingress | {"ingress": [{"from": [{"ipBlock": {"cidr": one}}]}]},
            ANY - {("b", "a")},
        ),
        "ingress to a from any address but c's": (
            ingress | {"ingress": [{"from": [{"ipBlock": {"cidr": every, "except": [one]}}]}]},
            ANY - {("c", "a")},
        ),
        "ingress to all of x denied": (
            {"podSelector": {}, "policyTypes": ["Ingress"]},
            ANY - to("a") - to("b"),
        ),
        "egress denied": (egress, ANY - by("a", "b")),
        "egress of a denied": ({"podSelector": A, "policyTypes": ["Egress"]}, ANY - by("a")),
        "egress to b": (egress | {"egress": [{"to": [{"podSelector": B}]}]}, by("c") | {("a", "b")}),
        "egress to namespace y": (
            egress | {"egress": [{"to": [{"namespaceSelector": IN_Y}]}]},
            by("c") | {("a", "c"), ("b", "c")},
        ),
        "egress to c's address": (
            egress | {"egress": [{"to": [{"ipBlock": {"cidr": one}}]}]},
            by("c") | {("a", "c"), ("b", "c")},
        ),
        "egress by another port": (egress | {"egress": [{"ports": [port | {"port": 81}]}]}, by("c")),
        "both ways denied": (
            {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
            frozenset(),
        ),
        "all allowed": ({"podSelector": {}, "ingress": [{}], "egress": [{}]}, ANY),
    }


def policies(cluster: Cluster) -> str:
    """Each policy allows exactly the right connections, in each family."""
    kubectl = cluster.kubectl
    kubectl.rollout("daemonset/netcraq-policies", install.NAMESPACE)
    for namespace in sorted(set(PODS.values())):
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for number, (name, namespace) in enumerate(PODS.items()):
        pod = fixtures.template(name) | {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] |= {"name": name, "namespace": namespace}
        pod["spec"]["nodeName"] = cluster.nodes[number % len(cluster.nodes)].name
        kubectl.apply(pod)
    addresses = {}
    for name, namespace in PODS.items():
        kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
        found = kubectl.json("-n", namespace, "get", "pod", name)["status"]["podIPs"]
        addresses[name] = [ip["ip"] for ip in found]

    def reached(source: str, family: int) -> set[tuple[str, str]]:
        urls = {f"http://{host(addresses[target][family])}:8080/": target for target in PODS if target != source}
        done = kubectl.inside(source, "/testpod", "reach", *urls, namespace=PODS[source], check=False).stdout
        lines = done.splitlines()
        return {
            (source, target)
            for url, target in urls.items()
            if any(line.startswith(url) and f"{target} to " in line for line in lines)
        }

    def connected(family: int, wanted: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """The pairs that connect, once they are as wanted, or after a time limit."""
        deadline = time.monotonic() + 20
        while True:
            with ThreadPoolExecutor() as pool:
                found = frozenset().union(*pool.map(lambda source: reached(source, family), PODS))
            if found == wanted or time.monotonic() > deadline:
                return found

    passed, wrong = 0, []
    for family in range(len(addresses["a"])):
        missing = ANY - connected(family, ANY)
        require(not missing, f"without a policy there is no way from and to {sorted(missing)} at {addresses}")
        for name, (spec, wanted) in cases(addresses["c"][family]).items():
            policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
            kubectl.apply(policy | {"metadata": {"name": "tried", "namespace": "x"}, "spec": spec})
            found = connected(family, wanted)
            if found == wanted:
                passed += 1
            else:
                wrong.append(f"{name}: {sorted(found - wanted)} too many, {sorted(wanted - found)} too few")
        kubectl("-n", "x", "delete", "networkpolicy", "tried")
        require(connected(family, ANY) == ANY, "the last policy is deleted, and goes on")
    kubectl("delete", "namespace", *sorted(set(PODS.values())))
    total = passed + len(wrong)
    require(not wrong, f"{passed} of {total} policies: " + "; ".join(wrong))
    return f"{passed} of {total} policies let connect whom they should, {len(PAIRS)} pairs of pods each"
