# SPDX-License-Identifier: Apache-2.0
"""Topology files: p4-utils' ``p4app.json`` with a ``netcraq`` section.

A file has the form that p4-utils reads (https://nsg-ethz.github.io/p4-utils). Links, hosts and
switches have the same meaning here::

    {
      "program": "../p4src/netcraq.p4", "switch": "simple_switch", "compiler": "p4c",
      "topology": {
        "assignment_strategy": "l3", "auto_arp_tables": true, "auto_gw_arp": true,
        "links": [["h1", "s1"], ["s1", "s2", {"port1": 2, "port2": 1, "delay": "1ms"}], ["h2", "s2"]],
        "hosts": {"h1": {}, "h2": {}},
        "switches": {"s1": {}, "s2": {}}
      },
      "netcraq": {"profile": 128, "chains": [{"name": "main", "id": 1, "members": ["s1", "s2"], "service": "10.0.100.1", "lease_ms": 200}]}
    }

The ``netcraq`` section is an addition. Without it there is one chain over all switches in the order
of the file. p4-utils' keys for its own machinery (``topo_module``, ``pcap_dump``, ``cli_input``
...) are accepted and have no effect. A key that neither p4-utils nor NetCRAQ knows is an error,
because it is probably a typo.

Access control is also an addition. Keys belong to realms, by the prefixes of their names. A host
has a principal, and the principal has access::

    "hosts": {"h1": {"principal": "shop", "access": {"default": "read"}}, "h2": {"access": {"shop": "read"}, "rate": 1000}, "h3": {"access": {}}}
    "netcraq": {"realms": [{"name": "shop", "prefixes": ["/shop/"]}], "hostRate": 20000, "chains": ...}

h1 may do everything in the realm of its principal's name and may read the keys of no realm
(``default``). h2, whose principal is named h2, may read the realm shop. h3 is closed. A host
without either field may do everything. The terms are those of the controller's own file
(``controlplane/topology/example.yaml``), which explains them.

``load`` reports all errors of a file at once, as one :class:`TopologyError`, each with its place
and a remedy. It starts nothing.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

from topologies import addressing

PROFILES = (128, 1024, 4096, 8192)
"""The values of ``VALUE_BITS`` for which the program is compiled."""

SWITCHES = ("embedded", "bmv2")
"""The kinds of switches: netcraq-switch and BMv2's simple_switch_grpc."""

ENGINES = ("auto", "ebpf", "interp")
HOOKS = ("auto", "tc", "xdp")
"""The values of netcraq-switch's ``--engine`` and ``--hook``."""

MAX_PORT = 509
"""The highest port number: ports have 9 bits, 510 is the controller's and 511 means drop."""

MAX_MEMBERS = 8
MAX_RATE = 1 << 31
"""The highest rate of the switches' meters, in packets a second."""

DEFAULT_REALM = "default"
"""The realm of every key that no other realm claims, and the principal of hosts without access
fields.
"""

RIGHTS = ("read", "write")
"""The kinds of access to a realm; ``write`` includes ``read``."""

DEFAULT_LEASE_MS = 200
GRPC_BASE = 9559
"""P4Runtime's registered TCP port; the switches count up from it, as in p4-utils."""

ROOT = Path(__file__).resolve().parent.parent

# The keys that each object may have. The second set is p4-utils' own, without effect here.
_FILE_KEYS = {"program", "p4_src", "topology", "netcraq"}
_FILE_IGNORED = {
    *(
        "switch",
        "compiler",
        "options",
        "switch_cli",
        "cli",
        "pcap_dump",
        "enable_log",
        "exec_scripts",
        "tasks_file",
        "sw_bin",
    ),
    *("topo_module", "controller_module", "topodb_module", "mininet_module", "compiler_module", "client_module"),
    *("host_node", "switch_node", "router_node"),
}
_TOPOLOGY_KEYS = {"assignment_strategy", "auto_arp_tables", "auto_gw_arp", "links", "hosts", "switches", "default"}
_LINK_KEYS = {"port1", "port2", "bw", "delay", "loss", "max_queue_size"}
_LINK_IGNORED = {"weight"}
_HOST_KEYS = {"ip", "gateway", "gw", "mac", "commands", "principal", "access", "rate"}
_SWITCH_KEYS = {"address", "device_id", "grpc_port", "netcraq_args"}
_SWITCH_IGNORED = {
    *("cli_input", "program", "p4_src", "cpu_port", "thrift_port", "switch_node", "client_module"),
    *("log_enabled", "log_dir", "pcap_dump", "sw_bin"),
}
_NETCRAQ_KEYS = {"profile", "chains", "realms", "hostRate"}
_REALM_KEYS = {"name", "prefixes"}
_CHAIN_KEYS = {"name", "id", "members", "service", "lease_ms", "short_lease_ms", "rejoin_ms", "slots"}

# Names are used in Mininet's shell commands, and NAME-ethPPP must fit into the 15 characters of a
# Linux interface name.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,7}")

# Realms and principals, as the controller accepts them.
_AUTHORITY_NAME = re.compile(r"[^\s:/]+")


class TopologyError(Exception):
    """An invalid topology file. ``problems`` has each error with its place and a remedy."""

    def __init__(self, source: str, problems: Iterable[str]) -> None:
        self.source = source
        self.problems = list(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


@dataclass(frozen=True)
class Shape:
    """The effects of a link on frames, in each direction: p4-utils' link attributes."""

    bw: float | None = None
    """Mbit/s."""
    delay: str | None = None
    """The delay in tc-netem(8)'s syntax, such as ``"5ms"``."""
    loss: float | None = None
    """Percent."""
    max_queue_size: int | None = None
    """Frames."""

    def __bool__(self) -> bool:
        """Whether the link has any effect on frames."""
        return self != Shape()


@dataclass(frozen=True)
class End:
    """One end of a link: a host's only interface (port 0), or a port of a switch."""

    node: str
    port: int

    @property
    def interface(self) -> str:
        """The Linux interface: ``s1-eth2``, ``h1-eth0``."""
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True)
class Link:
    """A cable."""

    a: End
    b: End
    shape: Shape = Shape()

    @property
    def ends(self) -> tuple[End, End]:
        """Both ends."""
        return self.a, self.b


@dataclass(frozen=True)
class Host:
    """A host on one port of one switch."""

    name: str
    switch: str
    port: int
    """The switch's port."""
    ip: IPv4Interface
    gateway: IPv4Address
    mac: str
    commands: tuple[str, ...] = ()
    """Commands to run in the host after its start."""
    principal: str | None = None
    """The principal in the file, if any; see :attr:`acts_as`."""
    access: dict[str, str] | None = None
    """Realm: ``read`` or ``write``; empty if the file gives no access, None without the field."""
    rate: int | None = None
    """NetCRAQ packets a second, 0 for no limit; None: the limit of all hosts."""

    @property
    def interface(self) -> str:
        """The host's Linux interface."""
        return f"{self.name}-eth0"

    @property
    def open(self) -> bool:
        """Whether the file does not restrict the host: then it may do everything, under every
        client's session.
        """
        return self.principal is None and self.access is None

    @property
    def acts_as(self) -> str | None:
        """The principal of its port; None: the port is closed."""
        if self.principal is not None:
            return self.principal
        if self.access is None:
            return DEFAULT_REALM
        return self.name if self.access else None


@dataclass(frozen=True)
class Switch:
    """A P4 switch."""

    name: str
    address: IPv4Address
    """The switch's address in the data plane."""
    mac: str
    device_id: int
    grpc_port: int
    ports: tuple[int, ...] = ()
    """The port numbers in use, ascending."""
    args: tuple[str, ...] = ()
    """Additional arguments for netcraq-switch (``netcraq_args``), such as ``--faults``."""


@dataclass(frozen=True)
class Chain:
    """A NetCRAQ chain (virtual group)."""

    name: str
    id: int
    members: tuple[str, ...]
    """Switches, head first, tail last."""
    service: IPv4Address
    lease_ms: int = DEFAULT_LEASE_MS
    """0: the paper's fail-stop assumption."""
    short_lease_ms: int | None = None
    """The leases' length while the members respond promptly, so that a failed member is soon
    removed. None: the same as always.
    """
    rejoin_ms: int | None = None
    """How long a lost member must be stable before it rejoins by itself. 0: it rejoins only by
    hand; None: the controller's default.
    """
    slots: int | None = None
    """The chain's slots. None: an equal share of the program's slots."""


@dataclass(frozen=True)
class Realm:
    """The keys whose names begin with one of the prefixes. If two realms claim a key, the longer
    prefix wins.
    """

    name: str
    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class Topology:
    """A checked topology file."""

    source: str
    """The file's name, for messages."""
    strategy: str
    auto_arp_tables: bool
    auto_gw_arp: bool
    profile: int
    hosts: dict[str, Host]
    switches: dict[str, Switch]
    links: tuple[Link, ...]
    chains: tuple[Chain, ...]
    realms: tuple[Realm, ...] = ()
    host_rate: int = 0
    """NetCRAQ packets a second that each host may send, unless it has its own ``rate``; 0: no
    limit.
    """
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """Keys of p4-utils that have no effect here."""

    def port(self, node: str, neighbour: str) -> End:
        """Return the end at ``node`` of its link to ``neighbour``. KeyError if there is none."""
        for link in self.links:
            for here, there in (link.ends, link.ends[::-1]):
                if (here.node, there.node) == (node, neighbour):
                    return here
        raise KeyError(f"{node} and {neighbour} are not linked")

    def interfaces(self) -> list[str]:
        """Return the names of all switch interfaces, which are in the machine's namespace (a host's
        interfaces are in the host).
        """
        return [end.interface for link in self.links for end in link.ends if end.node in self.switches]

    def hosts_at(self, switch: str) -> list[Host]:
        """Return the hosts on a switch's ports."""
        return [host for host in self.hosts.values() if host.switch == switch]

    def realm_of(self, key: str) -> str:
        """Return the realm of a key, by its name: the one with the longest matching prefix."""
        claims = [
            (len(prefix), realm.name) for realm in self.realms for prefix in realm.prefixes if key.startswith(prefix)
        ]
        return max(claims)[1] if claims else DEFAULT_REALM

    def rights(self, host: Host) -> dict[str, str]:
        """Return a host's access, ``read`` or ``write``, by realm: what the file grants to hosts of
        its principal, and what the principal has implicitly.
        """
        if host.acts_as is None:
            return {}
        if host.open:
            return {DEFAULT_REALM: "write", **{realm.name: "write" for realm in self.realms}}
        rights = next(
            (dict(other.access) for other in self.hosts.values() if other.acts_as == host.acts_as and other.access), {}
        )
        if any(realm.name == host.acts_as for realm in self.realms):
            rights[host.acts_as] = "write"
        return rights


def load(path: Path | str) -> Topology:
    """Read and check a topology file. The TopologyError has all its errors."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        shipped = ", ".join(sorted(file.name for file in Path(__file__).parent.glob("*.json")))
        raise TopologyError(str(path), [f"there is no such file (topologies/ has {shipped})"]) from None
    except (OSError, UnicodeDecodeError) as why:
        raise TopologyError(str(path), [f"cannot be read: {why}"]) from why
    return parse(text, str(path), path.parent)


def parse(text: str, source: str, directory: Path) -> Topology:
    """Check the text of a topology file; paths in it are relative to ``directory``."""
    problems: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                problems.append(
                    f"{json.dumps(key)} is there twice in one object; JSON would silently keep the second only"
                )
            result[key] = value
        return result

    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as why:
        raise TopologyError(source, [f"line {why.lineno}, column {why.colno}: not JSON: {why.msg}"]) from None
    return check(data, source, directory, problems)


def check(data: Any, source: str, directory: Path = ROOT / "topologies", problems: list[str] | None = None) -> Topology:
    """Check a file's content, as :func:`json.loads` returns it."""
    reader = _Reader(source, directory, problems or [])
    topology = reader.read(data)
    if reader.problems or topology is None:
        raise TopologyError(source, reader.problems)
    return topology


def line(
    nodes: int, profile: int = 128, lease_ms: int = DEFAULT_LEASE_MS, short_lease_ms: int | None = None
) -> dict[str, Any]:
    """Return the content of the file for a chain of ``nodes`` switches in a line, with a host at
    each.
    """
    if not 2 <= nodes <= MAX_MEMBERS:
        raise TopologyError("--nodes", [f"a chain has 2 to {MAX_MEMBERS} switches, not {nodes}"])
    switches = [f"s{i}" for i in range(1, nodes + 1)]
    return {
        "program": "../p4src/netcraq.p4",
        "switch": "simple_switch",
        "compiler": "p4c",
        "topology": {
            "assignment_strategy": "l3",
            "auto_arp_tables": True,
            "auto_gw_arp": True,
            "links": [[f"h{i}", f"s{i}"] for i in range(1, nodes + 1)]
            + [[f"s{i}", f"s{i + 1}"] for i in range(1, nodes)],
            "hosts": {f"h{i}": {} for i in range(1, nodes + 1)},
            "switches": {name: {} for name in switches},
        },
        "netcraq": {
            "profile": profile,
            "chains": [
                {
                    "name": "main",
                    "id": 1,
                    "members": switches,
                    "service": str(addressing.service_address(1)),
                    "lease_ms": lease_ms,
                    **({} if short_lease_ms is None else {"short_lease_ms": short_lease_ms}),
                }
            ],
        },
    }


class _Reader:
    """Reads a file's content and collects its errors."""

    def __init__(self, source: str, directory: Path, problems: list[str]) -> None:
        self.source = source
        self.directory = directory
        self.problems = problems
        self.ignored: list[str] = []
        self.addresses: dict[IPv4Address, str] = {}
        self.macs: dict[str, str] = {}
        self.taken_ports: dict[str, dict[int, str]] = {}

    def bad(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}" if where else what)

    # ---- Pieces of JSON ----

    def object(self, where: str, value: Any, keys: set[str], ignored: set[str] = frozenset()) -> dict[str, Any]:
        """Return ``value`` as an object with these keys only."""
        if not isinstance(value, dict):
            self.bad(where, f"must be an object, not {_kind(value)}")
            return {}
        for key in value:
            if key in ignored:
                self.ignored.append(f"{where}.{key}" if where else key)
            elif key not in keys:
                near = difflib.get_close_matches(key, keys | ignored, 1)
                hint = (
                    f"did you mean {json.dumps(near[0])}?" if near else f"the keys here are {', '.join(sorted(keys))}"
                )
                self.bad(where, f"unknown key {json.dumps(key)}; {hint}")
        return value

    def typed(self, where: str, value: Any, kind: type | tuple[type, ...], name: str, default: Any) -> Any:
        """Return ``value`` if it has the type (true and false are not numbers), otherwise
        ``default`` after reporting a problem.
        """
        wanted = kind if isinstance(kind, tuple) else (kind,)
        if (isinstance(value, bool) and bool not in wanted) or not isinstance(value, wanted):
            self.bad(where, f"must be {name}, not {_kind(value)}")
            return default
        return value

    def integer(self, where: str, value: Any, low: int, high: int, default: int) -> int:
        value = self.typed(where, value, int, "an integer", None)
        if value is None:
            return default
        if not low <= value <= high:
            self.bad(where, f"{value} is not in {low} to {high}")
            return default
        return value

    def address(self, where: str, value: Any, owner: str) -> IPv4Address | None:
        """Read an IPv4 address that no other node or chain has."""
        try:
            address = (
                value
                if isinstance(value, IPv4Address)
                else IPv4Address(self.typed(where, value, str, "an IPv4 address in quotes", ""))
            )
        except ValueError:
            if value and isinstance(value, str):
                self.bad(where, f"{json.dumps(value)} is not an IPv4 address")
            return None
        if (
            address.is_multicast
            or address.is_loopback
            or address.is_unspecified
            or address == IPv4Address("255.255.255.255")
        ):
            self.bad(where, f"{address} cannot be a node's address: it is not unicast")
            return None
        other = self.addresses.setdefault(address, owner)
        if other != owner:
            self.bad(where, f"{address} is the address of {other} already")
        return address

    # ---- The file ----

    def read(self, data: Any) -> Topology | None:
        file = self.object("", data, _FILE_KEYS, _FILE_IGNORED)
        if not isinstance(data, dict):
            return None
        self.program(file)
        if "topology" not in file:
            self.bad("", 'there is no "topology"')
            return None
        section = self.object("topology", file["topology"], _TOPOLOGY_KEYS)
        for part, empty in (("links", []), ("hosts", {}), ("switches", {})):
            if part not in section:
                self.bad("topology", f"there is no {json.dumps(part)}")
            elif type(section[part]) is not type(empty):
                self.bad(f"topology.{part}", f"must be {_kind(empty)}, not {_kind(section[part])}")
        hosts = section.get("hosts") if isinstance(section.get("hosts"), dict) else {}
        switches = section.get("switches") if isinstance(section.get("switches"), dict) else {}
        links = section.get("links") if isinstance(section.get("links"), list) else []
        for name in [*hosts, *switches]:
            if not _NAME.fullmatch(name):
                self.bad(
                    "topology",
                    f"{json.dumps(name)} cannot be a node's name: a letter and up to seven letters, digits or underscores",
                )
        for name in hosts:
            if name in switches:
                self.bad("topology", f"{name} is both a host and a switch")

        strategy = section.get("assignment_strategy", "l3")
        if strategy not in addressing.STRATEGIES:
            self.bad(
                "topology.assignment_strategy", f"{json.dumps(strategy)} is none of {', '.join(addressing.STRATEGIES)}"
            )
            strategy = "l3"
        default_keys = {*_LINK_KEYS, "auto_arp_tables", "auto_gw_arp"} - {"port1", "port2"}
        defaults = self.object("topology.default", section.get("default", {}), default_keys, _LINK_IGNORED)
        flags = {}
        for flag in ("auto_arp_tables", "auto_gw_arp"):
            value = section.get(flag, defaults.get(flag, True))
            if value in ("true", "false"):  # p4-utils' older examples have these strings
                value = value == "true"
            flags[flag] = self.typed(f"topology.{flag}", value, bool, "true or false", True)

        cables = self.links(
            links, hosts, switches, {key: value for key, value in defaults.items() if key in _LINK_KEYS}
        )
        made_switches = self.switches(switches)
        netcraq = self.object("netcraq", file.get("netcraq", {}), _NETCRAQ_KEYS)
        realms = self.realms(netcraq)
        host_rate = self.integer("netcraq.hostRate", netcraq.get("hostRate", 0), 0, MAX_RATE, 0)
        made_hosts = self.hosts(hosts, cables, strategy, switches)
        self.authority(hosts, [realm.name for realm in realms])
        self.connected(hosts, switches, links, cables)
        profile = netcraq.get("profile", 128)
        if isinstance(profile, bool) or profile not in PROFILES:
            self.bad(
                "netcraq.profile",
                f"{json.dumps(profile)} is none of the compiled value widths: {', '.join(map(str, PROFILES))}",
            )
            profile = 128
        chains = self.chains(netcraq, list(switches))
        if self.problems:
            return None
        ports = {name: tuple(sorted(taken)) for name, taken in self.taken_ports.items()}
        return Topology(
            source=self.source,
            strategy=strategy,
            profile=profile,
            hosts=made_hosts,
            switches={name: Switch(**made, ports=ports.get(name, ())) for name, made in made_switches.items()},
            links=tuple(cables),
            chains=tuple(chains),
            realms=tuple(realms),
            host_rate=host_rate,
            ignored=tuple(self.ignored),
            **flags,
        )

    def program(self, file: dict[str, Any]) -> None:
        """Check only that the named program is NetCRAQ's and exists: switches get p4c's output."""
        for key in ("program", "p4_src"):
            if key not in file:
                continue
            value = self.typed(key, file[key], str, "a path", None)
            if value is None:
                continue
            path = self.directory / value
            if not path.is_file():
                self.bad(key, f"there is no file {path}")
            elif path.resolve() != (ROOT / "p4src" / "netcraq.p4").resolve():
                self.bad(
                    key,
                    f"{value} is not p4src/netcraq.p4: chains run that program (netcraq-switch by itself runs any v1model program)",
                )

    def links(
        self, links: list[Any], hosts: dict[str, Any], switches: dict[str, Any], defaults: dict[str, Any]
    ) -> list[Link]:
        """Check the links and number the ports: the file's numbers first, then the others upwards
        in the file's order.
        """
        found: list[tuple[str, str, str, dict[str, Any], Shape]] = []
        pairs: dict[frozenset[str], int] = {}
        for i, entry in enumerate(links):
            where = f"topology.links[{i}]"
            if (
                not isinstance(entry, list)
                or len(entry) not in (2, 3)
                or not all(isinstance(node, str) for node in entry[:2])
            ):
                self.bad(where, 'must be ["node", "node"] or ["node", "node", {attributes}]')
                continue
            a, b = entry[:2]
            where += f" ({a} - {b})"
            attributes = {
                **defaults,
                **self.object(where, entry[2] if len(entry) == 3 else {}, _LINK_KEYS, _LINK_IGNORED),
            }
            shape = self.shape(where, attributes)
            unknown = [node for node in (a, b) if node not in hosts and node not in switches]
            for node in unknown:
                near = difflib.get_close_matches(node, [*hosts, *switches], 1)
                self.bad(
                    where,
                    f"there is no node {json.dumps(node)}{f'; did you mean {json.dumps(near[0])}?' if near else ''}",
                )
            if unknown:
                continue
            if a == b:
                self.bad(where, "a node cannot be linked to itself")
            elif a in hosts and b in hosts:
                self.bad(where, "two hosts cannot be linked: a host is linked to a switch")
            elif (first := pairs.setdefault(frozenset((a, b)), i)) != i:
                self.bad(where, f"{a} and {b} are linked by topology.links[{first}] already; one link a pair")
            else:
                found.append((where, a, b, attributes, shape))

        for where, a, b, attributes, _ in found:
            for node, key in ((a, "port1"), (b, "port2")):
                if key in attributes:
                    self.claim(where, node, key, attributes[key], hosts)
        cables = []
        for where, a, b, attributes, shape in found:
            ends = []
            for node, key in ((a, "port1"), (b, "port2")):
                taken = self.taken_ports.setdefault(node, {})
                if node in hosts:
                    port = 0
                elif key in attributes and isinstance(attributes[key], int):
                    port = attributes[key]
                else:
                    port = next(number for number in range(1, len(links) + len(taken) + 2) if number not in taken)
                    taken[port] = where
                    if port > MAX_PORT:
                        self.bad(where, f"{node} has more than {MAX_PORT} links")
                ends.append(End(node, port))
            cables.append(Link(*ends, shape))
        return cables

    def claim(self, where: str, node: str, key: str, value: Any, hosts: dict[str, Any]) -> None:
        """Assign the port number in the file."""
        if node in hosts:
            if value != 0:
                self.bad(f"{where}.{key}", f"{node} is a host: its only port is 0")
            return
        port = self.typed(f"{where}.{key}", value, int, "an integer", None)
        if port is None:
            return
        if not 1 <= port <= MAX_PORT:
            self.bad(
                f"{where}.{key}", f"port {port} is not in 1 to {MAX_PORT} (510 is the controller's, 511 means drop)"
            )
            return
        other = self.taken_ports.setdefault(node, {}).setdefault(port, where)
        if other != where:
            self.bad(f"{where}.{key}", f"port {port} of {node} is taken by {other}; a port has one cable")

    def shape(self, where: str, attributes: dict[str, Any]) -> Shape:
        number = (int, float)
        bw, delay, loss, queue = (attributes.get(key) for key in ("bw", "delay", "loss", "max_queue_size"))
        if bw is not None and (self.typed(f"{where}.bw", bw, number, "a number of Mbit/s", None) is None or bw <= 0):
            self.bad(f"{where}.bw", "must be more than 0 Mbit/s")
        if isinstance(delay, number) and not isinstance(delay, bool):  # p4-utils' unit is ms
            delay = f"{delay}ms"
        if delay is not None and not (isinstance(delay, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?(us|ms|s)", delay)):
            self.bad(f"{where}.delay", f'{json.dumps(delay)} is no delay such as "5ms", "100us" or "1s"')
        if loss is not None and (
            self.typed(f"{where}.loss", loss, number, "a percentage", None) is None or not 0 <= loss <= 100
        ):
            self.bad(f"{where}.loss", "must be a percentage, 0 to 100")
        if queue is not None:
            self.integer(f"{where}.max_queue_size", queue, 1, 10**6, 1)
        return Shape(bw, delay, loss, queue)

    def switches(self, switches: dict[str, Any]) -> dict[str, dict[str, Any]]:
        made: dict[str, dict[str, Any]] = {}
        devices: dict[int, str] = {}
        servers: dict[int, str] = {}
        if not switches:
            self.bad("topology.switches", "there are no switches")
        for i, (name, value) in enumerate(switches.items()):
            where = f"topology.switches.{name}"
            fields = self.object(where, value, _SWITCH_KEYS, _SWITCH_IGNORED)
            number = addressing.number_of(name) or i + 1
            address = self.addressed(where, fields, number, name)
            device = self.integer(f"{where}.device_id", fields.get("device_id", i + 1), 1, 2**64 - 1, i + 1)
            server = self.integer(f"{where}.grpc_port", fields.get("grpc_port", GRPC_BASE + i), 1, 65535, GRPC_BASE + i)
            for what, value_of, owners in (("device_id", device, devices), ("grpc_port", server, servers)):
                if (other := owners.setdefault(value_of, name)) != name:
                    self.bad(f"{where}.{what}", f"{value_of} is that of {other} already")
            args = fields.get("netcraq_args", [])
            if not isinstance(args, list) or not all(isinstance(argument, str) for argument in args):
                self.bad(f"{where}.netcraq_args", "must be a list of strings")
                args = []
            if address is not None:
                made[name] = {
                    "name": name,
                    "address": address,
                    "mac": addressing.switch_mac(address),
                    "device_id": device,
                    "grpc_port": server,
                    "args": tuple(args),
                }
        return made

    def addressed(self, where: str, fields: dict[str, Any], number: int, name: str) -> IPv4Address | None:
        if "address" in fields:
            return self.address(f"{where}.address", fields["address"], f"switch {name}")
        try:
            return self.address(where, addressing.switch_address(number), f"switch {name}")
        except ValueError as why:
            self.bad(where, f'{why}: give the switch an "address"')
            return None

    def hosts(
        self, hosts: dict[str, Any], cables: list[Link], strategy: str, switches: dict[str, Any]
    ) -> dict[str, Host]:
        made: dict[str, Host] = {}
        gateways: dict[IPv4Address, str] = {}
        numbers = {name: addressing.number_of(name) or i + 1 for i, name in enumerate(switches)}
        for i, (name, value) in enumerate(hosts.items()):
            where = f"topology.hosts.{name}"
            fields = self.object(where, value, _HOST_KEYS)
            at = [there for link in cables for here, there in (link.ends, link.ends[::-1]) if here.node == name]
            if len(at) > 1:
                self.bad(where, f"is linked to {' and '.join(end.node for end in at)}: a host has one link")
            if not at:
                continue  # connected() reports such a link
            ip, gateway = self.host_address(
                where, fields, strategy, addressing.number_of(name) or i + 1, numbers.get(at[0].node, 0)
            )
            if ip is None or gateway is None:
                continue
            self.address(where, ip.ip, f"host {name}")
            gateways[gateway] = name
            mac = fields.get("mac", addressing.host_mac(ip.ip))
            if not isinstance(mac, str) or not re.fullmatch(r"[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}", mac):
                self.bad(f"{where}.mac", f"{json.dumps(mac)} is no unicast Ethernet address such as 02:00:0a:01:01:02")
            elif (other := self.macs.setdefault(mac.lower(), name)) != name:
                self.bad(f"{where}.mac", f"{mac} is that of {other} already")
            commands = fields.get("commands", [])
            if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
                self.bad(f"{where}.commands", "must be a list of strings")
                commands = []
            # authority() reports their errors
            access = fields.get("access") if isinstance(fields.get("access"), dict) else None
            who = {"principal": fields.get("principal"), "access": access, "rate": fields.get("rate")}
            made[name] = Host(name, at[0].node, at[0].port, ip, gateway, str(mac).lower(), tuple(commands), **who)
        for gateway, name in gateways.items():
            if gateway in self.addresses:
                self.bad(f"topology.hosts.{name}", f"its gateway {gateway} is the address of {self.addresses[gateway]}")
        return made

    def host_address(
        self, where: str, fields: dict[str, Any], strategy: str, host: int, switch: int
    ) -> tuple[IPv4Interface, IPv4Address] | tuple[None, None]:
        if strategy != "manual":
            if "ip" in fields or "gateway" in fields or "gw" in fields:
                self.bad(where, f'"ip" and "gateway" are for the strategy "manual"; "{strategy}" assigns them')
            try:
                return addressing.host_address(strategy, host, switch)
            except ValueError as why:
                self.bad(where, f'{why}, which "{strategy}" has no address for; rename the node or use "manual"')
                return None, None
        try:
            ip = IPv4Interface(fields["ip"])
        except KeyError:
            self.bad(where, 'the strategy "manual" needs an "ip" such as "10.0.1.1/24"')
            return None, None
        except ValueError:
            self.bad(
                f"{where}.ip",
                f'{json.dumps(fields["ip"])} is not an IPv4 address with a prefix length such as "10.0.1.1/24"',
            )
            return None, None
        if ip.network.prefixlen > 30:
            self.bad(f"{where}.ip", f"{ip} leaves no address for a gateway: use a prefix length of at most 30")
            return None, None
        gateway = fields.get("gateway", fields.get("gw", str(ip.network.broadcast_address - 1)))
        try:
            gateway = IPv4Address(gateway)
        except ValueError:
            self.bad(f"{where}.gateway", f"{json.dumps(gateway)} is not an IPv4 address")
            return None, None
        if gateway not in ip.network:
            self.bad(f"{where}.gateway", f"{gateway} is not in the host's network {ip.network}")
            return None, None
        return ip, gateway

    def realms(self, netcraq: dict[str, Any]) -> list[Realm]:
        entries = self.typed("netcraq.realms", netcraq.get("realms", []), list, "a list of realms", [])
        made: list[Realm] = []
        claimed: dict[str, str] = {}
        for i, value in enumerate(entries):
            where = f"netcraq.realms[{i}]"
            fields = self.object(where, value, _REALM_KEYS)
            if not isinstance(value, dict):
                continue
            name = self.authority_name(f"{where}.name", fields.get("name"))
            prefixes = fields.get("prefixes")
            if (
                not isinstance(prefixes, list)
                or not prefixes
                or not all(isinstance(prefix, str) for prefix in prefixes)
            ):
                self.bad(f"{where}.prefixes", 'must list what the names of its keys begin with: ["/shop/"]')
                prefixes = []
            for prefix in prefixes:
                if not prefix:
                    self.bad(
                        f"{where}.prefixes",
                        f'"" would be all keys: those that no realm claims are of the realm "{DEFAULT_REALM}" anyway',
                    )
                elif prefix in claimed:
                    self.bad(
                        f"{where}.prefixes", f"{json.dumps(prefix)} is that of the realm {claimed[prefix]} already"
                    )
                elif name is not None:
                    claimed[prefix] = name
            if name == DEFAULT_REALM:
                self.bad(
                    f"{where}.name",
                    f'"{DEFAULT_REALM}" is the realm of the keys that no other claims: choose another name',
                )
            elif any(realm.name == name for realm in made):
                self.bad(f"{where}.name", f"there is another realm {name}")
            elif name is not None:
                made.append(Realm(name, tuple(prefixes)))
        return made

    def authority_name(self, where: str, value: Any) -> str | None:
        """Read the name of a realm or a principal."""
        if isinstance(value, str) and _AUTHORITY_NAME.fullmatch(value):
            return value
        self.bad(where, f"{json.dumps(value)} is no name: give one or more letters, but no colon, slash or white space")
        return None

    def authority(self, hosts: dict[str, Any], realms: list[str]) -> None:
        """Check access control: hosts' principals, access and rates. Hosts of one principal have
        the same access.
        """
        said: dict[str, tuple[str, dict[str, Any]]] = {}  # by principal: the first host, and its access
        for name, fields in hosts.items():
            if not isinstance(fields, dict):
                continue  # hosts() reports such an access
            where = f"topology.hosts.{name}"
            principal, access = fields.get("principal"), fields.get("access")
            if "rate" in fields:
                self.integer(f"{where}.rate", fields["rate"], 0, MAX_RATE, 0)
            if "principal" in fields and self.authority_name(f"{where}.principal", principal) == DEFAULT_REALM:
                self.bad(
                    f"{where}.principal",
                    f'"{DEFAULT_REALM}" is the principal of hosts of which nothing is said: choose another name',
                )
            if "access" not in fields:
                continue
            if not isinstance(access, dict):
                self.bad(
                    f"{where}.access", f'must say "read" or "write" for each realm, {{}} for none, not {_kind(access)}'
                )
                continue
            if "principal" not in fields:
                principal = name
                if not access:
                    continue
                if name == DEFAULT_REALM:
                    what = f'its principal would be "{DEFAULT_REALM}", that of hosts of which nothing is said: give it a "principal"'
                    self.bad(where, what)
            if isinstance(principal, str):
                other, given = said.setdefault(principal, (name, access))
                if given != access:
                    what = f"{other} is of the principal {principal}, too, and has other access: hosts of one principal have the same"
                    self.bad(f"{where}.access", what)
                    continue
                if other != name:
                    continue
            for realm, right in access.items():
                if realm != DEFAULT_REALM and realm not in realms:
                    known = ", ".join([DEFAULT_REALM, *realms])
                    self.bad(
                        f"{where}.access",
                        f"there is no realm {json.dumps(realm)}; list it in netcraq.realms, where there are {known}",
                    )
                if right not in RIGHTS:
                    self.bad(
                        f"{where}.access.{realm}",
                        f"{json.dumps(right)} is no right: give read, or write (which is both)",
                    )
                if realm == principal and right == "read":
                    what = "a principal may do everything in the realm of its own name: give the realm, or the principal, another name"
                    self.bad(f"{where}.access.{realm}", what)

    def connected(self, hosts: dict[str, Any], switches: dict[str, Any], links: list[Any], cables: list[Link]) -> None:
        """Check that every node has a link, and every switch can reach every other."""
        linked = {node for entry in links if isinstance(entry, list) for node in entry[:2] if isinstance(node, str)}
        alone = [name for name in [*hosts, *switches] if name not in linked]
        for name in alone:
            if name in hosts:
                self.bad(f"topology.hosts.{name}", f'has no link: add ["{name}", "a switch"] to topology.links')
            elif len(switches) > 1 or hosts:
                self.bad(f"topology.switches.{name}", f'has no link: add ["{name}", "a node"] to topology.links')
        if len(cables) < len(links):  # a faulty link has its own message, and would cause wrong ones here
            return
        todo = [name for name in switches if name not in alone]
        if not todo:
            return
        reached, queue = {todo[0]}, [todo[0]]
        while queue:
            here = queue.pop()
            for link in cables:
                for a, b in (link.ends, link.ends[::-1]):
                    if a.node == here and b.node in switches and b.node not in reached:
                        reached.add(b.node)
                        queue.append(b.node)
        apart = [name for name in todo if name not in reached]
        if apart:
            self.bad("topology.links", f"no way leads from {todo[0]} to {', '.join(apart)}: a link is missing")

    def chains(self, netcraq: dict[str, Any], switches: list[str]) -> list[Chain]:
        if not switches:
            return []
        entries = netcraq.get("chains", [{"name": "main", "id": 1, "members": switches}])
        if not isinstance(entries, list) or not entries:
            self.bad("netcraq.chains", "must be a list of at least one chain")
            return []
        made: list[Chain] = []
        for i, value in enumerate(entries):
            where = f"netcraq.chains[{i}]"
            fields = self.object(where, value, _CHAIN_KEYS)
            if not isinstance(value, dict):
                continue
            number = self.integer(f"{where}.id", fields.get("id", i + 1), 0, 255, i + 1)
            name = fields.get("name", f"chain{number}")
            if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
                self.bad(f"{where}.name", f"{json.dumps(name)} is no name: a letter, then letters, digits, - or _")
                name = f"chain{number}"
            for other in made:
                if other.id == number:
                    self.bad(f"{where}.id", f"{number} is that of chain {other.name} already")
                if other.name == name:
                    self.bad(f"{where}.name", f"there is another chain {name}")
            members = self.members(where, fields.get("members"), switches)
            service = self.address(
                f"{where}.service", fields.get("service", addressing.service_address(number)), f"chain {name}"
            )
            lease = self.integer(
                f"{where}.lease_ms", fields.get("lease_ms", DEFAULT_LEASE_MS), 0, 60_000, DEFAULT_LEASE_MS
            )
            short = fields.get("short_lease_ms")
            if short is not None:
                short = self.integer(f"{where}.short_lease_ms", short, 20, max(20, lease - 1), 20)
            rejoin = (
                None
                if fields.get("rejoin_ms") is None
                else self.integer(f"{where}.rejoin_ms", fields["rejoin_ms"], 0, 3_600_000, 0)
            )
            slots = (
                None if fields.get("slots") is None else self.integer(f"{where}.slots", fields["slots"], 1, 65536, 1)
            )
            if service is not None:
                made.append(Chain(name, number, tuple(members), service, lease, short, rejoin, slots))
        return made

    def members(self, where: str, value: Any, switches: list[str]) -> list[str]:
        if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
            self.bad(f"{where}.members", 'must list switches, head first, tail last: ["s1", "s2"]')
            return []
        for name in value:
            if name not in switches:
                self.bad(
                    f"{where}.members", f"there is no switch {json.dumps(name)}; the switches are {', '.join(switches)}"
                )
        for name in sorted({name for name in value if value.count(name) > 1}):
            self.bad(
                f"{where}.members", f"{name} is there {value.count(name)} times; a switch has one place in a chain"
            )
        if len(value) > MAX_MEMBERS:
            self.bad(f"{where}.members", f"{len(value)} switches are more than the {MAX_MEMBERS} that a chain can have")
        return value


def _kind(value: Any) -> str:
    """Return the name of a JSON value's type, for messages."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        type(None): "null",
        int: "a number",
        float: "a number",
    }
    return kinds[type(value)]
