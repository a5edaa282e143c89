# SPDX-License-Identifier: Apache-2.0
"""The arguments and results of calls, such as keys, values and items, and their form in JSON."""

from __future__ import annotations

import base64
from dataclasses import KW_ONLY, dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

from netcraq.node.errors import InvalidArgument, NodeError, error_of

NEVER = "0.0"
"""The version of a key that was never written."""


def version_key(version: str) -> tuple[int, int]:
    """A sort key for versions of one key: later versions are greater."""
    epoch, dot, sequence = version.partition(".")
    try:
        return (int(epoch), int(sequence)) if dot else (0, int(epoch))
    except ValueError:
        return 0, 0


class Item:
    """The state of a key. ``found`` says whether the key has a value. ``lease`` is the lease with
    which the key expires, or "". In the results of :meth:`get_many` and lists, ``error`` is why the
    key was not read, or None.
    """

    __slots__ = ("_bytes", "_text", "error", "found", "key", "lease", "version")

    def __init__(self, data: dict[str, Any]) -> None:
        self.key: str = data.get("key", "")
        self.found: bool = data.get("found", False)
        self.version: str = data.get("version", NEVER)
        self.lease: str = data.get("lease", "")
        error = data.get("error")
        self.error: NodeError | None = error_of(error) if error else None
        self._text: str | None = data.get("value")
        coded = data.get("valueBase64")
        self._bytes: bytes | None = base64.b64decode(coded) if coded is not None else None
        if self.found and self._text is None and coded is None:
            self._text = ""

    @property
    def value(self) -> bytes | None:
        """The value, or None if the key has no value."""
        if self._bytes is None and self._text is not None:
            self._bytes = self._text.encode()
        return self._bytes

    @property
    def text(self) -> str | None:
        """The value as text. Raises UnicodeDecodeError if it is not text."""
        if self._text is None and self._bytes is not None:
            self._text = self._bytes.decode()
        return self._text

    def __repr__(self) -> str:
        """A readable description of the item."""
        return f"{type(self).__name__}({self.key!r}, value={self.value!r}, version={self.version!r})"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list. Its ``items`` are in the order of their names. ``cursor`` is the cursor of
    the next page, or "" if this is the last page. A page may have few items, or none, although more
    pages follow.
    """

    items: list[Item]
    cursor: str


def page_of(answer: dict[str, Any], keys_only: bool) -> Page:
    """The page in an answer."""
    items = [Item(i) for i in answer.get("items") or ()]
    if keys_only:
        for item in items:
            item._text = None
    return Page(items, str(answer.get("cursor", "")))


class Event(Item):
    """The newest version of a key, as a watch reports it. ``overtaken`` counts the versions that
    were skipped before this event.
    """

    __slots__ = ("overtaken",)

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.overtaken: int = data.get("overtaken", 0)


@dataclass(frozen=True, slots=True)
class Swap:
    """The result of a compare and swap. ``swapped`` says whether the value was written, and
    ``item`` is the key's state after the call."""

    swapped: bool
    item: Item


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result of a deletion. ``deleted`` is false if the key had another version. ``item`` is
    the key's state after the call.
    """

    deleted: bool
    item: Item


@dataclass(frozen=True, slots=True)
class Sum:
    """The result of an increment."""

    number: int
    version: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition of a transaction on a key. Exactly one of ``version``, ``value`` and ``absent``
    must be given. The version NEVER means that the key was never written. ``absent`` means that the
    key has no value.
    """

    key: str
    _: KW_ONLY
    version: str = ""
    value: bytes | str | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """A transaction's write of a value. If a lease is given, the key expires with the lease."""

    key: str
    value: bytes | str
    _: KW_ONLY
    lease: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """A transaction's deletion of a key's value."""

    key: str


@dataclass(frozen=True, slots=True)
class Transacted:
    """The result of a transaction. ``done`` says whether all comparisons held, so that everything
    was written. ``versions`` are the versions of the written keys, in the order of the writes. If
    ``done`` is false, ``failed`` are the keys whose comparisons did not hold. If the values of
    these items exceed 32 KiB in total, the later items have no value although ``found`` is true.
    """

    done: bool
    versions: list[str]
    failed: list[Item]


def transacted_of(answer: dict[str, Any]) -> Transacted:
    """The result of a transaction in an answer."""
    failed = []
    for data in answer.get("failed") or ():
        item = Item(data)
        if "value" not in data and "valueBase64" not in data:
            item._text = None
        failed.append(item)
    return Transacted(answer.get("done", False), list(answer.get("versions") or ()), failed)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease. ``ttl`` is its time to live in seconds."""

    id: str
    ttl: float


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a name. ``found`` is false if there is no leader. ``token`` is the leader's
    fencing token."""

    found: bool
    value: str
    token: int


@dataclass(frozen=True, slots=True)
class Instance:
    """A live instance of a service."""

    instance: str
    address: str
    node: str = ""
    lease: str = ""


def instances(data: dict[str, Any]) -> list[Instance]:
    """The instances in an answer."""
    return [
        Instance(i.get("instance", ""), i.get("address", ""), i.get("node", ""), i.get("lease", ""))
        for i in data.get("instances") or ()
    ]


def quote(text: str) -> str:
    """Text as a JSON string."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{text!r:.80} is no text")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise InvalidArgument(f"{text!r:.80} is no Unicode: a surrogate stands alone") from e
    return encode_basestring_ascii(text)


def value_json(value: bytes | str) -> str:
    """Return the JSON member for a value, as text or as base 64."""
    if isinstance(value, str):
        return f',"value":{quote(value)}'
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"a value is bytes or text, not {type(value).__name__}")
    value = bytes(value)
    try:
        return f',"value":{encode_basestring_ascii(value.decode())}'
    except UnicodeDecodeError:
        return f',"valueBase64":"{base64.b64encode(value).decode()}"'


def millis(seconds: float) -> int:
    """Seconds converted to milliseconds."""
    return int(seconds * 1000)
