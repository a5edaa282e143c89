# SPDX-License-Identifier: Apache-2.0
"""Checks links so that they work both in the repository and in the documentation site.

MkDocs checks links between pages of docs/. A link from docs/ to another file of the tree
(../README.md, ../p4src) would lead nowhere in the site. `on_page_markdown` checks such a link and
points it at the source's host.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

log = logging.getLogger("mkdocs.docs_links")  # `mkdocs build --strict` fails on its warnings
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]*)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^ *(```|~~~)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")


def anchor(heading: str, separator: str = "-") -> str:
    """The anchor that a repository's host gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", separator)


def outside_code(text: str) -> list[tuple[str, bool]]:
    """A page's lines. The second value of a line is false if it is code between fences."""
    lines, code = [], False
    for line in text.splitlines(keepends=True):
        fence = FENCE.match(line) is not None
        lines.append((line, not code and not fence))
        code ^= fence
    return lines


def anchors(text: str) -> set[str]:
    """The anchors of a page: those of its headings, and those it defines in HTML."""
    found: set[str] = set()
    for line, is_text in outside_code(text):
        found.update(re.findall(r'<a id="([^"]+)">', line))
        if is_text and (heading := HEADING.match(line.rstrip("\n"))):
            made = anchor(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]))
            n = 1
            while (made if n == 1 else f"{made}-{n - 1}") in found:
                n += 1
            found.add(made if n == 1 else f"{made}-{n - 1}")
    return found


def problem(target: Path, fragment: str) -> str:
    """Describes what is wrong with a link to a file of the tree; an empty string if it is right."""
    if not target.exists():
        return "there is no such file"
    if fragment and (target.suffix != ".md" or fragment not in anchors(target.read_text())):
        return f"it has no heading #{fragment}"
    return ""


def rewrite(text: str, source: Path, docs: Path, host: str, root: Path = ROOT) -> tuple[str, list[str]]:
    """A page's text in which links that leave docs/ point at the host.

    The second result describes the links that are wrong.
    """
    wrong: list[str] = []

    def replace(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / link["path"])) if link["path"] else source
        if target.is_relative_to(docs):
            return link[0]  # MkDocs checks links between pages
        fragment = link["anchor"] or ""
        if why := problem(target, fragment.removeprefix("#")):
            wrong.append(f"the link {link[0]}: {why}")
        view = "tree" if target.is_dir() else "blob"
        return f"{host}/{view}/main/{target.relative_to(root).as_posix()}{fragment}"

    lines = [LINK.sub(replace, line) if is_text else line for line, is_text in outside_code(text)]
    return "".join(lines), wrong


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """MkDocs calls this with each page's text."""
    source = Path(config.docs_dir) / page.file.src_uri  # a generated page has no file
    text, wrong = rewrite(markdown, source, Path(config.docs_dir), config.extra["source"])
    for why in wrong:
        log.warning("%s: %s", page.file.src_uri, why)
    return text
