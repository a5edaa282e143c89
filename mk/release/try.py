# SPDX-License-Identifier: Apache-2.0
"""Install each artifact of ``make release`` in an environment without other parts of NetCRAQ, use
it, remove it, and look for leftovers: ``make release-try``. It prints a table. With ``BEFORE=DIR``
it first installs the artifacts of an earlier release, and then upgrades them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from machine import booted, wait
from process import ROOT, ReleaseError, run

#: A function that runs a program in a machine and returns its output.
Inside = Callable[..., str]


@dataclass
class Row:
    """The result for one artifact."""

    artifact: str
    where: str
    use: str
    upgrade: str
    seconds: float
    leftovers: list[str]


def listed(folder: Path) -> set[str]:
    """All files and folders below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def only(folder: Path, pattern: str) -> Path:
    """The single file that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ReleaseError(f"{folder}: {len(found)} files match {pattern}")
    return found[0]


def version_of(dist: Path) -> str:
    """The version of the release in a folder."""
    definition = json.loads((dist / "provenance.json").read_text())["predicate"]["buildDefinition"]
    return definition["externalParameters"]["version"]


def wait_for(socket: Path, process: subprocess.Popen) -> None:
    """Wait until a process has made its socket, for at most a minute."""
    end = time.monotonic() + 60
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise ReleaseError(f"{' '.join(map(str, process.args))} does not serve: {process.stdout.read()}")
        time.sleep(0.01)


@contextlib.contextmanager
def server(binary: Path, folder: Path, *options: str):
    """Run `netcraq dev` as the user nobody. The result is its socket, and the seconds until the
    first get.
    """
    folder.chmod(0o777)
    socket = folder / "netcraq.sock"
    user = {"user": 65534, "group": 65534} if os.getuid() == 0 else {}
    began = time.monotonic()
    process = subprocess.Popen(
        [binary, "dev", "--socket", socket, "--page", "none", "--gateway", "none", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"HOME": str(folder), "PATH": "/usr/bin:/bin"}, **user,
    )  # fmt: skip
    try:
        wait_for(socket, process)

        def call(*words: str) -> str:
            words = [binary, *words, "--socket", socket]
            return subprocess.run(words, check=True, capture_output=True, text=True, **user).stdout

        call("put", "greeting", "hello")
        if call("get", "greeting") != "hello\n":
            raise ReleaseError("netcraq get prints another value than was put")
        socket.chmod(0o777)
        yield socket, time.monotonic() - began
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def unpacked(dist: Path, work: Path) -> Path:
    """Unpack the archive for this machine's architecture, and return its folder."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    packed = only(dist / "archives", f"*_linux_{machine}.tar.gz")
    with tarfile.open(packed) as file:
        file.extractall(work)
    return work / packed.name.removesuffix(".tar.gz")


def archive(dist: Path, work: Path, before: Path | None) -> tuple[Path, Row]:
    """Try the archive for this machine's architecture as an unprivileged user."""
    work.chmod(0o755)
    top = unpacked(dist, work)
    home = work / "home"
    home.mkdir()
    with server(top / "netcraq", home) as (_, seconds):
        pass
    left = [str(path) for path in home.iterdir()]
    return top / "netcraq", Row(
        f"{top.name}.tar.gz", "a folder, the user nobody", f"put, get: {seconds:.2f} s after the start",
        kept(unpacked(before, work), top, home) if before else "", seconds, left,
    )  # fmt: skip


def kept(before: Path, now: Path, home: Path) -> str:
    """Check that this release's server reads the earlier one's durable keys, and the reverse."""
    data = home / "data"

    def call(release: Path, *words: str) -> str:
        with server(release / "netcraq", home, "--data", str(data)) as (socket, _):
            return run(release / "netcraq", *words, "--namespace", "durable", "--socket", socket)

    for writer, reader in ((before, now), (now, before)):
        call(writer, "put", writer.name, writer.name)
        said = call(reader, "get", writer.name)
        if said != f"{writer.name}\n":
            raise ReleaseError(f"{reader.name} reads {said} and not what {writer.name} has put")
    shutil.rmtree(data)
    return "durable keys are read by both, up and down"


def wheel(dist: Path, work: Path, socket: Path, before: Path | None) -> Row:
    """Try the wheel in a venv that has nothing else installed."""
    began = time.monotonic()
    run(sys.executable, "-m", "venv", work / "venv")
    python = work / "venv" / "bin" / "python"
    empty = listed(work / "venv")
    packed = only(dist / "python", "netcraq-*.whl")
    install = (python, "-m", "pip", "install", "-q", "--no-index", "--no-compile")
    if before:
        run(*install, only(before / "python", "netcraq-*.whl"))
    run(*install, packed)
    said = run(python, "-B", "-c", "import netcraq\nwith netcraq.connect() as c:\n print(c.get('greeting').value)", cwd=work,
               NETCRAQ_NODE_SOCKET=str(socket))  # fmt: skip
    if said != "b'hello'\n":
        raise ReleaseError(f"Python reads {said}")
    run(python, "-m", "pip", "uninstall", "-q", "-y", "netcraq")
    left = sorted(listed(work / "venv") - empty)
    return Row(packed.name, "an empty venv", "get", "pip install" if before else "", time.monotonic() - began, left)


def sdist(dist: Path, work: Path) -> Row:
    """Check that the source archive builds a wheel with the same files."""
    began = time.monotonic()
    packed = only(dist / "python", "netcraq-*.tar.gz")
    with tarfile.open(packed) as file:
        file.extractall(work)
    source = work / packed.name.removesuffix(".tar.gz")
    (work / "made").mkdir()
    run(
        sys.executable,
        "-c",
        "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])",
        work / "made",
        cwd=source,
    )
    if only(work / "made", "*.whl").name != only(dist / "python", "netcraq-*.whl").name:
        raise ReleaseError("the source archive builds another wheel")
    return Row(packed.name, "a folder", "builds the wheel", "", time.monotonic() - began, [])


SCRIPT = """
import { connect } from 'netcraq'
const client = await connect()
const item = await client.get('greeting')
const text: string | undefined = item.text
if (text !== 'hello') throw new Error(`it is ${text}`)
await client.close()
"""


def npm(dist: Path, work: Path, socket: Path, before: Path | None) -> Row:
    """Try the npm package in an empty project with strict TypeScript."""
    began = time.monotonic()
    packed = only(dist / "npm", "netcraq-*.tgz")
    (work / "package.json").write_text('{"private": true, "type": "module"}')
    install = ("npm", "install", "--silent", "--no-audit", "--no-fund")
    run(*install, "typescript@5", "@types/node@22", cwd=work)
    empty = listed(work / "node_modules")
    if before:
        run(*install, only(before / "npm", "netcraq-*.tgz"), cwd=work)
    run(*install, packed, cwd=work)
    (work / "use.mts").write_text(SCRIPT)
    run("npx", "tsc", "--strict", "--module", "nodenext", "--target", "es2022", "use.mts", cwd=work)
    run("node", "use.mjs", cwd=work, NETCRAQ_NODE_SOCKET=str(socket))
    run("npm", "uninstall", "--silent", "--no-audit", "--no-fund", "netcraq", cwd=work)
    left = {path for path in listed(work / "node_modules") - empty if not path.startswith(".package-lock")}
    return Row(packed.name, "an empty npm project", "tsc --strict, get", "npm install" if before else "",
               time.monotonic() - began, sorted(left))  # fmt: skip


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>use</artifactId><version>1</version>
<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target></properties>
<repositories><repository><id>dist</id><url>file://{repository}</url></repository></repositories>
<dependencies><dependency><groupId>io.netcraq</groupId><artifactId>netcraq-streams</artifactId>
<version>{version}</version></dependency></dependencies></project>
"""
USE = 'class Use { io.netcraq.streams.ReaderOptions options = io.netcraq.streams.ReaderOptions.of("orders"); }\n'


def maven(dist: Path, work: Path, before: Path | None) -> Row:
    """Try the Java artifacts in a project outside the tree."""
    began = time.monotonic()
    (work / "src/main/java").mkdir(parents=True)
    (work / "src/main/java/Use.java").write_text(USE)
    for release in filter(None, (before, dist)):
        (work / "pom.xml").write_text(POM.format(repository=release / "maven", version=version_of(release)))
        run("mvn", "-q", "-B", "clean", "compile", cwd=work)
    return Row(f"io.netcraq:netcraq-streams:{version_of(dist)}", "a Maven project", "compiles",
               "compiles with both" if before else "", time.monotonic() - began, [])  # fmt: skip


PROGRAM = """package main

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/client/node"
)

func main() {
	c, err := node.Connect(context.Background(), node.Config{})
	if err != nil {
		panic(err)
	}
	item, err := c.Get(context.Background(), "greeting")
	fmt.Println(string(item.Value), err)
}
"""


def go(dist: Path, work: Path, socket: Path, compiler: str, before: Path | None) -> Row:
    """Try the Go client in a module outside the tree, from the proxy's files."""
    began = time.monotonic()
    (work / "main.go").write_text(PROGRAM)
    proxies = [f"file://{release}/go" for release in (dist, before) if release]
    environment = {
        "GOPROXY": ",".join([*proxies, run(compiler, "env", "GOPROXY").strip()]), "GOFLAGS": "-mod=mod -modcacherw", "GOWORK": "off",
        "GONOSUMDB": "github.com/netcraq/*", "GOMODCACHE": str(work / "cache"), "NETCRAQ_NODE_SOCKET": str(socket),
    }  # fmt: skip
    run(compiler, "mod", "init", "example.org/use", cwd=work, **environment)
    for release in filter(None, (before, dist)):
        module = f"github.com/netcraq/netcraq/client@v{version_of(release)}"
        run(compiler, "get", module, cwd=work, **environment)
        said = run(compiler, "run", ".", cwd=work, **environment)
        if said != "hello <nil>\n":
            raise ReleaseError(f"Go reads {said} with {module}")
    return Row(module, "a module outside", "get", "go get" if before else "", time.monotonic() - began, [])


#: Files that dpkg, apt and adduser keep: logs, lists, and copies of files before a change.
OF_THE_SYSTEM = (
    "var/lib/dpkg", "var/lib/apt", "var/log", "var/cache", "proc", "sys", "run/adduser",
    "etc/passwd-", "etc/shadow-", "etc/group-", "etc/gshadow-",
)  # fmt: skip


def debian(dist: Path, work: Path, earlier: Path | None) -> list[Row]:
    """Try the Debian packages in a bare Debian machine. systemd runs the services."""
    rows = []
    machine = run("dpkg", "--print-architecture").strip()
    root = work / "root"
    run("mmdebstrap", "--variant=minbase", "--include=adduser,systemd,systemd-sysv", "bookworm", root)
    with booted(root) as inside:
        for name, try_it in TRIALS.items():
            began = time.monotonic()
            packed = only(dist / "debian", f"{name}_*_{machine}.deb")
            before = listed(root)
            upgrade = ""
            if earlier:
                install(inside, root, only(earlier / "debian", f"{name}_*_{machine}.deb"))
                upgrade = upgraded(inside, root, name, packed)
            else:
                install(inside, root, packed)
            for unit in inside("dpkg", "-L", name).split():
                if unit.endswith(".service"):
                    verify(inside, unit)
            use = try_it(inside, root)
            inside("apt-get", "purge", "-qq", "-y", name)
            inside("apt-get", "autoremove", "--purge", "-qq", "-y")
            if (still := inside("systemctl", "list-units", "--plain", "--no-legend", "--all", f"{name}*")).strip():
                raise ReleaseError(f"{name} is purged, and systemd still has {still}")
            left = sorted(path for path in listed(root) - before if not path.startswith(OF_THE_SYSTEM))
            rows.append(
                Row(packed.name, "an empty Debian 12 with systemd", use, upgrade, time.monotonic() - began, left)
            )
    return rows


def install(inside: Inside, root: Path, package: Path) -> None:
    """Install a package, or upgrade to it."""
    copy = Path(shutil.copy(package, root / "srv"))
    inside("apt-get", "install", "-qq", "-y", "--no-install-recommends", f"/srv/{copy.name}")
    copy.unlink()


def upgraded(inside: Inside, root: Path, name: str, package: Path) -> str:
    """Upgrade a package while its service runs. The node's service must keep its durable keys and
    the operator's changes to its configuration file, and then run the new version.
    """
    if name != "netcraq":
        install(inside, root, package)
        return "apt install"
    config = root / "etc/netcraq/netcraq.yaml"
    text = config.read_text()
    changed = text.replace("switches: 3", "switches: 2")
    config.write_text(changed)
    inside("systemctl", "start", "netcraq")
    client = ("env", f"NETCRAQ_NODE_SOCKET={SOCKET}", "netcraq")
    durable = ("--namespace", "durable")
    wait("the node of before serves", lambda: active(inside, "netcraq", *client, "put", "kept", "yes", *durable))
    was = property_of(inside, "netcraq", "MainPID")
    install(inside, root, package)
    wait("the node serves again", lambda: active(inside, "netcraq", *client, "get", "kept", *durable))
    versions = re.findall(r"netcraq (?:dev )?(\d\S*[^,\s])", inside(*client, "version"))
    if config.read_text() != changed or property_of(inside, "netcraq", "MainPID") == was:
        raise ReleaseError("the upgrade has changed the operator's file, or has not restarted the node")
    if len(versions) != 2 or versions[0] != versions[1]:
        raise ReleaseError(f"after the upgrade the client and the node have the versions {versions}")
    if inside(*client, "get", "kept", *durable) != "yes\n":
        raise ReleaseError("after the upgrade a durable key is lost")
    inside("systemctl", "stop", "netcraq")
    config.write_text(text)
    return "apt install: the node restarts; its durable keys and its file are kept"


def verify(inside: Inside, unit: str) -> None:
    """Check that systemd finds no fault in a unit."""
    name = Path(unit).name.replace("@.", "@1.")
    if said := inside("sh", "-c", f"systemd-analyze verify --man=no {name} 2>&1").strip():
        raise ReleaseError(f"systemd-analyze verify {name}: {said}")


def property_of(inside: Inside, service: str, name: str) -> str:
    """A property of a service, from systemd."""
    return inside("systemctl", "show", "-P", name, service).strip()


#: The socket of the node's service.
SOCKET = "/run/netcraq/netcraq.sock"


def node(inside: Inside, root: Path) -> str:
    """Try the node's service. systemd reports a mistake in its configuration file with the line,
    starts and stops it, restarts it after it was killed, and stops it when the package is removed.
    """
    state = lambda: property_of(inside, "netcraq", "ActiveState")  # noqa: E731
    if (now := (state(), property_of(inside, "netcraq", "UnitFileState"))) != ("inactive", "disabled"):
        raise ReleaseError(f"the service is {now} after the installation")
    config = root / "etc/netcraq/netcraq.yaml"
    text = config.read_text()
    config.write_text(text.replace("switches: 3", "switches: many"))
    inside("systemctl", "start", "netcraq")
    wait("the service fails because of a wrong option", lambda: state() == "failed")
    line = next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith("switches:"))
    said = inside("journalctl", "--unit", "netcraq", "--output", "cat")
    code, again = (property_of(inside, "netcraq", name) for name in ("ExecMainStatus", "NRestarts"))
    if (code, again) != ("2", "0") or f"/etc/netcraq/netcraq.yaml:{line}: switches" not in said:
        raise ReleaseError(f"a wrong option: exit code {code}, {again} restarts, {said}")
    config.write_text(text)
    client = ("env", f"NETCRAQ_NODE_SOCKET={SOCKET}", "netcraq")

    def serves() -> bool:
        if state() == "failed":
            raise ReleaseError(f"the service fails: {inside('journalctl', '--unit', 'netcraq', '--output', 'cat')}")
        return bool(inside("sh", "-c", f"test ! -S {SOCKET} || stat -c %U {SOCKET}").strip())

    began = time.monotonic()
    inside("systemctl", "start", "netcraq")
    wait("the service serves", serves)
    inside(*client, "put", "greeting", "hello")
    seconds = time.monotonic() - began
    if inside(*client, "get", "greeting") != "hello\n" or inside("stat", "-c", "%U", SOCKET) != "netcraq\n":
        raise ReleaseError("the service has another value than was put, or another user")
    inside("systemctl", "kill", "--signal", "KILL", "netcraq")
    wait("the service is started again", lambda: property_of(inside, "netcraq", "NRestarts") == "1")
    wait("the service serves again", serves)
    inside("systemctl", "stop", "netcraq")
    if (now := (state(), property_of(inside, "netcraq", "Result"))) != ("inactive", "success"):
        raise ReleaseError(f"the service is {now} after systemctl stop")
    inside("systemctl", "enable", "--now", "netcraq")
    wait("the service serves once more", serves)
    controller(inside, root)
    return f"systemctl start, put: {seconds:.2f} s; a wrong option is named with its line; killed, stopped, enabled"


def controller(inside: Inside, root: Path) -> None:
    """Try the controller's service, with the example network and the package's P4 programs. It must
    reload the file at systemctl reload, and stop when the package is removed.
    """
    network = root / "etc/netcraq/network.yaml"
    example = (ROOT / "controlplane/topology/example.yaml").read_text()
    network.write_text(example.replace("../../p4src/compiled/", "/usr/share/netcraq/p4/"))
    admin = ("netcraqctl", "--admin", "unix:///run/netcraq-controller/controller.sock")
    inside("systemctl", "start", "netcraq-controller")
    wait("the controller serves", lambda: active(inside, "netcraq-controller", *admin, "chain", "show", "main"))
    inside("systemctl", "reload", "netcraq-controller")
    journal = ("journalctl", "--unit", "netcraq-controller", "--output", "cat")
    wait("the controller has read its file again", lambda: "network.yaml was read again" in inside(*journal))
    network.unlink()


def active(inside: Inside, service: str, *command: str) -> bool:
    """Whether a command succeeds. Raises ReleaseError if the service that it needs has stopped."""
    try:
        inside(*command)
    except ReleaseError:
        if (now := property_of(inside, service, "ActiveState")) == "active":
            return False
        raise ReleaseError(
            f"{service} is {now}: {inside('journalctl', '--unit', service, '--output', 'cat')}"
        ) from None
    return True


def gateway(inside: Inside, _root: Path) -> str:
    """Check that the gateway's service starts without its etcd, and waits for it."""
    inside("systemctl", "start", "etcd-monitor")
    journal = ("journalctl", "--unit", "etcd-monitor", "--output", "cat")
    wait("the gateway serves", lambda: "ready: etcd's API at" in inside(*journal))
    inside("systemctl", "stop", "etcd-monitor")
    return "systemctl start, stop"


def switch(inside: Inside, root: Path) -> str:
    """Try a switch's service with its own options. It must stop when the package is removed."""
    options = root / "etc/netcraq/switches/1"
    options.parent.mkdir(parents=True, exist_ok=True)
    options.write_text("OPTIONS=--device-id 1 --no-p4 -- --grpc-server-addr 127.0.0.1:9559\n")
    stays_active(inside, "netcraq-switch@1")
    inside("systemctl", "stop", "netcraq-switch@1")
    inside("systemctl", "enable", "--now", "netcraq-switch@1")
    options.unlink()
    return "systemctl start, stop, enabled"


#: A pipelet whose source cannot be reached.
PIPELET = """\
apiVersion: netcraq.io/v1alpha1
kind: Pipelet
metadata: {name: orders}
spec:
  src: [{postgresql: {address: "127.0.0.1:5432", database: postgres, table: orders}}]
  dst: [{parquet: {path: /tmp/lake}}]
"""


def pipelets(inside: Inside, root: Path) -> str:
    """Check that the pipelets' service waits for stores, and stops when the package is removed."""
    file = root / "etc/netcraq/pipelets/orders.yaml"
    file.write_text(PIPELET)
    stays_active(inside, "netcraq-pipelets")
    inside("systemctl", "enable", "netcraq-pipelets")
    file.unlink()
    return f"systemctl start, enabled; {inside('netcraq-pipelets', '--version').strip()[:40]}"


def stays_active(inside: Inside, service: str) -> None:
    """Start a service. Raises ReleaseError if it stops within a second, as with a wrong option."""
    inside("systemctl", "start", service)
    time.sleep(1)
    if (now := property_of(inside, service, "ActiveState")) != "active":
        raise ReleaseError(f"{service} is {now}: {inside('journalctl', '--unit', service, '--output', 'cat')}")


#: The trial of each Debian package.
TRIALS = {
    "netcraq": node,
    "netcraq-switch": switch,
    "etcd-monitor": gateway,
    "netcraq-pipelets": pipelets,
}


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="make release-try", description="install and use the artifacts of a release")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--go", default="go")
    parser.add_argument(
        "--skip-debian", action="store_true", help="skip the Debian packages, which need mmdebstrap, root and a mirror"
    )
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="folder dist/ of an earlier release, to upgrade from it"
    )
    options = parser.parse_args()
    dist, before = options.dist.resolve(), options.before and options.before.resolve()
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="netcraq-try-") as folder:
            work = Path(folder)
            places = {
                name: work / name for name in ("archive", "home", "wheel", "sdist", "npm", "maven", "go", "debian")
            }
            for place in places.values():
                place.mkdir()
            work.chmod(0o755)
            binary, row = archive(dist, places["archive"], before)
            rows.append(row)
            with server(binary, places["home"]) as (socket, _):
                rows.append(wheel(dist, places["wheel"], socket, before))
                rows.append(sdist(dist, places["sdist"]))
                rows.append(npm(dist, places["npm"], socket, before))
                rows.append(go(dist, places["go"], socket, options.go, before))
            rows.append(maven(dist, places["maven"], before))
            if not options.skip_debian:
                rows += debian(dist, places["debian"], before)
    except ReleaseError as error:
        print(f"make release-try: {error}", file=sys.stderr)
        return 1
    finally:
        print("| artifact | installed in | first use | upgrade | seconds | leftovers |\n" + "| --- " * 6 + "|")
        for row in rows:
            left = ", ".join(row.leftovers) or "none"
            print(f"| {row.artifact} | {row.where} | {row.use} | {row.upgrade} | {row.seconds:.1f} | {left} |")
    return 1 if any(row.leftovers for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
