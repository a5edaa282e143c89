# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the tests that start networks."""

import os
import shutil

import pytest

from topologies import network_namespaces, ownership, p4app


def why_not(switch):
    """Return why a network of these switches cannot start on this machine; None if it can."""
    if os.geteuid() != 0:
        return "networks need root"
    if shutil.which("mnexec") is None:
        return "Mininet is not installed (make deps)"
    if switch == "bmv2" and shutil.which("simple_switch_grpc") is None:
        return "simple_switch_grpc (BMv2) is not on PATH"
    return None


def runs_here():
    """Return the runs in this network namespace. Other namespaces may have runs, too."""
    here = network_namespaces.identity()
    return {run_id for run_id, what in ownership._living().items() if what.get("namespace") == here}


def processes_here():
    """Return the processes of this network namespace's runs and of dead runs."""
    elsewhere = set(ownership._living()) - runs_here()
    return [(pid, run_id) for pid, run_id in ownership._processes() if run_id not in elsewhere]


@pytest.fixture(scope="module", params=["embedded", "bmv2"])
def switch(request):
    """The kind of switch that the networks of a test run on."""
    if reason := why_not(request.param):
        pytest.skip(reason)
    if request.param == "embedded" and not (p4app.ROOT / "bin" / "netcraq-switch").exists():
        pytest.fail("bin/netcraq-switch is not built: run make build")
    return request.param


@pytest.fixture(scope="module")
def private(switch):
    """Run the module in a network namespace of its own, so that its ports and interfaces conflict
    with no others.
    """
    with network_namespaces.private():
        yield
