# SPDX-License-Identifier: Apache-2.0
"""The cluster's images: those of Kubernetes, and the project's."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path

from e2e import settings
from images.archive import Image, ImageError, from_containerfile
from images.build import containerfiles

REGISTRY = "registry.k8s.io"
"""The registry in kubeadm's image names. Nothing is pulled, as the nodes get the images before."""

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
    """Write all archives into ``folder``. Returns their paths by image name."""
    wanted = [Image(f"{REGISTRY}/pause:{settings.PAUSE}", ["/testpod", "pause"], files={"testpod": own / "testpod"})]
    wanted += of_kubernetes(kubernetes, settings.KUBERNETES)
    etcd = {f"usr/local/bin/{name}": kubernetes / name for name in ("etcd", "etcdctl")}
    wanted.append(Image(f"{REGISTRY}/etcd:{settings.etcd()}", ["etcd"], files=etcd))
    wanted.append(
        Image(f"{REGISTRY}/coredns/coredns:{settings.COREDNS}", ["/coredns"], files={"coredns": kubernetes / "coredns"})
    )
    # A program of the machine's own /usr, which is mounted into a pod, finds its libraries there.
    libraries = {f"/{name}": f"usr/{name}" for name in ("lib", "lib64")}
    wanted.append(Image(TESTPOD, ["/testpod"], files={"testpod": own / "testpod"}, links=libraries))
    wanted += [from_containerfile(path, tag, own) for path, tag in project()]
    wanted.append(from_containerfile(EXAMPLE / "Containerfile", EXAMPLE_IMAGE, own))
    return archive(folder, wanted)


def archive(folder: Path, wanted: list[Image]) -> dict[str, Path]:
    """Write images into ``folder``. Returns their paths by image name."""
    archives = {}
    for image in wanted:
        name = image.tag.rpartition("/")[2].partition(":")[0]
        archives[name] = folder / f"{name}.tar"
        image.write(archives[name])
    return archives


def of_kubernetes(folder: Path, version: str) -> list[Image]:
    """The images with the commands of one version of Kubernetes, which are in ``folder``."""
    wanted = [
        Image(f"{REGISTRY}/{name}:{version}", [name], files={f"usr/local/bin/{name}": folder / name})
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    return [*wanted, _kube_proxy(f"{REGISTRY}/kube-proxy:{version}", folder)]


def of_flannel(built: Path) -> list[Image]:
    """The images in flannel's manifest, with the programs of :func:`binaries.flannel`."""
    daemon = Image(f"ghcr.io/flannel-io/flannel:{settings.FLANNEL}", files={"opt/bin/flanneld": built / "flanneld"})
    add_xtables(daemon)
    plugin = Image(
        f"ghcr.io/flannel-io/flannel-cni-plugin:{settings.FLANNEL_PLUGIN}", files={"flannel": built / "flannel"}
    )
    for image in (daemon, plugin):
        image.add_dynamic(Path("/bin/cp"), "/bin/cp")
    return [daemon, plugin]


def of_release(folder: Path) -> Image:
    """The agent's image of NetCRAQ's last release, from the files that
    :func:`binaries.last_release` built.
    """
    version, _ = settings.last_release()
    path = containerfiles(folder / "source")["netcraq-agent"]
    return from_containerfile(path, f"localhost/netcraq/netcraq-agent:{version}", folder / "bin")


def project() -> list[tuple[Path, str]]:
    """The project's Containerfiles, with the image names in the manifests."""
    return [(path, f"localhost/netcraq/{name}:dev") for name, path in containerfiles().items()]


def _kube_proxy(tag: str, kubernetes: Path) -> Image:
    """The image of kube-proxy, which needs iptables, conntrack and nft."""
    return add_xtables(Image(tag, files={"usr/local/bin/kube-proxy": kubernetes / "kube-proxy"}))


def add_xtables(image: Image) -> Image:
    """Add Debian's iptables, conntrack and nft to an image, with their libraries.

    xtables loads its extensions at run time, so no binary names them or their libraries. Without
    libxt_statistic (and libm, which it needs), a service with two backends does not work.
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
    """The path of a program that Debian installs."""
    found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise ImageError(f"{name} is missing: make deps-k8s installs it")
    return Path(found)
