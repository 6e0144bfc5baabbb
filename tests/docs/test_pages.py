"""Pages fit the site: they are in the navigation, their code is not cut, their pictures have a text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pages import cli, operators

from dmlgpu import ops

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
PAGES["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
COLUMNS = 80
"""Code of more columns wraps on a screen of 1,440 pixels."""

WIDE = {"README.md", "architecture.md", "devices.md", "examples/cli/doctor.md"}
"""Pages that quote wider messages and files, which wrap."""


def tokens(page: str) -> list[Token]:
    """The Markdown of a page; HTML around it hides nothing."""
    text = re.sub(r"^</?(?:div|figure|figcaption)[^>]*>$", "", PAGES[page], flags=re.MULTILINE)
    return MarkdownIt("commonmark").enable("table").parse(text)


def entries(navigation: Any) -> Iterator[str]:
    """The paths of a navigation."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for entry in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from entries(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [path for path in entries(CONFIGURATION["nav"]) if path in PAGES]
    excluded = tuple(CONFIGURATION["exclude_docs"].split())
    assert excluded == ("examples/",)
    assert sorted(listed) == sorted(page for page in PAGES if page != "README.md" and not page.startswith(excluded))


@pytest.mark.parametrize("page", sorted(PAGES.keys() - WIDE))
def test_code_is_not_cut(page: str) -> None:
    """But for output and what is quoted from a file, which wrap."""
    wide = [
        line
        for token in tokens(page)
        if token.type in ("fence", "code_block") and "title=" not in token.info and token.info != "text"
        for line in token.content.splitlines()
        if len(line) > COLUMNS
    ]
    assert wide == []


def test_the_page_of_arrays_lists_all_functions() -> None:
    table = PAGES["arrays.md"].partition("| topic | functions of `ops` |")[2].partition("\n\n")[0]
    listed = re.findall(r"`(\w+)`", table)
    assert sorted(listed) == sorted(name for name in ops.__all__ if inspect.isfunction(getattr(ops, name)))


@pytest.mark.parametrize("page", PAGES)
def test_pictures_have_a_text(page: str) -> None:
    pictures = [child for token in tokens(page) for child in token.children or () if child.type == "image"]
    assert [picture.attrs["src"] for picture in pictures if len(picture.content) < 10] == []
    assert re.findall(r"<img(?![^>]* alt=\"[^\"]+\")[^>]*>", PAGES[page]) == []


def test_pictures_are_found() -> None:
    assert sum(child.type == "image" for token in tokens("index.md") for child in token.children or ()) == 1


def test_long_generated_pages_have_headings() -> None:
    """Ten screens of 900 pixels are some 230 rows of a table."""
    for name, text in (operators.pages() | cli.pages()).items():
        assert len(text.splitlines()) < 150 or text.count("\n## ") >= 3, name
