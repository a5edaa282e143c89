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
"""It installs NetCRAQ itself, so it takes a cluster of its own: --only quick-start."""

CONFORMANCE = "conformance"
"""Kubernetes' own tests, which take from minutes to hours: make conformance."""

DIST = "dist"
"""It installs a release, so it takes a cluster of its own: --only dist."""

IF_NAMED = (QUICK_START, DIST, CONFORMANCE)
"""Those that are made only if --only names them."""

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
"""In this order, where NetCRAQ is the cluster's network. A string is the name of a method of the
comparison.
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
"""In this order, where NetCRAQ is put behind the cluster's network."""

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
"""In this order, where there are several control-plane nodes."""

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
"""Those that need the gateway, or the chain, which needs the gateway to be of any use."""


IN_EVERY_FAMILY = ("ready", "system", "families", "policies", "chain", "node-api", "placed", "power")
"""Those that are made where there is IPv6. The others know IPv4 addresses."""

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
"""What has to be made before a check, of what the cluster has."""

CLUSTERS = {
    "--cni own": OWN,
    "--cni bridge, ptp or flannel": CHAINED,
    "--control-planes 3": SEVERAL,
}
"""The kinds of clusters, by what is typed for them."""


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
    """Why the checks that ``only`` names cannot run in such a cluster; "" if they can."""
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
