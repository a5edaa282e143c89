# SPDX-License-Identifier: Apache-2.0
"""Reference chains and controllers for the tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netcraq import node
from refchain import CHAIN, RefChain, RefController, StreamServer

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture()
def make_chain() -> Iterator[Callable[..., RefChain]]:
    """A function that makes reference chains with the keys 0 to 9 of chain 1. At the end, the
    fixture checks that no client has violated the protocol.
    """
    made: list[RefChain] = []

    def make(**config: object) -> RefChain:
        c = RefChain(**config)  # type: ignore[arg-type]
        c.place(*(CHAIN << 24 | n for n in range(10)))
        made.append(c)
        return c

    yield make
    for c in made:
        c.close()
    for c in made:
        assert c.violations == []


@pytest.fixture()
def make_controller(make_chain: object) -> Iterator[Callable[..., RefController]]:
    """A function that makes reference controllers for reference chains."""
    made: list[RefController] = []

    def make(chain: RefChain, **config: object) -> RefController:
        c = RefController(chain, **config)  # type: ignore[arg-type]
        made.append(c)
        return c

    yield make
    for c in made:
        c.close()


@pytest.fixture(scope="session")
def memserver_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a program that is a node API server with a store in memory."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("the node API's server is built with Go, which is not here")
    program = tmp_path_factory.mktemp("memserver") / "memserver"
    subprocess.run([go, "build", "-o", program, "./nodeapi/internal/memserver"], cwd=ROOT, check=True)
    return str(program)


@pytest.fixture()
def server(memserver_program: str) -> Iterator[StreamServer]:
    with tempfile.TemporaryDirectory() as place:
        made = StreamServer(memserver_program, place)
        yield made
        made.kill()


@pytest.fixture()
def client(server: StreamServer) -> Iterator[node.Client]:
    with node.connect(server.path, timeout=server.patience) as made:
        yield made
