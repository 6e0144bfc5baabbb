"""IDENTITY, SUBTRACT, MULTIPLY and DIFFERENCE_SQUARE against exact arithmetic, ONNX's evaluator and onnxruntime."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from tests.reference import oracles
from tests.reference.helpers import ALL_TYPES, all_pairs, bits, run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

FLOATS = [np.float16, np.float32]
INTEGERS = [t.numpy for t in ALL_TYPES if not t.is_float]
EXACTLY = {
    descs.ElementWiseSubtract: lambda a, b: a - b,
    descs.ElementWiseMultiply: lambda a, b: a * b,
    descs.ElementWiseDifferenceSquare: lambda a, b: (a - b) ** 2,
}


def binary(desc_class, a, b):
    return run(desc_class(a_tensor=tensor(a), b_tensor=tensor(b), output_tensor=tensor(a)), a, b)


def identity(x, scale_bias=None):
    desc = descs.ElementWiseIdentity(input_tensor=tensor(x), output_tensor=tensor(x), scale_bias=scale_bias)
    return run(desc, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("desc_class", [descs.ElementWiseSubtract, descs.ElementWiseMultiply])
def test_float_arithmetic_is_rounded_once(desc_class, dtype):
    a, b = all_pairs(dtype)
    result = binary(desc_class, a, b)
    for x, y, z in zip(a.flat, b.flat, result.flat, strict=True):
        assert z == oracles.round_to_float(EXACTLY[desc_class](Fraction(float(x)), Fraction(float(y))), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_squared_difference_is_at_most_one_number_off(dtype):
    a, b = all_pairs(dtype)
    result = binary(descs.ElementWiseDifferenceSquare, a, b)
    for x, y, z in zip(a.flat, b.flat, result.flat, strict=True):
        want = dtype(oracles.round_to_float((Fraction(float(x)) - Fraction(float(y))) ** 2, dtype))
        assert z in (want, np.nextafter(want, dtype(0)), np.nextafter(want, dtype(math.inf)))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("desc_class", EXACTLY)
def test_integer_arithmetic_wraps(desc_class, dtype):
    a, b = all_pairs(dtype)
    result = binary(desc_class, a, b)
    for x, y, z in zip(a.flat, b.flat, result.flat, strict=True):
        assert int(z) == oracles.wrap(EXACTLY[desc_class](int(x), int(y)), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_infinities_and_nan(dtype):
    a = np.array([0.0, -0.0, math.inf, math.inf, math.nan, -0.0], dtype)
    b = np.array([0.0, 0.0, math.inf, -math.inf, 1.0, -3.0], dtype)
    differences = np.array([0.0, -0.0, math.nan, math.inf, math.nan, 3.0], dtype)
    products = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 0.0], dtype)
    for desc_class, expected in [(descs.ElementWiseSubtract, differences), (descs.ElementWiseMultiply, products)]:
        result = binary(desc_class, a, b)
        np.testing.assert_array_equal(result, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(
    ("desc_class", "operator"), [(descs.ElementWiseSubtract, "Sub"), (descs.ElementWiseMultiply, "Mul")]
)
def test_arithmetic_agrees_with_onnx(desc_class, operator, dtype, evaluate):
    rng = np.random.default_rng(11)
    a, b = (rng.normal(0, 1000, (5, 6)).astype(dtype) for _ in "ab")
    np.testing.assert_array_equal(binary(desc_class, a, b), evaluate(operator, [a, b]))


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_identity_moves_bits(data_type):
    raw = np.random.default_rng(12).integers(0, 256, (300, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy)[:, 0]
    result = identity(source)
    np.testing.assert_array_equal(bits(result), bits(source))
    assert not np.shares_memory(result, source)


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data(), scale=st.floats(-4, 4, width=16), bias=st.floats(-4, 4, width=16))
def test_scale_and_bias_of_floats_are_rounded_once(dtype, data, scale, bias):
    """With few digits in scale and bias float64 holds the exact result."""
    values = np.array(data.draw(st.lists(st.integers(-2000, 2000), min_size=1, max_size=8)), dtype)
    result = identity(values, ScaleBias(scale, bias))
    for x, y in zip(values, result, strict=True):
        exact = Fraction(float(x)) * Fraction(scale) + Fraction(bias)
        assert y == oracles.round_to_float(exact, dtype)


@pytest.mark.parametrize(
    ("dtype", "values", "scale", "bias", "expected"),
    [
        (np.int8, [-128, -3, 3, 100, 127], -2.0, 0.0, [127, 6, -6, -128, -128]),
        (np.uint8, [0, 3, 100, 255], 0.5, -1.0, [0, 0, 49, 126]),
        (np.int16, [-7, 7], 0.5, 0.0, [-3, 3]),
        (np.uint16, [65535, 2], 2.0, 0.0, [65535, 4]),
        (np.int32, [2**24 + 1, 2**31 - 1], 1.0, 0.0, [2**24, 2**31 - 1]),
        (np.uint32, [2**32 - 1, 5], 1.0, 0.0, [2**32 - 1, 5]),
        (np.int64, [2**24 + 3, -(2**63), 2**62], 2.0, 0.0, [2**25 + 8, -(2**63), 2**63 - 1]),
        (np.uint64, [2**24 + 1, 2**63], 2.0, 0.0, [2**25, 2**64 - 1]),
    ],
)
def test_scale_and_bias_of_integers_go_through_float32_and_saturate(dtype, values, scale, bias, expected):
    result = identity(np.array(values, dtype), ScaleBias(scale, bias))
    np.testing.assert_array_equal(result, np.array(expected, dtype))


def test_scale_and_bias_are_float32():
    result = identity(np.array([1.0]), ScaleBias(0.1, 0.0))
    assert result[0] == float(np.float32(0.1))


def test_float64_scale_and_bias_keep_their_digits():
    result = identity(np.array([1.0 + 2.0**-50]), ScaleBias(2.0, 0.0))
    assert result[0] == 2.0 + 2.0**-49
    assert DataType.from_numpy(result.dtype) is DataType.FLOAT64
