# SPDX-License-Identifier: Apache-2.0
"""``netcraq-switch`` in p4-utils, for the ``cls`` of its switches::

    from netcraq_switch.p4utils import NetcraqP4RuntimeSwitch, NetcraqThriftSwitch

    net = NetworkAPI()
    net.addP4Switch("s1", cls=NetcraqThriftSwitch)
    net.addP4RuntimeSwitch("s2", cls=NetcraqP4RuntimeSwitch)

p4-utils is installed from its own repository and no requirement of this package.
"""

from __future__ import annotations

from typing import Any

from p4utils.mininetlib.node import P4RuntimeSwitch, P4Switch


class NetcraqThriftSwitch(P4Switch):
    """p4-utils' Thrift switch with ``netcraq-switch`` behind it. It serves P4Runtime too, at
    port 50050 + device_id of this machine.
    """

    def __init__(self, *args: Any, sw_bin: str = "netcraq-switch", **params: Any) -> None:
        super().__init__(*args, sw_bin=sw_bin, **params)

    def add_target_arguments(self) -> list[str]:
        """Return the arguments after ``--``."""
        address = f"127.0.0.1:{50050 + self.device_id}"
        return [*super().add_target_arguments(), "--grpc-server-addr", address]


class NetcraqP4RuntimeSwitch(P4RuntimeSwitch):
    """p4-utils' P4Runtime switch with ``netcraq-switch`` behind it."""

    def __init__(self, *args: Any, sw_bin: str = "netcraq-switch", **params: Any) -> None:
        super().__init__(*args, sw_bin=sw_bin, **params)
