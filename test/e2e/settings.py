# SPDX-License-Identifier: Apache-2.0
"""Versions and paths."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the checkout."""

HERE = Path(__file__).resolve().parent

OUT = ROOT / "out" / "k8s"
"""The folder for the nodes' logs and the results of a run."""

KUBERNETES = "v1.34.1"
"""The version that ``kubernetes/go.mod`` requires."""

COREDNS = "v1.12.1"
"""CoreDNS: the version that this kubeadm installs."""

FLANNEL = "v0.28.4"
"""The version that ``flannel/go.mod`` requires."""

FLANNEL_PLUGIN = "v1.9.1-flannel1"
"""The tag of the image with the CNI plugin that this flannel's manifest names."""

PAUSE = "3.10.1"
"""The tag of the sandbox's image that this kubeadm expects."""


def last_release() -> tuple[str, str]:
    """The last released version of NetCRAQ, and its commit."""
    lines = (ROOT / "mk" / "release" / "releases").read_text().splitlines()
    version, commit = next(line for line in lines if not line.startswith("#")).split()
    return version, commit


def next_patch() -> str:
    """The patch release after :data:`KUBERNETES`."""
    minor, _, patch = KUBERNETES.rpartition(".")
    return f"{minor}.{int(patch) + 1}"


def etcd() -> str:
    """The version of etcd that the main module requires, without the v."""
    found = re.search(r"^\s*go\.etcd\.io/etcd/server/v3 v(\S+)$", (ROOT / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError("go.mod requires no go.etcd.io/etcd/server/v3")
    return found.group(1)


def cache() -> Path:
    """The folder for files that take minutes to build. All checkouts share it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "netcraq" / f"kubernetes-{KUBERNETES}"
