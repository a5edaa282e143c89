# SPDX-License-Identifier: Apache-2.0
"""Tests of the cluster's tools that need no cluster."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from e2e import __main__ as command_line
from e2e import (
    attacks,
    beside,
    binaries,
    checks,
    cluster,
    cluster_images,
    controlplanes,
    examples,
    families,
    gateway,
    install,
    kills,
    kubeadm,
    quickstart,
    settings,
    specs,
)
from e2e.acceptance import CheckError
from e2e.leaks import Traces

METRICS = """\
# HELP etcd_monitor_reads_total Gets of one key, by who answered.
etcd_monitor_reads_total{answered="network",reason=""} 30
etcd_monitor_reads_total{answered="forwarded",reason="not placed"} 10
etcd_monitor_requests_total{kind="get"} 40
etcd_monitor_requests_total{kind="Status"} 1.5e+01
etcd_monitor_key_reads_total{key="/registry/odd\\"name"} 7
etcd_monitor_network_seconds_sum{operation="read"} 0.003
etcd_monitor_network_seconds_bucket{operation="read",le="1e-05"} 3
"""


def test_counts():
    found = gateway.counts(METRICS)
    assert (found.gets, found.network, found.share) == (40, 30, 0.75)
    assert found.requests == {"get": 40, "Status": 15}
    assert found.key_reads == {'/registry/odd\\"name': 7}
    assert found.seconds == {"network_seconds_sum read": 0.003}
    assert (found - found).gets == 0


def configuration(*chosen, **options):
    """kubeadm's configuration for a node with addresses of these families."""
    addresses = [family.address(11) for family in chosen]
    pods, services = [family.pods for family in chosen], [family.services for family in chosen]
    return kubeadm.init("n1", addresses, pods, services, **options)


def test_kubeadm():
    text = configuration(families.IPV4, gateway=True, proxy_mode="nftables")
    documents = [json.loads(part) for part in text.split("\n---\n")]
    by_kind = {document["kind"]: document for document in documents}
    assert {"name": "etcd-servers", "value": kubeadm.GATEWAY} in by_kind["ClusterConfiguration"]["apiServer"][
        "extraArgs"
    ]
    assert by_kind["ClusterConfiguration"]["etcd"]["local"]["imageTag"] == settings.etcd()
    assert by_kind["KubeProxyConfiguration"]["mode"] == "nftables"
    plain = configuration(families.IPV4, gateway=False, proxy_mode="iptables")
    assert "etcd-servers" not in plain
    assert "172.30.0.11" in plain and "fd00" not in plain


def test_kubeadm_families():
    both = [
        json.loads(part)
        for part in configuration(*families.CHOICES["dual"], gateway=False, proxy_mode="iptables").split("\n---\n")
    ]
    assert both[1]["networking"] == {
        "podSubnet": "10.244.0.0/16,fd00:10:244::/56",
        "serviceSubnet": "10.96.0.0/16,fd00:10:96::/112",
    }
    assert both[0]["localAPIEndpoint"]["advertiseAddress"] == "172.30.0.11"
    assert {"name": "node-ip", "value": "172.30.0.11,fd00:172:30::b"} in both[0]["nodeRegistration"]["kubeletExtraArgs"]
    assert both[2]["address"] == "::"
    join = json.loads(kubeadm.join("n2", [families.IPV6.address(12)], families.IPV6.address(11)))
    assert join["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "[fd00:172:30::b]:6443"


def test_kubeadm_control_planes():
    router, first, second = (families.IPV4.address(number) for number in (1, 11, 12))
    text = configuration(families.IPV4, gateway=True, proxy_mode="iptables", endpoint=router)
    documents = {document["kind"]: document for document in map(json.loads, text.split("\n---\n"))}
    cluster = documents["ClusterConfiguration"]
    assert cluster["controlPlaneEndpoint"] == f"{router}:6443"
    assert {"name": "etcd-servers", "value": kubeadm.GATEWAY} in cluster["apiServer"]["extraArgs"]
    sealed = documents["InitConfiguration"]["certificateKey"]
    assert len(bytes.fromhex(sealed)) == 32
    assert documents["InitConfiguration"]["localAPIEndpoint"]["advertiseAddress"] == first
    join = json.loads(kubeadm.join("n2", [second], router, control_plane=True))
    assert join["controlPlane"]["certificateKey"] == sealed
    assert join["controlPlane"]["localAPIEndpoint"]["advertiseAddress"] == second
    assert join["discovery"]["bootstrapToken"]["apiServerEndpoint"] == f"{router}:6443"
    assert "controlPlane" not in json.loads(kubeadm.join("n4", [second], router))


def test_traces():
    before, after = Traces(interfaces={"a"}), Traces(interfaces={"a", "b"}, routes={"r"})
    assert not before - after
    assert str(after - before) == "interfaces ['b']; routes ['r']"


def test_attacks_are_all_that_testpod_knows():
    source = (settings.HERE / "testpod" / "attack.go").read_text()
    table = source[source.index("var attacks = ") : source.index("// attacker sends")]
    assert set(re.findall(r'^\t"(\w+)":', table, re.MULTILINE)) == {*attacks.ATTACKS, "flood", "tunnels"}


def test_programs_are_the_same_in_all_languages():
    folder = settings.HERE / "testpod"
    go = (folder / "program.go").read_text()
    for name, form in (("program.py", r"def ({})\("), ("program.mjs", r"async function ({})\(")):
        found = re.findall(form.format("basics|hold"), (folder / name).read_text())
        assert found == ["basics", "hold"], name
        for event in ("put", "got", "events", "overtaken", "refused", "waiting", "pid", "token", "at"):
            assert re.search(rf"\b{event}\b", (folder / name).read_text()), f"{name}: {event}"
            assert f'"{event}"' in go, event


def test_kubernetes_module_is_the_version_that_is_named():
    listed = (settings.HERE / "kubernetes" / "go.mod").read_text()
    assert re.search(rf"\sk8s\.io/kubernetes {re.escape(settings.KUBERNETES)}\n", listed)


def test_manifests_of_a_release(monkeypatch, tmp_path):
    """The overlay names the manifests of a source tree, and the tag of the agent's image."""
    monkeypatch.setattr(settings, "OUT", tmp_path)
    here = SimpleNamespace(chained=True)
    for arguments, source, tag in (
        ((), settings.ROOT, "dev"),
        ((tmp_path / "old", "v1.2.3"), tmp_path / "old", "v1.2.3"),
    ):
        folder = Path(install.manifests(here, *arguments))
        overlay = yaml.safe_load((folder / "kustomization.yaml").read_text())
        assert [(folder / path).resolve() for path in overlay["resources"]] == [source / "cni-plugin" / "deploy"]
        assert [(folder / path).resolve() for path in overlay["components"]] == [source / "cni-plugin/deploy/chained"]
        assert overlay["images"] == [{"name": "localhost/netcraq/netcraq-agent", "newTag": tag}]


def test_images_of_the_last_release(tmp_path):
    """The build of the last release has exactly the files of its agent's image."""
    version, commit = settings.last_release()
    shown = subprocess.run(["git", "show", f"{commit}:cni-plugin/deploy/Containerfile.netcraq-agent"], cwd=settings.ROOT,
                           capture_output=True, text=True)  # fmt: skip
    if shown.returncode != 0:
        pytest.skip(f"the checkout lacks the commit of {version}")
    file = tmp_path / "source" / "cni-plugin" / "deploy" / "Containerfile.netcraq-agent"
    file.parent.mkdir(parents=True)
    file.write_text(shown.stdout)
    (tmp_path / "bin").mkdir()
    for name in binaries.AGENT:
        (tmp_path / "bin" / name).write_bytes(b"program")
    image = cluster_images.of_release(tmp_path)
    assert image.tag == f"localhost/netcraq/netcraq-agent:{version}"
    image.write(tmp_path / "image.tar")


def test_help():
    done = subprocess.run(
        [sys.executable, "-m", "e2e", "--help"],
        cwd=settings.HERE.parent,
        env=os.environ | {"PYTHONPATH": str(settings.ROOT / "cni-plugin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "three nodes" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "ready,smok"], "there is no check 'smok': is smoke meant?\n"),
        (["--only", ""], "there is no check ''\n"),
        (["--only", "ready", "--cni", "flannel"], "no check ready: it is one of --cni own and of --control-planes 3\n"),
        (["--only", "siege", "--control-planes", "3"], "no check siege: it is one of --cni own\n"),
        (["--only", "leaves"], "no check leaves: it is one of --cni bridge, ptp or flannel\n"),
        (["--only", "smoke", "--no-gateway"], "the check smoke needs the gateway: leave --no-gateway out\n"),
    ],
)
def test_checks_that_there_are_not_are_refused_at_once(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "Cluster", None)  # no cluster is made
    monkeypatch.setattr(command_line, "missing", None)  # and the machine is not examined
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["e2e", "run", *arguments])
    assert command_line.main() == 2
    printed = capsys.readouterr().out
    assert said in printed and "this cluster's checks are: " in printed


@pytest.mark.parametrize(("free", "room"), [(6 * 2**30, True), (5 * 2**30, True), (5 * 2**30 - 1, False), (0, False)])
def test_a_disk_that_is_full_is_said_before_nodes_lose_their_images(free, room, monkeypatch, tmp_path):
    disk = SimpleNamespace(total=100 * 2**30, used=0, free=free)
    monkeypatch.setattr(cluster.shutil, "disk_usage", lambda _: disk)
    said = cluster.no_room(tmp_path)
    if room:
        assert said == []
    else:
        assert said == [f"{free / 2**30:.1f} GiB are free at {tmp_path}: 5.0 are needed"]


def test_image_of_the_example(tmp_path):
    """The Deployment of examples/kubernetes has the image that is put on the nodes."""
    (tmp_path / "election-go").write_text("program")
    image = cluster_images.from_containerfile(
        cluster_images.EXAMPLE / "Containerfile", cluster_images.EXAMPLE_IMAGE, tmp_path
    )
    assert image.files == {"election-go": tmp_path / "election-go"}
    assert (image.entrypoint, image.user) == (["/election-go"], "65532")
    deployment = yaml.safe_load(examples.MANIFEST.read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["name"]) == (image.tag, "election")
    assert deployment["spec"]["replicas"] == examples.REPLICAS
    assert deployment["metadata"]["name"] == "election"
    assert "election-go" in binaries.OWN


class Example:
    """A cluster with the example's pods. ``rounds``: what each pod has printed, by round."""

    def __init__(self, rounds, listed="[pod/a/election] a leads"):
        self.rounds, self.round, self.listed, self.called = rounds, 0, listed, []
        self.kubectl = self

    def __call__(self, *arguments, **_):
        self.called.append(arguments)
        if arguments[0] == "delete" and arguments[1] == "pod":
            self.round += 1
        return self.listed

    def rollout(self, *_):
        """All pods are ready at once."""

    def items(self, *_):
        names = self.rounds[min(self.round, len(self.rounds) - 1)]
        status = {"containerStatuses": [{"restartCount": 0}]}
        return [{"metadata": {"name": name}, "spec": {"nodeName": "n"}, "status": status} for name in names]

    def execute(self, _, name, **__):
        said = self.rounds[min(self.round, len(self.rounds) - 1)][name]
        return SimpleNamespace(stdout=said)


def test_the_example_hands_over():
    waits = "b waits, because this one leads: a\n"
    cluster = Example([{"a": "a leads\n", "b": waits, "c": ""}, {"b": waits + "b leads\n", "c": "", "d": ""}])
    assert "3 replicas on 1 nodes, one leads" in examples.election(cluster)
    assert cluster.called[-1][:2] == ("delete", "-f")
    for rounds, listed, why in (
        ([{"a": "a leads\n", "b": "b leads\n", "c": ""}], "", "several pods lead"),
        ([{"a": "a leads\n", "b": ""}], "", "has 2 pods"),
        ([{"a": "a leads\n", "b": "", "c": ""}], "a leads", "kubectl logs shows"),
        (
            [{"a": "a leads\n", "b": "", "c": ""}, {"b": "b leads\n", "c": "c leads\n", "d": ""}],
            "[pod/a/election] a leads",
            "the leaders are",
        ),
    ):
        cluster = Example(rounds, listed)
        with pytest.raises(CheckError, match=why):
            examples.election(cluster)
        assert cluster.called[-1][:2] == ("delete", "-f"), "the example is left behind"


def test_checks_that_there_are_are_taken():
    for cni, control_planes in (("own", 1), ("bridge", 1), ("flannel", 1), ("own", 3)):
        there = checks.of(cni, control_planes)
        assert not checks.refusal(list(there), cni, control_planes)
        without = [name for name in there if name not in checks.NEED_GATEWAY]
        assert not checks.refusal(without, cni, control_planes, gateway=False)
    for names in (checks.NEED_GATEWAY, checks.IN_EVERY_FAMILY):
        assert set(names) <= set(checks.OWN)


@pytest.mark.parametrize(
    ("said", "yes"),
    [
        ('ok{"kind": "NamespaceList"}', True),
        (
            "ok",
            False,
        ),  # ready by its last check, but cannot answer a list
        ("", False),
    ],
)
def test_a_server_answers_when_it_lists(said, yes):
    asked = []

    class Network:
        def run(self, *command, check):
            asked.extend(command)
            return said

    node = SimpleNamespace(address="172.30.0.12")
    cluster = SimpleNamespace(lan=Network(), first=SimpleNamespace(folder=Path("/nodes/n1")))
    assert controlplanes.answers(cluster, node) is yes
    assert asked[-2:] == ["https://172.30.0.12:6443/readyz", "https://172.30.0.12:6443/api/v1/namespaces?limit=1"]
    options = dict(itertools.pairwise(asked))  # curl does not accept the form --option=value
    assert options["--cert"] == "/nodes/n1/etc-kubernetes/pki/apiserver-kubelet-client.crt"
    assert "--fail-early" in asked


def test_each_sort_of_fault_has_to_come_in_time():
    made = {name: [3.0, 5.0] for name in kills.FAULTS}
    assert kills._told(made, 1200).startswith(f"{2 * len(kills.FAULTS)} faults in 1200 s")
    del made["kill etcd"]
    assert kills._told(made, 60).endswith("; time for no kill etcd")
    with pytest.raises(CheckError, match="there was no kill etcd"):
        kills._told(made, 1200)
    with pytest.raises(CheckError, match="nothing was killed"):
        kills._told({}, 60)


def test_what_is_downloaded_is_pinned():
    """Everything that the project downloads is pinned by hash: base images by digest, Python
    packages and Go modules by the hashes of their files.
    """
    for path, _ in cluster_images.project():
        for line in path.read_text().splitlines():
            if line.startswith("FROM "):
                assert re.match(r"FROM (scratch$|[\w./-]+/golang:[\d.]+@sha256:[0-9a-f]{64} AS build$)", line), (
                    f"{path}: {line}"
                )
    locked = tomllib.loads((settings.ROOT / "uv.lock").read_text())["package"]
    fetched = [package for package in locked if package["name"] != "netcraq-tree"]
    assert len(fetched) > 20
    for package in fetched:
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        files = package.get("wheels", []) + ([package["sdist"]] if "sdist" in package else [])
        assert files, package["name"]
        for file in files:
            assert re.match(r"sha256:[0-9a-f]{64}$", file["hash"]), package["name"]
    bootstrap = re.sub(r"#.*\n|\\\n\s*", "", (settings.ROOT / "requirements-uv.txt").read_text())
    version = next(package["version"] for package in fetched if package["name"] == "uv")
    assert re.match(rf"uv=={re.escape(version)} +--hash=sha256:[0-9a-f]{{64}}", bootstrap), "run make lock"
    makefiles = [settings.ROOT / "Makefile", *sorted((settings.ROOT / "mk").glob("*.mk"))]
    assert len(makefiles) > 1
    for line in "\n".join(path.read_text() for path in makefiles).splitlines():
        if line.startswith("HASHED :="):
            assert line.endswith(" --require-hashes"), line
        elif "$(PIP_INSTALL)" in line:
            assert "--no-deps --no-build-isolation -e client/python" in line, line
        else:
            assert not re.search(r"\bpip install", line) or line.startswith("PIP_INSTALL :="), line
    assert re.search(
        rf"github.com/coredns/coredns {settings.COREDNS}\b", (settings.HERE / "coredns" / "go.mod").read_text()
    )
    assert f"flannel-io/flannel {settings.FLANNEL}\n" in (settings.HERE / "flannel" / "go.mod").read_text()
    for path in (settings.ROOT / "cni-plugin").rglob("*.go"):
        for line in path.read_text().splitlines():
            assert not (line.startswith("//go:generate") and re.search(r"@v\d", line)), (
                f"{path}: {line}: its module is in no go.sum"
            )


def test_quick_start_is_documented():
    commands = quickstart.lines((settings.ROOT / "docs" / "kubernetes.md").read_text())
    assert commands[0][0].startswith("helm install netcraq cni-plugin/deploy/chart ")
    assert commands[-1][0] == "kubectl netcraq get /leader"
    assert "answer   from 10.0.254.1:20035" in commands[-1][1]
    assert not any("\\" in command or "#" in command for command, _ in commands)
    with pytest.raises(ValueError, match="has no commands"):
        quickstart.lines("## In ten minutes\n\nSoon.\n")


@pytest.mark.parametrize(
    ("line", "printed", "yes"),
    [
        ("alice", "alice\n", True),
        ("alice", "bob\n", False),
        ("took 3 s ...", "x\ntook 41 s in all\n", True),
        ("a.b", "axb", False),
    ],
)
def test_documented_output(line, printed, yes):
    assert quickstart.like(line, printed) == yes


PICTURE = """\
ip -d -o link: 2: cni0: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode link/ether 5e:0a:12:00:f1:0c bridge_id 8000.5e:a:12:0:f1:c
ip -d -o link: 3: vetha1b2c3d4@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 master cni0 link/ether 1a:0a:12:00:f1:0c link-netnsid 0
ip -d -o link: 5: eth0@if9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP link/ether 02:00:5e:00:01:0d brd ff:ff:ff:ff:ff:ff
ip -o address: 2: cni0 inet6 fe80::5c0a:12ff:fe00:f10c/64 scope link
ip route show table all: 10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1
ip route show table all: 10.244.2.0/24 via 10.99.0.12 dev eth0
ip route show table all: local fe80::5c0a:12ff:fe00:f10c dev cni0 table local proto kernel
tc qdisc: qdisc noqueue 0: dev eth0 root refcnt 2"""
"""A node's, by the CNI project's bridge, with one pod."""


def test_but_for_a_start():
    """A restart of a node changes its addresses, and the names of pods' interfaces on all nodes.
    Other differences still count.
    """
    pods = PICTURE.replace("3: vetha1b2c3d4@if2", "9: veth99887766@if2").replace(
        "1a:0a:12:00:f1:0c", "1a:0a:12:00:f1:0d"
    )
    pods = pods.replace("link-netnsid 0", "link-netns cni-0e631595")
    itself = (
        pods.replace("5e:0a:12:00:f1:0c", "8e:77:00:01:02:03")
        .replace("8000.5e:a:12:0:f1:c", "8000.8e:77:0:1:2:3")
        .replace("fe80::5c0a:12ff:fe00:f10c", "fe80::8c77:ff:fe01:203")
        .replace("link: 2: cni0: <BROADCAST,UP,LOWER_UP>", "link: 7: cni0: <NO-CARRIER,BROADCAST,UP>")
        .replace("state UP mode", "state DOWN mode")
        .replace("src 10.244.1.1", "src 10.244.1.1 linkdown")
    )
    assert len({PICTURE, pods, itself}) == 3

    def there(seen):
        return beside.but_for_a_start(seen, here=False)

    def here(seen):
        return beside.but_for_a_start(seen, here=True)

    assert there(pods) == there(PICTURE)
    assert there(itself) != there(PICTURE)
    assert here(itself) == here(PICTURE)
    for change in (
        ("mtu 1500 qdisc noqueue state DOWN", "mtu 1450 qdisc noqueue state DOWN"),
        ("qdisc noqueue 0: dev eth0", "qdisc clsact ffff: dev eth0"),
        ("10.244.2.0/24 via 10.99.0.12", "10.244.2.0/24 via 10.99.0.11"),
        ("ip route show table all: 10.244.1.0/24", "ip -d -o link: 4: ncqvx4: mtu 1450\nip route: 10.244.1.0/24"),
        ("eth0@if9: <BROADCAST", "eth0@if9: <PROMISC,BROADCAST"),
        ("mtu 1500 master cni0", "mtu 1400 master cni0"),
    ):
        assert change[0] in itself
        assert here(itself.replace(*change)) != here(PICTURE), change


def test_needs():
    """A check comes after the checks that it needs, in every kind of cluster."""
    kinds = [checks.of("own", 1), checks.of("bridge", 1), checks.of("own", 3)]
    everywhere = {name for kind in kinds for name in kind}
    assert everywhere.issuperset(checks.NEEDS)
    for kind in kinds:
        order = list(kind)
        for name, needs in checks.NEEDS.items():
            if name in order:
                there = [need for need in needs if need in order]
                assert there, f"{name} needs one of {needs}, and the cluster has none"
                assert all(order.index(need) < order.index(name) for need in there), name
    assert checks.with_needs(["power"], kinds[1]) == ["there", "joins", "chain", "node-api", "power"]
    assert checks.with_needs(["kills"], kinds[2]) == ["ready", "chain", "kills"]
    assert checks.with_needs(["ready", "network"], kinds[0]) == ["ready", "network"]


JUNIT = """\
<testsuites><testsuite>
<testcase name="[SynchronizedBeforeSuite]" status="passed"/>
<testcase name="[It] [sig-network] Services work [Conformance]" status="passed"/>
<testcase name="[It] [sig-network] DNS works [Conformance]" status="failed"><failure message="no"/></testcase>
<testcase name="[It] [sig-network] SCTP works" status="skipped"><skipped message="skipped - no SCTP here"/></testcase>
<testcase name="[It] [sig-node] another" status="skipped"><skipped message="skipped"/></testcase>
</testsuite></testsuites>
"""


def test_what_specs_report(tmp_path):
    (junit := tmp_path / "junit_01.xml").write_text(JUNIT)
    report = specs.read(junit)
    assert report.passed == 1
    assert report.failed == ["[sig-network] DNS works [Conformance]"]
    assert report.skipped == {"[sig-network] SCTP works": "no SCTP here"}  # without the specs that nobody selected
    assert str(report) == "1 of 2 passed, 1 skipped themselves"


def test_a_set_up_that_fails_is_a_failure(tmp_path):
    (junit := tmp_path / "junit_01.xml").write_text(JUNIT.replace('Suite]" status="passed"', 'Suite]" status="failed"'))
    assert "[SynchronizedBeforeSuite]" in specs.read(junit).failed


def test_images_of_specs(tmp_path):
    missing = [name for name in ("busybox", *specs.TOOLS) if not shutil.which(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: make deps-k8s installs the programs of these images")
    made = specs.images(tmp_path, ["r.io/x/nginx:1.14-4", "r.io/x/nginx:1.15-4", "r.io/x/volume:1"])
    assert [image.tag for image in made] == ["r.io/x/nginx:1.14-4", "r.io/x/nginx:1.15-4"]
    assert "usr/share/nginx/html/index.html" in made[0].files and made[0].command[0] == "httpd"


def test_conformance_is_made_only_where_it_is_named():
    assert checks.CONFORMANCE in checks.IF_NAMED
    assert checks.with_needs(["conformance"], checks.OWN) == ["ready", "system", "conformance"]
    assert checks.with_needs(["conformance"], checks.CHAINED) == ["there", "system", "joins", "conformance"]
