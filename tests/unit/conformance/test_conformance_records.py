"""Runs as JSON Lines, and which cases a run takes."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.cases.registry import case_names
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import facts, read_file, read_runs, shader_digest, write_run
from dmlgpu.conformance.suites.registry import list_digest, matches, select, suite_by_name
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.cli.cli_process import run_here

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


def test_a_run_counts_its_results():
    last = json.loads(written().splitlines()[-1])
    assert (last["record"], last["counts"]) == ("end", {"pass": 1, "fail": 1})


def test_a_run_records_its_cases():
    assert {"dmlgpu", "commit", "shaders", "wgpu", "numpy", "python", "os", "adapter", "started"} <= HEADER.keys()
    assert (HEADER["cases"], HEADER["case_list"]) == (2, list_digest(("argmin-a", "argmin-b")))
    assert list_digest(("argmin-b", "argmin-a")) != HEADER["case_list"]
    assert HEADER["shaders"] == shader_digest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: is not JSON"),
        ("[]", "line 1: must be an object whose 'record' is one of run, case, comparison, pair, end"),
        ('{"record": "case"}', "line 1: comes before any run"),
        ('{"record": "run", "format": 1}', "line 1: format: must be 2, got 1"),
        ('{"record": "run", "format": 2}', "line 1: is not a valid header of a run: 'suite' is missing"),
        ("[" * 100_000, "line 1: is not JSON: "),
        ('{"record": ' + "9" * 5000, "line 1: is not JSON: "),
        (f'{{"record": "run", "a": {"[" * 30}{"]" * 30}}}', "line 1: is nested more than 20 deep"),
        ("{\udcff}", "line 1: is not UTF-8 text: byte 1 is 0xff"),
    ],
)
def test_other_files_are_rejected(tmp_path, text, message):
    path = tmp_path / "run.jsonl"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ModelError) as error:
        read_runs(path)
    assert str(error.value).startswith(f"{path}, {message}")


WRONG = [
    ("case", 5, "must be a string, got 5"),
    ("status", "fine", "must be one of pass, fail, "),
    ("status", ["pass"], "must be one of pass, fail, "),
    ("message", None, "must be a string, got null"),
    ("of_bound", "big", "must be a number from 0 on, 'inf' or 'nan', got 'big'"),
    ("max_ulp", -1, "must be a number from 0 on, 'inf' or 'nan', got -1"),
    ("mean_ulp", True, "must be a number from 0 on, 'inf' or 'nan', got true"),
    ("bound", 10**400, "must be in the range of float64, got an integer of 1329 bits"),
    ("wrong", 1.0, "must be an integer from 0 to 18446744073709551615, got 1.0"),
    ("elements", -1, "must be an integer from 0 to 18446744073709551615, got -1"),
    ("worst", "2", "must be an array, got '2'"),
    ("worst", [2, "3"], "must be an integer from 0 to 18446744073709551615, got '3'"),
    ("inputs", {"a": "b"}, "must be an array, got an object"),
    ("seconds", "inf", "must be a time in seconds, got 'inf'"),
    ("seconds", 1e300, "must be a time in seconds, got 1e+300"),
    ("curve", [[1, 2, 3]], "must hold pairs of an exponent and a distance, got an array of 3"),
    ("curve", [[1, "nan"]], "must hold exponents up to 1100 and distances, got 1"),
    ("curve", [[1e18, 1]], "must hold exponents up to 1100 and distances, got 1e+18"),
    ("color", "red", "is unknown"),
]


@pytest.mark.parametrize(("field", "value", "reason"), WRONG)
def test_fields_of_wrong_types_are_rejected(tmp_path, field, value, reason):
    path = tmp_path / "run.jsonl"
    case = {"record": "case", **OUTCOMES[1].to_json(), field: value}
    path.write_text(f"{written().splitlines()[0]}\n{json.dumps(case)}\n")
    with pytest.raises(ModelError) as error:
        read_runs(path)
    assert str(error.value).startswith(f"{path}, line 2: is not a valid outcome of a case: {field!r} {reason}")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("suite", ["a"], "'suite' must be a string, got an array of 1"),
        ("cases", "7", "'cases' must be an integer from 0 to 18446744073709551615, got '7'"),
        ("adapter", "numpy", "'adapter' must be an object, got 'numpy'"),
        ("adapter", {}, "'adapter' 'name' is missing"),
        ("environment", {"a": 1}, "'environment' must be a string, got 1"),
    ],
)
def test_headers_of_wrong_types_are_rejected(tmp_path, field, value, reason):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"record": "run", **HEADER, field: value}))
    with pytest.raises(ModelError) as error:
        read_runs(path)
    assert str(error.value) == f"{path}, line 1: is not a valid header of a run: {reason}"


@pytest.mark.parametrize("held", [3, 40, -1])
def test_an_incomplete_last_line_is_omitted_and_reported(tmp_path, held):
    path = tmp_path / "run.jsonl"
    first, case, other, _ = written().splitlines(keepends=True)
    path.write_text(first + case + other[:-1][:held])
    recorded = read_file(path)
    assert [(run.outcomes, run.is_complete) for run in recorded.runs] == [(OUTCOMES[:1], False)]
    assert recorded.problems == (
        f"{path}, line 3: incomplete line, ignored",
        f"{path}: a run was truncated: 1 of 2 cases recorded",
    )
    done = run_here("report", path, "-o", tmp_path / "report.md")
    assert (done.returncode, done.stderr.splitlines()) == (0, [f"dmlgpu: {problem}" for problem in recorded.problems])
    assert "1 of 2, truncated" in (tmp_path / "report.md").read_text()
    done = run_here("compare", path, path)
    assert (done.returncode, done.stderr.splitlines()[:2]) == (
        0,
        [f"dmlgpu: {problem}" for problem in recorded.problems],
    )


def test_a_half_written_header_and_the_run_before_it(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(written() + written()[:50])
    recorded = read_file(path)
    assert [(run.outcomes, run.is_complete) for run in recorded.runs] == [(OUTCOMES, True)]
    assert recorded.problems == (f"{path}, line 5: incomplete line, ignored",)
    path.write_text(written()[:50] + "\n" + written())
    with pytest.raises(ModelError, match="line 1: is not JSON"):  # a broken line elsewhere is no cut
        read_file(path)


@pytest.mark.parametrize("suffix", [".md", ".html", ".xml"])
def test_lone_surrogates_of_records_do_not_reach_reports(tmp_path, suffix):
    path, report = tmp_path / "run.jsonl", tmp_path / f"report{suffix}"
    with path.open("w") as file:
        header = {**HEADER, "suite": "\ud800", "environment": {"VK_DRIVER_FILES": "/\udcff"}}
        list(write_run(file, header, [replace(OUTCOMES[1], case="a\udfff", message="\ud83d")]))
    assert run_here("report", path, "-o", report).returncode == 0
    assert "a?" in report.read_text(encoding="utf-8")


# ---- suites


class Letters:
    """A suite of few names."""

    profiles = ("quick", "full")

    def names(self, profile: str) -> tuple[str, ...]:
        return ("a-1", "b-1") if profile == "quick" else ("a-1", "b-1", "b-2")

    def has(self, name: str) -> bool:
        return name == "b-3"


@pytest.mark.parametrize(
    ("profile", "patterns", "names"),
    [
        ("quick", (), ("a-1", "b-1")),
        ("quick", ("",), ("a-1", "b-1")),
        ("full", ("b",), ("b-1", "b-2")),
        ("full", ("B",), ("b-1", "b-2")),
        ("quick", ("*-1",), ("a-1", "b-1")),
        ("quick", ("?-1",), ("a-1", "b-1")),
        ("quick", ("b-3",), ("b-3",)),  # a whole name, even if the profile does not list it
        ("full", ("b-2", "A"), ("a-1", "b-2")),  # one of them must match; the suite's order stays
        ("full", ("b-3", "b-1", "b"), ("b-1", "b-2", "b-3")),
    ],
)
def test_selections(profile, patterns, names):
    assert select(Letters(), profile, patterns) == names


@pytest.mark.parametrize(
    ("profile", "patterns", "message"),
    [
        ("slow", (), "profile must be one of quick, full, got 'slow'"),
        ("quick", ("-2",), "no case of the profile 'quick' matches '-2'"),
        ("quick", ("a-1", "-2"), "no case of the profile 'quick' matches '-2'"),
    ],
)
def test_empty_selections_are_rejected(profile, patterns, message):
    with pytest.raises(InvalidArgument) as error:
        select(Letters(), profile, patterns)
    assert str(error.value) == message


class Operators(Letters):
    """A few names as the suite of operators has them; one profile between the others has more."""

    profiles = ("quick", "standard", "full")
    quick = (
        "activation_softmax1-float16-3x4-packed-s0",
        "gemm-float32-17x32-packed-s0",
        "gemm-float16-5x5-packed-s0",
        "mean_variance_normalization2-float32-2x3-packed-s0",
    )

    def names(self, profile: str) -> tuple[str, ...]:
        assert profile != "full", "takes half a minute"
        return self.quick if profile == "quick" else (*self.quick, "cast-float32-s0", "cast-float32-s1")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("sofmax", "; similar names: activation_softmax1"),
        ("Softmaxx", "; similar names: activation_softmax1"),
        ("*matmull*", "; similar names: gemm"),
        ("matmul", "; similar names: gemm"),
        ("layer_norm", "; similar names: mean_variance_normalization2"),
        ("gemm-flaot32", "; similar names: gemm-float32-17x32-packed-s0, gemm-float16-5x5-packed-s0"),
        ("gem-float16-5x5", "; similar names: gemm-float16-5x5-packed-s0"),
        ("cast", "; --profile standard has 2 cases that it matches"),
        ("*-S1", "; --profile standard has 1 case that it matches"),
        ("Hazards", "; there is a suite of this name: --suite hazards"),
        ("hazrds", "; similar names: hazards"),
        ("zzz", ""),
        ("x" * 10_000, ""),
    ],
)
def test_a_pattern_without_match_suggests_similar_names(pattern, hint):
    with pytest.raises(InvalidArgument) as error:
        select(Operators(), "quick", [pattern])
    assert str(error.value) == f"no case of the profile 'quick' matches {pattern!r}{hint}"


def test_a_misspelled_suite_suggests_similar_names():
    with pytest.raises(InvalidArgument) as error:
        suite_by_name("Hazrds")
    assert str(error.value).startswith("there is no suite 'Hazrds'; a similar name: hazards; there are accuracy")


def test_a_pattern_with_signs_is_for_the_whole_name():
    assert matches("argmin-float32", "float")
    assert not matches("argmin-float32", "float*")


def test_an_unknown_suite_is_rejected():
    with pytest.raises(InvalidArgument, match=r"there is no suite 'models'; there are .*operators"):
        suite_by_name("models")


def test_the_operators_suite_has_the_names_of_their_cases():
    suite = suite_by_name("operators")
    assert suite.profiles == PROFILES
    assert suite.names("quick") == case_names("quick")
