"""The examples by hand on the operators' pages run, check themselves, and owe their expectations to NumPy alone."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from pages.operators import pages

import dmlgpu
from dmlgpu import Device, enums, evaluate
from dmlgpu.catalog import catalog
from dmlgpu.runtime import device as devices

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
PAGES = {f"{name.lower()}.md": pages()[f"{name.lower()}.md"] for name in catalog()}

WITHOUT_OPS = {"quantized_linear_convolution"}
"""Examples of operators that no function names more kindly; the description says it all."""

MAX_BYTES = 20_000
"""Of an operator's page: more is numbers that nobody reads."""

FOLDED_FROM = 100
"""Lines of an example from which on it is folded."""


def stems(paths):
    return [path.stem for path in paths]


@pytest.fixture(scope="module")
def device():
    numpy_device = Device("numpy")
    yield numpy_device
    numpy_device.remove()


def test_the_operators_that_people_use_most_have_examples():
    assert len(EXAMPLES) >= 30
    assert set(stems(EXAMPLES)) <= {name.lower() for name in catalog()}


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_an_example_runs(path, device, monkeypatch):
    monkeypatch.setattr(devices._Default, "by_environment", device)
    monkeypatch.setattr(dmlgpu, "evaluate", functools.partial(evaluate, device=device))
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {})


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_an_example_shows_both_ways_and_checks_them(path):
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
    """Whatever ``expected`` and its like are computed from, no value that dmlgpu computed is among it."""
    tainted = {"ops", "dmlgpu"}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        if isinstance(node, ast.Assign) and names & tainted:
            tainted |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    assert not tainted & {"expected", "states", "places", "values", "ends", "sums"}


@pytest.mark.parametrize("path", EXAMPLES, ids=stems(EXAMPLES))
def test_the_page_has_the_example_and_a_small_case_that_runs(path, device, monkeypatch):
    page = PAGES[f"{path.stem}.md"]
    monkeypatch.setattr(dmlgpu, "evaluate", functools.partial(evaluate, device=device))
    for folded in re.findall(r"<details>.*?```python\n(.*?)```\n\n</details>", page, re.DOTALL):
        assert "assert" in folded
        exec(folded, {})
    code = path.read_text(encoding="utf-8").partition('"""\n\n')[2] or path.read_text(encoding="utf-8")
    assert f"```python\n{code}```" in page.partition("## In practice")[2]


def test_pages_are_no_longer_than_people_read():
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
