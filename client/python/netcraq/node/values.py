# SPDX-License-Identifier: Apache-2.0
"""Arguments and results of calls: keys, values, items, and their form in JSON."""

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
    """The state of a key: ``key``, ``found`` (it has a value), ``version``, and ``lease`` (the
    lease with which it expires, or ""). In :meth:`get_many` and lists, ``error`` is why the key was
    not read, or None.
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
        """The value; None if there is none."""
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
        """A description for people."""
        return f"{type(self).__name__}({self.key!r}, value={self.value!r}, version={self.version!r})"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: ``items`` in the order of their names. ``cursor`` is the cursor of the next
    page, or "" if this is the last one. A page may have few items, or none, although more pages
    follow.
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
    """A key's newest version, of a watch. ``overtaken`` counts the versions before it that were
    skipped.
    """

    __slots__ = ("overtaken",)

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.overtaken: int = data.get("overtaken", 0)


@dataclass(frozen=True, slots=True)
class Swap:
    """The result of a compare and swap: ``item`` is the key's state after the call."""

    swapped: bool
    item: Item


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result of a deletion: ``deleted`` is false if the version was a different one; ``item``
    is the key's state after the call.
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
    """A condition of a transaction on a key. Give exactly one of ``version`` (NEVER: it was never
    written), ``value`` and ``absent`` (it has no value).
    """

    key: str
    _: KW_ONLY
    version: str = ""
    value: bytes | str | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """A transaction's write of a value. lease: the key expires with this lease."""

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
    """The result of a transaction. ``done``: all comparisons held, and everything was written.
    ``versions`` are the versions of the written keys, in their order. If it was not done,
    ``failed`` are the keys whose comparisons did not hold. If the values of these items exceed 32
    KiB in total, the later ones are found but have no value.
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
    """The leader; ``found`` is false if there is none. ``token`` is its fencing token."""

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
    """The member of a request that has a value."""
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
