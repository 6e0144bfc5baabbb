"""docs/mutants.md says of every mutant that no case noticed why that is so."""

from __future__ import annotations

import fnmatch
import re
import runpy
import sys
import tomllib
import types
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from dmlgpu.conformance.mutation.rules import mutant_by_name, mutants_of, shader_files
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dmlgpu" / "conformance" / "mutation"
PAGE = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
TEXTS = dict(re.findall(r"^- `([^`]+)`: `(.+?)` -> `", PAGE, re.MULTILINE))
"""The original line of each mutant."""


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "mutants_page.py"))


def entries(name, table):
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))[table]


SAME, MISSED = entries("survivors.toml", "expected"), entries("missed.toml", "missed")


def of_page(title):
    """The mutants under a heading, by the reason above them."""
    _, _, rest = PAGE.partition(f"\n## {title}\n")
    reasons, reason = {}, ""
    for line in rest.partition("\n## ")[0].splitlines():
        if line.startswith("- `"):
            reasons[line.split("`")[1]] = reason
        elif line:
            assert line.endswith(":"), line
            reason = line.removesuffix(":")
    return reasons


@pytest.mark.parametrize("entry", [*SAME, *MISSED], ids=lambda entry: entry["cases"][0])
def test_every_entry_has_a_reason_of_its_own(entry):
    assert entry.keys() == {"cases", "reason"} and entry["cases"]
    assert len(entry["reason"].split()) >= 4 and not entry["reason"].endswith(".")
    assert [other["reason"] for other in [*SAME, *MISSED]].count(entry["reason"]) == 1


@pytest.fixture(scope="module")
def present():
    """The names of all mutants by file."""
    return {file: [str(mutant) for mutant in mutants_of(file)] for file in shader_files()}


@pytest.mark.parametrize("name", ["survivors.toml", "missed.toml"])
def test_every_entry_names_a_mutant_that_is_present(name, present):
    """Entries of lines that moved or are gone would hide the next mutant of that name, or say nothing."""
    listed = {"survivors.toml": SAME, "missed.toml": MISSED}[name]
    stale = [
        pattern
        for entry in listed
        for pattern in entry["cases"]
        if not fnmatch.filter(present.get(pattern.partition(":")[0], ()), pattern)
    ]
    assert not stale, f"no shader has these mutants of {name}: {stale}"


@pytest.mark.parametrize(("title", "listed"), [("Missed", MISSED), ("Equivalent", SAME)])
def test_the_page_tells_the_reason_of_each(title, listed):
    reasons = of_page(title)
    assert reasons
    for mutant, reason in reasons.items():
        file = mutant.partition(":")[0]  # lines move in shaders that change after the run, or are removed
        if TEXTS[mutant] not in (ROOT / "shaders" / f"{file}.wgsl").read_text(encoding="utf-8"):
            continue
        known = {
            entry["reason"].lower()
            for entry in listed
            if any(fnmatch.fnmatchcase(file, pattern.partition(":")[0]) for pattern in entry["cases"])
        }
        assert reason.lower() in known, mutant


def test_counts_are_those_of_the_lists():
    (row,) = re.findall(r"^\| \*\*all\*\* \|(.*)\|$", PAGE, re.MULTILINE)
    _, _, missed, same, _ = map(int, row.split("|"))
    assert (len(of_page("Missed")), len(of_page("Equivalent"))) == (missed, same)


def test_no_mutant_is_both_missed_and_harmless():
    for entry in MISSED:
        for case in entry["cases"]:
            assert not [entry for entry in SAME for pattern in entry["cases"] if fnmatch.fnmatchcase(case, pattern)], (
                case
            )


FILE = next(file for file in shader_files() if len(list(mutants_of(file))) > 2)
FIRST = [str(mutant) for mutant in mutants_of(FILE)][:3]
OTHER = str(next(mutants_of(shader_files()[-1])))
ADAPTER = {**asdict(NUMPY_ADAPTER), "features": []}


def outcome(name, status=Status.PASS):
    mutant = mutant_by_name(name)
    return Outcome(name, status, message=f"{mutant.before}  ->  {mutant.after}: caught by argmin-a")


def run_of(*outcomes, commit="now", profile="quick"):
    facts = {"profile": profile, "commit": commit, "adapter": ADAPTER, "started": "2026-11-29T11:11:52+00:00"}
    return RecordedRun(facts, outcomes)


@pytest.fixture
def merge(script, monkeypatch):
    """The script's, where ``FILE`` was changed after the commit ``old``."""
    changed = {"old": {FILE}}
    monkeypatch.setitem(script["merge"].__globals__, "changed_shaders", lambda commit: changed.get(commit, ()))
    return script["merge"]


def test_results_of_later_runs_take_the_place_of_earlier_ones(merge):
    runs = run_of(*map(outcome, FIRST)), run_of(outcome(FIRST[1], Status.FAIL), commit="later+")
    merged = merge(runs, [*FIRST, OTHER])
    assert [outcome.status for outcome in merged.outcomes] == [Status.PASS, Status.FAIL, Status.PASS]
    assert (merged.profile, merged.left) == ("quick", (OTHER,))
    assert merged.origins == ("2026-11-29, commit now", "2026-11-29, commit later+")


def test_results_from_before_a_shader_changed_do_not_count(merge):
    runs = run_of(*map(outcome, FIRST), outcome(OTHER), commit="old+"), run_of(outcome(FIRST[2]))
    merged = merge(runs, [*FIRST, OTHER])
    assert [outcome.case for outcome in merged.outcomes] == [FIRST[2], OTHER]
    assert merged.left == tuple(FIRST[:2])


def test_results_of_other_texts_and_ends_of_other_kinds_do_not_count(merge):
    moved = replace(outcome(FIRST[0]), message="a < b  ->  a <= b: caught by argmin-a")
    crashed, gone = outcome(FIRST[1], Status.CRASH), Outcome("gone/file:1:1:plus_for_minus", Status.PASS)
    merged = merge([run_of(moved, crashed, gone)], FIRST)
    assert (merged.outcomes, merged.left) == ((), tuple(FIRST))


def test_what_is_left_is_run_by_folder_or_file(script, merge):
    assert script["command"](merge([run_of(outcome(OTHER))], [*FIRST, OTHER])) == (
        f"dmlgpu test --suite mutants -p quick -k '{FIRST[0].partition('/')[0]}/*'"
        " -n 2 --time-limit 3600 -o later.jsonl"
    )
    some = script["command"](merge([run_of(outcome(FIRST[0]))], FIRST))
    assert f"-k '{FILE}:*'" in some


def test_of_unknown_commits_all_results_are_taken(script, capsys):
    for commit in ("", "no such commit"):
        assert script["changed_shaders"](commit) == ()
        assert f"Git does not know the commit {commit!r}" in capsys.readouterr().err


@pytest.fixture
def printed(script, merge, monkeypatch, capsys):
    """What the script complains of where the suite has one mutant, and the run these outcomes."""

    def complaints(*outcomes):
        names = types.SimpleNamespace(names=lambda profile: FIRST[:1])
        monkeypatch.setitem(script["main"].__globals__, "MutantSuite", lambda: names)
        monkeypatch.setitem(script["main"].__globals__, "read_runs", lambda path: (run_of(*outcomes),))
        monkeypatch.setattr(sys, "argv", ["mutants_page.py", "run.jsonl"])
        assert script["main"]() == 1
        return capsys.readouterr().err

    return complaints


def test_the_script_asks_for_reasons_and_for_runs(printed):
    """A mutant that is missed for the first time has no reason yet, one that was not run no result."""
    assert f"has no reason for the missed mutants {FIRST[0]}" in printed(outcome(FIRST[0], Status.FAIL))
    assert "1 mutants have no valid result; run:\ndmlgpu test --suite mutants" in printed()


def test_the_script_writes_reasons_above_mutants(script):
    known = max(([case for case in entry["cases"] if exists(case)] for entry in MISSED), key=len)  # of one reason
    text = [*script["survivors"]([Outcome(case, Status.FAIL) for case in known])]
    assert text[1] == "## Missed" and sum(line.startswith("- `") for line in text) == len(known) > 0
    assert all(
        line.endswith(":") for line, after in pairwise([line for line in text[2:] if line]) if after[0] != line[0]
    )


def test_reasons_of_missed_mutants_may_have_patterns(script):
    assert script["why_missed"]("schedules/gemm_cooperative:1:2:any_rule").startswith("needs matrix units")
    assert script["why_missed"]("schedules/gemm:1:2:any_rule") == ""


def exists(name):
    try:
        return mutant_by_name(name)
    except ValueError:
        return None
