# SPDX-License-Identifier: Apache-2.0
"""The streams of a node: records in the node's memory, which is mapped (push), or asked for (pull).

    from netcraq import streams

    with streams.read("orders", consumer="billing") as reader:
        for batch in reader:
            for offset, record in batch:
                print(offset, bytes(record.data))

:mod:`netcraq.streams.aio` is the same with asyncio. It needs nothing but Python. A stream is made,
and appended to, by :class:`netcraq.node.Client`: ``open_stream``, ``append``. docs/streams.md says
what it guarantees.
"""

from netcraq.streams.memory import Record
from netcraq.streams.reader import Batch, Overrun, Reader, read

__all__ = ["Batch", "Overrun", "Reader", "Record", "read"]
