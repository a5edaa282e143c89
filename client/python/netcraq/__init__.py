# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ from Python: a key-value store that runs in network switches.

    import netcraq

    with netcraq.connect() as client:
        client.put("color", "blue")
        print(client.get("color").text)
        with client.lock("printer") as lock:
            print(lock.token)

:func:`netcraq.connect` connects to the server of this machine or pod (``netcraq dev`` starts one),
and is all that an application needs. It is the same function as :func:`netcraq.node.connect`.
:mod:`netcraq.node` has the errors and the types, :mod:`netcraq.node.aio` is for asyncio, and
:mod:`netcraq.streams` reads streams from shared memory.

These modules are for experts, whose programs send packets to the switches themselves:

* :mod:`netcraq.client` is a synchronous UDP client that uses KEY_IDs and sessions.
* :mod:`netcraq.names` is a client that uses keys' names.
* :mod:`netcraq.admin` requests addresses, KEY_IDs of names and sessions from the controller,
  because a UDP client cannot know them.
* :mod:`netcraq.wire` encodes and decodes the packet; ``docs/protocol.md`` is its specification.
* :mod:`netcraq.scapy_layer` is the packet as a scapy layer (the extra ``netcraq[scapy]``).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netcraq.node import connect

__all__ = ["connect"]


def __getattr__(name: str) -> object:
    """Import :mod:`netcraq.node` on first use, so that programs that only use the packet do not
    import asyncio.
    """
    if name == "connect":
        from netcraq.node import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
