# SPDX-License-Identifier: Apache-2.0
"""Short searches of the protocol model. `make model` and `make mutants` make all searches."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check  # noqa: E402
import rules  # noqa: E402

needs_spin = pytest.mark.skipif(bool(check.missing_tools()), reason=f"not on PATH: {', '.join(check.missing_tools())}")
MUTANTS = {m.id: m for m in rules.MUTANTS}


def test_every_macro_is_in_the_model():
    """With a misspelt macro, the search of a mutant would search the complete protocol."""
    tested = set(re.findall(r"(?:#ifdef|#ifndef|defined\()\s*(\w+)", "".join(p.read_text() for p in check.MODEL)))
    used = {d for m in rules.MUTANTS for d in m.macros}
    for where in [*rules.SMALL.values(), *(c.bounds for c in rules.CONFIGURATIONS.values())]:
        used |= set(where)
    assert used <= tested
    assert all(w in rules.SMALL or w in rules.CONFIGURATIONS for m in rules.MUTANTS for w in m.where)


def test_every_mutant_is_told_of():
    """The list for programs is complete, and README.md has the same list."""
    out = subprocess.run(
        [sys.executable, HERE / "check.py", "list", "--json"], capture_output=True, text=True, check=True
    ).stdout
    listed = json.loads(out)
    assert len({m["id"] for m in listed}) == len(listed) == len(rules.MUTANTS)
    for m in listed:
        assert (
            m["rule"].endswith(".") and m["shows"].endswith(".") and m["layer"] in ("program", "controller", "client")
        )
    assert check.as_markdown() in (HERE / "README.md").read_text(), (
        "README.md needs the output of `check.py list --markdown`"
    )


def test_a_name_that_is_not_there():
    """A misspelt name is refused, and the message lists the valid names."""
    r = subprocess.run([sys.executable, HERE / "check.py", "mutants", "NO_SUCH_RULE"], capture_output=True, text=True)
    assert r.returncode == 2
    assert "NO_SUCH_RULE" in r.stderr and "NO_LEASE" in r.stderr


@needs_spin
@pytest.mark.parametrize("name", rules.QUICK_CONFIGURATIONS)
def test_no_violation(name):
    r = check.search(rules.CONFIGURATIONS[name].flags(), breadth_first=False)
    assert not r.violation, r.trail
    assert r.states > 10_000


@needs_spin
@pytest.mark.parametrize("name", rules.QUICK_MUTANTS)
def test_a_missing_rule_is_noticed(name):
    _, r = check.mutate(MUTANTS[name])
    assert r.violation
    assert "VIOLATION" in r.trail[-1]


@needs_spin
def test_both_searches_see_the_same_states():
    """A breadth-first search keeps the scratch variables in the state, and a depth-first search
    omits them. Both must find the same states.
    """
    flags = [f"-D{k}={v}" for k, v in rules.SMALL["two-writes"].items()]
    deep, broad = check.search(flags, breadth_first=False), check.search(flags, breadth_first=True)
    assert not deep.violation and not broad.violation
    # They differ by the states inside the set-up, which is one long atomic step.
    assert 0 <= broad.states - deep.states == broad.transitions - deep.transitions < 100


@needs_spin
def test_what_a_switch_would_drop_can_be_forgotten():
    """The network forgets a packet of a configuration that the packet's receiver has left. If it
    keeps all packets, the verdict is the same.
    """
    flags = [f"-D{k}={v}" for k, v in rules.SMALL["failover-kept"].items()]
    assert not check.search([*flags, "-DKEEP_ALL"], breadth_first=False).violation


@needs_spin
def test_a_bound_that_is_too_small_is_no_result():
    with pytest.raises(check.ModelError, match="bound"):
        check.search([*rules.CONFIGURATIONS["settles"].flags(), "-DPACKETS=1"], breadth_first=False)
