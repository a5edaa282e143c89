# SPDX-License-Identifier: Apache-2.0
"""The outcome of a suite's case on an engine, and the table of all outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Whether a case passed, an error or observation, and the engine that ran it, if known."""

    passed: bool
    reason: str = ""
    engine: str = ""


Suite = Mapping[str, Mapping[str, Outcome]]
"""Outcomes by engine and case."""


def alike(ours: Outcome, theirs: Outcome) -> bool:
    """Whether a case has BMv2's outcome: passed on both with equal observations, or on neither."""
    return ours.passed == theirs.passed and (not ours.passed or ours.reason == theirs.reason)


def row(suite: str, engine: str, outcomes: Suite) -> str:
    """A line of the table: suite, engine, passed and total cases, cases with BMv2's outcome."""
    mine = outcomes[engine]
    passed = sum(x.passed for x in mine.values())
    reference = outcomes.get("bmv2", {})
    if engine == "bmv2":
        same = ""
    elif not reference:
        same = "not run"
    else:
        same = str(sum(name in reference and alike(x, reference[name]) for name, x in mine.items()))
    return f"| {suite} | {engine} | {passed} of {len(mine)} | {same} |"


def seen(outcomes: Suite) -> str:
    """A table of the observations, with a column for each engine."""
    lines = ["|  | " + " | ".join(outcomes) + " |", "| --- |" + " --- |" * len(outcomes)]
    for case in {name: None for mine in outcomes.values() for name in mine}:
        cells = [mine[case].reason if case in mine else "" for mine in outcomes.values()]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(suites: Mapping[str, Suite]) -> str:
    """The Markdown table of all suites, followed by the cases that failed or differ from BMv2."""
    lines = ["| suite | engine | passed | as BMv2 |", "| --- | --- | --- | --- |"]
    lines += [row(name, engine, outcomes) for name, outcomes in suites.items() for engine in outcomes]
    for name, outcomes in suites.items():
        for engine, mine in outcomes.items():
            for case, x in mine.items():
                theirs = outcomes.get("bmv2", {}).get(case)
                if not x.passed:
                    lines.append(f"{name} on {engine}: {case}: {x.reason}")
                elif theirs and theirs.passed and not alike(x, theirs):
                    lines.append(f"{name} on {engine}: {case}: {x.reason or 'passes'}; on BMv2 {theirs.reason}")
    return "\n".join(lines)
