"""The functions of PyDirectML: each adds an operator to the graph of its operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from dmlgpu import descs
from dmlgpu import enums as directml
from dmlgpu.builder import functions
from dmlgpu.builder.calls import single
from dmlgpu.errors import InvalidDescription
from dmlgpu.frontends.pydirectml.calls import INT32, REQUIRED, surface
from dmlgpu.frontends.pydirectml.device import GraphBuilder
from dmlgpu.frontends.pydirectml.enums import (
    ConvolutionDirection,
    ConvolutionMode,
    InterpolationMode,
    MatrixTransform,
    OperatorType,
    OutputOptions,
    PaddingMode,
    RecurrentNetworkDirection,
    TensorDataType,
)
from dmlgpu.frontends.pydirectml.errors import InvalidCall
from dmlgpu.frontends.pydirectml.expression import (
    NO_ACTIVATION,
    Expression,
    FusedActivation,
    GRUOutputs,
    MaxPoolingOutputs,
    Size2D,
    unwrap,
    unwrap_optional,
    wrap,
)
from dmlgpu.frontends.pydirectml.tensors import TensorDesc
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.operator_desc import Size2D as Size

MOST_ACTIVATIONS = 4
"""Most activations that ``gru`` takes."""


@surface
def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """Add an input to a graph.

    Args:
        scope: the graph.
        input_index: its place in the list of bindings that ``Device.compute`` takes.
        tensor_desc: how it lies in memory.
    """
    return scope._input(input_index, tensor_desc._desc)


# ---- element-wise ----------------------------------------------------------------------------------------------------


@surface
def add(a: Expression, b: Expression, fused_activation: FusedActivation = NO_ACTIVATION) -> Expression:
    """Add two tensors (ELEMENT_WISE_ADD1: floats)."""
    return wrap(functions.element_wise_add1(unwrap(a), unwrap(b), fused_activation=_activation(fused_activation)))


@surface
def subtract(a: Expression, b: Expression) -> Expression:
    """Subtract a tensor from another."""
    return wrap(functions.element_wise_subtract(unwrap(a), unwrap(b)))


@surface
def multiply(a: Expression, b: Expression) -> Expression:
    """Multiply two tensors, element by element."""
    return wrap(functions.element_wise_multiply(unwrap(a), unwrap(b)))


@surface
def divide(a: Expression, b: Expression) -> Expression:
    """Divide a tensor by another, element by element."""
    return wrap(functions.element_wise_divide(unwrap(a), unwrap(b)))


@surface
def activation_relu(input: Expression) -> Expression:
    """max(0, x)."""
    return wrap(functions.activation_relu(unwrap(input)))


@surface
def activation_sigmoid(input: Expression) -> Expression:
    """1 / (1 + exp(-x))."""
    return wrap(functions.activation_sigmoid(unwrap(input)))


@surface
def activation_identity(input: Expression) -> Expression:
    """Copy a tensor."""
    return wrap(functions.activation_identity(unwrap(input)))


@surface
def activation_tanh(input: Expression) -> Expression:
    """Hyperbolic tangent."""
    return wrap(functions.activation_tanh(unwrap(input)))


@surface
def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    """alpha * x + beta."""
    return wrap(functions.activation_linear(unwrap(input), alpha=alpha, beta=beta))


@surface
def activation_soft_max(input: Expression) -> Expression:
    """exp(x) divided by the sum over the last dimension (ACTIVATION_SOFTMAX)."""
    return wrap(functions.activation_softmax(unwrap(input)))


@surface
def value_scale_2d(input: Expression, scale: float, bias: Sequence[float]) -> Expression:
    """scale * x + bias[channel]."""
    return wrap(functions.value_scale_2d(unwrap(input), scale=scale, bias=bias))


# ---- convolutions, products, recurrences -----------------------------------------------------------------------------


@surface
def convolution(
    input: Expression,
    filter: Expression,
    bias: Expression | None = None,
    mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
    strides: Sequence[int] = [],  # noqa: B006 - the defaults are PyDirectML's, and nothing changes them
    dilations: Sequence[int] = [],  # noqa: B006
    start_padding: Sequence[int] = [],  # noqa: B006
    end_padding: Sequence[int] = [],  # noqa: B006
    output_padding: Sequence[int] = [],  # noqa: B006
    group_count: int = 1,
    fused_activation: FusedActivation = NO_ACTIVATION,
    output_sizes: Sequence[int] = [],  # noqa: B006
) -> Expression:
    """Convolve a tensor; empty lists mean steps of 1, no padding, and sizes that follow from the others."""
    values = {
        "input_tensor": unwrap(input),
        "filter_tensor": unwrap(filter),
        "bias_tensor": unwrap_optional(bias),
        "mode": directml.ConvolutionMode(mode),
        "direction": directml.ConvolutionDirection(direction),
        "strides": strides or None,
        "dilations": dilations or None,
        "start_padding": start_padding or None,
        "end_padding": end_padding or None,
        "output_padding": output_padding or None,
        "group_count": group_count,
        "fused_activation": _activation(fused_activation),
    }
    return wrap(single(descs.Convolution, None, values, sizes={"output_tensor": output_sizes or None}))


@surface
def gemm(
    a: Expression,
    b: Expression,
    c: Expression | None = None,
    trans_a: MatrixTransform = MatrixTransform.NONE,
    trans_b: MatrixTransform = MatrixTransform.NONE,
    alpha: float = 1.0,
    beta: float = 1.0,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """alpha * a @ b + beta * c."""
    return wrap(
        functions.gemm(
            unwrap(a),
            unwrap(b),
            unwrap_optional(c),
            trans_a=directml.MatrixTransform(trans_a),
            trans_b=directml.MatrixTransform(trans_b),
            alpha=alpha,
            beta=beta,
            fused_activation=_activation(fused_activation),
        )
    )


@surface
def gru(
    input: Expression,
    weight: Expression,
    recurrence: Expression,
    bias: Expression | None = None,
    hidden_init: Expression | None = None,
    sequence_lengths: Expression | None = None,
    activation_descs: Sequence[FusedActivation] = REQUIRED,
    direction: RecurrentNetworkDirection = REQUIRED,
    linear_before_reset: Annotated[int, INT32] = 1,
    output_options: OutputOptions = REQUIRED,
) -> GRUOutputs:
    """Run a gated recurrent unit over a sequence; at most four activations, two for each direction."""
    if len(activation_descs) > MOST_ACTIVATIONS:
        raise InvalidCall(f"gru: activation_descs must be at most {MOST_ACTIVATIONS}, got {len(activation_descs)}")
    activations = []
    for number, one in enumerate(activation_descs):
        described = _activation(one)
        if described is None:
            raise InvalidCall(f"gru: activation_descs[{number}] must be an activation, got OperatorType.INVALID")
        activations.append(described)
    outputs = functions.gru(
        unwrap(input),
        unwrap(weight),
        unwrap(recurrence),
        unwrap_optional(bias),
        unwrap_optional(hidden_init),
        unwrap_optional(sequence_lengths),
        activation_descs=activations,
        linear_before_reset=bool(linear_before_reset),
        direction=directml.RecurrentNetworkDirection(direction),
        output_sequence=output_options is not OutputOptions.Single,
        output_single=output_options is not OutputOptions.Sequence,
    )
    return GRUOutputs(wrap(outputs.output_sequence), wrap(outputs.output_single))


# ---- normalisations --------------------------------------------------------------------------------------------------


@surface
def batch_normalization(
    input: Expression,
    mean: Expression,
    variance: Expression,
    scale: Expression,
    bias: Expression,
    spatial: bool,
    epsilon: float,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias."""
    return wrap(
        functions.batch_normalization(
            unwrap(input),
            unwrap(mean),
            unwrap(variance),
            unwrap(scale),
            unwrap(bias),
            spatial=spatial,
            epsilon=epsilon,
            fused_activation=_activation(fused_activation),
        )
    )


@surface
def mean_variance_normalization(
    input: Expression,
    scale: Expression | None = None,
    bias: Expression | None = None,
    axes: Sequence[int] = [],  # noqa: B006
    normalize_variance: bool = REQUIRED,
    epsilon: float = REQUIRED,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias, with mean and variance over the axes."""
    return wrap(
        functions.mean_variance_normalization1(
            unwrap(input),
            unwrap_optional(scale),
            unwrap_optional(bias),
            axes=axes,
            normalize_variance=normalize_variance,
            epsilon=epsilon,
            fused_activation=_activation(fused_activation),
        )
    )


@surface
def local_response_normalization(
    input: Expression, cross_channel: bool, local_size: int, alpha: float, beta: float, bias: float
) -> Expression:
    """x / (bias + alpha * mean of the neighbours' squares) ** beta."""
    return wrap(
        functions.local_response_normalization(
            unwrap(input), cross_channel=cross_channel, local_size=local_size, alpha=alpha, beta=beta, bias=bias
        )
    )


# ---- pooling and up-sampling -----------------------------------------------------------------------------------------


@surface
def average_pooling(
    input: Expression,
    strides: Sequence[int],
    window_sizes: Sequence[int],
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    include_padding: bool,
) -> Expression:
    """Average each window."""
    return wrap(
        functions.average_pooling(
            unwrap(input),
            window_size=window_sizes,
            strides=strides,
            start_padding=start_padding,
            end_padding=end_padding,
            include_padding=include_padding,
        )
    )


@surface
def max_pooling(
    input: Expression,
    window_sizes: Sequence[int],
    strides: Sequence[int] = [],  # noqa: B006
    start_padding: Sequence[int] = [],  # noqa: B006
    end_padding: Sequence[int] = [],  # noqa: B006
    dilations: Sequence[int] = [],  # noqa: B006
    output_indices: bool = False,
) -> MaxPoolingOutputs:
    """Take the maximum of each window; empty lists mean steps of 1 and no padding."""
    outputs = functions.max_pooling2(
        unwrap(input),
        window_size=window_sizes,
        strides=strides or None,
        start_padding=start_padding or None,
        end_padding=end_padding or None,
        dilations=dilations or None,
        output_indices=output_indices,
    )
    return MaxPoolingOutputs(wrap(outputs.output), wrap(outputs.output_indices))


@surface
def up_sample_2d(input: Expression, scale_size: Size2D, interpolation_mode: InterpolationMode) -> Expression:
    """Make height and width larger by whole factors."""
    return wrap(
        functions.upsample_2d(
            unwrap(input),
            scale_size=Size(scale_size.width, scale_size.height),
            interpolation_mode=directml.InterpolationMode(interpolation_mode),
        )
    )


# ---- movement of data ------------------------------------------------------------------------------------------------


@surface
def padding(
    input: Expression,
    padding_mode: PaddingMode,
    padding_value: float,
    start_padding: Sequence[int],
    end_padding: Sequence[int],
) -> Expression:
    """Put a border around a tensor."""
    return wrap(
        functions.padding(
            unwrap(input),
            padding_mode=directml.PaddingMode(padding_mode),
            padding_value=padding_value,
            start_padding=start_padding,
            end_padding=end_padding,
        )
    )


@surface
def slice(
    input: Expression,
    input_window_offsets: Sequence[int],
    input_window_sizes: Sequence[int],
    input_window_strides: Sequence[Annotated[int, INT32]],
) -> Expression:
    """Take a window of a tensor, every so many elements; negative strides walk from the window's end."""
    return wrap(
        functions.slice1(
            unwrap(input),
            input_window_offsets=input_window_offsets,
            input_window_sizes=input_window_sizes,
            input_window_strides=input_window_strides,
        )
    )


@surface
def join(input: Sequence[Expression], axis: int) -> Expression:
    """Put tensors one after another along an axis."""
    if not input:
        raise InvalidCall("join: input must be at least one Expression, got none")
    return wrap(functions.join([unwrap(one) for one in input], axis=axis))


@surface
def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """Look elements up along an axis."""
    return wrap(functions.gather(unwrap(input), unwrap(indices), axis=axis, index_dimensions=index_dimensions))


@surface
def reinterpret(
    input: Expression, new_type: TensorDataType, new_size: Sequence[int], new_strides: Sequence[int] | None
) -> Expression:
    """See a tensor's bytes with another type, other sizes and strides."""
    return wrap(unwrap(input).reinterpret(new_size, new_strides, directml.DataType(new_type)))


# ---- activations that are fused --------------------------------------------------------------------------------------


def _activation(fused: FusedActivation) -> OperatorDesc | None:
    """Return the description of an activation that is fused; None for none.

    Raises:
        InvalidCall: no activation.
    """
    if fused._activation is OperatorType.INVALID:
        return None
    kind = descs.by_name(fused._activation.name)
    names = [field.name for field in dataclasses.fields(kind)]
    numbers: dict[str, Any] = dict(
        zip((name for name in names if not name.endswith("_tensor")), fused._parameters, strict=False)
    )
    try:
        return kind(**numbers)
    except InvalidDescription:  # it has tensors beside its input and output
        raise InvalidCall(
            f"FusedActivation: activation must be one that can be fused, got {fused._activation}"
        ) from None
