# SPDX-License-Identifier: Apache-2.0
"""Run the commands that a new operator types, and measure their duration: those of
docs/kubernetes.md, "In ten minutes", unchanged, from ``helm install`` to a read in the network.
They use the chart and the images of the checkout, or those of a release.
"""

from __future__ import annotations

import os
import re
import time

from e2e import acceptance, install, settings
from e2e.acceptance import require
from e2e.cluster import Cluster
from e2e.kubectl import until

HEADING = "## In ten minutes"

CHART = "cni-plugin/deploy/chart"
"""The chart that the lines install."""

SECONDS = 600


def lines(text: str) -> list[tuple[str, str]]:
    """The commands of the section, and the output that the page shows for each ("" if it shows
    none).
    """
    section = text[text.index(HEADING) :]
    block = re.search(r"```console\n(\$ helm install .*?)```", section, re.DOTALL)
    if block is None:
        raise ValueError(f"docs/kubernetes.md: {HEADING} has no commands that begin with helm install")
    found: list[tuple[str, str]] = []
    for line in re.sub(r"\\\n\s*", " ", block[1]).splitlines():
        if line.startswith("$ "):
            found.append((re.sub(r"\s+# .*", "", line.removeprefix("$ ")), ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


def release(cluster: Cluster) -> str:
    """Run the commands with the chart and the images that ``make release`` has put into ``dist``.
    Afterwards pods reach each other, and Helm removes what it has installed.
    """
    dist = settings.ROOT / "dist"
    charts = sorted((dist / "chart").glob("netcraq-*.tgz"))
    require(len(charts) == 1, f"{dist}/chart has {len(charts)} charts: make release makes one")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    names = ("netcraq-agent", "netcraq-policies")
    cluster.load_images({name: dist / "images" / architecture / f"{name}.tar" for name in names})
    seen = [quick_start(cluster, str(charts[0]))]
    version = charts[0].name.removeprefix("netcraq-").removesuffix(".tgz")
    pods = cluster.kubectl.json("get", "pods", "--namespace", install.NAMESPACE)["items"]
    images = sorted({status["image"] for pod in pods for status in pod["status"]["containerStatuses"]})
    require(
        images == [f"ghcr.io/netcraq/{name}:{version}" for name in names],
        f"pods of the release have the images {images}",
    )
    seen.append(acceptance.network(cluster))
    typed(cluster, f"helm uninstall netcraq --namespace {install.NAMESPACE} --wait")
    kinds = "pods,daemonsets,deployments,services"
    until(
        "Helm has removed what it installed",
        lambda: not cluster.kubectl.json("get", kinds, "--namespace", install.NAMESPACE)["items"],
    )
    return "; ".join([*seen, "removed by Helm"])


def typed(cluster: Cluster, command: str) -> str:
    """The output of a command on the first node, in the checkout."""
    script = f"cd {settings.ROOT} && export KUBECONFIG=/etc/kubernetes/admin.conf && {command}"
    done = cluster.first.execute(["sh", "-c", script], check=False, seconds=SECONDS)
    require(done.returncode == 0, f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def quick_start(cluster: Cluster, chart: str = CHART) -> str:
    """All commands succeed within ten minutes, and a switch answers the read."""
    commands = lines((settings.ROOT / "docs" / "kubernetes.md").read_text())
    begin, took = time.monotonic(), []
    for command, said in commands:
        start = time.monotonic()
        printed = typed(cluster, command.replace(CHART, chart))
        took.append(f"{' '.join(command.split()[:3])} {time.monotonic() - start:.1f} s")
        for line in said.splitlines():
            require(like(line, printed), f"{command}: it printed\n{printed}and not, as the documentation has\n{line}")
    seconds = time.monotonic() - begin
    require(seconds <= SECONDS, f"from helm install to the read in {seconds:.0f} s: {', '.join(took)}")
    install.wait(cluster)
    doctors = [doctor(cluster, "--cluster")]
    for node in cluster.nodes:
        doctors.append(doctor(cluster, "--node", node.name))
    return f"from helm install to a read in the network in {seconds:.1f} s ({'; '.join(took)}); {'; '.join(doctors)}"


def like(line: str, printed: str) -> bool:
    """Whether a line was printed. Numbers may differ, and "..." matches any text."""
    wanted = re.escape(line.strip())
    wanted = re.sub(r"\d+", r"\\d+", wanted).replace(re.escape("..."), ".*")
    return any(re.fullmatch(wanted, one.strip()) for one in printed.splitlines())


def doctor(cluster: Cluster, *of: str) -> str:
    """``kubectl netcraq doctor`` finds no problem, on a node (in its agent's container) or in the
    cluster (through the API server).
    """
    command = ["env", "KUBECONFIG=/etc/kubernetes/admin.conf", "kubectl", "netcraq", "doctor", *of]
    done = cluster.first.execute(command, check=False)
    require(done.returncode == 0, f"doctor {' '.join(of)}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout.strip().splitlines()[-1]
