#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the model of scale (``make bench-scale``): compare it with the measured chains, and answer
what it was made for. Writes ``out/bench-scale.json`` and the figures, and, unless it is quick, the
page ``docs/benchmarks/scale.md`` with its figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from rich.console import Console  # noqa: E402

from experiments.provenance import record  # noqa: E402
from experiments.scale import page, plots, predict, study  # noqa: E402


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="bench-scale", description="Run the model of scale.")
    parser.add_argument("--quick", action="store_true", help="small fabrics and short loads; no page")
    parser.add_argument("--out", type=Path, default=ROOT / "out", metavar="DIR", help="default out/")
    options = parser.parse_args()
    run, began = record(), time.monotonic()
    result = {"run": run, "comparison": [vars(case) for case in predict.compare()], **study.everything(options.quick)}
    result["seconds"] = time.monotonic() - began
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "bench-scale.json"
    file.write_text(json.dumps(result, indent=2) + "\n")
    written = [file, *plots.draw(result, options.out if options.quick else ROOT / "docs" / "assets")]
    if not options.quick:
        page.write(result)
        written.append(page.PAGE)
    console = Console() if sys.stdout.isatty() else Console(width=170)
    for name, table in page.tables(result).items():
        table.title = name
        console.print(table)
    console.print(f"{result['seconds']:.0f} s; written: {', '.join(map(str, written))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
