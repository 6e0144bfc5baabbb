"""Pages fit the site: they are in the navigation, their code is not cut, their pictures have a text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pages import cli, operators

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
PAGES["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
COLUMNS = 80
"""Code of more columns wraps on a screen of 1,440 pixels."""

WIDE = {"README.md", "examples/cli/doctor.md"}
"""Pages that quote wider messages and files, which wrap."""

MAX_WORDS, MAX_TABLES, GUIDE_COLUMNS = 1500, 4, 60
"""A guide is read in five minutes, and its code fits a phone."""

TABLES_OF_RESULTS = {
    *("accuracy.md", "conformance-table.md", "formulas.md", "mutants.md", "onnx-backend.md", "onnx-models.md"),
    *("operator-accuracy.md", "pytorch-clients.md", "pytorch-operators.md", "speed.md"),
}
"""Pages that list results; scripts write their tables."""

GUIDES = sorted(
    page
    for page in PAGES.keys() - TABLES_OF_RESULTS - {"README.md"}
    if not page.startswith(("examples/", "reference/"))
)


def tokens(page: str) -> list[Token]:
    """The Markdown of a page; HTML around it hides nothing."""
    text = re.sub(r"^</?(?:div|figure|figcaption)[^>]*>$", "", PAGES[page], flags=re.MULTILINE)
    return MarkdownIt("commonmark").enable("table").parse(text)


def code_lines(page: str) -> Iterator[str]:
    """The lines of a page's code, without output and quoted files."""
    for token in tokens(page):
        if token.type in ("fence", "code_block") and "title=" not in token.info and token.info != "text":
            yield from token.content.splitlines()


def cells(page: str) -> Iterator[str]:
    """The cells of a page's tables."""
    parsed = tokens(page)
    yield from (token.content for before, token in itertools.pairwise(parsed) if before.type == "td_open")


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
    """Except output and quoted files, which wrap."""
    assert [line for line in code_lines(page) if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_is_short(page: str) -> None:
    """Guides teach; measurements belong into benchmarks/results and on the performance page."""
    words = sum(len(token.content.split()) for token in tokens(page) if token.type == "inline")
    tables = sum(token.type == "table_open" for token in tokens(page))
    wide = [line for line in code_lines(page) if len(line) > GUIDE_COLUMNS]
    prose = [cell for cell in cells(page) if re.search(r"[.?] (?=[A-Z`])", cell)]
    assert words <= MAX_WORDS, f"{words} words; split the page by topic"
    assert tables <= MAX_TABLES, f"{tables} tables; move measurements to benchmarks/results, prose into paragraphs"
    assert wide == [], "put long comments on lines of their own"
    assert prose == [], "a cell of two sentences is a paragraph"


def test_guides_are_found() -> None:
    assert {"devices.md", "architecture.md", "internals/schedules.md"} <= set(GUIDES)
    assert PAGES.keys() >= TABLES_OF_RESULTS


@pytest.mark.parametrize("page", PAGES)
def test_pictures_have_a_text(page: str) -> None:
    pictures = [child for token in tokens(page) for child in token.children or () if child.type == "image"]
    assert [picture.attrs["src"] for picture in pictures if len(picture.content) < 10] == []
    assert re.findall(r"<img(?![^>]* alt=\"[^\"]+\")[^>]*>", PAGES[page]) == []


def test_pictures_are_found() -> None:
    assert sum(child.type == "image" for token in tokens("index.md") for child in token.children or ()) == 3


def test_long_generated_pages_have_headings() -> None:
    """Ten screens of 900 pixels are some 230 rows of a table."""
    for name, text in (operators.pages() | cli.pages()).items():
        assert len(text.splitlines()) < 150 or text.count("\n## ") >= 3, name


FOLDERS = [path.name for base in (ROOT, ROOT / "dmlgpu") for path in base.iterdir() if path.is_dir()]

INVENTED = {"dmlgpu/programs", "docs/examples/gather_elements.py", "shaders/schedules/gemm_NAME.wgsl"}
"""A folder of a cache, and names that stand for the reader's."""


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    """Paths from the repository's root, and in pages about dmlgpu's own packages from its folder as well."""
    paths = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", PAGES[page])
    bases = (ROOT, ROOT / "dmlgpu") if page == "architecture.md" or page.startswith("internals/") else (ROOT,)
    assert [path for path in paths if path not in INVENTED and not any((base / path).exists() for base in bases)] == []
