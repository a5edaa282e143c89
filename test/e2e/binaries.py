# SPDX-License-Identifier: Apache-2.0
"""Build the cluster's programs, only from published Go modules.

The Kubernetes commands take minutes to build, so they are kept in a cache outside the checkout, by
version (:func:`settings.cache`). A stamp file next to them records what they were built from. The
project's own commands are built each time, which Go's build cache makes fast.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e import settings

KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubeadm",
    "kubectl",
    "kubelet",
)
"""The commands of k8s.io/kubernetes."""

OWN = {
    "netcraq-agent": "./cni-plugin/netcraq-agent",
    "netcraq-cni": "./cni-plugin/netcraq-cni",
    "netcraq-controller": "./controlplane/cmd/netcraq-controller",
    "netcraqctl": "./cmd/netcraqctl",
    "etcd-monitor": "./etcd-monitor/cmd/etcd-monitor",
    "testpod": "./test/e2e/testpod",
    "apihistories": "./test/e2e/apihistories",
    "election-go": "./examples/election-go",
    "loopback": "github.com/containernetworking/plugins/plugins/main/loopback",
    "host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
    "bridge": "github.com/containernetworking/plugins/plugins/main/bridge",
    "ptp": "github.com/containernetworking/plugins/plugins/main/ptp",
    "portmap": "github.com/containernetworking/plugins/plugins/meta/portmap",
    "bandwidth": "github.com/containernetworking/plugins/plugins/meta/bandwidth",
}
"""What is built from the main module: the project's own commands, and the CNI plugins that its
go.mod pins.
"""

AGENT = ("netcraq-agent", "netcraq-cni", "netcraqctl", "loopback", "host-local", "portmap", "bandwidth")
"""The programs in the agent's image."""

STATIC = '-s -w -linkmode external -extldflags "-static"'
"""Linker flags for a static binary with C++ code: DuckDB, which has a separate Go module."""

Say = Callable[[str], None]


class BuildError(Exception):
    """A build that failed, with the end of the compiler's output."""


def compiler() -> str:
    """The go command. make sets it to the one in .venv if the machine's is too old or missing."""
    command = os.environ.get("GO", "go")
    return str(settings.ROOT / command) if "/" in command else command


def go(arguments: Sequence[str], folder: Path, **environment: str) -> None:
    """Run Go to build static binaries that do not contain the path of their sources."""
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", **environment}
    env["GOFLAGS"] = f"{env.get('GOFLAGS', '')} -trimpath -buildvcs=false".strip()
    done = subprocess.run([compiler(), *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"go {' '.join(arguments[:2])} ... in {folder}:\n{done.stderr[-3000:]}")


def kubernetes(say: Say) -> Path:
    """The folder with the Kubernetes commands, etcd, etcdctl and coredns, which are built if the
    cache does not have them yet.
    """
    cache = settings.cache()
    folder = cache / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may need the cache at the same time
        stamp, wanted = cache / "built-from", _fingerprint()
        if stamp.exists() and stamp.read_text() == wanted:
            return folder
        say(f"building Kubernetes {settings.KUBERNETES} into {cache}: 5 to 10 minutes, once")
        shutil.rmtree(folder)
        folder.mkdir()
        build_kubernetes(folder, settings.KUBERNETES)
        say("building etcd and CoreDNS")
        for name, package in (("etcd", "go.etcd.io/etcd/server/v3"), ("etcdctl", "go.etcd.io/etcd/etcdctl/v3")):
            go(["build", "-ldflags", "-s -w", "-o", str(folder / name), package], settings.ROOT)
        go(
            ["build", "-ldflags", "-s -w", "-o", str(folder / "coredns"), "github.com/coredns/coredns"],
            settings.HERE / "coredns",
        )
        stamp.write_text(wanted)
    return folder


def flannel(say: Say) -> Path:
    """The folder with flanneld and flannel's CNI plugin, which are built if the cache does not have
    them yet.
    """
    cache = settings.cache().parent / f"flannel-{settings.FLANNEL}"
    folder = cache / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    modules = ("flannel", "flannel-cni")
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = cache / "built-from", _sums(modules)
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"building flannel {settings.FLANNEL} into {cache}, once")
            # flanneld's udp backend is written in C.
            build = ["build", "-tags", "netgo,osusergo", "-ldflags", STATIC, "-o", str(folder / "flanneld")]
            go([*build, "github.com/flannel-io/flannel"], settings.HERE / "flannel", CGO_ENABLED="1")
            plugin = "github.com/containernetworking/plugins/plugins/meta/flannel"
            go(["build", "-ldflags", "-s -w", "-o", str(folder / "flannel"), plugin], settings.HERE / "flannel-cni")
            stamp.write_text(wanted)
    return folder


def flannel_manifest() -> Path:
    """flannel's own manifest, from its module."""
    folder = module_folder(settings.HERE / "flannel", "github.com/flannel-io/flannel")
    return folder / "Documentation" / "kube-flannel.yml"


def module_folder(requiring: Path, module: str) -> Path:
    """The folder with a module's files, in the version that ``requiring``'s module needs."""
    command = [compiler(), "list", "-m", "-f", "{{.Dir}}", module]
    env = {**os.environ, "GOWORK": "off"}
    done = subprocess.run(command, cwd=requiring, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"where the module {module} is: {done.stderr}")
    return Path(done.stdout.strip())


def build_kubernetes(folder: Path, version: str) -> None:
    """Build the commands of k8s.io/kubernetes. kubeadm compares versions, so the build sets their
    version as a release's build does.
    """
    major, minor = version.removeprefix("v").split(".")[:2]
    facts = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in facts.items())
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES]
    go(["build", "-ldflags", f"-s -w {flags}", "-o", f"{folder}/", *commands], settings.HERE / "kubernetes")


def next_patch(say: Say) -> Path:
    """The folder with the same commands under the version of the next patch release, to test an
    upgrade. Only the linking is repeated.
    """
    folder = settings.cache() / "next"
    folder.mkdir(parents=True, exist_ok=True)
    stamp, wanted = settings.cache() / "next-built-from", _fingerprint()
    with open(settings.cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"linking Kubernetes' commands as {settings.next_patch()}, once")
            build_kubernetes(folder, settings.next_patch())
            stamp.write_text(wanted)
    return folder


def own(folder: Path) -> Path:
    """Build the project's commands and the CNI plugins into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in OWN.items():
        go(["build", "-ldflags", "-s -w", "-o", str(folder / name), package], settings.ROOT)
    (folder / "kubectl-netcraq").unlink(missing_ok=True)
    (folder / "kubectl-netcraq").symlink_to("netcraqctl")  # the plugin for kubectl
    helm = ["build", "-ldflags", "-s -w", "-o", str(folder / "helm"), "helm.sh/helm/v3/cmd/helm"]
    go(helm, settings.ROOT / "cni-plugin" / "deploy" / "chartgen")
    pipelets = [
        "build",
        "-tags",
        "netgo,osusergo",
        "-ldflags",
        STATIC,
        "-o",
        f"{folder}/",
        "./netcraq-pipelets",
    ]
    go(pipelets, settings.ROOT / "pipelets" / "synchronizer", CGO_ENABLED="1")
    go(
        ["build", "-ldflags", "-s -w", "-o", f"{folder}/", "./netcraq-policies"],
        settings.ROOT / "cni-plugin" / "policies",
    )
    return folder


def last_release(folder: Path) -> bool:
    """Put the source of NetCRAQ's last release into ``folder``/source, and the files of its agent's
    image into ``folder``/bin. Returns false if the checkout lacks that commit.
    """
    _, commit = settings.last_release()
    packed = subprocess.run(["git", "archive", commit], cwd=settings.ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder / "source")
    (folder / "bin").mkdir()
    packages = [OWN[name] for name in AGENT]
    go(["build", "-ldflags", "-s -w", "-o", f"{folder}/bin/", *packages], folder / "source")
    return True


def _fingerprint() -> str:
    """Everything that determines the binaries in the cache."""
    sums = _sums(("kubernetes", "coredns")).strip()
    return f"{settings.KUBERNETES} etcd {settings.etcd()} coredns {settings.COREDNS} {sums}\n"


def _sums(modules: Sequence[str]) -> str:
    """A hash of the requirements of modules."""
    sums = hashlib.sha256()
    for module in modules:
        for name in ("go.mod", "go.sum"):
            sums.update((settings.HERE / module / name).read_bytes())
    return f"{sums.hexdigest()}\n"
