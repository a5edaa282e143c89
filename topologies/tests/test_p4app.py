# SPDX-License-Identifier: Apache-2.0
"""Topology files: valid ones, and the error messages for invalid ones."""

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from topologies import launch, p4app

HERE = Path(p4app.__file__).parent


def base():
    """Return a small valid file."""
    return {
        "program": "../p4src/netcraq.p4",
        "topology": {
            "assignment_strategy": "l3",
            "links": [["h1", "s1"], ["h2", "s2"], ["s1", "s2"]],
            "hosts": {"h1": {}, "h2": {}},
            "switches": {"s1": {}, "s2": {}},
        },
        "netcraq": {"profile": 128, "chains": [{"name": "main", "id": 1, "members": ["s1", "s2"]}]},
    }


def check(data):
    return p4app.check(data, "file.json")


def with_change(change):
    data = base()
    change(data)
    return data


def set_topology(**values):
    return lambda data: data["topology"].update(values)


def set_chain(**values):
    return lambda data: data["netcraq"]["chains"][0].update(values)


def set_link(index, link):
    return lambda data: data["topology"]["links"].__setitem__(index, link)


def drop_link(index):
    return lambda data: data["topology"]["links"].pop(index)


def set_hosts(**hosts):
    return lambda data: data["topology"]["hosts"].update(hosts)


def set_host(**h1):
    return set_hosts(h1=h1)


def set_realms(*realms):
    return lambda data: data["netcraq"].update(realms=list(realms))


def with_realms(change):
    """Apply the change to a file with the realms a and b."""

    def both(data):
        set_realms({"name": "a", "prefixes": ["/a/"]}, {"name": "b", "prefixes": ["/b/", "/a/b/"]})(data)
        change(data)

    return both


def manual(**h1):
    def change(data):
        data["topology"]["assignment_strategy"] = "manual"
        data["topology"]["hosts"] = {"h1": h1, "h2": {"ip": "10.9.2.1/24"}}

    return change


BAD_FILES = {
    "no topology": (lambda data: data.pop("topology"), 'there is no "topology"'),
    "misspelt key": (lambda data: data.update(topolgy={}), 'unknown key "topolgy"; did you mean "topology"?'),
    "unknown key of a switch": (
        set_topology(switches={"s1": {"adress": "10.0.0.1"}, "s2": {}}),
        'topology.switches.s1: unknown key "adress"; did you mean "address"?',
    ),
    "no links": (lambda data: data["topology"].pop("links"), 'topology: there is no "links"'),
    "links of the wrong kind": (set_topology(links={}), "topology.links: must be a list, not an object"),
    "a host without a link": (drop_link(1), 'topology.hosts.h2: has no link: add ["h2", "a switch"] to topology.links'),
    "a switch without a link": (
        set_topology(switches={"s1": {}, "s2": {}, "s3": {}}),
        "topology.switches.s3: has no link",
    ),
    "a missing link in the chain": (drop_link(2), "topology.links: no way leads from s1 to s2: a link is missing"),
    "a link to an unknown node": (
        set_link(2, ["s1", "s22"]),
        'topology.links[2] (s1 - s22): there is no node "s22"; did you mean "s2"?',
    ),
    "a link with three ends": (
        set_link(2, ["s1", "s2", "s3"]),
        "topology.links[2] (s1 - s2): must be an object, not a string",
    ),
    "a link with one end": (set_link(2, ["s1"]), 'topology.links[2]: must be ["node", "node"]'),
    "a link to itself": (set_link(2, ["s1", "s1"]), "a node cannot be linked to itself"),
    "two hosts linked": (set_link(0, ["h1", "h2"]), "two hosts cannot be linked"),
    "two links of a pair": (
        lambda data: data["topology"]["links"].append(["s2", "s1"]),
        "s2 and s1 are linked by topology.links[2] already",
    ),
    "a host with two links": (
        lambda data: data["topology"]["links"].append(["h1", "s2"]),
        "topology.hosts.h1: is linked to s1 and s2: a host has one link",
    ),
    "a duplicate port": (
        lambda data: data["topology"].update(
            links=[["h1", "s1", {"port2": 1}], ["h2", "s2"], ["s1", "s2", {"port1": 1}]]
        ),
        "topology.links[2] (s1 - s2).port1: port 1 of s1 is taken by topology.links[0] (h1 - s1); a port has one cable",
    ),
    "the controller's port": (
        set_link(2, ["s1", "s2", {"port1": 510}]),
        "port 510 is not in 1 to 509 (510 is the controller's, 511 means drop)",
    ),
    "a port of a host": (set_link(0, ["h1", "s1", {"port1": 2}]), "h1 is a host: its only port is 0"),
    "a port that is no number": (set_link(2, ["s1", "s2", {"port1": "eth1"}]), "must be an integer, not a string"),
    "an unknown link attribute": (set_link(2, ["s1", "s2", {"latency": "1ms"}]), 'unknown key "latency"'),
    "a delay without a unit": (set_link(2, ["s1", "s2", {"delay": "fast"}]), '"fast" is no delay such as "5ms"'),
    "a loss above 100 %": (set_link(2, ["s1", "s2", {"loss": 101}]), "must be a percentage, 0 to 100"),
    "a node's name that no interface can have": (
        set_topology(
            hosts={"a-very-long-name": {}, "h2": {}}, links=[["a-very-long-name", "s1"], ["h2", "s2"], ["s1", "s2"]]
        ),
        '"a-very-long-name" cannot be a node\'s name',
    ),
    "a name that is a shell command": (
        set_topology(hosts={"h1;reboot": {}, "h2": {}}, links=[["h1;reboot", "s1"], ["h2", "s2"], ["s1", "s2"]]),
        "cannot be a node's name",
    ),
    "a node that is both": (set_topology(hosts={"h1": {}, "h2": {}, "s1": {}}), "s1 is both a host and a switch"),
    "an unknown strategy": (set_topology(assignment_strategy="l4"), '"l4" is none of l3, mixed, l2, manual'),
    "an address that is not the file's to give": (
        set_topology(hosts={"h1": {"ip": "10.0.0.1/24"}, "h2": {}}),
        'are for the strategy "manual"',
    ),
    "manual without an address": (manual(), 'topology.hosts.h1: the strategy "manual" needs an "ip"'),
    "manual with nonsense": (manual(ip="10.0.1.300/24"), '"10.0.1.300/24" is not an IPv4 address with a prefix length'),
    "manual with a gateway elsewhere": (
        manual(ip="10.9.1.1/24", gateway="10.9.9.254"),
        "10.9.9.254 is not in the host's network 10.9.1.0/24",
    ),
    "manual without room for a gateway": (manual(ip="10.9.1.1/32"), "leaves no address for a gateway"),
    "the same address twice": (
        manual(ip="10.9.2.1/24"),
        "topology.hosts.h2: 10.9.2.1 is the address of host h1 already",
    ),
    "a host with a switch's address": (
        manual(ip="10.0.255.1/24"),
        "topology.hosts.h1: 10.0.255.1 is the address of switch s1 already",
    ),
    "a multicast Ethernet address": (
        manual(ip="10.9.1.1/24", mac="01:00:00:00:00:01"),
        "is no unicast Ethernet address",
    ),
    "two switches on one P4Runtime port": (
        set_topology(switches={"s1": {"grpc_port": 9600}, "s2": {"grpc_port": 9600}}),
        "topology.switches.s2.grpc_port: 9600 is that of s1 already",
    ),
    "two switches with one device id": (
        set_topology(switches={"s1": {"device_id": 7}, "s2": {"device_id": 7}}),
        "7 is that of s1 already",
    ),
    "a switch with a service address": (
        set_topology(switches={"s1": {"address": "10.0.100.1"}, "s2": {}}),
        "10.0.100.1 is the address of switch s1 already",
    ),
    "a profile nobody compiled": (
        lambda data: data["netcraq"].update(profile=256),
        "256 is none of the compiled value widths: 128, 1024, 4096, 8192",
    ),
    "a profile that is true": (
        lambda data: data["netcraq"].update(profile=True),
        "is none of the compiled value widths",
    ),
    "no chains": (lambda data: data["netcraq"].update(chains=[]), "must be a list of at least one chain"),
    "a chain of unknown switches": (
        set_chain(members=["s1", "s9"]),
        'there is no switch "s9"; the switches are s1, s2',
    ),
    "a chain of a host": (set_chain(members=["s1", "h1"]), 'there is no switch "h1"'),
    "a switch twice in a chain": (
        set_chain(members=["s1", "s2", "s1"]),
        "s1 is there 2 times; a switch has one place in a chain",
    ),
    "a chain without members": (set_chain(members=[]), "must list switches, head first, tail last"),
    "a chain number of nine bits": (set_chain(id=256), "256 is not in 0 to 255"),
    "a service address that is none": (set_chain(service="10.0.100"), '"10.0.100" is not an IPv4 address'),
    "a multicast service address": (set_chain(service="224.0.0.1"), "224.0.0.1 cannot be a node's address"),
    "a comeback after two hours": (set_chain(rejoin_ms=7_200_000), "7200000 is not in 0 to 3600000"),
    "a lease of an hour": (set_chain(lease_ms=3_600_000), "3600000 is not in 0 to 60000"),
    "a short lease that is as long as the other": (set_chain(short_lease_ms=200), "200 is not in 20 to 199"),
    "a short lease that is too short": (set_chain(short_lease_ms=10), "10 is not in 20 to 199"),
    "two chains of one number": (
        lambda data: data["netcraq"]["chains"].append(
            {"id": 1, "name": "b", "members": ["s1"], "service": "10.0.100.9"}
        ),
        "1 is that of chain main",
    ),
    "a program that is not there": (lambda data: data.update(program="gone.p4"), "there is no file"),
    "another program": (lambda data: data.update(program="../p4src/netcraq_psa.p4"), "is not p4src/netcraq.p4"),
    "not an object": (lambda data: data.update(topology=[]), "topology: must be an object, not a list"),
    "a principal without a name": (
        set_host(principal=""),
        'topology.hosts.h1.principal: "" is no name: give one or more letters',
    ),
    "a principal that is a number": (set_host(principal=7), "topology.hosts.h1.principal: 7 is no name"),
    "a principal with a colon": (set_host(principal="system:admin"), "but no colon, slash or white space"),
    "the principal of open hosts": (
        set_host(principal="default"),
        '"default" is the principal of hosts of which nothing is said',
    ),
    "a host whose principal would be that of open hosts": (
        set_topology(
            hosts={"default": {"access": {"default": "read"}}, "h2": {}},
            links=[["default", "s1"], ["h2", "s2"], ["s1", "s2"]],
        ),
        'topology.hosts.default: its principal would be "default", that of hosts of which nothing is said: give it a "principal"',
    ),
    "access that is a word": (
        set_host(access="write"),
        'topology.hosts.h1.access: must say "read" or "write" for each realm, {} for none, not a string',
    ),
    "access that is null": (set_host(access=None), "topology.hosts.h1.access: must say"),
    "access to a realm that is not there": (
        set_host(access={"shop": "read"}),
        'topology.hosts.h1.access: there is no realm "shop"; list it in netcraq.realms, where there are default',
    ),
    "a right that is none": (
        set_host(access={"default": "rw"}),
        'topology.hosts.h1.access.default: "rw" is no right: give read, or write (which is both)',
    ),
    "less than everything in a realm of its own": (
        with_realms(set_host(principal="a", access={"a": "read"})),
        "topology.hosts.h1.access.a: a principal may do everything in the realm of its own name",
    ),
    "two hosts of one principal with other access": (
        with_realms(
            set_hosts(h1={"principal": "p", "access": {"a": "read"}}, h2={"principal": "p", "access": {"a": "write"}})
        ),
        "topology.hosts.h2.access: h1 is of the principal p, too, and has other access: hosts of one principal have the same",
    ),
    "one of two hosts of a principal that is to have none": (
        with_realms(set_hosts(h1={"principal": "p", "access": {"a": "read"}}, h2={"principal": "p", "access": {}})),
        "topology.hosts.h2.access: h1 is of the principal p, too, and has other access",
    ),
    "a rate below nothing": (set_host(rate=-1), "topology.hosts.h1.rate: -1 is not in 0 to 2147483648"),
    "a rate that is a fraction": (set_host(rate=0.5), "topology.hosts.h1.rate: must be an integer, not a number"),
    "a rate for all that no meter takes": (
        lambda data: data["netcraq"].update(hostRate=1 << 32),
        "netcraq.hostRate: 4294967296 is not in 0 to",
    ),
    "realms that are no list": (
        lambda data: data["netcraq"].update(realms={"a": "/a/"}),
        "netcraq.realms: must be a list of realms, not an object",
    ),
    "a realm that is no object": (set_realms("a"), "netcraq.realms[0]: must be an object, not a string"),
    "a realm with a misspelt key": (
        set_realms({"name": "a", "prefix": ["/a/"]}),
        'unknown key "prefix"; did you mean "prefixes"?',
    ),
    "a realm without a name": (set_realms({"prefixes": ["/a/"]}), "netcraq.realms[0].name: null is no name"),
    "a realm with a slash": (
        set_realms({"name": "a/b", "prefixes": ["/a/"]}),
        'netcraq.realms[0].name: "a/b" is no name',
    ),
    "a realm without keys": (
        set_realms({"name": "a", "prefixes": []}),
        "netcraq.realms[0].prefixes: must list what the names of its keys begin with",
    ),
    "a realm with all keys": (
        set_realms({"name": "a", "prefixes": [""]}),
        'netcraq.realms[0].prefixes: "" would be all keys',
    ),
    "the realm of the other keys": (
        set_realms({"name": "default", "prefixes": ["/a/"]}),
        '"default" is the realm of the keys that no other claims',
    ),
    "two realms of one name": (
        set_realms({"name": "a", "prefixes": ["/a/"]}, {"name": "a", "prefixes": ["/b/"]}),
        "netcraq.realms[1].name: there is another realm a",
    ),
    "two realms with one prefix": (
        set_realms({"name": "a", "prefixes": ["/a/"]}, {"name": "b", "prefixes": ["/a/"]}),
        'netcraq.realms[1].prefixes: "/a/" is that of the realm a already',
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_the_place_and_the_reason(case):
    change, words = BAD_FILES[case]
    with pytest.raises(p4app.TopologyError) as refusal:
        check(with_change(change))
    assert words in str(refusal.value)
    assert str(refusal.value).startswith("file.json: ")


def test_the_file_without_a_mistake_is_taken():
    topology = check(base())
    assert topology.chains[0].members == ("s1", "s2")
    assert not topology.ignored


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"topology": {"hosts": {}}', "line 1, column 27: not JSON"),
        ("[]", "must be an object, not a list"),
        (
            '{"topology": {"links": [["h1", "s1"]], "hosts": {"h1": {}, "h1": {}}, "switches": {"s1": {}}}}',
            '"h1" is there twice in one object',
        ),
    ],
)
def test_bad_text(text, words):
    with pytest.raises(p4app.TopologyError) as refusal:
        p4app.parse(text, "file.json", HERE)
    assert words in str(refusal.value)


def test_a_file_that_is_not_there_names_those_that_are():
    with pytest.raises(
        p4app.TopologyError, match=r"chain-2\.json, chain-4\.json, chain-8\.json, leaf-spine\.json, tenants\.json"
    ):
        p4app.load(HERE / "chain-5.json")


def test_all_mistakes_are_reported_at_once():
    data = base()
    data["topology"]["links"][2] = ["s1", "s1"]
    data["netcraq"]["profile"] = 64
    data["netcraq"]["chains"][0]["members"] = ["s3"]
    with pytest.raises(p4app.TopologyError) as refusal:
        check(data)
    assert len(refusal.value.problems) == 3


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_the_shipped_lines_are_what_nodes_makes(nodes):
    assert json.loads((HERE / f"chain-{nodes}.json").read_text()) == p4app.line(nodes)


@pytest.mark.parametrize("nodes", range(2, 9))
def test_a_line_has_a_host_at_every_switch(nodes):
    topology = check(p4app.line(nodes))
    assert [host.switch for host in topology.hosts.values()] == list(topology.switches)
    assert topology.chains[0].members == tuple(topology.switches)
    assert len(topology.links) == 2 * nodes - 1


@pytest.mark.parametrize("nodes", [0, 1, 9])
def test_a_line_of_another_length_is_refused(nodes):
    with pytest.raises(p4app.TopologyError, match="a chain has 2 to 8 switches"):
        p4app.line(nodes)


def test_ports_are_numbered_in_the_order_of_the_links():
    topology = p4app.load(HERE / "chain-4.json")
    assert topology.port("s2", "h2").port == 1
    assert topology.port("s2", "s1").port == 2
    assert topology.port("s2", "s3").interface == "s2-eth3"
    assert topology.switches["s2"].ports == (1, 2, 3)
    with pytest.raises(KeyError):
        topology.port("s1", "s3")


def test_given_ports_are_kept_and_the_others_fill_up_around_them():
    data = base()
    data["topology"]["links"] = [["h1", "s1"], ["h2", "s2", {"port2": 7}], ["s1", "s2", {"port1": 1}]]
    topology = check(data)
    assert topology.port("s1", "s2").port == 1
    assert topology.port("s1", "h1").port == 2
    assert topology.port("s2", "h2").port == 7
    assert topology.port("s2", "s1").port == 1


def test_the_leaf_spine_has_members_that_are_not_neighbours():
    topology = p4app.load(HERE / "leaf-spine.json")
    members = topology.chains[0].members
    with pytest.raises(KeyError):
        topology.port(members[0], members[1])
    assert {host.name for host in topology.hosts_at("leaf4")} == {"h4", "h5"}


@pytest.mark.parametrize(
    ("strategy", "ip", "gateway"),
    [("l3", "10.2.2.2/24", "10.2.2.1"), ("mixed", "10.0.2.2/24", "10.0.2.254"), ("l2", "10.0.0.2/16", "10.0.255.254")],
)
def test_addresses_follow_the_strategy(strategy, ip, gateway):
    topology = check(with_change(set_topology(assignment_strategy=strategy)))
    assert str(topology.hosts["h2"].ip) == ip
    assert topology.hosts["h2"].gateway == IPv4Address(gateway)
    assert topology.hosts["h2"].mac == "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("/")[0].split("."))
    assert topology.switches["s2"].address == IPv4Address("10.0.255.2")


def test_manual_addresses_are_kept():
    topology = check(with_change(manual(ip="10.9.1.1/24", gateway="10.9.1.200", mac="02:AA:00:00:00:01")))
    assert str(topology.hosts["h1"].ip) == "10.9.1.1/24"
    assert str(topology.hosts["h1"].gateway) == "10.9.1.200"
    assert topology.hosts["h1"].mac == "02:aa:00:00:00:01"
    assert str(topology.hosts["h2"].gateway) == "10.9.2.254"


def test_link_attributes_and_their_defaults():
    data = base()
    data["topology"]["default"] = {"bw": 100, "weight": 1}
    data["topology"]["links"][2] = ["s1", "s2", {"delay": 2, "loss": 0.5}]
    topology = check(data)
    assert topology.links[2].shape == p4app.Shape(bw=100, delay="2ms", loss=0.5)
    assert topology.links[0].shape == p4app.Shape(bw=100)
    assert topology.ignored == ("topology.default.weight",)


def declaration(topology):
    """Return the controller's file."""
    return pytest.importorskip("topologies.controller", reason="Mininet is not installed (make deps)").declaration(
        topology
    )


def test_hosts_of_which_nothing_is_said_are_open():
    topology = check(with_change(set_hosts(h2={"rate": 5})))
    h1, h2 = topology.hosts.values()
    assert h1.open and h2.open
    assert (h1.acts_as, topology.rights(h1)) == ("default", {"default": "write"})
    assert [host.get("rate") for host in declaration(topology)["hosts"]] == [None, 5]
    assert not any(word in host for host in declaration(topology)["hosts"] for word in ("access", "principal"))


def test_what_hosts_may_do_is_handed_on_to_the_controller():
    h1, h2 = {"principal": "p", "access": {"b": "read"}, "rate": 0}, {"access": {}}
    topology = check(
        with_change(with_realms(lambda data: (set_hosts(h1=h1, h2=h2)(data), data["netcraq"].update(hostRate=900))))
    )
    said = declaration(topology)
    assert [{key: host[key] for key in host.keys() & {"principal", "access", "rate"}} for host in said["hosts"]] == [
        h1,
        h2,
    ]
    assert said["realms"] == [{"name": "a", "prefixes": ["/a/"]}, {"name": "b", "prefixes": ["/b/", "/a/b/"]}]
    assert said["hostRate"] == 900


def test_the_longest_prefix_says_of_which_realm_a_key_is():
    topology = check(with_change(with_realms(lambda data: None)))
    expected = {"/a/1": "a", "/a/b/1": "b", "/b/": "b", "/a": "default", "a/1": "default"}
    assert {key: topology.realm_of(key) for key in expected} == expected


RIGHTS = {
    "its own name is its principal's": ({"access": {"a": "read"}}, {}, "h1", {"a": "read"}),
    "a principal's own realm is its": ({"principal": "a"}, {}, "a", {"a": "write"}),
    "and others are what it was given": (
        {"principal": "a", "access": {"b": "read"}},
        {},
        "a",
        {"a": "write", "b": "read"},
    ),
    "hosts of one principal have one access": (
        {"principal": "p"},
        {"principal": "p", "access": {"a": "write"}},
        "p",
        {"a": "write"},
    ),
    "as one whose name is the principal does": ({"principal": "h2"}, {"access": {"a": "write"}}, "h2", {"a": "write"}),
    "a principal without a realm has none": ({"principal": "p", "access": {}}, {}, "p", {}),
    "no access closes the port": ({"access": {}}, {}, None, {}),
}


@pytest.mark.parametrize("case", RIGHTS)
def test_who_may_do_what(case):
    h1, h2, acts_as, rights = RIGHTS[case]
    topology = check(with_change(with_realms(set_hosts(h1=h1, h2=h2))))
    assert topology.hosts["h1"].acts_as == acts_as
    assert topology.rights(topology.hosts["h1"]) == rights


def test_a_file_of_p4_utils_is_taken_as_it_is():
    """A file like those of p4-utils' exercises, except for the program's name."""
    topology = check(
        {
            "program": "../p4src/netcraq.p4",
            "switch": "simple_switch",
            "compiler": "p4c",
            "options": "--target bmv2 --arch v1model --std p4-16",
            "switch_cli": "simple_switch_CLI",
            "cli": True,
            "pcap_dump": False,
            "enable_log": False,
            "topo_module": {
                "file_path": "",
                "module_name": "p4utils.mininetlib.apptopo",
                "object_name": "AppTopoStrategies",
            },
            "controller_module": None,
            "topology": {
                "assignment_strategy": "mixed",
                "auto_arp_tables": "true",
                "auto_gw_arp": "true",
                "links": [["h1", "s1"], ["h2", "s1"], ["s1", "s2"]],
                "hosts": {"h1": {}, "h2": {}},
                "switches": {"s1": {"cli_input": "s1-commands.txt", "program": "netcraq.p4"}, "s2": {}},
            },
        }
    )
    assert topology.chains == (p4app.Chain("main", 1, ("s1", "s2"), IPv4Address("10.0.100.1")),)
    assert topology.auto_arp_tables is True
    assert "topo_module" in topology.ignored


def test_hints_can_be_pasted():
    """After the name of a host, the prompt replaces names of nodes by addresses."""
    chain = p4app.load(p4app.ROOT / "topologies" / "chain-4.json")
    for line in launch.HINTS.splitlines():
        command = line.strip().split("  ")[0].split()
        if command and command[0] in chain.hosts and command[1] != "ping":
            assert not set(command[1:]) & {*chain.hosts, *chain.switches}, line
