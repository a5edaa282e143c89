# SPDX-License-Identifier: Apache-2.0
"""The API server's HTTP interface without a process for each request, through ``kubectl proxy`` on
a Unix socket in a folder of the node.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

from e2e.kubectl import until
from e2e.lan import DIE_WITH_PARENT
from e2e.node import Node


class ApiError(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, folder: int, name: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = f"/proc/self/fd/{folder}/{name}"  # a socket's path is limited to 107 bytes

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Api:
    """Requests to the API server as the administrator."""

    def __init__(self, node: Node) -> None:
        (node.folder / "mnt" / "api.sock").unlink(missing_ok=True)
        self._folder = os.open(node.folder / "mnt", os.O_PATH | os.O_DIRECTORY)
        command = node.command(
            ["env", "KUBECONFIG=/etc/kubernetes/admin.conf", "kubectl", "proxy", "--unix-socket=/mnt/api.sock"]
        )
        self._proxy = subprocess.Popen(
            [*DIE_WITH_PARENT, *command], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        until("kubectl proxy answers", self._answers, every=0.2)

    def __enter__(self) -> Api:
        """Return this object, which :meth:`__init__` has set up."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the proxy."""
        self._proxy.kill()
        self._proxy.wait()
        os.close(self._folder)

    def request(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", seconds: float = 60
    ) -> Any:
        """Send a request, and return its answer."""
        connection = _Connection(self._folder, "api.sock", seconds)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(answer.status, f"{method} {path}: {content.decode(errors='replace')[:500]}")
        return json.loads(content) if content[:1] in (b"{", b"[") else content.decode()

    def get(self, path: str) -> Any:
        """GET an object."""
        return self.request("GET", path)

    def merge(self, path: str, body: Any) -> Any:
        """Change some fields."""
        return self.request("PATCH", path, body, kind="application/merge-patch+json")

    def gone(self, path: str) -> bool:
        """Whether the object does not exist."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        return False

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, ApiError):
            self.get("/version")
            return True
        return False


class Watch:
    """The events of the objects in a path, each with the time of its arrival. A thread receives
    them.
    """

    def __init__(self, api: Api, path: str, version: str) -> None:
        self.events: list[tuple[float, str, dict[str, Any]]] = []
        self._connection = _Connection(api._folder, "api.sock", 600)
        self._connection.request("GET", f"{path}{'&' if '?' in path else '?'}watch=1&resourceVersion={version}")
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            for line in self._lines():
                event = json.loads(line)
                self.events.append((time.monotonic(), event["type"], event["object"]))

    def _lines(self) -> Iterator[bytes]:
        while line := self._answer.readline():
            yield line

    def close(self) -> None:
        """Stop receiving events."""
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._connection.close()
