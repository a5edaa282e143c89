# SPDX-License-Identifier: Apache-2.0
"""The common parts of benchmarks that measure all cases in each round: their command line, the
tables of aims, and their output files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from netcraq import node
from rich.console import Console
from rich.table import Table

from experiments.provenance import record

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A run that is not a measurement."""


@dataclass(frozen=True)
class Aim:
    """A measurement, and the aim or the paper's figure that it is compared with."""

    what: str
    measured: str
    aim: str
    met: bool | None
    """None: there is no aim."""


def show_aims(console: Console, title: str, aims: list[dict[str, Any]]) -> None:
    """Print the aims as a table."""
    table = Table(title=title)
    for column in ("", "measured", "aim", ""):
        table.add_column(column)
    for aim in aims:
        table.add_row(aim["what"], aim["measured"], aim["aim"], {None: "", True: "met", False: "MISSED"}[aim["met"]])
    console.print(table)


def show_load(console: Console, result: dict[str, Any]) -> None:
    """Print the machine's load."""
    load, cores = result["load_average"], result["cores"]
    console.print(f"load average {load['before'][0]:.1f} before, {load['after'][0]:.1f} after, on {cores} cores")


def end_orderly() -> None:
    """Make SIGTERM end this program as Ctrl-C does, including its child processes."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class HasPart(Protocol):
    """A case of a benchmark."""

    @property
    def part(self) -> str:
        """The part of the benchmark to which the case belongs."""


C = TypeVar("C", bound=HasPart)


@dataclass(frozen=True)
class Bench:
    """A benchmark: ``NAME.py``, which writes ``out/NAME.json`` (with dashes)."""

    name: str
    description: str
    seconds: float
    """The default duration of a run."""

    quick_seconds: float
    width: int
    """The width of its tables in columns."""

    def arguments(self) -> argparse.ArgumentParser:
        """The command line."""
        parser = argparse.ArgumentParser(prog=f"{self.name}.py", description=self.description)
        seconds = f"of each run (default {self.seconds:g})"
        parser.add_argument("--seconds", type=float, default=self.seconds, metavar="N", help=seconds)
        parser.add_argument(
            "--rounds", type=int, default=3, metavar="N", help="rounds, each of all cases in turn (default 3)"
        )
        parser.add_argument(
            "--parts", nargs="+", metavar="WORD", help="only the parts whose names contain one of these words"
        )
        parser.add_argument(
            "--quick", action="store_true", help="a few cases and one round, to see whether the benchmark works"
        )
        parser.add_argument(
            "--out", type=Path, default=ROOT / "out", metavar="DIR", help="folder for the results (default out/)"
        )
        return parser

    def main(
        self,
        cases: Callable[[bool], Sequence[C]],
        go: Callable[[argparse.Namespace, list[C], Callable[[str], None]], dict[str, Any]],
        draw: Callable[[list[C], Any, Path], list[Path]],
        show: Callable[[Console, list[C], dict[str, Any]], None],
    ) -> int:
        """Measure, store, draw and print."""
        options = self.arguments().parse_args()
        end_orderly()
        if options.quick:
            options.seconds, options.rounds = min(options.seconds, self.quick_seconds), 1
        todo = [c for c in cases(options.quick) if not options.parts or any(word in c.part for word in options.parts)]
        run = record()
        try:
            result = go(options, todo, lambda text: print(text, flush=True))
        except (Failed, OSError, node.NodeError) as why:
            sys.exit(f"{self.name}.py: {why}")
        except KeyboardInterrupt:
            return 130
        result["run"] = run
        result["options"] = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / f"{self.name.replace('_', '-')}.json"
        file.write_text(json.dumps(result, indent=2) + "\n")
        files = [file, *draw(todo, result["measured"], options.out)]
        console = Console(width=max(self.width, shutil.get_terminal_size().columns))
        show(console, todo, result)
        console.print("written: " + ", ".join(str(file) for file in files))
        return 0
