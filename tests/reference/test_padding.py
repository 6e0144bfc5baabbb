"""PADDING and SLICE_GRAD against NumPy's pad, assignment to slices, ONNX's evaluator and onnxruntime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, PaddingMode
from tests.reference.helpers import ALL_TYPES, bits, numbered, run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime
from tests.reference.test_layout import python_slices, slice1, windows

NUMPY_MODES = {
    PaddingMode.CONSTANT: "constant",
    PaddingMode.EDGE: "edge",
    PaddingMode.REFLECTION: "reflect",
    PaddingMode.SYMMETRIC: "symmetric",
    PaddingMode.WRAP: "wrap",
}
ONNX_MODES = {PaddingMode.CONSTANT: "constant", PaddingMode.EDGE: "edge", PaddingMode.REFLECTION: "reflect"}


def padding1(source, ends, mode, value=0):
    start, end = zip(*ends, strict=True)
    result = tuple(map(sum, zip(source.shape, start, end, strict=True)))
    desc = descs.Padding1(
        input_tensor=tensor(source),
        output_tensor=tensor(np.empty(result, source.dtype)),
        padding_mode=mode,
        padding_value_data_type=DataType.from_numpy(source.dtype),
        padding_value=value,
        start_padding=start,
        end_padding=end,
    )
    return run(desc, source)


def padding(source, value):
    result = (source.shape[0] + 2, *source.shape[1:])
    desc = descs.Padding(
        input_tensor=tensor(source),
        output_tensor=tensor(np.empty(result, source.dtype)),
        padding_mode=PaddingMode.CONSTANT,
        padding_value=value,
        start_padding=(2,) + (0,) * (source.ndim - 1),
        end_padding=(0,) * source.ndim,
    )
    return run(desc, source)


@st.composite
def padded(draw):
    """Sizes, and the padding at both ends of each dimension, far beyond the sizes."""
    shape = draw(sizes(4, 5))
    return shape, [(draw(st.integers(0, 12)), draw(st.integers(0, 12))) for _ in shape]


@pytest.mark.parametrize("mode", PaddingMode)
@given(drawn=padded())
def test_padding1_is_numpys_pad(mode, drawn):
    shape, ends = drawn
    source = numbered(shape)
    given_value = {"constant_values": -7} if mode is PaddingMode.CONSTANT else {}
    expected = np.pad(source, ends, NUMPY_MODES[mode], **given_value)
    np.testing.assert_array_equal(padding1(source, ends, mode, -7), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("mode", ONNX_MODES)
@pytest.mark.parametrize("ends", [[(0, 0), (1, 2)], [(2, 1), (3, 3)], [(1, 0), (0, 0)]])
def test_padding1_agrees_with_onnx(evaluate, mode, ends):
    source = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    pads = np.array([start for start, _ in ends] + [end for _, end in ends])
    constant = [np.array(2.5, np.float32)] if mode is PaddingMode.CONSTANT else []
    expected = evaluate("Pad", [source, pads, *constant], mode=ONNX_MODES[mode])
    np.testing.assert_array_equal(padding1(source, ends, mode, 2.5), expected)


def test_a_mirror_of_one_element_repeats_it():
    np.testing.assert_array_equal(padding1(numbered((1,)), [(3, 2)], PaddingMode.REFLECTION), [1] * 6)


@pytest.mark.parametrize(
    ("data_type", "value", "first"),
    [
        (DataType.INT8, 10.6, 10),
        (DataType.INT8, -10.6, -10),
        (DataType.INT8, -1e30, -128),
        (DataType.UINT16, float("inf"), 65535),
        (DataType.UINT64, float("nan"), 0),
        (DataType.INT64, 2.0**62, 2**62),
        (DataType.FLOAT16, 0.1, np.float16(0.1)),
        (DataType.FLOAT64, 0.1, float(np.float32(0.1))),
    ],
)
def test_padding_converts_its_constant(data_type, value, first):
    source = numbered((3, 2), data_type)
    result = padding(source, value)
    assert (result[:2] == first).all()
    np.testing.assert_array_equal(result[2:], source)


@pytest.mark.parametrize("mode", PaddingMode)
@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_padding_moves_bits(mode, data_type):
    raw = np.random.default_rng(2).integers(0, 256, (3, 5, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy)[..., 0]
    ends = [(2, 1), (4, 3)]
    expected = np.pad(bits(source), ends, NUMPY_MODES[mode])
    np.testing.assert_array_equal(bits(padding1(source, ends, mode)), expected)


def slice_grad(gradient, window, whole):
    offsets, extents, strides = zip(*window, strict=True)
    desc = descs.SliceGrad(
        input_gradient_tensor=tensor(gradient),
        output_gradient_tensor=tensor(np.empty(whole, gradient.dtype)),
        input_window_offsets=offsets,
        input_window_sizes=extents,
        input_window_strides=strides,
    )
    return run(desc, gradient)


@given(windows())
def test_slice_grad_assigns_to_the_window(drawn):
    shape, window = drawn
    cut, stepped = python_slices(window)
    expected = np.zeros(shape, np.int32)
    gradient = numbered(expected[cut][stepped].shape)
    expected[cut][stepped] = gradient
    np.testing.assert_array_equal(slice_grad(gradient, window, shape), expected)


@given(windows())
def test_slice_grad_is_the_transpose_of_slice1(drawn):
    shape, window = drawn
    source = numbered(shape)
    taken = slice1(source, window)
    gradient = numbered(taken.shape)[..., ::-1].copy()
    assert (taken * gradient).sum() == (source * slice_grad(gradient, window, shape)).sum()


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_slice_grad_moves_bits(data_type):
    raw = np.random.default_rng(3).integers(0, 256, (4, data_type.bits // 8), np.uint8)
    gradient = raw.view(data_type.numpy)[..., 0]
    expected = np.zeros(9, f"u{gradient.dtype.itemsize}")
    expected[[8, 6, 4, 2]] = bits(gradient)
    np.testing.assert_array_equal(bits(slice_grad(gradient, [(1, 8, -2)], (9,))), expected)
