# SPDX-License-Identifier: Apache-2.0
"""What the tests that start networks share."""

import os
import shutil

import pytest

from topologies import network_namespaces, ownership, p4app


def why_not(switch):
    """Why a network of these switches cannot be started on this machine; None where it can."""
    if os.geteuid() != 0:
        return "networks need root"
    if shutil.which("mnexec") is None:
        return "Mininet is not installed (make deps)"
    if switch == "bmv2" and shutil.which("simple_switch_grpc") is None:
        return "simple_switch_grpc (BMv2) is not on PATH"
    return None


def runs_here():
    """The runs that live in this network namespace. Others may live on the machine, in others."""
    here = network_namespaces.identity()
    return {run_id for run_id, what in ownership._living().items() if what.get("namespace") == here}


def processes_here():
    """The processes of runs of this network namespace, and of dead ones."""
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
    """A network namespace of the module's own, so that its ports and interfaces meet
    nobody else's.
    """
    with network_namespaces.private():
        yield
