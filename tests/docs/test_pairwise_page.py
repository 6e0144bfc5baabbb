"""benchmarks/results/pairwise.md says when, with what and by which command drivers were compared."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conformance.report_runs import compared

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "pairwise_page.py"))


def test_the_page_has_date_commit_command_and_every_pair(script):
    comparison = compared()
    command = [*comparison.facts["command"], "--drivers", "/home/jroe/lvp.json"]
    facts = {
        **comparison.facts,
        "command": command,
        "started": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789abcdef",
    }
    lines = script["page"](replace(comparison, facts=facts)).splitlines()
    assert "    dmlgpu test --pairwise --drivers all --drivers lvp.json --suite operators --profile quick" in lines
    assert "2 cases on 2026-01-02 at commit 0123456789ab." in lines
    assert "| pair | same bits | agree | disagree | no result | largest distance |" in lines
    assert "| a / b | 1 | 1 | 1 | 0 | out of tolerance, 9 ULP |" in lines
    assert "| a / c | 1 | 2 | 0 | 0 | 50 % of the tolerance, 1 ULP |" in lines
    assert any(line.startswith("| `cast-b` | a / b | 1 of 4 elements;") for line in lines)


def test_a_selection_of_cases_is_named(script):
    comparison = compared()
    facts = {**comparison.facts, "suite": "driver", "pattern": "*x3-* or padded"}
    text = script["page"](replace(comparison, facts=facts))
    assert " --profile quick -k '*x3-*' -k padded\n" in text
    assert re.search(r"^2 of [45]\d\d cases on ", text, re.MULTILINE)


def test_a_truncated_comparison_says_so(script):
    text = script["page"](replace(compared(), is_complete=False))
    assert ", truncated." in text


def test_the_published_page_names_its_command():
    text = (ROOT / "benchmarks" / "results" / "pairwise.md").read_text(encoding="utf-8")
    assert "dmlgpu test " in text and "--pairwise" in text and "at commit " in text
