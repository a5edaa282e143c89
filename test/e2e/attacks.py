# SPDX-License-Identifier: Apache-2.0
"""Attacks by hostile pods change nothing, whether the pods have CAP_NET_RAW or not, and whether
their own port is open or closed.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from e2e import chain, fixtures
from e2e.acceptance import require
from e2e.api import Api
from e2e.cluster import Cluster
from e2e.gateway import ask
from e2e.kubectl import until
from e2e.node import Node, NodeError

ANNOTATION = "netcraq.io/fast-path"

ATTACKS = (
    "reads",
    "writes",
    "sessions",
    "stamped",
    "acks",
    "replies",
    "spoofed",
    "tags",
    "options",
    "fragments",
    "vxlan",
    "mutated",
)
"""The verbs of testpod's attack, except for the flood."""

COUNTED = ("reads", "writes", "sessions", "stamped", "acks")
"""Verbs whose packets reach the switch unchanged, with the pod's own address. The switch counts
each of these packets.
"""

SPACE, OTHER = "fast", "neighbour"
"""Two namespaces. The attacks are on the keys of the first one."""

FLOOD = 10
"""Seconds of the flood."""

PROBE = 6
"""Seconds for which the victim's answers are timed."""

VALUE = "alice"


def _namespace(name: str) -> list[dict[str, Any]]:
    """A namespace whose service account ``fast`` may use the fast path."""
    rbac = "rbac.authorization.k8s.io"
    where = {"name": "fast-path", "namespace": name}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "fast", "namespace": name}},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": where,
            "rules": [{"apiGroups": ["netcraq.io"], "resources": ["fastpaths"], "verbs": ["use"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": where,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "fast-path"},
            "subjects": [{"kind": "ServiceAccount", "name": "fast", "namespace": name}],
        },
    ]


def _pod(
    namespace: str, name: str, node: str, *, account: str = "default", asks: bool = False, raw: bool = True
) -> dict[str, Any]:
    """A pod on a node. Without ``raw`` it has no capabilities and does not run as root."""
    template = fixtures.template(name, probe=False)
    if not raw:
        template["spec"]["containers"][0]["securityContext"] |= {
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65534,
        }
    annotations = {ANNOTATION: "true"} if asks else {}
    metadata = {**template["metadata"], "name": name, "namespace": namespace, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**template["spec"], "nodeName": node, "serviceAccountName": account},
    }


def _dropped(node: Node, switch: str) -> Counter[str]:
    """A switch's counters of events."""
    return Counter(json.loads(node.run("netcraqctl", "-o", "json", "switch", "counters", switch))[0]["events"])


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    require(found, f"{text!r} has no {pattern}")
    return int(found.group(1))


class _Target:
    """The targets of the attack, a key of a namespace and a key of etcd, with everything about them
    that must not change.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        status = chain.status(cluster.kubectl)
        self.service = status["serviceAddress"]
        self.bits = str(cluster.kubectl.json("get", "netcraqchain", chain.NAME)["spec"]["profile"])
        self.keys = {}
        numbers = cluster.kubectl.items("netcraqnodes")
        self.switches = ",".join(f"10.0.255.{number['spec']['number']}" for number in numbers)
        self.nodes = ",".join(node.address for node in cluster.nodes)

    def place(self) -> None:
        """Create the keys, and wait until both are in the network."""
        first = self.cluster.first
        self.keys["own"] = json.loads(
            first.run("netcraqctl", "-o", "json", "chain", "add-key", f"ns/{SPACE}/leader", VALUE)
        )["keyId"]
        self.object = f"/registry/configmaps/{SPACE}/guarded"
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "guarded", "namespace": SPACE},
            "data": {"owner": VALUE},
        }
        self.cluster.kubectl.apply(config)

        def placed() -> int | None:
            self.read_object()  # only keys that are read are placed
            found = json.loads(
                first.run("netcraqctl", "-o", "json", "chain", "keys", "--prefix", f"etcd:{self.object}")
            )
            return found[0]["keyId"] if found else None

        self.keys["etcd's"] = until("the attacked object is in the network", placed)
        self.before = self.seen()

    def read_object(self) -> dict[str, Any]:
        """The object, from the API server."""
        return self.cluster.kubectl.json("-n", SPACE, "get", "configmap", "guarded")

    def seen(self) -> dict[str, Any]:
        """The values of the keys: in the network as a node reads them, and in etcd."""
        first = self.cluster.first
        cells = {
            name: json.loads(first.run("netcraqctl", "-o", "json", "get", str(key))) for name, key in self.keys.items()
        }
        return {
            **{name: (cell.get("value"), cell.get("version")) for name, cell in cells.items()},
            "object": self.read_object(),
            "etcd": first.run("etcdctl", *chain.ETCD, "get", self.object, "-w", "fields"),
        }

    def unchanged(self, after: str) -> None:
        """Check that nothing has changed."""
        now = self.seen()
        for name, was in self.before.items():
            if name == "etcd":  # contains the store's revision, which other writes change
                require(
                    _object_fields(now[name]) == _object_fields(was),
                    f"after {after}, etcd has another object: {now[name]}",
                )
                continue
            require(now[name] == was, f"after {after}, {name} is {now[name]} and was {was}")


def _object_fields(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(('"Value"', '"ModRevision"', '"Version"'))]


def attacks(cluster: Cluster) -> str:
    """Pods with and without CAP_NET_RAW send every attack that testpod knows. Then one of them
    floods its switch and the gateway while a legitimate pod on its node uses the switch.
    """
    kubectl, node = cluster.kubectl, cluster.nodes[0].name  # the node with the gateway
    kubectl.apply(*_namespace(SPACE), *_namespace(OTHER))
    target = _Target(cluster)
    target.place()
    _refused(cluster, node)
    pods = {
        "victim": _pod(SPACE, "victim", node, account="fast", asks=True),
        "closed": _pod(SPACE, "closed", node),
        "capless": _pod(SPACE, "capless", node, raw=False),
        "neighbour": _pod(OTHER, "neighbour", node, account="fast", asks=True),
    }
    kubectl.apply(*pods.values())
    for name, pod in pods.items():
        kubectl("-n", pod["metadata"]["namespace"], "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    victim = kubectl.json("-n", SPACE, "get", "pod", "victim")["status"]["podIP"]

    def probe(seconds: float = 0, pod: str = "victim") -> str:
        arguments = (
            "--service",
            target.service,
            "--value-bits",
            target.bits,
            "--key",
            str(target.keys["own"]),
            "--seconds",
            str(seconds),
        )
        return kubectl.inside(
            pod, "/testpod", "probe", *arguments, namespace=pods[pod]["metadata"]["namespace"], check=False
        ).stdout.strip()

    until("the pod with the fast path reads its namespace's key", lambda: f'OK "{VALUE}"' in probe(), 60)
    until("another namespace's pod is denied", lambda: "DENIED" in probe(pod="neighbour"), 60)
    require("answers 0" in probe(pod="closed"), "a pod whose port is closed is answered")

    def attack(pod: str, name: str) -> str:
        where = (
            "--service",
            target.service,
            "--switches",
            target.switches,
            "--nodes",
            target.nodes,
            "--victim",
            f"{victim}:7777",
        )
        arguments = (*where, "--value-bits", target.bits, "--keys", "1", "--count", "5000", "--seconds", str(FLOOD))
        said = []
        for key in target.keys.values() if name != "flood" else [target.keys["own"]]:
            command = ("/testpod", "attack", *arguments, "--key", str(key), name)
            said.append(kubectl.inside(pod, *command, namespace=pods[pod]["metadata"]["namespace"]).stdout.strip())
        return "; ".join(said)

    frames = 0
    for pod in ("closed", "capless", "neighbour"):
        for name in ATTACKS:
            before = _dropped(cluster.first, node)
            said = attack(pod, name)
            dropped = _dropped(cluster.first, node) - before
            kept = {
                event: count
                for event, count in dropped.items()
                if event.startswith("drop_") or event in ("denied", "bad_session")
            }
            cluster.say(f"{pod}: {said.replace(chr(10), '; ')}; dropped or denied at {node}: {kept}")
            sent = sum(int(count) for count in re.findall(r"sent (\d+),", said))
            frames += sent
            require(" OK " not in said, f"{pod}: {said}")
            if pod != "neighbour":
                require("answers 0" in said and not re.search(r"answers [1-9]", said), f"{pod} is answered: {said}")
                if name in COUNTED:
                    require(
                        kept.get("drop_closed_port", 0) >= sent,
                        f"{pod}: {sent} packets were sent, and the switch has dropped {kept}",
                    )
            target.unchanged(f"{name} of {pod}")
    require(f'OK "{VALUE}"' in probe(), "the pod with the fast path reads another value")
    _write(cluster, target)
    flood = _flood(cluster, target, attack, probe)
    target.unchanged("a flood")
    kubectl("delete", "namespace", SPACE, OTHER, "--wait=false")
    return f"{frames} packets and frames of {len(ATTACKS)} kinds from three pods changed nothing; {flood}"


def _refused(cluster: Cluster, node: str) -> None:
    """A pod that requests the fast path without the right to it is rejected."""
    try:
        cluster.kubectl.apply(_pod(SPACE, "asks", node, asks=True))
    except NodeError as error:
        require("may not use the fast path" in str(error), f"a pod without the right is refused otherwise: {error}")
        return
    require(False, "a pod without the right to the fast path is made")


def _write(cluster: Cluster, target: _Target) -> None:
    """A node can still lease and use sessions, so the attack has not used them up."""
    for value in ("bob", VALUE):
        cluster.first.run("netcraqctl", "put", str(target.keys["own"]), value)
    target.before = target.seen()


def _flood(cluster: Cluster, target: _Target, attack: Any, probe: Any) -> str:
    """A pod sends as fast as it can while a victim on the same node works. Returns the latency of
    the victim's and the gateway's answers.
    """

    def gateway() -> str:
        before, end, took = ask(cluster.first), time.monotonic() + 2, []
        while time.monotonic() < end:
            begin = time.monotonic()
            api.get(f"/api/v1/namespaces/{SPACE}/configmaps/guarded")
            took.append(1000 * (time.monotonic() - begin))
        found = ask(cluster.first) - before
        count, total = (found.seconds.get(f"network_seconds_{part} read", 0) for part in ("count", "sum"))
        network = (
            f"; {count:.0f} of the gateway's reads of the network, {1000 * total / count:.2f} ms on average"
            if count
            else ""
        )
        return f"{len(took)} objects, median {statistics.median(took):.2f} ms, longest {max(took):.2f} ms{network}"

    before = _dropped(cluster.first, cluster.first.name)
    with Api(cluster.first) as api, ThreadPoolExecutor(1) as meanwhile:
        lines = [f"a pod before a flood: {probe(PROBE)}", f"the API server, through the gateway, before: {gateway()}"]
        flooding = meanwhile.submit(attack, "closed", "flood")
        time.sleep(1)
        lines += [f"a pod beside a flood: {probe(PROBE)}", f"the API server beside it: {gateway()}"]
        said = flooding.result()
    dropped = _dropped(cluster.first, cluster.first.name) - before
    for line in lines:
        cluster.say(line)
    cluster.say(f"{said.replace(chr(10), '; ')}; dropped at the flooder's closed port: {dropped['drop_closed_port']}")
    sent = _number(said, r"flood: sent (\d+)")
    require(
        dropped["drop_closed_port"] >= 0.95 * sent,
        f"of {sent} packets {dropped['drop_closed_port']} were dropped at the closed port",
    )
    require(f'OK "{VALUE}"' in lines[2], f"beside a flood: {lines[2]}")
    return f"a flood of {sent // FLOOD} packets a second was dropped; {lines[0]}; {lines[2]}"
