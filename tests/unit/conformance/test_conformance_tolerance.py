"""Tolerance classes and the comparison, on values worked out by hand."""

import math

import numpy as np
import pytest

from dmlgpu.conformance.cases.families.reduction import LogarithmOfSum
from dmlgpu.conformance.cases.tolerance import (
    CORRECTLY_ROUNDED,
    EXACT,
    Accumulated,
    Transformed,
    Ulp,
    flush,
    ulp,
    ulp_distance,
)
from dmlgpu.conformance.running.outcome import compare

f16, f32, f64 = np.float16, np.float32, np.float64
NEXT = np.nextafter(f32(1), f32(2))
TINY = np.finfo(f32).smallest_subnormal


def ok(expected, got, tolerance, dtype=f32, magnitude=None):
    sums = None if magnitude is None else np.array([magnitude])
    return compare(np.array([expected], dtype), np.array([got], dtype), tolerance, sums).ok


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(1.0, f32, 2**-23), (1.99, f32, 2**-23), (2.0, f32, 2**-22), (0.0, f32, 2**-149), (1.0, f16, 2**-10),
     (2**-14, f16, 2**-24), (2**-24, f16, 2**-24), (1.0, f64, 2**-52), (math.inf, f32, 2**104), (65504, f16, 32),
     (7, np.int8, 1)],
)  # fmt: skip
def test_ulp(value, dtype, expected):
    assert ulp(np.array([value], dtype))[0] == expected


@pytest.mark.parametrize(
    ("a", "b", "dtype", "expected"),
    [
        (1.0, NEXT, f32, 1),
        (0.0, -0.0, f32, 0),
        (TINY, -TINY, f32, 2),
        (math.nan, math.nan, f32, 0),
        (math.nan, 1.0, f32, math.inf),
        (65504, math.inf, f16, 1),
        (1.0, 1.0 + 2**-51, f64, 2),
        (-128, 127, np.int8, 255),
        (-(2**63), 2**63 - 1, np.int64, 2.0**64),
        (2**64 - 1, 2**64 - 3, np.uint64, 2),
    ],
)
def test_ulp_distance(a, b, dtype, expected):
    assert ulp_distance(np.array([a], dtype), np.array([b], dtype))[0] == expected


def test_exact_compares_bits():
    quiet, other = (np.array([bits], np.uint32).view(f32) for bits in (0x7FC00000, 0x7FC00001))
    assert compare(quiet, quiet, EXACT).ok
    assert not compare(quiet, other, EXACT).ok
    assert not ok(0.0, -0.0, EXACT)
    assert not ok(TINY, 0.0, EXACT)


def test_correctly_rounded_takes_any_nan_but_one_number():
    quiet, other = (np.array([bits], np.uint32).view(f32) for bits in (0x7FC00000, 0xFFC00001))
    assert compare(quiet, other, CORRECTLY_ROUNDED).ok
    assert ok(1, 1, CORRECTLY_ROUNDED)
    assert not ok(1, NEXT, CORRECTLY_ROUNDED)
    assert not ok(0.0, -0.0, CORRECTLY_ROUNDED)
    assert not ok(math.nan, 1, CORRECTLY_ROUNDED)


def test_subnormal_results_may_be_flushed_in_32_bits_but_not_in_16():
    assert ok(TINY, 0.0, CORRECTLY_ROUNDED)
    assert ok(-TINY, 0.0, CORRECTLY_ROUNDED)
    assert not ok(TINY, 2 * TINY, CORRECTLY_ROUNDED)
    assert not ok(2**-24, 0.0, CORRECTLY_ROUNDED, f16)
    assert ok(-1000 * TINY, -0.0, Ulp(1))


def test_ulps():
    assert ok(1, NEXT, Ulp(1))
    assert not ok(1, np.nextafter(NEXT, f32(2)), Ulp(1))
    assert ok(np.finfo(f32).max, math.inf, Ulp(1))
    assert not ok(math.nan, 1, Ulp(1e9))
    assert not ok(3, 4, Ulp(5), np.int32)


def test_accumulated_grows_with_terms_and_absolute_sum():
    unit = 2.0**-24
    assert ok(0, 12 * unit, Accumulated(8), magnitude=1.1)  # (8 + 3) * unit * 1.1 = 12.1 units
    assert not ok(0, 13 * unit, Accumulated(8), magnitude=1.1)
    assert ok(0, 14 * unit, Accumulated(9), magnitude=1.2)
    assert not ok(0, 1.0, Accumulated(10**6), magnitude=1.0)
    assert ok(math.inf, math.inf, Accumulated(2), magnitude=math.inf)
    assert not ok(math.inf, 1, Accumulated(2), magnitude=math.inf)
    assert not ok(1, math.nan, Accumulated(2), magnitude=1.0)
    assert not ok(5, 6, Accumulated(100), np.int64, 1e9)


def test_transforms_add_a_rounding_per_operation():
    unit = 2.0**-24
    assert ok(0, 47 * unit, Transformed(8), magnitude=1.1)  # (8 + 3 + 32) * unit * 1.1 = 47.3 units
    assert not ok(0, 48 * unit, Transformed(8), magnitude=1.1)


def test_a_running_float32_sum_over_a_million_elements_is_rejected():
    values = np.random.default_rng(0).random(1_000_000).astype(f32)
    exact, running = f32(math.fsum(values.tolist())), values.cumsum(dtype=f32)[-1]
    assert not ok(exact, running, Accumulated(values.size), magnitude=float(values.sum(dtype=f64)))
    pairwise = values.reshape(-1, 100).sum(-1, dtype=f32).sum(dtype=f32)
    assert ok(exact, pairwise, Accumulated(values.size), magnitude=float(values.sum(dtype=f64)))


def test_accumulated_needs_the_absolute_sum():
    with pytest.raises(ValueError) as error:
        ok(1, 1, Accumulated(3))
    assert str(error.value) == "Accumulated needs the sum of absolute values of every output element"


def test_a_verdict_names_the_worst_element():
    expected = np.array([[1, 2], [3, 4]], f32)
    got = np.array([[1, 2.5], [3, 9]], f32)
    verdict = compare(expected, got, Ulp(2))
    assert (verdict.ok, verdict.wrong, verdict.elements, verdict.worst) == (False, 2, 4, (1, 1))
    assert str(verdict) == (
        "2 of 4 elements are wrong, only at index 1 of 2 along axis 1; the worst, at [1, 1]: expected 4.0, got 9.0; "
        "4,720,000 times the tolerance, 9,440,000 ULP off, allowed difference 9.53674e-07"
    )


def test_the_worst_element_is_a_wrong_one_even_if_its_value_is_right():
    verdict = compare(np.array([0.0, 1.0], f32), np.array([-0.0, 1.0], f32), CORRECTLY_ROUNDED)
    assert (verdict.ok, verdict.worst) == (False, (0,))


def test_a_good_verdict_reports_the_error():
    verdict = compare(np.array([1, 1], f32), np.array([1, NEXT], f32), Ulp(2))
    assert str(verdict) == "ok (50 % of the tolerance, max 1 ULP, mean 0.5 ULP)"


@pytest.mark.parametrize(
    ("tolerance", "expected", "got", "magnitude", "of_bound"),
    [
        (EXACT, [1, 2], [1, 2], None, 0.0),
        (EXACT, [0, 1], [-0.0, 1], None, np.inf),
        (CORRECTLY_ROUNDED, [np.nan, 1e-40], [-np.nan, 0], None, 0.0),
        (Ulp(4), [1, 1], [NEXT, 1], None, 0.25),
        (Ulp(4), [1, np.nan], [1 + 8 * float(NEXT - 1), np.nan], None, 2.0),
        (Ulp(4), [1, 1], [1, np.nan], None, np.inf),
        (Ulp(0), [0, 1], [-0.0, 1], None, 0.0),
        (Accumulated(1), [1, 4], [NEXT, 4], np.array([0, 0]), 1.0),
        # The first is many numbers away but well within its bound, the second one number away and at three quarters.
        (Accumulated(4), [2.0**-20, 1], [2.0**-19, NEXT], np.array([16, 1 / 9]), 0.75),
        (Accumulated(4), [1, np.inf], [1, 1], np.array([1, 1]), np.inf),
    ],
)
def test_the_worst_error_is_relative_to_the_tolerance(tolerance, expected, got, magnitude, of_bound):
    verdict = compare(np.array(expected, f32), np.array(got, f32), tolerance, magnitude)
    assert verdict.of_bound == pytest.approx(of_bound)
    assert verdict.ok == (of_bound <= 1)


def test_the_worst_element_is_the_one_that_is_farthest_beyond_its_bound():
    magnitude = np.array([1000.0, 1.0])
    verdict = compare(np.array([1, 1], f32), np.array([1.1, 1.01], f32), Accumulated(1), magnitude)
    assert (verdict.wrong, verdict.worst) == (2, (1,))
    assert verdict.max_ulp > 800_000  # of the other one


def test_other_types_and_sizes_are_wrong():
    verdict = compare(np.zeros((2, 1), f32), np.zeros(2, np.int32), EXACT)
    assert str(verdict) == "expected FLOAT32 [2, 1], got INT32 [2]"


def test_flush():
    values = np.array([TINY, -TINY, 1, 0], f32)
    np.testing.assert_array_equal(flush(values), [0, 0, 1, 0])
    assert np.signbit(flush(values)[1])
    ordinary, small = np.array([1.0]), np.array([2**-24], f16)
    assert flush(ordinary) is ordinary
    assert flush(small) is small


def test_values_that_round_up_to_the_smallest_normal_number_may_be_flushed():
    smallest = np.finfo(np.float32).smallest_normal
    expected = np.array([smallest, -smallest, np.nextafter(smallest, np.float32(1))], np.float32)
    assert CORRECTLY_ROUNDED.accepts(expected, np.zeros(3, np.float32), None).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("expected", "got", "terms", "accepted"),
    [
        (1.1095569e-12, 1.1096177e-12, 1.0, True),  # the logarithm of 1 + 1.1e-12: 561 ULP, 6e-17 of the sum
        (1.1095569e-12, 1.2e-12, 1.0, False),
        (1.1095569e-12, 1.2e-12, 1e3, True),  # numbers that cancel
        (0.5, 0.5 + 2**-23, 1.0, True),  # 2 ULP
        (0.5, 0.5 + 2**-22, 1.0, False),
        (np.nan, np.nan, np.inf, True),
        (-np.inf, -1e30, np.inf, False),  # a sum of 0
    ],
)
def test_the_logarithm_of_a_sum_is_as_far_off_as_the_sum(expected, got, terms, accepted):
    assert ok(expected, got, LogarithmOfSum(2), magnitude=terms) is accepted
