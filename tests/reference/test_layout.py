"""Slices, tiles, pieces and blocks against Python's slices, NumPy, ONNX's evaluator and onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DepthSpaceOrder
from tests.reference.helpers import ALL_TYPES, bits, numbered, run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime


@st.composite
def windows(draw):
    """Sizes, and offset, size, stride of a window in each dimension."""
    shape = draw(sizes(8, 5))
    window = []
    for size in shape:
        offset = draw(st.integers(0, size - 1))
        stride = draw(st.integers(-6, 6).filter(bool))
        window.append((offset, draw(st.integers(1, size - offset)), stride))
    return shape, window


def slice1(source, window, output_sizes=None):
    offsets, extents, strides = zip(*window, strict=True)
    reach = tuple(1 + (extent - 1) // abs(stride) for _, extent, stride in window)
    desc = descs.Slice1(
        input_tensor=tensor(source),
        output_tensor=tensor(np.empty(output_sizes or reach, source.dtype)),
        input_window_offsets=offsets,
        input_window_sizes=extents,
        input_window_strides=strides,
    )
    return run(desc, source)


def python_slices(window):
    """Select window elements by Python's slices: the window, then the stride, from the window's end if negative."""
    return tuple(slice(offset, offset + extent) for offset, extent, _ in window), tuple(
        slice(None, None, stride) for _, _, stride in window
    )


@given(windows())
def test_slice1_is_a_window_then_a_stride(drawn):
    shape, window = drawn
    source = numbered(shape)
    cut, stepped = python_slices(window)
    np.testing.assert_array_equal(slice1(source, window), source[cut][stepped])


def test_slice1_may_omit_the_end_of_the_window():
    source = numbered((9,))
    np.testing.assert_array_equal(slice1(source, [(1, 8, -3)], (2,)), [9, 6])


@given(windows())
def test_slice_is_pythons_slice(drawn):
    shape, window = drawn
    source = numbered(shape)
    steps = [(offset, 1 + (extent - 1) // abs(stride), abs(stride)) for offset, extent, stride in window]
    offsets, extents, strides = zip(*steps, strict=True)
    desc = descs.Slice(
        input_tensor=tensor(source),
        output_tensor=tensor(np.empty(extents, source.dtype)),
        offsets=offsets,
        sizes=extents,
        strides=strides,
    )
    expected = source[tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in steps)]
    np.testing.assert_array_equal(run(desc, source), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(
    "window",
    [[(0, 6, 1), (1, 4, 2)], [(0, 6, -1), (0, 7, -1)], [(2, 4, -2), (1, 5, 3)], [(1, 3, -3), (6, 1, -1)]],
)
def test_slice1_agrees_with_onnx(evaluate, window):
    source = np.random.default_rng(1).standard_normal((6, 7)).astype(np.float32)
    starts = [o if s > 0 else o + n - 1 for o, n, s in window]
    ends = [o + n if s > 0 else (o - 1 if o else -(2**31)) for o, n, s in window]
    axes, steps = np.arange(2), np.array([s for _, _, s in window])
    expected = evaluate("Slice", [source, np.array(starts), np.array(ends), axes, steps])
    np.testing.assert_array_equal(slice1(source, window), expected)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_slices_move_bits(data_type):
    raw = np.random.default_rng(2).integers(0, 256, (5, 7, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy)[..., 0]
    np.testing.assert_array_equal(bits(slice1(source, [(0, 5, -1), (1, 6, 2)])), bits(source)[::-1, 1:7:2])


def random_bits(shape, data_type, seed=4):
    """Random bits in an array."""
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, data_type.bits // 8), np.uint8)
    return raw.view(data_type.numpy)[..., 0]


def tile(source, repeats):
    result = tuple(size * count for size, count in zip(source.shape, repeats, strict=True))
    desc = descs.Tile(
        input_tensor=tensor(source), output_tensor=tensor(np.empty(result, source.dtype)), repeats=tuple(repeats)
    )
    return run(desc, source)


@given(st.data())
def test_tile_is_numpys_tile(data):
    source = numbered(data.draw(sizes(5, 4)))
    repeats = [data.draw(st.integers(1, 4)) for _ in source.shape]
    np.testing.assert_array_equal(tile(source, repeats), np.tile(source, repeats))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
def test_tile_agrees_with_onnx(evaluate):
    source = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    expected = evaluate("Tile", [source, np.array([3, 1, 2])])
    np.testing.assert_array_equal(tile(source, (3, 1, 2)), expected)


def split(source, extents, axis):
    pieces = [np.empty((*source.shape[:axis], n, *source.shape[axis + 1 :]), source.dtype) for n in extents]
    desc = descs.Split(input_tensor=tensor(source), output_tensors=tuple(map(tensor, pieces)), axis=axis)
    return reference.evaluate(desc, [source])


def join(pieces, axis):
    result = list(pieces[0].shape)
    result[axis] = sum(piece.shape[axis] for piece in pieces)
    desc = descs.Join(
        input_tensors=tuple(map(tensor, pieces)), output_tensor=tensor(np.empty(result, pieces[0].dtype)), axis=axis
    )
    return run(desc, *pieces)


@st.composite
def cuts(draw):
    """An array, an axis, and extents that add up to the axis."""
    extents = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    shape = list(draw(sizes(4, 4)))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = sum(extents)
    return numbered(tuple(shape)), axis, extents


@given(cuts())
def test_split_is_numpys_split_and_join_its_inverse(drawn):
    source, axis, extents = drawn
    pieces = split(source, extents, axis)
    for piece, expected in zip(pieces, np.split(source, np.cumsum(extents)[:-1], axis), strict=True):
        np.testing.assert_array_equal(piece, expected)
    np.testing.assert_array_equal(join(pieces, axis), np.concatenate(pieces, axis))
    np.testing.assert_array_equal(join(pieces, axis), source)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
def test_join_agrees_with_onnx(evaluate):
    rng = np.random.default_rng(1)
    pieces = [rng.standard_normal((2, size, 3)).astype(np.float32) for size in (1, 4, 2)]
    np.testing.assert_array_equal(join(pieces, 1), evaluate("Concat", pieces, axis=1))


def blocks(desc_class, source, block, **fields):
    """The result of one of the four operators."""
    batch, channels, height, width = source.shape
    result = (batch, channels * block**2, height // block, width // block)
    if desc_class in (descs.DepthToSpace, descs.DepthToSpace1):
        result = (batch, channels // block**2, height * block, width * block)
    output = tensor(np.empty(result, source.dtype))
    return run(desc_class(input_tensor=tensor(source), output_tensor=output, block_size=block, **fields), source)


ORDERS = {DepthSpaceOrder.DEPTH_COLUMN_ROW: "DCR", DepthSpaceOrder.COLUMN_ROW_DEPTH: "CRD"}


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_to_space_agrees_with_onnx(evaluate, order, block):
    source = np.random.default_rng(1).standard_normal((2, 5 * block**2, 3, 4)).astype(np.float32)
    expected = evaluate("DepthToSpace", [source], blocksize=block, mode=ORDERS[order])
    np.testing.assert_array_equal(blocks(descs.DepthToSpace1, source, block, order=order), expected)
    if ORDERS[order] == "DCR":
        np.testing.assert_array_equal(blocks(descs.DepthToSpace, source, block), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_space_to_depth_agrees_with_onnx(evaluate, block):
    source = np.random.default_rng(1).standard_normal((2, 5, 3 * block, 4 * block)).astype(np.float32)
    expected = evaluate("SpaceToDepth", [source], blocksize=block)
    np.testing.assert_array_equal(blocks(descs.SpaceToDepth, source, block), expected)
    order = DepthSpaceOrder.DEPTH_COLUMN_ROW
    np.testing.assert_array_equal(blocks(descs.SpaceToDepth1, source, block, order=order), expected)


@pytest.mark.parametrize("order", ORDERS)
@given(sizes(4, 3, fewest=4), st.integers(1, 4))
def test_space_to_depth_and_back(order, shape, block):
    batch, channels, height, width = shape
    source = numbered((batch, channels, height * block, width * block))
    there = blocks(descs.SpaceToDepth1, source, block, order=order)
    np.testing.assert_array_equal(blocks(descs.DepthToSpace1, there, block, order=order), source)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_pieces_tiles_and_blocks_move_bits(data_type):
    source = random_bits((1, 4, 6, 6), data_type)
    there = blocks(descs.SpaceToDepth, source, 2)
    np.testing.assert_array_equal(bits(blocks(descs.DepthToSpace, there, 2)), bits(source))
    np.testing.assert_array_equal(bits(join(split(source, [1, 5], 2), 2)), bits(source))
    np.testing.assert_array_equal(bits(tile(source, (1, 2, 1, 1)))[:, 4:], bits(source))
