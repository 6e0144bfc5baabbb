"""The math library on every adapter: errors over the whole range, special values by hand, float16, huge angles."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.target import Division
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.library import declarations
from dmlgpu.conformance.accuracy.functions import (
    FUNCTIONS,
    TINY,
    Floats,
    LibraryFunction,
    errors,
    evaluate,
    flushes,
    halves,
    in_domain,
    measure,
    samples,
    true_values,
)
from dmlgpu.runtime.wgpu import GpuBackend, division
from tests.gpu.descriptions import run_desc

INF, NAN = np.inf, np.nan
PI = float(np.float32(np.pi))
HALF_PI, QUARTER_PI = PI / 2, PI / 4
THREE_QUARTERS_PI = float(np.float32(3 * np.pi / 4))
SUBNORMAL = float(np.float32(1e-40))
MIN = 2.0**-149
MAX = float(np.finfo(np.float32).max)
PER_EXPONENT = 512

UNARY = [function for function in FUNCTIONS if function.operands == 1]


def name(function: LibraryFunction) -> str:
    return function.name.removesuffix("_f32")


def values(backend: GpuBackend, function: str, *operands: Sequence[float], prelude: str = "") -> Floats:
    """A function of a few numbers."""
    count = len(operands[0])
    padded = [np.resize(np.array(operand, np.float32), count + -count % 4) for operand in operands]
    return evaluate(backend, function, *padded, prelude=prelude)[:count]


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_errors_stay_within_the_bound(backend: GpuBackend, function: LibraryFunction) -> None:
    result = measure(backend, function, PER_EXPONENT)
    assert result.max <= function.bound, f"{result.max:.3f} ULP: {result.worst}"


@pytest.mark.parametrize("variant", [Division.NATIVE, Division.FUSED])
@pytest.mark.parametrize(("function", "true"), [("divide_f32", np.divide), ("sqrt_f32", np.sqrt)])
def test_exact_functions_of_the_hardware_are_rounded_correctly(
    backend: GpuBackend, function: str, true: np.ufunc, variant: Division
) -> None:
    if variant not in division.measure(backend.wgpu_device):
        pytest.skip(f"{variant} division is not exact on {backend.info}")
    exact = LibraryFunction(f"{function}_{variant}", true, 0.5, operands=true.nin)
    operands = [np.where(np.abs(numbers) < TINY, 0, numbers) for numbers in samples(exact, PER_EXPONENT)]
    computed = evaluate(backend, exact.name, *operands)
    assert errors(computed, true_values(exact, operands), flushes(backend)).max() <= 0.5


FUSED = """
// a * b is exact in float64, and so is what the sum loses. Rounded to odd, the sum rounds to float32 as the exact one.
fn exact_fma(a: f32, b: f32, c: f32) -> f32 {
    let product = f64(a) * f64(b);
    let sum = bitcast<f64>(bitcast<u64>(product + f64(c)) | u64(opaque_zero()));
    let part = bitcast<f64>(bitcast<u64>(sum - product) | u64(opaque_zero()));
    let lost = (product - bitcast<f64>(bitcast<u64>(sum - part) | u64(opaque_zero()))) + (f64(c) - part);
    let bits = bitcast<u64>(sum);
    let is_inexact = lost != f64(0.0) && (bits & 1lu) == 0lu;
    let odd = select(bits - 1lu, bits + 1lu, (lost > f64(0.0)) == (sum > f64(0.0)));
    return opaque(f32(bitcast<f64>(select(bits, odd, is_inexact))));
}
fn off(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) + bitcast<u32>(OFF)); }
"""


@pytest.mark.parametrize("off", [-2, 0, 2])
@pytest.mark.parametrize(("function", "true"), [("divide_f32", np.divide), ("sqrt_f32", np.sqrt)])
def test_corrections_are_exact_if_fma_is(backend: GpuBackend, function: str, true: np.ufunc, off: int) -> None:
    """Use estimates that are ``off`` by a number of ULP, and fused multiply-adds, which software adapters lack."""
    if not (backend.target.has("shader-f64") and backend.target.has("shader-int64")):
        pytest.skip(f"{backend.info} lacks 64-bit types")
    name = f"{function}_fused"
    text = re.sub(r"let estimate = ([^;]+);", r"let estimate = off(\1);", declarations()[name])
    assert "off(" in text and text.count("fma(") >= 3
    text = text.replace("fma(", "exact_fma(").replace(f"fn {name}(", "fn corrected(")
    operands = [np.where(np.abs(numbers) < TINY, 0, numbers) for numbers in samples(exact_function(function), 512)]
    computed = evaluate(backend, "corrected", *operands, prelude=FUSED.replace("OFF", f"{off}i") + text)
    assert errors(computed, true_values(exact_function(function), operands)).max() <= 0.5


def exact_function(name: str) -> LibraryFunction:
    """A function of the table."""
    (function,) = (function for function in FUNCTIONS if function.name == name)
    return function


# ---- special values: input(s), output; the sign of a zero counts

ZEROS = [(0.0, 0.0), (-0.0, -0.0)]
ODD = [*ZEROS, (NAN, NAN), (SUBNORMAL, SUBNORMAL), (-MIN, -MIN)]

SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp_f32": [
        (0.0, 1.0),
        (-0.0, 1.0),
        (INF, INF),
        (-INF, 0.0),
        (NAN, NAN),
        (88.8, INF),
        (-103.98, 0.0),
        (MIN, 1.0),
    ],
    "exp_bounded": [(0.0, 1.0), (-0.0, 1.0), (-INF, 0.0), (NAN, NAN), (-103.98, 0.0), (-200.0, 0.0), (MIN, 1.0)],
    "expm1_f32": [*ODD, (INF, INF), (-INF, -1.0), (100.0, INF), (-100.0, -1.0)],
    "log_f32": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN), (-MIN, NAN)],
    "log1p_f32": [*ODD, (-1.0, -INF), (-1.5, NAN), (INF, INF), (-INF, NAN)],
    "sin_f32": [*ODD, (INF, NAN), (-INF, NAN)],
    "cos_f32": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (MIN, 1.0)],
    "tan_f32": [*ODD, (INF, NAN), (-INF, NAN)],
    "asin_f32": [*ODD, (1.0, HALF_PI), (-1.0, -HALF_PI), (1.0000001, NAN), (-INF, NAN)],
    "acos_f32": [(1.0, 0.0), (-1.0, PI), (0.0, HALF_PI), (-0.0, HALF_PI), (1.0000001, NAN), (-2.0, NAN), (NAN, NAN)],
    "atan_f32": [*ODD, (INF, HALF_PI), (-INF, -HALF_PI), (1.0, QUARTER_PI)],
    "sinh_f32": [*ODD, (INF, INF), (-INF, -INF), (-90.0, -INF)],
    "cosh_f32": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (90.0, INF)],
    "tanh_f32": [*ZEROS, (NAN, NAN), (INF, 1.0), (-INF, -1.0), (20.0, 1.0), (-1e30, -1.0)],
    "asinh_f32": [*ODD, (INF, INF), (-INF, -INF)],
    "acosh_f32": [(1.0, 0.0), (0.99999994, NAN), (0.0, NAN), (-2.0, NAN), (-INF, NAN), (INF, INF), (NAN, NAN)],
    "atanh_f32": [*ODD, (1.0, INF), (-1.0, -INF), (1.0000001, NAN), (-INF, NAN)],
    "erf_f32": [*ZEROS, (NAN, NAN), (INF, 1.0), (-INF, -1.0), (-30.0, -1.0)],
    "erfc_f32": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (11.0, 0.0), (-30.0, 2.0)],
    "erfc_tail_f32": [(INF, 0.0), (15.0, 0.0), (30.0, 0.0)],
    "sigmoid_f32": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (-104.0, 0.0), (100.0, 1.0)],
    "softplus_f32": [(INF, INF), (-INF, 0.0), (NAN, NAN), (-104.0, 0.0), (100.0, 100.0), (1e30, 1e30)],
    "gelu_f32": [*ZEROS, (INF, INF), (-INF, NAN), (NAN, NAN), (100.0, 100.0), (-100.0, -0.0), (-1e30, -0.0)],
    "truncate_f32": [
        *ZEROS,
        (-0.5, -0.0),
        (1.9, 1.0),
        (-1.9, -1.0),
        (1e30, 1e30),
        (-INF, -INF),
        (NAN, NAN),
        (MIN, 0.0),
    ],
    "floor_f32": [*ZEROS, (-0.5, -1.0), (-MIN, -1.0), (MIN, 0.0), (1.9, 1.0), (-INF, -INF), (NAN, NAN)],
    "ceil_f32": [*ZEROS, (-0.5, -0.0), (MIN, 1.0), (-MIN, -0.0), (1.1, 2.0), (INF, INF), (NAN, NAN)],
    "round_half_even_f32": [
        *ZEROS,
        (0.5, 0.0),
        (-0.5, -0.0),
        (1.5, 2.0),
        (2.5, 2.0),
        (-3.5, -4.0),
        (0.49999997, 0.0),
        (8388607.5, 8388608.0),
        (INF, INF),
        (NAN, NAN),
        (-MIN, -0.0),
    ],
    "round_half_away_f32": [
        *ZEROS,
        (0.5, 1.0),
        (-0.5, -1.0),
        (2.5, 3.0),
        (-2.5, -3.0),
        (0.49999997, 0.0),
        (-0.3, -0.0),
        (8388607.5, 8388608.0),
        (-INF, -INF),
        (NAN, NAN),
        (-MIN, -0.0),
    ],
    "sqrt_f32": [
        (4.0, 2.0),
        *ZEROS,
        (INF, INF),
        (-1.0, NAN),
        (NAN, NAN),
        (2.0**-148, 2.0**-74),
        (MAX, 2.0**64 - 2.0**40),
    ],
}

PAIRS: dict[str, list[tuple[float, float, float]]] = {
    "divide_f32": [
        *[(1.0, 3.0, 1 / 3), (-1.0, 3.0, -1 / 3), (6.0, -3.0, -2.0), (0.0, 3.0, 0.0), (0.0, -3.0, -0.0)],
        *[(1.0, 0.0, INF), (-1.0, 0.0, -INF), (1.0, -0.0, -INF), (0.0, 0.0, NAN), (0.0, -0.0, NAN), (NAN, 1.0, NAN)],
        *[(1.0, NAN, NAN), (INF, 2.0, INF), (-INF, 2.0, -INF), (2.0, INF, 0.0), (-2.0, INF, -0.0), (INF, INF, NAN)],
        *[(INF, 0.0, INF), (0.0, INF, 0.0), (MAX, MAX, 1.0), (MAX, 2.0**127, MAX / 2.0**127), (MAX, 0.5, INF)],
        *[(1.0, MIN, INF), (MIN, MIN, 1.0), (SUBNORMAL, 1.0, SUBNORMAL), (3 * MIN, 2.0, 2 * MIN)],
        *[
            (MIN, 2.0, 0.0),
            (-3 * MIN, 4.0, -MIN),
            (TINY, 2.0, TINY / 2),
            (1.0, MAX, float(np.float32(1 / MAX))),
        ],
    ],
    "pow_f32": [
        *[(NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (INF, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0, NAN, 1.0), (1.0, INF, 1.0)],
        *[(-1.0, INF, 1.0), (-1.0, -INF, 1.0), (NAN, 1.0, NAN), (2.0, NAN, NAN), (-1.0, NAN, NAN)],
        *[(2.0, INF, INF), (2.0, -INF, 0.0), (0.5, INF, 0.0), (0.5, -INF, INF), (-2.0, INF, INF), (-0.5, INF, 0.0)],
        *[(0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (0.0, 0.5, 0.0), (-0.0, 0.5, 0.0), (0.0, INF, 0.0)],
        *[(0.0, -3.0, INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (-0.0, -0.5, INF), (0.0, -INF, INF)],
        *[(INF, 2.0, INF), (INF, -2.0, 0.0), (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF)],
        *[(-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (-INF, INF, INF), (-INF, -INF, 0.0)],
        *[(-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -1.0, -0.5), (-2.0, 0.5, NAN), (-2.0, 1e-30, NAN)],
        *[(-1.0, 16777216.0, 1.0), (-1.0, 16777215.0, -1.0), (-1.0, 8388607.5, NAN), (-1.0, 1e30, 1.0)],
        *[(2.0, 128.0, INF), (2.0, 127.0, 2.0**127), (2.0, -150.0, 0.0), (2.0, -149.0, MIN), (10.0, 38.0, 1e38)],
        *[(MAX, MAX, INF), (MAX, -MAX, 0.0), (-2.0, 129.0, -INF), (-0.5, 151.0, -0.0), (3.0, 4.0, 81.0)],
    ],
    "atan2_f32": [
        *[(0.0, 1.0, 0.0), (-0.0, 1.0, -0.0), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, -0.0, PI), (-0.0, -0.0, -PI)],
        *[(0.0, -1.0, PI), (-0.0, -1.0, -PI), (1.0, 0.0, HALF_PI), (-1.0, -0.0, -HALF_PI), (1.0, 1.0, QUARTER_PI)],
        *[(1.0, -1.0, THREE_QUARTERS_PI), (-1.0, -1.0, -THREE_QUARTERS_PI), (-1.0, 1.0, -QUARTER_PI)],
        *[(INF, 1.0, HALF_PI), (-INF, -1.0, -HALF_PI), (1.0, INF, 0.0), (-1.0, INF, -0.0), (1.0, -INF, PI)],
        *[(-1.0, -INF, -PI), (INF, INF, QUARTER_PI), (-INF, INF, -QUARTER_PI), (INF, -INF, THREE_QUARTERS_PI)],
        *[
            (NAN, 1.0, NAN),
            (1.0, NAN, NAN),
            (NAN, INF, NAN),
            (SUBNORMAL, SUBNORMAL, QUARTER_PI),
            (MAX, MAX, QUARTER_PI),
        ],
        *[(MIN, -MIN, THREE_QUARTERS_PI), (-MIN, 0.0, -HALF_PI)],
    ],
    "fmod_f32": [
        *[(7.0, 3.0, 1.0), (-7.0, 3.0, -1.0), (7.0, -3.0, 1.0), (6.0, 3.0, 0.0), (-6.0, 3.0, -0.0), (0.0, 3.0, 0.0)],
        *[(-0.0, 3.0, -0.0), (5.0, INF, 5.0), (-5.0, INF, -5.0), (INF, 3.0, NAN), (5.0, 0.0, NAN), (NAN, 3.0, NAN)],
        *[
            (3.0, NAN, NAN),
            (1e30, 7.0, float(int(np.float32(1e30)) % 7)),
            (MIN, 1.0, MIN),
            (1.0, MIN, 0.0),
            (MAX, 3.0, 0.0),
        ],
        *[(SUBNORMAL, MIN * 3, 1e-45), (-1.0, -1.0, -0.0)],
    ],
    "floor_mod_f32": [
        *[
            (7.0, 3.0, 1.0),
            (-7.0, 3.0, 2.0),
            (7.0, -3.0, -2.0),
            (-7.0, -3.0, -1.0),
            (6.0, -3.0, -0.0),
            (-6.0, 3.0, 0.0),
        ],
        *[(-0.0, 3.0, 0.0), (0.0, -3.0, -0.0), (5.0, INF, 5.0), (-5.0, INF, INF), (5.0, -INF, -INF), (INF, 3.0, NAN)],
        *[(5.0, 0.0, NAN), (NAN, 3.0, NAN), (3.0, NAN, NAN), (-MIN, MIN * 3, MIN * 2), (-MIN, 1.0, 1.0)],
    ],
    "min_f32": [
        (1.0, 2.0, 1.0),
        (-INF, 0.0, -INF),
        (NAN, 1.0, NAN),
        (1.0, NAN, NAN),
        (MIN, SUBNORMAL, MIN),
        (-MIN, MIN, -MIN),
        (INF, 1.0, 1.0),
        (-1.0, -2.0, -2.0),
        (NAN, -INF, NAN),
    ],
    "max_f32": [
        (1.0, 2.0, 2.0),
        (-INF, 0.0, 0.0),
        (NAN, 1.0, NAN),
        (1.0, NAN, NAN),
        (MIN, SUBNORMAL, SUBNORMAL),
        (-MIN, MIN, MIN),
        (INF, NAN, NAN),
        (-1.0, -2.0, -1.0),
        (-INF, -MAX, -MAX),
    ],
}

assert {function.name for function in FUNCTIONS} == {*SPECIAL, *PAIRS}


def assert_special(computed: Floats, expected: Sequence[float], rows: Sequence[tuple[float, ...]]) -> None:
    """Equal to the bit, any NaN for NaN; within one unit in the last place for finite numbers that are no integers."""
    target = np.array(expected, np.float32)
    for got, want, row in zip(computed, target, rows, strict=True):
        if np.isnan(want):
            assert np.isnan(got), f"{row}: got {got!r}"
            continue
        is_exact = not np.isfinite(want) or want == np.rint(want) or abs(want) < TINY
        close = 0.0 if is_exact else float(np.spacing(np.abs(want)))
        with np.errstate(invalid="ignore"):
            same = got == want or abs(float(got) - float(want)) <= close
        assert same and np.signbit(got) == np.signbit(want), f"{row}: got {got!r}"


@pytest.mark.parametrize("function", SPECIAL)
def test_special_values(backend: GpuBackend, function: str) -> None:
    table = SPECIAL[function]
    numbers, expected = zip(*table, strict=True)
    assert_special(values(backend, function, numbers), expected, table)


@pytest.mark.parametrize("function", PAIRS)
def test_special_pairs(backend: GpuBackend, function: str) -> None:
    table = PAIRS[function]
    first, second, expected = zip(*table, strict=True)
    assert_special(values(backend, function, first, second), expected, table)


def test_predicates_look_at_the_bits(backend: GpuBackend) -> None:
    numbers = [NAN, -NAN, INF, -INF, 0.0, -0.0, SUBNORMAL, MAX]
    prelude = "fn nan(x: f32) -> f32 { return select(0.0, 1.0, is_nan_f32(x)); }\n"
    prelude += "fn infinity(x: f32) -> f32 { return select(0.0, 1.0, is_infinity_f32(x)); }\n"
    assert values(backend, "nan", numbers, prelude=prelude).tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert values(backend, "infinity", numbers, prelude=prelude).tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_moving_bits_keeps_subnormals(backend: GpuBackend) -> None:
    numbers = np.array([MIN, -SUBNORMAL, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(evaluate(backend, "negate_f32", numbers).view(np.uint32), (-numbers).view(np.uint32))
    sizes = evaluate(backend, "size_of_f32", numbers)
    np.testing.assert_array_equal(sizes.view(np.uint32), abs(numbers).view(np.uint32))


# ---- subnormals that integer arithmetic makes, on adapters that flush too


@pytest.mark.parametrize(
    ("function", "places"),
    [
        ("exp_f32", (-87.4, -90.0, -100.0, -103.5)),
        ("sigmoid_f32", (-88.0, -95.0, -103.0)),
    ],
)
def test_subnormal_results_everywhere(backend: GpuBackend, function: str, places: tuple[float, ...]) -> None:
    (known,) = (entry for entry in FUNCTIONS if entry.name == function)
    numbers = np.array(places, np.float32)
    computed = values(backend, function, places)
    true = true_values(known, [numbers])
    assert (np.abs(true) < TINY).all()
    assert (errors(computed, true) <= 2.0).all(), computed


def test_the_logarithm_of_subnormals_everywhere(backend: GpuBackend) -> None:
    numbers = np.array([MIN, SUBNORMAL, 1.1754942e-38, 3e-42], np.float32)
    np.testing.assert_allclose(evaluate(backend, "log_f32", numbers), np.log(numbers.astype(np.float64)), rtol=2e-7)


def test_angles_of_subnormals_everywhere(backend: GpuBackend) -> None:
    """Of the adapter's own division, which may divide 0 by 0."""
    y, x = np.array([(MIN, MIN), (MIN, -MIN), (SUBNORMAL, 2e-40), (-1e-38, -3e-40)], np.float32).T
    tensor = TensorDesc(DataType.FLOAT32, y.shape)
    desc = descs.ElementWiseAtanYx(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    (angles,) = run_desc(backend, desc, [y, x], backend.target)
    np.testing.assert_allclose(angles, np.arctan2(y.astype(np.float64), x.astype(np.float64)), rtol=2e-7)


# ---- huge angles: x; sine, cosine and tangent to 16 digits, from arithmetic with 400 bits

ANGLES = [
    (100000.0, 0.03574879797201651, -0.9993608074382124, -0.035771662952898776),
    (1e10, -0.4875060250875107, 0.873119622676856, -0.5583496378112418),
    (9.999999778196308e21, -0.7340815352961015, 0.679061337095051, -1.0810239004865465),
    (1.0000000150474662e30, -0.7911634385219837, -0.6116047854178966, 1.2935860826880194),
    (2.0**100, -0.8721836054182673, 0.48917865697472146, -1.782955149376719),
    (3.4028234663852886e38, -0.5218765233336585, 0.8530210398303042, -0.6117979498342481),
    (16367173 * 2.0**72, 1.0, -1.6147697982476211e-09, -619283318.9506139),  # the one closest to a multiple of pi/2
    (1.5707963705062866, 0.999999999999999, -4.371139000186241e-08, -22877332.42885646),
    (355.0, -3.014435335948845e-05, -0.999999999545659, 3.0144353373184265e-05),
    (1024.5, 0.3342364104037093, 0.942489268883441, 0.3546315289082032),
    (-3.0000000054977558e38, -0.8749048877644344, -0.4842947835419069, 1.8065544323351714),
]


@pytest.mark.parametrize(
    ("function", "column", "bound"), [("sin_f32", 1, 2.0), ("cos_f32", 2, 2.0), ("tan_f32", 3, 4.0)]
)
def test_huge_angles(backend: GpuBackend, function: str, column: int, bound: float) -> None:
    computed = values(backend, function, [row[0] for row in ANGLES])
    error = errors(computed, np.array([row[column] for row in ANGLES]))
    assert (error <= bound).all(), list(zip([row[0] for row in ANGLES], error, strict=True))


# ---- float16


@pytest.mark.parametrize("function", UNARY, ids=name)
def test_float16_is_rounded_once_from_float32(backend: GpuBackend, function: LibraryFunction) -> None:
    numbers = in_domain(function, halves())
    prelude = f"fn halved(x: f32) -> f32 {{ return bitcast<f32>(half_of_f32({function.name}(x))); }}\n"
    halved = evaluate(backend, "halved", numbers, prelude=prelude).view(np.uint32).astype(np.uint16).view(np.float16)
    single = evaluate(backend, function.name, numbers)
    with np.errstate(over="ignore"):
        rounded = single.astype(np.float16)
        true = true_values(function, [numbers])
        nearest = true.astype(np.float16)
    both_nan = np.isnan(halved) & np.isnan(rounded)
    np.testing.assert_array_equal(np.where(both_nan, 0, halved.view(np.uint16) ^ rounded.view(np.uint16)), 0)
    # The correctly rounded half, but for true values within the float32 error of a tie.
    is_other = ~((halved == nearest) | (np.isnan(halved) & np.isnan(nearest)))
    if flushes(backend):
        is_other &= np.abs(true) >= TINY
    assert is_other.mean() < 1e-3
    distance = np.abs(halved[is_other].astype(np.float64) - true[is_other])
    unit = np.abs(np.spacing(nearest[is_other])).astype(np.float64)
    assert (distance <= 0.501 * unit).all()


# ---- constants


def constants_of(file: str) -> list[str]:
    """The float literals of a library file."""
    code = re.sub(r"//[^\n]*", "", templates.source(file))
    return sorted(set(re.findall(r"(?<![\w.])\d+\.?\d*(?:e[+-]?\d+)?f\b", code)))


@pytest.mark.parametrize("file", [file for file in templates.files("lib") if constants_of(file)])
def test_constants_reach_the_adapter_exactly(backend: GpuBackend, file: str) -> None:
    literals = constants_of(file)
    cases = "".join(f"    case {index}: {{ return {literal}; }}\n" for index, literal in enumerate(literals))
    prelude = (
        f"fn constant(i: f32) -> f32 {{\n    switch i32(i) {{\n{cases}    default: {{ return 0.0; }}\n    }}\n}}\n"
    )
    reached = values(backend, "constant", range(len(literals)), prelude=prelude)
    assert reached.tolist() == [float(np.float32(literal.removesuffix("f"))) for literal in literals]


def test_the_library_is_there() -> None:
    assert {function.name for function in FUNCTIONS} <= set(declarations())
