# SPDX-License-Identifier: Apache-2.0
"""The node API from ordinary pods: keys and locks through the node's socket, and what a pod of
another namespace is denied.
"""

from __future__ import annotations

import json
from typing import Any

from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.kubectl import until
from e2e.podprograms import FOLDER, pod

SOCKET = "/run/netcraq/node.sock"
"""The path of the node API's socket in a pod."""

SPACE, OTHER = "door-a", "door-b"
"""The two namespaces of the tests' pods."""


def _grant(namespace: str, account: str, verbs: list[str]) -> list[dict[str, Any]]:
    """A Role for the keys of a namespace, bound to the default service account of another
    namespace.
    """
    rbac = "rbac.authorization.k8s.io"
    where = {"name": "keys", "namespace": namespace}
    return [
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": where,
            "rules": [{"apiGroups": ["netcraq.io"], "resources": ["keys"], "verbs": verbs}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": where,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "keys"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": account}],
        },
    ]


class Door:
    """The node API's socket in a pod."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str) -> None:
        self.cluster, self.namespace, self.pod = cluster, namespace, pod

    def ask(self, *requests: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to requests (function and data) that are sent one after the other over one
        connection.
        """
        lines = [json.dumps({"id": i + 1, "func": name, "data": data}) for i, (name, data) in enumerate(requests)]
        said = self.cluster.kubectl.execute(
            "exec", "-n", self.namespace, self.pod, "--", "/testpod", "door", SOCKET, *lines, check=False
        )
        answers = [json.loads(line) for line in said.stdout.splitlines()]
        require(len(answers) == len(lines), f"{self.pod} asks {lines}, and hears {said.stdout}{said.stderr}")
        return answers

    def one(self, name: str, /, **data: Any) -> dict[str, Any]:
        """The answer to one request."""
        answer = self.ask((name, data))[0]
        require("data" in answer, f"{self.namespace}/{self.pod}: {name} {data}: {answer}")
        return answer["data"]

    def refused(self, rule: str, name: str, /, **data: Any) -> None:
        """Check that a request is refused, by a given rule."""
        error = self.ask((name, data))[0].get("error", {})
        require(
            error.get("code") == "permission_denied" and f"(rule {rule})" in error["message"],
            f"{self.namespace}/{self.pod}: {name} {data}: {error}, want the rule {rule}",
        )


def own(cluster: Cluster) -> list[Door]:
    """The door of each node, in a pod of SPACE."""
    return [Door(cluster, SPACE, f"own-{node.name}") for node in cluster.nodes]


def other(cluster: Cluster) -> Door:
    """The door of the last node, in a pod of OTHER."""
    return Door(cluster, OTHER, "other")


def tidy(cluster: Cluster) -> None:
    """Delete the pods."""
    cluster.kubectl("delete", "namespace", SPACE, OTHER, "--ignore-not-found")


def door(cluster: Cluster) -> str:
    """Pods put, get and lock through their node's socket, each in its own namespace. Another
    namespace's keys are denied until a Role grants access.
    """
    kubectl = cluster.kubectl
    nodes = [node.name for node in cluster.nodes]
    kubectl.apply(
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (SPACE, OTHER)),
    )
    wanted = [(SPACE, f"own-{node}", node) for node in nodes] + [(OTHER, "other", nodes[-1])]
    until(
        "the namespaces have service accounts",
        lambda: all(kubectl.items("serviceaccounts", "-n", name) for name in (SPACE, OTHER)),
    )
    kubectl.apply(*(pod(*one) for one in wanted))
    for namespace, name, _ in wanted:
        kubectl("wait", "-n", namespace, f"pod/{name}", "--for=condition=Ready", "--timeout=120s")
    mine, foreign = own(cluster), other(cluster)
    until("the node API has its chains", lambda: "data" in mine[0].ask(("put", {"key": "color", "value": "blue"}))[0])
    for one in mine:
        hello = one.one("hello")
        require(hello["namespace"] == SPACE, f"a pod of {SPACE} is taken for one of {hello}")
        until(f"{one.pod} has its chains", lambda one=one: "data" in one.ask(("get", {"key": "color"}))[0])
        require(one.one("get", key="color")["value"] == "blue", f"{one.pod} reads another value")
        one.one("increment", key="count")
    require(mine[0].one("get", key="count")["value"] == str(len(mine)), "increments of several nodes are lost")

    held, second, freed = mine[0].ask(
        ("lock", {"name": "leader", "ttlMs": 5000, "waitMs": 0}),
        ("get", {"key": "color"}),
        ("lock", {"name": "other", "ttlMs": 5000, "waitMs": 0}),
    )
    require(
        held.get("data", {}).get("held") and "data" in second and freed.get("data", {}).get("held"),
        f"lock: {held}, {freed}",
    )

    require(foreign.one("hello")["namespace"] == OTHER, "the other pod is taken for one of another namespace")
    require(not foreign.one("get", key="color")["found"], "a namespace sees the key of another under its own name")
    for name, data in {
        "get": {"key": "color"},
        "put": {"key": "color", "value": "red"},
        "delete": {"key": "color"},
        "lock": {"name": "leader", "waitMs": 0},
        "watch": {"keys": ["color"]},
    }.items():
        foreign.refused("roles", name, namespace=SPACE, **data)
    hello, get = foreign.ask(("hello", {"namespace": SPACE}), ("get", {"key": "color"}))
    require(
        get.get("error", {}).get("code") == "permission_denied", f"by hello another namespace is had: {hello}, {get}"
    )
    for name in (f"../{SPACE}", SPACE.upper(), f"{OTHER}/../{SPACE}", SPACE.replace("a", "\u0430")):
        error = foreign.ask(("get", {"namespace": name, "key": "color"}))[0].get("error", {})
        require(error.get("code") == "invalid_argument", f"the namespace {name}: {error}")
    kubectl.apply(*_grant(SPACE, OTHER, ["get"]))
    until(
        "a Role is heard of",
        lambda: foreign.ask(("get", {"namespace": SPACE, "key": "color"}))[0].get("data", {}).get("value") == "blue",
    )
    foreign.refused("roles", "put", namespace=SPACE, key="color", value="red")

    for node in cluster.nodes:
        modes = node.run("stat", "-c", "%a %U", FOLDER, f"{FOLDER}/node.sock").split("\n")
        require(modes[:2] == ["755 root", "666 root"], f"{node.name}'s socket is {modes}")
    return (
        f"{len(mine)} pods on {len(nodes)} nodes share keys and locks of their namespace; another's are "
        "refused, by names and by tricks, until a Role grants them"
    )
