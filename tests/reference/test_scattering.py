"""SCATTER_ELEMENTS and SCATTER_ND against plain loops, ONNX's evaluator, onnxruntime and NumPy."""

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


def scatter(source, indices, updates, axis):
    desc = descs.ScatterElements(
        input_tensor=tensor(source),
        indices_tensor=tensor(indices),
        updates_tensor=tensor(updates),
        output_tensor=tensor(source),
        axis=axis,
    )
    before = source.copy()
    result = run(desc, source, indices, updates)
    np.testing.assert_array_equal(bits(source), bits(before))
    return result


@given(sizes(4, 4), st.integers(0, 3), st.integers(1, 7), st.sampled_from(INDEX_TYPES), st.integers(0, 2**32 - 1))
def test_scatter_elements_follows_the_formula(shape, axis, count, index_type, seed):
    axis %= len(shape)
    rng = np.random.default_rng(seed)
    updated = (*shape[:axis], count, *shape[axis + 1 :])
    low = -shape[axis] - 2 if index_type.is_signed else 0
    indices = rng.integers(low, shape[axis] + 2, updated).astype(index_type.numpy)
    source, updates = numbered(shape), -numbered(updated)
    expected = oracles.scatter_elements(source, indices, updates, axis)
    np.testing.assert_array_equal(scatter(source, indices, updates, axis), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_elements_agrees_with_onnx(evaluate, axis):
    rng = np.random.default_rng(axis)
    shape = (4, 5, 6)
    source = rng.standard_normal(shape).astype(np.float32)
    updates = rng.standard_normal(shape).astype(np.float32)
    indices = np.argsort(rng.random(shape), axis)
    indices[rng.random(shape) < 0.5] -= shape[axis]
    expected = evaluate("ScatterElements", [source, indices, updates], axis=axis)
    np.testing.assert_array_equal(scatter(source, indices, updates, axis), expected)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_scatter_agrees_with_put_along_axis_and_moves_bits(data_type):
    rng = np.random.default_rng(5)
    source, updates = (
        rng.integers(0, 256, (6, 9, data_type.bits // 8), np.uint8).view(data_type.numpy)[..., 0] for _ in "ab"
    )
    indices = np.argsort(rng.random((6, 9)), axis=1)
    expected = bits(source).copy()
    np.put_along_axis(expected, indices, bits(updates), axis=1)
    np.testing.assert_array_equal(bits(scatter(source, indices, updates, 1)), expected)


def test_the_last_of_several_updates_stays():
    source = np.zeros((2, 3), np.float32)
    indices = np.array([[1, 1, 1], [2, 0, 2]])
    updates = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(scatter(source, indices, updates, 1), [[0, 3, 0], [5, 0, 6]])


@pytest.mark.parametrize("index", [2, -3, 2**32, -(2**32), 2**63 - 1, -(2**63)])
def test_an_update_outside_is_dropped(index):
    source = np.array([5, 6], np.int8)
    np.testing.assert_array_equal(scatter(source, np.array([index, 0]), np.array([8, 9], np.int8), 0), [9, 6])


def scatter_nd(source, indices, updates, lead=0):
    """SCATTER_ND, with leading 1s where the tensors differ in rank."""
    rank = max(source.ndim, indices.ndim, updates.ndim) + lead

    def padded(array):
        return TensorDesc(DataType.from_numpy(array.dtype), (1,) * (rank - array.ndim) + array.shape)

    desc = descs.ScatterNd(
        input_tensor=padded(source),
        indices_tensor=padded(indices),
        updates_tensor=padded(updates),
        output_tensor=padded(source),
        input_dimension_count=source.ndim,
        indices_dimension_count=indices.ndim,
    )
    before = source.copy()
    arrays = (array.reshape(padded(array).sizes) for array in (source, indices, updates))
    result = run(desc, *arrays).reshape(source.shape)
    np.testing.assert_array_equal(bits(source), bits(before))
    return result


@given(
    sizes(4, 4),
    st.data(),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from(INDEX_TYPES),
    st.integers(0, 2**32 - 1),
)
def test_scatter_nd_follows_the_formula(shape, data, free, index_type, seed):
    length, lead = data.draw(st.integers(1, len(shape))), data.draw(st.integers(0, 1))
    extents = np.array(shape[:length])
    low = -extents - 1 if index_type.is_signed else 0 * extents
    drawn = np.random.default_rng(seed).integers(low, extents + 1, (*free, length))
    source = numbered(shape)
    updates = -numbered((*free, *shape[length:]))
    expected = oracles.scatter_nd(source, drawn, updates)
    np.testing.assert_array_equal(scatter_nd(source, drawn.astype(index_type.numpy), updates, lead), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(("free", "length"), [((3,), 1), ((2, 3), 2), ((), 2), ((5,), 3)])
def test_scatter_nd_agrees_with_onnx(evaluate, free, length):
    rng = np.random.default_rng(length)
    shape = (4, 5, 6)
    source = rng.standard_normal(shape).astype(np.float32)
    places = rng.permutation(int(np.prod(shape[:length])))[: int(np.prod(free))]
    indices = np.stack(np.unravel_index(places, shape[:length]), axis=-1).reshape((*free, length))
    updates = rng.standard_normal((*free, *shape[length:])).astype(np.float32)
    signed = indices - np.array(shape[:length]) * (rng.random(indices.shape) < 0.5)
    expected = evaluate("ScatterND", [source, indices if evaluate is onnx_reference else signed, updates])
    np.testing.assert_array_equal(scatter_nd(source, signed, updates), expected)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_scatter_nd_moves_bits(data_type):
    rng = np.random.default_rng(5)
    source, updates = (
        rng.integers(0, 256, (6, 9, data_type.bits // 8), np.uint8).view(data_type.numpy)[..., 0] for _ in "ab"
    )
    order = rng.permutation(6)
    expected = np.empty_like(bits(source))
    expected[order] = bits(updates)
    np.testing.assert_array_equal(bits(scatter_nd(source, order[:, None].astype(np.uint32), updates)), expected)


def test_the_last_of_several_blocks_stays():
    source, updates = np.zeros((3, 2), np.float32), numbered((4, 2), DataType.FLOAT32)
    indices = np.array([[1], [2], [1], [-2]])
    np.testing.assert_array_equal(scatter_nd(source, indices, updates), [[0, 0], [7, 8], [3, 4]])


@pytest.mark.parametrize("index", [3, -4, 2**32, -(2**32), 2**63 - 1, -(2**63)])
def test_a_block_with_a_coordinate_outside_is_dropped(index):
    source, updates = numbered((2, 3)), -numbered((2,))
    expected = [[1, 2, 3], [4, -2, 6]]
    np.testing.assert_array_equal(scatter_nd(source, np.array([[1, index], [1, 1]]), updates), expected)
