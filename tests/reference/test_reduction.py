"""ARGMIN, ARGMAX and REDUCE against plain loops, NumPy, ONNX's evaluator, onnxruntime and exact sums."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference import oracles
from tests.reference.helpers import INDEX_TYPES, run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

PLACES = [descs.Argmin, descs.Argmax]
ARG_TYPES = [t for t in DataType if t not in (DataType.UNKNOWN, DataType.FLOAT64) and t.bits >= 8]
SUM_TYPES = [DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32]


def reduced(array, axes):
    return tuple(1 if dimension in axes else size for dimension, size in enumerate(array.shape))


def place(desc_class, array, axes, direction=AxisDirection.INCREASING, output_type=DataType.INT64):
    output = TensorDesc(output_type, reduced(array, axes))
    return run(desc_class(input_tensor=tensor(array), output_tensor=output, axes=axes, axis_direction=direction), array)


def total(array, axes):
    output = TensorDesc(DataType.from_numpy(array.dtype), reduced(array, axes))
    return run(
        descs.Reduce(function=ReduceFunction.SUM, input_tensor=tensor(array), output_tensor=output, axes=axes), array
    )


@st.composite
def reductions(draw):
    """Sizes, axes in any order, a seed."""
    shape = draw(sizes(8, 4))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    return shape, tuple(axes), draw(st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("desc_class", PLACES)
@given(drawn=reductions(), direction=st.sampled_from(AxisDirection), output_type=st.sampled_from(INDEX_TYPES))
def test_places_follow_the_formula(desc_class, drawn, direction, output_type):
    shape, axes, seed = drawn
    choices = np.array([math.nan, -math.inf, math.inf, -0.0, 0.0, 1.0, 2.0], np.float32)
    array = np.random.default_rng(seed).choice(choices, shape)
    result = place(desc_class, array, axes, direction, output_type)
    largest, last = desc_class is descs.Argmax, direction is AxisDirection.DECREASING
    for coordinate, line in oracles.lines(array, axes).items():
        assert result[coordinate] == oracles.best_place(line, largest=largest, last=last)


@pytest.mark.parametrize("direction", AxisDirection)
@pytest.mark.parametrize("desc_class", PLACES)
def test_a_line_of_nan_gives_its_first_or_last_place(desc_class, direction):
    array = np.full((2, 5), math.nan, np.float16)
    array[1, 2:4] = 7
    expected = [[0], [2]] if direction is AxisDirection.INCREASING else [[4], [3]]
    np.testing.assert_array_equal(place(desc_class, array, (1,), direction), expected)


@pytest.mark.parametrize("desc_class", PLACES)
def test_infinity_is_a_number_and_nan_is_not(desc_class):
    worst = np.float32(math.inf if desc_class is descs.Argmin else -math.inf)
    np.testing.assert_array_equal(place(desc_class, np.array([math.nan, worst, math.nan], np.float32), (0,)), [1])


@pytest.mark.parametrize("data_type", ARG_TYPES)
@pytest.mark.parametrize(("desc_class", "function"), [(descs.Argmin, np.argmin), (descs.Argmax, np.argmax)])
def test_places_along_one_axis_agree_with_numpy(desc_class, function, data_type):
    raw = np.random.default_rng(6).integers(0, 256, (4, 33, 3, data_type.bits // 8), np.uint8)
    array = raw.view(data_type.numpy)[..., 0]
    array = np.nan_to_num(array) if data_type.is_float else array
    np.testing.assert_array_equal(place(desc_class, array, (1,)), function(array, 1, keepdims=True))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("direction", AxisDirection)
@pytest.mark.parametrize("desc_class", PLACES)
def test_places_agree_with_onnx(desc_class, direction, evaluate):
    array = np.random.default_rng(8).integers(0, 4, (3, 9, 2)).astype(np.float32)
    expected = evaluate(
        "ArgMin" if desc_class is descs.Argmin else "ArgMax",
        [array],
        np.int64,
        axis=1,
        keepdims=1,
        select_last_index=int(direction),
    )
    np.testing.assert_array_equal(place(desc_class, array, (1,), direction), expected)


@given(reductions(), st.sampled_from(SUM_TYPES))
def test_integer_sums_wrap(drawn, data_type):
    shape, axes, seed = drawn
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, data_type.bits // 8), np.uint8)
    array = raw.view(data_type.numpy)[..., 0]
    result = total(array, axes)
    for coordinate, line in oracles.lines(array, axes).items():
        assert int(result[coordinate]) == oracles.wrap(sum(line), array.dtype)


@given(reductions(), st.sampled_from([np.float16, np.float32]))
def test_float_sums_are_rounded_once(drawn, dtype):
    shape, axes, seed = drawn
    array = np.random.default_rng(seed).integers(-(2**11), 2**11, shape).astype(dtype) / dtype(64)
    result = total(array, axes)
    for coordinate, line in oracles.lines(array, axes).items():
        assert result[coordinate] == oracles.round_to_float(math.fsum(line), dtype)


def test_a_long_float_sum_is_as_good_as_exact():
    array = np.random.default_rng(9).random(1_000_003).astype(np.float32)
    assert total(array, (0,))[0] == oracles.round_to_float(math.fsum(array.tolist()), np.float32)


def test_float_sums_keep_what_float32_would_lose():
    assert total(np.array([1e8, 1, -1e8], np.float32), (0,))[0] == 1
    assert total(np.array([2048, 1, -2048], np.float16), (0,))[0] == 1


def test_sums_of_infinities():
    array = np.array([[1, math.inf], [math.inf, -math.inf], [math.nan, 1]], np.float32)
    np.testing.assert_array_equal(total(array, (1,)), np.array([[math.inf], [math.nan], [math.nan]], np.float32))


def test_a_float16_sum_overflows_to_infinity():
    np.testing.assert_array_equal(total(np.full(3, 40000, np.float16), (0,)), np.array([math.inf], np.float16))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_sums_agree_with_onnx(evaluate, axes):
    array = np.random.default_rng(10).integers(-50, 50, (4, 5, 6)).astype(np.float32)
    expected = evaluate("ReduceSum", [array, np.array(axes)], keepdims=1)
    np.testing.assert_array_equal(total(array, axes), expected)


# ---- the other functions of REDUCE

FLOAT_FUNCTIONS = {
    "AVERAGE": "ReduceMean",
    "L1": "ReduceL1",
    "L2": "ReduceL2",
    "LOG_SUM": "ReduceLogSum",
    "LOG_SUM_EXP": "ReduceLogSumExp",
    "MAX": "ReduceMax",
    "MIN": "ReduceMin",
    "MULTIPLY": "ReduceProd",
    "SUM_SQUARE": "ReduceSumSquare",
}


def reduced_by(function, array, axes):
    output = TensorDesc(DataType.from_numpy(array.dtype), reduced(array, axes))
    desc = descs.Reduce(function=ReduceFunction[function], input_tensor=tensor(array), output_tensor=output, axes=axes)
    return run(desc, array)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("function", FLOAT_FUNCTIONS)
def test_functions_agree_with_onnx(function, axes, evaluate):
    rng = np.random.default_rng(11)
    array = rng.uniform(0.5, 1.5, (4, 5, 6)) * (1 if function == "LOG_SUM" else rng.choice([-1, 1], (4, 5, 6)))
    array = array.astype(np.float32)
    expected = evaluate(FLOAT_FUNCTIONS[function], [array, np.array(axes)], keepdims=1)
    np.testing.assert_allclose(reduced_by(function, array, axes), expected, 2e-6, 1e-6)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("function", ["MAX", "MIN"])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8, DataType.INT32, DataType.INT64])
def test_extremes_of_integers_agree_with_onnx(function, data_type, evaluate):
    limits = np.iinfo(data_type.numpy)
    array = np.random.default_rng(12).integers(limits.min, limits.max, (4, 5, 6), data_type.numpy, endpoint=True)
    expected = evaluate(FLOAT_FUNCTIONS[function], [array, np.array([1])], keepdims=1)
    np.testing.assert_array_equal(reduced_by(function, array, (1,)), expected)


@pytest.mark.slow
@given(reductions(), st.sampled_from([np.float16, np.float32]))
def test_floats_are_rounded_once_from_the_exact_result(drawn, dtype):
    shape, axes, seed = drawn
    array = (np.random.default_rng(seed).integers(-64, 65, shape) / 16).astype(dtype)
    got = {name: reduced_by(name, array, axes) for name in ("AVERAGE", "L1", "L2", "SUM_SQUARE", "MULTIPLY")}
    for coordinate, line in oracles.lines(array, axes).items():
        exact = [Fraction(value) for value in line]
        squares = sum(value * value for value in exact)
        expected = {
            "AVERAGE": sum(exact, Fraction(0)) / len(line),
            "L1": sum(map(abs, exact)),
            "SUM_SQUARE": squares,
            "MULTIPLY": math.prod(exact) if len(line) < 12 else None,
            "L2": Fraction(math.isqrt(squares.numerator << 200), math.isqrt(squares.denominator << 200)),
        }
        for name, value in expected.items():
            if value is not None:
                assert got[name][coordinate] == oracles.round_to_float(value, dtype), name


@given(reductions(), st.sampled_from(SUM_TYPES))
def test_functions_of_integers_wrap(drawn, data_type):
    shape, axes, seed = drawn
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, data_type.bits // 8), np.uint8)
    array = raw.view(data_type.numpy)[..., 0]
    exact = {"L1": lambda line: sum(map(abs, line)), "SUM_SQUARE": lambda line: sum(x * x for x in line)}
    exact |= {"MULTIPLY": math.prod, "MIN": min, "MAX": max}
    for name, function in exact.items():
        result = reduced_by(name, array, axes)
        for coordinate, line in oracles.lines(array, axes).items():
            assert int(result[coordinate]) == oracles.wrap(function(line), array.dtype)


def test_the_smallest_integer_is_its_own_absolute_value():
    np.testing.assert_array_equal(reduced_by("L1", np.array([-(2**31)], np.int32), (0,)), [-(2**31)])


@pytest.mark.parametrize("function", [*FLOAT_FUNCTIONS, "SUM"])
def test_nan_propagates(function):
    array = np.array([[1, math.nan, 2], [math.inf, math.nan, 1], [3, 1, 2]], np.float32)
    np.testing.assert_array_equal(np.isnan(reduced_by(function, array, (1,))), [[True], [True], [False]])


def test_zeros_are_ordered():
    array = np.array([[0.0, -0.0], [-0.0, 0.0]], np.float32)
    assert np.signbit(reduced_by("MIN", array, (1,))).all()
    assert not np.signbit(reduced_by("MAX", array, (1,))).any()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0, 1e30])
def test_log_sum_exp_agrees_with_scipy(scale):
    array = (np.random.default_rng(13).standard_normal((7, 300)) * scale).astype(np.float32)
    expected = scipy.special.logsumexp(array.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_array_max_ulp(reduced_by("LOG_SUM_EXP", array, (1,)), expected.astype(np.float32), 1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([-math.inf, -math.inf], -math.inf),
        ([-math.inf, 3], 3),
        ([math.inf, -math.inf], math.inf),
        ([math.inf, math.inf], math.inf),
        ([0, -30], math.log1p(math.exp(-30))),
    ],
)
def test_log_sum_exp_of_infinities_and_small_terms(line, expected):
    assert reduced_by("LOG_SUM_EXP", np.array(line, np.float32), (0,))[0] == np.float32(expected)


@pytest.mark.parametrize(
    ("function", "line", "expected"),
    [
        ("L2", [3e38, 0], 3e38),
        ("L2", [3e-38, 4e-38], 5e-38),
        ("AVERAGE", [3e38, 3e38, 3e38], 3e38),
        ("LOG_SUM", [3e38] * 4, math.log(1.2e39)),
        ("LOG_SUM", [1, -1], -math.inf),
        ("MULTIPLY", [1e30, 1e30, 1e-30, 1e-30], 1),
        ("MULTIPLY", [1e-30] * 20 + [1e30] * 20, 1),
        ("MULTIPLY", [2, 3, 0, -1], 0),
        ("SUM_SQUARE", [1e30], math.inf),
    ],
)
def test_nothing_overflows_or_underflows_before_the_result(function, line, expected):
    result = reduced_by(function, np.array(line, np.float32), (0,))
    np.testing.assert_allclose(result, [np.float32(expected)], 1e-6)


def test_a_long_product_does_not_leave_the_range_of_float64():
    array = np.concatenate([np.full(100_001, 1.5, np.float32), np.full(100_001, 1 / 1.5, np.float32)])
    drift = 100_001 * math.log1p(float(np.float32(1 / 1.5)) * 1.5 - 1)
    np.testing.assert_allclose(reduced_by("MULTIPLY", array, (0,)), [math.exp(drift)], 1e-6)
    assert reduced_by("MULTIPLY", np.full(100_000, 1.5, np.float32), (0,))[0] == math.inf


@pytest.mark.parametrize("function", ["ARGMIN", "ARGMAX"])
def test_indices_of_reduce_agree_with_argmin_and_argmax(function):
    array = np.array([[3, 1, 1, 3], [math.nan, 2, 5, 5]], np.float32)
    output = TensorDesc(DataType.UINT32, (2, 1))
    desc = descs.Reduce(function=ReduceFunction[function], input_tensor=tensor(array), output_tensor=output, axes=(1,))
    np.testing.assert_array_equal(run(desc, array), [[1], [1]] if function == "ARGMIN" else [[0], [2]])
