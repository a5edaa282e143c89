# SPDX-License-Identifier: Apache-2.0
"""nsg-ethz/p4-learning's exercises and examples on p4-utils' runner, with its Thrift and its
P4Runtime switches. Each network is begun by its own script, which compiles, starts switches and
controllers and fills tables; then all hosts ping each other.
"""

from __future__ import annotations

import re
from pathlib import Path

from .outcome import Outcome
from .ptf import copy
from .sandbox import Tools, run

# What needs more than a switch and hosts: routers' daemons, a chip's model.
_BEYOND = re.compile(r"addRouter|addTofino|addFRRouter")

_COLOUR = re.compile(r"\x1b\[\d*m")


def networks(source: Path) -> list[str]:
    """The scripts that begin a network, by their paths: of examples and of exercises' solutions."""
    found = [*source.glob("examples/**/network*.py"), *source.glob("exercises/**/solution/network*.py")]
    wanted = [p for p in found if "generator" not in p.name and not _BEYOND.search(p.read_text())]
    return sorted(str(p.relative_to(source)) for p in wanted)


def pings(output: str) -> str:
    """Who reached whom, as ``pingall`` prints it: ``h1 -> h2 X``, a line for each host."""
    lines = re.findall(r"^(?:mininet> )?(\w+ -> (?:\w+ ?)+?) *$", output, re.MULTILINE)
    return "; ".join(x.strip() for x in lines)


def attempt(script: str, source: Path, utils: Path, work: Path, tools: Tools) -> Outcome:
    """Begin a network, and have its hosts ping each other. What ``reason`` says of a network that
    runs is who reached whom: whether that is right is for BMv2 to say.
    """
    there = (copy(source, work) / script).parent
    python = {"PYTHONPATH": str(utils)}
    # Controllers are begun, and not waited for; those that go on for good get 20 s.
    ended = "for i in $(seq 100); do pgrep -f '[p]ython.*controller' >/dev/null || break; sleep 0.2; done"
    typed = f"sh {ended}\npingall 2\nexit\n"
    result = run(["python3", Path(script).name], tools, there, work / "prompt.log", 240, typed, python)
    said = _COLOUR.sub("", result.output)
    if result.code is None:
        return Outcome(False, "not done after 240 s")
    wrong = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .*", said, re.MULTILINE)
    if wrong:
        return Outcome(False, wrong[0][:200])
    reached = pings(said)
    return Outcome(bool(reached), reached or "the network did not come up: " + said.strip()[-160:])
