#!/usr/bin/env python3
"""Compiles the P4 programs in this folder and the interpreter's with p4c-bm2-ss (on PATH) to JSON,
without machine-dependent parts."""

import json
import pathlib
import subprocess
import sys
import tempfile


def without_source_info(node: object) -> object:
    """Return the JSON without source locations, which differ from machine to machine."""
    if isinstance(node, dict):
        return {k: without_source_info(v) for k, v in node.items() if k != "source_info"}
    if isinstance(node, list):
        return [without_source_info(v) for v in node]
    return node


def main() -> None:
    """Compile every program of both folders."""
    here = pathlib.Path(__file__).resolve().parent
    folders = (here, here.parents[1] / "interp" / "testdata")
    for source in (source for folder in folders for source in sorted(folder.glob("*.p4"))):
        with tempfile.TemporaryDirectory() as out:
            compiled = pathlib.Path(out) / "out.json"
            subprocess.run(["p4c-bm2-ss", *sys.argv[1:], "-o", str(compiled), str(source)], check=True)
            program = without_source_info(json.loads(compiled.read_text()))
        program["program"] = source.name
        source.with_suffix(".json").write_text(json.dumps(program, indent=1) + "\n")


if __name__ == "__main__":
    main()
