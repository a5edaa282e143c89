# SPDX-License-Identifier: Apache-2.0
"""The data of requests, in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from netcraq.node.errors import InvalidArgument
from netcraq.node.values import Comparison, Delete, Put, quote, value_json

MAX_MANY = 256  # maximum number of keys of one getMany
MAX_LIST = 256  # maximum number of names that the server examines for one page of list
# These limits bound the number and the bytes of the versions that a resumed watch sends, because
# the server counts each version as a watch.
MAX_AFTER, MAX_AFTER_BYTES = 1024, 128 << 10


def about(key: str, namespace: str) -> str:
    """The first members of a request for a key, without the closing brace."""
    if namespace:
        return f'{{"namespace":{quote(namespace)},"key":{quote(key)}'
    return f'{{"key":{quote(key)}'


def get(key: str, eventual: bool, namespace: str) -> str:
    """The data of get."""
    return about(key, namespace) + (',"eventual":true}' if eventual else "}")


def get_many(keys: list[str], eventual: bool, namespace: str) -> str:
    """The data of getMany."""
    data: dict[str, Any] = {"keys": keys}
    if eventual:
        data["eventual"] = True
    return named(namespace, **data)


def list_page(prefix: str, cursor: str, page_size: int, keys_only: bool, namespace: str) -> str:
    """The data of list. A page_size of 0 means the server's default."""
    quote(prefix)  # this raises an exception if the prefix is not text
    data: dict[str, Any] = {"prefix": prefix} if prefix else {}
    if cursor:
        data["cursor"] = cursor
    if page_size:
        data["limit"] = page_size
    if keys_only:
        data["keysOnly"] = True
    return named(namespace, **data)


def put(key: str, value: bytes | str, lease: str, namespace: str) -> str:
    """The data of put."""
    return about(key, namespace) + value_json(value) + (f',"lease":{quote(lease)}}}' if lease else "}")


def cas(key: str, version: str, value: bytes | str, lease: str, namespace: str) -> str:
    """The data of cas."""
    return f'{put(key, value, lease, namespace)[:-1]},"version":{quote(version)}}}'


def delete(key: str, version: str, namespace: str) -> str:
    """The data of delete."""
    return about(key, namespace) + (f',"version":{quote(version)}}}' if version else "}")


def increment(key: str, by: int, namespace: str) -> str:
    """The data of increment."""
    if not isinstance(by, int) or not -(1 << 63) <= by < 1 << 63:
        raise InvalidArgument(f"{by!r:.80} is no whole number of 64 bits")
    return f'{about(key, namespace)},"by":{by}}}'


def transact(compare: Iterable[Comparison], write: Iterable[Put | Delete], namespace: str) -> str:
    """The data of transact."""
    conditions = ",".join(map(_condition, compare))
    writes = ",".join(map(_write, write))
    begin = f'"namespace":{quote(namespace)},' if namespace else ""
    return f'{{{begin}"compare":[{conditions}],"write":[{writes}]}}'


def _condition(c: Comparison) -> str:
    if not isinstance(c, Comparison):
        raise InvalidArgument(f"compare has {c!r:.80}, not a Comparison")
    text = about(c.key, "")
    if c.version:
        text += f',"version":{quote(c.version)}'
    if c.value is not None:
        text += value_json(c.value)
    return text + (',"absent":true}' if c.absent else "}")


def _write(w: Put | Delete) -> str:
    match w:
        case Put():
            return put(w.key, w.value, w.lease, "")
        case Delete():
            return about(w.key, "") + ',"delete":true}'
    raise InvalidArgument(f"write has {w!r:.80}, not a Put or a Delete")


def watch(keys: list[str], prefix: str | None, after: Mapping[str, str], namespace: str) -> str:
    """The data of watch. If there are too many known versions, some are left out, and the server
    reports their keys again.
    """
    parts: list[str] = []
    size = 0
    for key, version in after.items():
        part = f"{quote(key)}:{quote(version)}"
        size += len(part) + 1
        if size > MAX_AFTER_BYTES or len(parts) == max(MAX_AFTER, len(keys)):
            break
        parts.append(part)
    data: dict[str, Any] = {"keys": keys} if keys else {}
    if prefix is not None:
        data["prefix"] = prefix
    return f'{named(namespace, **data)[:-1]}{"," if data or namespace else ""}"after":{{{",".join(parts)}}}}}'


def named(namespace: str, **members: object) -> str:
    """The data of a function that is called rarely, from the given members."""
    if namespace:
        members["namespace"] = namespace
    text = json.dumps(members, separators=(",", ":"))
    if "\\ud" in text:
        _check(members)
    return text


def _check(value: object) -> None:
    """Refuse text that is not valid Unicode."""
    match value:
        case str():
            quote(value)
        case dict():
            for v in value.values():
                _check(v)
        case list():
            for v in value:
                _check(v)


def key_list(keys: str | Iterable[str]) -> list[str]:
    """Return a list of keys. The argument is a single key or several keys."""
    return [keys] if isinstance(keys, str) else list(keys)
