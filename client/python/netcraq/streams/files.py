# SPDX-License-Identifier: Apache-2.0
"""The files in a node's memory. A program writes a file once. Then other programs map it, and
records of streams refer to it (docs/streams-arrow.md). The module needs pyarrow.
"""

from __future__ import annotations

import array
import bisect
import collections
import contextlib
import json
import mmap
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa

from netcraq import node
from netcraq.node.engine import configure
from netcraq.streams.columns import MAX_FILES, Encoder, Piece, decode
from netcraq.streams.memory import Garbage

MAX_ANSWER = 1 << 20  # maximum length of one answer of the server
MAX_DESCRIPTORS = 128  # maximum number of received file descriptors that belong to no answer yet
KEPT = 128
"""The number of other programs' rewritable files that a program keeps mapped. These are the files
that it has read last.
"""
LET_GO, LET_GO_BYTES = 16, 32 << 20
"""The maximum number and the maximum total size of released files that the node may still hold for
the program. The program gives them back together with its next request.
"""
AT_MOST = 256
"""The maximum number of files that one request gives back."""
AT_ONCE = 1.0
"""The number of seconds for which one request asks the server to wait for a free file."""


class Mapped:
    """A file that is mapped for reading. ``buffer`` is its whole content. As long as anything made
    from ``buffer`` exists, the file stays mapped, and the node holds it.
    """

    rewritable = False

    def __init__(self, owner: Files, request: int, name: str, fd: int, prot: int = mmap.PROT_READ) -> None:
        """request is the number of the request that makes the node hold the file. With 0, the
        connection makes the node hold it."""
        self.name = name
        size = os.fstat(fd).st_size  # the file is sealed, so its size cannot change
        self._map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=prot)
        self._whole = pa.py_buffer(memoryview(self._map))
        self.address, self.size = self._whole.address, size
        over = (owner._over, request) if request else (owner._let_go, (name, size))
        self._let_go = weakref.finalize(self, *over, owner._generation)
        self._let_go.atexit = False

    @property
    def buffer(self) -> pa.Buffer:
        """The whole content."""
        return pa.foreign_buffer(self.address, self.size, base=self)


class Lent:
    """A rewritable file that its maker is using. The maker's ``Files`` do not write the file again
    while this object exists, or anything made from its ``buffer``, or a record that refers to the
    file.
    """

    def __init__(self, mapped: Mapped) -> None:
        self._mapped = mapped
        self.name, self.address, self.size = mapped.name, mapped.address, mapped.size

    @property
    def buffer(self) -> pa.Buffer:
        """The whole content."""
        return pa.foreign_buffer(self.address, self.size, base=self)


class Draft:
    """A file that is being written. Write to ``memory``, and then call ``seal``."""

    def __init__(self, owner: Files, request: int, name: str, fds: list[int]) -> None:
        self.name, self._owner = name, owner
        mapped = Mapped(owner, request, name, fds[1])
        # MAP_POPULATE maps all pages at once. The whole file will be written, and separate page
        # faults would take longer.
        self._map = mmap.mmap(fds[0], mapped.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._mapped: Mapped | None = mapped
        self.memory = memoryview(self._map)

    def seal(self, key: str = "") -> Mapped:
        """End the writing. ``memory`` becomes invalid, and nothing that was made from it may exist
        anymore. If a key is given, other programs can find the file by this key.
        """
        self.memory.release()
        self._map.close()
        self._owner._ask("sealFile", {"file": self.name, "key": key})
        mapped, self._mapped = self._mapped, None
        assert mapped is not None, "it is sealed already"
        return self._owner._enter(mapped)


class Rewrite:
    """A rewritable file that is being written. It is like Draft, but stays mapped."""

    def __init__(self, own: _Own) -> None:
        self.name, self._own = own.mapped.name, own
        self._lent: Lent | None = own.lend()
        self.memory = memoryview(own.mapped._map)

    def seal(self) -> Lent:
        """End the writing for now. ``memory`` becomes invalid, and nothing that was made from it
        may exist anymore."""
        self.memory.release()
        lent, self._lent = self._lent, None
        assert lent is not None, "it is sealed already"
        return lent


class _Own:
    """A rewritable file of this program."""

    def __init__(self, mapped: Mapped) -> None:
        self.mapped = mapped
        self.free = True  # whether no record refers to the file
        self._lent: weakref.ref[Lent] | None = None

    def lend(self) -> Lent:
        """Lend the file, so that the program can write it and use the result."""
        lent = Lent(self.mapped)
        self._lent, self.free = weakref.ref(lent), False
        return lent

    def lent(self) -> bool:
        """Whether this program uses the file."""
        return self._lent is not None and self._lent() is not None


@contextlib.contextmanager
def _closed(fds: list[int]) -> Iterator[None]:
    """Close file descriptors at the end of the block. Mapped memory does not need them."""
    try:
        yield
    finally:
        for fd in fds:
            os.close(fd)


def _step(size: int) -> int:
    """Return the size of a rewritable file for the given number of bytes. There are only few
    different sizes, so that files can be reused. The size is at most a quarter larger than needed.
    """
    unit = max(4096, 1 << max(0, size.bit_length() - 3))
    return min((size + unit - 1) // unit * unit, max(size, 1 << 30))


class Files:
    """Access to the files of a node, over the Unix socket of the node's server. The node holds
    mapped files until this object's connection ends. Several threads may use this object, but only
    one at a time makes a request.

    ``copied`` counts the bytes that were copied into new files and records. ``shared`` counts the
    bytes that were not copied because they were in files.
    """

    def __init__(
        self, socket: str | os.PathLike[str] | None = None, namespace: str = "", timeout: float = 30.0
    ) -> None:
        self._config = configure(socket, namespace, "", timeout, timeout, 64)
        self._lock = threading.Lock()
        self._socket: Any = None
        # number of the connection; the node no longer holds files for earlier connections
        self._generation = 0
        self._singly = False  # the server does not support openFiles
        self._last = 0
        self._buffer = b""
        self._fds: list[int] = []
        # requests that ended while another request was waiting for its answer
        self._ended: set[Any] = set()
        self._released: collections.deque[tuple[int, int]] = collections.deque()
        # Files that are not used but that the node still holds for the connection, with their
        # sizes.
        self._unused: collections.deque[tuple[tuple[str, int], int]] = collections.deque()
        self._known: weakref.WeakValueDictionary[str, Mapped] = weakref.WeakValueDictionary()
        # address, size and file, sorted by address
        self._places: list[tuple[int, int, weakref.ref[Mapped]]] = []
        self._own: list[_Own] = []  # this program's rewritable files
        self._kept: collections.OrderedDict[str, Mapped] = collections.OrderedDict()
        self.copied = self.shared = 0

    # # Requests. The node holds a file as long as the last request for the file exists, so the
    # number of that request is kept.

    def _ask(self, func: str, data: dict[str, Any]) -> tuple[int, dict[str, Any], list[int]]:
        """Send a request. Return the request's number, the data of its first answer, and the file
        descriptors that came with the answer.
        """
        with self._lock:
            self._flush()
            answer = self._exchange(func, data)
        self._settle()
        return answer

    def _exchange(self, func: str, data: dict[str, Any]) -> tuple[int, dict[str, Any], list[int]]:
        if self._config.namespace:
            data = {**data, "namespace": self._config.namespace}
        try:
            if self._socket is None:
                self._connect()
            self._last += 1
            request = {"id": self._last, "func": func, "data": {k: v for k, v in data.items() if v}}
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while True:
                answer = self._receive()
                if answer.get("id") == self._last:
                    break
                self._ended.add(answer.get("id"))
        except (OSError, ValueError) as e:
            self._disconnect()
            if isinstance(e, TimeoutError):
                raise node.Timeout(f"{func} was not answered in time") from None
            raise node.Unavailable(f"{func}: {e}") from None
        if "error" in answer:
            raise node.errors.error_of(answer["error"])
        told = answer.get("data", {})
        n = told.get("descriptors", 0)
        if not isinstance(n, int) or not 0 <= n <= len(self._fds):
            raise Garbage("what answers is no node server that passes memory")
        fds, self._fds = self._fds[:n], self._fds[n:]
        return self._last, told, fds

    def _connect(self) -> None:
        where = self._config.socket
        if where.startswith("tcp://"):
            raise node.InvalidArgument("memory is passed by a Unix socket only")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._config.timeout)
        self._socket.connect(where.removeprefix("unix://"))

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        for fd in self._fds:
            os.close(fd)
        self._socket, self._buffer, self._fds, self._ended = None, b"", [], set()
        self._generation += 1
        self._known.clear()
        self._places = []
        self._own, self._kept = [], collections.OrderedDict()

    def _receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            room = socket.CMSG_SPACE(4 * MAX_FILES)
            data, messages, _, _ = self._socket.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in messages:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    got = array.array("i")
                    got.frombytes(content[: len(content) // 4 * 4])
                    self._fds += got
            if not data:
                raise ConnectionResetError("the node's server ended the connection")
            self._buffer += data
            if len(self._buffer) > MAX_ANSWER or len(self._fds) > MAX_DESCRIPTORS:
                raise ValueError("an answer without an end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except RecursionError as e:
            raise ValueError(str(e)) from None
        if not isinstance(answer, dict) or not all(isinstance(answer.get(of, {}), dict) for of in ("data", "error")):
            raise ValueError("what answers is no node server")
        return answer

    def _over(self, request: int, generation: int) -> None:
        """End a request later. This may be called at any time, even during another request."""
        self._released.append((request, generation))
        self._settle()

    def _let_go(self, file: tuple[str, int], generation: int) -> None:
        """Release a file. It is like _over, but the release may be sent together with the next
        request."""
        self._unused.append((file, generation))
        self._settle()

    def give_back(self) -> None:
        """Give back unused files immediately. Readers do so before they wait. Other programs may
        call it before a period in which they open no files.
        """
        self._settle(0, 0)

    def _settle(self, most: int = LET_GO, most_bytes: int = LET_GO_BYTES) -> None:
        def due() -> bool:
            unused = self._unused.copy()
            return bool(self._released) or len(unused) > most or sum(size for (_, size), _ in unused) > most_bytes

        while due() and self._lock.acquire(blocking=False):
            try:
                self._flush()
                if due() and (names := self._taken()):
                    self._exchange("openFiles", {"giveBack": names})
            except node.NodeError:
                pass  # the connection has ended, and all its requests have ended with it
            finally:
                self._lock.release()

    def _taken(self) -> list[str]:
        """The files to give back with the next request."""
        names = []
        while self._unused and len(names) < AT_MOST:
            (name, _), generation = self._unused.popleft()
            if generation == self._generation:
                names.append(name)
        return names

    def _flush(self) -> None:
        while self._released:
            request, generation = self._released.popleft()
            if generation != self._generation or self._socket is None:
                continue
            self._exchange("cancel", {"id": request})
            # This reads all answers, because the server ends the connection of a client that leaves
            # answers unread.
            try:
                while request not in self._ended:
                    self._ended.add(self._receive().get("id"))
            except (OSError, ValueError):
                self._disconnect()
            self._ended.discard(request)

    # Files.

    def _adopt(self, request: int, told: dict[str, Any], fds: list[int], prot: int = mmap.PROT_READ) -> Mapped:
        """Map the file of a request's result. The request makes the node hold the file."""
        with _closed(fds):
            try:
                mapped = Mapped(self, request, told["file"], fds[0], prot)
            except BaseException:
                self._over(request, self._generation)
                raise
        mapped.rewritable = told.get("rewritable", False)
        return mapped

    def _enter(self, mapped: Mapped) -> Mapped:
        """Register a file by its name and its address."""
        with self._lock:
            self._known[mapped.name] = mapped
            kept = [p for p in self._places if p[2]() is not None]
            bisect.insort(kept, (mapped.address, mapped.size, weakref.ref(mapped)), key=lambda p: p[0])
            self._places = kept
        return mapped

    def make(self, size: int) -> Draft:
        """Create a file to write to. Its content is shared without a copy."""
        request, told, fds = self._ask("makeFile", {"bytes": size})
        with _closed(fds):
            return Draft(self, request, told["file"], fds)

    def rewrite(self, size: int) -> Rewrite:
        """Return a file to write to, of at least the given size. The file is reused when no program
        reads it anymore. It is then neither zeroed nor mapped again. Readers must trust this
        program not to write to the file while they read. If there is no memory for another file,
        this method waits until a file is free.
        """
        size = _step(size)
        own = self._free(size, 0)
        if own is None:
            try:
                own = self._another(size)
            except node.QuotaExceeded:
                own = self._free(size, self._config.timeout)
                if own is None:
                    raise
        return Rewrite(own)

    def _free(self, size: int, wait: float) -> _Own | None:
        """Return a free rewritable file of this program."""
        deadline = time.monotonic() + wait
        while True:
            mine = [own for own in self._own if own.mapped.size == size and not own.lent()]
            for own in mine:
                if own.free:
                    return own
            left = deadline - time.monotonic()
            if not mine:
                return None
            data = {"files": [own.mapped.name for own in mine], "waitMs": max(0, int(min(left, AT_ONCE) * 1000))}
            free = set(self._ask("rewriteFile", data)[1]["files"] or ())
            for own in mine:
                own.free = own.mapped.name in free
            if not free and left <= 0:
                return None

    def _another(self, size: int) -> _Own:
        answer = self._ask("makeFile", {"bytes": size, "rewritable": True})
        mapped = self._adopt(*answer, mmap.PROT_READ | mmap.PROT_WRITE)
        self._ask("sealFile", {"file": mapped.name})  # from now on no other program can write to it
        own = _Own(self._enter(mapped))
        self._own.append(own)
        return own

    def open(self, name: str, trusted: bool = False) -> Mapped:
        """Map a file. With trusted, it may be a file that its maker can still write to."""
        return self.open_all([name], trusted)[0]

    def open_all(self, names: Sequence[str], trusted: bool = False) -> list[Mapped]:
        """Like open, but for several files. A single request opens the files that are not mapped
        yet, and gives back unused files.
        """
        there = {name: mapped for name in names if (mapped := self._known.get(name)) is not None}
        missing = [name for name in dict.fromkeys(names) if name not in there]
        if missing:
            for mapped in self._opened(missing, trusted):
                there[mapped.name] = mapped
        for mapped in there.values():
            if mapped.rewritable:
                if not trusted:
                    raise node.InvalidArgument("a rewritable file is for readers that are trusted")
                self._keep(mapped)
        return [there[name] for name in names]

    def _opened(self, names: list[str], trusted: bool) -> list[Mapped]:
        data = {"files": names, "rewritable": trusted}
        if self._singly:
            return [self._opened_alone(name, trusted) for name in names]
        try:
            told, fds, generation = self._ask_for(data)
        except node.Unavailable:  # the connection has ended, so try again
            told, fds, generation = self._ask_for(data)
        except node.InvalidArgument as e:
            if "there is no function" not in str(e):
                raise
            self._singly = True
            return self._opened(names, trusted)
        mapped = []
        with _closed(fds):
            try:
                for name, said, fd in zip(names, told["files"], fds, strict=True):
                    if said["file"] != name:
                        raise Garbage("another file than was asked for")
                    one = Mapped(self, 0, name, fd)
                    one.rewritable = said.get("rewritable", False)
                    mapped.append(one)
            except BaseException as e:
                for name in names[len(mapped) :]:
                    self._let_go((name, 0), generation)
                if isinstance(e, (KeyError, TypeError, ValueError)):
                    raise Garbage("what answers is no node server that passes memory") from None
                raise
        return [self._enter(one) for one in mapped]

    def _opened_alone(self, name: str, trusted: bool) -> Mapped:
        """Open a file by openFile, which older servers also support."""
        data = {"file": name, "rewritable": trusted}
        try:
            answer = self._ask("openFile", data)
        except node.Unavailable:
            answer = self._ask("openFile", data)
        return self._enter(self._adopt(*answer))

    def _ask_for(self, data: dict[str, Any]) -> tuple[dict[str, Any], list[int], int]:
        """Open files, and give back other files. The last result is the number of the connection
        for which the node holds the files.
        """
        with self._lock:
            self._flush()
            _, told, fds = self._exchange("openFiles", {**data, "giveBack": self._taken()})
            generation = self._generation
        self._settle()
        return told, fds, generation

    def _keep(self, mapped: Mapped) -> None:
        """Keep another program's rewritable file mapped, because its maker will write it again."""
        with self._lock:
            self._kept[mapped.name] = mapped
            self._kept.move_to_end(mapped.name)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def find(self, address: int, size: int) -> tuple[Mapped, int] | None:
        """The mapped file that contains a range of memory, and the offset of the range in it."""
        places = self._places
        i = bisect.bisect_right(places, address, key=lambda p: p[0]) - 1
        if i < 0:
            return None
        begin, length, ref = places[i]
        mapped = ref()
        if mapped is None or address + size > begin + length:
            return None
        return mapped, address - begin

    def write(
        self, batch: pa.RecordBatch, inline: int = 0, rewritable: bool = False
    ) -> tuple[bytes, list[Mapped | Lent]]:
        """Encode a batch as a record, and return the files to which it refers. These are the files
        that contain buffers of the batch. If the other buffers have more bytes than inline, they go
        into a new or rewritten file, which is also returned.
        """
        used: dict[str, Mapped | Lent] = {}

        def find(address: int, size: int) -> Piece | None:
            found = self.find(address, size)
            if found is None:
                return None
            used[found[0].name] = found[0]
            return Piece(bytes.fromhex(found[0].name), found[0].size, found[1])

        encoder = Encoder(batch, find)
        if encoder.new_bytes > inline:
            draft = self.rewrite(encoder.new_bytes) if rewritable else self.make(encoder.new_bytes)
            encoder.copy_new(draft.memory)
            made = draft.seal()
            used[made.name] = made
            record = encoder.head(bytes.fromhex(made.name), made.size)
        else:
            record = encoder.record()
        self.copied += encoder.copied
        self.shared += encoder.shared
        return record, list(used.values())

    def read(self, record: bytes | memoryview, base: object, trusted: bool) -> pa.RecordBatch:
        """Make a batch from a record. The batch keeps ``base`` alive, and ``base`` must keep the
        record's memory valid. If ``base`` is None, nothing keeps it valid.
        """

        def open_files(files: list[tuple[bytes, int]]) -> list[pa.Buffer]:
            opened = self.open_all([name.hex() for name, _ in files], trusted)
            return [buffer(mapped, size) for mapped, (_, size) in zip(opened, files, strict=True)]

        def buffer(mapped: Mapped, size: int) -> pa.Buffer:
            if mapped.size != size:
                raise Garbage(f"a file of {mapped.size} bytes, not {size}")
            if not mapped.rewritable:
                return mapped.buffer
            if base is None:
                raise node.InvalidArgument("a rewritable file is for readers by push, without skip")
            return pa.foreign_buffer(mapped.address, size, base=(mapped, base))

        return decode(record, base, open_files, trusted)

    def decoded(self, key: str, decode_it: Callable[[], pa.RecordBatch], trusted: bool = False) -> pa.RecordBatch:
        """Return the batch under a key in the node's cache. If there is none, decode_it makes the
        batch, which is then put into the cache. The key must identify the source, by a hash of its
        content, and the way of decoding. An example is "parquet:" and a SHA-256. If several
        callers, in any processes, want the same batch at the same time, only one of them decodes
        it. If the cache has no room for the batch, only this caller gets the batch.
        """
        request, told, fds = self._ask("openFile", {"key": key})
        if told.get("file"):
            return self._unpacked(self._enter(self._adopt(request, told, fds)), trusted)
        try:
            batch = decode_it()
            encoder = Encoder(batch, lambda address, size: None)
            # The file contains a record with its buffers. The 24 bytes before the record align the
            # buffers.
            head = encoder.head()
            body = 24 + len(head)
            try:
                draft = self.make(body + encoder.new_bytes)
            except node.QuotaExceeded:
                return batch
            draft.memory[24:body] = head
            if encoder.new_bytes:
                with draft.memory[body:] as behind:
                    encoder.copy_new(behind)
            self.copied += encoder.copied
            return self._unpacked(draft.seal(key), True)
        finally:
            self._over(request, self._generation)

    def _unpacked(self, mapped: Mapped, trusted: bool) -> pa.RecordBatch:
        def none(files: list[tuple[bytes, int]]) -> list[pa.Buffer]:
            raise Garbage("what was decoded refers to another file")

        return decode(memoryview(mapped.buffer)[24:], mapped, none, trusted)

    def close(self) -> None:
        """End the connection. Mapped files stay mapped, but the node no longer holds them."""
        with self._lock:
            self._disconnect()

    def __enter__(self) -> Self:
        """Nothing needs to be done."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self.close()
