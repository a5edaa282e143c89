# SPDX-License-Identifier: Apache-2.0
"""Pages of the site about the libraries, made from their own documentation comments.

They are not files of docs/, because they only repeat the sources. MkDocs calls `on_files`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]

GO = {
    "client/node": "the node API: keys by name, watches, locks, leases, elections, services",
    "client/streams": "streams",
    "client/streams/arrow": "Arrow in streams",
    "client/etcd": "etcd's client, which reads placed keys from the switches itself",
    "client": "packets to the switches, by KEY_ID and session: for experts",
}
"""Go packages, with what each is for."""

PYTHON = [
    "netcraq.node",
    "netcraq.node.aio",
    "netcraq.streams",
    "netcraq.streams.aio",
    "netcraq.client",
    "netcraq.admin",
]
"""Python modules. Those for experts are the last."""


def go() -> str:
    """A page with the output of `go doc` for each package."""
    page = ["# Go\n\nWhat `go doc -all` prints. The examples are in the packages' `example_test.go`.\n"]
    for folder, purpose in GO.items():
        said = subprocess.run(
            [os.environ.get("GO", "go"), "doc", "-all", "."],
            cwd=ROOT / folder, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        page.append(f"## {folder}\n\n`github.com/netcraq/netcraq/{folder}`: {purpose}.\n\n```go\n{said.strip()}\n```\n")
    return "\n".join(page)


def python() -> str:
    """A page with the modules' docstrings and types, which mkdocstrings inserts."""
    page = ["# Python\n\n`netcraq.connect()` is `netcraq.node.connect()`.\n"]
    page += [f"::: {module}\n" for module in PYTHON]
    return "\n".join(page)


def javascript() -> str:
    """A page with the library's TypeScript declarations and their comments."""
    types = (ROOT / "client" / "js" / "index.d.cts").read_text()
    types = re.sub(r"\A(?://.*\n)+", "", types)
    return f"# JavaScript and TypeScript\n\nThe declarations of the package `netcraq`.\n\n```ts\n{types.strip()}\n```\n"


def on_files(files: Any, config: Any) -> Any:
    """Add these pages, and the files that javadoc wrote for `make docs`."""
    for name, text in (("go", go()), ("python", python()), ("javascript", javascript())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    written = ROOT / "out" / "docs"
    for path in sorted((written / "java").rglob("*")):
        if path.is_file():
            name = path.relative_to(written).as_posix()
            files.append(File.generated(config, f"reference/{name}", abs_src_path=str(path)))
    return files


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Remove Sphinx roles, which docstrings contain for other tools."""
    if page.file.src_uri != "reference/python.md":
        return html
    return re.sub(r":(?:mod|class|func|meth|attr|exc|data):(?=<)", "", html)
