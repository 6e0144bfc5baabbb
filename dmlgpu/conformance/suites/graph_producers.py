"""Operators that make a tensor, each as a function on a ``Draft``: the result has the draft's type and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dmlgpu.catalog.enums import (
    ConvolutionDirection,
    DataType,
    InterpolationMode,
    MatrixTransform,
    PaddingMode,
    ReduceFunction,
)
from dmlgpu.conformance.suites.graph_draft import BYTES, EVERY, FLOATS, NUMBERS, SUMMED, Draft, Types
from dmlgpu.tensors.graphs import functions as f
from dmlgpu.tensors.graphs.expression import Expression

Producer = Callable[[Draft], Expression]

INNER = 5
"""Columns of the first matrix of a product, and elements that a reduction sees."""

# ---- products and windows ---------------------------------------------------------------------------------


def _convolution(draft: Draft) -> Expression:
    batch, channels, *image = draft.sizes
    filters = draft.input((channels, 2, 3, 3))
    bias = draft.input((1, channels, 1, 1))
    return f.convolution(draft.input((batch, 2, *image)), filters, bias, start_padding=(1, 1), end_padding=(1, 1))


def _depthwise(draft: Draft) -> Expression:
    channels = draft.sizes[1]
    filters = draft.input((channels, 1, 3, 1))
    return f.convolution(draft.input(), filters, group_count=channels, start_padding=(1, 0), end_padding=(1, 0))


def _transposed_convolution(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    source, filters = draft.input((batch, 2, height - 1, width - 1)), draft.input((2, channels, 2, 2))
    return f.convolution(source, filters, direction=ConvolutionDirection.BACKWARD)


def _convolution_integer(draft: Draft) -> Expression:
    batch, channels, *image = draft.sizes
    source, filters = draft.input((batch, 2, *image), DataType.UINT8), draft.input((channels, 2, 1, 1), DataType.INT8)
    return f.convolution_integer(source, filters, draft.given([1], DataType.UINT8, (1, 1, 1, 1)))


def _product(draft: Draft) -> Expression:
    *batch, rows, columns = draft.sizes
    return f.gemm(draft.input((*batch, rows, INNER)), draft.input((*batch, INNER, columns)))


def _scaled_product(draft: Draft) -> Expression:
    *batch, rows, columns = draft.sizes
    a, b = draft.input((*batch, INNER, rows)), draft.input((*batch, columns, INNER))
    turned = MatrixTransform.TRANSPOSE
    return f.gemm(a, b, draft.input(), trans_a=turned, trans_b=turned, alpha=0.5, beta=2.0)


def _integer_product(draft: Draft) -> Expression:
    *batch, rows, columns = draft.sizes
    a, b = (
        draft.input((*batch, *s), t) for s, t in (((rows, INNER), DataType.UINT8), ((INNER, columns), DataType.INT8))
    )
    return f.matrix_multiply_integer(a, b, draft.given([2], DataType.UINT8, (1, 1, 1, 1)))


def _integer_product_to_float(draft: Draft) -> Expression:
    *batch, rows, columns = draft.sizes
    one = (1, 1, 1, 1)
    a, b = (draft.input((*batch, *s), DataType.INT8) for s in ((rows, INNER), (INNER, columns)))
    return f.matrix_multiply_integer_to_float(a, draft.given([0.5], sizes=one), b, draft.given([0.25], sizes=one))


def _quantized_product(draft: Draft) -> Expression:
    *batch, rows, columns = draft.sizes
    one = (1, 1, 1, 1)
    a, b = (draft.input((*batch, *s)) for s in ((rows, INNER), (INNER, columns)))
    scales = [draft.given([scale], DataType.FLOAT32, one) for scale in (0.5, 0.5, 0.5)]
    zero = draft.given([1], sizes=one)
    return f.quantized_linear_matrix_multiply(
        a, scales[0], b, scales[1], scales[2], zero, zero, zero, output_type=draft.data_type
    )


def _max_pooling(draft: Draft) -> Expression:
    return f.max_pooling(draft.input(), window_size=(2, 2), strides=(1, 1), start_padding=(0, 1), end_padding=(1, 0))


def _average_pooling(draft: Draft) -> Expression:
    return f.average_pooling(
        draft.input(),
        window_size=(2, 2),
        strides=(1, 1),
        start_padding=(0, 1),
        end_padding=(1, 0),
        include_padding=True,
    )


# ---- rows and reductions ----------------------------------------------------------------------------------


def _softmax(draft: Draft) -> Expression:
    return f.activation_softmax1(draft.input(), axes=(3,))


def _softmax_of_channels(draft: Draft) -> Expression:
    return f.activation_softmax1(draft.input(), axes=(1,))


def _log_softmax(draft: Draft) -> Expression:
    return f.activation_log_softmax1(draft.input(), axes=(3,))


def _normalization(draft: Draft) -> Expression:
    parameters = [draft.input((1, 1, 1, draft.sizes[3])) for _ in range(2)]
    return f.mean_variance_normalization2(draft.input(), *parameters, axes=(3,), epsilon=0.125)


def _batch_normalization(draft: Draft) -> Expression:
    return draft.normalized(draft.input())


def _local_response_normalization(draft: Draft) -> Expression:
    return f.local_response_normalization(
        draft.input(), cross_channel=True, local_size=3, alpha=0.75, beta=0.75, bias=1.5
    )


def _reduced_sum(draft: Draft) -> Expression:
    return _reduced(draft, ReduceFunction.SUM)


def _reduced_maximum(draft: Draft) -> Expression:
    return _reduced(draft, ReduceFunction.MAX)


def _reduced(draft: Draft, function: ReduceFunction) -> Expression:
    batch, channels, height, width = draft.sizes
    source = draft.input((batch * channels, INNER, height, width))
    return f.reduce(source, function=function, axes=(1,)).reinterpret(draft.sizes)


def _running_sum(draft: Draft) -> Expression:
    return f.cumulative_summation(draft.input(), axis=2)


# ---- element by element -----------------------------------------------------------------------------------


def _addition(draft: Draft) -> Expression:
    return f.element_wise_add(draft.input(), draft.input())


def _repeated_product(draft: Draft) -> Expression:
    batch, channels, *_ = draft.sizes
    row = draft.input((batch, channels, 1, 1)).broadcast_to(draft.sizes)
    return f.element_wise_multiply(draft.input(), row)


def _exponential(draft: Draft) -> Expression:
    return f.element_wise_exp(draft.input())


def _cast(draft: Draft) -> Expression:
    source = DataType.INT32 if draft.data_type is not DataType.INT32 else DataType.FLOAT32
    return f.cast(draft.input(data_type=source), output_type=draft.data_type)


def _quantization(draft: Draft) -> Expression:
    scale, zero = draft.given([0.5], DataType.FLOAT32, (1, 1, 1, 1)), draft.given([3], sizes=(1, 1, 1, 1))
    scale, zero = (one.broadcast_to(draft.sizes) for one in (scale, zero))
    return f.element_wise_quantize_linear(
        draft.input(data_type=DataType.FLOAT32), scale, zero, output_type=draft.data_type
    )


def _dequantization(draft: Draft) -> Expression:
    scale, zero = draft.given([0.5], sizes=(1, 1, 1, 1)), draft.given([3], DataType.UINT8, (1, 1, 1, 1))
    scale, zero = (one.broadcast_to(draft.sizes) for one in (scale, zero))
    return f.element_wise_dequantize_linear(draft.input(data_type=DataType.UINT8, high=200), scale, zero)


# ---- moved elements ---------------------------------------------------------------------------------------


def _nearest_resampling(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    small = draft.input((batch, channels, math.ceil(height / 2), math.ceil(width / 2)))
    return f.resample(
        small,
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        scales=(1.0, 1.0, 2.0, 2.0),
        output_sizes=draft.sizes,
    )


def _linear_resampling(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    small = draft.input((batch, channels, math.ceil(height / 2), math.ceil(width / 2)))
    return f.resample(
        small, interpolation_mode=InterpolationMode.LINEAR, scales=(1.0, 1.0, 2.0, 2.0), output_sizes=draft.sizes
    )


def _gather(draft: Draft) -> Expression:
    batch, channels, rows, columns = draft.sizes
    indices = draft.input((1, 1, 1, rows), DataType.UINT32, high=8)
    return f.gather(draft.input((batch, channels, 9, columns)), indices, axis=2, index_dimensions=1)


def _gather_nd(draft: Draft) -> Expression:
    *lead, columns = draft.sizes
    rows = math.prod(lead)
    indices = draft.input((1, 1, rows, 1), DataType.UINT32, high=6)
    table = draft.input((1, 1, 7, columns))
    return f.gather_nd1(
        table, indices, input_dimension_count=2, indices_dimension_count=2, batch_dimension_count=0
    ).reinterpret(draft.sizes)


def _slice_with_steps(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    return f.slice1(
        draft.input((batch, channels, 2 * height + 1, width + 2)),
        input_window_offsets=(0, 0, 1, 2),
        input_window_sizes=(batch, channels, 2 * height, width),
        input_window_strides=(1, 1, 2, 1),
    )


def _split(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    parts = [(batch, count, height, width) for count in (1, channels)]
    first, second = f.split(draft.input((batch, channels + 1, height, width)), axis=1, output_sizes=parts)
    row = first.reinterpret(draft.sizes, (height * width, 0, width, 1))
    return f.element_wise_max(second, row) if draft.rng.integers(2) else f.element_wise_max(row, second)


def _join(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    parts = [draft.input((batch, count, height, width)) for count in (1, channels - 1)]
    return f.join([f.element_wise_max(parts[0], parts[0]), parts[1]], axis=1)


def _padding(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    source = draft.input((batch, channels, height - 2, width - 1))
    return f.padding(source, padding_value=2, start_padding=(0, 0, 1, 1), end_padding=(0, 0, 1, 0))


def _reflected_padding(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    source = draft.input((batch, channels, height - 2, width - 1))
    mode = PaddingMode.REFLECTION
    return f.padding(source, padding_mode=mode, start_padding=(0, 0, 1, 1), end_padding=(0, 0, 1, 0))


def _tile(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    return f.tile(draft.input((batch, 1, height, width)), repeats=(1, channels, 1, 1))


def _depth_to_space(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    made = f.depth_to_space1(draft.input((1, 4 * batch, channels * height, width)), block_size=2)
    return _front(draft, made)


def _space_to_depth(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    return _front(draft, f.space_to_depth1(draft.input((1, batch, 2 * channels * height, 2 * width)), block_size=2))


def _front(draft: Draft, made: Expression) -> Expression:
    """Return a quarter of what is four times as large, seen in the draft's sizes."""
    quarter = (1, 1, math.prod(draft.sizes))
    whole = made.reinterpret((1, 4, quarter[2]))
    return f.slice1(whole, input_window_offsets=(0, 1, 0), input_window_sizes=quarter).reinterpret(draft.sizes)


def _transpose(draft: Draft) -> Expression:
    batch, channels, height, width = draft.sizes
    turned = draft.input((batch, height, width, channels))
    return f.element_wise_identity(
        turned.reinterpret(draft.sizes, (channels * height * width, 1, width * channels, channels))
    )


PRODUCERS: Mapping[str, tuple[Producer, Types]] = {
    "convolution": (_convolution, FLOATS),
    "depthwise": (_depthwise, FLOATS),
    "transposed_convolution": (_transposed_convolution, FLOATS),
    "convolution_integer": (_convolution_integer, (DataType.INT32,)),
    "product": (_product, FLOATS),
    "scaled_product": (_scaled_product, FLOATS),
    "integer_product": (_integer_product, (DataType.INT32,)),
    "integer_product_to_float": (_integer_product_to_float, FLOATS),
    "quantized_product": (_quantized_product, BYTES),
    "max_pooling": (_max_pooling, NUMBERS),
    "average_pooling": (_average_pooling, FLOATS),
    "softmax": (_softmax, FLOATS),
    "softmax_of_channels": (_softmax_of_channels, FLOATS),
    "log_softmax": (_log_softmax, FLOATS),
    "normalization": (_normalization, FLOATS),
    "batch_normalization": (_batch_normalization, FLOATS),
    "local_response_normalization": (_local_response_normalization, FLOATS),
    "reduced_sum": (_reduced_sum, SUMMED),
    "reduced_maximum": (_reduced_maximum, NUMBERS),
    "running_sum": (_running_sum, SUMMED),
    "addition": (_addition, NUMBERS),
    "repeated_product": (_repeated_product, NUMBERS),
    "exponential": (_exponential, FLOATS),
    "cast": (_cast, EVERY),
    "quantization": (_quantization, BYTES),
    "dequantization": (_dequantization, FLOATS),
    "nearest_resampling": (_nearest_resampling, (*FLOATS, *BYTES)),
    "linear_resampling": (_linear_resampling, FLOATS),
    "gather": (_gather, EVERY),
    "gather_nd": (_gather_nd, EVERY),
    "slice_with_steps": (_slice_with_steps, EVERY),
    "split": (_split, NUMBERS),
    "join": (_join, NUMBERS),
    "padding": (_padding, EVERY),
    "reflected_padding": (_reflected_padding, EVERY),
    "tile": (_tile, NUMBERS),
    "depth_to_space": (_depth_to_space, EVERY),
    "space_to_depth": (_space_to_depth, EVERY),
    "transpose": (_transpose, EVERY),
}
"""What makes a tensor, by name, and of which types."""
