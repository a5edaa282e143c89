# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the node API. There is one exception for each error code."""

from __future__ import annotations


class NodeError(Exception):
    """A call failed. ``code`` is the kind of failure. ``do`` says what the program can do, or is
    ""."""

    code = "internal"

    def __init__(self, message: str, do: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.do = do
        if code:
            self.code = code

    def __str__(self) -> str:
        """The message, and the advice."""
        return f"{self.message} ({self.do})" if self.do else self.message


class InvalidArgument(NodeError):
    """The request is malformed; sending it again does not help."""

    code = "invalid_argument"


class TooLarge(NodeError):
    """A message, a name or a value is too long. The error's message has the numbers."""

    code = "too_large"


class PermissionDenied(NodeError):
    """The caller lacks a right; the message names the rule."""

    code = "permission_denied"


class QuotaExceeded(NodeError):
    """The namespace's quota of keys, watches, connections or requests is exceeded."""

    code = "quota_exceeded"


class NoRoom(NodeError):
    """No chain that the namespace may use has a free slot."""

    code = "no_room"


class LeaseGone(NodeError):
    """The lease has expired, or never existed."""

    code = "lease_gone"


class NotHeld(NodeError):
    """The caller does not hold the lock, leadership or permit."""

    code = "not_held"


class WrongOffset(NodeError):
    """The ``at`` of an append is not the next offset, and nothing was appended. If the producer's
    own last append was not answered, that append may have been executed, in part or completely.
    """

    code = "wrong_offset"


class Timeout(NodeError, TimeoutError):
    """The call was not executed in time, and had no effect."""

    code = "timeout"


class OutcomeUnknown(NodeError):
    """The call may or may not have been executed."""

    code = "outcome_unknown"


class Unavailable(NodeError):
    """The node's server, a chain or the controller does not answer. The call had no effect."""

    code = "unavailable"


class Canceled(NodeError):
    """The caller has canceled the call."""

    code = "canceled"


class Draining(NodeError):
    """The server is shutting down. The library connects again by itself."""

    code = "draining"


class Internal(NodeError):
    """The server has a fault."""

    code = "internal"


class Closed(NodeError):
    """This program has closed the client or the watch. The call had no effect."""

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
    """The exception for an answer's error. An unknown code becomes a plain NodeError."""
    if not isinstance(answer, dict):
        return Internal(f"an error that makes no sense: {answer!r:.80}")
    code = str(answer.get("code", ""))
    kind = _BY_CODE.get(code, NodeError)
    return kind(str(answer.get("message", code)), str(answer.get("do", "")), code)


def of_older_server(why: InvalidArgument, func: str, info: dict[str, object]) -> InvalidArgument:
    """Return the error of a function that failed. If the server is too old for the function, the
    error says so."""
    if info.get("maxList"):
        return why
    server = info.get("server", "")
    return InvalidArgument(
        f"{func}: the node's server ({server}) is older than this function: {why.message}",
        "update the node's server, or watch the prefix",
    )
