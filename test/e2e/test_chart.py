# SPDX-License-Identifier: Apache-2.0
"""Checks that the Helm chart matches the manifests, as far as this is possible without Helm.

``make test-chart`` compares their objects with Helm and kustomize.
"""

import hashlib

from e2e import cluster_images

GENERATED = ("chart", "chartgen")


def test_chart_is_of_these_manifests():
    deploy = cluster_images.DEPLOY
    listed = dict(reversed(line.split("  ")) for line in (deploy / "chart" / "sources.sha256").read_text().splitlines())
    found = {
        str(path.relative_to(deploy)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in deploy.rglob("*.yaml")
        if path.relative_to(deploy).parts[0] not in GENERATED
    }
    changed = sorted(name for name in found.keys() | listed.keys() if found.get(name) != listed.get(name))
    assert not changed, f"{changed} are not what the Helm chart was generated from: make chart, make test-chart"
