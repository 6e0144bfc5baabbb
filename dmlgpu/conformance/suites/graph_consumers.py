"""Operators that read a tensor, each as a function on a ``Draft`` and what it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode, MatrixTransform, ReduceFunction
from dmlgpu.catalog.operator_desc import ScaleBias, Size2D
from dmlgpu.conformance.suites.graph_draft import BYTES, EVERY, FLOATS, NUMBERS, SIGNED, SUMMED, Draft, Types
from dmlgpu.tensors.graphs import functions as f
from dmlgpu.tensors.graphs.expression import Expression

Consumer = Callable[[Draft, Expression], Expression]


def _relu(draft: Draft, x: Expression) -> Expression:
    return f.activation_relu(x)


def _sigmoid(draft: Draft, x: Expression) -> Expression:
    return f.activation_sigmoid(x)


def _scale_bias(draft: Draft, x: Expression) -> Expression:
    return f.element_wise_identity(x, scale_bias=ScaleBias(-0.5, 0.25))


def _clip(draft: Draft, x: Expression) -> Expression:
    return f.element_wise_clip(x, min=-2.0, max=1.5)


def _residual(draft: Draft, x: Expression) -> Expression:
    return f.element_wise_add(draft.input(), x)


def _channel_bias(draft: Draft, x: Expression) -> Expression:
    return f.element_wise_subtract(x, draft.input((1, x.sizes[1], 1, 1)).broadcast_to(x.sizes))


def _square(draft: Draft, x: Expression) -> Expression:
    return f.element_wise_multiply(x, x)


def _shifted_pair(draft: Draft, x: Expression) -> Expression:
    """Every element less the one before it: two views of one tensor, at different places."""
    *lead, width = x.sizes
    parts = [
        f.slice1(x, input_window_offsets=(0, 0, 0, first), input_window_sizes=(*lead, width - 1)) for first in (1, 0)
    ]
    return f.element_wise_subtract(*parts)


def _cast(draft: Draft, x: Expression) -> Expression:
    target = {DataType.FLOAT32: DataType.FLOAT16, DataType.FLOAT16: DataType.INT32}.get(x.data_type, DataType.FLOAT32)
    return f.cast(x, output_type=target)


def _quantize(draft: Draft, x: Expression) -> Expression:
    scale, zero = draft.given([0.25], x.data_type, (1, 1, 1, 1)), draft.given([9], DataType.UINT8, (1, 1, 1, 1))
    return f.element_wise_quantize_linear(x, scale.broadcast_to(x.sizes), zero.broadcast_to(x.sizes))


def _dequantize(draft: Draft, x: Expression) -> Expression:
    scale, zero = draft.given([0.25], DataType.FLOAT32, (1, 1, 1, 1)), draft.given([9], x.data_type, (1, 1, 1, 1))
    return f.element_wise_dequantize_linear(x, scale.broadcast_to(x.sizes), zero.broadcast_to(x.sizes))


def _join(draft: Draft, x: Expression) -> Expression:
    return f.join([draft.input((*x.sizes[:3], 2)), x, x], axis=3)


def _join_of_channels(draft: Draft, x: Expression) -> Expression:
    return f.join([x, draft.input((x.sizes[0], 1, *x.sizes[2:]))], axis=1)


def _slice(draft: Draft, x: Expression) -> Expression:
    *lead, width = x.sizes
    window = (*lead, width - 1)
    return f.slice1(x, input_window_offsets=(0, 0, 0, 1), input_window_sizes=window, input_window_strides=(1, 1, 1, 2))


def _turned(x: Expression) -> Expression:
    """Return the last two dimensions exchanged, by strides."""
    strides = x.desc.element_strides
    sizes = (*x.sizes[:2], x.sizes[3], x.sizes[2])
    return x.reinterpret(sizes, (*strides[:2], strides[3], strides[2]))


def _transpose(draft: Draft, x: Expression) -> Expression:
    return f.element_wise_identity(_turned(x))


def _padding(draft: Draft, x: Expression) -> Expression:
    return f.padding(x, padding_value=1, start_padding=(0, 0, 1, 0), end_padding=(0, 0, 0, 2))


def _tile(draft: Draft, x: Expression) -> Expression:
    return f.tile(x, repeats=(1, 1, 2, 1))


def _gather(draft: Draft, x: Expression) -> Expression:
    indices = draft.input((1, 1, 1, 3), DataType.UINT32, high=x.sizes[2] - 1)
    return f.gather(x, indices, axis=2, index_dimensions=1)


def _product(draft: Draft, x: Expression) -> Expression:
    *batch, _, inner = x.sizes
    return f.gemm(x, draft.input((*batch, inner, 3)))


def _product_of_transpose(draft: Draft, x: Expression) -> Expression:
    *batch, rows, _ = x.sizes
    return f.gemm(draft.input((*batch, 3, rows)), _turned(x), trans_b=MatrixTransform.TRANSPOSE)


def _convolution(draft: Draft, x: Expression) -> Expression:
    return f.convolution(x, draft.input((2, x.sizes[1], 1, 2)))


def _sum(draft: Draft, x: Expression) -> Expression:
    return f.reduce(x, function=ReduceFunction.SUM, axes=(2, 3))


def _maximum(draft: Draft, x: Expression) -> Expression:
    return f.reduce(x, function=ReduceFunction.MAX, axes=(1,))


def _running_sum(draft: Draft, x: Expression) -> Expression:
    return f.cumulative_summation(x, axis=3, axis_direction=AxisDirection.DECREASING)


def _softmax(draft: Draft, x: Expression) -> Expression:
    return f.activation_softmax1(f.element_wise_clip(x, min=-4.0, max=4.0), axes=(3,))


def _normalization(draft: Draft, x: Expression) -> Expression:
    return f.mean_variance_normalization2(x, axes=(3,), epsilon=0.125)


def _normalized_batch(draft: Draft, x: Expression) -> Expression:
    return draft.normalized(x)


def _max_pooling(draft: Draft, x: Expression) -> Expression:
    return f.max_pooling(x, window_size=(2, 2), strides=(2, 1))


def _upsampling(draft: Draft, x: Expression) -> Expression:
    return f.upsample_2d(x, scale_size=Size2D(2, 2), interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR)


def _reshape(draft: Draft, x: Expression) -> Expression:
    batch, channels, height, width = x.sizes
    strides = x.desc.strides
    flat = x if strides else x.reinterpret((1, batch * channels, 1, height * width))
    return f.element_wise_negate(flat)


def _bits(draft: Draft, x: Expression) -> Expression:
    """Unsigned integers of the same bits; as wide as the elements, since what follows the last one is anything."""
    unsigned = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64)
    kind = next(kind for kind in unsigned if kind.bits == x.data_type.bits)
    return f.element_wise_bit_not(x.reinterpret((math.prod(x.sizes),), dtype=kind))


CONSUMERS: Mapping[str, tuple[Consumer, Types]] = {
    "relu": (_relu, (*SIGNED, DataType.INT16)),
    "sigmoid": (_sigmoid, FLOATS),
    "scale_bias": (_scale_bias, FLOATS),
    "clip": (_clip, NUMBERS),
    "residual": (_residual, NUMBERS),
    "channel_bias": (_channel_bias, NUMBERS),
    "square": (_square, NUMBERS),
    "shifted_pair": (_shifted_pair, NUMBERS),
    "cast": (_cast, EVERY),
    "quantize": (_quantize, FLOATS),
    "dequantize": (_dequantize, (*BYTES, DataType.INT16, DataType.UINT16, DataType.INT32, DataType.UINT32)),
    "join": (_join, EVERY),
    "join_of_channels": (_join_of_channels, EVERY),
    "slice": (_slice, EVERY),
    "transpose": (_transpose, EVERY),
    "padding": (_padding, EVERY),
    "tile": (_tile, NUMBERS),
    "gather": (_gather, EVERY),
    "product": (_product, FLOATS),
    "product_of_transpose": (_product_of_transpose, FLOATS),
    "convolution": (_convolution, FLOATS),
    "sum": (_sum, SUMMED),
    "maximum": (_maximum, NUMBERS),
    "running_sum": (_running_sum, SUMMED),
    "softmax": (_softmax, FLOATS),
    "normalization": (_normalization, FLOATS),
    "batch_normalization": (_normalized_batch, FLOATS),
    "max_pooling": (_max_pooling, NUMBERS),
    "upsampling": (_upsampling, FLOATS),
    "reshape": (_reshape, (*SIGNED, DataType.INT16, DataType.INT64)),
    "bits": (_bits, EVERY),
}
"""What reads a tensor, by name, and of which types."""
