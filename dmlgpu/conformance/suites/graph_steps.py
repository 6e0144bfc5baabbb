"""Graphs with contents, and the operators that the suite ``graphs`` combines: producers and consumers of a tensor.

These are functions on a ``Draft``, a graph under construction, and not descriptions: a producer's result has the
draft's type and sizes, a consumer accepts any tensor.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.catalog.enums import (
    AxisDirection,
    ConvolutionDirection,
    DataType,
    InterpolationMode,
    MatrixTransform,
    PaddingMode,
    ReduceFunction,
)
from dmlgpu.catalog.operator_desc import ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.conformance.cases.case import Array
from dmlgpu.tensors import directml
from dmlgpu.tensors import directml as f
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor

Sizes = tuple[int, ...]
Types = tuple[DataType, ...]

FLOATS: Types = (DataType.FLOAT32, DataType.FLOAT16)
WORDS: Types = (*FLOATS, DataType.INT32)
BYTES: Types = (DataType.UINT8, DataType.INT8)
SIGNED: Types = (*WORDS, DataType.INT8)
ALL: Types = (*WORDS, *BYTES)
"""The types of pairs and patterns: one of each kind that kernels treat alike."""

SUMMED: Types = (*WORDS, DataType.UINT32, DataType.INT64, DataType.UINT64)
NUMBERS: Types = (*SUMMED, *BYTES, DataType.INT16, DataType.UINT16)
EVERY: Types = (*NUMBERS, DataType.FLOAT64)
"""Types between producers and consumers that casts separate: 8, 16, 32 and 64 bits of each kind."""

FRACTION = 8
"""Floats are multiples of 1 / FRACTION, which makes sums of products of a few of them exact in float32."""


def most_of(data_type: DataType) -> int:
    """Return the largest number that a tensor holds: in float16 so much that sums of products have to be
    rounded."""
    return 8 if data_type is DataType.FLOAT16 else 3


@dataclass(frozen=True)
class Example:
    """A graph with its inputs.

    Attributes:
        graph: The graph.
        inputs: The elements of its inputs in memory order, one-dimensional.
    """

    graph: GraphDesc
    inputs: tuple[Array, ...]


class Draft:
    """A graph under construction whose inputs have contents; all of them are drawn from its name.

    Args:
        name: Name of the case.
        data_type: Default data type of the tensors.
        sizes: Sizes of the tensor between producer and consumer: four dimensions.
        policy: Memory layout of outputs, as for ``Graph``.
    """

    def __init__(self, name: str, data_type: DataType, sizes: Sizes, policy: str = "default"):
        self.data_type, self.sizes = data_type, sizes
        self.graph = Graph(name=name, policy=policy)
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._inputs: list[Array] = []

    def input(
        self,
        sizes: Sequence[int] | None = None,
        data_type: DataType | None = None,
        *,
        low: int | None = None,
        high: int | None = None,
        strides: Sequence[int] | None = None,
        owned: bool = False,
    ) -> Tensor:
        """Add an input: integers from ``low`` to ``high`` (``most_of``), and for floats the multiples of 1 / FRACTION
        between."""
        kind = data_type or self.data_type
        whole = tuple(sizes or self.sizes)
        desc = whole if strides is None else TensorDesc(kind, whole, tuple(strides))
        expression = self.graph.input(desc, kind, owned=owned)
        self._inputs.append(expression.desc.encode(self.contents(expression.sizes, expression.data_type, low, high)))
        return expression

    def constant(
        self,
        sizes: Sequence[int],
        data_type: DataType | None = None,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> Tensor:
        """Add data that are known when the graph is compiled, of the same kind."""
        kind = data_type or self.data_type
        return self.graph.constant(self.contents(tuple(sizes), kind, low, high), kind)

    def numbers(self, values: Sequence[float], data_type: DataType | None = None, sizes: Sizes | None = None) -> Tensor:
        """Add data of these values."""
        kind = data_type or self.data_type
        return self.graph.constant(np.array(values).astype(kind.numpy).reshape(sizes or (len(values),)), kind)

    def normalized(self, x: Tensor) -> Tensor:
        """Add a BATCH_NORMALIZATION with known statistics, per channel."""
        sizes = (1, x.sizes[1], 1, 1)
        mean, scale, bias = (self.constant(sizes) for _ in range(3))
        variance = self.constant(sizes, low=1, high=4)
        return directml.batch_normalization(x, mean, variance, scale, bias, spatial=True, epsilon=0.125)

    def contents(self, sizes: Sizes, data_type: DataType, low: int | None, high: int | None) -> Array:
        """Draw the elements of a tensor."""
        low, high = -most_of(data_type) if low is None else low, most_of(data_type) if high is None else high
        if data_type.is_float:
            return (self.rng.integers(low * FRACTION, high * FRACTION + 1, sizes) / FRACTION).astype(data_type.numpy)
        return self.rng.integers(low if data_type.is_signed else 0, high + 1, sizes).astype(data_type.numpy)

    def example(self, outputs: Sequence[Tensor]) -> Example:
        """Return the graph of these outputs, and its inputs."""
        return Example(self.graph.desc(outputs), tuple(self._inputs))


# ---- producers -------------------------------------------------------------------------------------------------------


Producer = Callable[[Draft], Tensor]

INNER = 5
"""Columns of the first matrix of a product, and elements that a reduction sees."""

# ---- products and windows ---------------------------------------------------------------------------------


def _convolution(draft: Draft) -> Tensor:
    batch, channels, *image = draft.sizes
    filters = draft.input((channels, 2, 3, 3))
    bias = draft.input((1, channels, 1, 1))
    return f.convolution(draft.input((batch, 2, *image)), filters, bias, start_padding=(1, 1), end_padding=(1, 1))


def _depthwise(draft: Draft) -> Tensor:
    channels = draft.sizes[1]
    filters = draft.input((channels, 1, 3, 1))
    return f.convolution(draft.input(), filters, group_count=channels, start_padding=(1, 0), end_padding=(1, 0))


def _transposed_convolution(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    source, filters = draft.input((batch, 2, height - 1, width - 1)), draft.input((2, channels, 2, 2))
    return f.convolution(source, filters, direction=ConvolutionDirection.BACKWARD)


def _convolution_integer(draft: Draft) -> Tensor:
    batch, channels, *image = draft.sizes
    source, filters = draft.input((batch, 2, *image), DataType.UINT8), draft.input((channels, 2, 1, 1), DataType.INT8)
    return f.convolution_integer(source, filters, draft.numbers([1], DataType.UINT8, (1, 1, 1, 1)))


def _product(draft: Draft) -> Tensor:
    *batch, rows, columns = draft.sizes
    return f.gemm(draft.input((*batch, rows, INNER)), draft.input((*batch, INNER, columns)))


def _scaled_product(draft: Draft) -> Tensor:
    *batch, rows, columns = draft.sizes
    a, b = draft.input((*batch, INNER, rows)), draft.input((*batch, columns, INNER))
    turned = MatrixTransform.TRANSPOSE
    return f.gemm(a, b, draft.input(), trans_a=turned, trans_b=turned, alpha=0.5, beta=2.0)


def _integer_product(draft: Draft) -> Tensor:
    *batch, rows, columns = draft.sizes
    a, b = (
        draft.input((*batch, *s), t) for s, t in (((rows, INNER), DataType.UINT8), ((INNER, columns), DataType.INT8))
    )
    return f.matrix_multiply_integer(a, b, draft.numbers([2], DataType.UINT8, (1, 1, 1, 1)))


def _integer_product_to_float(draft: Draft) -> Tensor:
    *batch, rows, columns = draft.sizes
    single = (1, 1, 1, 1)
    a, b = (draft.input((*batch, *s), DataType.INT8) for s in ((rows, INNER), (INNER, columns)))
    return f.matrix_multiply_integer_to_float(
        a, draft.numbers([0.5], sizes=single), b, draft.numbers([0.25], sizes=single)
    )


def _quantized_product(draft: Draft) -> Tensor:
    *batch, rows, columns = draft.sizes
    single = (1, 1, 1, 1)
    a, b = (draft.input((*batch, *s)) for s in ((rows, INNER), (INNER, columns)))
    scales = [draft.numbers([scale], DataType.FLOAT32, single) for scale in (0.5, 0.5, 0.5)]
    zero = draft.numbers([1], sizes=single)
    return f.quantized_linear_matrix_multiply(
        a, scales[0], b, scales[1], scales[2], zero, zero, zero, output_type=draft.data_type
    )


def _max_pooling(draft: Draft) -> Tensor:
    return f.max_pooling(draft.input(), window_size=(2, 2), strides=(1, 1), start_padding=(0, 1), end_padding=(1, 0))


def _average_pooling(draft: Draft) -> Tensor:
    return f.average_pooling(
        draft.input(),
        window_size=(2, 2),
        strides=(1, 1),
        start_padding=(0, 1),
        end_padding=(1, 0),
        include_padding=True,
    )


# ---- rows and reductions ----------------------------------------------------------------------------------


def _normalization(draft: Draft) -> Tensor:
    parameters = [draft.input((1, 1, 1, draft.sizes[3])) for _ in range(2)]
    return f.mean_variance_normalization2(draft.input(), *parameters, axes=(3,), epsilon=0.125)


def _local_response_normalization(draft: Draft) -> Tensor:
    return f.local_response_normalization(
        draft.input(), cross_channel=True, local_size=3, alpha=0.75, beta=0.75, bias=1.5
    )


def _reduced(draft: Draft, function: ReduceFunction) -> Tensor:
    batch, channels, height, width = draft.sizes
    source = draft.input((batch * channels, INNER, height, width))
    return f.reduce(source, function=function, axes=(1,)).reinterpret(draft.sizes)


# ---- element by element -----------------------------------------------------------------------------------


def _repeated_product(draft: Draft) -> Tensor:
    batch, channels, *_ = draft.sizes
    row = draft.input((batch, channels, 1, 1)).broadcast_to(draft.sizes)
    return f.element_wise_multiply(draft.input(), row)


def _cast(draft: Draft) -> Tensor:
    source = DataType.INT32 if draft.data_type is not DataType.INT32 else DataType.FLOAT32
    return f.cast(draft.input(data_type=source), output_type=draft.data_type)


def _quantization(draft: Draft) -> Tensor:
    scale, zero = draft.numbers([0.5], DataType.FLOAT32, (1, 1, 1, 1)), draft.numbers([3], sizes=(1, 1, 1, 1))
    scale, zero = (parameter.broadcast_to(draft.sizes) for parameter in (scale, zero))
    return f.element_wise_quantize_linear(
        draft.input(data_type=DataType.FLOAT32), scale, zero, output_type=draft.data_type
    )


def _dequantization(draft: Draft) -> Tensor:
    scale, zero = draft.numbers([0.5], sizes=(1, 1, 1, 1)), draft.numbers([3], DataType.UINT8, (1, 1, 1, 1))
    scale, zero = (parameter.broadcast_to(draft.sizes) for parameter in (scale, zero))
    return f.element_wise_dequantize_linear(draft.input(data_type=DataType.UINT8, high=200), scale, zero)


# ---- moved elements ---------------------------------------------------------------------------------------


def _nearest_resampling(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    small = draft.input((batch, channels, math.ceil(height / 2), math.ceil(width / 2)))
    return f.resample(
        small,
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        scales=(1.0, 1.0, 2.0, 2.0),
        output_sizes=draft.sizes,
    )


def _linear_resampling(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    small = draft.input((batch, channels, math.ceil(height / 2), math.ceil(width / 2)))
    return f.resample(
        small, interpolation_mode=InterpolationMode.LINEAR, scales=(1.0, 1.0, 2.0, 2.0), output_sizes=draft.sizes
    )


def _gather(draft: Draft) -> Tensor:
    batch, channels, rows, columns = draft.sizes
    indices = draft.input((1, 1, 1, rows), DataType.UINT32, high=8)
    return f.gather(draft.input((batch, channels, 9, columns)), indices, axis=2, index_dimensions=1)


def _gather_nd(draft: Draft) -> Tensor:
    *lead, columns = draft.sizes
    rows = math.prod(lead)
    indices = draft.input((1, 1, rows, 1), DataType.UINT32, high=6)
    table = draft.input((1, 1, 7, columns))
    return f.gather_nd1(
        table, indices, input_dimension_count=2, indices_dimension_count=2, batch_dimension_count=0
    ).reinterpret(draft.sizes)


def _slice_with_steps(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    return f.slice1(
        draft.input((batch, channels, 2 * height + 1, width + 2)),
        input_window_offsets=(0, 0, 1, 2),
        input_window_sizes=(batch, channels, 2 * height, width),
        input_window_strides=(1, 1, 2, 1),
    )


def _split(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    parts = [(batch, count, height, width) for count in (1, channels)]
    first, second = f.split(draft.input((batch, channels + 1, height, width)), axis=1, output_sizes=parts)
    row = first.reinterpret(draft.sizes, (height * width, 0, width, 1))
    return f.element_wise_max(second, row) if draft.rng.integers(2) else f.element_wise_max(row, second)


def _join(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    parts = [draft.input((batch, count, height, width)) for count in (1, channels - 1)]
    return f.join([f.element_wise_max(parts[0], parts[0]), parts[1]], axis=1)


def _padding(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    source = draft.input((batch, channels, height - 2, width - 1))
    return f.padding(source, padding_value=2, start_padding=(0, 0, 1, 1), end_padding=(0, 0, 1, 0))


def _reflected_padding(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    source = draft.input((batch, channels, height - 2, width - 1))
    mode = PaddingMode.REFLECTION
    return f.padding(source, padding_mode=mode, start_padding=(0, 0, 1, 1), end_padding=(0, 0, 1, 0))


def _tile(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    return f.tile(draft.input((batch, 1, height, width)), repeats=(1, channels, 1, 1))


def _depth_to_space(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    whole = f.depth_to_space1(draft.input((1, 4 * batch, channels * height, width)), block_size=2)
    return _front(draft, whole)


def _space_to_depth(draft: Draft) -> Tensor:
    batch, channels, height, width = draft.sizes
    return _front(draft, f.space_to_depth1(draft.input((1, batch, 2 * channels * height, 2 * width)), block_size=2))


def _front(draft: Draft, large: Tensor) -> Tensor:
    """Return a quarter of a tensor that is four times as large, reshaped to the draft's sizes."""
    quarter = (1, 1, math.prod(draft.sizes))
    whole = large.reinterpret((1, 4, quarter[2]))
    return f.slice1(whole, input_window_offsets=(0, 1, 0), input_window_sizes=quarter).reinterpret(draft.sizes)


def _transpose(draft: Draft) -> Tensor:
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
    "softmax": (lambda draft: f.activation_softmax1(draft.input(), axes=(3,)), FLOATS),
    "softmax_of_channels": (lambda draft: f.activation_softmax1(draft.input(), axes=(1,)), FLOATS),
    "log_softmax": (lambda draft: f.activation_log_softmax1(draft.input(), axes=(3,)), FLOATS),
    "normalization": (_normalization, FLOATS),
    "batch_normalization": (lambda draft: draft.normalized(draft.input()), FLOATS),
    "local_response_normalization": (_local_response_normalization, FLOATS),
    "reduced_sum": (lambda draft: _reduced(draft, ReduceFunction.SUM), SUMMED),
    "reduced_maximum": (lambda draft: _reduced(draft, ReduceFunction.MAX), NUMBERS),
    "running_sum": (lambda draft: f.cumulative_summation(draft.input(), axis=2), SUMMED),
    "addition": (lambda draft: f.element_wise_add(draft.input(), draft.input()), NUMBERS),
    "repeated_product": (_repeated_product, NUMBERS),
    "exponential": (lambda draft: f.element_wise_exp(draft.input()), FLOATS),
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
"""Producers of a tensor, by name, with their types."""


# ---- consumers -------------------------------------------------------------------------------------------------------


Consumer = Callable[[Draft, Tensor], Tensor]


def _channel_bias(draft: Draft, x: Tensor) -> Tensor:
    return f.element_wise_subtract(x, draft.input((1, x.sizes[1], 1, 1)).broadcast_to(x.sizes))


def _shifted_pair(draft: Draft, x: Tensor) -> Tensor:
    """Every element less the one before it: two views of one tensor, at different places."""
    *lead, width = x.sizes
    parts = [
        f.slice1(x, input_window_offsets=(0, 0, 0, first), input_window_sizes=(*lead, width - 1)) for first in (1, 0)
    ]
    return f.element_wise_subtract(*parts)


def _read_cast(draft: Draft, x: Tensor) -> Tensor:
    target = {DataType.FLOAT32: DataType.FLOAT16, DataType.FLOAT16: DataType.INT32}.get(x.data_type, DataType.FLOAT32)
    return f.cast(x, output_type=target)


def _quantize(draft: Draft, x: Tensor) -> Tensor:
    scale, zero = draft.numbers([0.25], x.data_type, (1, 1, 1, 1)), draft.numbers([9], DataType.UINT8, (1, 1, 1, 1))
    return f.element_wise_quantize_linear(x, scale.broadcast_to(x.sizes), zero.broadcast_to(x.sizes))


def _dequantize(draft: Draft, x: Tensor) -> Tensor:
    scale, zero = draft.numbers([0.25], DataType.FLOAT32, (1, 1, 1, 1)), draft.numbers([9], x.data_type, (1, 1, 1, 1))
    return f.element_wise_dequantize_linear(x, scale.broadcast_to(x.sizes), zero.broadcast_to(x.sizes))


def _read_slice(draft: Draft, x: Tensor) -> Tensor:
    *lead, width = x.sizes
    window = (*lead, width - 1)
    return f.slice1(x, input_window_offsets=(0, 0, 0, 1), input_window_sizes=window, input_window_strides=(1, 1, 1, 2))


def _turned(x: Tensor) -> Tensor:
    """Return the last two dimensions exchanged, by strides."""
    strides = x.desc.element_strides
    sizes = (*x.sizes[:2], x.sizes[3], x.sizes[2])
    return x.reinterpret(sizes, (*strides[:2], strides[3], strides[2]))


def _read_padding(draft: Draft, x: Tensor) -> Tensor:
    return f.padding(x, padding_value=1, start_padding=(0, 0, 1, 0), end_padding=(0, 0, 0, 2))


def _read_gather(draft: Draft, x: Tensor) -> Tensor:
    indices = draft.input((1, 1, 1, 3), DataType.UINT32, high=x.sizes[2] - 1)
    return f.gather(x, indices, axis=2, index_dimensions=1)


def _read_product(draft: Draft, x: Tensor) -> Tensor:
    *batch, _, inner = x.sizes
    return f.gemm(x, draft.input((*batch, inner, 3)))


def _product_of_transpose(draft: Draft, x: Tensor) -> Tensor:
    *batch, rows, _ = x.sizes
    return f.gemm(draft.input((*batch, 3, rows)), _turned(x), trans_b=MatrixTransform.TRANSPOSE)


def _read_running_sum(draft: Draft, x: Tensor) -> Tensor:
    return f.cumulative_summation(x, axis=3, axis_direction=AxisDirection.DECREASING)


def _upsampling(draft: Draft, x: Tensor) -> Tensor:
    return f.upsample_2d(x, scale_size=Size2D(2, 2), interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR)


def _reshape(draft: Draft, x: Tensor) -> Tensor:
    batch, channels, height, width = x.sizes
    strides = x.desc.strides
    flat = x if strides else x.reinterpret((1, batch * channels, 1, height * width))
    return f.element_wise_negate(flat)


def _bits(draft: Draft, x: Tensor) -> Tensor:
    """Return the bits as unsigned integers as wide as the elements, since bits after the last one are unspecified."""
    unsigned = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64)
    kind = next(kind for kind in unsigned if kind.bits == x.data_type.bits)
    return f.element_wise_bit_not(x.reinterpret((math.prod(x.sizes),), dtype=kind))


CONSUMERS: Mapping[str, tuple[Consumer, Types]] = {
    "relu": (lambda draft, x: f.activation_relu(x), (*SIGNED, DataType.INT16)),
    "sigmoid": (lambda draft, x: f.activation_sigmoid(x), FLOATS),
    "scale_bias": (lambda draft, x: f.element_wise_identity(x, scale_bias=ScaleBias(-0.5, 0.25)), FLOATS),
    "clip": (lambda draft, x: f.element_wise_clip(x, min=-2.0, max=1.5), NUMBERS),
    "residual": (lambda draft, x: f.element_wise_add(draft.input(), x), NUMBERS),
    "channel_bias": (_channel_bias, NUMBERS),
    "square": (lambda draft, x: f.element_wise_multiply(x, x), NUMBERS),
    "shifted_pair": (_shifted_pair, NUMBERS),
    "cast": (_read_cast, EVERY),
    "quantize": (_quantize, FLOATS),
    "dequantize": (_dequantize, (*BYTES, DataType.INT16, DataType.UINT16, DataType.INT32, DataType.UINT32)),
    "join": (lambda draft, x: f.join([draft.input((*x.sizes[:3], 2)), x, x], axis=3), EVERY),
    "join_of_channels": (lambda draft, x: f.join([x, draft.input((x.sizes[0], 1, *x.sizes[2:]))], axis=1), EVERY),
    "slice": (_read_slice, EVERY),
    "transpose": (lambda draft, x: f.element_wise_identity(_turned(x)), EVERY),
    "padding": (_read_padding, EVERY),
    "tile": (lambda draft, x: f.tile(x, repeats=(1, 1, 2, 1)), NUMBERS),
    "gather": (_read_gather, EVERY),
    "product": (_read_product, FLOATS),
    "product_of_transpose": (_product_of_transpose, FLOATS),
    "convolution": (lambda draft, x: f.convolution(x, draft.input((2, x.sizes[1], 1, 2))), FLOATS),
    "sum": (lambda draft, x: f.reduce(x, function=ReduceFunction.SUM, axes=(2, 3)), SUMMED),
    "maximum": (lambda draft, x: f.reduce(x, function=ReduceFunction.MAX, axes=(1,)), NUMBERS),
    "running_sum": (_read_running_sum, SUMMED),
    "softmax": (lambda draft, x: f.activation_softmax1(f.element_wise_clip(x, min=-4.0, max=4.0), axes=(3,)), FLOATS),
    "normalization": (lambda draft, x: f.mean_variance_normalization2(x, axes=(3,), epsilon=0.125), FLOATS),
    "batch_normalization": (lambda draft, x: draft.normalized(x), FLOATS),
    "max_pooling": (lambda draft, x: f.max_pooling(x, window_size=(2, 2), strides=(2, 1)), NUMBERS),
    "upsampling": (_upsampling, FLOATS),
    "reshape": (_reshape, (*SIGNED, DataType.INT16, DataType.INT64)),
    "bits": (_bits, EVERY),
}
"""Consumers of a tensor, by name, with their types."""
