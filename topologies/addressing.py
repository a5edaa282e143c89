# SPDX-License-Identifier: Apache-2.0
"""Address assignment: p4-utils' assignment strategies."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Interface

STRATEGIES = ("l3", "mixed", "l2", "manual")

SWITCH_BASE = IPv4Address("10.0.255.0")
SERVICE_BASE = IPv4Address("10.0.100.0")
L2_GATEWAY = IPv4Address("10.0.255.254")


def number_of(name: str) -> int | None:
    """The number at the end of a node's name (``s12``: 12), or None if there is none."""
    digits = re.search(r"[0-9]+$", name)
    return int(digits.group()) if digits else None


def host_address(strategy: str, host: int, switch: int) -> tuple[IPv4Interface, IPv4Address]:
    """Return the address with prefix, and the gateway, of host number ``host`` at switch number
    ``switch``. ValueError if the strategy has no room for the numbers.
    """
    if strategy == "l3":
        _within("switch", switch, 255)
        _within("host", host, 255)
        return IPv4Interface(f"10.{switch}.{host}.2/24"), IPv4Address(f"10.{switch}.{host}.1")
    if strategy == "mixed":
        _within("switch", switch, 0xFFFF)
        _within("host", host, 253)
        subnet = f"10.{switch >> 8}.{switch & 0xFF}"
        return IPv4Interface(f"{subnet}.{host}/24"), IPv4Address(f"{subnet}.254")
    if strategy == "l2":
        _within("host", host, 0xFFFD)
        return IPv4Interface(f"10.0.{host >> 8}.{host & 0xFF}/16"), L2_GATEWAY
    raise ValueError(f"assignment strategy {strategy!r} assigns nothing")


def _within(what: str, number: int, largest: int) -> None:
    if not 1 <= number <= largest:
        raise ValueError(f"{what} number {number} is not in 1 to {largest}")


def switch_address(switch: int) -> IPv4Address:
    """A switch's own address."""
    _within("switch", switch, 253)
    return SWITCH_BASE + switch


def service_address(chain: int) -> IPv4Address:
    """A chain's service address."""
    return SERVICE_BASE + chain


def host_mac(address: IPv4Address) -> str:
    """Return the Ethernet address of the host with this IPv4 address: locally administered, never
    multicast.
    """
    return _mac(0x0200 << 32 | int(address))


def switch_mac(address: IPv4Address) -> str:
    """Return the Ethernet address of the switch with this IPv4 address. Hosts and other switches
    address frames to it.
    """
    return _mac(0x024E << 32 | int(address))


def _mac(value: int) -> str:
    return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
