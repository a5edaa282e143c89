# SPDX-License-Identifier: Apache-2.0
"""Why a call of the node API failed: an exception for each code."""

from __future__ import annotations


class NodeError(Exception):
    """A call failed. ``code`` is the kind of failure, ``do`` says what to do about it, or is ""."""

    code = "internal"

    def __init__(self, message: str, do: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.do = do
        if code:
            self.code = code

    def __str__(self) -> str:
        """What happened, and what to do about it."""
        return f"{self.message} ({self.do})" if self.do else self.message


class InvalidArgument(NodeError):
    """It makes no sense; sending it again does not help."""

    code = "invalid_argument"


class TooLarge(NodeError):
    """A message, a name or a value is too long; the message has the numbers."""

    code = "too_large"


class PermissionDenied(NodeError):
    """The caller may not do this; the message says which rule."""

    code = "permission_denied"


class QuotaExceeded(NodeError):
    """Of keys, watches, connections or requests of the namespace."""

    code = "quota_exceeded"


class NoRoom(NodeError):
    """No chain that the namespace may use has a slot."""

    code = "no_room"


class LeaseGone(NodeError):
    """The lease has run out, or there never was such a one."""

    code = "lease_gone"


class NotHeld(NodeError):
    """The caller does not hold the lock, leadership or permit (any more)."""

    code = "not_held"


class WrongOffset(NodeError):
    """An append's ``at`` is not the next offset: nothing was appended. If the producer's own last
    append was not answered, that one may have been executed, in part or whole.
    """

    code = "wrong_offset"


class Timeout(NodeError, TimeoutError):
    """Not done in time, and surely without effect."""

    code = "timeout"


class OutcomeUnknown(NodeError):
    """It may or may not have been done."""

    code = "outcome_unknown"


class Unavailable(NodeError):
    """The node's server, a chain or the controller does not answer. Nothing was done."""

    code = "unavailable"


class Canceled(NodeError):
    """By the caller."""

    code = "canceled"


class Draining(NodeError):
    """The server is shutting down. The library connects again by itself."""

    code = "draining"


class Internal(NodeError):
    """A fault of the server's."""

    code = "internal"


class Closed(NodeError):
    """The client, or the watch, was closed by this program. Nothing was done."""

    code = "closed"


_BY_CODE = {
    c.code: c
    for c in (
        InvalidArgument,
        TooLarge,
        PermissionDenied,
        QuotaExceeded,
        NoRoom,
        LeaseGone,
        NotHeld,
        WrongOffset,
        Timeout,
        OutcomeUnknown,
        Unavailable,
        Canceled,
        Draining,
        Internal,
        Closed,
    )
}


def error_of(answer: object) -> NodeError:
    """The exception for an answer's error. A code that is not known is a NodeError's."""
    if not isinstance(answer, dict):
        return Internal(f"an error that makes no sense: {answer!r:.80}")
    code = str(answer.get("code", ""))
    kind = _BY_CODE.get(code, NodeError)
    return kind(str(answer.get("message", code)), str(answer.get("do", "")), code)


def of_older_server(why: InvalidArgument, func: str, info: dict[str, object]) -> InvalidArgument:
    """Return why a function failed, and say so if the server is older than it."""
    if info.get("maxList"):
        return why
    server = info.get("server", "")
    return InvalidArgument(
        f"{func}: the node's server ({server}) is older than this function: {why.message}",
        "update the node's server, or watch the prefix",
    )
