"""The documentation site builds without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dmlgpu import Tensor, array, ops
from dmlgpu.catalog import catalog

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return target


def test_every_operator_has_a_page(site: Path) -> None:
    pages = {path.stem for path in (site / "operators").glob("*.html")} - {"index", "by_task"}
    assert len(pages) == 177
    assert pages == {schema.stem for schema in catalog().values()}


def test_every_verb_has_a_page(site: Path) -> None:
    pages = {path.stem for path in (site / "cli").glob("*.html")}
    assert {"index", "bench", "bench-run", "devices", "ops", "run", "test"} <= pages
    assert '<h1 id="dmlgpu-test">' in (site / "cli" / "test.html").read_text(encoding="utf-8")


def test_every_page_by_hand_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    folders = (docs, docs / "tutorial", docs / "migration", docs / "reference")
    pages = [page for folder in folders for page in folder.glob("*.md")]
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert [page.name for page in pages if page.relative_to(docs).as_posix() not in navigation] == []


@pytest.mark.parametrize(("module", "page"), [(ops, "ops"), (array, "array"), (Tensor, "tensor")])
def test_the_reference_shows_signature_and_docs_of_every_function(site: Path, module: Any, page: str) -> None:
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    functions = {name for name in dir(module) if name[0] != "_" and inspect.isroutine(getattr(module, name))}
    shown = {anchor.rpartition(".")[2]: anchor for anchor in re.findall(r'id="(dmlgpu\.[\w.]+)"', text)}
    assert len(functions) > 25
    assert functions - shown.keys() == set()
    for name in functions:
        entry = text.partition(f'id="{shown[name]}"')[2].partition("<h3 ")[0]
        first_line = (inspect.getdoc(getattr(module, name)) or "").partition("\n")[0]
        words = re.sub(r"[\W_]+", " ", html.unescape(re.sub(r"<[^>]+>", "", entry)))
        assert f"{name}(" in re.sub(r"<[^>]+>", "", entry)
        assert re.sub(r"[\W_]+", " ", first_line).strip() in words


def test_docstrings_link_operators_documents_and_functions(site: Path) -> None:
    text = (site / "reference" / "ops.html").read_text(encoding="utf-8")
    assert '<a href="../operators/activation_softmax1.html">ACTIVATION_SOFTMAX1</a>' in text
    document = (
        "https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_activation_softmax1_operator_desc"
    )
    assert f'<a href="{document}">' in text
    assert '<a href="#dmlgpu.ops.nn.log_softmax"><code>log_softmax</code></a>' in text


def test_links_to_files_of_the_repository_lead_to_their_source(site: Path) -> None:
    page = (site / "operators" / "gemm.html").read_text(encoding="utf-8")
    assert 'href="../source/shaders/matrix/gemm.wgsl.html"' in page
    source = (site / "source" / "shaders" / "matrix" / "gemm.wgsl.html").read_text(encoding="utf-8")
    first = (ROOT / "shaders" / "matrix" / "gemm.wgsl").read_text(encoding="utf-8").splitlines()[0]
    assert first in re.sub(r"<[^>]+>", "", source)


@pytest.mark.parametrize("page", ["index.html", "tutorial/operators.html", "operators/gemm.html"])
def test_pages_load_nothing_from_other_hosts(site: Path, page: str) -> None:
    text = (site / page).read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?([^\" >]+)", text)
    for link in re.findall(r"<link[^>]*>", text):
        if "stylesheet" in link or "icon" in link:
            loaded += re.findall(r"href=\"?([^\" >]+)", link)
    assert len(loaded) >= 3
    assert not [address for address in loaded if "//" in address]
