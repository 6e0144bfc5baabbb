"""GATHER_ND, GATHER_ND1 and SCATTER_ELEMENTS against plain loops, ONNX's evaluator and onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.enums import DataType
from dmlgpu.tensor import TensorDesc
from tests.reference import oracles
from tests.reference.helpers import ALL_TYPES, INDEX_TYPES, bits, numbered, run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime


def gather_desc(source, indices, batch=None, lead=0):
    """A description; input, indices and output get the same number of dimensions by leading ones."""
    k = indices.shape[-1]
    output = (*indices.shape[:-1], *source.shape[(batch or 0) + k :])
    rank = max(source.ndim, indices.ndim, len(output)) + lead

    def padded(shape, dtype):
        return TensorDesc(DataType.from_numpy(dtype), (1,) * (rank - len(shape)) + tuple(shape))

    fields = {
        "input_tensor": padded(source.shape, source.dtype),
        "indices_tensor": padded(indices.shape, indices.dtype),
        "output_tensor": padded(output, source.dtype),
        "input_dimension_count": source.ndim,
        "indices_dimension_count": indices.ndim,
    }
    if batch is None:
        return descs.GatherNd(**fields), output
    return descs.GatherNd1(**fields, batch_dimension_count=batch), output


def gather(source, indices, batch=None, lead=0):
    desc, output = gather_desc(source, indices, batch, lead)
    result = run(desc, source.reshape(desc.input_tensor.sizes), indices.reshape(desc.indices_tensor.sizes))
    return result.reshape(output)


@st.composite
def gathers(draw, outside=False):
    """Source, indices, batch dimensions."""
    shape = draw(sizes(4, 4))
    batch = draw(st.integers(0, len(shape) - 1))
    k = draw(st.integers(1, len(shape) - batch))
    free = draw(st.lists(st.integers(1, 3), max_size=2))
    index_type = draw(st.sampled_from(INDEX_TYPES))
    extents = np.array(shape[batch : batch + k])
    low = -extents if index_type.is_signed else 0 * extents
    margin = 3 if outside else 0
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    low = low - margin if index_type.is_signed else low
    drawn = rng.integers(low, extents + margin, (*shape[:batch], *free, k))
    return numbered(shape), drawn.astype(index_type.numpy), batch


@given(gathers(outside=True), st.integers(0, 1))
def test_gather_nd1_follows_the_formula(drawn, lead):
    source, indices, batch = drawn
    np.testing.assert_array_equal(gather(source, indices, batch, lead), oracles.gather_nd(source, indices, batch))


@given(gathers(outside=True))
def test_gather_nd_is_gather_nd1_without_batches(drawn):
    source, indices, batch = drawn
    if batch == 0:
        np.testing.assert_array_equal(gather(source, indices), oracles.gather_nd(source, indices, 0))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(
    ("shape", "indices_shape", "batch"),
    [
        ((3, 4, 5), (2, 2), 0),
        ((3, 4, 5), (3, 2, 1), 1),
        ((3, 4, 5), (3, 4, 1), 2),
        ((2, 3, 4, 5), (2, 6, 2), 1),
        ((7,), (4, 1), 0),
    ],
)
def test_gather_nd1_agrees_with_onnx(evaluate, shape, indices_shape, batch):
    rng = np.random.default_rng(7)
    source = rng.standard_normal(shape).astype(np.float32)
    extents = np.array(shape[batch : batch + indices_shape[-1]])
    indices = rng.integers(-extents, extents, indices_shape)
    if evaluate is onnx_reference:
        indices %= extents  # its GatherND does not take negative indices with batches
    expected = evaluate("GatherND", [source, indices], batch_dims=batch)
    np.testing.assert_array_equal(gather(source, indices, batch), expected)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_gather_moves_bits(data_type):
    raw = np.random.default_rng(3).integers(0, 256, (64, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy).reshape(64)
    order = np.random.default_rng(4).permutation(64)
    moved = gather(source, order.reshape(64, 1).astype(np.uint32))
    np.testing.assert_array_equal(bits(moved), bits(source)[order])


@pytest.mark.parametrize("index", [3, -4, 2**31 - 1, -(2**31), 2**32, 2**32 + 1, -(2**32), 2**63 - 1, -(2**63)])
def test_an_index_outside_gives_zero(index):
    source = np.array([5, 6, 7], np.int16)
    np.testing.assert_array_equal(gather(source, np.array([[1], [index]])), [6, 0])


@pytest.mark.parametrize("index", [3, 2**31, 2**32, 2**63, 2**64 - 1])
def test_an_unsigned_index_outside_gives_zero(index):
    source = np.array([5, 6, 7], np.float32)
    np.testing.assert_array_equal(gather(source, np.array([[1], [index]], np.uint64)), [6, 0])


def test_one_bad_coordinate_of_a_tuple_empties_the_window():
    source = numbered((3, 4, 2))
    np.testing.assert_array_equal(gather(source, np.array([[2, 3], [2, 4], [3, 0]])), [[23, 24], [0, 0], [0, 0]])


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
