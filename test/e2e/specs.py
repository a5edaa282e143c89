# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own end-to-end tests: their binary, the images that they use, and their report."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e import binaries, cluster_images, settings
from images.archive import Image

IN_IMAGES = {
    "agnhost": "k8s.io/kubernetes/test/images/agnhost",
    "nnp": "k8s.io/kubernetes/test/images/nonewprivs",
    "regression-issue-74839": "k8s.io/kubernetes/test/images/regression-issue-74839",
    "sample-apiserver": "k8s.io/sample-apiserver",
}
"""Programs of Kubernetes' that the images have."""

TOOLS = ("bash", "curl", "dig", "getent", "iperf", "nc", "nslookup", "ss", "ip")
"""Programs of Debian's that specs run in pods. All others that they run are busybox's."""

PRIVATE = "gcr.io/k8s-authenticated-test/"
"""Images that have to be refused without a password."""

USERS = """\
root:x:0:0:root:/:/bin/sh
user-defined-in-image:x:1000:1000::/:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/sh
"""
GROUPS = """\
root:x:0:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
"""

PAGE = "<html><body><h1>It works!</h1></body></html>\n"


def build(folder: Path) -> Path:
    """Build the binary of the specs, and the programs of the images, into ``folder``. Returns the
    binary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    module, binary = settings.HERE / "kubernetes", folder / "specs.test"
    flags = ["-tags", "commands", "-ldflags", "-s -w"]
    binaries.go(["test", "-c", *flags, "-o", str(binary), "./specs"], module)
    for name, package in IN_IMAGES.items():
        binaries.go(["build", *flags, "-o", str(folder / name), package], module)
    return binary


def named(binary: Path) -> list[str]:
    """The images that the specs use, each with its tag."""
    return subprocess.run(
        [binary, "-list-images"], capture_output=True, text=True, check=True
    ).stdout.split()  # the specs' own list, because it changes with Kubernetes' version


def images(built: Path, names: Sequence[str]) -> list[Image]:
    """Those images of ``names`` that can be made from Kubernetes' modules and Debian's programs.

    The images called nginx, httpd, nautilus and kitten do not contain these servers. busybox' httpd
    serves their pages, because the specs check only what the cluster does with the pods.
    """
    found = []
    for tag in names:
        name = tag.rpartition("/")[2].partition(":")[0]
        made = None if tag.startswith(PRIVATE) else _made(name, tag, built)
        if made is not None:
            found.append(made)
    return found


def _made(name: str, tag: str, built: Path) -> Image | None:
    """The image with a name; None if nothing here can make it."""
    match name:
        case "agnhost":
            image = _with_shell(Image(tag, ["/agnhost"], command=["pause"]), *TOOLS)
            image.links |= {"/agnhost-2": "agnhost", "/usr/local/bin/iperf": "/usr/bin/iperf"}
            porter = _sources() / "test" / "images" / "agnhost" / "porter"  # a server that uses TLS
            image.files |= {name: porter / name for name in ("localhost.crt", "localhost.key")}
            image.files |= {"agnhost": built / "agnhost"}
            image.files |= {"etc/passwd": _file(built, "passwd", USERS), "etc/group": _file(built, "group", GROUPS)}
            return image
        case "busybox":
            return _with_shell(Image(tag, command=["sh"]))
        case "jessie-dnsutils":
            return _with_shell(Image(tag, command=["sh"]), *TOOLS)
        case "nonroot":
            return _with_shell(Image(tag, command=["sh"], user="1234"))
        case "nonewprivs":
            return Image(tag, command=["nnp"], files={"usr/local/bin/nnp": built / "nnp"}, setuid={"usr/local/bin/nnp"})
        case "httpd":
            return _serves(tag, built, "usr/local/apache2/htdocs", "index.html", PAGE)
        case "nginx":
            return _serves(tag, built, "usr/share/nginx/html", "index.html", PAGE)
        case "nautilus" | "kitten":
            return _serves(tag, built, "html", "data.json", f'{{\n"image": "{name}.jpg"\n}}\n')
        case "etcd":  # the etcd of the sample API server
            programs = {f"usr/local/bin/{name}": settings.cache() / "bin" / name for name in ("etcd", "etcdctl")}
            return Image(tag, command=["etcd"], files=programs)
        case "sample-apiserver":
            return Image(tag, ["/sample-apiserver"], files={"sample-apiserver": built / "sample-apiserver"})
        case "regression-issue-74839":
            return Image(tag, ["/regression-issue-74839"], files={name: built / name})
        case "distroless-iptables":
            return cluster_images.add_xtables(_with_shell(Image(tag)))
        case _:
            return None


def _with_shell(image: Image, *tools: str) -> Image:
    """Add busybox under all its names, except those of ``tools``, which are added as programs of
    their own. With tools the shell is bash, because busybox' shell prefers its built-in programs to
    those in PATH.
    """
    image.add(cluster_images.program("busybox"), "/bin/busybox")
    listed = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    image.links |= {f"/bin/{name}": "busybox" for name in listed if name not in (*tools, "busybox")}
    for name in tools:
        image.add_dynamic(cluster_images.program(name), f"/usr/bin/{name}")
    if "bash" in tools:
        image.links["/bin/sh"] = "/usr/bin/bash"
    return image


def _serves(tag: str, built: Path, folder: str, page: str, text: str) -> Image:
    """An image whose server answers with a page at port 80."""
    image = _with_shell(Image(tag, command=["httpd", "-f", "-p", "80", "-h", f"/{folder}"]))
    image.files[f"{folder}/{page}"] = _file(built, f"{folder.replace('/', '-')}-{page}", text)
    return image


def _sources() -> Path:
    """The folder of Kubernetes' module."""
    return binaries.module_folder(settings.HERE / "kubernetes", "k8s.io/kubernetes")


def _file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@dataclass
class Report:
    """The results in the JUnit file of a run."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """By spec that skipped itself: the reason. Specs that were not selected are not included."""

    def __str__(self) -> str:
        """The counts in one line."""
        return f"{self.passed} of {self.passed + len(self.failed)} passed, {len(self.skipped)} skipped themselves"


def read(junit: Path) -> Report:
    """Read the JUnit file of the specs' runner. Set-up and tear-down count only if they failed."""
    report = Report()
    for case in ET.parse(junit).iter("testcase"):
        name, status = case.get("name", "").removeprefix("[It] "), case.get("status")
        skipped = case.find("skipped")
        if not case.get("name", "").startswith("[It]"):
            if status not in ("passed", "skipped"):  # a step of all specs, such as [SynchronizedBeforeSuite]
                report.failed.append(name)
        elif status == "passed":
            report.passed += 1
        elif skipped is not None:
            if reason := skipped.get("message", "").removeprefix("skipped").removeprefix(" - "):
                report.skipped[name] = reason
        else:
            report.failed.append(name)
    return report
