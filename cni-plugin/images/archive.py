# SPDX-License-Identifier: Apache-2.0
"""Write a container image as an archive, without a builder or a registry.

The archive is both an OCI image layout and a docker-archive, as ``docker save`` writes it, so each
tool finds a format that it knows (``ctr images import``, ``podman load``, ``docker load``, ``skopeo
copy oci-archive:``, ``crane push``). The same files give the same bytes.

A Containerfile defines the content of each of the project's images. This module carries out its
last stage (``FROM scratch``, ``COPY --from=build``, ``ENV``, ``USER``, ``ENTRYPOINT``), with
binaries that were built before instead of the build stage's.
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
"""The images' /etc/passwd, because Kubernetes' components look users up."""


class ImageError(Exception):
    """An image that cannot be written."""


@dataclass
class Image:
    """An image of one layer."""

    tag: str
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=lambda: [PATH])
    user: str = ""
    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    setuid: set[str] = field(default_factory=set)
    """Those of ``files`` that run as root, whoever starts them."""
    labels: dict[str, str] = field(default_factory=dict)
    architecture: str = ""
    """The Go name of the architecture; "": this machine's."""

    def add(self, source: Path, destination: str) -> None:
        """Copy a file, as executable."""
        self.files[destination.lstrip("/")] = source.resolve(strict=True)

    def add_dynamic(self, source: Path, destination: str) -> None:
        """Copy an ELF file, its loader and the shared libraries that it needs, each to its own
        path.
        """
        self.add(source, destination)
        listed = subprocess.run(["ldd", str(source)], capture_output=True, text=True, check=False).stdout
        for path in re.findall(r"(/\S+) \(0x", listed):
            self.add(Path(path), path)

    def write(self, archive: Path) -> str:
        """Write the image and return its digest, which is its manifest's (``sha256:...``)."""
        blobs: dict[str, bytes] = {}

        def blob(media: str, content: bytes) -> dict[str, object]:
            digest = hashlib.sha256(content).hexdigest()
            blobs[f"blobs/sha256/{digest}"] = content
            return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

        layer = blob("application/vnd.oci.image.layer.v1.tar", self._layer())
        run = {"Entrypoint": self.entrypoint or None, "Env": self.environment, "User": self.user}
        if self.command:
            run["Cmd"] = self.command
        if self.labels:
            run["Labels"] = dict(sorted(self.labels.items()))
        config = blob(
            "application/vnd.oci.image.config.v1+json",
            _json(
                {
                    "architecture": self.architecture or machine(),
                    "os": "linux",
                    "config": run,
                    "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
                    "history": [{}],
                }
            ),
        )
        media = "application/vnd.oci.image.manifest.v1+json"
        manifest = blob(media, _json({"schemaVersion": 2, "mediaType": media, "config": config, "layers": [layer]}))
        names = {
            "io.containerd.image.name": self.tag,
            "org.opencontainers.image.ref.name": self.tag.rpartition(":")[2],
        }
        index = {"schemaVersion": 2, "manifests": [{**manifest, "annotations": names}]}
        docker = [{"Config": _path(config), "RepoTags": [self.tag], "Layers": [_path(layer)]}]
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}), 0o644)
            _add(tar, "index.json", _json(index), 0o644)
            _add(tar, "manifest.json", _json(docker), 0o644)
            for path, content in sorted(blobs.items()):
                _add(tar, path, content, 0o644)
        return str(manifest["digest"])

    def _layer(self) -> bytes:
        """Return all files as tar: owned by root, dated 1970, in the order in which they were
        added.
        """
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, mode in (("tmp", 0o1777), ("etc", 0o755), ("var", 0o755), ("run", 0o755)):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, mode
                tar.addfile(folder)
            if "etc/passwd" not in self.files:
                _add(tar, "etc/passwd", PASSWD, 0o644)
            for name, target in self.links.items():
                link = tarfile.TarInfo(name.lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
            for name, source in self.files.items():
                _add(tar, name, source.read_bytes(), 0o4755 if name in self.setuid else 0o755)
        return layer.getvalue()


def machine() -> str:
    """This machine's architecture, as images name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def from_containerfile(path: Path, tag: str, built: Path) -> Image:
    """Return the image that the last stage of a Containerfile describes. Files that the stage
    copies from ``/out/`` of the build stage, or by name, come from ``built``.
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
                first, *sources, destination = rest.split()
                if first == "--from=build" and destination.endswith("/"):
                    for source in sources:
                        image.add(built / source.removeprefix("/out/"), destination + Path(source).name)
                elif not sources and Path(first).name == first and not destination.endswith("/"):
                    image.add(built / first, destination)
                else:
                    raise ImageError(
                        f"{path}: {line}: only COPY --from=build FILE... FOLDER/ and COPY NAME FILE are understood"
                    )
            case _:
                raise ImageError(f"{path}: {line}: not understood")
    return image


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _path(blob: dict[str, object]) -> str:
    return "blobs/" + str(blob["digest"]).replace(":", "/")


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))
