# SPDX-License-Identifier: Apache-2.0
"""The examples in ``netchain-baseline/README.md`` work as shown."""

import re
import subprocess
import sys

import pytest

from topologies import network_namespaces, p4app
from topologies.tests.conftest import why_not

FOLDER = p4app.ROOT / "netchain-baseline"
NUMBERS = re.compile(r"\d[\d.]*(ms|s)?")


@pytest.mark.skipif(why_not("embedded") is not None, reason=str(why_not("embedded")))
def test_the_commands_of_the_readme_say_what_it_shows():
    _, _, rest = (FOLDER / "README.md").read_text().partition("```console\n")
    shown = rest.partition("```")[0].splitlines()[1:]
    commands = [line.removeprefix("netcraq> ") for line in shown if line.startswith("netcraq> ")]
    answers = [line for line in shown if not line.startswith("netcraq> ")]
    assert len(commands) > 5 and len(answers) > 4
    command = [sys.executable, str(FOLDER / "run.py")]
    with network_namespaces.private():
        text = "\n".join(commands) + "\n"
        done = subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=p4app.ROOT,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout
    said = iter(NUMBERS.sub("N", line.rpartition("netcraq> ")[2]) for line in done.stdout.splitlines())
    for answer in answers:  # in this order; numbers and times differ
        assert NUMBERS.sub("N", answer) in said, f"not said: {answer}\n{done.stdout}"
