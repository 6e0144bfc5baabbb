"""ONE_HOT, DIAGONAL_MATRIX and DIAGONAL_MATRIX1 against plain loops, ONNX's evaluator, onnxruntime and NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference import oracles
from tests.reference.helpers import ALL_TYPES, INDEX_TYPES, bits, numbered, run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

SMALLEST, LARGEST = -(2**31), 2**31 - 1


def one_hot(indices, size, axis, values):
    """ONE_HOT; the index tensor has size 1 along the axis."""
    values = values.reshape(values.shape + (1,) * (indices.ndim - values.ndim))
    output = (*indices.shape[:axis], size, *indices.shape[axis + 1 :])
    desc = descs.OneHot(
        indices_tensor=tensor(indices),
        values_tensor=tensor(values),
        output_tensor=TensorDesc(DataType.from_numpy(values.dtype), output),
        axis=axis,
    )
    return run(desc, indices, values)


@given(sizes(4, 4), st.integers(0, 3), st.integers(1, 5), st.sampled_from(INDEX_TYPES), st.integers(0, 2**32 - 1))
def test_one_hot_follows_the_formula(shape, axis, size, index_type, seed):
    axis %= len(shape)
    low = -size - 2 if index_type.is_signed else 0
    lines = (*shape[:axis], 1, *shape[axis + 1 :])
    indices = np.random.default_rng(seed).integers(low, size + 3, lines)
    expected = oracles.one_hot(indices, size, axis, 7, 9)
    result = one_hot(indices.astype(index_type.numpy), size, axis, np.array([7, 9]))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_hot_agrees_with_onnx(evaluate, axis):
    indices = np.random.default_rng(axis).integers(-6, 6, (3, 4))
    values = np.array([-1.5, 2.5], np.float32)
    if evaluate is onnx_reference:
        indices %= 6
    expected = evaluate("OneHot", [indices, np.array(6), values], values.dtype, axis=axis)
    np.testing.assert_array_equal(one_hot(np.expand_dims(indices, axis), 6, axis, values), expected)


@pytest.mark.parametrize("index", [4, -5, 2**31, 2**32, 2**32 + 1, -(2**32), 2**63 - 1, -(2**63)])
def test_a_line_whose_index_lies_outside_is_off(index):
    result = one_hot(np.array([[index], [1]]), 4, 1, np.array([[2, 3]], np.int8))
    np.testing.assert_array_equal(result, [[2, 2, 2, 2], [2, 3, 2, 2]])


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (3, 1), (1, 3), (2, 2), (3, 2)])
def test_the_first_two_values_in_row_major_order_count(shape):
    result = one_hot(np.array([[1]]), 2, 1, numbered(shape))
    np.testing.assert_array_equal(result, [[1, 2]])


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_one_hot_moves_bits(data_type):
    raw = np.full((2, data_type.bits // 8), 0xFF, np.uint8)
    raw[1, 0] = 1  # of the float types, two NaN
    result = one_hot(np.array([[0]]), 3, 1, raw.view(data_type.numpy).reshape(1, 2))
    off, on = bits(raw.view(data_type.numpy)).ravel()
    np.testing.assert_array_equal(bits(result), [[on, off, off]])


def diagonal(begin, end, source=None, shape=(4, 5), *, value=7, data_type=DataType.INT32):
    """DIAGONAL_MATRIX1."""
    desc = descs.DiagonalMatrix1(
        input_tensor=None if source is None else tensor(source),
        output_tensor=TensorDesc(data_type, shape),
        value_data_type=data_type,
        value=value,
        diagonal_fill_begin=begin,
        diagonal_fill_end=end,
    )
    return run(desc, source)


@given(sizes(4, 5, fewest=2), st.integers(-7, 7), st.integers(-7, 7), st.booleans())
def test_a_band_follows_its_description(shape, begin, end, given_input):
    source = -numbered(shape) if given_input else None
    result = diagonal(begin, end, source, shape)
    for place in np.ndindex(shape):
        distance = place[-1] - place[-2]
        filled = begin <= distance < end if begin <= end else not end <= distance < begin
        rest = 0 if source is None else source[place]
        assert result[place] == (7 if filled else rest)


@pytest.mark.parametrize("offset", [-5, -1, 0, 2, 6])
def test_bands_agree_with_numpys_triangles(offset):
    source = numbered((4, 5))
    np.testing.assert_array_equal(diagonal(SMALLEST, offset, source, value=0), np.triu(source, offset))
    np.testing.assert_array_equal(diagonal(offset + 1, LARGEST, source, value=0), np.tril(source, offset))
    np.testing.assert_array_equal(diagonal(offset, offset + 1, value=1), np.eye(4, 5, offset, np.int32))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_bands_agree_with_onnx(evaluate, offset):
    source = np.random.default_rng(3).standard_normal((2, 4, 5)).astype(np.float32)
    kind = DataType.FLOAT32
    upper = evaluate("Trilu", [source, np.array(offset)], upper=1)
    np.testing.assert_array_equal(diagonal(SMALLEST, offset, source, source.shape, value=0, data_type=kind), upper)
    lower = evaluate("Trilu", [source, np.array(offset)], upper=0)
    np.testing.assert_array_equal(diagonal(offset + 1, LARGEST, source, source.shape, value=0, data_type=kind), lower)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_elements_outside_the_band_keep_their_bits(data_type):
    raw = np.random.default_rng(3).integers(0, 256, (6, 9, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy)[..., 0]
    result = diagonal(LARGEST, LARGEST, source, source.shape, value=1, data_type=data_type)
    np.testing.assert_array_equal(bits(result), bits(source))


def old_diagonal(value, data_type, offset=0, shape=(2, 3)):
    desc = descs.DiagonalMatrix(output_tensor=TensorDesc(data_type, shape), offset=offset, value=value)
    return run(desc)


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 4, SMALLEST, LARGEST])
def test_one_diagonal_agrees_with_eye(offset):
    result = old_diagonal(1.0, DataType.FLOAT16, offset, (2, 4, 5))
    eye = np.zeros((4, 5)) if abs(offset) > 5 else np.eye(4, 5, offset)
    np.testing.assert_array_equal(result, np.stack([eye, eye]))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
def test_one_diagonal_agrees_with_onnx(evaluate):
    zeros = np.zeros((4, 6), np.float32)
    np.testing.assert_array_equal(old_diagonal(1.0, DataType.FLOAT32, 2, (4, 6)), evaluate("EyeLike", [zeros], k=2))


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        (10.6, DataType.INT32, 10),
        (-10.6, DataType.INT64, -10),
        (-1.0, DataType.UINT8, 0),
        (300.0, DataType.INT8, 127),
        (math.inf, DataType.UINT16, 65535),
        (math.nan, DataType.INT16, 0),
        (70000.0, DataType.FLOAT16, math.inf),
        (0.1, DataType.FLOAT64, 13421773 / 2**27),  # the nearest float32
    ],
)
def test_the_value_is_a_float32_converted_to_the_type(value, data_type, expected):
    assert old_diagonal(value, data_type)[0, 0] == expected
