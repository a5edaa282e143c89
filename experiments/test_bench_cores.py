# SPDX-License-Identifier: Apache-2.0
"""``make bench-cores``: its topology, and the evaluation of slices."""

import pytest

from experiments import bench_cores


def test_two_hosts_are_at_the_switch_that_is_the_chain():
    topology = bench_cores.topology()
    assert topology.chains[0].members == ("s1",)
    assert [topology.hosts[name].switch for name in bench_cores.HOSTS] == ["s1", "s1"]


def test_a_ratio_is_of_both_clients_to_the_mean_of_one():
    rows = [{"first": 100.0, "second": 300.0, "both": 400.0}, {"first": 100.0, "second": 100.0, "both": 90.0}]
    assert bench_cores.ratios(rows) == pytest.approx([2.0, 0.9])
