# SPDX-License-Identifier: Apache-2.0
"""That the Helm chart comes from the manifests, as far as that can be told without Helm.

``make test-chart`` has Helm and kustomize compare their objects.
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
