# SPDX-License-Identifier: Apache-2.0
"""docs/reference/limits.md has the values of the constants that it names."""

from __future__ import annotations

import re
from fractions import Fraction

import docs_links
import pytest

PAGE = docs_links.DOCS / "reference" / "limits.md"
NAMED = re.compile(r"`(\w+)` in `([\w/.-]+\.(?:go|p4))`")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SECONDS = {
    "": Fraction(1),
    "time.Millisecond": Fraction(1, 1000),
    "time.Second": Fraction(1),
    "time.Minute": Fraction(60),
}
GROUPS = {"settings", "DefaultQuota"}
"""Names on the page that are not names of numbers."""


def declared(name: str, text: str) -> Fraction | None:
    """The value of a constant in Go or P4, or the default that a field's comment names. None if it
    is not a number.
    """
    if found := re.search(rf"^#define {name} (\d+)$", text, re.M):
        return Fraction(1 << int(found[1]) if name.endswith("_BITS") else int(found[1]))
    if found := re.search(rf"^\s*{name}\s+int\s*//.*?([\d,]+)(?: \(.*\))?$", text, re.M):
        return Fraction(int(found[1].replace(",", "")))
    if found := re.search(
        rf"^\s*(?:const )?{name}\s*=\s*([\d_]+)(?: ?<< ?(\d+))?( ?- ?1)?( \* time\.\w+)?", text, re.M
    ):
        value = Fraction(int(found[1])) * 2 ** int(found[2] or 0) - (1 if found[3] else 0)
        return value * SECONDS[(found[4] or "").removeprefix(" * ")]
    if found := re.search(rf"^\s*(?:const )?{name}\s*=\s*(time\.\w+)$", text, re.M):
        return SECONDS[found[1]]
    return None


def numbers(cell: str) -> set[Fraction]:
    """The numbers in a cell of the table, converted to bytes or seconds if they have a unit."""
    found: set[Fraction] = set()
    for number, unit in re.findall(r"([\d,]*\d)(?: (KiB|MiB|GiB|ms\b|s\b))?", cell):
        value = Fraction(int(number.replace(",", "")))
        found |= {value, value * UNITS.get(unit, 1)}
    return found


def rows() -> list[tuple[str, str, str, str]]:
    """The rows that name a constant: the limit, its value, the constant, and its file."""
    out = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4:
            out += [(cells[0].strip(), cells[1], name, path) for name, path in NAMED.findall(cells[2])]
    return out


@pytest.mark.parametrize(("limit", "value", "name", "path"), rows(), ids=lambda x: x[:30])
def test_a_limit(limit: str, value: str, name: str, path: str) -> None:
    text = (docs_links.ROOT / path).read_text()
    assert re.search(rf"\b{name}\b", text), f"{path} has no {name}"
    want = declared(name, text)
    if want is None:
        assert name in GROUPS, f"{path} does not say the number {name}"
        return
    assert want in numbers(value), f"{limit}: the page says {value}, {path} has {want}"


def test_most_limits_are_compared() -> None:
    assert len(rows()) >= 40


def test_the_slots_of_each_profile() -> None:
    profile = (docs_links.ROOT / "p4src" / "include" / "profile.p4").read_text()
    slots = re.findall(r"VALUE_BITS == (\d+)$.*?DEFAULT_SLOTS (\d+)$", profile, re.M | re.S)
    assert len(slots) == 4
    for bits, count in slots:
        assert f"| {bits} | {int(bits) // 8:,} | {int(count):,} |" in PAGE.read_text()
