# SPDX-License-Identifier: Apache-2.0
"""A reference chain and controller on loopback, for tests of their clients.

The chain answers as docs/protocol.md specifies. All steps between head and tail happen at once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import socketserver
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from netcraq.wire import REQUEST_WINDOW, Op, Packet, Status, WireError, version

CHAIN = 1


class RefChain:
    """Answers as docs/protocol.md specifies, and loses and duplicates packets as configured.
    ``violations`` lists what clients did that they must not do.

    Every host may use every key and every session, with two exceptions. A key with a realm
    (``realms``) is for the principal of the same number, and for others as ``grants`` allows. A
    leased session (:meth:`lease`) is for its host. A host is an IPv4 address: tests bind clients to
    addresses of 127.0.0.0/8.
    """

    def __init__(
        self,
        addresses: int | list[tuple[str, int]] = 1,
        value_bits: int = 128,
        loss: float = 0,
        duplicate: float = 0,
        seed: int = 0,
    ) -> None:
        """``addresses`` are the addresses to listen on, or the number of loopback addresses, all at
        one port that the system chooses. The first is the service address.
        """
        if isinstance(addresses, int):
            addresses = [(f"127.0.0.{1 + i}", 0) for i in range(addresses)]
        self.value_bits, self.loss, self.duplicate = value_bits, loss, duplicate
        self.random = random.Random(seed)
        self.slots: dict[int, tuple[int, bytes | None]] = {}
        self.sessions: dict[int, tuple[int, int]] = {}
        self.seen: dict[tuple[int, int], bytes] = {}
        self.session_table = 4096
        self.frozen = False
        self.down: set[int] = set()
        self.refuse: dict[int, Status] = {}
        self.principals: dict[str, int] = {}
        """The principal of a host. A host without an entry has none."""
        self.realms: dict[int, int] = {}
        """The realm of a key."""
        self.grants: dict[tuple[int, int], str] = {}
        """The rights of a principal in a realm: "r", "w" or "rw"."""
        self.holders: dict[int, str] = {}
        """The host of a leased session."""
        self.requests = self.executed = 0
        self.violations: list[str] = []
        self.lock = threading.Lock()
        self.sockets: list[socket.socket] = []
        chosen = 0
        for host, port in addresses:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((host, port or chosen))
            s.settimeout(0.1)
            chosen = s.getsockname()[1]
            self.sockets.append(s)
        self.addresses = ["{}:{}".format(*s.getsockname()) for s in self.sockets]
        self.stopped = False
        self.threads = [threading.Thread(target=self._serve, args=(i,)) for i in range(len(addresses))]
        for t in self.threads:
            t.start()

    def close(self) -> None:
        """Stop the chain."""
        self.stopped = True
        for t in self.threads:
            t.join()
        for s in self.sockets:
            s.close()

    def place(self, *keys: int) -> None:
        """Give keys slots, which were never written."""
        for k in keys:
            self.slots[k] = (0, None)

    def lease(self, session: int, host: str, last: int = 0) -> None:
        """Lease a session to a host, which is then the only one that may write with it. The
        session's record starts again after the request ``last``.
        """
        with self.lock:
            self.holders[session] = host
            self.sessions[session] = (last, 0)
            # forget the requests of an earlier holder
            self.seen = {(s, r): payload for (s, r), payload in self.seen.items() if s != session}

    def _may(self, host: str, p: Packet) -> bool:
        realm, principal = self.realms.get(p.key), self.principals.get(host)
        if realm is None or realm == principal:
            return True
        needed = {Op.READ: "r", Op.WRITE: "w", Op.CAS: "rw"}.get(p.op, "")  # the failure of a CAS discloses the value
        return all(n in self.grants.get((principal or 0, realm), "") for n in needed)

    def _copies(self) -> int:
        return 0 if self.random.random() < self.loss else 2 if self.random.random() < self.duplicate else 1

    def _serve(self, i: int) -> None:
        while not self.stopped:
            try:
                payload, client = self.sockets[i].recvfrom(2048)
            except TimeoutError:
                continue
            with self.lock:
                for _ in range(self._copies()):
                    reply = self._take(i, payload, client[0])
                    if reply is None:
                        continue
                    out = self.sockets[i if reply.status == Status.NO_CHAIN else 0]
                    for _ in range(self._copies()):
                        out.sendto(reply.encode(self.value_bits), client)

    def _take(self, i: int, payload: bytes, host: str) -> Packet | None:
        if i in self.down:
            return None
        try:
            p = Packet.decode(payload, self.value_bits)
        except WireError as e:
            self.violations.append(str(e))
            return None
        self.requests += 1
        reply = replace(p, op=p.op.reply or p.op, flags=type(p.flags)(0), epoch=1)
        if i in self.refuse:
            return replace(reply, status=self.refuse[i])
        if p.key >> 24 != CHAIN:
            return replace(reply, status=Status.NO_CHAIN)
        slot = self.slots.get(p.key)
        denied = slot is not None and not self._may(host, p)
        if p.op == Op.READ:
            if denied:
                return replace(reply, status=Status.DENIED)
            v, value = slot or (0, None)
            return replace(reply, status=Status.NOT_FOUND if value is None else Status.OK, version=v, value=value)
        if p.op not in (Op.WRITE, Op.CAS) or p.flags or p.epoch:
            self.violations.append(f"a client may not send {p}")
            return None
        if p.session and self.seen.setdefault((p.session, p.request), payload) != payload:
            self.violations.append(f"session {p.session} sends request {p.request} with other content")
        if self.holders.get(p.session, host) != host:
            return replace(reply, status=Status.BAD_SESSION)
        if self.frozen:
            return replace(reply, status=Status.RETRY)
        if p.session >= self.session_table:
            return replace(reply, status=Status.BAD_SESSION)
        if denied:
            return replace(reply, status=Status.DENIED)
        if slot is None:
            return replace(reply, status=Status.NOT_FOUND, version=0, value=None)
        last, given = self.sessions.get(p.session, (0, 0))
        if p.session and last and p.request - last > REQUEST_WINDOW:
            return replace(reply, status=Status.BAD_SESSION)
        if p.session and p.request < last:
            return None
        if p.session and p.request == last and given:
            if given < slot[0]:
                return replace(reply, status=Status.SUPERSEDED, version=given)
            return replace(reply, version=slot[0], value=slot[1])
        if p.op == Op.CAS and p.version != slot[0]:
            self.sessions[p.session] = (p.request, 0)
            return replace(reply, status=Status.CAS_FAILED, version=slot[0], value=slot[1])
        new = version(1, (slot[0] & ((1 << 48) - 1)) + 1)
        self.slots[p.key] = (new, p.value)
        self.sessions[p.session] = (p.request, new)
        self.executed += 1
        return replace(reply, version=new)


class RefController:
    """The part of the controller's admin API that clients use, for one reference chain."""

    def __init__(
        self, chain: RefChain, ttl: float = 30, socket_path: str | None = None, token: str | None = None
    ) -> None:
        """``socket_path``: serve on this Unix socket, instead of TCP. ``token``: the token that
        clients must send.
        """
        self.chain, self.ttl, self.token = chain, ttl, token
        self.keys: dict[str, int] = {}
        self.details: dict[str, dict[str, Any]] = {}
        """By key name: additional fields in the answers about the key."""
        self.moving: set[str] = set()
        self.next_key = 0x100
        self.next_session = 1
        self.hosts: list[str | None] = []
        """Whom sessions were leased to."""
        self.kept: list[str] = []
        self.closed: list[str] = []
        self.gone: set[str] = set()
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if controller.token and self.headers.get("Authorization") != f"Bearer {controller.token}":
                    status, answer = 401, {"error": {"code": "unauthenticated", "message": "a token is asked for"}}
                else:
                    status, answer = controller.answer(
                        self.command, urlsplit(self.path), json.loads(body) if body else None
                    )
                data = json.dumps(answer).encode() if answer is not None else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, *_: object) -> None:
                pass

        if socket_path is None:
            self.server: socketserver.BaseServer = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            self.url = f"http://127.0.0.1:{self.server.server_address[1]}"  # type: ignore[index]
        else:
            self.server = socketserver.ThreadingUnixStreamServer(socket_path, Handler)
            self.url = f"unix://{socket_path}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        """Stop the controller."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def put(self, name: str, at: int, value: bytes | None) -> int:
        """Give a name a new KEY_ID, with a value at a version. Returns the KEY_ID."""
        self.next_key += 1
        self.keys[name] = key = CHAIN << 24 | self.next_key
        with self.chain.lock:
            self.chain.slots[key] = (at, value)
        return key

    def move(self, name: str, settled: float = 60) -> None:
        """Move a name with its value to another KEY_ID, as a move to another chain does.
        ``settled``: the seconds for which the answer says that the old KEY_ID has been gone.
        """
        with self.chain.lock:
            at, value = self.chain.slots.pop(self.keys[name])
        details = self.details.setdefault(name, {})
        by_name = at + int(details.get("versionOffset", 0))
        self.put(name, version(1, 1), value)
        details |= {
            "versionOffset": str((by_name - version(1, 1)) & (1 << 64) - 1),
            "settledMillis": int(settled * 1000),
        }

    def remove(self, name: str) -> None:
        """Remove a key."""
        with self.chain.lock:
            del self.chain.slots[self.keys.pop(name)]
        self.details.pop(name, None)

    def _key(self, name: str) -> dict[str, Any]:
        return {"name": name, "keyId": self.keys[name]} | self.details.get(name, {})

    def answer(self, method: str, url: SplitResult, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Answer one request with an HTTP status and JSON."""
        parts = [unquote(p) for p in url.path.split("/")[2:]]
        not_found = (404, {"error": {"code": "not_found", "message": f"no such {parts[0]}: {parts[-1]}"}})
        match method, parts:
            case "POST", ["page"]:
                return 200, {"url": "http://127.0.0.1:1/?token=x", "seconds": 60}
            case "GET", ["chains"]:
                members = [{"switch": f"s{i}", "address": a} for i, a in enumerate(self.chain.addresses) if i]
                chain = {"name": "main", "id": CHAIN, "serviceAddress": self.chain.addresses[0], "members": members}
                return 200, [chain | {"valueBytes": self.chain.value_bits // 8}]
            case "GET", ["keys"]:
                prefix = parse_qs(url.query).get("prefix", [""])[0]
                return 200, [{"name": n, "keyId": k} for n, k in self.keys.items() if n.startswith(prefix)]
            case "GET", ["keys", name] if name in self.moving:
                return 503, {"error": {"code": "unavailable", "message": f"{name} is being moved"}}
            case "GET", ["keys", name]:
                return (200, self._key(name)) if name in self.keys else not_found
            case "POST", ["keys"]:
                name = (body or {})["name"]
                if name not in self.keys:
                    self.put(name, version(1, 1), None)
                    self.details[name] = {"unwritten": str(version(1, 1))}
                return 200, self._key(name)
            case "POST", ["sessions"]:
                first, host = self.next_session, (body or {}).get("address")
                self.next_session += (body or {})["count"]
                self.hosts.append(host)
                sessions = []
                for i in range(first, self.next_session):
                    last = random.randrange(1, 1 << 31)
                    if host:
                        self.chain.lease(i, host, last)
                    sessions.append({"id": i, "nextRequest": last + 1})
                return 200, {"lease": f"L{first}", "sessions": sessions, "ttlSeconds": self.ttl}
            case "PUT", ["sessions", lease]:
                if lease in self.gone:
                    return not_found
                self.kept.append(lease)
                return 200, {"lease": lease, "sessions": [], "ttlSeconds": self.ttl}
            case "DELETE", ["sessions", lease]:
                self.closed.append(lease)
                return 200, None
        return not_found


class StreamServer:
    """Runs memserver with a folder, so that streams survive a restart."""

    patience = 60.0
    """Seconds that a busy machine may take."""

    def __init__(self, program: str, place: str) -> None:
        self.path, self.kept, self.program = os.path.join(place, "s"), os.path.join(place, "streams"), program
        self.start()

    def start(self) -> None:
        """Start the server, at the same socket each time."""
        with_path = [self.program, "--socket", self.path, "--streams", self.kept]
        self.process = subprocess.Popen(with_path, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "listening":
                return
        raise AssertionError("memserver did not start")

    def kill(self) -> None:
        """Kill the server."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(self.patience)
        assert self.process.stdout is not None
        self.process.stdout.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
