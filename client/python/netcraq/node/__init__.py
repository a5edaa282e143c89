# SPDX-License-Identifier: Apache-2.0
"""The node API from Python, which the server on the program's own node offers.

    from netcraq import node

    with node.connect() as client:
        client.put("color", "blue")
        print(client.get("color").text)
        with client.lock("printer") as lock:
            print(lock.token)

The package needs only Python. Any number of threads may use a client, which has one connection to
the node's server. :mod:`netcraq.node.aio` has the same interface for asyncio. The client waits for
the server at start, and connects again when the connection ends. Then it repeats the calls under
way. A repeated write keeps its number, by which the server recognizes it, so a write is executed
only once. If a restarted server does not recognize it, the call raises OutcomeUnknown. Watches
continue after the last event that they received. Errors are :class:`NodeError`, with a subclass for
each kind.
"""

from netcraq.node.blocking import Client, Held, Registration, ServiceWatch, Watch, connect
from netcraq.node.errors import (
    Canceled,
    Closed,
    Draining,
    Internal,
    InvalidArgument,
    LeaseGone,
    NodeError,
    NoRoom,
    NotHeld,
    OutcomeUnknown,
    PermissionDenied,
    QuotaExceeded,
    Timeout,
    TooLarge,
    Unavailable,
    WrongOffset,
)
from netcraq.node.values import (
    NEVER,
    Comparison,
    Delete,
    Deletion,
    Event,
    Instance,
    Item,
    Leader,
    Lease,
    Page,
    Put,
    Sum,
    Swap,
    Transacted,
)

__all__ = [
    "NEVER",
    "Canceled",
    "Client",
    "Closed",
    "Comparison",
    "Delete",
    "Deletion",
    "Draining",
    "Event",
    "Held",
    "Instance",
    "Internal",
    "InvalidArgument",
    "Item",
    "Leader",
    "Lease",
    "LeaseGone",
    "NoRoom",
    "NodeError",
    "NotHeld",
    "OutcomeUnknown",
    "Page",
    "PermissionDenied",
    "Put",
    "QuotaExceeded",
    "Registration",
    "ServiceWatch",
    "Sum",
    "Swap",
    "Timeout",
    "TooLarge",
    "Transacted",
    "Unavailable",
    "Watch",
    "WrongOffset",
    "connect",
]
