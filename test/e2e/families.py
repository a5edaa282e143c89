# SPDX-License-Identifier: Apache-2.0
"""The address families of a cluster."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Prefixes of one family: for the nodes' link, for pods and for services."""

    name: str
    link: str
    pods: str
    services: str

    def address(self, number: int) -> str:
        """An address on the link. The first one is the router's."""
        return str(ipaddress.ip_network(self.link)[number])

    def on_link(self, number: int) -> str:
        """An address on the link, with the length of the prefix."""
        return f"{self.address(number)}/{ipaddress.ip_network(self.link).prefixlen}"


IPV4 = Family("IPv4", "172.30.0.0/24", "10.244.0.0/16", "10.96.0.0/16")
IPV6 = Family("IPv6", "fd00:172:30::/64", "fd00:10:244::/56", "fd00:10:96::/112")

CHOICES = {"ipv4": (IPV4,), "ipv6": (IPV6,), "dual": (IPV4, IPV6)}
"""The values of make e2e-k8s' option, with their families; the primary family is the first."""


def host(address: str) -> str:
    """An address in the form that a URL requires."""
    return f"[{address}]" if ":" in address else address


def of(family: Family, addresses: list[str]) -> str:
    """The address of a family among several addresses."""
    return next(address for address in addresses if (":" in address) == (family is IPV6))
