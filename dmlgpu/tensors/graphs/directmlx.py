"""DirectMLX's functions under its names, in snake_case: the newest operator of each line, without what is usual.

    from dmlgpu.tensors.graphs import directmlx as dml

    y = dml.max_pooling(dml.activation_relu(dml.convolution(x, filter, bias)), (2, 2), strides=(2, 2)).output

Where a function is the operator's own, attributes are keywords. Activations are fused by description:
``convolution(..., fused_activation=descs.ActivationRelu())``.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlgpu.catalog.enums import (
    AxisDirection,
    DataType,
    DepthSpaceOrder,
    InterpolationMode,
    IsInfinityMode,
    PaddingMode,
    ReduceFunction,
    RoundingMode,
)
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression, Number
from dmlgpu.tensors.graphs.functions import (
    MaxPooling2Outputs,
    RandomGeneratorOutputs,
    TopK1Outputs,
)
from dmlgpu.tensors.graphs.graph import Graph

# ---- the same as the operator's function -----------------------------------------------------------------------------

identity = functions.element_wise_identity
abs = functions.element_wise_abs
acos = functions.element_wise_acos
acosh = functions.element_wise_acosh
asin = functions.element_wise_asin
asinh = functions.element_wise_asinh
atan = functions.element_wise_atan
atanh = functions.element_wise_atanh
atan_yx = functions.element_wise_atan_yx
bit_and = functions.element_wise_bit_and
bit_count = functions.element_wise_bit_count
bit_not = functions.element_wise_bit_not
bit_or = functions.element_wise_bit_or
bit_shift_left = functions.element_wise_bit_shift_left
bit_shift_right = functions.element_wise_bit_shift_right
bit_xor = functions.element_wise_bit_xor
ceil = functions.element_wise_ceil
clip_grad = functions.element_wise_clip_grad1
cos = functions.element_wise_cos
cosh = functions.element_wise_cosh
difference_square = functions.element_wise_difference_square
divide = functions.element_wise_divide
equals = functions.element_wise_logical_equals
erf = functions.element_wise_erf
exp = functions.element_wise_exp
floor = functions.element_wise_floor
greater_than = functions.element_wise_logical_greater_than
greater_than_or_equal = functions.element_wise_logical_greater_than_or_equal
if_ = functions.element_wise_if
is_nan = functions.element_wise_is_nan
less_than = functions.element_wise_logical_less_than
less_than_or_equal = functions.element_wise_logical_less_than_or_equal
log = functions.element_wise_log
logical_and = functions.element_wise_logical_and
logical_not = functions.element_wise_logical_not
logical_or = functions.element_wise_logical_or
logical_xor = functions.element_wise_logical_xor
max = functions.element_wise_max
mean = functions.element_wise_mean
min = functions.element_wise_min
modulus_floor = functions.element_wise_modulus_floor
modulus_truncate = functions.element_wise_modulus_truncate
multiply = functions.element_wise_multiply
negate = functions.element_wise_negate
quantize_linear = functions.element_wise_quantize_linear
dequantize_linear = functions.element_wise_dequantize_linear
recip = functions.element_wise_recip
sign = functions.element_wise_sign
sin = functions.element_wise_sin
sinh = functions.element_wise_sinh
sqrt = functions.element_wise_sqrt
subtract = functions.element_wise_subtract
tan = functions.element_wise_tan
tanh = functions.element_wise_tanh

activation_celu = functions.activation_celu
activation_elu = functions.activation_elu
activation_gelu = functions.activation_gelu
activation_hard_sigmoid = functions.activation_hard_sigmoid
activation_identity = functions.activation_identity
activation_leaky_relu = functions.activation_leaky_relu
activation_parameterized_relu = functions.activation_parameterized_relu
activation_parametric_softplus = functions.activation_parametric_softplus
activation_relu = functions.activation_relu
activation_scaled_elu = functions.activation_scaled_elu
activation_scaled_tanh = functions.activation_scaled_tanh
activation_shrink = functions.activation_shrink
activation_sigmoid = functions.activation_sigmoid
activation_softplus = functions.activation_softplus
activation_softsign = functions.activation_softsign
activation_tanh = functions.activation_tanh
activation_thresholded_relu = functions.activation_thresholded_relu

batch_normalization = functions.batch_normalization
batch_normalization_grad = functions.batch_normalization_grad
batch_normalization_training = functions.batch_normalization_training
batch_normalization_training_grad = functions.batch_normalization_training_grad
convolution = functions.convolution
convolution_integer = functions.convolution_integer
cumulative_product = functions.cumulative_product
cumulative_summation = functions.cumulative_summation
dequantize = functions.dequantize
gather = functions.gather
gather_elements = functions.gather_elements
gather_nd = functions.gather_nd1
gemm = functions.gemm
gru = functions.gru
local_response_normalization = functions.local_response_normalization
mean_variance_normalization = functions.mean_variance_normalization2
non_zero_coordinates = functions.nonzero_coordinates
quantized_linear_convolution = functions.quantized_linear_convolution
resample_grad = functions.resample_grad1
reverse_subsequences = functions.reverse_subsequences
roi_align = functions.roi_align1
roi_align_grad = functions.roi_align_grad
scatter_elements = functions.scatter_elements
scatter_nd = functions.scatter_nd
upsample_2d = functions.upsample_2d
value_scale_2d = functions.value_scale_2d


# ---- element-wise ----------------------------------------------------------------------------------------------------


def add(a: Expression, b: Expression, fused_activation: OperatorDesc | None = None) -> Expression:
    """ELEMENT_WISE_ADD, or with an activation ELEMENT_WISE_ADD1."""
    if fused_activation is None:
        return functions.element_wise_add(a, b)
    return functions.element_wise_add1(a, b, fused_activation=fused_activation)


def clip(input: Expression, min: Number, max: Number, scale_bias: ScaleBias | None = None) -> Expression:
    """ELEMENT_WISE_CLIP1: each element, at least ``min`` and at most ``max``."""
    return functions.element_wise_clip1(input, min=min, max=max, scale_bias=scale_bias)


def is_infinity(input: Expression, mode: IsInfinityMode = IsInfinityMode.EITHER) -> Expression:
    """ELEMENT_WISE_IS_INFINITY: 1 where an element is infinite, of type UINT8."""
    return functions.element_wise_is_infinity(input, infinity_mode=mode)


def pow(input: Expression, exponent: Expression | float, scale_bias: ScaleBias | None = None) -> Expression:
    """ELEMENT_WISE_POW, or with a number ELEMENT_WISE_CONSTANT_POW."""
    if isinstance(exponent, Expression):
        return functions.element_wise_pow(input, exponent, scale_bias=scale_bias)
    return functions.element_wise_constant_pow(input, exponent=exponent, scale_bias=scale_bias)


def round(input: Expression, mode: RoundingMode = RoundingMode.HALVES_TO_NEAREST_EVEN) -> Expression:
    """ELEMENT_WISE_ROUND: each element rounded to an integer."""
    return functions.element_wise_round(input, rounding_mode=mode)


def threshold(input: Expression, min: float, scale_bias: ScaleBias | None = None) -> Expression:
    """ELEMENT_WISE_THRESHOLD: each element, at least ``min``."""
    return functions.element_wise_threshold(input, min=min, scale_bias=scale_bias)


# ---- activations -----------------------------------------------------------------------------------------------------


def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    """ACTIVATION_LINEAR: alpha * x + beta."""
    return functions.activation_linear(input, alpha=alpha, beta=beta)


def activation_softmax(input: Expression, axes: Sequence[int] | None = None) -> Expression:
    """ACTIVATION_SOFTMAX1 over axes; without them ACTIVATION_SOFTMAX."""
    return functions.activation_softmax(input) if axes is None else functions.activation_softmax1(input, axes=axes)


def activation_log_softmax(input: Expression, axes: Sequence[int] | None = None) -> Expression:
    """ACTIVATION_LOG_SOFTMAX1 over axes; without them ACTIVATION_LOG_SOFTMAX."""
    if axes is None:
        return functions.activation_log_softmax(input)
    return functions.activation_log_softmax1(input, axes=axes)


def activation_hardmax(input: Expression, axes: Sequence[int] | None = None) -> Expression:
    """ACTIVATION_HARDMAX1 over axes; without them ACTIVATION_HARDMAX."""
    return functions.activation_hardmax(input) if axes is None else functions.activation_hardmax1(input, axes=axes)


# ---- reductions and data movement ------------------------------------------------------------------------------------


def reduce(
    input: Expression,
    function: ReduceFunction,
    axes: Sequence[int] | None = None,
    output_type: DataType | None = None,
) -> Expression:
    """REDUCE over axes, None for all; the type is the input's, UINT32 for ARGMIN and ARGMAX."""
    return functions.reduce(input, function=function, axes=axes, output_type=output_type)


def slice(
    input: Expression, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None = None
) -> Expression:
    """SLICE1: windows of the input, every ``stride``-th element; a negative stride walks from the window's end."""
    return functions.slice1(input, input_window_offsets=offsets, input_window_sizes=sizes, input_window_strides=strides)


def slice_grad(
    input_gradient: Expression,
    output_sizes: Sequence[int],
    offsets: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Expression:
    """SLICE_GRAD: the gradient where ``slice`` took its elements from a tensor of ``output_sizes``, 0 elsewhere."""
    return functions.slice_grad(
        input_gradient,
        input_window_offsets=offsets,
        input_window_sizes=sizes,
        input_window_strides=strides,
        output_sizes=output_sizes,
    )


def cast(input: Expression, data_type: DataType) -> Expression:
    """CAST to a type."""
    return functions.cast(input, output_type=data_type)


def split(input: Expression, axis: int, sizes: Sequence[int]) -> tuple[Expression, ...]:
    """SPLIT into pieces with these sizes along an axis."""
    before, after = input.sizes[:axis], input.sizes[axis + 1 :]
    return functions.split(input, axis=axis, output_sizes=[(*before, size, *after) for size in sizes])


def join(inputs: Sequence[Expression], axis: int) -> Expression:
    """JOIN along an axis."""
    return functions.join(inputs, axis=axis)


def padding(
    input: Expression, mode: PaddingMode, value: Number, start_padding: Sequence[int], end_padding: Sequence[int]
) -> Expression:
    """PADDING1 before and behind each dimension."""
    return functions.padding1(
        input, padding_mode=mode, padding_value=value, start_padding=start_padding, end_padding=end_padding
    )


def space_to_depth(
    input: Expression, block_size: int, order: DepthSpaceOrder = DepthSpaceOrder.DEPTH_COLUMN_ROW
) -> Expression:
    """SPACE_TO_DEPTH1: blocks of height and width become channels."""
    return functions.space_to_depth1(input, block_size=block_size, order=order)


def depth_to_space(
    input: Expression, block_size: int, order: DepthSpaceOrder = DepthSpaceOrder.DEPTH_COLUMN_ROW
) -> Expression:
    """DEPTH_TO_SPACE1: channels become blocks of height and width."""
    return functions.depth_to_space1(input, block_size=block_size, order=order)


def tile(input: Expression, repeats: Sequence[int]) -> Expression:
    """TILE: the input so often along each dimension."""
    return functions.tile(input, repeats=repeats)


def top_k(
    input: Expression, axis: int, k: int, axis_direction: AxisDirection = AxisDirection.DECREASING
) -> TopK1Outputs:
    """TOP_K1: the ``k`` largest elements along an axis, or the smallest ones, and where they stand (UINT32).

    DirectMLX puts the size ``k`` on the last dimension; here it is on the axis.
    """
    return functions.top_k1(input, axis=axis, k=k, axis_direction=axis_direction)


def one_hot(indices: Expression, values: Expression, output_length: int, axis: int) -> Expression:
    """ONE_HOT: along an axis of that length, ``values[1]`` where an index says and ``values[0]`` elsewhere."""
    sizes = (*indices.sizes[:axis], output_length, *indices.sizes[axis + 1 :])
    return functions.one_hot(indices, values, axis=axis, output_sizes=sizes)


def random_generator(
    input_state: Expression, sizes: Sequence[int], output_state: bool = True
) -> RandomGeneratorOutputs:
    """RANDOM_GENERATOR: UINT32 numbers, and the next state."""
    return functions.random_generator(input_state, output_sizes=sizes, output_state=output_state)


def fill_value_constant(graph: Graph, sizes: Sequence[int], data_type: DataType, value: Number) -> Expression:
    """FILL_VALUE_CONSTANT: one number everywhere."""
    return functions.fill_value_constant(graph, value_data_type=data_type, value=value, output_sizes=sizes)


def fill_value_sequence(
    graph: Graph, sizes: Sequence[int], data_type: DataType, start: Number, delta: Number
) -> Expression:
    """FILL_VALUE_SEQUENCE: start, start + delta and so on, in row-major order."""
    return functions.fill_value_sequence(
        graph, value_data_type=data_type, value_start=start, value_delta=delta, output_sizes=sizes
    )


def reinterpret(
    input: Expression, data_type: DataType, sizes: Sequence[int], strides: Sequence[int] | None = None
) -> Expression:
    """Return the same bytes with another type, sizes and strides; see ``Expression.reinterpret``."""
    return input.reinterpret(sizes, strides, data_type)


# ---- pooling and resampling ------------------------------------------------------------------------------------------


def average_pooling(
    input: Expression,
    window_size: Sequence[int],
    strides: Sequence[int] | None = None,
    start_padding: Sequence[int] | None = None,
    end_padding: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    include_padding: bool = False,
) -> Expression:
    """AVERAGE_POOLING1."""
    return functions.average_pooling1(
        input,
        window_size=window_size,
        strides=strides,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        include_padding=include_padding,
    )


def max_pooling(
    input: Expression,
    window_size: Sequence[int],
    strides: Sequence[int] | None = None,
    start_padding: Sequence[int] | None = None,
    end_padding: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    output_indices: bool = False,
) -> MaxPooling2Outputs:
    """MAX_POOLING2; its indices are UINT32, and None unless they are asked for."""
    return functions.max_pooling2(
        input,
        window_size=window_size,
        strides=strides,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        output_indices=output_indices,
    )


def resample(
    input: Expression,
    output_sizes: Sequence[int] | None,
    mode: InterpolationMode,
    rounding_direction: AxisDirection = AxisDirection.INCREASING,
    scales: Sequence[float] | None = None,
    input_pixel_offsets: Sequence[float] | None = None,
    output_pixel_offsets: Sequence[float] | None = None,
    antialiased: bool = False,
) -> Expression:
    """RESAMPLE3 to sizes, or by scales where these are given; pixels lie at their centres unless offsets say otherwise.

    NEAREST_NEIGHBOR takes the nearest element where no input offsets are given, of two equally near ones the first for
    INCREASING, else the second. (DirectMLX's offsets of 0.5 round up or down instead.)
    """
    if input_pixel_offsets is None and mode is InterpolationMode.NEAREST_NEIGHBOR:
        half = 1.0 if rounding_direction is AxisDirection.INCREASING else 0.0
        input_pixel_offsets = (half,) * len(input.sizes)
    return functions.resample3(
        input,
        interpolation_mode=mode,
        rounding_direction=rounding_direction,
        scales=scales,
        input_pixel_offsets=input_pixel_offsets,
        output_pixel_offsets=output_pixel_offsets,
        antialiased=antialiased,
        output_sizes=output_sizes,
    )
