"""ARGMIN, ARGMAX and REDUCE against plain loops, NumPy, ONNX's evaluator, onnxruntime and exact sums."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs, reference
from dmlgpu.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.errors import OperatorNotImplemented
from dmlgpu.tensor import TensorDesc
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


def test_other_functions_are_refused_by_name():
    desc = descs.Reduce(
        function=ReduceFunction.L2,
        input_tensor=TensorDesc(DataType.FLOAT32, (2,)),
        output_tensor=TensorDesc(DataType.FLOAT32, (1,)),
        axes=(0,),
    )
    with pytest.raises(OperatorNotImplemented) as error:
        reference.evaluate(desc, [np.zeros(2, np.float32)])
    assert str(error.value) == (
        "REDUCE with function L2: dmlgpu does not implement this operator yet (see `dmlgpu ops`)"
    )
