# SPDX-License-Identifier: Apache-2.0
"""Writers, readers, listers and watches use all API servers at once, during faults of the control
plane. apihistories checks that one store explains everything they see.
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from e2e import settings
from e2e.acceptance import CheckError, require
from e2e.cluster import Cluster
from e2e.families import host
from e2e.lan import DIE_WITH_PARENT
from e2e.node import Node, NodeError

LATE = 15
"""A watch on a node without a fault is stuck if it has not reported a completed write after this
many seconds. Etcd's election takes 3 to 6 seconds here.
"""

BEGIN = 150
"""The most seconds until all clients run."""

CHECKING = 600
"""The most seconds that the check of the history may take."""


class Histories:
    """A context during which the clients run. :attr:`found` is the result."""

    def __init__(self, cluster: Cluster) -> None:
        self.found: dict[str, Any] = {}
        self._cluster = cluster
        servers = [f"{node.name}=https://{host(node.address)}:6443" for node in cluster.controls]
        # the administrator that needs no role, because a starting server knows no roles yet
        config = cluster.first.folder / "etc-kubernetes" / "super-admin.conf"
        self._out = settings.OUT / "history.json.gz"
        self._log = settings.OUT / "apihistories.log"
        command = [settings.OUT / "bin" / "apihistories", "--kubeconfig", config, "--out", self._out]
        inside = cluster.lan.command(*map(str, command), "--late", f"{LATE}s", *servers)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, *inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> Histories:
        """Start the clients, and wait until they run."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], BEGIN)
        if not ready or "begun" not in self._process.stdout.readline():
            self._process.kill()
            raise NodeError(f"apihistories does not begin; its log is {self._log}")
        return self

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        if self._process.poll() is not None:
            raise NodeError(f"apihistories ended with {self._process.returncode}; its log is {self._log}")
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def excuse(self, *nodes: Node) -> None:
        """These nodes have a fault from now on: their watches may be behind."""
        for node in nodes:
            self._say(f"excuse {node.name}")

    def expect(self, *nodes: Node) -> None:
        """These nodes' fault is over."""
        for node in nodes:
            self._say(f"expect {node.name}")

    def mark(self, text: str) -> None:
        """Record an event in the history. The summary names it if the longest time without a write
        follows.
        """
        self._say(f"mark {text}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Stop the clients, and check the history. Raises CheckError if something is wrong."""
        try:
            if kind is not None and not issubclass(kind, (CheckError, NodeError)):
                return
            said, _ = self._process.communicate("end\n", timeout=CHECKING)
            self.found = json.loads(said) if said.strip() else {"wrong": ["apihistories says nothing"]}
            if self.found.get("wrong"):
                kept = f"the history is {self._out.relative_to(settings.ROOT)}"
                also = f"; besides: {error}" if error else ""
                raise CheckError("\n".join([*self.found["wrong"], kept + also]))
        except subprocess.TimeoutExpired:
            raise CheckError(f"the histories are not checked after {CHECKING} s") from error
        finally:
            self._process.kill()
            self._process.wait()

    def excused(self, node: Node, which: int = -1) -> dict[str, Any]:
        """The answers of a node's API server during a fault of that node, by default the last."""
        return [found for found in self.found["excuses"] if found["server"] == node.name][which]

    def summary(self) -> str:
        """The history in one line."""
        found = self.found
        by_kind = found["operations"]
        after = f" ({found['afterWhat']})" if found.get("afterWhat") else ""
        writes = sum(by_kind.get(kind, 0) for kind in ("create", "update", "patch", "delete"))
        return (
            f"linearizable: {writes} writes, {by_kind.get('get', 0)} reads and {by_kind.get('list', 0)} lists at "
            f"{len(found['byServer'])} API servers ({found['unanswered']} without an outcome), {found['changes']} changes "
            f"in each of {found['sessions']} watches' time, told {found['watchLagP99Ms']:.0f} ms after the write's answer "
            f"(p99; at most {found['watchLagMaxMs']:.0f}); the longest time without a write {found['longestWithoutAWrite']:.1f} s{after}"
        )


def require_answers(histories: Histories, nodes: Sequence[Node], least: int) -> None:
    """Raise CheckError if a server has answered almost nothing."""
    for node in nodes:
        answers = histories.found["byServer"].get(node.name, 0)
        require(answers >= least, f"{node.name} has answered {answers} requests: too few to say anything")
