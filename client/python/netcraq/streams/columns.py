# SPDX-License-Identifier: Apache-2.0
"""Arrow columns as a record of a stream. The module encodes a batch as a record, and decodes it
with buffers that stay in the record's memory (docs/streams-arrow.md). It needs pyarrow.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from netcraq.streams.memory import Garbage

MAGIC, LAYOUT = b"NCARROW1", 1
# The header's fields are magic, layout, the counts of nodes, buffers and files, the size of the
# schema, the size of the data after it, and the number of rows. A record's data begin 24 bytes
# after a multiple of 64, so the part after the 40-byte header begins at a multiple of 64.
HEADER = struct.Struct("<8sIIIIIIQ")
FILE = struct.Struct("<16sQ")  # the file's name, and its length
# length, number of nulls (-1 if not known), offset, number of buffers, number of children
NODE = struct.Struct("<QqQII")
# number of the file (0 for this record), 0, offset, number of bytes
BUFFER = struct.Struct("<IIQQ")
ABSENT = 0xFFFFFFFF  # written instead of a file's number if the buffer does not exist
ALIGN = 64
MAX_FILES = 64  # maximum number of files of a record
# maximum ratio between the size of a batch's buffers and the size of its record and files
MAX_TIMES = 64
DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}  # maximum digits of decimal numbers, by bits
NOTHING = pa.py_buffer(b"")


@dataclass(frozen=True, slots=True)
class Piece:
    """A position in a shared file, with the file's name of 16 bytes."""

    name: bytes
    file_bytes: int
    offset: int


Find = Callable[[int, int], Piece | None]
"""A function that returns the file that contains a range of memory, given by address and length."""
Open = Callable[[list[tuple[bytes, int]]], list[pa.Buffer]]
"""A function that maps files, given by names and lengths."""


class _Exported(ctypes.Structure):
    """The struct ArrowArray of Arrow's C data interface."""


_Exported._fields_ = (
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Exported))),
    ("dictionary", ctypes.POINTER(_Exported)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)
_Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Exported))


def _rounded(n: int) -> int:
    return (n + ALIGN - 1) // ALIGN * ALIGN


def _kind(t: pa.DataType) -> tuple[str, int, list[pa.DataType]]:
    """Return which buffers a type has after its validity bitmap. "bits" are values, and "offsets"
    are offsets; the number is their width. "data" means offsets that point into bytes. Also return
    the types of the children, of which a dictionary is one.
    """
    if types.is_null(t):
        return "null", 0, []
    if types.is_dictionary(t):
        return "bits", t.index_type.bit_width, [t.value_type]
    if types.is_string(t) or types.is_binary(t):
        return "data", 4, []
    if types.is_large_string(t) or types.is_large_binary(t):
        return "data", 8, []
    if types.is_map(t):
        return "offsets", 4, [pa.struct([t.key_field, t.item_field])]
    if types.is_list(t):
        return "offsets", 4, [t.value_type]
    if types.is_large_list(t):
        return "offsets", 8, [t.value_type]
    if types.is_fixed_size_list(t):
        return "none", 0, [t.value_type]
    if types.is_struct(t):
        return "none", 0, [f.type for f in t]
    if types.is_decimal(t) and abs(t.scale) > DIGITS[t.bit_width]:
        raise TypeError(f"columns of type {t} are not sent: it has more digits behind the point than there can be")
    try:
        return "bits", t.bit_width, []
    except ValueError:
        raise TypeError(f"columns of type {t} are not sent: cast them") from None


def _children(a: _Exported) -> list[_Exported]:
    """Return an array's children. If the array has a dictionary, the dictionary is the last
    child."""
    children = [a.children[i].contents for i in range(a.n_children)]
    return [*children, a.dictionary.contents] if a.dictionary else children


class Encoder:
    """Encodes one batch. ``record()`` returns the record. ``copied`` is the number of bytes of
    buffers that were copied for it, and ``shared`` the number of bytes that are in files. It raises
    ValueError for values that readers would refuse.
    """

    def __init__(self, batch: pa.RecordBatch, find: Find) -> None:
        if not batch.num_columns:
            raise TypeError("a batch without columns")
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as e:
                raise ValueError(f"column {name!r} has values that readers refuse: {e}") from None
        self.batch, self.find = batch, find
        self.copied = self.shared = 0
        self.files: dict[bytes, tuple[int, int]] = {}  # number and length of each file, by name
        self._nodes: list[bytes] = []
        self._buffers: list[tuple[int, int, int]] = []
        self._new: list[tuple[int, int]] = []  # address and size of each buffer that is in no file
        self._made: list[object] = []  # keeps the memory of computed offsets alive
        for column in batch.columns:
            self._column(column)
        total = sum(size for _, _, size in self._buffers)
        if total > MAX_TIMES * (self.new_bytes + sum(length for _, length in self.files.values())):
            raise TypeError(f"columns that have the same bytes more than {MAX_TIMES} times over: copy them")

    def _column(self, column: pa.Array) -> None:
        while isinstance(column, pa.ExtensionArray):
            column = column.storage
        exported = _Exported()
        column._export_to_c(ctypes.addressof(exported))
        try:
            self._array(column.type, exported, 0, exported.length)
        finally:
            _Release(exported.release)(ctypes.pointer(exported))

    def _array(self, t: pa.DataType, a: _Exported, first: int, n: int, entries: bool = False) -> None:
        """Add n values of an array, beginning with the value ``first``. The other values in the
        array's buffers are left out, so a slice takes no more space than its own values. A bitmap
        can only be cut at a byte boundary, so up to 7 earlier values remain. If ``entries`` is set,
        ``a`` has the entries of a map. Entries are never null, and Arrow's C++ library does not
        support an offset in them.
        """
        while isinstance(t, pa.BaseExtensionType):
            t = t.storage_type
        kind, width, types_of_children = _kind(t)
        begin = a.offset + first if n and kind != "null" else 0
        pad = 0 if entries else begin % 8
        begin, end = begin - pad, begin + n
        children = _children(a)
        count = {"null": 0, "none": 1, "data": 3}.get(kind, 2)
        # -1 means that the number of nulls is not known
        nulls = n if kind == "null" else a.null_count if n == a.length else -1
        self._nodes.append(NODE.pack(n, nulls, pad, count, len(children)))
        if count:
            self._buffer(None if entries else a.buffers[0], begin // 8, (end + 7) // 8, False)
        if kind == "bits":
            self._buffer(a.buffers[1], begin // 8 * width, (end * width + 7) // 8)
        start = last = 0
        if kind in ("offsets", "data"):
            start, last = self._offsets(a, kind, width, (begin, pad, end))
        if kind == "data":
            self._buffer(a.buffers[2], start, last)
        for child_type, child in zip(types_of_children, children, strict=True):
            if types.is_dictionary(t):
                part = 0, child.length
            elif types.is_struct(t):
                part = begin, end - begin
            elif types.is_fixed_size_list(t):
                part = begin * t.list_size, (end - begin) * t.list_size
            else:
                part = start, last - start
            self._array(child_type, child, *part, entries=types.is_map(t))

    def _offsets(self, a: _Exported, kind: str, width: int, cut: tuple[int, int, int]) -> tuple[int, int]:
        """Add an array's offsets, and return the part of their target that is sent. Leave out the
        part of the target before the first offset, and compute the offsets again. If the target is
        in files, and so is not copied, change nothing.
        """
        begin, pad, end = cut
        address = a.buffers[1]
        if not address or not end:
            self._buffer(address, 0, width)
            return 0, 0
        first, last = (
            int.from_bytes(ctypes.string_at(address + at * width, width), "little") for at in (begin + pad, end)
        )
        if not first or self._in_files(a, kind, last, (address, (end + 1) * width)):
            self._buffer(address, begin * width, (end + 1) * width)
            return 0, last
        old = pa.foreign_buffer(address + (begin + pad) * width, (end - begin - pad + 1) * width)
        number = pa.int32() if width == 4 else pa.int64()
        new = pc.subtract(pa.Array.from_buffers(number, old.size // width, [None, old]), pa.scalar(first, number))
        made = bytearray(pad * width) + memoryview(new.buffers()[1])[: old.size]
        self._made.append(made)
        self._buffer(ctypes.addressof(ctypes.c_char.from_buffer(made)), 0, len(made))
        return first, last

    def _in_files(self, a: _Exported, kind: str, last: int, offsets: tuple[int, int]) -> bool:
        """Whether the target of an array's offsets is in files. For lists, the offsets themselves
        must also be in files.
        """
        if kind == "data":
            return not last or self.find(a.buffers[2], last) is not None
        return self.find(*offsets) is not None and all(self._all_in_files(child) for child in _children(a))

    def _all_in_files(self, a: _Exported) -> bool:
        """Whether all buffers of an array are in files. Only the first byte of each buffer is
        checked, because a buffer is either completely in a file or not at all.
        """
        buffers = [a.buffers[i] for i in range(a.n_buffers)]
        return all(not b or self.find(b, 1) is not None for b in buffers) and all(map(self._all_in_files, _children(a)))

    def _buffer(self, address: int | None, begin: int, end: int, needed: bool = True) -> None:
        """Add the part of a buffer that is sent."""
        size = end - begin
        if address:
            address += begin
        if not address and not needed:
            self._buffers.append((ABSENT, 0, 0))
        elif address and size and (piece := self.find(address, size)) is not None:
            number, _ = self.files.setdefault(piece.name, (1 + len(self.files), piece.file_bytes))
            self._buffers.append((number, piece.offset, size))
            self.shared += size
        else:  # Arrow may have no buffer for an empty array. Zeros replace it.
            self._buffers.append((0, len(self._new), size))
            self._new.append((address or 0, size))

    @property
    def new_bytes(self) -> int:
        """The size of all buffers that are in no file."""
        return sum(_rounded(size) for _, size in self._new)

    def copy_new(self, to: memoryview) -> None:
        """Copy the buffers that are in no file, each to the next aligned position."""
        at = 0
        for address, size in self._new:
            if address and size:
                target = (ctypes.c_char * size).from_buffer(to, at)
                ctypes.memmove(target, address, size)
                self.copied += size
            at += _rounded(size)

    def head(self, name: bytes = b"", file_bytes: int = 0) -> bytes:
        """Return the record without the new buffers. The new buffers follow the record, or are in
        the named file."""
        schema = self.batch.schema.serialize()
        files = dict(self.files)
        number = 0
        if name:
            number, _ = files.setdefault(name, (1 + len(files), file_bytes))
        tables = len(files) * FILE.size + len(self._nodes) * NODE.size + len(self._buffers) * BUFFER.size
        begin = _rounded(tables + schema.size)
        places, at = [], 0 if name else begin
        for _, size in self._new:
            places.append(at)
            at += _rounded(size)
        out = bytearray(HEADER.size + begin)
        counts = len(self._nodes), len(self._buffers), len(files), schema.size, 0 if name else self.new_bytes
        HEADER.pack_into(out, 0, MAGIC, LAYOUT, *counts, self.batch.num_rows)
        at = HEADER.size
        for file, (_, length) in sorted(files.items(), key=lambda f: f[1][0]):
            FILE.pack_into(out, at, file, length)
            at += FILE.size
        for node in self._nodes:
            out[at : at + NODE.size] = node
            at += NODE.size
        for file, offset, size in self._buffers:
            if file == 0:
                file, offset = number, places[offset]
            BUFFER.pack_into(out, at, file, 0, offset, size)
            at += BUFFER.size
        out[at : at + schema.size] = schema
        return bytes(out)

    def record(self) -> bytes:
        """Return the record including the new buffers."""
        head = self.head()
        out = bytearray(len(head) + self.new_bytes)
        out[: len(head)] = head
        if self.new_bytes:
            with memoryview(out) as whole, whole[len(head) :] as behind:
                self.copy_new(behind)
        return bytes(out)


@functools.lru_cache(64)
def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _header(view: memoryview) -> tuple[int, int, int, int, int, int]:
    if len(view) < HEADER.size:
        raise Garbage("a record that is no batch")
    magic, layout, nodes, buffers, files, schema, inline, rows = HEADER.unpack_from(view)
    if (magic, layout) != (MAGIC, LAYOUT):
        raise Garbage("a record that is no batch, or one of a layout that is not known")
    tables = files * FILE.size + nodes * NODE.size + buffers * BUFFER.size + schema
    if HEADER.size + _rounded(tables) + inline != len(view):
        raise Garbage("a batch that is not as long as it says")
    return nodes, buffers, files, schema, inline, rows


def decode(data: memoryview | bytes, base: object, open_files: Open, trusted: bool) -> pa.RecordBatch:
    """Make a batch from a record. Its buffers are in the record's memory, and in files. Buffers in
    the record's memory keep ``base`` alive. The record is checked, because it may be invalid. But
    if trusted is set, the offsets and indices in buffers are not checked.
    """
    whole = pa.py_buffer(data)
    view = memoryview(data)
    n_nodes, n_buffers, n_files, schema_bytes, _, rows = _header(view)
    at = HEADER.size + n_files * FILE.size
    if n_files > MAX_FILES:
        raise Garbage(f"a batch of {n_files} files")
    files = open_files(list(FILE.iter_unpack(view[HEADER.size : at]))) if n_files else []
    nodes = NODE.iter_unpack(view[at : at + n_nodes * NODE.size])
    at += n_nodes * NODE.size
    buffers = BUFFER.iter_unpack(view[at : at + n_buffers * BUFFER.size])
    at += n_buffers * BUFFER.size
    try:
        schema = _schema(bytes(view[at : at + schema_bytes]))
    except (pa.ArrowInvalid, OSError) as e:
        raise Garbage(f"a batch without a schema: {e}") from None
    here = pa.foreign_buffer(whole.address + HEADER.size, whole.size - HEADER.size, base=(base, whole))

    def pieces() -> Iterator[pa.Buffer | None]:
        left = MAX_TIMES * (len(view) + sum(f.size for f in files))
        for file, _, offset, size in buffers:
            if file == ABSENT:
                yield None
                continue
            if file > len(files):
                raise Garbage(f"a buffer of file {file}, of {len(files)}")
            of = files[file - 1] if file else here
            if offset + size > of.size:
                raise Garbage(f"a buffer of {size} bytes from {offset} on, in {of.size} bytes")
            left -= size
            if left < 0:
                raise Garbage(f"a batch whose buffers have the same bytes more than {MAX_TIMES} times over")
            yield of.slice(offset, size)

    decoder = _Decoder(nodes, pieces(), trusted)
    try:
        columns = [decoder.array(field.type, rows) for field in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        batch.validate(full=not trusted)
    except (pa.ArrowException, StopIteration, ValueError, TypeError, OverflowError) as e:
        raise Garbage(f"a batch that cannot be: {e!r}") from None
    return batch


class _Decoder:
    """Makes arrays from a record's nodes and buffers."""

    def __init__(
        self, nodes: Iterator[tuple[int, int, int, int, int]], buffers: Iterator[pa.Buffer | None], trusted: bool
    ) -> None:
        self.nodes, self.buffers, self.trusted = nodes, buffers, trusted

    def array(self, t: pa.DataType, rows: int | None = None) -> pa.Array:
        """The next array, of type t."""
        if isinstance(t, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(t, self.array(t.storage_type, rows))
        length, nulls, offset, n_buffers, n_children = next(self.nodes)
        kind, _, children = _kind(t)
        if n_buffers != {"null": 0, "none": 1, "data": 3}.get(kind, 2) or n_children != len(children):
            raise Garbage(f"an array of {t} of {n_buffers} buffers and {n_children} children")
        if length >> 48 or offset >> 48 or not -1 <= nulls <= length or (rows is not None and length != rows):
            raise Garbage(f"an array of {length} values from {offset} on, {nulls} of them null")
        if kind == "null":
            return pa.nulls(length)
        buffers = [next(self.buffers) for _ in range(n_buffers)]
        if any(b is None for b in buffers[1:]):
            raise Garbage(f"an array of {t} without its buffers")
        if buffers[0] is None:
            nulls = 0
        elif not self.trusted:
            nulls = -1  # -1 makes Arrow count the nulls
        if types.is_dictionary(t):
            indices = pa.Array.from_buffers(t.index_type, length, buffers, nulls, offset)
            indices.validate()
            return pa.DictionaryArray.from_arrays(
                indices, self.array(t.value_type), ordered=t.ordered, safe=not self.trusted
            )
        made = [self.array(child) for child in children]
        return pa.Array.from_buffers(t, length, buffers, nulls, offset, made or None)
