#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print a run of a benchmark as Markdown for docs/benchmarks/: its origin, and the tables that the
benchmark printed. Each file is the JSON that a benchmark wrote into out/.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python")]

from rich.table import Table  # noqa: E402

MadeOf = Callable[[Any, dict[str, Any]], Iterable[Table]]


def measured(bench: Any, result: dict[str, Any]) -> Iterable[Table]:
    """The tables of a benchmark with named cases (:mod:`experiments.bench_rounds`)."""
    cases = {case.name: case for quick in (False, True) for case in bench.cases(quick)}
    return bench.tables([case for name, case in cases.items() if name in result["measured"]], result["measured"])


def doors(bench: Any, result: dict[str, Any]) -> Iterable[Table]:
    """The tables of the node API's doors, and of coordination."""
    yield from bench.tables(result["measured"], result["options"].get("languages", bench.LANGUAGES))
    yield from bench.coordination.tables(result["coordination"], bench.LOADS)


def columns(rows: list[tuple[str, ...]]) -> Table:
    """A table of rows; the first row has the titles."""
    table = Table(*rows[0])
    for row in rows[1:]:
        table.add_row(*row)
    return table


BENCHES: dict[str, MadeOf] = {
    "bench": lambda b, r: [b.table(r["rows"], bits) for bits in sorted({row["bits"] for row in r["rows"]})],
    "bench-arrow": measured,
    "bench-clients": lambda b, r: [b.table(r["clients"])],
    "bench-cores": lambda b, r: [b.table(r["turns"])],
    "bench-etcd": lambda b, r: [columns(b.judge(r))],
    "bench-nodeapi": doors,
    "bench-pipelets": lambda b, r: [b.table(r["rounds"])],
    "bench-streams": measured,
    "bench-streams-latency": lambda b, r: [b.table(r["rounds"])],
}
"""The tables of each benchmark, by the name of its file."""


def cell(text: Any) -> str:
    """A Markdown cell: one line, with escaped bars."""
    return " ".join(str(text).split()).replace("|", "\\|")


def markdown(table: Table) -> list[str]:
    """The Markdown lines of a table."""
    lines = [[cell(column.header) for column in table.columns], ["---"] * len(table.columns)]
    lines += [[cell(text) for text in row] for row in zip(*(column.cells for column in table.columns), strict=True)]
    title = [f"{cell(table.title)}:", ""] if table.title else []
    return [*title, *(f"| {' | '.join(line)} |" for line in lines), ""]


def section(result: dict[str, Any], tables: Iterable[Table]) -> str:
    """A run as a section of a page."""
    run = result["run"]
    day, *time = run["date"].split(" ", 1)
    lines = [f"### Run of {day}", ""]
    origin = [f"commit {run['commit'] or 'unknown'}", f"Linux {run['kernel']}", f"CPUs {run['cpu']}"]
    origin.append(f"load average {run['load_average']:.1f} before it began")
    origin += [
        f"{name} {run[name]}"
        for name in ("etcd", "simple_switch_grpc")
        if run.get(name, "not installed") != "not installed"
    ]
    lines += [f"- {text}" for text in (f"`{run['command']}`, {' '.join(time) or day}", *origin)] + [""]
    for table in tables:
        lines += markdown(table)
    return "\n".join(lines)


def page(path: Path) -> str:
    """The section for a benchmark's file."""
    if path.stem not in BENCHES:
        raise ValueError(f"no benchmark writes a file of this name; they write {', '.join(BENCHES)} (.json)")
    result = json.loads(path.read_text())
    if "run" not in result:
        raise ValueError("it does not say where it was measured: run the benchmark again")
    bench = importlib.import_module(f"experiments.{path.stem.replace('-', '_')}")
    return section(result, BENCHES[path.stem](bench, result))


def main() -> int:
    """Print the pages and return the exit status."""
    parser = argparse.ArgumentParser(prog="bench_page.py", description="Print runs of benchmarks as Markdown.")
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="file of a benchmark, for example out/bench.json"
    )
    for path in parser.parse_args().files:
        try:
            print(page(path))
        except (OSError, ValueError) as why:
            sys.exit(f"bench_page.py: {path}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
