# SPDX-License-Identifier: Apache-2.0
"""The controller of a network: its topology file, its process, and its admin API."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from topologies import nodes, p4app
from topologies.ownership import Run

ADMIN = "127.0.0.1:20036"
"""Where the controller serves its admin API unless told otherwise."""


def declaration(topology: p4app.Topology) -> dict[str, Any]:
    """The controller's own file for a network: switches with their P4Runtime servers, links by port, hosts, chains."""
    compiled = p4app.ROOT / "p4src" / "compiled"
    return {
        "program": {
            "profile": str(topology.profile),
            "json": str(compiled / f"netcraq-{topology.profile}.json"),
            "p4info": str(compiled / f"netcraq-{topology.profile}.p4info.txtpb"),
        },
        "switches": [
            {
                "name": switch.name,
                "p4runtime": f"127.0.0.1:{switch.grpc_port}",
                "deviceId": switch.device_id,
                "address": str(switch.address),
                "mac": switch.mac,
            }
            for switch in topology.switches.values()
        ],
        "links": [
            [f"{end.node}:{end.port}" for end in link.ends] for link in topology.links if all(end.node in topology.switches for end in link.ends)
        ],
        "hosts": [
            {"name": host.name, "ip": str(host.ip.ip), "mac": host.mac, "port": f"{host.switch}:{host.port}"} for host in topology.hosts.values()
        ],
        "chains": [
            {
                "id": chain.id,
                "name": chain.name,
                "address": str(chain.service),
                "members": list(chain.members),
                "leaseMillis": chain.lease_ms,
                **({} if chain.slots is None else {"slots": chain.slots}),
            }
            for chain in topology.chains
        ],
    }


class AdminError(Exception):
    """A request that the controller refused. ``code`` is one of its API's (``not_found``, ``unavailable`` ...)."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Admin:
    """A client of the admin API: JSON in, JSON out, as ``controlplane/admin/api`` describes the types."""

    def __init__(self, address: str = ADMIN, timeout: float = 30) -> None:
        self.address = address
        self.timeout = timeout
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # loopback is no matter for a proxy

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request. AdminError where the controller refuses it or cannot be reached."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with self._open(request, timeout=self.timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as refusal:
            text = refusal.read().decode(errors="replace")
            try:
                error = json.loads(text)["error"]
                raise AdminError(error["code"], error["message"]) from None
            except (ValueError, KeyError, TypeError):
                raise AdminError("internal", f"{method} {path}: HTTP {refusal.code}: {text.strip()}") from None
        except OSError as why:
            raise AdminError("unavailable", f"the controller does not answer at {self.address}: {why}") from None
        return json.loads(text) if text.strip() else None

    def ready(self) -> None:
        """AdminError, saying what is missing, unless every chain serves."""
        request = urllib.request.Request(f"http://{self.address}/readyz")
        try:
            self._open(request, timeout=self.timeout).close()
        except urllib.error.HTTPError as refusal:
            text = refusal.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]["message"]
            except (ValueError, KeyError, TypeError):
                text = text.strip()
            raise AdminError("unavailable", text) from None
        except OSError as why:
            raise AdminError("unavailable", f"the controller does not answer at {self.address}: {why}") from None

    def chain(self, chain: str) -> dict[str, Any]:
        """One chain with its members."""
        return self.call("GET", f"/v1/chains/{_segment(chain)}")

    def change_chain(self, chain: str, **change: Any) -> dict[str, Any]:
        """Change a running chain: ``leaseMillis``, ``frozen``, ``members``."""
        return self.call("PUT", f"/v1/chains/{_segment(chain)}", change)

    def add_keys(self, chain: str, keys: dict[str, bytes | None]) -> list[dict[str, Any]]:
        """Place keys, by name, with their first values (None: none yet). An entry with an ``error`` was not placed; the others were."""
        specs = [{"name": name} if value is None else {"name": name, "value": base64.b64encode(value).decode()} for name, value in keys.items()]
        return self.call("POST", f"/v1/chains/{_segment(chain)}/keys", specs)

    def add_key(self, chain: str, name: str, value: bytes | None = None) -> int:
        """Place one key and return its KEY_ID."""
        [key] = self.add_keys(chain, {name: value})
        if key.get("error"):
            raise AdminError(key["error"]["code"], key["error"]["message"])
        return key["keyId"]

    def remove_key(self, chain: str, key: str) -> None:
        """Delete a key's value through the chain and take the key out of the network."""
        self.call("DELETE", f"/v1/chains/{_segment(chain)}/keys/{_segment(key)}")

    def keys(self, prefix: str = "", state: bool = False) -> list[dict[str, Any]]:
        """The placed keys; with ``state``, what each member holds is fetched from it."""
        return self.call("GET", "/v1/keys?" + urllib.parse.urlencode({"prefix": prefix, **({"state": "1"} if state else {})}))

    def switches(self) -> list[dict[str, Any]]:
        """The switches as the controller sees them."""
        return self.call("GET", "/v1/switches")

    def counters(self, switch: str) -> dict[str, Any]:
        """One switch's counters, read from it over P4Runtime."""
        return self.call("GET", f"/v1/switches/{_segment(switch)}/counters")

    def sessions(self, count: int, owner: str) -> dict[str, Any]:
        """Lease writer sessions: ``lease``, ``sessions`` (each ``id`` and ``nextRequest``), ``ttlSeconds``."""
        return self.call("POST", "/v1/sessions", {"count": count, "owner": owner})

    def keep_sessions(self, lease: str) -> dict[str, Any]:
        """Renew a lease on sessions."""
        return self.call("PUT", f"/v1/sessions/{_segment(lease)}")


def _segment(text: str) -> str:
    return urllib.parse.quote(text, safe="")


class Controller:
    """The controller process."""

    def __init__(self, run: Run, topology: p4app.Topology, out: Path, admin: str = ADMIN) -> None:
        self.run = run
        self.topology = topology
        self.file = out / "controller.json"
        self.log = out / "controller.log"
        self.admin = Admin(admin)
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Write the controller's file and start the process."""
        self.file.write_text(json.dumps(declaration(self.topology), indent=2) + "\n")
        command = [nodes.built("netcraq-controller"), "--topology", str(self.file), "--admin", self.admin.address]
        self.process = nodes.start_process(self.run, command, self.log)

    def wait_ready(self, timeout: float = 30) -> None:
        """Wait until every chain serves. NodeError, saying what is missing, where that does not come about."""
        deadline = time.monotonic() + timeout
        while True:
            if self.process is None or self.process.poll() is not None:
                raise nodes.NodeError(f"the controller ended with {nodes.exit_status(self.process)}; {nodes.tail(self.log)}")
            try:
                self.admin.ready()
                return
            except AdminError as why:
                if time.monotonic() > deadline:
                    raise nodes.NodeError(f"the chain does not come up within {timeout:g} s: {why}; {nodes.tail(self.log)}") from None
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End the process."""
        nodes.stop_process(self.process)
