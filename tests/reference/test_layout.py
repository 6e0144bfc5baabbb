"""SLICE1 and SLICE against Python's slices, ONNX's evaluator and onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
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
    """Window elements picked by Python: the window first, then the stride, which starts from its end if negative."""
    return tuple(slice(offset, offset + extent) for offset, extent, _ in window), tuple(
        slice(None, None, stride) for _, _, stride in window
    )


@given(windows())
def test_slice1_is_a_window_then_a_stride(drawn):
    shape, window = drawn
    source = numbered(shape)
    cut, stepped = python_slices(window)
    np.testing.assert_array_equal(slice1(source, window), source[cut][stepped])


def test_slice1_may_leave_out_the_end_of_the_window():
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
