# SPDX-License-Identifier: Apache-2.0
"""Build images from Containerfiles."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from images.archive import ImageError, from_containerfile, machine

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ("cni-plugin/deploy", "pipelets/deploy")
"""The folders with the Containerfiles."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What to build, and how to name it."""

    names: Sequence[str] = ()
    """Names of the images to build. Empty: all of them."""
    registry: str = "localhost/netcraq"
    tag: str = "dev"
    architecture: str = ""
    """The Go name of the architecture; "": this machine's."""


def containerfiles(root: Path = ROOT) -> dict[str, Path]:
    """Return the project's Containerfiles, by their images' names."""
    found = [path for folder in FOLDERS for path in sorted((root / folder).glob("Containerfile.*"))]
    return {path.suffix.removeprefix("."): path for path in found}


def build(out: Path, options: Options, say: Say, root: Path = ROOT) -> dict[str, str]:
    """Write NAME.tar and NAME.cdx.json for each image, and SHA256SUMS. Return the images' digests
    by name.
    """
    files = containerfiles(root)
    unknown = [name for name in options.names if name not in files]
    if unknown:
        raise ImageError(f"there is no image {', '.join(unknown)}; there are {', '.join(files)}")
    if not re.fullmatch(r"[\w][\w.-]{0,127}", options.tag):
        raise ImageError(f"the tag {options.tag!r} is none: letters, digits, _, . and -, 128 at most")
    out.mkdir(parents=True, exist_ok=True)
    digests = {}
    with tempfile.TemporaryDirectory(prefix="netcraq-images-") as folder:
        for name, path in files.items():
            if options.names and name not in options.names:
                continue
            say(f"building {name}")
            built = Path(folder) / name
            built.mkdir()
            programs(path, built, options.architecture or machine(), root)
            image = from_containerfile(path, f"{options.registry}/{name}:{options.tag}", built)
            image.architecture = options.architecture
            image.labels = {
                "org.opencontainers.image.title": name,
                "org.opencontainers.image.version": options.tag,
                "org.opencontainers.image.licenses": "Apache-2.0",
            }
            archive = out / f"{name}.tar"
            digests[name] = image.write(archive)
            sbom(image.tag, digests[name], image.files, out / f"{name}.cdx.json", root)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
        if path.name.endswith((".tar", ".cdx.json"))
    ]
    (out / "SHA256SUMS").write_text("".join(sums))
    return digests


def programs(containerfile: Path, built: Path, architecture: str, root: Path) -> None:
    """Run the commands of a Containerfile's build stage in the checkout, with ``built`` instead of
    ``/out``.
    """
    lines = re.sub(r"\\\n\s*", " ", containerfile.read_text()).splitlines()
    commands = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
    if not commands:
        raise ImageError(f"{containerfile}: nothing is built in it")
    environment = {**os.environ, "GOARCH": architecture, "GOOS": "linux", "GOTOOLCHAIN": "local"}
    environment.setdefault("GOFLAGS", "-buildvcs=auto")  # programs record their commit
    environment["GOWORK"] = "off"  # as in the Containerfile: go.mod has the versions
    if compiler := os.environ.get("GO", "").strip():
        path = Path(shutil.which(compiler) or root / compiler)
        environment["PATH"] = f"{path.parent}:{environment['PATH']}"
    for command in commands:
        there = command.replace("-o /out/", f"-o {shlex.quote(str(built))}/")
        if there == command:
            raise ImageError(f"{containerfile}: {command}: it writes nothing to /out/")
        done = subprocess.run(
            ["sh", "-ec", there], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ImageError(f"{containerfile}: {command}:\n{done.stderr[-3000:]}")


def sbom(tag: str, digest: str, files: dict[str, Path], to: Path, root: Path) -> None:
    """Write the SBOM of an image, from what its programs say they were built from."""
    listed = [f"{name}={path}" for name, path in files.items()]
    go = os.environ.get("GO", "").strip() or "go"
    command = [go if "/" not in go else str(root / go), "run", "./cni-plugin/deploy/sbom"]
    environment = {k: v for k, v in os.environ.items() if k not in ("GOOS", "GOARCH")}
    done = subprocess.run(
        [*command, "-image", tag, "-digest", digest, "-o", str(to), *listed],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ImageError(f"the SBOM of {tag}: {done.stderr[-2000:]}")
