"""Adapters compared with each other: who differs from whom, and what that takes."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from dmlgpu.cli.test import ConformanceRequest, _pair_lines
from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Ulp
from dmlgpu.conformance.drivers import pairwise
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.drivers.pairwise import (
    AdapterPair,
    Agreement,
    Allowance,
    Comparison,
    Distance,
    agreement,
    distance,
    expected_to_disagree,
    outlier,
)
from dmlgpu.conformance.drivers.pairwise_run import AdapterResult, as_output_suite, compare_results, run_pairwise
from dmlgpu.conformance.report.pairs import kernels_of
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job
from dmlgpu.conformance.running.records import (
    comparison_facts,
    facts,
    read_comparisons,
    read_runs,
    write_comparison,
    write_run,
)
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.conformance import conformance_suite
from tests.unit.conformance.altered_suite import NAMES, VARIABLE, AlteredSuite

EPSILON = 2.0**-23
TINY = float(np.finfo(np.float32).smallest_normal)
LARGEST = float(np.finfo(np.float32).max)

# ---- which elements can both be right


@pytest.mark.parametrize(
    ("tolerance", "a", "b", "agree"),
    [
        (EXACT, 1.0, 1.0, True),
        (EXACT, 0.0, -0.0, False),
        (EXACT, TINY / 2, 0.0, False),
        (CORRECTLY_ROUNDED, 1.0, 1 + EPSILON, False),
        (CORRECTLY_ROUNDED, np.nan, -np.nan, True),
        (CORRECTLY_ROUNDED, TINY, 0.0, True),  # both are correct for values that round up to the smallest normal number
        (CORRECTLY_ROUNDED, -0.0, TINY / 2, True),
        (CORRECTLY_ROUNDED, 0.0, -0.0, True),  # of a subnormal result
        (CORRECTLY_ROUNDED, TINY / 2, TINY / 4, False),
        (CORRECTLY_ROUNDED, 2 * TINY, 0.0, False),
        (Ulp(1), 1.0, 1 + 2 * EPSILON, True),
        (Ulp(1), 1.0, 1 + 3 * EPSILON, False),
        (Ulp(1), LARGEST, np.inf, True),
        (Ulp(1), np.inf, np.nan, False),
        (Ulp(1), TINY * (1 + EPSILON), 0.0, True),
        (Ulp(1), TINY * (1 + 2 * EPSILON), 0.0, False),
        (Accumulated(1), 1.0, 1 + 10 * EPSILON, True),  # each 8 * 2**-24 and one ULP, so 5 ULP
        (Accumulated(1), 1.0, 1 + 11 * EPSILON, False),
        (Accumulated(1), np.inf, -np.inf, False),
    ],
)
def test_two_floats(tolerance, a, b, agree):
    arrays = np.array([a], np.float32), np.array([b], np.float32)
    magnitude = np.array([8.0])
    assert agreement(*arrays, tolerance, magnitude)[0].tolist() == [agree]
    assert agreement(*arrays[::-1], tolerance, magnitude)[0].tolist() == [agree]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tolerance", [CORRECTLY_ROUNDED, Ulp(2), Accumulated(1)])
def test_a_signalling_nan_is_a_nan(tolerance):
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)
    others = np.array([np.nan, 1.0, 0.0], np.float32)
    agreements = [agreement(signalling, others[i : i + 1], tolerance, np.array([8.0]))[0] for i in range(3)]
    assert np.concatenate(agreements).tolist() == [True, False, False]


def test_half_floats_are_not_flushed():
    zeros = np.array([0.0], np.float16), np.array([-0.0], np.float16)
    assert not agreement(*zeros, CORRECTLY_ROUNDED)[0].any()
    assert not agreement(np.array([2.0**-24], np.float16), zeros[0], CORRECTLY_ROUNDED)[0].any()


@pytest.mark.parametrize("tolerance", [EXACT, CORRECTLY_ROUNDED, Ulp(4), Accumulated(9)])
def test_integers_agree_to_the_bit(tolerance):
    a, b = np.array([1, 2, 3], np.int64), np.array([1, 2, 4], np.int64)
    assert agreement(a, b, tolerance)[0].tolist() == [True, True, False]


def test_distances_are_of_all_outputs_and_blocks(monkeypatch):
    monkeypatch.setattr(pairwise, "BLOCK", 4)
    a = np.zeros(3, np.int32), np.arange(10, dtype=np.float32).reshape(2, 5)
    b = a[0], np.array([[0, 1, 2, 3, 4 * (1 + EPSILON)], [5, 6, 7, 8 * (1 + 2 * EPSILON), 9]], np.float32)
    measured = distance(a, b, Allowance(Ulp(0.5)))
    assert measured == Distance(13, 2, 1, 2.0, 2.0, (1, 1, 3), ("8.0", "8.000002"), 8 * EPSILON)
    assert distance(a, b, Allowance(Ulp(1))) == replace(measured, wrong=0, of_bound=1.0, allowed=16 * EPSILON)


def test_a_flushed_number_is_no_distance():
    a, b = (np.array(values, np.float32) for values in ([TINY / 2, 1], [0, 1 + EPSILON]))
    flushed = Distance(2, 2, 0, 0.5, 1.0, (0, 1), ("1.0", "1.0000001"), 2 * EPSILON)
    assert distance([a], [b], Allowance(Ulp(1))) == flushed


@pytest.mark.parametrize(("magnitude", "wrong"), [(np.full((2, 1), 8.0), 0), (np.array([[8.0, 6.0], [6.0, 8.0]]), 2)])
def test_magnitudes_are_measured_where_bits_differ(magnitude, wrong):
    a, b = np.ones((2, 2), np.float32), np.full((2, 2), 1 + 10 * EPSILON, np.float32)
    assert distance([a], [b], Allowance(Accumulated(1), lambda: (magnitude,))).wrong == wrong


def test_outputs_of_other_types_are_rejected():
    with pytest.raises(InvalidArgument) as error:
        distance([np.zeros(2, np.int32)], [np.zeros(3, np.int32)], Allowance(EXACT))
    assert str(error.value) == (
        "outputs of equal types and sizes are needed, got [(dtype('int32'), (2,))] and [(dtype('int32'), (3,))]"
    )


# ---- pairs


def pairs_of(labels: str, **agreements: Agreement) -> list[AdapterPair]:
    """Each two of some adapters, named by letters; they agree unless stated otherwise."""
    return [AdapterPair("case", (a, b), agreements.get(a + b, Agreement.AGREE)) for a, b in combinations(labels, 2)]


BAD, NONE, REFUSED = Agreement.DISAGREE, Agreement.NO_RESULT, Agreement.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (pairs_of("abc"), ""),
        (pairs_of("abc", ab=BAD, bc=BAD), "b"),
        (pairs_of("abc", ab=NONE, ac=NONE), "a"),
        (pairs_of("ab", ab=BAD), ""),  # either of the two
        (pairs_of("abc", ab=BAD), ""),  # c lies between
        (pairs_of("abc", ab=BAD, ac=BAD, bc=BAD), ""),
        (pairs_of("abcd", ad=BAD, bd=BAD, cd=BAD, ab=REFUSED, bc=REFUSED), "d"),
        (pairs_of("abcd", ad=BAD, bd=BAD), ""),
        (pairs_of("abcd", ac=BAD, ad=BAD, bc=BAD, bd=BAD), ""),  # two against two
        (pairs_of("abc", ab=REFUSED, bc=REFUSED, ac=BAD), ""),
    ],
)
def test_who_differs_from_the_others(pairs, expected):
    assert outlier(pairs) == expected


def result(label: str, status: Status = Status.PASS, message: str = "", digest: str = "") -> AdapterResult:
    return AdapterResult(label, Outcome("case", status, message=message, digest=digest, elements=3), Path("nowhere"))


@pytest.mark.parametrize(
    ("result", "other", "agreement", "message"),
    [
        (result("a", Status.NOT_SUPPORTED, "no f64"), result("b"), REFUSED, "a: not supported: no f64"),
        (result("a"), result("b", Status.CRASH, "signal 11"), NONE, "b: crash: signal 11"),
        (
            result("a", Status.NOT_SUPPORTED, "no f64"),
            result("b", Status.FLAKY, "run 2"),
            NONE,
            "a: not supported: no f64; b: flaky: run 2",
        ),
    ],
)
def test_without_two_results_nothing_is_compared(result, other, agreement, message):
    assert compare_results(result, other, Allowance(EXACT)) == AdapterPair(
        "case", ("a", "b"), agreement, "exact", None, message
    )


def test_a_missing_result_names_the_kernels_that_ran():
    crashed = result("b", Status.CRASH, "signal 11")
    crashed = replace(crashed, outcome=replace(crashed.outcome, kernels=("cast map (elementwise/cast)",)))
    pair = compare_results(result("a"), crashed, Allowance(EXACT))
    assert pair.message == "b: crash: signal 11; ran as: cast map (elementwise/cast)"


def computed(folder: Path, label: str, number: int, kernels: tuple[str, ...]) -> AdapterResult:
    """What an adapter computed by some kernels: one number."""
    path = folder / label
    path.mkdir(exist_ok=True)
    np.save(path / "0.npy", np.array([number], np.int32))
    return AdapterResult(label, Outcome("case", Status.PASS, elements=1, kernels=kernels), path)


MAP, TREE = ("cast map (elementwise/cast)",), ("reduce tree (reduction/tree)", "store (reduction/store)")


def test_a_disagreement_names_the_kernels_that_ran(tmp_path):
    results = [computed(tmp_path, "a", 1, MAP), computed(tmp_path, "b", 2, TREE), computed(tmp_path, "c", 3, MAP)]
    pairs = [compare_results(result, other, Allowance(EXACT)) for result, other in combinations(results, 2)]
    assert [pair.kernels for pair in pairs] == [(MAP, TREE), (MAP, MAP), (TREE, MAP)]
    assert AdapterPair.from_json(json.loads(json.dumps(pairs[0].to_json()))) == pairs[0]
    assert kernels_of(pairs) == (f"a, c ran as: {MAP[0]}", f"b ran as: {'; '.join(TREE)}")
    request = ConformanceRequest(suite="altered", adapters=("all",))
    assert [line for line in _pair_lines(pairs, request) if "ran as" in line] == [
        f"  {text}" for text in kernels_of(pairs)
    ]


def test_agreement_and_missing_kernels_name_none(tmp_path):
    same = compare_results(computed(tmp_path, "a", 1, MAP), computed(tmp_path, "b", 1, TREE), Allowance(EXACT))
    none = compare_results(computed(tmp_path, "a", 1, ()), computed(tmp_path, "b", 2, ()), Allowance(EXACT))
    assert (same.agreement, same.kernels) == (Agreement.AGREE, ())
    assert (none.agreement, none.kernels, "kernels" in none.to_json()) == (Agreement.DISAGREE, (), False)


def test_equal_digests_are_equal_bits():
    pair = compare_results(result("a", digest="1f"), result("b", digest="1f"), Allowance(EXACT))
    assert (pair.agreement, pair.distance) == (Agreement.AGREE, Distance(3))


def test_an_expected_failure_is_no_problem():
    (pair,) = pairs_of("ab", ab=BAD)
    known = expected_to_disagree(pair, "told so")
    assert (known.agreement, known.agreement.is_good, known.message) == (Agreement.EXPECTED, True, "told so")
    (pair,) = pairs_of("ab")
    assert expected_to_disagree(pair, "told so") == pair


# ---- cases in children, one of which is altered


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, AdapterPair]]:
    """By case: the pairs of the adapters a, b and c, of which c is altered."""
    environment = conformance_suite.install(tmp_path_factory.mktemp("package"), "altered", AlteredSuite)
    job = Job("altered", len(adapters()) - 1, environment=environment)
    jobs = {"a": job, "b": job, "c": replace(job, environment={**environment, VARIABLE: "1"})}
    scratch = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(scratch))
        groups = list(run_pairwise(jobs, AlteredSuite(), NAMES))
    assert not list(scratch.iterdir())
    return {pairs[0].case: {"".join(pair.adapters): pair for pair in pairs} for pairs in groups}


@pytest.mark.slow
def test_places_are_compared_each_with_each(compared):
    agreements = {
        case: {labels: pair.agreement.value for labels, pair in pairs.items()} for case, pairs in compared.items()
    }
    assert agreements == {
        "same-1": {"ab": "agree", "ac": "agree", "bc": "agree"},
        "near-1": {"ab": "agree", "ac": "agree", "bc": "agree"},
        "far-1": {"ab": "agree", "ac": "disagree", "bc": "disagree"},
        "bits-1": {"ab": "agree", "ac": "disagree", "bc": "disagree"},
        "unwritten-1": {"ab": "disagree", "ac": "disagree", "bc": "disagree"},
        "alternatives-1": {"ab": "agree", "ac": "undecided", "bc": "undecided"},
        "refused-1": {"ab": "agree", "ac": "not supported", "bc": "not supported"},
        "raises-1": {"ab": "agree", "ac": "no result", "bc": "no result"},
        "crash-1": {"ab": "agree", "ac": "no result", "bc": "no result"},
    }
    outliers = {case: outlier(pairs.values()) for case, pairs in compared.items()}
    assert {case for case, label in outliers.items() if label} == {"far-1", "bits-1", "raises-1", "crash-1"}
    assert set(outliers.values()) == {"", "c"}


@pytest.mark.slow
def test_pairs_say_how_far_apart_they_are(compared):
    assert compared["near-1"]["ac"].distance == Distance(2, 1, 0, 1.0, 2.0, (0, 1), ("1.0", "1.0000002"), 2 * EPSILON)
    assert compared["far-1"]["bc"].distance == Distance(2, 1, 1, 1.5, 3.0, (0, 1), ("1.0", "1.0000004"), 2 * EPSILON)
    assert compared["bits-1"]["ac"].distance == Distance(4, 1, 1, np.inf, 1.0, (1, 0, 1), ("4", "5"), 0.0)
    assert compared["same-1"]["ac"].distance == Distance(2)
    assert compared["far-1"]["ac"].tolerance == "1 ULP"


def test_pairs_say_why_there_is_no_result(compared):
    assert compared["refused-1"]["ac"].message == "c: not supported: needs the adapter feature shader-f64"
    assert compared["raises-1"]["bc"].message == (
        "c: fail: output_tensor: 4 bytes were written out of bounds, the first at byte -4"
    )
    assert compared["crash-1"]["ac"].message.startswith("c: crash: the process ended with exit code 3")
    assert compared["alternatives-1"]["ac"].message == "several results are correct"


# ---- suites


def test_a_suite_that_only_judges_is_rejected():
    with pytest.raises(InvalidArgument) as error:
        as_output_suite(conformance_suite.MisbehavingSuite(), "misbehaving")
    assert str(error.value) == ("the suite 'misbehaving' cannot be run pairwise: it returns no outputs")


# ---- files

PAIRS = (
    AdapterPair(
        "far-1", ("a", "b"), BAD, "1 ULP", Distance(2, 1, 1, float("inf"), float("inf"), (0, 1), ("1.0", "nan"), 0.5)
    ),
    AdapterPair("far-1", ("a", "c"), NONE, "1 ULP", None, "c: crash: signal 11"),
    AdapterPair("far-1", ("b", "c"), Agreement.AGREE, "1 ULP", Distance(2)),
)
COMMAND = ("dmlgpu", "test", "--pairwise")
ADAPTERS = (
    LocatedAdapter(NUMPY_ADAPTER, 0, label="a"),
    LocatedAdapter(NUMPY_ADAPTER, 1, (("VK_DRIVER_FILES", "x.json"),), "b"),
)


def written() -> str:
    file = io.StringIO()
    header = comparison_facts(ADAPTERS, COMMAND, suite="altered", profile="quick", pattern="", names=("far-1",))
    assert list(write_comparison(file, header, [PAIRS])) == [PAIRS]
    return file.getvalue()


def test_a_comparison_survives_its_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(written())
    (recorded,) = read_comparisons(path)
    assert (recorded.pairs, recorded.is_complete) == (PAIRS, True)
    assert recorded.facts["adapters"]["b"]["environment"] == {"VK_DRIVER_FILES": "x.json"}
    assert recorded.facts["command"] == list(COMMAND)
    assert (recorded.facts["adapters"]["b"]["number"], recorded.facts["suite"], recorded.facts["cases"]) == (
        1,
        "altered",
        1,
    )
    assert json.loads(written().splitlines()[-1])["counts"] == {"disagree": 1, "no result": 1, "agree": 1}


def test_runs_and_comparisons_lie_in_one_file(tmp_path):
    path, file = tmp_path / "both.jsonl", io.StringIO()
    outcomes = (Outcome("far-1", Status.PASS),)
    assert tuple(write_run(file, facts(NUMPY_ADAPTER, "altered", "quick", "", ("far-1",)), outcomes)) == outcomes
    path.write_text(written() + file.getvalue() + "".join(written().splitlines(keepends=True)[:2]))
    assert [run.outcomes for run in read_runs(path)] == [outcomes]
    assert [(comparison.pairs, comparison.is_complete) for comparison in read_comparisons(path)] == [
        (PAIRS, True),
        (PAIRS[:1], False),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"record": "case"}', "a comparison must have records of the kind 'pair', got 'case'"),
        ('{"record": "pair", "case": "a"}', "is not a valid comparison of a pair: 'adapters' is missing"),
        (
            '{"record": "pair", "case": "a", "agreement": "fine", "adapters": ["a", "b"]}',
            "is not a valid comparison of a pair: 'agreement' must be one of agree, disagree, no result, expected, "
            "not supported, undecided, got 'fine'",
        ),
    ],
)
def test_other_lines_are_rejected(tmp_path, line, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(f"{written().splitlines()[0]}\n{line}\n")
    with pytest.raises(ModelError) as error:
        read_comparisons(path)
    assert str(error.value) == f"{path}, line 2: {message}"


def test_a_comparison_names_disputed_cases():
    agreed = replace(PAIRS[2], case="same-1")
    comparison = Comparison({}, (*PAIRS, agreed))
    assert comparison.disagreements == (("far-1", "a", PAIRS),)
    assert comparison.by_adapters["b", "c"] == (PAIRS[2], agreed)
