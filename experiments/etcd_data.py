# SPDX-License-Identifier: Apache-2.0
"""Recorded etcd data: an export of keys and values, a trace of requests, and which of the keys fit
into a switch.

An export is the output of ``etcdctl get --prefix / -w json``::

    {"header": {...}, "kvs": [{"key": "<base64>", "value": "<base64>", "mod_revision": 6, "lease": 0, ...}, ...], "count": 284}

``experiments/data/README.md`` describes the origin and content of the export that the project
ships.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

DATA = Path(__file__).parent / "data"
EXPORT = DATA / "etcd-export.json"
TRACE = DATA / "etcd-trace.csv"


class DataError(Exception):
    """A malformed file; the message has the place and the reason."""


@dataclass(frozen=True)
class Entry:
    """A key and value of an export."""

    key: str
    value: bytes
    lease: int = 0
    """The key's etcd TTL lease; 0: none."""


def read_export(path: Path = EXPORT) -> list[Entry]:
    """Read an export. The DataError of a malformed one has the place and the reason."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as why:
        raise DataError(f"{path}: {why.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not text; an export is what etcdctl get --prefix / -w json prints") from None
    except json.JSONDecodeError as why:
        raise DataError(
            f"{path}: line {why.lineno}, column {why.colno}: not JSON: {why.msg}; an export is what etcdctl get --prefix / -w json prints"
        ) from None
    pairs = data.get("kvs") if isinstance(data, dict) else None
    if not isinstance(pairs, list):
        raise DataError(f'{path}: has no list "kvs"; an export is what etcdctl get --prefix / -w json prints')
    entries: dict[str, Entry] = {}
    for index, pair in enumerate(pairs):
        where = f"{path}: kvs[{index}]"
        if not isinstance(pair, dict) or "key" not in pair:
            raise DataError(f'{where}: has no "key"')
        key = _bytes(where + ".key", pair["key"])
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise DataError(f"{where}: the key {key!r} is not UTF-8") from None
        if name in entries:
            raise DataError(f"{where}: {name} is there twice; an export has each key once")
        lease = pair.get("lease", 0)  # etcdctl omits zero values, such as an empty value
        if isinstance(lease, bool) or not isinstance(lease, int):
            raise DataError(f"{where}: the lease must be a number")
        entries[name] = Entry(name, _bytes(where + ".value", pair.get("value", "")), lease)
    return list(entries.values())


def _bytes(where: str, text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise DataError(f"{where}: not base64") from None


@dataclass(frozen=True)
class Left:
    """An entry that is not placed, and the reason."""

    entry: Entry
    reason: str


def fit(entries: Iterable[Entry], value_bytes: int, slots: int | None = None) -> tuple[list[Entry], list[Left]]:
    """Divide entries into those that fit into ``slots`` free slots of ``value_bytes`` bytes, and
    the others with the reason.
    """
    placed: list[Entry] = []
    left: list[Left] = []
    for entry in entries:
        if entry.lease:
            left.append(Left(entry, "on a TTL lease: etcd can remove it by itself"))
        elif len(entry.value) > value_bytes:
            left.append(Left(entry, f"larger than {value_bytes:,} bytes"))
        elif slots is not None and len(placed) >= slots:
            left.append(Left(entry, f"no slot: {slots:,} are taken"))
        else:
            placed.append(entry)
    return placed, left


def reasons(left: Iterable[Left]) -> list[str]:
    """Return how many entries were not placed for each reason, the most frequent first: ``["53
    larger than 1,024 bytes (1,027 to 7,625)"]``.
    """
    left = list(left)
    lines = []
    for reason, count in Counter(item.reason for item in left).most_common():
        sizes = [len(item.entry.value) for item in left if item.reason == reason]
        spread = f" ({min(sizes):,} to {max(sizes):,})" if reason.startswith("larger") else ""
        lines.append(f"{count} {reason}{spread}")
    return lines


class _Admin(Protocol):
    def add_keys(self, chain: str, keys: dict[str, bytes | None]) -> list[dict[str, Any]]: ...


def place(admin: _Admin, chain: str, entries: Iterable[Entry], batch: int = 100) -> tuple[dict[str, int], list[Left]]:
    """Place entries in a chain through the controller's admin API. Returns the KEY_IDs by name, and
    the refused entries with the controller's error messages.
    """
    entries = list(entries)
    ids: dict[str, int] = {}
    refused: list[Left] = []
    for start in range(0, len(entries), batch):
        some = entries[start : start + batch]
        for entry, answer in zip(some, admin.add_keys(chain, {entry.key: entry.value for entry in some}), strict=True):
            if answer.get("error"):
                refused.append(Left(entry, answer["error"]["message"]))
            else:
                ids[entry.key] = answer["keyId"]
    return ids, refused


@dataclass(frozen=True)
class Request:
    """A row of a trace."""

    seconds: float
    """Time since the trace's start."""
    kind: str
    """``get``, ``range``, ``txn-put``, ``txn-delete``, ``txn``, ``LeaseGrant`` or ``Status``."""
    key: str


def read_trace(path: Path = TRACE) -> list[Request]:
    """Read a trace, in time order. The DataError of a malformed one has the place and the
    reason.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            missing = {"seconds", "kind", "key"} - set(rows.fieldnames or ())
            if missing:
                raise DataError(f"{path}: has no column {', '.join(sorted(missing))}")
            requests = []
            for row in rows:
                try:
                    requests.append(Request(float(row["seconds"]), row["kind"], row["key"]))
                except (TypeError, ValueError):
                    raise DataError(
                        f"{path}: line {rows.line_num}: {row['seconds']!r} is no number of seconds"
                    ) from None
    except OSError as why:
        raise DataError(f"{path}: {why.strerror}") from None
    return sorted(requests, key=lambda request: request.seconds)
