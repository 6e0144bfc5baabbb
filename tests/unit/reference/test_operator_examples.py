"""Hand-written examples on operators' pages run, check themselves, and compute their expectations with NumPy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pages.operators import pages

import dmlgpu
from dmlgpu import Device, enums
from dmlgpu.catalog import catalog

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
PAGES = {f"{name.lower()}.md": pages()[f"{name.lower()}.md"] for name in catalog()}

WITHOUT_OPS = {"quantized_linear_convolution"}
"""Examples of operators without a friendlier function in ops."""

MAX_BYTES = 20_000
"""Maximum size of an operator's page."""

FOLDED_FROM = 100
"""Minimum number of lines of a folded example."""


def stems(paths):
    return [path.stem for path in paths]


@pytest.fixture(scope="module")
def device():
    numpy_device = Device("numpy")
    yield numpy_device
    numpy_device.remove()


def test_common_operators_have_examples():
    assert len(EXAMPLES) >= 30
    assert set(stems(EXAMPLES)) <= {name.lower() for name in catalog()}


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_an_example_runs(path, device):
    with dmlgpu.device(device):
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {})


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_an_example_uses_description_and_function_and_checks_both(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert (ast.get_docstring(tree) or "").endswith(".")
    assert (
        f"descs.{dmlgpu.catalog.descs.by_name(path.stem.upper()).__name__}(" in source and "dmlgpu.evaluate(" in source
    )
    assert (" ops." in source or "(ops." in source) != (path.stem in WITHOUT_OPS)
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(tree)) >= (1 if path.stem in WITHOUT_OPS else 2)


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_expectations_come_from_numpy(path):
    """``expected`` and similar names are not computed from results of dmlgpu."""
    tainted = {"ops", "dmlgpu"}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        if isinstance(node, ast.Assign) and names & tainted:
            tainted |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    assert not tainted & {"expected", "states", "places", "values", "ends", "sums"}


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_the_page_has_the_example_and_a_small_case_that_runs(path, device):
    page = PAGES[f"{path.stem}.md"]
    for folded in re.findall(r"<details>.*?```python\n(.*?)```\n\n</details>", page, re.DOTALL):
        assert "assert" in folded
        with dmlgpu.device(device):
            exec(folded, {})
    code = path.read_text(encoding="utf-8").partition('"""\n\n')[2] or path.read_text(encoding="utf-8")
    assert f"```python\n{code}```" in page.partition("## In practice")[2]


def test_pages_and_examples_are_short():
    assert len(PAGES) == len(catalog())
    for name, page in PAGES.items():
        shown = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
        longest = max(block.count("\n") for block in re.findall(r"```python\n(.*?)```", shown, re.DOTALL))
        assert len(page.encode()) < MAX_BYTES and longest < FOLDED_FROM, name


def test_pages_name_enumerations_as_python_does():
    prefixes = {
        "DML_TENSOR_FLAG",
        *(line for line in re.findall(r"\(`*(DML_\w+)`*\)", Path(enums.__file__).read_text(encoding="utf-8"))),
    }
    assert "DML_INTERPOLATION_MODE" in prefixes
    for name, text in PAGES.items():
        page = text.replace("\\_", "_")
        assert not [prefix for prefix in prefixes if re.search(rf"\b{prefix}\b|\b{prefix}_", page)], name
