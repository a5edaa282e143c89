# SPDX-License-Identifier: Apache-2.0
"""Write a container image as an archive that ``ctr images import`` takes, without a builder or a
registry.

What goes into an image of the project's is said by its Containerfile; the last stage of that is
carried out here (``FROM scratch``, ``COPY --from=build``, ``ENV``, ``USER``, ``ENTRYPOINT``), with
binaries that were built before in the place of those of the build stage.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

PATH = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PASSWD = b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
"""Kubernetes' components look users up."""


class ImageError(Exception):
    """An image that cannot be written."""


@dataclass
class Image:
    """An image of one layer."""

    tag: str
    entrypoint: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=lambda: [PATH])
    user: str = ""
    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, source: Path, destination: str) -> None:
        """Copy a file, as executable."""
        self.files[destination.lstrip("/")] = source.resolve(strict=True)

    def add_dynamic(self, source: Path, destination: str) -> None:
        """Copy an ELF file, and the shared libraries and the loader that it needs, each to its own
        path.
        """
        self.add(source, destination)
        listed = subprocess.run(["ldd", str(source)], capture_output=True, text=True, check=False).stdout
        for path in re.findall(r"(/\S+) \(0x", listed):
            self.add(Path(path), path)

    def write(self, archive: Path) -> None:
        """Write the image as a docker-archive. The same content gives the same bytes."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, mode in (("tmp", 0o1777), ("etc", 0o755), ("var", 0o755), ("run", 0o755)):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, mode
                tar.addfile(folder)
            _add(tar, "etc/passwd", PASSWD, 0o644)
            for name, target in self.links.items():
                link = tarfile.TarInfo(name.lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
            for name, source in self.files.items():
                _add(tar, name, source.read_bytes(), 0o755)
        content = layer.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        run = {"Entrypoint": self.entrypoint or None, "Env": self.environment, "User": self.user}
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        config = json.dumps(
            {"architecture": machine, "os": "linux", "config": run, "rootfs": rootfs, "history": [{}]}
        ).encode()
        name = hashlib.sha256(config).hexdigest()
        manifest = json.dumps(
            [{"Config": f"{name}.json", "RepoTags": [self.tag], "Layers": [f"{digest}/layer.tar"]}]
        ).encode()
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w") as tar:
            for path, data in ((f"{name}.json", config), ("manifest.json", manifest), (f"{digest}/layer.tar", content)):
                _add(tar, path, data, 0o644)


def from_containerfile(path: Path, tag: str, built: Path) -> Image:
    """The image that the last stage of a Containerfile describes; what it copies from ``/out/`` of
    the build stage is taken from ``built``.
    """
    image = Image(tag, environment=[])
    lines = re.sub(r"\\\n\s*", " ", path.read_text()).splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("FROM "))
    if lines[last].split()[1] != "scratch":
        raise ImageError(f"{path}: the last stage has to be FROM scratch")
    for line in lines[last + 1 :]:
        word, _, rest = line.strip().partition(" ")
        match word:
            case "" | "#" | "LABEL":
                pass
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            case "ENV":
                image.environment.append(rest)
            case "USER":
                image.user = rest
            case "COPY":
                flag, *sources, destination = rest.split()
                if flag != "--from=build" or not destination.endswith("/"):
                    raise ImageError(f"{path}: {line}: only COPY --from=build FILE... FOLDER/ is understood")
                for source in sources:
                    image.add(built / source.removeprefix("/out/"), destination + Path(source).name)
            case _:
                raise ImageError(f"{path}: {line}: not understood")
    return image


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))
