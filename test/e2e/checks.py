# SPDX-License-Identifier: Apache-2.0
"""The checks, the clusters that they apply to, and their order."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from e2e import (
    acceptance,
    attacks,
    beside,
    chain,
    conformance,
    controlplanes,
    coordination,
    examples,
    failure,
    gateway,
    kills,
    kubeadm_upgrade,
    lasting,
    lifecycle,
    nodeapi,
    pipelets,
    policies,
    quickstart,
    reach,
    security,
    siege,
    streams,
    worker,
)
from e2e.acceptance import Check

QUICK_START = "quick-start"
"""This check installs NetCRAQ itself, so it needs a separate cluster: --only quick-start."""

CONFORMANCE = "conformance"
"""Kubernetes' own tests, which take from minutes to hours: make conformance."""

DIST = "dist"
"""This check installs a release, so it needs a separate cluster: --only dist."""

IF_NAMED = (QUICK_START, DIST, CONFORMANCE)
"""Checks that run only if --only names them."""

OWN: dict[str, Check | str] = {
    QUICK_START: quickstart.quick_start,
    DIST: quickstart.release,
    "ready": acceptance.ready,
    "system": acceptance.system,
    "network": acceptance.network,
    "families": reach.reach,
    "policies": policies.policies,
    "security": security.security,
    "workload-without": "without",
    "chain": chain.forms,
    "node-api": nodeapi.door,
    "libraries": coordination.libraries,
    "example": examples.election,
    "streams": streams.streams,
    "pipelets": pipelets.pipelets,
    "locks": coordination.locks,
    "siege": siege.siege,
    "worker": worker.worker,
    "services": coordination.services,
    "placed": chain.serves,
    CONFORMANCE: conformance.conformance,
    "workload-with": "with_netcraq",
    "smoke": gateway.smoke,
    "attacks": attacks.attacks,
    "storm": acceptance.storm,
    "upgrade": lifecycle.upgrade,
    "lasting": lasting.lasting,
    "power": failure.power_off,
    "blackout": failure.blackout,
    "remove": lifecycle.remove,
}
"""The checks, in their order, if NetCRAQ is the cluster's network. A string is the name of a
method of the comparison.
"""

CHAINED: dict[str, Check | str] = {
    "there": beside.there,
    "system": acceptance.system,
    "joins": beside.joins,
    "network": acceptance.network,
    "speed": beside.speed,
    "chain": chain.forms,
    "node-api": nodeapi.door,
    "placed": chain.serves,
    CONFORMANCE: conformance.conformance,
    "smoke": gateway.smoke,
    "attacks": attacks.attacks,
    "power": failure.power_off,
    "leaves": beside.leaves,
}
"""The checks, in their order, if NetCRAQ is chained after the cluster's network."""

SEVERAL: dict[str, Check | str] = {
    "ready": acceptance.ready,
    "system": acceptance.system,
    "chain": chain.forms,
    "seen": controlplanes.seen,
    "leader-killed": controlplanes.leader_killed,
    "etcd-leader-off": controlplanes.etcd_leader_off,
    "member-replaced": controlplanes.member_replaced,
    "cut-in-two": controlplanes.cut_in_two,
    "kills": kills.kills,
    "kubeadm-upgrade": kubeadm_upgrade.upgrade,
}
"""The checks, in their order, if the cluster has several control-plane nodes."""

NEED_GATEWAY = (
    "workload-without",
    "chain",
    "node-api",
    "libraries",
    "example",
    "streams",
    "locks",
    "siege",
    "worker",
    "services",
    "placed",
    "workload-with",
    "smoke",
    "attacks",
    "upgrade",
    "lasting",
    "power",
    "blackout",
)
"""Checks that need the gateway, or that need the chain, which is useless without a gateway."""


IN_EVERY_FAMILY = ("ready", "system", "families", "policies", "chain", "node-api", "placed", "power")
"""Checks that run in a cluster with IPv6. The others can only use IPv4 addresses."""

NEEDS: dict[str, tuple[str, ...]] = {
    "joins": ("there",),
    "chain": ("ready", "joins"),
    "pipelets": ("ready",),
    CONFORMANCE: ("ready", "joins", "system"),
    "security": ("network",),
    "node-api": ("chain",),
    "upgrade": ("network", "node-api"),
    **dict.fromkeys(
        ("libraries", "example", "streams", "locks", "siege", "worker", "services", "power"), ("node-api",)
    ),
    **dict.fromkeys(("placed", "workload-with", "smoke", "attacks", "lasting", "blackout"), ("chain",)),
    **dict.fromkeys(("speed", "leaves"), ("joins",)),
    **dict.fromkeys(("seen", "leader-killed", "etcd-leader-off", "member-replaced", "cut-in-two", "kills"), ("chain",)),
    "kubeadm-upgrade": ("chain",),
}
"""By check: the checks that must run before it, if the cluster has them."""

CLUSTERS = {
    "--cni own": OWN,
    "--cni bridge, ptp or flannel": CHAINED,
    "--control-planes 3": SEVERAL,
}
"""The kinds of clusters, by the command-line option that selects them."""


def of(cni: str, control_planes: int) -> dict[str, Check | str]:
    """The checks of a cluster with this network and this number of control-plane nodes."""
    if control_planes > 1:
        return SEVERAL
    return OWN if cni == "own" else CHAINED


def with_needs(only: Sequence[str], wanted: Iterable[str]) -> list[str]:
    """The checks that ``only`` names and the checks that these need, in the order of ``wanted``,
    which are all checks of the cluster.
    """
    made, todo = set[str](), list(only)
    while todo:
        made.add(name := todo.pop())
        todo += [need for need in NEEDS.get(name, ()) if need not in made]
    return [name for name in wanted if name in made]


def refusal(only: Sequence[str], cni: str, control_planes: int, *, gateway: bool = True) -> str:
    """The reason why such a cluster cannot run the checks in ``only``; "" if it can."""
    there = [name for name in of(cni, control_planes) if gateway or name not in NEED_GATEWAY]
    said = [_why(name, there, of(cni, control_planes)) for name in only if name not in there]
    return "\n".join([*said, f"this cluster's checks are: {', '.join(there)}"]) if said else ""


def _why(name: str, there: Sequence[str], with_gateway: dict[str, Check | str]) -> str:
    if name in with_gateway:
        return f"the check {name} needs the gateway: leave --no-gateway out"
    elsewhere = [typed for typed, checks in CLUSTERS.items() if name in checks]
    if elsewhere:
        return f"this cluster has no check {name}: it is one of {' and of '.join(elsewhere)}"
    close = difflib.get_close_matches(name, there, 1)
    return f"there is no check {name!r}" + (f": is {close[0]} meant?" if close else "")
