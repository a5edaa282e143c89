# SPDX-License-Identifier: Apache-2.0
"""Build all artifacts of a release from a clean checkout into a folder: ``make release``.

The same commit gives the same bytes. nfpm makes the Debian packages. GoReleaser is not used,
because it can build neither this tree's several Go modules, nor packages for Python, Node.js and
Maven, nor images without a container engine.
"""

from __future__ import annotations

import argparse
import filecmp
import gzip
import hashlib
import io
import json
import os
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import process
from process import HERE, ROOT, ReleaseError

ARCHITECTURES = ("amd64", "arm64")

#: Programs in the archives: name, folder of the Go module, package.
PROGRAMS = {
    "netcraq": (".", "./cmd/netcraq"),
    "netcraqctl": (".", "./cmd/netcraqctl"),
    "netcraq-controller": (".", "./controlplane/cmd/netcraq-controller"),
    "netcraq-switch": ("switch", "./cmd/netcraq-switch"),
    "netcraq-sidecar": (".", "./nodeapi/cmd/netcraq-sidecar"),
    "netcraq-agent": (".", "./cni-plugin/netcraq-agent"),
    "netcraq-cni": (".", "./cni-plugin/netcraq-cni"),
    "etcd-monitor": (".", "./etcd-monitor/cmd/etcd-monitor"),
}
#: The Debian packages, with the programs of each.
PACKAGES = {
    "netcraq": ("netcraq", "netcraqctl", "netcraq-controller", "netcraq-sidecar"),
    "netcraq-switch": ("netcraq-switch",),
    "etcd-monitor": ("etcd-monitor",),
    "netcraq-pipelets": ("netcraq-pipelets",),
}


@dataclass
class Release:
    """The commit to release, and the folder to write to."""

    version: str
    commit: str
    epoch: int  # time of the commit, in seconds since 1970
    out: Path
    go: str
    work: Path  # for intermediate files

    def run(self, *command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
        """Run a program and return its output. Its environment is the same on each machine."""
        same = {
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "GOFLAGS": "-buildvcs=true",
        }
        return process.run(*command, cwd=cwd, **(same | environment))

    def folder(self, name: str) -> Path:
        """A folder for artifacts."""
        path = self.out / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def tar(self, to: Path, files: dict[str, Path], top: str) -> None:
        """Write files to a .tar.gz, below the folder ``top``. They have no owner and all the same
        time.
        """
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in sorted(files):
                content = files[name].read_bytes()
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mtime = len(content), self.epoch
                entry.mode = 0o755 if os.access(files[name], os.X_OK) else 0o644
                archive.addfile(entry, io.BytesIO(content))
        with to.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(raw.getvalue())


def programs(release: Release, architecture: str) -> dict[str, Path]:
    """Build the programs for an architecture, and return their paths. netcraq-pipelets contains C++
    (DuckDB), so it is built only for this machine's architecture.
    """
    built = release.work / architecture
    built.mkdir(exist_ok=True)
    command = (release.go, "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{built}/")
    for module in sorted({folder for folder, _ in PROGRAMS.values()}):
        packages = [package for folder, package in PROGRAMS.values() if folder == module]
        release.run(*command, *packages, cwd=ROOT / module, CGO_ENABLED="0", GOARCH=architecture, GOWORK="off")
    if architecture == own(release):
        release.run(
            *command, "./netcraq-pipelets", cwd=ROOT / "pipelets" / "synchronizer", CGO_ENABLED="1", GOWORK="off"
        )
    return {path.name: path for path in sorted(built.iterdir())}


def own(release: Release) -> str:
    """This machine's architecture, with Go's name for it."""
    return release.run(release.go, "env", "GOHOSTARCH").strip()


def manual(release: Release, netcraq: Path) -> dict[str, Path]:
    """Manual pages and shell completions, which the commands write."""
    folder = release.work / "manual"
    folder.mkdir(exist_ok=True)
    release.run(netcraq, "man", folder)
    for shell in ("bash", "zsh", "fish"):
        (folder / f"netcraq.{shell}").write_text(release.run(netcraq, "completion", shell))
    shutil.copy(ROOT / "switch/cmd/netcraq-switch/netcraq-switch.8", folder)
    return {path.name: path for path in sorted(folder.iterdir())}


def archives(release: Release, built: dict[str, dict[str, Path]], pages: dict[str, Path]) -> None:
    """Make an archive for each architecture."""
    for architecture, files in built.items():
        top = f"netcraq_{release.version}_linux_{architecture}"
        content = {name: path for name, path in files.items() if name in PROGRAMS}
        content |= {f"share/{name}": path for name, path in pages.items()}
        content |= {f"share/p4/{path.name}": path for path in sorted((ROOT / "p4src/compiled").glob("netcraq*"))}
        content |= {name: ROOT / name for name in ("LICENSE", "README.md", "CHANGELOG.md")}
        content |= {f"systemd/{path.name}": path for path in sorted((HERE / "files").glob("*.service"))}
        release.tar(release.folder("archives") / f"{top}.tar.gz", content, top)


def debian(release: Release, built: dict[str, dict[str, Path]], pages: dict[str, Path]) -> None:
    """Make the Debian packages, with nfpm."""
    nfpm = process.build_tool(release.go, "github.com/goreleaser/nfpm/v2/cmd/nfpm", HERE, release.work / "nfpm")
    packed = release.work / "gz"
    packed.mkdir(exist_ok=True)
    for name, page in pages.items():
        if name.endswith((".1", ".8")):
            (packed / f"{name}.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
    folder = release.folder("debian")
    for architecture, files in built.items():
        for package, names in PACKAGES.items():
            if not set(names) <= set(files):
                continue
            values = {
                "VERSION": release.version,
                "ARCH": architecture,
                "BIN": release.work / architecture,
                "PAGES": packed,
                "SHARE": release.work / "manual",
                "FILES": HERE / "files",
                "ROOT": ROOT,
            }
            config = release.work / f"{package}.yaml"
            config.write_text(string.Template((HERE / "packages" / config.name).read_text()).substitute(values))
            release.run(nfpm, "package", "--packager", "deb", "--config", config, "--target", folder)


def images(release: Release) -> None:
    """Make the images and their SBOMs for both architectures; netcraq-pipelets for this machine's
    only.
    """
    for architecture in ARCHITECTURES:
        names = [] if architecture == own(release) else ["netcraq-agent", "netcraq-policies", "etcd-monitor"]
        release.run(
            sys.executable, "-m", "images", "--out", release.folder(f"images/{architecture}"), "--registry", REGISTRY,
            "--tag", release.version, "--arch", architecture, *names, cwd=ROOT / "cni-plugin", GO=release.go, PYTHONPATH=".",
        )  # fmt: skip


#: The registry of a release's images.
REGISTRY = "ghcr.io/netcraq"


def released_values(text: str, version: str) -> str:
    """The chart's values, with a release's images instead of those of a checkout."""
    return text.replace(" localhost/netcraq/", f" {REGISTRY}/").replace(" tag: dev\n", f" tag: {version}\n")


def chart(release: Release) -> None:
    """Make the Helm chart. Helm writes the build time into it, so this packs its files again."""
    pinned = ROOT / "cni-plugin/deploy/chartgen"
    helm = process.build_tool(release.go, "helm.sh/helm/v3/cmd/helm", pinned, release.work / "helm")
    folder = release.work / "chart"
    release.run(helm, "package", ROOT / "cni-plugin/deploy/chart", "--version", release.version, "--app-version", release.version,
                "--destination", folder)  # fmt: skip
    with tarfile.open(folder / f"netcraq-{release.version}.tgz") as archive:
        archive.extractall(folder)
    values = folder / "netcraq" / "values.yaml"
    values.write_text(released_values(values.read_text(), release.version))
    release.tar(release.folder("chart") / f"netcraq-{release.version}.tgz", files_below(folder / "netcraq"), "netcraq")


def python(release: Release) -> None:
    """Make a wheel and a source archive of each Python distribution."""
    for source in ("client/python", "switch/python"):
        copy = release.work / "python" / source
        export(release, source, copy)
        script = "import sys, setuptools.build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
        made = release.work / "python" / "made"
        made.mkdir(exist_ok=True)
        release.run(sys.executable, "-c", script, made, cwd=copy)
    folder = release.folder("python")
    for path in sorted(made.iterdir()):
        if path.suffix == ".whl":
            shutil.copy(path, folder)
            continue
        with tarfile.open(path) as archive:  # setuptools writes the build time into the archive
            archive.extractall(release.work / "sdist")
        top = path.name.removesuffix(".tar.gz")
        release.tar(folder / path.name, files_below(release.work / "sdist" / top), top)


def files_below(folder: Path) -> dict[str, Path]:
    """The files in a folder and below, by their paths relative to it."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def export(release: Release, source: str, to: Path) -> None:
    """Copy a folder of the commit, without other files of the checkout."""
    to.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", f"{release.commit}:{source}"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(to)


def javascript(release: Release) -> None:
    """Make the npm package."""
    copy = release.work / "js"
    export(release, "client/js", copy)
    release.run("npm", "pack", "--silent", "--pack-destination", release.folder("npm"), cwd=copy)


def java(release: Release) -> None:
    """Make a Maven repository with the Java artifacts."""
    copy = release.work / "java"
    export(release, "client/java", copy)
    repository = release.folder("maven")
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    release.run("mvn", "-q", "-B", "-DskipTests", f"-Dproject.build.outputTimestamp={moment}",
                f"-DaltDeploymentRepository=dist::file://{repository}", "deploy", cwd=copy)  # fmt: skip
    for path in repository.rglob("maven-metadata.xml*"):  # has the time; a server writes its own
        path.unlink()


def modules(release: Release) -> None:
    """Make the Go modules in the format of a module proxy."""
    release.run(release.go, "run", "./internal/modproxy/goproxy", release.folder("go"), release.commit)


def describe(release: Release, built: dict[str, dict[str, Path]]) -> None:
    """Write the SBOMs of the archives' programs, and all files' checksums and provenance."""
    for architecture, files in built.items():
        archive = release.out / "archives" / f"netcraq_{release.version}_linux_{architecture}.tar.gz"
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        release.run(release.go, "run", "./cni-plugin/deploy/sbom", "-image", f"{archive.name}:{release.version}", "-digest",
                    f"sha256:{digest}", "-o", release.folder("sbom") / f"{archive.name}.cdx.json",
                    *(f"{name}={path}" for name, path in files.items() if name in PROGRAMS))  # fmt: skip
    for path in release.out.rglob("SHA256SUMS"):
        path.unlink()  # the images' files are also in the release's list
    files = files_below(release.out)
    sums = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    (release.out / "SHA256SUMS").write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    provenance = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": value}} for name, value in sums.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://github.com/netcraq/netcraq/blob/main/RELEASING.md",
                "externalParameters": {"target": "release", "version": release.version},
                "resolvedDependencies": [
                    {"uri": "git+https://github.com/netcraq/netcraq", "digest": {"gitCommit": release.commit}}
                ],
                "internalParameters": {
                    "go": release.run(release.go, "version").split()[2],
                    "python": sys.version.split()[0],
                },
            },
            "runDetails": {"builder": {"id": "https://github.com/netcraq/netcraq/blob/main/mk/release/release.py"}},
        },
    }
    (release.out / "provenance.json").write_text(json.dumps(provenance, indent=1, sort_keys=True) + "\n")


def git(*words: str) -> str:
    """The output of git in the checkout."""
    return process.run("git", *words, cwd=ROOT).strip()


PARTS = ("archives", "debian", "images", "chart", "python", "npm", "maven", "go")


def build(out: Path, go: str, parts: tuple[str, ...] = PARTS, say=print) -> None:
    """Build the parts of a release."""
    if changes := git("status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes, and a release is built from a commit:\n{changes}")
    if holds(out):
        raise ReleaseError(f"{out} is not empty: remove it, or name another folder with --out")
    with tempfile.TemporaryDirectory(prefix="netcraq-release-") as work:
        release = Release(
            version=(ROOT / "api/buildinfo/VERSION").read_text().strip(), commit=git("rev-parse", "HEAD"),
            epoch=int(git("log", "-1", "--format=%ct")), out=out, go=go, work=Path(work),
        )  # fmt: skip
        say(f"NetCRAQ {release.version}, commit {release.commit[:12]}, into {out}")

        def step(name: str, do, *arguments) -> None:
            began = time.monotonic()
            do(release, *arguments)
            say(f"  {name:<9} {time.monotonic() - began:6.0f} s")

        built: dict[str, dict[str, Path]] = {}
        if {"archives", "debian"} & set(parts):
            for architecture in ARCHITECTURES:
                step(architecture, lambda r, a: built.__setitem__(a, programs(r, a)), architecture)
            pages = manual(release, built[own(release)]["netcraq"])
        if "archives" in parts:
            step("archives", archives, built, pages)
        if "debian" in parts:
            step("debian", debian, built, pages)
        others = {"images": images, "chart": chart, "python": python, "npm": javascript, "maven": java, "go": modules}
        for name, do in others.items():
            if name in parts:
                step(name, do)
        if "archives" in parts:
            step("sums", describe, built)
    sizes = [path.stat().st_size for path in files_below(out).values()]
    say(f"{len(sizes)} files, {sum(sizes) / 1e6:.0f} MB, in {out}")


def holds(folder: Path) -> bool:
    """Whether a folder has anything in it."""
    return folder.exists() and any(folder.iterdir())


def compare(one: Path, other: Path, in_part: bool = False) -> list[str]:
    """The files that differ between two builds, or that only one of them has.

    in_part: the other build has only some of the files, and those are compared.
    """
    names = files_below(other) if in_part else files_below(one) | files_below(other)
    _, different, missing = filecmp.cmpfiles(one, other, names, shallow=False)
    return sorted(different + missing)


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="make release", description="build a release from a clean checkout")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the artifacts (default: dist)")
    parser.add_argument("--go", default="go")
    parser.add_argument("--check", action="store_true", help="build the release again, and compare the bytes")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"parts to build, of {', '.join(PARTS)} (default: all)"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    parts = tuple(options.parts) or PARTS
    say = lambda text: print(text, flush=True)  # noqa: E731
    try:
        # Compare an existing build of make release, instead of building it again.
        if not (options.check and holds(options.out)):
            build(options.out, options.go, parts, say)
        if options.check:
            with tempfile.TemporaryDirectory(prefix="netcraq-release-again-") as folder:
                build(Path(folder), options.go, parts, say)
                different = compare(options.out, Path(folder), in_part=bool(options.parts))
            if different:
                raise ReleaseError(f"{options.out} and a second build differ in: " + ", ".join(different))
            say(f"{options.out} and a second build have the same bytes")
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
