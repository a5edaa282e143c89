#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what the chip's programs need of a Tofino, and check the committed report.

    resources.py make  [NAME...]   compile and assemble the rows of resources.json, or only the named
                                   ones, and write their results into it
    resources.py check             the same for the rows that are marked with "check", and fail if a
                                   result differs from the committed one

Both need p4c-barefoot and bfas on PATH: p4c's Tofino back end and its assembler. Without them
`check` says so and succeeds. A program fits only if the assembler accepts it, because the compiler
alone accepts programs that have more stages than the chip.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REPORT = FOLDER / "resources.json"
ARCHITECTURES = {"tofino": "tna", "tofino2": "t2na"}
TOOLS = ["p4c-barefoot", "bfas"]


def run(command: list[str]) -> tuple[bool, str]:
    """Whether a command succeeded, and all that it printed."""
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def first_error(text: str) -> str:
    """The first line of a tool's output that is an error."""
    for line in text.splitlines():
        if "error" in line.lower():
            return re.sub(r"\S*/(?=[\w.-]+)", "", line).strip()[:200]
    return "failed without a message"


def measure(row: dict) -> dict:
    """The result of a row: what the program takes of the chip, or why it does not fit."""
    defines = [f"-D{key}={value}" for key, value in row["defines"].items()]
    with tempfile.TemporaryDirectory() as scratch:
        compiled, text = run(
            ["p4c-barefoot", "--target", row["chip"], "--arch", ARCHITECTURES[row["chip"]], "-g"]
            + ["-Ttable_summary:1", *defines, "-o", scratch, row["program"]]
        )
        assembly = sorted(Path(scratch).glob("**/*.bfa"))
        if not compiled or not assembly:
            return {"refused": "compiler: " + first_error(text)}
        result = stages(text)
        assembled, said = run(["bfas", "--target", row["chip"], "-o", scratch, str(assembly[0])])
        if not assembled:
            return {"refused": "assembler: " + first_error(said), **result}
        result.update(memory(json.loads(next(Path(scratch).glob("**/resources.json")).read_text())))
        return result


def stages(log: str) -> dict:
    """The numbers of stages, from the compiler's summary of its last placement of the tables."""
    names = {
        "chain": r"Critical path length through the table dependency graph: (\d+)",
        "ingress": r"Number of stages for ingress table allocation: (\d+)",
        "egress": r"Number of stages for egress table allocation: (\d+)",
    }
    found = {name: re.findall(pattern, log) for name, pattern in names.items()}
    return {name: int(values[-1]) for name, values in found.items() if values}


def memory(report: dict) -> dict:
    """The blocks of memory and the stateful ALUs of all stages, from the compiler's report."""
    of_stages = report["resources"]["mau"]["mau_stages"]
    return {
        "sram": sum(len(stage["rams"]["srams"]) for stage in of_stages),
        "map_ram": sum(len(stage["map_rams"]["maprams"]) for stage in of_stages),
        "tcam": sum(len(stage["tcams"]["tcams"]) for stage in of_stages),
        "stateful_alu": sum(len(stage["meter_alus"]["meters"]) for stage in of_stages),
    }


def make(rows: dict, names: list[str]) -> None:
    """Measure the named rows, or all, and write the report."""
    for name in names or rows:
        rows[name]["result"] = measure(rows[name])
        print(f"{name}: {rows[name]['result']}", flush=True)
        REPORT.write_text(json.dumps(rows, indent=2) + "\n")


def check(rows: dict) -> None:
    """Exit with 1, naming each row that differs, if the compiler's results are others now."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"chip/resources.json was not compared: {' and '.join(missing)} are not installed")
        return
    checked = [name for name in rows if rows[name].get("check")]
    differ = []
    for name in checked:
        now = measure(rows[name])
        if now != rows[name]["result"]:
            differ.append(f"{name}: committed {rows[name]['result']}, now {now}")
    if differ:
        sys.exit("\n".join([*differ, "the chip's resources have changed: run p4src/chip/resources.py make"]))
    print(f"chip/resources.json agrees with the compiler for {', '.join(checked)}")


def main() -> None:
    """Command line: resources.py make [NAME...] | check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["make", "check"])
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    rows = json.loads(REPORT.read_text())
    unknown = [name for name in arguments.names if name not in rows]
    if unknown:
        sys.exit(f"resources.json has no row {', '.join(unknown)}")
    if arguments.verb == "make":
        make(rows, arguments.names)
    else:
        check(rows)


if __name__ == "__main__":
    main()
