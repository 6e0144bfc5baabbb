"""Criteria of slower results: p-values against SciPy's, corrections, thresholds, measurements on busy machines."""

import random

import pytest
from scipy import stats

from dmlgpu.bench.comparing import TimeChangeKind, compare, holm, mann_whitney
from dmlgpu.bench.records import BenchRun
from tests.unit.bench.bench_fakes import measured


def run(*measurements):
    return BenchRun({}, measurements)


def spread(seconds, seed):
    """Twenty times around a number of seconds."""
    draw = random.Random(seed)
    return [seconds * (1 + draw.gauss(0, 0.01)) for _ in range(20)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n", "m"), [(3, 4), (8, 9), (10, 10)])
def test_chances_of_few_values_are_exact(seed, n, m):
    draw = random.Random(seed)
    first, second = [draw.random() for _ in range(n)], [draw.random() + 0.3 for _ in range(m)]
    exact = stats.mannwhitneyu(first, second, method="exact").pvalue
    assert mann_whitney(first, second) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_chances_of_many_values_are_those_of_the_normal_approximation(ties):
    draw = random.Random(7)
    first, second = ([round(draw.gauss(mean, 1), 1 if ties else 9) for _ in range(30)] for mean in (0.0, 0.6))
    near = stats.mannwhitneyu(first, second, method="asymptotic").pvalue
    assert mann_whitney(first, second) == pytest.approx(near, rel=1e-9)


def test_equal_and_empty_samples_say_nothing():
    assert mann_whitney([1.0] * 12, [1.0] * 12) == 1.0
    assert mann_whitney([], [1.0]) == 1.0


def test_chances_are_corrected_for_their_number_and_stay_in_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_change_counts_where_it_is_sure_and_large_enough():
    before = run(*(measured(name, seconds=spread(1.0, seed)) for seed, name in enumerate("abcd")))
    after = run(
        measured("a", seconds=spread(1.5, 10)),
        measured("b", seconds=spread(0.5, 11)),
        measured("c", seconds=spread(1.04, 12)),  # sure, but below the threshold
        measured("d", seconds=spread(1.0, 13)),
    )
    changes = {change.key[0]: change for change in compare([before], [after])}
    assert {name: change.kind for name, change in changes.items()} == {
        "a": TimeChangeKind.SLOWER,
        "b": TimeChangeKind.FASTER,
        "c": TimeChangeKind.SAME,
        "d": TimeChangeKind.SAME,
    }
    assert changes["a"].low < changes["a"].ratio < changes["a"].high
    assert changes["a"].ratio == pytest.approx(1.5, rel=0.02)
    assert changes["c"].chance < 0.01
    assert compare([before], [after], threshold=0.01)[0].kind is TimeChangeKind.SLOWER
    assert {change.key[0] for change in compare([before], [after], 0.01) if change.kind is TimeChangeKind.SLOWER} == {
        "a",
        "c",
    }


def test_few_rounds_are_never_sure():
    changes = compare([run(measured(seconds=[1.0, 1.1]))], [run(measured(seconds=[9.0, 9.1]))])
    assert changes[0].kind is TimeChangeKind.SAME


def test_a_busy_machine_makes_changes_unsure():
    before = run(measured(seconds=spread(1.0, 1)))
    after = run(measured(seconds=spread(2.0, 2), warnings=("busy",)))
    (change,) = compare([before], [after])
    assert (change.kind, change.kind.is_worse) == (TimeChangeKind.UNSURE, False)


def test_wrong_lost_and_missing_measurements_are_worse_and_come_first():
    before = run(*(measured(name) for name in ("fine", "wrong", "lost", "missing")))
    after = run(
        measured("fine"),
        measured("wrong", check="wrong"),
        measured("lost", seconds=(), status="failed"),
        measured("new"),
    )
    changes = compare([before], [after])
    assert [(change.kind, change.key[0]) for change in changes] == [
        (TimeChangeKind.WRONG, "wrong"),
        (TimeChangeKind.LOST, "lost"),
        (TimeChangeKind.MISSING, "missing"),
        (TimeChangeKind.NEW, "new"),
        (TimeChangeKind.SAME, "fine"),
    ]
    assert [change.kind.is_worse for change in changes] == [True, True, True, False, False]


def test_schedules_and_adapters_are_compared_with_their_own():
    before = run(measured(adapter="a"), measured(adapter="b"), measured(adapter="a", schedule="small"))
    assert {change.kind for change in compare([before], [before])} == {TimeChangeKind.SAME}
    assert len(compare([before], [before])) == 3


def test_the_later_of_two_measurements_counts():
    twice = [run(measured(seconds=spread(9.0, 1))), run(measured(seconds=spread(1.0, 2)))]
    (change,) = compare(twice, [run(measured(seconds=spread(1.0, 3)))])
    assert change.kind is TimeChangeKind.SAME
