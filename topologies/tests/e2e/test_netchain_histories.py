# SPDX-License-Identifier: Apache-2.0
"""NetChain on real switches: the clients' histories are linearizable while a switch fails and is
restored.
"""

import pytest

from experiments import timeline_run
from topologies import network_namespaces


@pytest.mark.parametrize("victim", ["s1", "s4"])
def test_nothing_acknowledged_is_lost_by_a_failover_and_a_recovery(kind, tmp_path, victim):
    times = timeline_run.Times(before=0.7, away=0.6, after=1.0)
    with network_namespaces.private():
        # This raises RunError if a read value was impossible.
        record = timeline_run.run("NetChain", kind, tmp_path, victim=victim, keys=200, times=times)
    assert [event.kind for event in record.events] == [
        "killed",
        "failed",
        "around",
        "restarted",
        "recovering",
        "recovered",
    ]
    back = next(event.at for event in record.events if event.kind == "recovered")
    phases = [(0, 0.7), (0.7, 1.3), (1.3, back), (back, record.seconds)]
    for asked in ("get", "put"):
        for start, end in phases:
            assert sum(start < answer.at < end for answer in record.answers if answer.kind == asked) > 20, (
                asked,
                start,
                end,
            )
    outages = record.outages()
    assert outages["failover_write_ms"] < 500 and outages["failover_read_ms"] < 500, outages
