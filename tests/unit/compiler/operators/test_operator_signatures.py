"""Operators and the functions that call them: docstrings, pages and ``dmlgpu ops`` name both."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator

import pytest
from pages import operators

from dmlgpu import ops
from dmlgpu.catalog import catalog
from dmlgpu.catalog.search import newest
from dmlgpu.cli.ops import functions, signature
from tests.unit.cli.cli_process import run_here

WITHOUT_OPERATOR = {
    *("broadcast_to", "diagonal", "expand_dims", "flatten", "meshgrid", "moveaxis", "permute", "reshape"),  # views
    *("split", "squeeze", "swapaxes", "transpose", "unsqueeze", "view"),
    *("free_memory", "memory_info", "nonzero"),
}
"""Functions of ``ops`` without an operator."""

COMPUTED = re.compile(r"\b([A-Z][A-Z0-9_]+)\s\(`(ns-directml-\w+)`\)")
CURRENT = [schema for schema in catalog().values() if schema.superseded_by is None]


def documented() -> Iterator[tuple[str, str]]:
    for name in ops.__all__:
        if inspect.isfunction(getattr(ops, name)):
            yield name, inspect.getdoc(getattr(ops, name)) or ""


def test_docstrings_name_operators_and_their_pages() -> None:
    without = set()
    for name, docstring in documented():
        pairs = COMPUTED.findall(docstring.partition("Computed by ")[2])
        if not pairs:
            without.add(name)
        assert all(catalog()[operator].document == document for operator, document in pairs), name
    assert without == WITHOUT_OPERATOR


def test_hints_of_ops_agree_with_the_docstrings() -> None:
    by_other_means = {"ACTIVATION_TANH": ["tanh"], "NONZERO_COORDINATES": ["nonzero"]}
    by_other_means |= {"SPLIT": ["split"], "TILE": ["tile"], "DEQUANTIZE": ["dequantize"]}
    hints = {operator: ops._usual_functions(operator) for operator in catalog()}
    for operator, names in hints.items():
        assert {*names} <= {*functions(catalog()[operator])} or by_other_means.get(operator) == names, operator
    assert sum(map(bool, hints.values())) > 100


def test_functions_of_an_operator() -> None:
    assert functions(catalog()["MEAN_VARIANCE_NORMALIZATION"]) == (
        "group_norm",
        "instance_norm",
        "layer_norm",
        "rms_norm",
        "std",
        "var",
    )
    assert functions(catalog()["FOLD"]) == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("relu", "ops.relu(x, *, device=None)"),
        ("cumsum", "ops.cumsum(x, axis=None, *, device=None)"),
        (
            "directml.element_wise_abs",
            "ops.directml.element_wise_abs(input, *, scale_bias=None, device=None, name=None)",
        ),
        (
            "directml.cumulative_summation",
            "ops.directml.cumulative_summation(input, *, axis, axis_direction=AxisDirection.INCREASING, "
            "has_exclusive_sum=False, device=None, name=None)",
        ),
    ],
)
def test_signatures_are_source_text(name: str, text: str) -> None:
    assert signature(name) == text


@pytest.mark.parametrize("schema", CURRENT, ids=lambda schema: schema.stem)
def test_a_page_begins_with_the_signatures(schema) -> None:
    page = operators.page(schema)
    before_tables = page.partition("\n|")[0]
    names = [*functions(schema), f"directml.{schema.stem}"]
    shown = re.sub(r"\s+", " ", before_tables.partition("```py\n")[2].partition("```")[0])
    assert [line.strip() for line in re.split(r"(?=ops\.)", shown) if line.strip()] == [
        signature(name) for name in names
    ]
    if len(names) > operators.MAX_SECTIONS + 1:
        assert all(f"[`{name}`][" in before_tables for name in names[:-1])
        return
    for name in names[:-1]:
        section = before_tables.partition(f"## ops.{name}\n")[2].partition("\n## ")[0]
        assert ">>> " in section and f"ops.{name}(" in section


def test_tables_have_headings() -> None:
    for name, page in operators.pages().items():
        for heading in re.findall(r"(?m)^(\|.*\|)\n\| ---", page):
            assert all(cell.strip() for cell in heading.strip("|").split("|")), name


def test_the_index_has_the_names_of_all_libraries() -> None:
    index = operators.index()
    assert "| DirectML | dmlgpu.ops | ONNX | PyTorch | NumPy |" in index
    row = next(line for line in index.splitlines() if "(mean_variance_normalization2.md)" in line)
    assert "[layer_norm][dmlgpu.ops.nn.layer_norm]" in row
    assert "LayerNormalization" in row and "nn.LayerNorm" in row
    assert len(re.findall(r"(?m)^\| \[", index)) == 177


def test_the_command_prints_the_signatures() -> None:
    names = ("cumsum", "nancumsum", "directml.cumulative_summation")
    lines = run_here("ops", "cumulative_summation").stdout.splitlines()
    assert [line.removeprefix("  functions ").strip() for line in lines[1:4]] == [signature(name) for name in names]
    entry = json.loads(run_here("ops", "CUMULATIVE_SUMMATION", "--json").stdout)
    assert entry["functions"] == [signature(name) for name in names]


def test_superseded_operators_lead_to_the_current_one() -> None:
    page = operators.page(catalog()["ACTIVATION_SOFTMAX"])
    assert f"[{newest('ACTIVATION_SOFTMAX')}](activation_softmax1.md) supersedes this operator" in page
    assert "## ops.softmax" not in page
