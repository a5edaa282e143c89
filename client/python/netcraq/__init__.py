# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ from Python.

* :mod:`netcraq.wire` encodes and decodes the packet; it needs nothing but Python.
* :mod:`netcraq.scapy_layer` is the packet as a scapy layer (the extra ``netcraq[scapy]``).
* :mod:`netcraq.client` is a small synchronous client.
* :mod:`netcraq.names` is one that knows keys by their names, wherever they are.
* :mod:`netcraq.admin` asks the controller for what a client cannot know: addresses, KEY_IDs of
  names, sessions.

``docs/protocol.md`` is the normative description of all of it.
"""
