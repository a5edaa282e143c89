# SPDX-License-Identifier: Apache-2.0
"""The controller of a network: its topology file, its process, and its admin API."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netcraq.admin import SYSTEM_SOCKET, Admin, AdminError

from topologies import network_namespaces, nodes, p4app
from topologies.ownership import Run

ADMIN = "127.0.0.1:20036"
"""The controller's default address for its page and its metrics, and for the admin API with a
token.
"""


def socket_for(run: Run) -> str:
    """Return the socket of a run's admin API: the usual one, or, in a private network namespace,
    one with the run's id.
    """
    if network_namespaces.PRIVATE in os.environ:
        return SYSTEM_SOCKET.replace("controller", run.id)
    return SYSTEM_SOCKET


def declaration(topology: p4app.Topology) -> dict[str, Any]:
    """Return the controller's own file for a network: switches with their P4Runtime servers, links
    by port, hosts, chains.
    """
    compiled = p4app.ROOT / "p4src" / "compiled"
    return {
        "program": {
            "profile": str(topology.profile),
            "json": str(compiled / f"netcraq-{topology.profile}.json.gz"),
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
            [f"{end.node}:{end.port}" for end in link.ends]
            for link in topology.links
            if all(end.node in topology.switches for end in link.ends)
        ],
        "hosts": [
            {
                "name": host.name,
                "ip": str(host.ip.ip),
                "mac": host.mac,
                "port": f"{host.switch}:{host.port}",
                **{what: said for what in ("principal", "access", "rate") if (said := getattr(host, what)) is not None},
            }
            for host in topology.hosts.values()
        ],
        "hostRate": topology.host_rate,
        "realms": [{"name": realm.name, "prefixes": list(realm.prefixes)} for realm in topology.realms],
        "chains": [
            {
                "id": chain.id,
                "name": chain.name,
                "address": str(chain.service),
                "members": list(chain.members),
                "leaseMillis": chain.lease_ms,
                **({} if chain.short_lease_ms is None else {"shortLeaseMillis": chain.short_lease_ms}),
                **({} if chain.rejoin_ms is None else {"rejoinMillis": chain.rejoin_ms}),
                **({} if chain.slots is None else {"slots": chain.slots}),
            }
            for chain in topology.chains
        ],
    }


class Operator(Admin):
    """The operator's part of the controller's admin API, added to the clients' part. ``api/admin``
    describes the JSON types.
    """

    def __init__(self, url: str | None = None, timeout: float = 30.0, token_file: str | Path | None = None) -> None:
        super().__init__(url, timeout, token_file)

    def ready(self) -> None:
        """Raise AdminError, which says what is missing, unless every chain serves."""
        self._do("GET", "/readyz")

    def chain(self, chain: str) -> dict[str, Any]:
        """One chain with its members."""
        return self._do("GET", f"/v1/chains/{_segment(chain)}")

    def change_chain(self, chain: str, **change: Any) -> dict[str, Any]:
        """Change a running chain: ``leaseMillis``, ``frozen``, ``members``."""
        return self._do("PUT", f"/v1/chains/{_segment(chain)}", change)

    def recover(self, chain: str, switch: str) -> dict[str, Any]:
        """Bring a switch into a chain; return when it is a member."""
        return self._do("POST", f"/v1/chains/{_segment(chain)}/recover", {"switch": switch})

    def events(self) -> list[dict[str, Any]]:
        """Return the events of chains, switches and keys that the controller has kept."""
        lines = self._ask("GET", "/v1/events?follow=0").decode().splitlines()
        return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]

    def add_keys(self, chain: str, keys: dict[str, bytes | None]) -> list[dict[str, Any]]:
        """Place keys, by name, with their initial values (None: no value). An entry with an
        ``error`` was not placed; the others were.
        """
        specs = [
            {"name": name} if value is None else {"name": name, "value": base64.b64encode(value).decode()}
            for name, value in keys.items()
        ]
        return self._do("POST", f"/v1/chains/{_segment(chain)}/keys", specs)

    def add_key(self, chain: str, name: str, value: bytes | None = None) -> int:
        """Place one key and return its KEY_ID."""
        [key] = self.add_keys(chain, {name: value})
        if key.get("error"):
            raise AdminError(key["error"]["code"], key["error"]["message"])
        return key["keyId"]

    def remove_key(self, chain: str, key: str) -> None:
        """Delete a key's value through the chain and remove the key from the network."""
        self._do("DELETE", f"/v1/chains/{_segment(chain)}/keys/{_segment(key)}")

    def key_states(self, name: str) -> list[dict[str, Any]]:
        """Fetch each member's state of a key, head first."""
        keys = self._do("GET", "/v1/keys?" + urllib.parse.urlencode({"prefix": name, "state": "1"}))
        return next(key["state"] for key in keys if key["name"] == name)

    def switches(self) -> list[dict[str, Any]]:
        """Return the controller's view of the switches."""
        return self._do("GET", "/v1/switches")

    def placement(self) -> dict[str, Any]:
        """Return which etcd keys are placed, and why."""
        return self._do("GET", "/v1/placement")

    def placement_rule(self, key: str, choice: str, *, prefix: bool = False) -> None:
        """Set the rule for a key, or for all keys with this prefix: ``pin``, ``exclude``,
        ``include``, ``unpin``, ``clear``.
        """
        self._do("PUT", "/v1/placement/rules", {"key": key, "prefix": prefix, "choice": choice})

    def counters(self, switch: str) -> dict[str, Any]:
        """Return one switch's counters, read over P4Runtime."""
        return self._do("GET", f"/v1/switches/{_segment(switch)}/counters")


def _segment(text: str) -> str:
    return urllib.parse.quote(text, safe="").replace(".", "%2E")


class Controller:
    """The controller process."""

    def __init__(
        self, run: Run, topology: p4app.Topology, out: Path, socket: str, tcp: str = ADMIN, flags: Sequence[str] = ()
    ) -> None:
        self.run = run
        self.flags = flags
        self.topology = topology
        self.file = out / "controller.json"
        self.log = out / "controller.log"
        self.endpoints = f"{socket},{tcp}"
        # The user who ran sudo may use the admin API from other terminals without sudo.
        self.users = [f"--admin-users={user}"] if (user := os.environ.get("SUDO_UID")) else []
        self.admin = Operator(socket)
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Write the controller's file and start the process."""
        self.file.write_text(json.dumps(declaration(self.topology), indent=2) + "\n")
        command = [
            nodes.built("netcraq-controller"),
            "--topology",
            str(self.file),
            "--admin",
            self.endpoints,
            *self.users,
            *self.flags,
        ]
        self.process = nodes.start_process(self.run, command, self.log)

    def wait_ready(self, timeout: float = 30) -> None:
        """Wait until every chain serves. A NodeError after the timeout says what is missing."""
        deadline = time.monotonic() + timeout
        while True:
            if self.process is None or self.process.poll() is not None:
                raise nodes.NodeError(
                    f"the controller ended with {nodes.exit_status(self.process)}; {nodes.tail(self.log)}"
                )
            try:
                self.admin.ready()
                return
            except AdminError as why:
                if time.monotonic() > deadline:
                    raise nodes.NodeError(
                        f"the chain does not come up within {timeout:g} s: {why}; {nodes.tail(self.log)}"
                    ) from None
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Stop the process."""
        nodes.stop_process(self.process)
