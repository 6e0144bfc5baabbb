"""docs/formulas.md is generated from the output of runs and from its own text."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dmlgpu.conformance.mutation.suite import formula_names

ROOT = Path(__file__).parents[2]
ONE, OTHER = formula_names()[:2]


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "formula_mutants.py"))


@pytest.fixture
def written(script, tmp_path):
    """Writes results, and the page that these make."""

    def write(name, *results):
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(result) + "\n" for result in results))
        page = tmp_path / f"{name}.md"
        page.write_text(script["page"](script["results_of"](tmp_path / f"{name}.tsv")), encoding="utf-8")
        return page

    return write


def rows(text):
    return {line.split("`")[1]: line.split(" | ")[-2:] for line in text.splitlines() if line.startswith("| `")}


def test_a_page_says_what_its_results_say(written):
    page = written("a", (ONE, "cast", "cast-x (cpu)"), (ONE, "gather", "missed"), (OTHER, "join", "no shader"))
    assert rows(page.read_text(encoding="utf-8")) == {ONE: ["cast", "gather |"]}


def test_later_results_come_into_a_page(script, written):
    page = written("a", (ONE, "cast", "missed"), (ONE, "gather", "missed"), (OTHER, "join", "join-x (cpu)"))
    written("later", (ONE, "gather", "gather-x (cpu)"))
    results = [result for path in (page, page.with_name("later.tsv")) for result in script["results_of"](path)]
    assert rows(script["page"](results)) == {ONE: ["gather", "cast |"], OTHER: ["join", " |"]}


def test_rows_of_changed_shaders_are_left_out(script, written):
    page = written("a", (ONE, "cast", "missed"), (OTHER, "join", "missed"))
    first = next(line for line in page.read_text(encoding="utf-8").splitlines() if ONE in line)
    changed = first.replace(script["changes"](ONE)[1], "`something else`")
    page.write_text(page.read_text(encoding="utf-8").replace(first, changed), encoding="utf-8")
    assert [name for name, *_ in script["results_of"](page)] == [OTHER]


def test_the_page_can_be_read(script):
    names = {name for name, *_ in script["results_of"](ROOT / "docs" / "formulas.md")}
    assert len(names) > 20
