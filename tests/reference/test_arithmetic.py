"""Element-wise arithmetic against exact arithmetic in plain Python, ONNX's evaluator and onnxruntime."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, RoundingMode
from dmlgpu.catalog.operator_desc import ScaleBias
from tests.reference import oracles
from tests.reference.helpers import ALL_TYPES, all_pairs, run, samples, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

FLOATS = [np.float16, np.float32]
INTEGERS = [t.numpy for t in ALL_TYPES if not t.is_float]
SIGNED = [dtype for dtype in INTEGERS if dtype.kind == "i"]
NAN, INF = math.nan, math.inf


def unary(desc_class, x, **attributes):
    return run(desc_class(input_tensor=tensor(x), output_tensor=tensor(x), **attributes), x)


def binary(desc_class, a, b):
    return run(desc_class(a_tensor=tensor(a), b_tensor=tensor(b), output_tensor=tensor(a)), a, b)


def clip(desc_class, x, low, high, **attributes):
    if desc_class is descs.ElementWiseClip1:
        attributes["min_max_data_type"] = DataType.from_numpy(x.dtype)
    return unary(desc_class, x, min=low, max=high, scale_bias=None, **attributes)


def clip_grad(desc_class, x, gradient, low, high):
    attributes = {"min_max_data_type": DataType.from_numpy(x.dtype)} if desc_class is descs.ElementWiseClipGrad1 else {}
    desc = desc_class(
        input_tensor=tensor(x),
        input_gradient_tensor=tensor(gradient),
        output_gradient_tensor=tensor(x),
        min=low,
        max=high,
        **attributes,
    )
    return run(desc, x, gradient)


def assert_same(result, expected):
    """Assert equal numbers, zeros of equal sign, and NaN where expected."""
    expected = np.array(expected, result.dtype)
    np.testing.assert_array_equal(result, expected)
    if result.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])


# ---- floats


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("desc_class", "exactly"),
    [
        (descs.ElementWiseAdd, lambda a, b: a + b),
        (descs.ElementWiseDivide, lambda a, b: a / b),
        (descs.ElementWiseMean, lambda a, b: (a + b) / 2),
        (descs.ElementWiseModulusTruncate, lambda a, b: a - b * math.trunc(a / b)),
        (descs.ElementWiseModulusFloor, lambda a, b: a - b * math.floor(a / b)),
    ],
)
def test_floats_are_rounded_once(desc_class, exactly, dtype):
    a, b = all_pairs(dtype)
    for x, y, z in zip(a, b, binary(desc_class, a, b), strict=True):
        if y != 0 or desc_class in (descs.ElementWiseAdd, descs.ElementWiseMean):
            assert z == oracles.round_to_float(exactly(Fraction(float(x)), Fraction(float(y))), dtype), (x, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_reciprocals_are_rounded_once(dtype):
    x = samples(dtype, 1000)
    for value, result in zip(x, unary(descs.ElementWiseRecip, x, scale_bias=None), strict=True):
        if value == 0:
            assert result == math.copysign(INF, value)
        else:
            assert result == oracles.round_to_float(1 / Fraction(float(value)), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_roots_are_the_nearest_numbers(dtype):
    x = np.abs(samples(dtype, 1000))
    for value, root in zip(x, unary(descs.ElementWiseSqrt, x, scale_bias=None), strict=True):
        if value == 0:
            assert root == 0
            continue
        below, above = (Fraction(float(np.nextafter(root, dtype(end)))) for end in (-INF, INF))
        middle_below, middle_above = (below + Fraction(float(root))) / 2, (above + Fraction(float(root))) / 2
        assert middle_below**2 <= Fraction(float(value)) <= middle_above**2


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("desc_class", "expected"),
    [
        (descs.ElementWiseAdd, [NAN, NAN, 0.0, 0.0, -0.0, INF, NAN, NAN, INF, 7.0]),
        (descs.ElementWiseDivide, [NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, -0.0, 2.5]),
        (descs.ElementWiseModulusTruncate, [NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, -1.0, 1.0]),
        (descs.ElementWiseModulusFloor, [NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, INF, 1.0]),
        (descs.ElementWiseMin, [NAN, NAN, -0.0, -0.0, -0.0, INF, -INF, NAN, -1.0, 2.0]),
        (descs.ElementWiseMax, [NAN, NAN, 0.0, 0.0, -0.0, INF, INF, NAN, INF, 5.0]),
    ],
)
def test_special_values(desc_class, expected, dtype):
    a = np.array([NAN, 1, 0.0, -0.0, -0.0, INF, INF, NAN, -1, 5], dtype)
    b = np.array([1, NAN, -0.0, 0.0, -0.0, INF, -INF, NAN, INF, 2], dtype)
    assert_same(binary(desc_class, a, b), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("desc_class", "attributes", "expected"),
    [
        (descs.ElementWiseAbs, {"scale_bias": None}, [NAN, INF, INF, 0.0, 0.0, 2.5, 2.5]),
        (descs.ElementWiseSign, {}, [0, 1, -1, 0.0, 0.0, 1, -1]),
        (descs.ElementWiseNegate, {}, [NAN, -INF, INF, -0.0, 0.0, -2.5, 2.5]),
        (descs.ElementWiseCeil, {"scale_bias": None}, [NAN, INF, -INF, 0.0, -0.0, 3, -2]),
        (descs.ElementWiseFloor, {"scale_bias": None}, [NAN, INF, -INF, 0.0, -0.0, 2, -3]),
        (descs.ElementWiseRound, {"rounding_mode": RoundingMode.HALVES_TO_NEAREST_EVEN},
         [NAN, INF, -INF, 0.0, -0.0, 2, -2]),
        (descs.ElementWiseRound, {"rounding_mode": RoundingMode.TOWARD_ZERO}, [NAN, INF, -INF, 0.0, -0.0, 2, -2]),
        (descs.ElementWiseRound, {"rounding_mode": RoundingMode.TOWARD_INFINITY}, [NAN, INF, -INF, 0.0, -0.0, 3, -3]),
        (descs.ElementWiseRecip, {"scale_bias": None}, [NAN, 0.0, -0.0, INF, -INF, 0.4, -0.4]),
    ],
)  # fmt: skip
def test_special_values_of_one_operand(desc_class, attributes, expected, dtype):
    x = np.array([NAN, INF, -INF, 0.0, -0.0, 2.5, -2.5], dtype)
    assert_same(unary(desc_class, x, **attributes), expected)


def test_small_numbers_round_to_signed_zeros():
    x = np.array([0.25, -0.25, -0.5], np.float32)
    assert_same(unary(descs.ElementWiseCeil, x, scale_bias=None), [1, -0.0, -0.0])
    assert_same(unary(descs.ElementWiseRound, x, rounding_mode=RoundingMode.HALVES_TO_NEAREST_EVEN), [0.0, -0.0, -0.0])


def test_a_mean_does_not_overflow():
    largest = np.finfo(np.float32).max
    assert binary(descs.ElementWiseMean, np.array([largest], np.float32), np.array([largest], np.float32))[0] == largest


# ---- integers


def truncated(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


EXACTLY = {
    descs.ElementWiseAdd: lambda a, b: a + b,
    descs.ElementWiseMin: min,
    descs.ElementWiseMax: max,
    descs.ElementWiseDivide: lambda a, b: truncated(a, b) if b else -1,
    descs.ElementWiseModulusTruncate: lambda a, b: a - b * truncated(a, b) if b else -1,
    descs.ElementWiseModulusFloor: lambda a, b: a % b if b else -1,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("desc_class", EXACTLY)
def test_integers_are_exact_and_wrap(desc_class, dtype):
    a, b = all_pairs(dtype)
    for x, y, z in zip(a.tolist(), b.tolist(), binary(desc_class, a, b).tolist(), strict=True):
        assert z == oracles.wrap(EXACTLY[desc_class](x, y), dtype), (x, y)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_the_mean_of_integers_wraps_before_it_is_halved(dtype):
    a, b = all_pairs(dtype)
    for x, y, z in zip(a.tolist(), b.tolist(), binary(descs.ElementWiseMean, a, b).tolist(), strict=True):
        assert z == truncated(oracles.wrap(x + y, dtype), 2), (x, y)


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_the_smallest_integer(dtype):
    smallest = np.iinfo(dtype).min
    x, ones = np.array([smallest, -7, 0], dtype), np.array([-1, -1, -1], dtype)
    assert unary(descs.ElementWiseAbs, x, scale_bias=None).tolist() == [smallest, 7, 0]
    assert unary(descs.ElementWiseNegate, x).tolist() == [smallest, 7, 0]
    assert unary(descs.ElementWiseSign, x).tolist() == [-1, -1, 0]
    assert binary(descs.ElementWiseDivide, x, ones).tolist() == [smallest, 7, 0]
    assert binary(descs.ElementWiseModulusTruncate, x, ones).tolist() == [0, 0, 0]


# ---- bounds


@pytest.mark.parametrize("desc_class", [descs.ElementWiseClip, descs.ElementWiseClip1])
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-1.0, 2.0, [NAN, 2, -1, 0.0, -0.0, 2, -1]),
        (2.0, -1.0, [NAN, 2, 2, 2, 2, 2, 2]),  # the lower bound wins
        (NAN, 2.0, [NAN] * 7),
        (0.0, INF, [NAN, INF, 0.0, 0.0, 0.0, 3, 0.0]),
        (-0.0, 0.0, [NAN, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0]),
    ],
)
def test_clip(desc_class, low, high, expected):
    x = np.array([NAN, INF, -INF, 0.0, -0.0, 3, -3], np.float32)
    assert_same(clip(desc_class, x, low, high), expected)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "expected"),
    [
        (np.int8, -2.9, 3.9, [-2, -2, 0, 3, 3]),
        (np.int8, -1000.0, 3.5, [-128, -3, 0, 3, 3]),
        (np.int8, NAN, 1e9, [0, 0, 0, 3, 127]),
        (np.uint8, -5.0, 100.7, [100, 100, 0, 3, 100]),
    ],
)
def test_float32_bounds_are_converted_to_integers_as_by_cast(dtype, low, high, expected):
    x = np.array([-128, -3, 0, 3, 127], np.int8).view(dtype)
    assert clip(descs.ElementWiseClip, x, low, high).tolist() == expected


def test_bounds_of_integers_keep_all_digits():
    x = np.array([2**62 + 3, -(2**62) - 3, 5])
    assert clip(descs.ElementWiseClip1, x, -(2**62) - 1, 2**62 + 1).tolist() == [2**62 + 1, -(2**62) - 1, 5]
    gradient = np.array([7, 8, 9])
    result = clip_grad(descs.ElementWiseClipGrad1, x, gradient, -(2**62) - 3, 2**62 + 4)
    assert result.tolist() == [7, 0, 9]


@pytest.mark.parametrize("desc_class", [descs.ElementWiseClipGrad, descs.ElementWiseClipGrad1])
def test_clip_grad_is_zero_at_the_bounds_and_passes_where_nan(desc_class):
    x = np.array([-1, -0.5, 0, 2, 3, NAN], np.float32)
    gradient = np.array([1, 2, 3, 4, NAN, 6], np.float32)
    assert_same(clip_grad(desc_class, x, gradient, -1.0, 2.0), [0, 2, 3, 0, 0, 6])


def test_threshold():
    x = np.array([NAN, -1, 2, 0.1], np.float32)
    assert_same(unary(descs.ElementWiseThreshold, x, scale_bias=None, min=0.5), [NAN, 0.5, 2, 0.5])
    signed = np.array([-7, 7], np.int16)
    assert unary(descs.ElementWiseThreshold, signed, scale_bias=None, min=-2.9).tolist() == [-2, 7]


def test_scale_and_bias_come_first():
    x = np.array([-4.0, 4.0], np.float16)
    scale_bias = ScaleBias(2.0, 1.0)
    assert unary(descs.ElementWiseAbs, x, scale_bias=scale_bias).tolist() == [7.0, 9.0]
    assert unary(descs.ElementWiseSqrt, x[1:], scale_bias=scale_bias).tolist() == [3.0]
    integers = x.astype(np.int8)  # -4 and 4 become 200.5 and -199.5, which saturate
    assert unary(descs.ElementWiseAbs, integers, scale_bias=ScaleBias(-50.0, 0.5)).tolist() == [127, -128]


def test_a_fused_activation_comes_after_the_rounded_sum():
    a, b = np.array([2048.0, -3.0], np.float16), np.array([1.0, 1.0], np.float16)
    desc = descs.ElementWiseAdd1(
        a_tensor=tensor(a), b_tensor=tensor(b), output_tensor=tensor(a), fused_activation=descs.ActivationRelu()
    )
    assert run(desc, a, b).tolist() == [2048.0, 0.0]


# ---- ONNX


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize(
    ("desc_class", "operator", "attributes"),
    [
        (descs.ElementWiseAdd, "Add", {}),
        (descs.ElementWiseDivide, "Div", {}),
        (descs.ElementWiseMin, "Min", {}),
        (descs.ElementWiseMax, "Max", {}),
        (descs.ElementWiseModulusTruncate, "Mod", {"fmod": 1}),
        (descs.ElementWiseModulusFloor, "Mod", {"fmod": 0}),
    ],
)
def test_pairs_agree_with_onnx(desc_class, operator, attributes, dtype, evaluate):
    if attributes.get("fmod") == 0 and dtype is np.float32:
        pytest.skip("ONNX's Mod takes floats with fmod=1 only")
    if operator == "Div" and evaluate is onnx_reference and dtype is not np.float32:
        pytest.skip("ONNX's evaluator rounds the quotients of integers down, against its own page")
    rng = np.random.default_rng(31)
    a, b = (rng.normal(0, 1000, (5, 60)).astype(dtype) for _ in "ab")
    b = np.where(b == 0, dtype(3), b)
    np.testing.assert_array_equal(binary(desc_class, a, b), evaluate(operator, [a, b], **attributes))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(
    ("desc_class", "operator", "attributes", "dtype"),
    [
        (descs.ElementWiseAbs, "Abs", {"scale_bias": None}, np.float32),
        (descs.ElementWiseAbs, "Abs", {"scale_bias": None}, np.int32),
        (descs.ElementWiseSign, "Sign", {}, np.float32),
        (descs.ElementWiseSign, "Sign", {}, np.int64),
        (descs.ElementWiseNegate, "Neg", {}, np.float32),
        (descs.ElementWiseNegate, "Neg", {}, np.int8),
        (descs.ElementWiseCeil, "Ceil", {"scale_bias": None}, np.float32),
        (descs.ElementWiseFloor, "Floor", {"scale_bias": None}, np.float32),
        (descs.ElementWiseRound, "Round", {"rounding_mode": RoundingMode.HALVES_TO_NEAREST_EVEN}, np.float32),
        (descs.ElementWiseRecip, "Reciprocal", {"scale_bias": None}, np.float32),
        (descs.ElementWiseSqrt, "Sqrt", {"scale_bias": None}, np.float32),
    ],
)
def test_single_elements_agree_with_onnx(desc_class, operator, attributes, dtype, evaluate):
    x = (np.random.default_rng(32).integers(-100, 101, 300) / 4).astype(dtype)
    x = np.abs(x) if operator == "Sqrt" else x
    np.testing.assert_array_equal(unary(desc_class, x, **attributes), evaluate(operator, [x]))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.int8, np.uint8])
def test_clip_agrees_with_onnx(dtype, evaluate):
    x = np.random.default_rng(33).integers(0, 100, 300).astype(dtype)
    low, high = dtype(20), dtype(50)
    np.testing.assert_array_equal(
        clip(descs.ElementWiseClip1, x, low.item(), high.item()), evaluate("Clip", [x, low, high])
    )
