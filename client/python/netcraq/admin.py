# SPDX-License-Identifier: Apache-2.0
"""Requests to the controller's admin API (HTTP and JSON) for a client: chains, the KEY_IDs of
names, and sessions to write with.

On its Unix socket the controller accepts root and its own user. Over TCP it accepts clients that
send the token.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netcraq import wire

SYSTEM_SOCKET = "unix:///run/netcraq-admin/controller.sock"
"""The socket of the system's controller."""


def default_url() -> str:
    """The default URL. It is the socket of the system's controller. If that socket does not exist,
    users other than root get the socket of their own controller.
    """
    own = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() == 0 or not own or os.path.exists(SYSTEM_SOCKET.removeprefix("unix://")):
        return SYSTEM_SOCKET
    return f"unix://{own}/netcraq-admin/controller.sock"


class AdminError(Exception):
    """The controller refused a request, or did not answer. ``code`` is the controller's error code,
    or "unreachable". If a name has no key, ``settled`` is set, with the same meaning as in
    :class:`Key`.
    """

    def __init__(self, code: str, message: str, settled: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.settled = settled


@dataclass
class Session:
    """A session id that no other client writes under, and the number of its next request. The
    number is at least 1, and greater than every number that was used with the session.
    """

    id: int
    next_request: int = 1


@dataclass(frozen=True)
class Chain:
    """The properties of a chain that a client needs."""

    name: str
    id: int
    service_address: str
    member_addresses: dict[str, str]
    """The members' addresses by the name of the switch, head first."""
    value_bits: int

    @property
    def addresses(self) -> list[str]:
        """The service address and the members' own addresses."""
        return [self.service_address, *self.member_addresses.values()]


@dataclass(frozen=True)
class Key:
    """The place of a key."""

    name: str
    id: int
    """The KEY_ID."""
    version_offset: int = 0
    """A version of the name is this number plus the version of the KEY_ID, in 64 bits."""
    unwritten: int = 0
    """The version of the name until the key is first written. 0 means that the key was created with
    a value.
    """
    settled: float = 0.0
    """The number of seconds for which the name has had no other KEY_ID, at least."""


class Admin:
    """A controller.

    url is ``unix:///PATH`` of the controller's socket, or ``http://HOST:PORT``. It defaults to
    $NETCRAQ_ADMIN, or to the controller's socket on this machine. token_file is the file with the
    token that the controller requires over TCP. It defaults to $NETCRAQ_TOKEN_FILE. timeout is in
    seconds, and applies to each request.
    """

    def __init__(
        self, url: str | None = None, timeout: float = 2.0, token_file: str | os.PathLike[str] | None = None
    ) -> None:
        url = url or os.environ.get("NETCRAQ_ADMIN") or default_url()
        self.url = (url if "://" in url else "http://" + url).rstrip("/")
        self.timeout = timeout
        self.token_file = token_file or os.environ.get("NETCRAQ_TOKEN_FILE")

    def chains(self) -> list[Chain]:
        """All chains."""
        return [
            Chain(
                c["name"],
                c["id"],
                c["serviceAddress"],
                {m["switch"]: m["address"] for m in c["members"]},
                c["valueBytes"] * 8,
            )
            for c in self._do("GET", "/v1/chains") or []
        ]

    def keys(self, prefix: str = "") -> dict[str, int]:
        """The placed keys whose names start with prefix, as recorded by the controller. The result
        maps names to KEY_IDs (32 bits).

        Raises AdminError with code unavailable if the controller does not know whether it leads. In
        that case, try again.
        """
        return {
            k["name"]: k["keyId"]
            for k in self._do("GET", "/v1/keys?" + urllib.parse.urlencode({"prefix": prefix})) or []
        }

    def key_id(self, name: str) -> int:
        """The KEY_ID of a placed key. Raises AdminError with code not_found."""
        return self._do("GET", "/v1/keys/" + _segment(name))["keyId"]

    def lookup(self, name: str) -> Key:
        """Returns the place of a key. Raises AdminError with code not_found if the name has no key,
        and with code unavailable while the key is being moved. In the latter case, try again.
        """
        return self._key(self._do("GET", "/v1/keys/" + _segment(name)))

    def request_key(self, name: str, *, chains: list[str] | None = None, quota: tuple[str, int] | None = None) -> Key:
        """Makes the controller add a key for the name, if the name has none, in the chain with the
        most free slots.

        chains names the allowed chains. quota is a prefix of the name, and the maximum number of
        keys with this prefix. Raises AdminError with code resource_exhausted or quota_exceeded.
        """
        body: dict[str, Any] = {"name": name}
        if chains:
            body["chains"] = chains
        if quota:
            body["quota"] = {"prefix": quota[0], "keys": quota[1]}
        return self._key(self._do("POST", "/v1/keys", body))

    @staticmethod
    def _key(k: dict[str, Any]) -> Key:
        return Key(
            k["name"],
            k["keyId"],
            int(k.get("versionOffset", 0)),
            int(k.get("unwritten", 0)),
            k.get("settledMillis", 0) / 1000,
        )

    def lease_sessions(
        self, count: int = 1, owner: str = "netcraq python client", address: str | None = None
    ) -> SessionLease:
        """Leases sessions to write with.

        address is the IPv4 address of the host that will write (:func:`host_address`), because
        switches accept the sessions only from this host. address may be None if hosts may use
        sessions without a lease.
        """
        asked = time.monotonic()
        got = self._do(
            "POST", "/v1/sessions", {"count": count, "owner": owner} | ({"address": address} if address else {})
        )
        sessions = [Session(s["id"], s["nextRequest"]) for s in got["sessions"]]
        return SessionLease(self, got["lease"], sessions, got["ttlSeconds"], asked, count, owner, address)

    def page_link(self) -> str:
        """A login link for the controller's page. It works once, within five minutes."""
        return self._do("POST", "/v1/page")["url"]

    def _do(self, method: str, path: str, body: Any = None) -> Any:
        text = self._ask(method, path, None if body is None else json.dumps(body).encode())
        try:
            return json.loads(text) if text else None
        except ValueError as e:
            raise AdminError("internal", f"{self.url}{path}: {e}") from None

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of the answer to a request."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            if self.token_file:
                headers["Authorization"] = "Bearer " + Path(self.token_file).read_text().strip()
        except OSError as e:
            raise AdminError("unauthenticated", f"the token for the controller: {e}") from None
        try:
            with contextlib.closing(self._connection()) as connection:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                text = response.read()
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise AdminError(
                "unreachable",
                f"cannot reach the controller at {self.url}: {e} (is it running, and is this its address?)",
            ) from None
        if response.status < 300:
            return text
        try:
            error = json.loads(text)["error"]
            raise AdminError(error["code"], error["message"], error.get("settledMillis", 0) / 1000)
        except (ValueError, KeyError, TypeError):
            raise AdminError("internal", f"{self.url}{path}: {response.status} {response.reason}") from None

    def _connection(self) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, self.timeout)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}.get(parts.scheme)
        if kind is None or parts.hostname is None:
            raise ValueError(f"{self.url} is neither unix:///PATH nor http://HOST:PORT")
        return kind(parts.hostname, parts.port, timeout=self.timeout)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def host_address(to: str) -> str | None:
    """The IPv4 address from which this host sends to another address. ``to`` is "ADDRESS" or
    "ADDRESS:PORT", for example a chain's service address.

    Returns None if there is no route to the address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect((to.partition(":")[0], wire.PORT))  # connect sends nothing
        except OSError:
            return None
        return str(s.getsockname()[0])


def _segment(s: str) -> str:
    """Quotes s as one segment of a path. Dots are also quoted, because "." and ".." would be
    removed from paths.
    """
    return urllib.parse.quote(s, safe="").replace(".", "%2E")


@dataclass
class SessionLease:
    """Sessions for a limited time. A client renews the lease when it writes. If a client does not
    write for the lease's duration, it loses the lease, and requests a new lease for its next write.
    """

    admin: Admin
    name: str
    sessions: list[Session]
    ttl: float
    renewed: float = field(repr=False)
    count: int = 1
    owner: str = ""
    address: str | None = None
    """The address of the host that can write with the sessions; None if no address was given."""

    def again(self) -> SessionLease:
        """Requests another lease with the same parameters."""
        return self.admin.lease_sessions(self.count, self.owner, self.address)

    def keep(self) -> bool:
        """Renews the lease if that is due. Returns False if the lease has expired and the sessions
        must no longer be used.
        """
        now = time.monotonic()
        # the last tenth of the lease is left for requests under way
        ends = self.renewed + 0.9 * self.ttl
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
        """The time, on the clock of time.monotonic(), from which the sessions must no longer be
        used."""
        return self.renewed + 0.9 * self.ttl

    def close(self) -> None:
        """Releases the sessions."""
        with contextlib.suppress(AdminError):  # if this fails, the lease expires by itself
            self.admin._do("DELETE", "/v1/sessions/" + _segment(self.name))


def describe(chains: list[Chain]) -> str:
    """Describes chains in a few words, for messages."""
    return ", ".join(f"{c.name} ({c.id})" for c in chains) or "none"


def chain_for(chains: list[Chain], key: int | None) -> Chain:
    """The chain of a KEY_ID or, if key is None, the only chain."""
    if key is not None:
        return chain_of(chains, key)
    if len(chains) != 1:
        raise ValueError(f"the controller has {len(chains)} chains: say of which key")
    return chains[0]


def chain_of(chains: list[Chain], key: int) -> Chain:
    """The chain that a KEY_ID belongs to."""
    for c in chains:
        if c.id == key >> 24:
            return c
    wanted = f"chain {key >> 24}, which the KEY_ID {wire.format_key(key)} belongs to"
    raise AdminError("not_found", f"the controller has no {wanted}; it has {describe(chains)}")
