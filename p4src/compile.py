#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile the P4 programs of a folder with p4c, and check that the committed files match the
sources.

    compile.py make  [FOLDER]   compile every target that FOLDER/programs.json lists into
                                FOLDER/compiled/, and write compiled/manifest.json
    compile.py check [FOLDER]   fail when sources and outputs have drifted: by hash always,
                                by compiling again where p4c is installed

p4c need not be installed to use the programs: compiled/ is committed, the JSON as gzip (zcat reads
it). programs.json lists, for each output name, the source, the p4c back end, and the preprocessor
definitions; and, if the folder has no include/, whose files it includes. The manifest holds p4c's
version and the SHA-256 of each source and each output, as p4c wrote it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Without --arch, p4c-bm2-psa writes a P4Info that has no registers and counters.
BACKENDS = {"v1model": "p4c-bm2-ss", "psa": "p4c-bm2-psa"}


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. For a compressed file, the SHA-256 of its uncompressed
    content.
    """
    content = path.read_bytes()
    return hashlib.sha256(gzip.decompress(content) if path.suffix == ".gz" else content).hexdigest()


def relative(path: Path, folder: Path) -> str:
    """The path as it is written in a file of the folder."""
    return os.path.relpath(path, folder)


def outputs(name: str) -> list[str]:
    """The names of the files that a target compiles to."""
    return [f"{name}.json.gz", f"{name}.p4info.txtpb"]


def sources(folder: Path) -> list[Path]:
    """Every P4 file of the folder and its include/, and the list of targets. A folder without an
    include/ of its own may name another's in programs.json.
    """
    programs = json.loads((folder / "programs.json").read_text())
    others = {folder / program["includes"] for program in programs.values() if "includes" in program}
    included = [*folder.glob("include/*.p4"), *(path for other in others for path in other.glob("**/*.p4"))]
    return sorted([*folder.glob("*.p4"), *included, folder / "programs.json"])


def p4c_version() -> str:
    """The version of the installed p4c, from the v1model back end. The PSA back end prints its own
    version number instead.
    """
    backend = BACKENDS["v1model"]
    out = subprocess.run(
        [backend, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout
    _, found, rest = out.partition("Version ")
    if not found:
        sys.exit(f"{backend} --version does not say its version:\n{out}")
    return rest.split()[0]


def compile_all(folder: Path, programs: dict, into: Path, warnings: bool = False) -> None:
    """Compile every target of `programs` into `into`. p4c's warnings count as errors, unless
    `warnings` is true.
    """
    for name, program in programs.items():
        backend = BACKENDS[program["architecture"]]
        defines = [
            f"-D{key}={value}" if value is not True else f"-D{key}" for key, value in program.get("defines", {}).items()
        ]
        command = [
            backend,
            "--arch",
            program["architecture"],
            *defines,
            "--p4runtime-files",
            str(into / f"{name}.p4info.txtpb"),
            "-o",
            str(into / f"{name}.json"),
            program["source"],
        ]
        # Run inside the folder, so that p4c writes the same relative paths on every machine.
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0 or ("warning" in done.stderr and not warnings):
            sys.exit(f"{' '.join(command)}\n{done.stderr}\n{name}: p4c failed or warned; nothing was changed")
        # The path of p4c's own include files differs from machine to machine.
        output = into / f"{name}.json"
        text = re.sub(r'("filename" : )"/[^"]*/p4include/', r'\1"p4include/', output.read_text())
        # No timestamp, so that two runs write the same bytes.
        (into / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def manifest(folder: Path, programs: dict, compiled: Path, version: str) -> dict:
    """The manifest: p4c's version, and the hashes of sources and outputs."""
    return {
        "p4c": version,
        "sources": {relative(path, folder): digest(path) for path in sources(folder)},
        "outputs": {file: digest(compiled / file) for name in programs for file in outputs(name)},
    }


def installed() -> bool:
    """Whether p4c with both back ends is on PATH."""
    return all(shutil.which(backend) for backend in BACKENDS.values())


def make(folder: Path, programs: dict) -> None:
    """Compile into compiled/. Replace its files only if every target has compiled."""
    if not installed():
        sys.exit(
            "p4c is not on PATH (p4c-bm2-ss, p4c-bm2-psa): install it from the P4 project's packages to compile; to use the programs it is not needed"
        )
    compiled = folder / "compiled"
    with tempfile.TemporaryDirectory() as scratch:
        version = p4c_version()
        compile_all(folder, programs, Path(scratch))
        record = manifest(folder, programs, Path(scratch), version)
        compiled.mkdir(exist_ok=True)
        for stale in compiled.iterdir():
            stale.unlink()
        for file in record["outputs"]:
            shutil.copyfile(Path(scratch) / file, compiled / file)
    (compiled / "manifest.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"{folder.name}: {len(programs)} targets compiled with p4c {version}")


def check(folder: Path, programs: dict) -> None:
    """Exit with 1, naming each file that differs, when sources and outputs have drifted."""
    compiled = folder / "compiled"
    try:
        recorded = json.loads((compiled / "manifest.json").read_text())
    except FileNotFoundError:
        sys.exit(f"{compiled}/manifest.json is missing: run `make p4`")
    drift = []
    now = {relative(path, folder): digest(path) for path in sources(folder)}
    drift += [
        f"source {name} changed since it was compiled" for name in now if now[name] != recorded["sources"].get(name)
    ]
    drift += [f"source {name} is gone" for name in recorded["sources"] if name not in now]
    expected = {file for name in programs for file in outputs(name)}
    drift += [f"output {file} is not in the manifest" for file in expected - recorded["outputs"].keys()]
    for file, sha in recorded["outputs"].items():
        path = compiled / file
        if not path.exists():
            drift.append(f"output {file} is missing")
        elif digest(path) != sha:
            drift.append(f"output {file} is not what p4c wrote")
    for path in compiled.iterdir():
        if path.name != "manifest.json" and path.name not in recorded["outputs"]:
            drift.append(f"output {path.name} belongs to no target")
    how = "by hash; p4c is not installed"
    if installed() and not drift:
        version = p4c_version()
        if version != recorded["p4c"]:
            how = f"by hash; the installed p4c is {version}, they were compiled with {recorded['p4c']}"
        else:
            with tempfile.TemporaryDirectory() as scratch:
                compile_all(folder, programs, Path(scratch))
                drift += [
                    f"output {file} is not what p4c writes now"
                    for file, sha in recorded["outputs"].items()
                    if digest(Path(scratch) / file) != sha
                ]
            how = f"by hash and by compiling again with p4c {version}"
    if drift:
        sys.exit("\n".join([*drift, f"{folder.name}: sources and compiled outputs have drifted: run `make p4`"]))
    print(f"{folder.name}: {len(recorded['outputs'])} outputs agree with {len(now)} sources ({how})")


def main() -> None:
    """Command line: compile.py make|check [FOLDER]."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["make", "check"])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    try:
        programs = json.loads((folder / "programs.json").read_text())
    except FileNotFoundError:
        sys.exit(f"{folder}/programs.json is missing: it lists what to compile")
    (make if arguments.verb == "make" else check)(folder, programs)


if __name__ == "__main__":
    main()
