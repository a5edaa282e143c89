# SPDX-License-Identifier: Apache-2.0
"""What a new operator types: the lines of docs/kubernetes.md, "In ten minutes", as they stand
there, from ``helm install`` to a read in the network, and how long they take.
"""

from __future__ import annotations

import re
import time

from e2e import install, settings
from e2e.acceptance import require
from e2e.cluster import Cluster

HEADING = "## In ten minutes"

SECONDS = 600


def lines(text: str) -> list[tuple[str, str]]:
    """The commands of the section, and what the documentation says that each prints ("": it does
    not say).
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


def quick_start(cluster: Cluster) -> str:
    """All of it, in ten minutes at most; the read is answered by a switch."""
    commands = lines((settings.ROOT / "docs" / "kubernetes.md").read_text())
    begin, took = time.monotonic(), []
    for command, said in commands:
        start = time.monotonic()
        script = f"cd {settings.ROOT} && export KUBECONFIG=/etc/kubernetes/admin.conf && {command}"
        done = cluster.first.execute(["sh", "-c", script], check=False, seconds=SECONDS)
        took.append(f"{' '.join(command.split()[:3])} {time.monotonic() - start:.1f} s")
        require(done.returncode == 0, f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
        for line in said.splitlines():
            require(
                like(line, done.stdout),
                f"{command}: it printed\n{done.stdout}and not, as the documentation has\n{line}",
            )
    seconds = time.monotonic() - begin
    require(seconds <= SECONDS, f"from helm install to the read in {seconds:.0f} s: {', '.join(took)}")
    install.wait(cluster)
    doctors = []
    for node in cluster.nodes:
        doctors.append(doctor(cluster, node.name))
    return f"from helm install to a read in the network in {seconds:.1f} s ({'; '.join(took)}); {'; '.join(doctors)}"


def like(line: str, printed: str) -> bool:
    """Whether a line was printed, whatever its numbers were, and whatever stands for "..."."""
    wanted = re.escape(line.strip())
    wanted = re.sub(r"\d+", r"\\d+", wanted).replace(re.escape("..."), ".*")
    return any(re.fullmatch(wanted, one.strip()) for one in printed.splitlines())


def doctor(cluster: Cluster, node: str) -> str:
    """``kubectl netcraq doctor`` looks at a node, in its agent's container; it is in order."""
    command = ["env", "KUBECONFIG=/etc/kubernetes/admin.conf", "kubectl", "netcraq", "doctor", "--node", node]
    done = cluster.first.execute(command, check=False)
    require(done.returncode == 0, f"doctor on {node}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout.strip().splitlines()[-1]
