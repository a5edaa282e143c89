# SPDX-License-Identifier: Apache-2.0
"""Programs in ordinary pods that use the node API through its libraries
(testpod/program.go, program.py and program.mjs).

Python and Node.js come from the machine's own /usr, which is mounted read-only into these pods,
because an image with them would need a registry.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from e2e import fixtures, settings
from e2e.acceptance import CheckError
from e2e.cluster import Cluster

FOLDER = "/run/netcraq-node"
"""The node API's folder on the node."""

NOBODY = 65534
"""The user of the pods, who has no capability."""

_SEEN = {
    "/usr": Path("/usr"),
    "/opt/python": settings.ROOT / "client" / "python",
    "/opt/js": settings.ROOT / "client" / "js",
    "/opt/testpod": settings.HERE / "testpod",
}
"""Folders of the machine that are mounted into a pod, and where the pod sees them."""

PATIENCE = 120.0


def languages() -> tuple[dict[str, list[str]], list[str]]:
    """The commands of the programs by language, and the languages that are left out, with the
    reason.
    """
    found, left_out = {"Go": ["/testpod", "program"]}, []
    for name, path, program in (
        ("Python", sys.executable, "program.py"),
        ("Node.js", shutil.which("node"), "program.mjs"),
    ):
        real = str(Path(path).resolve()) if path else ""
        if real.startswith("/usr/"):
            found[name] = [real, f"/opt/testpod/{program}"]
        else:
            left_out.append(f"{name} ({'is below ' + real if real else 'is not there'})")
    return found, left_out


def pod_template(app: str, *command: str, probe: bool = False) -> dict[str, Any]:
    """A pod without any privilege, with the socket and the files of the programs mounted."""
    template = fixtures.template(app, probe=probe)
    container = template["spec"]["containers"][0]
    if command:
        container["args"] = list(command)
    container["securityContext"] |= {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": NOBODY}
    container["env"] = [
        {"name": "PYTHONPATH", "value": "/opt/python"},
        {"name": "NETCRAQ_JS", "value": "/opt/js"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    mounts = {"/run/netcraq": Path(FOLDER), **_SEEN}
    container["volumeMounts"] = [
        {"name": f"seen{i}", "mountPath": inside, "readOnly": True} for i, inside in enumerate(mounts)
    ]
    template["spec"]["volumes"] = [
        {"name": f"seen{i}", "hostPath": {"path": str(outside), "type": "Directory"}}
        for i, outside in enumerate(mounts.values())
    ]
    return template


def pod(namespace: str, name: str, node: str) -> dict[str, Any]:
    """A pod of this kind on a node."""
    template = pod_template(name)
    template["spec"]["nodeName"] = node
    metadata = {**template["metadata"], "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


class Program:
    """A program that runs in a pod. Its output consists of events."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str, *command: str) -> None:
        self.name = f"{namespace}/{pod}: {' '.join(command)}"
        self.events: list[dict[str, Any]] = []
        self._said: list[str] = []
        kubectl = ("env", "KUBECONFIG=/etc/kubernetes/admin.conf", "kubectl", "exec", "-n", namespace, pod, "--")
        self._process = subprocess.Popen(
            cluster.first.command([*kubectl, *command]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict):
                self.events.append(event)
            else:
                self._said.append(line)

    def event(self, name: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait for the first event that has ``name``."""
        deadline = time.monotonic() + seconds
        while True:
            ended = not self._thread.is_alive()
            for event in list(self.events):
                if name in event:
                    return event
            if ended or time.monotonic() > deadline:
                raise CheckError(f"{self.name}: no {name}: {self.events} {''.join(self._said)[-2000:]}")
            time.sleep(0.02)

    def check(self) -> None:
        """Raise CheckError if the program has failed."""
        if not self._thread.is_alive() and self._process.wait(PATIENCE) != 0:
            status, said = self._process.returncode, "".join(self._said)[-2000:]
            raise CheckError(f"{self.name}: exit status {status}: {self.events} {said}")

    def result(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """The last event, after the program has ended successfully."""
        self._thread.join(seconds)
        if self._thread.is_alive() or self._process.wait(seconds) != 0 or not self.events:
            self.forget()
            raise CheckError(f"{self.name}: {self.events} {''.join(self._said)[-2000:]}")
        return self.events[-1]

    def forget(self) -> None:
        """Stop reading the events. The program ends with its pod."""
        self._process.kill()
        self._process.wait()
        self._thread.join(5)
