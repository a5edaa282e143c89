# SPDX-License-Identifier: Apache-2.0
"""Readers for the streams of a node. A reader maps the node's memory (push), or sends requests to
the node's server (pull).

    from netcraq import streams

    with streams.read("orders", consumer="billing") as reader:
        for batch in reader:
            for offset, record in batch:
                print(offset, bytes(record.data))

:mod:`netcraq.streams.aio` has the same interface for asyncio. Both need only Python. Use
:class:`netcraq.node.Client` to create a stream and to append to it: ``open_stream``, ``append``.
docs/streams.md describes the guarantees.
"""

from netcraq.streams.memory import Record
from netcraq.streams.reader import Batch, Overrun, Reader, read

__all__ = ["Batch", "Overrun", "Reader", "Record", "read"]
