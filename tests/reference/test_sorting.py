"""TOP_K and TOP_K1 against plain Python, NumPy's sorting, ONNX's evaluator and onnxruntime."""

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import bits, sizes, tensor

INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING
TYPES = ["float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"]
NAN = math.nan


def outputs(array, axis, k, index_type):
    shape = tuple(k if dimension == axis else size for dimension, size in enumerate(array.shape))
    return {
        "output_value_tensor": TensorDesc(DataType.from_numpy(array.dtype), shape),
        "output_index_tensor": TensorDesc(index_type, shape),
    }


def top(array, axis, k, direction=DECREASING, index_type=DataType.UINT32):
    desc = descs.TopK1(
        input_tensor=tensor(array), **outputs(array, axis, k, index_type), axis=axis, k=k, axis_direction=direction
    )
    values, places = reference.evaluate(desc, (array,))
    assert places.dtype == index_type.numpy
    assert values.shape == places.shape == desc.output_index_tensor.sizes
    return values, places


def is_nan(element):
    return isinstance(element, float) and math.isnan(element)


def by_hand(line, direction):
    """Return indices in sorted order; NaN is larger than all other values."""
    numbers = [place for place, element in enumerate(line) if not is_nan(element)]
    missing = [place for place, element in enumerate(line) if is_nan(element)]
    if direction is INCREASING:
        return sorted(numbers, key=lambda place: (line[place], place)) + missing
    return missing + sorted(numbers, key=lambda place: (-line[place], place))


@st.composite
def problems(draw):
    shape = draw(sizes(5, 6))
    axis = draw(st.integers(0, len(shape) - 1))
    k = draw(st.integers(1, shape[axis]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    array = rng.integers(-3 if dtype.kind != "u" else 0, 4, shape).astype(dtype)
    if dtype.kind == "f":
        array[rng.random(shape) < 0.2] = NAN
        array[rng.random(shape) < 0.1] = -np.inf
        array[rng.random(shape) < 0.1] = -0.0
    return array, axis, k, draw(st.sampled_from(AxisDirection))


@given(problems(), st.sampled_from([DataType.UINT32, DataType.UINT64]))
def test_every_line_is_sorted_as_in_plain_python(problem, index_type):
    array, axis, k, direction = problem
    values, places = top(array, axis, k, direction, index_type)
    for start in np.ndindex(*(1 if d == axis else size for d, size in enumerate(array.shape))):
        line = tuple(slice(None) if d == axis else at for d, at in enumerate(start))
        order = by_hand(array[line].tolist(), direction)[:k]
        assert places[line].tolist() == order
        np.testing.assert_array_equal(bits(values[line]), bits(array[line][order]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_whole_axis_agrees_with_numpys_sorting(dtype, axis):
    array = np.random.default_rng(axis).integers(0, 60, (7, 40, 9)).astype(dtype)
    values, places = top(array, axis, array.shape[axis], INCREASING)
    np.testing.assert_array_equal(values, np.sort(array, axis))
    np.testing.assert_array_equal(places, np.argsort(array, axis, kind="stable"))
    values, places = top(array, axis, array.shape[axis], DECREASING)
    np.testing.assert_array_equal(values, np.flip(np.sort(array, axis), axis))
    np.testing.assert_array_equal(places, np.argsort(-array.astype(np.float64), axis, kind="stable"))


def onnx_model(array, axis, k, largest):
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    constant = helper.make_tensor("k", onnx.TensorProto.INT64, [1], [k])
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=axis, largest=largest, sorted=1)
    graph = helper.make_graph(
        [node],
        "TopK",
        [helper.make_tensor_value_info("x", kind, array.shape)],
        [
            helper.make_tensor_value_info("values", kind, None),
            helper.make_tensor_value_info("places", onnx.TensorProto.INT64, None),
        ],
        [constant],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def by_evaluator(model, array):
    return ReferenceEvaluator(model).run(None, {"x": array})


def by_runtime(model, array):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": array})


@pytest.mark.parametrize("evaluate", [by_evaluator, by_runtime])
@pytest.mark.parametrize("direction", AxisDirection)
@pytest.mark.parametrize(("axis", "k"), [(0, 1), (1, 40), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32"])
def test_ties_agree_with_onnx(dtype, axis, k, direction, evaluate):
    array = np.random.default_rng(k).integers(-9, 10, (5, 40, 6)).astype(dtype)
    want = evaluate(onnx_model(array, axis, k, int(direction is DECREASING)), array)
    for ours, theirs in zip(top(array, axis, k, direction), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("direction", AxisDirection)
def test_nan_agrees_with_onnxs_evaluator(direction):
    rng = np.random.default_rng(5)
    array = rng.integers(-4, 5, (6, 30)).astype(np.float32)
    array[rng.random(array.shape) < 0.2] = NAN
    array[rng.random(array.shape) < 0.2] = math.inf
    want = by_evaluator(onnx_model(array, 1, 17, int(direction is DECREASING)), array)
    for ours, theirs in zip(top(array, 1, 17, direction), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_values_keep_their_bits():
    patterns = [0x7FC01234, 0xFFC00001, 0x00000000, 0x80000000, 0x7F800001, 0xFF800000, 0x00000001]
    array = np.array(patterns, np.uint32).view(np.float32)
    values, places = top(array, 0, 7, DECREASING)
    assert places.tolist() == [0, 1, 4, 6, 2, 3, 5]
    assert bits(values).tolist() == [patterns[place] for place in places]
    assert top(array, 0, 7, INCREASING)[1].tolist() == [5, 2, 3, 6, 0, 1, 4]


def test_64_bit_integers_are_not_rounded():
    array = np.array([2**63 - 1, 2**63 - 2, -(2**63), 2**53 + 1, 2**53], np.int64)
    assert top(array, 0, 5)[1].tolist() == [0, 1, 3, 4, 2]
    assert top(array.view(np.uint64), 0, 5)[1].tolist() == [2, 0, 1, 3, 4]


def test_top_k_takes_the_largest():
    array = np.random.default_rng(6).standard_normal((4, 9)).astype(np.float32)
    desc = descs.TopK(input_tensor=tensor(array), **outputs(array, 1, 3, DataType.UINT64), axis=1, k=3)
    values, places = reference.evaluate(desc, (array,))
    np.testing.assert_array_equal(values, -np.sort(-array, 1)[:, :3])
    np.testing.assert_array_equal(np.take_along_axis(array, places.astype(np.int64), 1), values)
