"""The gathers and REVERSE_SUBSEQUENCES against plain loops, ONNX's evaluator, onnxruntime and NumPy."""

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


def gather_blocks(source, indices, axis):
    """GATHER, with leading 1s where the tensors differ in rank."""
    output = (*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :])
    rank = max(source.ndim, indices.ndim, len(output))

    def padded(shape, dtype):
        return TensorDesc(DataType.from_numpy(dtype), (1,) * (rank - len(shape)) + tuple(shape))

    desc = descs.Gather(
        input_tensor=padded(source.shape, source.dtype),
        indices_tensor=padded(indices.shape, indices.dtype),
        output_tensor=padded(output, source.dtype),
        axis=axis + rank - source.ndim,
        index_dimensions=indices.ndim,
    )
    result = run(desc, source.reshape(desc.input_tensor.sizes), indices.reshape(desc.indices_tensor.sizes))
    return result.reshape(output)


def drawn_indices(seed, shape, extent, index_type, margin=0):
    """Draw indices of a type, some of them negative if it is signed, and out of range by up to the margin."""
    low = -extent - margin if index_type.is_signed else 0
    return np.random.default_rng(seed).integers(low, extent + margin, shape).astype(index_type.numpy)


SEEDS = st.integers(0, 2**32 - 1)


@given(sizes(4, 4), st.integers(0, 3), sizes(3, 3, fewest=0), st.sampled_from(INDEX_TYPES), SEEDS)
def test_gather_follows_the_formula(shape, axis, picked, index_type, seed):
    axis %= len(shape)
    source = numbered(shape)
    indices = drawn_indices(seed, picked, shape[axis], index_type, margin=2)
    np.testing.assert_array_equal(gather_blocks(source, indices, axis), oracles.gather(source, indices, axis))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("picked", [(), (4,), (2, 3)])
def test_gather_agrees_with_onnx(evaluate, axis, picked):
    source = np.random.default_rng(axis).standard_normal((3, 4, 5)).astype(np.float32)
    indices = drawn_indices(axis, picked, source.shape[axis], DataType.INT64)
    expected = evaluate("Gather", [source, indices], axis=axis)
    np.testing.assert_array_equal(gather_blocks(source, indices, axis), expected)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_gather_agrees_with_take_and_moves_bits(data_type):
    raw = np.random.default_rng(3).integers(0, 256, (6, 9, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy)[..., 0]
    order = np.array([[5, 0], [3, 3]], np.uint32)
    np.testing.assert_array_equal(bits(gather_blocks(source, order, 1)), np.take(bits(source), order, axis=1))


@pytest.mark.parametrize("index", [3, -4, 2**31 - 1, -(2**31), 2**32, -(2**32), 2**63 - 1, -(2**63)])
def test_gather_gives_zeros_for_an_index_outside(index):
    source = numbered((3, 2), DataType.INT16)
    np.testing.assert_array_equal(gather_blocks(source, np.array([1, index]), 0), [[3, 4], [0, 0]])


def gather_elements(source, indices, axis):
    desc = descs.GatherElements(
        input_tensor=tensor(source),
        indices_tensor=tensor(indices),
        output_tensor=TensorDesc(DataType.from_numpy(source.dtype), indices.shape),
        axis=axis,
    )
    return run(desc, source, indices)


@given(sizes(4, 4), st.integers(0, 3), st.integers(1, 6), st.sampled_from(INDEX_TYPES), SEEDS)
def test_gather_elements_follows_the_formula(shape, axis, count, index_type, seed):
    axis %= len(shape)
    source = numbered(shape)
    indices = drawn_indices(seed, (*shape[:axis], count, *shape[axis + 1 :]), shape[axis], index_type, margin=2)
    expected = oracles.gather_elements(source, indices, axis)
    np.testing.assert_array_equal(gather_elements(source, indices, axis), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements_agrees_with_onnx(evaluate, axis):
    source = np.random.default_rng(axis).standard_normal((3, 4, 5)).astype(np.float32)
    shape = [3, 4, 5]
    shape[axis] = 7
    indices = drawn_indices(axis, shape, source.shape[axis], DataType.INT64)
    expected = evaluate("GatherElements", [source, indices], axis=axis)
    np.testing.assert_array_equal(gather_elements(source, indices, axis), expected)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_gather_elements_agrees_with_take_along_axis_and_moves_bits(data_type):
    rng = np.random.default_rng(5)
    source = rng.integers(0, 256, (6, 9, data_type.bits // 8), np.uint8).view(data_type.numpy)[..., 0]
    indices = np.argsort(rng.random((6, 9)), axis=0)
    expected = np.take_along_axis(bits(source), indices, axis=0)
    np.testing.assert_array_equal(bits(gather_elements(source, indices, 0)), expected)


def reverse(source, lengths, axis):
    desc = descs.ReverseSubsequences(
        input_tensor=tensor(source),
        sequence_lengths_tensor=tensor(lengths),
        output_tensor=tensor(source),
        axis=axis,
    )
    return run(desc, source, lengths)


@given(sizes(4, 5), st.integers(0, 3), st.sampled_from([np.uint32, np.uint64]), SEEDS)
def test_reverse_subsequences_follows_the_formula(shape, axis, dtype, seed):
    axis %= len(shape)
    source = numbered(shape)
    lengths = np.random.default_rng(seed).integers(0, shape[axis] + 3, (*shape[:axis], 1, *shape[axis + 1 :]))
    expected = oracles.reverse_subsequences(source, lengths, axis)
    np.testing.assert_array_equal(reverse(source, lengths.astype(dtype), axis), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(("time_axis", "batch_axis"), [(0, 1), (1, 0)])
def test_reverse_subsequences_agrees_with_onnx(evaluate, time_axis, batch_axis):
    source = np.random.default_rng(2).standard_normal((4, 4, 3)).astype(np.float32)
    lengths = np.array([1, 4, 3, 2])
    expected = evaluate("ReverseSequence", [source, lengths], time_axis=time_axis, batch_axis=batch_axis)
    each = np.broadcast_to(lengths.reshape([4 if d == batch_axis else 1 for d in range(3)]), (4, 4, 3))
    each = np.take(each, [0], axis=time_axis).astype(np.uint32)
    np.testing.assert_array_equal(reverse(source, each, time_axis), expected)


@pytest.mark.parametrize("length", [5, 2**31, 2**32 - 1, 2**32, 2**32 + 2, 2**64 - 1])
def test_a_length_beyond_the_line_means_all_of_it(length):
    lengths = np.array([[length], [2]], np.uint64 if length >= 2**32 else np.uint32)
    np.testing.assert_array_equal(reverse(numbered((2, 4)), lengths, 1), [[4, 3, 2, 1], [6, 5, 7, 8]])


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_reverse_subsequences_moves_bits(data_type):
    raw = np.random.default_rng(3).integers(0, 256, (64, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy).reshape(64)
    np.testing.assert_array_equal(bits(reverse(source, np.array([64], np.uint32), 0)), bits(source)[::-1])
