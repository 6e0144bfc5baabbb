"""The pages about passes and fusions name what exists."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from dmlgpu.compiler import plan
from dmlgpu.compiler.graph.passes import PASSES

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "docs" / "internals"


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table of a page whose first line begins with a heading."""
    _, _, rest = (PAGES / page).read_text(encoding="utf-8").partition(f"\n| {heading} |")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_of_passes_lists_every_pass() -> None:
    assert {name for row in rows("compiler.md", "pass") for name in names(row[0])} == set(PASSES)


def test_fields_that_fusion_fills_exist() -> None:
    table = rows("fusions.md", "field")
    assert len(table) > 8
    for row in table:
        for name in names(row[0]):
            owner, _, field = name.partition(".")
            assert field in {each.name for each in dataclasses.fields(getattr(plan, owner))}, name
        assert set(names(row[2])) <= set(PASSES)


def test_functions_that_answer_whether_a_fusion_fits_exist() -> None:
    table = rows("fusions.md", "question")
    assert len(table) > 4
    for _, functions, where in table:
        (file,) = names(where)
        source = (ROOT / "dmlgpu" / file).read_text(encoding="utf-8")
        for name in names(functions):
            assert "." in name or re.search(rf"(?m)^(def|class) {name}\b", source), name
