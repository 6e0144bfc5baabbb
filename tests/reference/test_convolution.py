"""Convolutions against ONNX's evaluator, onnxruntime, SciPy, exact integers, and each other."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime, seven_bits

FORWARD, BACKWARD = ConvolutionDirection.FORWARD, ConvolutionDirection.BACKWARD
CORRELATE, CONVOLVE = ConvolutionMode.CROSS_CORRELATION, ConvolutionMode.CONVOLUTION
BOTH = [onnx_reference, onnx_runtime]
INT8, UINT8 = DataType.INT8, DataType.UINT8


def steps(spatial, **geometry):
    """Return the fields of the window; strides and dilations default to 1, padding to 0."""
    fields = {"strides": (1,), "dilations": (1,), "start_padding": (0,), "end_padding": (0,)} | geometry
    return {name: tuple(values) * (spatial if len(values) == 1 else 1) for name, values in fields.items()}


def positions(source, filters, fields):
    axes = zip(source.shape[2:], filters.shape[2:], *fields.values(), strict=True)
    return tuple((n + start + end - (k - 1) * d - 1) // s + 1 for n, k, s, d, start, end in axes)


def forward(source, filters, bias=None, *, groups=1, mode=CORRELATE, activation=None, **geometry):
    fields = steps(source.ndim - 2, **geometry)
    sizes = (source.shape[0], filters.shape[0], *positions(source, filters, fields))
    kind = {"mode": mode, "direction": FORWARD, "group_count": groups, "fused_activation": activation}
    return convolve(source, filters, bias, sizes, output_padding=(0,) * (source.ndim - 2), **kind, **fields)


def backward(source, filters, bias=None, *, groups=1, mode=CORRELATE, output_padding=(0,), **geometry):
    spatial = source.ndim - 2
    fields = steps(spatial, **geometry)
    more = tuple(output_padding) * (spatial if len(output_padding) == 1 else 1)
    axes = zip(source.shape[2:], filters.shape[2:], *fields.values(), more, strict=True)
    covered = (s * (n - 1) + (k - 1) * d + 1 - start - end + extra for n, k, s, d, start, end, extra in axes)
    sizes = (source.shape[0], filters.shape[1] * groups, *covered)
    kind = {"mode": mode, "direction": BACKWARD, "group_count": groups, "output_padding": more}
    return convolve(source, filters, bias, sizes, **kind, **fields)


def convolve(source, filters, bias, sizes, **fields):
    desc = descs.Convolution(
        input_tensor=tensor(source),
        filter_tensor=tensor(filters),
        bias_tensor=None if bias is None else tensor(bias),
        output_tensor=TensorDesc(DataType.from_numpy(source.dtype), sizes),
        **fields,
    )
    return run(desc, source, filters, bias)


def floats(rng, *sizes, dtype=np.float32):
    return rng.standard_normal(sizes).astype(dtype)


def integers(rng, data_type, *sizes):
    limits = np.iinfo(data_type.numpy)
    return rng.integers(limits.min, limits.max, sizes, data_type.numpy, endpoint=True)


def small(rng, *sizes):
    """Return small integers, with which every sum is exact."""
    return rng.integers(-9, 10, sizes).astype(np.float32)


# ---- CONVOLUTION

GEOMETRIES = {
    "1D": ((2, 3, 9), (4, 3, 3), 1, {}),
    "2D": ((2, 3, 6, 7), (5, 3, 3, 2), 1, {"start_padding": (1, 0), "end_padding": (2, 1)}),
    "3D": ((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), 1, {"strides": (2, 1, 3), "start_padding": (0, 1, 2)}),
    "strides": ((1, 2, 9, 8), (2, 2, 3, 3), 1, {"strides": (3, 2), "end_padding": (1, 0)}),
    "dilations": ((1, 2, 9, 8), (2, 2, 3, 2), 1, {"dilations": (2, 3), "start_padding": (2, 1)}),
    "groups": ((2, 6, 5, 5), (4, 3, 3, 3), 2, {"start_padding": (1,), "end_padding": (1,)}),
    "depth-wise": ((1, 4, 7, 7), (8, 1, 3, 3), 4, {"strides": (2,), "start_padding": (1,)}),
    "1 x 1": ((2, 5, 4, 3), (6, 5, 1, 1), 1, {}),
}


def pads(fields):
    return [*fields["start_padding"], *fields["end_padding"]]


@pytest.mark.parametrize("evaluate", BOTH)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_forward_agrees_with_onnx(name, evaluate):
    sizes, filter_sizes, groups, geometry = GEOMETRIES[name]
    rng = np.random.default_rng(1)
    source, filters, bias = floats(rng, *sizes), floats(rng, *filter_sizes), floats(rng, filter_sizes[0])
    fields = steps(len(sizes) - 2, **geometry)
    want = evaluate(
        "Conv",
        [source, filters, bias],
        group=groups,
        strides=fields["strides"],
        dilations=fields["dilations"],
        pads=pads(fields),
    )
    shaped = bias.reshape(1, -1, *[1] * (len(sizes) - 2))
    np.testing.assert_allclose(forward(source, filters, shaped, groups=groups, **geometry), want, 1e-4, 1e-5)


TRANSPOSED = {
    "1D": ((2, 3, 5), (3, 4, 3), 1, {"strides": (2,), "output_padding": (1,)}),
    "2D": ((1, 3, 4, 5), (3, 2, 3, 2), 1, {"strides": (2, 3), "start_padding": (1, 0), "end_padding": (0, 1)}),
    "3D": ((1, 2, 3, 2, 4), (2, 3, 2, 3, 2), 1, {"strides": (1, 2, 2), "output_padding": (0, 1, 1)}),
    "dilations": ((1, 2, 4, 4), (2, 3, 3, 2), 1, {"dilations": (2, 3), "strides": (2, 1)}),
    "groups": ((2, 4, 3, 3), (4, 3, 2, 2), 2, {"strides": (2,)}),
    "padding at both ends": ((1, 2, 5, 5), (2, 2, 3, 3), 1, {"start_padding": (1,), "end_padding": (1,)}),
    "output and end padding": (
        (1, 2, 4, 4),
        (2, 2, 4, 3),
        1,
        {"strides": (3, 2), "start_padding": (1,), "end_padding": (2, 1), "output_padding": (2, 1)},
    ),
}


@pytest.mark.parametrize("evaluate", BOTH)
@pytest.mark.parametrize("name", TRANSPOSED)
def test_backward_agrees_with_onnx(name, evaluate):
    """ConvTranspose; ONNX's own evaluator has no groups and two dimensions only."""
    sizes, filter_sizes, groups, geometry = TRANSPOSED[name]
    if evaluate is onnx_reference and (groups > 1 or len(sizes) != 4):
        pytest.skip("onnx's evaluator transposes only two-dimensional convolutions of one group")
    rng = np.random.default_rng(2)
    source, filters = floats(rng, *sizes), floats(rng, *filter_sizes)
    plain = {name: value for name, value in geometry.items() if name != "output_padding"}
    fields, spatial = steps(len(sizes) - 2, **plain), len(sizes) - 2
    want = evaluate(
        "ConvTranspose",
        [source, filters],
        group=groups,
        strides=fields["strides"],
        dilations=fields["dilations"],
        pads=pads(fields),
        output_padding=(tuple(geometry.get("output_padding", (0,))) * spatial)[:spatial],
    )
    np.testing.assert_allclose(backward(source, filters, groups=groups, **geometry), want, 1e-4, 1e-5)


@pytest.mark.parametrize("mode", [CORRELATE, CONVOLVE])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_both_modes_are_scipys(spatial, mode):
    rng = np.random.default_rng(3)
    source, filters = small(rng, 1, 1, *(7, 6, 5)[:spatial]), small(rng, 1, 1, *(3, 2, 4)[:spatial])
    by_scipy = scipy.signal.correlate if mode is CORRELATE else scipy.signal.convolve
    want = by_scipy(source[0, 0], filters[0, 0], "valid", "direct")
    np.testing.assert_array_equal(forward(source, filters, mode=mode)[0, 0], want)


@pytest.mark.parametrize("mode", [CORRELATE, CONVOLVE])
def test_backward_as_a_full_convolution_of_scipy(mode):
    rng = np.random.default_rng(4)
    source, filters = small(rng, 1, 1, 5, 4), small(rng, 1, 1, 3, 2)
    by_scipy = scipy.signal.convolve if mode is CORRELATE else scipy.signal.correlate
    want = by_scipy(source[0, 0], filters[0, 0], "full", "direct")
    np.testing.assert_array_equal(backward(source, filters, mode=mode)[0, 0], want)


steps_drawn = st.fixed_dictionaries(
    {
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "dilations": st.tuples(st.integers(1, 2), st.integers(1, 3)),
        "start_padding": st.tuples(st.integers(0, 3), st.integers(0, 3)),
        "end_padding": st.tuples(st.integers(0, 3), st.integers(0, 3)),
    }
)


@given(steps_drawn, st.sampled_from([CORRELATE, CONVOLVE]), st.sampled_from([1, 2]), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_backward_is_the_transpose_of_forward(fields, mode, groups, seed):
    """<forward(x), y> = <x, backward(y)>, exactly; output padding restores the remainder of the strides."""
    rng = np.random.default_rng(seed)
    x, filters = small(rng, 2, 4, 8, 9), small(rng, 6, 4 // groups, 3, 2)
    result = forward(x, filters, groups=groups, mode=mode, **fields)
    y = small(rng, *result.shape)
    left = [
        (n + start + end - (k - 1) * d - 1) % s
        for n, k, s, d, start, end in zip(x.shape[2:], filters.shape[2:], *steps(2, **fields).values(), strict=True)
    ]
    back = backward(y, filters, groups=groups, mode=mode, output_padding=left, **fields)
    assert back.shape == x.shape
    assert np.sum(result.astype(np.float64) * y) == np.sum(x.astype(np.float64) * back)


def test_output_padding_adds_elements_that_are_computed():
    """With end padding they continue the result, and are not zeros."""
    source, filters = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 3), np.float32)
    assert backward(source, filters)[0, 0].tolist() == [1, 2, 2, 1]
    cut = backward(source, filters, end_padding=(2,), output_padding=(1,))
    assert cut[0, 0].tolist() == [1, 2, 2]
    beyond = backward(source, filters, np.full((1, 1, 1), 5, np.float32), output_padding=(2,))
    assert beyond[0, 0].tolist() == [6, 7, 7, 6, 5, 5]


def test_the_result_is_rounded_before_the_activation():
    source, filters = np.full((1, 2, 1), 2049, np.float16), np.ones((1, 2, 1), np.float16)
    linear = descs.ActivationLinear(alpha=3.0, beta=0.0)
    got = forward(source, filters, activation=linear)
    assert got[0, 0, 0] == np.float16(np.float16(2 * 2048) * np.float32(3))  # 2049 is no half


# ---- integers


def convolve_integer(source, source_zero, filters, filter_zero, *, groups=1, **geometry):
    fields = steps(source.ndim - 2, **geometry)
    desc = descs.ConvolutionInteger(
        input_tensor=tensor(source),
        input_zero_point_tensor=None if source_zero is None else tensor(source_zero),
        filter_tensor=tensor(filters),
        filter_zero_point_tensor=None if filter_zero is None else tensor(filter_zero),
        output_tensor=TensorDesc(
            DataType.INT32, (source.shape[0], filters.shape[0], *positions(source, filters, fields))
        ),
        group_count=groups,
        **fields,
    )
    return run(desc, source, source_zero, filters, filter_zero)


PADDED = {"strides": (2, 1), "start_padding": (1, 2), "end_padding": (0, 1)}


@pytest.mark.parametrize("evaluate", BOTH)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolve_integer_agrees_with_onnx(groups, evaluate):
    """Of UINT8, the only type that onnxruntime has here; padding counts as the zero point. ONNX's evaluator subtracts
    zero points of the filter per output only for a single group."""
    rng = np.random.default_rng(5)
    source, filters = integers(rng, UINT8, 2, 4, 5, 6), integers(rng, UINT8, 6, 4 // groups, 3, 2)
    source_zero, filter_zero = integers(rng, UINT8, 1), integers(rng, UINT8, 1)
    fields = steps(2, **PADDED)
    inputs = [source, filters, source_zero.reshape(()), filter_zero.reshape(())]
    attributes = {"strides": fields["strides"], "pads": pads(fields), "group": groups}
    want = evaluate("ConvInteger", inputs, np.int32, **attributes)
    got = convolve_integer(source, source_zero, filters, filter_zero, groups=groups, **PADDED)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("source_type", "filter_type"), list(itertools.product([INT8, UINT8], repeat=2)))
def test_zero_points_per_output(source_type, filter_type):
    """Python's integers, element by element."""
    rng = np.random.default_rng(6)
    source, filters = integers(rng, source_type, 1, 2, 5), integers(rng, filter_type, 3, 2, 2)
    zero, zeros = integers(rng, source_type, 1, 1, 1), integers(rng, filter_type, 1, 3, 1)
    got = convolve_integer(source, zero, filters, zeros, start_padding=(1,), end_padding=(1,))
    for output, position in itertools.product(range(3), range(6)):
        total = 0
        for channel, place in itertools.product(range(2), range(2)):
            if 0 <= position + place - 1 < 5:
                x = int(source[0, channel, position + place - 1]) - int(zero[0, 0, 0])
                total += x * (int(filters[output, channel, place]) - int(zeros[0, output, 0]))
        assert got[0, output, position] == total


def test_sums_of_integers_wrap_around():
    source, filters = np.full((1, 40000, 1), 255, np.uint8), np.full((1, 40000, 1), 255, np.uint8)
    assert convolve_integer(source, None, filters, None)[0, 0, 0] == 40000 * 255 * 255 - 2**32


def quantized_convolve(source, filters, bias, output_type, *, groups=1, scales, zeros, **geometry):
    """Scales and zero points of input, filter, output."""
    fields = steps(source.ndim - 2, **geometry)
    (source_scale, filter_scale, scale), (source_zero, filter_zero, zero) = scales, zeros
    inputs = [source, source_scale, source_zero, filters, filter_scale, filter_zero, bias, scale, zero]
    names = descs.QuantizedLinearConvolution.input_fields
    desc = descs.QuantizedLinearConvolution(
        **{name: None if array is None else tensor(array) for name, array in zip(names, inputs, strict=True)},
        output_tensor=TensorDesc(output_type, (source.shape[0], filters.shape[0], *positions(source, filters, fields))),
        group_count=groups,
        **fields,
    )
    return run(desc, *inputs)


@pytest.mark.parametrize("evaluate", BOTH)
@pytest.mark.parametrize("groups", [1, 2])
def test_quantized_convolve_agrees_with_onnx(groups, evaluate):
    """Scales are powers of two, so that results differ only by the rounding of ties, of which there are many. The
    output's zero point is
    even: ONNX's evaluator rounds after it is added, onnxruntime before."""
    rng = np.random.default_rng(7)
    source, filters = integers(rng, UINT8, 1, 4, 6, 5), seven_bits(integers(rng, INT8, 6, 4 // groups, 3, 3))
    bias = rng.integers(-20000, 20000, 6, np.int32)
    source_scale, scale = np.array([0.5], np.float32), np.array([128.0], np.float32)
    filter_scale = np.float32(2.0) ** rng.integers(-3, 1, 6).astype(np.float32)
    source_zero, zero = integers(rng, UINT8, 1), np.array([122], np.uint8)
    filter_zero = np.zeros(6, np.int8)
    fields = steps(2, **PADDED)
    flat = [source_scale.reshape(()), source_zero.reshape(()), filters, filter_scale, filter_zero]
    inputs = [source, *flat, scale.reshape(()), zero.reshape(()), bias]
    attributes = {"strides": fields["strides"], "pads": pads(fields), "group": groups}
    want = evaluate("QLinearConv", inputs, np.uint8, **attributes)
    got = quantized_convolve(
        source,
        filters,
        bias.reshape(1, 6, 1, 1),
        UINT8,
        groups=groups,
        scales=(source_scale, filter_scale.reshape(1, 6, 1, 1), scale),
        zeros=(source_zero, filter_zero.reshape(1, 6, 1, 1), zero),
        **PADDED,
    )
    np.testing.assert_array_equal(got, want)


def test_ties_round_to_even_per_output():
    rng = np.random.default_rng(8)
    source, filters = integers(rng, INT8, 1, 3, 8), integers(rng, UINT8, 5, 3, 1)
    filter_scale = (2.0 ** rng.integers(-3, 2, 5)).astype(np.float32)
    filter_zero, bias = integers(rng, UINT8, 5), rng.integers(-500, 500, (1, 5, 1), np.int32)
    scale, zero = np.array([64.0], np.float32), integers(rng, INT8, 1)
    got = quantized_convolve(
        source,
        filters,
        bias,
        INT8,
        scales=(np.array([0.5], np.float32), filter_scale, scale),
        zeros=(None, filter_zero, zero),
    )
    for output, position in itertools.product(range(5), range(8)):
        total = int(bias[0, output, 0]) + sum(
            int(source[0, c, position]) * (int(filters[output, c, 0]) - int(filter_zero[output])) for c in range(3)
        )
        real = total * Fraction(float(filter_scale[output])) / 128
        assert got[0, output, position] == min(max(round(real) + int(zero[0]), -128), 127)
