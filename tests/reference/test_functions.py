"""Elementary functions against C's (Python's math), SciPy, ONNX's evaluator and onnxruntime."""

import itertools
import math

import numpy as np
import pytest
from scipy import special

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from tests.reference import oracles
from tests.reference.helpers import bits, run, samples, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

INF, NAN = math.inf, math.nan
SMALL_INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]

C = {
    descs.ElementWiseAcos: math.acos,
    descs.ElementWiseAsin: math.asin,
    descs.ElementWiseAtan: math.atan,
    descs.ElementWiseCos: math.cos,
    descs.ElementWiseSin: math.sin,
    descs.ElementWiseTan: math.tan,
    descs.ElementWiseExp: math.exp,
    descs.ElementWiseLog: math.log,
    descs.ElementWiseErf: special.erf,
    descs.ElementWiseSinh: math.sinh,
    descs.ElementWiseCosh: math.cosh,
    descs.ElementWiseTanh: math.tanh,
    descs.ElementWiseAsinh: math.asinh,
    descs.ElementWiseAcosh: math.acosh,
    descs.ElementWiseAtanh: math.atanh,
}


def unary(desc_class, x, **fields):
    return run(desc_class(input_tensor=tensor(x), output_tensor=tensor(x), **fields), x)


def power(x, exponent, **fields):
    desc = descs.ElementWisePow(
        input_tensor=tensor(x), exponent_tensor=tensor(exponent), output_tensor=tensor(x), **fields
    )
    return run(desc, x, exponent)


def angle(y, x):
    return run(descs.ElementWiseAtanYx(a_tensor=tensor(y), b_tensor=tensor(x), output_tensor=tensor(y)), y, x)


def domain(desc_class, count=300):
    """Return numbers for which the function is defined and finite."""
    x = np.random.default_rng(21).uniform(-1, 1, count)
    if desc_class in (descs.ElementWiseAcos, descs.ElementWiseAsin, descs.ElementWiseAtanh):
        return x
    return 1.0 + np.abs(20 * x) if desc_class in (descs.ElementWiseLog, descs.ElementWiseAcosh) else 20 * x


def assert_same_float(result, expected):
    """Assert equal bits, or any NaN for a NaN."""
    expected = np.asarray(expected, result.dtype)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(bits(result[numbers]), bits(expected[numbers]))


@pytest.mark.parametrize("desc_class", C)
def test_double_precision_agrees_with_c(desc_class):
    x = domain(desc_class)
    np.testing.assert_allclose(unary(desc_class, x), [C[desc_class](value) for value in x], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("desc_class", C)
def test_results_are_rounded_once(desc_class, dtype):
    x = domain(desc_class).astype(dtype)
    expected = [oracles.round_to_float(float(C[desc_class](float(value))), dtype) for value in x]
    assert_same_float(unary(desc_class, x), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("desc_class", C)
def test_functions_agree_with_onnx(desc_class, evaluate):
    x = domain(desc_class).astype(np.float32)
    operator = desc_class.__name__.removeprefix("ElementWise")
    np.testing.assert_allclose(unary(desc_class, x), evaluate(operator, [x]), rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("desc_class", "at"),
    [
        (descs.ElementWiseAcos, {1.0: 0.0, 2.0: NAN, -INF: NAN}),
        (descs.ElementWiseAsin, {-0.0: -0.0, 1.5: NAN}),
        (descs.ElementWiseAtan, {INF: math.pi / 2, -INF: -math.pi / 2, -0.0: -0.0}),
        (descs.ElementWiseCos, {INF: NAN, 0.0: 1.0}),
        (descs.ElementWiseSin, {-INF: NAN, -0.0: -0.0}),
        (descs.ElementWiseTan, {INF: NAN, -0.0: -0.0}),
        (descs.ElementWiseExp, {INF: INF, -INF: 0.0, -0.0: 1.0, 1000.0: INF}),
        (descs.ElementWiseLog, {-0.0: -INF, -1.0: NAN, INF: INF, 1.0: 0.0}),
        (descs.ElementWiseErf, {INF: 1.0, -INF: -1.0, -0.0: -0.0}),
        (descs.ElementWiseSinh, {-INF: -INF, -0.0: -0.0}),
        (descs.ElementWiseCosh, {-INF: INF, -0.0: 1.0}),
        (descs.ElementWiseTanh, {INF: 1.0, -INF: -1.0, -0.0: -0.0}),
        (descs.ElementWiseAsinh, {-INF: -INF, -0.0: -0.0}),
        (descs.ElementWiseAcosh, {1.0: 0.0, 0.5: NAN, INF: INF}),
        (descs.ElementWiseAtanh, {1.0: INF, -1.0: -INF, 2.0: NAN, -0.0: -0.0}),
    ],
)
def test_special_values(desc_class, at):
    result = unary(desc_class, np.array([NAN, *at], np.float32))
    assert_same_float(result, [NAN, *at.values()])


def test_angles_choose_the_quadrant_by_signs_of_zeros_too():
    y, x = np.array(list(itertools.product([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN], repeat=2)), np.float32).T
    expected = [math.atan2(a, b) for a, b in zip(y, x, strict=True)]
    assert_same_float(angle(np.ascontiguousarray(y), np.ascontiguousarray(x)), expected)


def test_scale_and_bias_come_before_the_function():
    x = np.array([0.0, 0.25, -0.5], np.float32)
    result = unary(descs.ElementWiseExp, x, scale_bias=ScaleBias(2.0, 1.0))
    np.testing.assert_array_equal(result, np.exp(np.array([1.0, 1.5, 0.0])).astype(np.float32))


# ---- powers


def python_power(x, y):
    """Compute C's pow by Python's operator for floats."""
    try:
        return math.pow(x, y)
    except ValueError:  # NaN, or infinity at a pole
        return math.copysign(INF, x if y % 2 == 1 else 1.0) if x == 0 else NAN
    except OverflowError:
        return -INF if x < 0 and y % 2 == 1 else INF


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, 1e30, -1e30, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_float_powers_are_those_of_c(dtype):
    x, y = np.array(list(itertools.product(SPECIAL, repeat=2))).clip(-60000, 60000).astype(dtype).T.copy()
    with np.errstate(over="ignore"):
        expected = np.array([python_power(float(a), float(b)) for a, b in zip(x, y, strict=True)]).astype(dtype)
    assert_same_float(power(x, y), expected)


@pytest.mark.parametrize("exponent", SPECIAL)
def test_constant_powers_are_those_of_c(exponent):
    x = np.array(SPECIAL, np.float32)
    with np.errstate(over="ignore"):
        expected = np.array([python_power(float(a), float(np.float32(exponent))) for a in x]).astype(np.float32)
    assert_same_float(unary(descs.ElementWiseConstantPow, x, exponent=exponent), expected)


def integer_power(x, n, dtype):
    """Compute by Python's unbounded integers; reciprocals are truncated, and all ones for 0."""
    if n >= 0:
        return oracles.wrap(x**n, dtype)
    if x == 0:
        return oracles.wrap(-1, dtype)
    return int(x ** (n % 2)) if abs(x) == 1 else 0


@pytest.mark.parametrize("base", SMALL_INTEGERS)
@pytest.mark.parametrize("exponent", SMALL_INTEGERS)
def test_integer_powers_wrap(base, exponent):
    bases, exponents = samples(base), np.arange(max(-20, int(np.iinfo(exponent).min)), 41, dtype=exponent)
    x, n = np.repeat(bases, len(exponents)), np.tile(exponents, len(bases))
    expected = [integer_power(int(a), int(b), base) for a, b in zip(x, n, strict=True)]
    assert power(x, n).tolist() == expected


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(
    ("base", "exponent"),
    [(np.float32, np.float32), (np.float32, np.int32), (np.int32, np.int32), (np.int32, np.float32)],
)
def test_powers_agree_with_onnx(base, exponent, evaluate):
    x, n = np.meshgrid(np.arange(1, 12), np.arange(0, 8))
    x, n = x.astype(base), n.astype(exponent)
    np.testing.assert_allclose(power(x, n), evaluate("Pow", [x, n]), rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "x", "exponent", "expected"),
    [
        (np.int8, [100, -100, 3], [2.0, 3.0, -1.0], [127, -128, 0]),
        (np.uint8, [0, 0, 2], [-1.0, 0.0, 7.5], [255, 1, 181]),
        (np.int32, [-8, 2, 7, 7], [0.5, 31.0, NAN, 0.0], [0, 2**31 - 1, 0, 1]),
        (np.uint32, [2**31 + 1, 5], [1.0, -INF], [2**31, 0]),
    ],
)
def test_integers_to_float_powers_go_through_float32_and_saturate(dtype, x, exponent, expected):
    result = power(np.array(x, dtype), np.array(exponent, np.float32))
    np.testing.assert_array_equal(result, np.array(expected, dtype))


def test_integer_exponents_of_floats_are_exact():
    x, n = np.array([-1.0, 1 - 2.0**-24, -1.0], np.float32), np.array([2**24 + 1, -(2**30) + 1, 2**30], np.int32)
    expected = np.array([-1.0, math.exp((1 - 2**30) * math.log1p(-(2.0**-24))), 1.0]).astype(np.float32)
    np.testing.assert_array_equal(power(x, n), expected)


def test_scale_and_bias_of_powers_belong_to_the_base():
    x, n = np.array([1, -2, 100], np.int8), np.array([2, 3, 1], np.uint8)
    np.testing.assert_array_equal(power(x, n, scale_bias=ScaleBias(2.0, 1.0)), np.array([9, -27, 127], np.int8))
    assert DataType.from_numpy(x.dtype) is DataType.INT8
