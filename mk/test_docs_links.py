# SPDX-License-Identifier: Apache-2.0
"""Checks the documentation's links without MkDocs."""

from __future__ import annotations

from pathlib import Path

import docs_links
import pytest

HOST = "https://host/project"


@pytest.fixture()
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "how-to").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "README.md").write_text(
        '# Name\n\n## A part\n\n```sh\n# not a heading\n```\n\n## A part\n\n<a id="set"></a>\n'
    )
    return tmp_path


def rewrite(tree: Path, text: str) -> tuple[str, list[str]]:
    page = tree / "docs" / "how-to" / "page.md"
    return docs_links.rewrite(text, page, tree / "docs", HOST, tree)


@pytest.mark.parametrize(
    ("link", "want"),
    [
        ("../../README.md#a-part-1", f"{HOST}/blob/main/README.md#a-part-1"),
        ("../../README.md#set", f"{HOST}/blob/main/README.md#set"),
        ("../../src", f"{HOST}/tree/main/src"),
        ("../other.md#x", "../other.md#x"),
        ("https://example.com/a", "https://example.com/a"),
        ("#here", "#here"),
    ],
)
def test_a_link(tree: Path, link: str, want: str) -> None:
    assert rewrite(tree, f"See [it]({link}).\n") == (f"See [it]({want}).\n", [])


@pytest.mark.parametrize("link", ["../../gone.md", "../../README.md#not-a-heading", "../../src#x"])
def test_a_wrong_link_is_named(tree: Path, link: str) -> None:
    _, wrong = rewrite(tree, f"[it]({link})\n")
    assert len(wrong) == 1
    assert link in wrong[0]


def test_code_stays(tree: Path) -> None:
    text = "```md\n[it](../../gone.md)\n```\n"
    assert rewrite(tree, text) == (text, [])


@pytest.mark.parametrize(
    ("heading", "want"),
    [("`netcraq dev`, and more", "netcraq-dev-and-more"), ("A_b - c", "a_b---c"), ("What? Why!", "what-why")],
)
def test_anchor(heading: str, want: str) -> None:
    assert docs_links.anchor(heading) == want


def test_the_documents_of_the_tree() -> None:
    """The links of every page are right: those within docs/, and those that leave it."""
    found = []
    for page in [docs_links.ROOT / "README.md", *sorted(docs_links.DOCS.rglob("*.md"))]:
        _, wrong = docs_links.rewrite(page.read_text(), page, Path("/nowhere"), HOST)
        found += [f"{page.relative_to(docs_links.ROOT)}: {why}" for why in wrong]
    assert not found
