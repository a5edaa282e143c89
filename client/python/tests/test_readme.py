# SPDX-License-Identifier: Apache-2.0
"""Tests that the code blocks of the README work as pasted. Blocks that are not run are listed with
a reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from refchain import RefController

ROOT = Path(__file__).resolve().parents[3]
HOSTS = "topologies/README.md"
"""The page about programs that run inside hosts of a test network."""

PATIENCE = 60
"""The number of seconds in which a program starts and does a little work, even on a busy
machine."""


RUN = [
    "nc -N -U",
    "node.Connect(",
    "netcraq.connect()",
    "from 'netcraq'",
    "client.open_stream",
]
"""One text from each code block that a test below runs."""

NOT_RUN = {
    "reads: any switch": "a drawing",
    "make test ": "jobs of CI run these targets",
    "netcraq put greeting": "TestReadme of cmd/netcraq runs it",
    "netcraq> h1": "TestReadme of cmd/internal/operate runs it",
    "make figures-quick": "they measure for minutes to hours; experiments/test_figures.py tests what they are made of",
    "bin/netcraq-switch -i": "it takes the reader's program and interfaces; the tests of switch/cmd/netcraq-switch start it",
}
"""One text from each code block that no test here runs, with the reason."""


def blocks(page: str = "README.md") -> list[tuple[str, str]]:
    """A page's code blocks, with their languages."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def block(language: str, with_text: str, page: str = "README.md") -> str:
    """The only code block in a language that contains a text."""
    assert with_text in RUN or page != "README.md"
    (found,) = [text for of, text in blocks(page) if of == language and with_text in text]
    return found


def test_each_block_is_run_or_named() -> None:
    for _, text in blocks():
        assert len([known for known in [*RUN, *NOT_RUN] if known in text]) == 1, text
    assert len(blocks()) == len(RUN) + len(NOT_RUN)


@pytest.fixture(scope="session")
def go() -> str:
    found = shutil.which("go")
    if found is None:
        pytest.skip("Go is not here")
    return found


@pytest.fixture()
def place(server: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server at the address that the README sets with export."""
    monkeypatch.setenv("NETCRAQ_NODE_SOCKET", server.path)  # type: ignore[attr-defined]


def run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("place")
def test_the_line_of_json() -> None:
    if shutil.which("nc") is None:
        pytest.skip("nc is not installed (Debian's package netcat-openbsd)")
    line = block("console", "nc -N -U").removeprefix("$ ")
    assert '"version":"1.1"' in run("sh", "-c", line)


@pytest.mark.usefixtures("place")
def test_python() -> None:
    assert run(sys.executable, "-c", block("python", "netcraq.connect()")).startswith("b'blue' ")


@pytest.mark.usefixtures("place")
def test_streams() -> None:
    program = block("python", "client.open_stream")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as reader:
        assert reader.stdout is not None
        try:
            assert [reader.stdout.readline() for _ in range(2)] == ["0 b'two pears'\n", "1 b'a plum'\n"]
        finally:
            reader.kill()


@pytest.mark.usefixtures("place")
def test_javascript(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed (Debian's package nodejs)")
    program = tmp_path / "program.mjs"
    library = (ROOT / "client/js/index.mjs").as_uri()
    program.write_text(block("js", "from 'netcraq'").replace("'netcraq'", f"'{library}'"))
    assert run(node, str(program)).startswith("blue ")
    assert run(node, str(program)).startswith("blue ")  # no one holds the lock anymore


@pytest.mark.usefixtures("place")
def test_go(go: str, tmp_path: Path) -> None:
    program, overlay = tmp_path / "main.go", tmp_path / "overlay.json"
    body = re.sub(r"^(.*err :?= .*)$", r"\1\nif err != nil { panic(err) }", block("go", "node.Connect("), flags=re.M)
    imports = "".join(f'"{name}"\n' for name in ("context", "fmt", "github.com/netcraq/netcraq/client/node"))
    end = "fmt.Println(string(item.Value), item.Version == version, lock.Token())\n"
    program.write_text(
        f"package main\nimport ({imports})\nfunc main() {{\nctx := context.Background()\n{body}{end}}}\n"
    )
    where = ROOT / "cmd" / "readme"
    overlay.write_text(json.dumps({"Replace": {str(where / "main.go"): str(program)}}))
    binary = tmp_path / "readme"
    subprocess.run([go, "build", "-overlay", overlay, "-o", binary, "./cmd/readme"], cwd=ROOT, check=True)
    assert run(str(binary)).startswith("blue true ")


@pytest.fixture()
def controller(
    make_chain: Callable[..., object], make_controller: Callable[..., RefController], monkeypatch: pytest.MonkeyPatch
) -> RefController:
    """A controller and a chain, at the default address of a controller."""
    made = make_controller(make_chain(addresses=2))
    monkeypatch.setenv("NETCRAQ_ADMIN", made.url)
    return made


def test_in_a_host(controller: RefController) -> None:
    controller.put("/leader", 1, b"alice")
    assert (
        run(sys.executable, "-c", block("python", "from netcraq.admin import Admin", HOSTS))
        == f"{1 << 48 | 2} b'dave'\n"
    )


def test_asyncio(controller: RefController) -> None:
    keys = [controller.put(f"/key/{n}", n, b"%d" % n) for n in range(3)]
    program = block("python", "from netcraq.aio import Client", HOSTS)
    body = textwrap.indent(f"{program}print([v.value for v in values])\n", "    ")
    program = f"import asyncio\nkeys = {keys}\nasync def main():\n{body}asyncio.run(main())\n"
    assert run(sys.executable, "-c", program) == "[b'0', b'1', b'2']\n"


PAGES = sorted([*(ROOT / "docs" / "tutorials").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")])
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\nIt prints:\n\n```text\n(.*?)^```", re.M | re.S)
"""A program on a page, and the output that the page shows. "..." stands for any text."""


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text()], ids=lambda page: page.stem)
def test_programs_of_pages(page: Path) -> None:
    programs = PROGRAM.findall(page.read_text())
    assert len(programs) == page.read_text().count("```python"), "each program is followed by what it prints"
    for program, want in programs:
        said = run(sys.executable, "-c", program)
        assert re.fullmatch(re.escape(want).replace(r"\.\.\.", ".*"), said), said


def test_languages_of_pages() -> None:
    """Each program on these pages is in a language for which a test runs programs."""
    for page in PAGES:
        languages = {language for language, _ in blocks(str(page.relative_to(ROOT)))}
        assert languages <= {"console", "python", "text", "yaml"}, page


def test_security_of_a_lab_network() -> None:
    typed = [
        text for _, text in blocks("docs/how-to/secure-a-lab-network.md") if "launch.py" in text and "--check" in text
    ]
    assert len(typed) == 2
    for text in typed:
        line, want = text.split("\n", 1)
        program, *arguments = line.removeprefix("$ ").split()
        assert program == ".venv/bin/python"
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        pattern = re.escape(want).replace(r"\.\.\.", ".*")
        assert re.fullmatch(pattern, done.stdout, re.S), done.stdout


def test_values_of_the_chart() -> None:
    """All values that pages pass to helm are in the list of the chart's values."""
    values = set(re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/reference/chart.md").read_text(), re.M))
    assert len(values) > 20
    for page in PAGES:
        for name in re.findall(r"--set ([\w.]+)=", page.read_text()):
            assert any(f"{name}.".startswith(f"{value}.") for value in values), f"{page}: {name}"


def test_the_cluster_tutorial_has_the_lines_of_the_quick_start() -> None:
    """The tutorial has the same commands as docs/kubernetes.md, which `make e2e-k8s` runs."""
    typed = [line for _, text in blocks("docs/tutorials/cluster.md") for line in text.splitlines()]
    known = block("console", "$ helm install netcraq", "docs/kubernetes.md").splitlines()
    assert typed == known
