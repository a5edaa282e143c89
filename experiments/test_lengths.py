# SPDX-License-Identifier: Apache-2.0
"""Demonstrations refuse durations that are too short for a measurement, before they start."""

import pytest

pytest.importorskip("mininet", reason="Mininet is not installed (Debian's package mininet)")

from experiments import demo, gain, hot_keys


@pytest.mark.parametrize(
    ("program", "flag"),
    [(demo, "--load"), (demo, "--replay"), (gain, "--seconds"), (gain, "--warm"), (hot_keys, "--row")],
)
def test_lengths(program, flag, capsys):
    """A load of 0 seconds would be a division by zero at the end of the run."""
    parser = program.arguments()
    name = flag.removeprefix("--")
    assert getattr(parser.parse_args([flag, "0.5"]), name) == 0.5
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(SystemExit):
            parser.parse_args([f"{flag}={wrong}"])
        assert f"argument {flag}: {wrong}: pass seconds, more than 0" in capsys.readouterr().err
