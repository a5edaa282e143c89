# SPDX-License-Identifier: Apache-2.0
"""kubectl, as the administrator on the control-plane node."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

from e2e.node import Node, NodeError

PATIENCE = 240.0
"""Seconds to wait for something that is slow on a busy machine."""


class Kubectl:
    """Commands to the API server."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def execute(
        self, *arguments: str, check: bool = True, stdin: str | None = None, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl until it ends."""
        return self._node.execute(
            ["env", "KUBECONFIG=/etc/kubernetes/admin.conf", "kubectl", *arguments],
            check=check,
            stdin=stdin,
            seconds=seconds,
        )

    def __call__(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        """Run kubectl, and return its output."""
        return self.execute(*arguments, stdin=stdin, seconds=seconds).stdout

    def json(self, *arguments: str) -> Any:
        """The output of ``kubectl ... -o json``."""
        return json.loads(self(*arguments, "-o", "json"))

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """The objects that ``kubectl get ...`` lists."""
        return self.json("get", *arguments)["items"]

    def apply(self, *documents: dict[str, Any]) -> str:
        """Apply objects."""
        return self("apply", "-f", "-", stdin="\n---\n".join(json.dumps(document) for document in documents))

    def inside(
        self, pod: str, *command: str, namespace: str = "default", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod."""
        return self.execute("-n", namespace, "exec", pod, "--", *command, check=check)

    def rollout(self, what: str, namespace: str = "default", seconds: float = PATIENCE) -> None:
        """Wait until a workload's rollout is complete."""
        self("-n", namespace, "rollout", "status", what, f"--timeout={seconds:.0f}s", seconds=seconds + 30)


def until(what: str, condition: Callable[[], Any], seconds: float = PATIENCE, every: float = 1) -> Any:
    """Wait until ``condition`` returns a true value, and return the value. Otherwise raise
    NodeError with its last value or error.
    """
    deadline = time.monotonic() + seconds
    last: Any = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except (NodeError, subprocess.TimeoutExpired, KeyError) as error:
            last = error
        if time.monotonic() > deadline:
            raise NodeError(f"{what}: not after {seconds:.0f} s; last: {last}")
        time.sleep(every)
