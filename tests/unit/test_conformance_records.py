"""Runs as JSON Lines, and which cases a run takes."""

from __future__ import annotations

import io
import json

import pytest

from dmlgpu.conformance.cases.profiles import PROFILES
from dmlgpu.conformance.cases.registry import case_names
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import facts, read_runs, shader_digest, write_run
from dmlgpu.conformance.suites.registry import list_digest, matches, select, suite_by_name
from dmlgpu.errors import InvalidArgument, ModelError
from dmlgpu.host.adapter import NUMPY_ADAPTER

INFINITY = float("inf")
OUTCOMES = (
    Outcome("argmin-a", Status.PASS, "exact", 0.0, 0.0, 0.0, elements=4, digest="ab"),
    Outcome("argmin-b", Status.FAIL, "exact", INFINITY, INFINITY, 1.0, 1, 4, (2,), ("1",), "2", "nan", 0.0, "wrong"),
)
HEADER = facts(NUMPY_ADAPTER, "operators", "quick", "argmin", ("argmin-a", "argmin-b"))


def written(outcomes=OUTCOMES) -> str:
    file = io.StringIO()
    assert tuple(write_run(file, HEADER, outcomes)) == outcomes
    return file.getvalue()


def test_a_run_survives_its_file(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(written())
    (run,) = read_runs(path)
    assert (run.outcomes, run.facts, run.is_complete) == (OUTCOMES, json.loads(json.dumps(HEADER)), True)
    assert run.adapter == str(NUMPY_ADAPTER)


def test_files_are_merged_by_putting_them_together(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(written() + written(OUTCOMES[:1]))
    assert [len(run.outcomes) for run in read_runs(path)] == [2, 1]


def test_a_run_that_was_cut_off_is_read(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(written().splitlines(keepends=True)[:2]))
    (run,) = read_runs(path)
    assert (run.outcomes, run.is_complete) == (OUTCOMES[:1], False)


def test_a_run_counts_what_came_of_it():
    last = json.loads(written().splitlines()[-1])
    assert (last["record"], last["counts"]) == ("end", {"pass": 1, "fail": 1})


def test_a_run_says_what_ran():
    assert {"dmlgpu", "commit", "shaders", "wgpu", "numpy", "python", "os", "adapter", "started"} <= HEADER.keys()
    assert (HEADER["cases"], HEADER["case_list"]) == (2, list_digest(("argmin-a", "argmin-b")))
    assert list_digest(("argmin-b", "argmin-a")) != HEADER["case_list"]
    assert HEADER["shaders"] == shader_digest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: is no JSON"),
        ("[]", "line 1: must be an object whose 'record' is one of run, case, comparison, pair, end"),
        ('{"record": "case"}', "line 1: stands before any run"),
        ('{"record": "run", "format": 1}', "line 1: format: must be 2, got 1"),
        ('{"record": "run", "format": 2}\n{"record": "case"}', "line 2: is no outcome of a case"),
        (
            '{"record": "run", "format": 2}\n{"record": "case", "case": "a", "status": "fine"}',
            "line 2: is no outcome of a case: 'fine' is not a valid Status",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(ModelError) as error:
        read_runs(path)
    assert str(error.value).startswith(f"{path}, {message}")


# ---- suites


class Letters:
    """A suite of few names."""

    profiles = ("quick", "full")

    def names(self, profile: str) -> tuple[str, ...]:
        return ("a-1", "b-1") if profile == "quick" else ("a-1", "b-1", "b-2")

    def has(self, name: str) -> bool:
        return name == "b-3"


@pytest.mark.parametrize(
    ("profile", "pattern", "names"),
    [
        ("quick", "", ("a-1", "b-1")),
        ("full", "b", ("b-1", "b-2")),
        ("quick", "*-1", ("a-1", "b-1")),
        ("quick", "?-1", ("a-1", "b-1")),
        ("quick", "b-3", ("b-3",)),  # a whole name, whatever the profile lists
    ],
)
def test_selections(profile, pattern, names):
    assert select(Letters(), profile, pattern) == names


@pytest.mark.parametrize(
    ("profile", "pattern", "message"),
    [
        ("slow", "", "profile must be one of quick, full, got 'slow'"),
        ("quick", "-2", "no case of the profile 'quick' matches '-2'"),
    ],
)
def test_empty_selections_are_refused(profile, pattern, message):
    with pytest.raises(InvalidArgument) as error:
        select(Letters(), profile, pattern)
    assert str(error.value) == message


def test_a_pattern_with_signs_is_for_the_whole_name():
    assert matches("argmin-float32", "float")
    assert not matches("argmin-float32", "float*")


def test_an_unknown_suite_is_refused():
    with pytest.raises(InvalidArgument, match=r"there is no suite 'models'; there are .*operators"):
        suite_by_name("models")


def test_the_operators_suite_has_the_names_of_their_cases():
    suite = suite_by_name("operators")
    assert suite.profiles == PROFILES
    assert suite.names("quick") == case_names("quick")
