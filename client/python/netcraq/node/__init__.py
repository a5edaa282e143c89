# SPDX-License-Identifier: Apache-2.0
"""The node API from Python: the door of the node on which the program runs.

    from netcraq import node

    with node.connect() as client:
        client.put("color", "blue")
        print(client.get("color").text)
        with client.lock("printer") as lock:
            print(lock.token)

It needs nothing but Python. A client is one connection to the node's server, for any number of
threads; :mod:`netcraq.node.aio` has the same for asyncio. It waits for the server at start,
connects again when the connection ends, and repeats then what was under way: reads as they are,
what changes something under its old number, by which the server knows it, so that it is done once.
Where a server that was started again does not know it, the call raises OutcomeUnknown. Watches are
taken up where they were. Errors are :class:`NodeError`, with a subclass for each kind.
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
