"""The documentation site builds without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import html
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
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


def test_contributing_is_on_the_site_with_links_to_pages_and_files(site: Path) -> None:
    text = (site / "contributing.html").read_text(encoding="utf-8")
    for target in (
        "internals/schedules.html",
        "internals/onnx-operators.html",
        "internals/torch-operators.html",
        "source/CHANGELOG.md.html",
    ):
        assert f'href="{target}"' in text


def test_every_page_by_hand_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    names = ("internals", "migration", "reference", "reference/ops", "tutorial")
    folders = (docs, *(docs / name for name in names))
    pages = [page for folder in folders for page in folder.glob("*.md")]
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert [page.name for page in pages if page.relative_to(docs).as_posix() not in navigation] == []


OPS = ("ops.html", "ops/*.html")
"""The list of the functions of ``dmlgpu.ops``, and the pages of its parts."""


@pytest.mark.parametrize(
    ("module", "pages"),
    [(ops, OPS), (ops.linalg, OPS), (ops.fft, OPS), (array, ["array.html"]), (Tensor, ["tensor.html"])],
)
def test_the_reference_shows_signature_and_docs_of_every_function(site: Path, module: Any, pages: list[str]) -> None:
    paths = [path for pattern in pages for path in sorted((site / "reference").glob(pattern))]
    text = "".join(path.read_text(encoding="utf-8") for path in reversed(paths))  # the list repeats the anchors
    functions = {name for name in dir(module) if name[0] != "_" and inspect.isroutine(getattr(module, name))}
    anchors = set(re.findall(r'id="(dmlgpu\.[\w.]+)"', text))
    shown = {anchor.rpartition(".")[2]: anchor for anchor in anchors}
    for name in functions & shown.keys():  # two modules may have a function of one name
        own = f"{getattr(module, name).__module__}.{name}"
        shown[name] = own if own in anchors else shown[name]
    assert len(functions) > 15
    assert functions - shown.keys() == set()
    for name in functions:
        entry = text.partition(f'id="{shown[name]}"')[2].partition("<h3 ")[0]
        first_line = (inspect.getdoc(getattr(module, name)) or "").partition("\n")[0]
        words = re.sub(r"[\W_]+", " ", html.unescape(re.sub(r"<[^>]+>", "", entry)))
        assert f"{name}(" in re.sub(r"<[^>]+>", "", entry)
        assert re.sub(r"[\W_]+", " ", first_line).strip() in words


def test_docstrings_link_operators_documents_and_functions(site: Path) -> None:
    text = (site / "reference" / "ops" / "activations.html").read_text(encoding="utf-8")
    assert '<a href="../../operators/activation_softmax1.html">ACTIVATION_SOFTMAX1</a>' in text
    document = (
        "https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_activation_softmax1_operator_desc"
    )
    assert f'<a href="{document}">' in text
    assert '<a href="#dmlgpu.ops.activations.log_softmax"><code>log_softmax</code></a>' in text


def test_functions_of_ops_are_listed_with_the_anchors_that_they_had(site: Path) -> None:
    """Links to the page that had all functions lead to the list, and from there to the page of the function."""
    text = (site / "reference" / "ops.html").read_text(encoding="utf-8")
    links = dict(re.findall(r'<a href="(ops/[\w-]+\.html#dmlgpu\.[\w.]+)" id="(dmlgpu\.[\w.]+)">', text))
    assert len(links) > 250
    assert links["ops/activations.html#dmlgpu.ops.activations.relu"] == "dmlgpu.ops.activations.relu"
    for link in links:
        page, _, anchor = link.partition("#")
        assert f'id="{anchor}"' in (site / "reference" / page).read_text(encoding="utf-8"), link


def test_parts_of_the_reference_are_short(site: Path) -> None:
    for path in (site / "reference" / "ops").glob("*.html"):
        assert path.read_text(encoding="utf-8").count("<h3 ") <= 18, path.name


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


def test_pages_lead_on(site: Path) -> None:
    links = re.compile(r'<a href="([^"]+)" class="md-footer__link md-footer__link--(prev|next)"')
    page = (site / "tutorial" / "graphs.html").read_text(encoding="utf-8")
    assert links.findall(page) == [("operators.html", "prev"), ("models.html", "next")]
    operator = (site / "operators" / "gemm.html").read_text(encoding="utf-8")
    assert 'href="matrix_multiply_integer.html" class="md-nav__link"' in operator  # beside it: its task's operators


def test_every_page_says_the_version(site: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    for page in ("index.html", "cli/test.html", "operators/gemm.html"):
        assert f"dmlgpu {version} · Apache-2.0" in (site / page).read_text(encoding="utf-8")


def test_numbers_stay_with_their_units(site: Path) -> None:
    page = (site / "speed.html").read_text(encoding="utf-8")
    assert re.search(r"<td[^>]*>[\d.]+&nbsp;us<br", page)
    report = (site / "conformance-table.html").read_text(encoding="utf-8")
    assert re.search(r'<td><span class="nowrap">\d{4}-\d\d-\d\d \d\d:\d\d UTC</span></td>', report)


def test_names_break_after_underscores(site: Path) -> None:
    page = (site / "operators" / "mean_variance_normalization2.html").read_text(encoding="utf-8")
    assert ">MEAN_<wbr>VARIANCE_<wbr>NORMALIZATION2<" in page
    titles = {entry["title"] for entry in _index(site)}
    assert "MEAN_VARIANCE_NORMALIZATION2" in titles  # what is searched for has no such breaks


def test_parts_of_names_are_found(site: Path) -> None:
    """By the expression at which the search separates words, and with tables of results last."""
    configuration = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["config"]
    words = {
        word.lower()
        for text in ("ACTIVATION_SOFTMAX1", "ops.layer_norm(x)")
        for word in re.split(configuration["separator"], text)
    }
    assert {"softmax1", "layer", "norm"} <= words
    boosts = {entry["location"]: entry.get("boost", 1) for entry in _index(site)}
    assert boosts["arrays.html"] > boosts["formulas.html"] > 0
    assert boosts["timing.html"] == boosts["reference/ops/layers.html"] > boosts["reference/device.html"]
    assert boosts["reference/device.html"] > boosts["operators/gemm.html"] > boosts["operators/resample.html"] > 0


def _index(site: Path) -> list[dict[str, Any]]:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    return list(index["docs"])
