"""docs/mutants.md says of every mutant that no case noticed why that is so."""

from __future__ import annotations

import fnmatch
import re
import runpy
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from dmlgpu.conformance.mutation.rules import mutant_by_name, mutants_of, shader_files
from dmlgpu.conformance.running.outcome import Outcome, Status

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dmlgpu" / "conformance" / "mutation"
PAGE = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "mutants_page.py"))


def entries(name, table):
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))[table]


SAME, MISSED = entries("survivors.toml", "expected"), entries("missed.toml", "missed")


def of_page(title):
    """The mutants under a heading, by the reason above them."""
    _, _, rest = PAGE.partition(f"\n## {title}\n")
    found, reason = {}, ""
    for line in rest.partition("\n## ")[0].splitlines():
        if line.startswith("- `"):
            found[line.split("`")[1]] = reason
        elif line:
            assert line.endswith(":"), line
            reason = line.removesuffix(":")
    return found


@pytest.mark.parametrize("entry", [*SAME, *MISSED], ids=lambda entry: entry["cases"][0])
def test_every_entry_has_a_reason_of_its_own(entry):
    assert entry.keys() == {"cases", "reason"} and entry["cases"]
    assert len(entry["reason"].split()) >= 4 and not entry["reason"].endswith(".")
    assert [other["reason"] for other in [*SAME, *MISSED]].count(entry["reason"]) == 1


@pytest.mark.parametrize(("title", "listed"), [("Missed", MISSED), ("Changing no result", SAME)])
def test_the_page_tells_the_reason_of_each(title, listed):
    told = of_page(title)
    assert told
    for mutant, reason in told.items():
        file = mutant.partition(":")[0]  # lines move in shaders that change after the run
        known = {
            entry["reason"].lower()
            for entry in listed
            if any(fnmatch.fnmatchcase(file, pattern.partition(":")[0]) for pattern in entry["cases"])
        }
        assert reason.lower() in known, mutant


def test_counts_are_those_of_the_lists():
    (row,) = re.findall(r"^\| \*\*all\*\* \|(.*)\|$", PAGE, re.MULTILINE)
    _, _, missed, same, _ = map(int, row.split("|"))
    assert (len(of_page("Missed")), len(of_page("Changing no result"))) == (missed, same)


def test_no_mutant_is_both_missed_and_harmless():
    for entry in MISSED:
        for case in entry["cases"]:
            assert not [one for one in SAME for pattern in one["cases"] if fnmatch.fnmatchcase(case, pattern)], case


def test_the_script_asks_for_reasons(script, monkeypatch, tmp_path, capsys):
    """A mutant that is missed for the first time has no reason yet."""
    mutant = str(next(mutants_of(shader_files()[0])))
    monkeypatch.setattr(sys, "argv", ["mutants_page.py", str(tmp_path / "run.jsonl")])

    class Run:
        outcomes = (Outcome(mutant, Status.FAIL),)
        is_complete = True

    monkeypatch.setitem(script["main"].__globals__, "read_runs", lambda path: (Run,))
    assert script["main"]() == 1
    assert f"has no reason for {mutant}" in capsys.readouterr().err


def test_the_script_writes_reasons_above_mutants(script):
    known = [case for entry in MISSED for case in entry["cases"] if exists(case)][:2]
    text = [*script["survivors"]([Outcome(case, Status.FAIL) for case in known])]
    assert text[1] == "## Missed" and sum(line.startswith("- `") for line in text) == len(known) > 0
    assert all(
        line.endswith(":") for line, after in pairwise([line for line in text[2:] if line]) if after[0] != line[0]
    )


def exists(name):
    try:
        return mutant_by_name(name)
    except ValueError:
        return None
