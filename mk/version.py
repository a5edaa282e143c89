# SPDX-License-Identifier: Apache-2.0
"""Keeps one version of NetCRAQ, which is in ``api/buildinfo/VERSION``. Other files repeat it where
their tools read it: the packages for Python, Node.js and Java, the chart, ``go.mod`` files. The
chart in the tree uses images with the tag ``dev``; ``make release`` packs it with the release's
images.

``version.py`` prints the version. ``version.py check`` compares the other files with it, and
``version.py set VERSION`` writes a new version everywhere.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("api/buildinfo/VERSION")
#: semver.org's grammar without build metadata, which an image's tag cannot have.
GRAMMAR = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.?(\d+))?")

#: Files, the pattern whose first group is the version, and whether it has Python's spelling.
PLACES = (
    ("client/python/pyproject.toml", r'^version = "([^"]+)"$', True),
    ("switch/python/pyproject.toml", r'^version = "([^"]+)"$', True),
    ("client/js/package.json", r'^  "version": "([^"]+)",$', False),
    ("client/java/pom.xml", r"<artifactId>netcraq-java</artifactId>\s*<version>([^<]+)</version>", False),
    ("client/java/netcraq-flink/pom.xml", r"<artifactId>netcraq-java</artifactId>\s*<version>([^<]+)</version>", False),
    (
        "client/java/netcraq-streams/pom.xml",
        r"<artifactId>netcraq-java</artifactId>\s*<version>([^<]+)</version>",
        False,
    ),
    ("cni-plugin/deploy/chart/Chart.yaml", r"^version: (\S+)$", False),
    ("CITATION.cff", r"^version: (\S+)$", False),
)
#: In each go.mod, the versions of required modules of this tree.
MODULES = r"^\t(?:require )?github\.com/netcraq/netcraq(?:/\S+)? v(\S+)"


def spelled_for_python(version: str) -> str:
    """0.2.0-rc1 as PEP 440 spells it: 0.2.0rc1."""
    return re.sub(r"-(alpha|beta|rc)\.?", lambda m: {"alpha": "a", "beta": "b", "rc": "rc"}[m[1]], version)


def places(root: Path):
    """Each file, the pattern in it, and whether the version has Python's spelling."""
    for name, pattern, python in PLACES:
        yield root / name, re.compile(pattern, re.MULTILINE), python
    listed = subprocess.run(["git", "ls-files", "*go.mod"], cwd=root, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if re.search(MODULES, (root / name).read_text(), re.MULTILINE):
            yield root / name, re.compile(MODULES, re.MULTILINE), False


def check(root: Path, version: str) -> list[str]:
    """The files with another version, one line for each."""
    wrong = []
    for path, pattern, python in places(root):
        want = spelled_for_python(version) if python else version
        found = pattern.findall(path.read_text())
        if not found:
            wrong.append(f"{path.relative_to(root)}: no version where {pattern.pattern} looks for it")
        for got in found:
            if got != want:
                wrong.append(f"{path.relative_to(root)}: has the version {got}, and {SOURCE} has {version}")
    return wrong


def write(root: Path, version: str) -> None:
    """Write a version to all files."""
    for path, pattern, python in places(root):
        want = spelled_for_python(version) if python else version
        text, end, out = path.read_text(), 0, []
        for match in pattern.finditer(text):
            out += [text[end : match.start(1)], want]
            end = match.end(1)
        path.write_text("".join(out) + text[end:])
    (root / SOURCE).write_text(version + "\n")


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description="print, check or set the version")
    parser.add_argument("what", nargs="?", choices=("print", "check", "set"), default="print")
    parser.add_argument("version", nargs="?")
    options = parser.parse_args()
    version = options.version if options.what == "set" else (ROOT / SOURCE).read_text().strip()
    if not version or not GRAMMAR.fullmatch(version):
        print(
            f"version.py: {version!r} is not MAJOR.MINOR.PATCH, or that with -alpha1, -beta1 or -rc1", file=sys.stderr
        )
        return 2
    if options.what == "print":
        print(version)
    if options.what == "set":
        write(ROOT, version)
    if options.what == "check":
        wrong = check(ROOT, version)
        print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
        if wrong:
            print(f"python mk/version.py set {version} writes it everywhere", file=sys.stderr)
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
