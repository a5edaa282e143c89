# SPDX-License-Identifier: Apache-2.0
"""A client that uses keys' names.

    from netcraq.names import Names

    with Names() as names:
        names.put("/config/mode", b"on")
        r = names.get("/config/mode")
        names.cas("/config/mode", r.version, b"off")

The client asks the controller for the place of a key, and caches the answer. If a key is moved to
another chain, or removed and added again, the client looks it up again, and the caller does not
notice. Versions belong to the name and only grow, whichever chain the key is in. If a name has no
key, or its key was never written, the version is 0.

A write that may have been executed is not sent again. If a switch answers that a KEY_ID does not
exist, another copy of the same packet may still have been executed. So a put or a delete continues
under the next KEY_ID only if the controller says that the old KEY_ID was removed before the call
began. Otherwise it raises NotFound with ``outcome_unknown``. A cas always continues, because it
cannot be executed twice. If it then fails, its own first copy may be the reason, so CASFailed has
``outcome_unknown``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from netcraq.admin import Admin, AdminError, Key
from netcraq.client import CASFailed, Client, Denied, NetCRAQError, NoChain, NotFound, Result, Timeout

_MASK = (1 << 64) - 1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_MOST_AGAIN = 64

T = TypeVar("T")

# CLOCK_BOOTTIME also runs while the machine is suspended, like the clocks of other machines.
_now: Callable[[], float] = (
    (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Names:
    """A client of all chains of a controller, with a session for each chain. Several threads must
    not use it concurrently.
    """

    def __init__(
        self,
        admin: Admin | None = None,
        *,
        make: bool = False,
        timeout: float = 2.0,
        patience: float = 1.0,
        retransmit: float = 0.05,
    ) -> None:
        """If make is true and a name has no key, a put, or a cas that expects version 0, makes the
        controller add a key. If make is false, they raise NotFound. timeout bounds each call, in
        seconds. patience is the number of seconds for which the client repeats requests to a
        controller that does not answer.
        """
        self.admin = admin or Admin()
        self.make = make
        self.timeout = timeout
        self.patience = patience
        self.retransmit = retransmit
        self._places: dict[str, Key] = {}
        self._clients: dict[int, Client] = {}

    def __enter__(self) -> Names:
        """Returns the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the client."""
        self.close()

    def close(self) -> None:
        """Closes the sockets and releases the sessions."""
        for c in self._clients.values():
            c.close()
        self._clients.clear()

    def get(self, name: str, *, eventual: bool = False) -> Result:
        """Reads a name. With eventual, any member of the chain may answer with its last committed
        value. Raises NotFound.
        """

        def read(c: Client, key: Key) -> Result:
            return c.get(key.id, eventual=eventual)

        return self._call(f"get {name!r}", name, read, writes=False)

    def put(self, name: str, value: bytes) -> Result:
        """Writes a value."""
        return self._call(f"put {name!r}", name, lambda c, key: c.put(key.id, value), make=self.make)

    def delete(self, name: str) -> Result:
        """Removes a name's value. Raises NotFound if there is no key."""
        return self._call(f"delete {name!r}", name, lambda c, key: c.delete(key.id))

    def cas(self, name: str, expected: int, value: bytes | None) -> Result:
        """Writes a value if the name's version is the expected one. Expected version 0 means that
        the name was never written. If value is None, the name is deleted. Raises CASFailed.
        """
        what = f"{'compare and delete' if value is None else 'compare and swap'} {name!r}"

        def swap(c: Client, key: Key) -> Result:
            at = expected or key.unwritten
            if at:
                return c.cas(key.id, (at - key.version_offset) & _MASK, value)
            try:  # the key was created with a value, so it cannot have the expected version
                r = c.get(key.id)
            except NotFound as e:
                if e.version == 0:
                    raise
                raise CASFailed(f"{what}: it was deleted", e.version, None) from None
            raise CASFailed(f"{what}: it was written", r.version, r.value)

        return self._call(what, name, swap, make=self.make and not expected, expected=expected)

    def _call(
        self,
        what: str,
        name: str,
        do: Callable[[Client, Key], Result],
        *,
        writes: bool = True,
        make: bool = False,
        expected: int | None = None,
    ) -> Result:
        """Executes an operation. expected is only for cas."""
        begun = _now()
        deadline = begun + self.timeout
        gone: Key | None = None
        uncertain = False  # a copy of the write may have been executed
        pause, again = _FIRST_PAUSE, 0
        while True:
            key = self._places.get(name) if gone is None else None
            if key is None:
                doubt = uncertain or (gone is not None and writes)
                key, settled = self._find(what, name, make, deadline, doubt)
            # This machine's clock may be slewed to 0.8995 of its rate, and settled is in whole
            # milliseconds.
            elapsed = (_now() - begun) * 1.125 + 0.002
            if key is None:
                doubt = uncertain or (doubt and settled <= elapsed)
                if expected:  # the key does not exist, so it does not have the expected version
                    raise CASFailed(f"{what}: no such key", 0, None, outcome_unknown=doubt)
                raise NotFound(f"{what}: no such key", 0, outcome_unknown=doubt)
            if gone is not None and writes and (key.id == gone.id or key.settled <= elapsed):
                uncertain = True
                # A cas that expects a key that was never written could succeed again after the key
                # was removed and added.
                if expected is None or (expected == 0 and key.unwritten != gone.unwritten):
                    raise NotFound(f"{what}: the key was moved or removed", 0, outcome_unknown=True)
            c = self._client(what, key, deadline, uncertain)
            c.timeout = max(0.0, deadline - _now())
            try:
                r = do(c, key)
                return replace(r, version=(r.version + key.version_offset) & _MASK)
            except NotFound as e:
                if not writes and e.version:
                    version = (e.version + key.version_offset) & _MASK
                    raise NotFound(f"{what}: key not found", 0 if version == key.unwritten else version) from None
                refused: NetCRAQError = e
            except CASFailed as e:
                version = (e.version + key.version_offset) & _MASK
                if e.value is None and version == key.unwritten:
                    version = 0
                raise CASFailed(str(e), version, e.value, outcome_unknown=uncertain or e.outcome_unknown) from None
            except NoChain as e:  # the chain's address has changed, or the chain no longer exists
                self._clients.pop(key.id >> 24).close()
                refused = e
            # P4 programs that do not support closed keys answer DENIED for keys that are being
            # removed.
            except Denied as e:
                if again:
                    raise
                refused = e
            except NetCRAQError as e:
                e.outcome_unknown = e.outcome_unknown or uncertain
                raise
            gone = key
            self._places.pop(name, None)
            again += 1
            if again > _MOST_AGAIN or _now() + pause > deadline:
                refused.outcome_unknown = writes
                raise refused
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _find(self, what: str, name: str, make: bool, deadline: float, uncertain: bool) -> tuple[Key | None, float]:
        """Asks the controller for the place of a key, and creates the key if make is set. Also
        returns the number of seconds, at least, for which the name has had no other KEY_ID.
        """

        def ask() -> tuple[Key | None, float]:
            try:
                key = self.admin.lookup(name)
            except AdminError as e:
                if e.code != "not_found":
                    raise
                if not make:
                    return None, e.settled
                key = self.admin.request_key(name)
            return key, key.settled

        key, settled = self._ask(what, ask, deadline, uncertain)
        if key is not None:
            self._places[name] = key
        return key, settled

    def _ask(self, what: str, question: Callable[[], T], deadline: float, uncertain: bool) -> T:
        """Repeats a request while the controller answers that it is not ready yet. If the
        controller does not answer, the request is repeated for ``patience`` seconds.
        """
        silent, pause = _now(), _FIRST_PAUSE
        while True:
            try:
                return question()
            except AdminError as e:
                if e.code in ("unavailable", "deadline_exceeded"):
                    silent = _now()
                elif e.code != "unreachable" or _now() - silent > self.patience:
                    if uncertain:
                        raise NetCRAQError(f"{what}: {e}", outcome_unknown=True) from e
                    raise
                if _now() + pause > deadline:
                    raise Timeout(f"{what}: timed out: {e}", outcome_unknown=uncertain) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _client(self, what: str, key: Key, deadline: float, uncertain: bool) -> Client:
        """Returns the client of a key's chain."""
        chain = key.id >> 24
        if chain not in self._clients:
            self._clients[chain] = self._ask(
                what,
                lambda: Client.from_controller(self.admin, key=key.id, retransmit=self.retransmit),
                deadline,
                uncertain,
            )
        return self._clients[chain]
