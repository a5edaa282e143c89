# SPDX-License-Identifier: Apache-2.0
"""The variants of the shipped program that measure the cost of its guarantees, without p4c."""

import shutil

import pytest

from experiments import guarantees
from experiments.figures import programs

P4 = guarantees.ROOT / "p4src"


def sources(tmp_path):
    folder = tmp_path / "p4src"
    shutil.copytree(P4 / "include", folder / "include")
    shutil.copy(P4 / "netcraq.p4", folder)
    return folder


@pytest.mark.parametrize("name", guarantees.variants())
def test_what_a_variant_replaces_is_in_the_sources(tmp_path, name):
    folder = sources(tmp_path)
    before = {path: path.read_text() for path in folder.rglob("*.p4")}
    guarantees.edited(folder, guarantees.variants()[name])
    assert any(path.read_text() != text for path, text in before.items())


def test_a_text_that_is_gone_or_there_twice_is_an_error(tmp_path):
    folder = sources(tmp_path)
    for old in ("no such text", "hdr.ipv4"):
        with pytest.raises(ValueError, match="and not once"):
            guarantees.edited(folder, (guarantees.Edit("netcraq.p4", old, ""),))


def test_what_is_saved_is_the_difference_of_each_round():
    kinds = {kind for by_system in programs.SUMS.values() for parts in by_system.values() for kind in parts}
    results = [
        {"system": system, "kind": kind, "rounds": [drift + ns for drift in (0, 50, 0, 70, 0, 90)]}
        for system, ns in ((guarantees.WHOLE, 30), *((name, 10) for name in guarantees.variants()))
        for kind in kinds
    ]
    for row in guarantees.saved(results).values():
        assert (row[programs.READ].low, row[programs.READ].high) == (20, 20)
        assert (row[programs.WRITE].low, row[programs.WRITE].high) == (140, 140)
