# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m images`` from ``cni-plugin``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from images.archive import ImageError
from images.build import ROOT, Options, build, containerfiles


def main() -> int:
    """Build the images and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="make images", description="Build the project's images into a folder, each with its SBOM."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "images", help="the folder (default: out/images)")
    parser.add_argument("--registry", default="localhost/netcraq", help="prefix of the images' names")
    parser.add_argument("--tag", default="dev")
    parser.add_argument("--arch", default="", help="amd64 or arm64 (default: this machine's)")
    parser.add_argument("--check", action="store_true", help="build everything twice, and compare")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(containerfiles())} (default: all)")
    options = parser.parse_args()
    what = Options(options.names, options.registry, options.tag, options.arch)
    say = lambda text: print(text, flush=True)  # noqa: E731
    try:
        digests = build(options.out, what, say)
        if options.check:
            with tempfile.TemporaryDirectory(prefix="netcraq-images-") as folder:
                again = build(Path(folder), what, say)
            different = [name for name in digests if digests[name] != again[name]]
            if different:
                raise ImageError(f"built twice, and not the same: {', '.join(different)}")
    except ImageError as error:
        print(f"make images: {error}", file=sys.stderr)
        return 1
    for name, digest in digests.items():
        size = (options.out / f"{name}.tar").stat().st_size
        print(f"{options.out / name}.tar  {options.registry}/{name}:{options.tag}  {digest}  {size / 1e6:.0f} MB")
    print(f"each with its SBOM (.cdx.json); {options.out / 'SHA256SUMS'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
