# SPDX-License-Identifier: Apache-2.0
"""The images of the cluster: Kubernetes' own, and the project's."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path

from e2e import settings
from images.archive import Image, ImageError, from_containerfile
from images.build import containerfiles

REGISTRY = "registry.k8s.io"
"""Where kubeadm says that its images come from. None is pulled: they are on the nodes before."""

TESTPOD = "netcraq.test/testpod:1"
"""The image of the tests' pods."""

DEPLOY = settings.ROOT / "cni-plugin" / "deploy"
PIPELETS = settings.ROOT / "pipelets" / "deploy"
EXAMPLE = settings.ROOT / "examples" / "kubernetes"

EXAMPLE_IMAGE = "localhost/election-go:1"
"""The image of the example's Deployment."""

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
"""Images that only control-plane nodes need."""


def write(folder: Path, kubernetes: Path, own: Path) -> dict[str, Path]:
    """Write all archives into ``folder``; by name, where each is."""
    wanted = [Image(f"{REGISTRY}/pause:{settings.PAUSE}", ["/testpod", "pause"], files={"testpod": own / "testpod"})]
    wanted += of_kubernetes(kubernetes, settings.KUBERNETES)
    etcd = {f"usr/local/bin/{name}": kubernetes / name for name in ("etcd", "etcdctl")}
    wanted.append(Image(f"{REGISTRY}/etcd:{settings.etcd()}", ["etcd"], files=etcd))
    wanted.append(
        Image(f"{REGISTRY}/coredns/coredns:{settings.COREDNS}", ["/coredns"], files={"coredns": kubernetes / "coredns"})
    )
    # Programs of the machine's own /usr, where a pod sees that, look for their libraries there.
    libraries = {f"/{name}": f"usr/{name}" for name in ("lib", "lib64")}
    wanted.append(Image(TESTPOD, ["/testpod"], files={"testpod": own / "testpod"}, links=libraries))
    wanted += [from_containerfile(path, tag, own) for path, tag in project()]
    wanted.append(from_containerfile(EXAMPLE / "Containerfile", EXAMPLE_IMAGE, own))
    return archive(folder, wanted)


def archive(folder: Path, wanted: list[Image]) -> dict[str, Path]:
    """Write images into ``folder``; by name, where each is."""
    archives = {}
    for image in wanted:
        name = image.tag.rpartition("/")[2].partition(":")[0]
        archives[name] = folder / f"{name}.tar"
        image.write(archives[name])
    return archives


def of_kubernetes(folder: Path, version: str) -> list[Image]:
    """The images with the commands of a version of Kubernetes, which are in ``folder``."""
    wanted = [
        Image(f"{REGISTRY}/{name}:{version}", [name], files={f"usr/local/bin/{name}": folder / name})
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    return [*wanted, _kube_proxy(f"{REGISTRY}/kube-proxy:{version}", folder)]


def of_flannel(built: Path) -> list[Image]:
    """The images that flannel's manifest names, with what :func:`binaries.flannel` has built."""
    daemon = Image(f"ghcr.io/flannel-io/flannel:{settings.FLANNEL}", files={"opt/bin/flanneld": built / "flanneld"})
    add_xtables(daemon)
    plugin = Image(
        f"ghcr.io/flannel-io/flannel-cni-plugin:{settings.FLANNEL_PLUGIN}", files={"flannel": built / "flannel"}
    )
    for image in (daemon, plugin):
        image.add_dynamic(Path("/bin/cp"), "/bin/cp")
    return [daemon, plugin]


def of_release(folder: Path) -> Image:
    """The agent's image of NetCRAQ's last release, of what :func:`binaries.last_release` built."""
    version, _ = settings.last_release()
    path = containerfiles(folder / "source")["netcraq-agent"]
    return from_containerfile(path, f"localhost/netcraq/netcraq-agent:{version}", folder / "bin")


def project() -> list[tuple[Path, str]]:
    """The project's Containerfiles, and the names by which the manifests call what they make."""
    return [(path, f"localhost/netcraq/{name}:dev") for name, path in containerfiles().items()]


def _kube_proxy(tag: str, kubernetes: Path) -> Image:
    """kube-proxy works with iptables, conntrack and nft."""
    return add_xtables(Image(tag, files={"usr/local/bin/kube-proxy": kubernetes / "kube-proxy"}))


def add_xtables(image: Image) -> Image:
    """Add iptables, conntrack and nft to an image: Debian's, with their libraries.

    xtables' extensions are loaded at run time, so nothing names them or what they need. Without
    libxt_statistic (and libm, which that needs) a service with two backends is dead.
    """
    for name in ("xtables-nft-multi", "conntrack", "nft"):
        image.add_dynamic(program(name), f"/usr/sbin/{name}")
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            image.links[f"/usr/sbin/{family}{suffix}"] = "xtables-nft-multi"
    for extension in glob.glob("/usr/lib/*/xtables/*.so"):
        image.add_dynamic(Path(extension), extension)
    return image


def program(name: str) -> Path:
    """Where a program of Debian's is."""
    found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise ImageError(f"{name} is missing: make deps-k8s installs it")
    return Path(found)
