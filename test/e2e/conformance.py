# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own end-to-end tests run on the cluster (make conformance)."""

from __future__ import annotations

import subprocess
import time

from e2e import settings, specs
from e2e.acceptance import CheckError, require
from e2e.cluster import Cluster

FOCUS = r"\[sig-network\].*\[Conformance\]"
"""The specs that run by default: those that Kubernetes demands of a network."""

SKIP = r"\[Feature:SCTPConnectivity\]|\[Disruptive\]"
"""The specs that are skipped by default, because this kernel may have no SCTP, and these nodes do
not restart as machines do.
"""

HOURS = 8


def conformance(cluster: Cluster, focus: str = FOCUS, skip: str = SKIP) -> str:
    """Run Kubernetes' specs on the first node. Afterwards ``out/k8s/conformance`` has the files
    that the certification programme requires: ``e2e.log`` and ``junit_01.xml``.
    """
    folder, built = settings.OUT / "conformance", settings.cache() / "specs"
    folder.mkdir(parents=True, exist_ok=True)
    (junit := folder / "junit_01.xml").unlink(missing_ok=True)
    cluster.say("building Kubernetes' specs and their images: some minutes, once")
    binary = specs.build(built)
    names = specs.named(binary)
    made = specs.images(built, names)
    archives = {image.tag: settings.OUT / "images" / "specs" / f"{i}.tar" for i, image in enumerate(made)}
    for image in made:
        image.write(archives[image.tag])
    cluster.load_images(archives)
    cluster.say(f"{len(made)} of the {len(names)} images that specs name are on the nodes")
    begin = time.monotonic()
    command = [
        "env",
        "--chdir=/",  # after nsenter, the current directory has no path in the namespace
        "KUBECONFIG=/etc/kubernetes/admin.conf",
        str(binary),
        "-test.timeout=0",
        "-kubeconfig=/etc/kubernetes/admin.conf",
        "-provider=skeleton",
        f"-report-dir={folder}",
        "-disable-log-dump",
        "-non-blocking-taints=node-role.kubernetes.io/control-plane",
        f"-num-nodes={len(cluster.nodes) - len(cluster.controls)}",
        f"-ginkgo.focus={focus}",
        f"-ginkgo.skip={skip}",
        f"-ginkgo.timeout={HOURS}h",
        "-ginkgo.no-color",
        "-ginkgo.v",
    ]
    with open(folder / "e2e.log", "wb") as log:
        process = subprocess.run(
            cluster.first.command(command), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
        )
    require(junit.exists(), f"the specs ended with {process.returncode} and no report: see {folder / 'e2e.log'}")
    report = specs.read(junit)
    for name, reason in sorted(report.skipped.items()):
        print(f"  skipped itself: {name}: {reason}")
    for name in report.failed:
        print(f"  FAILED: {name}")
    found = f"{report} in {time.monotonic() - begin:.0f} s; out/k8s/conformance has e2e.log and junit_01.xml"
    require(report.passed, f"no spec matches {focus!r}")
    if report.failed:
        raise CheckError(found)
    return found
