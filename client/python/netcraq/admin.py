# SPDX-License-Identifier: Apache-2.0
"""What the controller's admin API (HTTP and JSON) tells a client: chains, the KEY_IDs of names, and sessions to write with."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from netcraq import wire

DEFAULT_URL = "http://127.0.0.1:20036"


class AdminError(Exception):
    """The controller refused, or did not answer. ``code`` is its error code, or "unreachable"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Session:
    """A session id that nobody else writes under, and the number of its next request (from 1; above every number that it was used with)."""

    id: int
    next_request: int = 1


@dataclass(frozen=True)
class Chain:
    """A chain as a client needs it."""

    name: str
    id: int
    service_address: str
    member_addresses: dict[str, str]
    """By name of the switch, head first."""
    value_bits: int

    @property
    def addresses(self) -> list[str]:
        """The service address and the members' own."""
        return [self.service_address, *self.member_addresses.values()]


class Admin:
    """A controller. url defaults to $NETCRAQ_ADMIN, or the controller's default address on this machine. timeout is in seconds, for each request."""

    def __init__(self, url: str | None = None, timeout: float = 2.0) -> None:
        url = url or os.environ.get("NETCRAQ_ADMIN") or DEFAULT_URL
        self.url = (url if "://" in url else "http://" + url).rstrip("/")
        self.timeout = timeout

    def chains(self) -> list[Chain]:
        """All chains."""
        return [
            Chain(c["name"], c["id"], c["serviceAddress"], {m["switch"]: m["address"] for m in c["members"]}, c["valueBytes"] * 8)
            for c in self._do("GET", "/v1/chains") or []
        ]

    def keys(self, prefix: str = "") -> dict[str, int]:
        """The placed keys whose names start with prefix: name to KEY_ID."""
        return {k["name"]: k["keyId"] for k in self._do("GET", "/v1/keys?" + urllib.parse.urlencode({"prefix": prefix})) or []}

    def key_id(self, name: str) -> int:
        """The KEY_ID of a placed key. Raises AdminError with code not_found."""
        return self._do("GET", "/v1/keys/" + _segment(name))["keyId"]

    def lease_sessions(self, count: int = 1, owner: str = "netcraq python client", address: str | None = None) -> SessionLease:
        """Leases sessions to write with.

        address: the IPv4 address in the network of the host that will write (:func:`host_address`), since no other can. None
        will do where hosts may use sessions that they have not leased.
        """
        asked = time.monotonic()
        got = self._do("POST", "/v1/sessions", {"count": count, "owner": owner} | ({"address": address} if address else {}))
        sessions = [Session(s["id"], s["nextRequest"]) for s in got["sessions"]]
        return SessionLease(self, got["lease"], sessions, got["ttlSeconds"], asked, count, owner, address)

    def _do(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                text = response.read()
            return json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            try:
                error = json.loads(e.read())["error"]
                raise AdminError(error["code"], error["message"]) from None
            except (ValueError, KeyError, TypeError):
                raise AdminError("internal", f"{self.url}{path}: {e}") from None
        except (OSError, ValueError) as e:
            why = getattr(e, "reason", e)
            raise AdminError("unreachable", f"asking the controller at {self.url} (is it running, and is this its address?): {why}") from None


def host_address(to: str) -> str | None:
    """The IPv4 address from which this host sends to another ("ADDRESS" or "ADDRESS:PORT", as a chain's service address).

    None: there is no way to that.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect((to.partition(":")[0], wire.PORT))  # sends nothing
        except OSError:
            return None
        return str(s.getsockname()[0])


def _segment(s: str) -> str:
    """s as one segment of a path. Dots too: "." and ".." would be cleaned away."""
    return urllib.parse.quote(s, safe="").replace(".", "%2E")


@dataclass
class SessionLease:
    """Sessions for a limited time. A client keeps the lease when it writes; one that does not write in the lease's time loses it, and leases anew."""

    admin: Admin
    name: str
    sessions: list[Session]
    ttl: float
    renewed: float = field(repr=False)
    count: int = 1
    owner: str = ""
    address: str | None = None
    """Of the host that can write with the sessions, if that was said."""

    def again(self) -> SessionLease:
        """Another lease, as this one was asked for."""
        return self.admin.lease_sessions(self.count, self.owner, self.address)

    def keep(self) -> bool:
        """Keeps the lease if that is due. False: it has run out, and the sessions must not be used any more."""
        now = time.monotonic()
        ends = self.renewed + 0.9 * self.ttl  # a tenth for what is on its way then
        if now - self.renewed > self.ttl / 3 and now < ends:
            try:
                self.admin._do("PUT", "/v1/sessions/" + _segment(self.name))
                self.renewed = now
                ends = now + 0.9 * self.ttl
            except AdminError as e:
                if e.code == "not_found":
                    return False
        return time.monotonic() < ends

    @property
    def ends(self) -> float:
        """When the sessions must not be used any more, on time.monotonic()'s clock."""
        return self.renewed + 0.9 * self.ttl

    def close(self) -> None:
        """Gives the sessions back."""
        with contextlib.suppress(AdminError):  # the lease runs out by itself
            self.admin._do("DELETE", "/v1/sessions/" + _segment(self.name))


def describe(chains: list[Chain]) -> str:
    """Chains in a few words, for messages."""
    return ", ".join(f"{c.name} ({c.id})" for c in chains) or "none"


def chain_of(chains: list[Chain], key: int) -> Chain:
    """The chain that a KEY_ID belongs to."""
    for c in chains:
        if c.id == key >> 24:
            return c
    wanted = f"chain {key >> 24}, which the KEY_ID {wire.format_key(key)} belongs to"
    raise AdminError("not_found", f"the controller has no {wanted}; it has {describe(chains)}")
