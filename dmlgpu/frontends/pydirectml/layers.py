"""The layers of networks: convolutions, products, recurrences, normalisations, pooling, up-sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from dmlgpu.catalog import descs
from dmlgpu.catalog import enums as directml
from dmlgpu.catalog.operator_desc import Size2D as Size
from dmlgpu.frontends.pydirectml.calls import INT32, REQUIRED, surface
from dmlgpu.frontends.pydirectml.enums import (
    ConvolutionDirection,
    ConvolutionMode,
    InterpolationMode,
    MatrixTransform,
    OutputOptions,
    RecurrentNetworkDirection,
)
from dmlgpu.frontends.pydirectml.errors import InvalidCall
from dmlgpu.frontends.pydirectml.expression import (
    NO_ACTIVATION,
    Expression,
    FusedActivation,
    GRUOutputs,
    MaxPoolingOutputs,
    Size2D,
    activation_desc,
    unwrap,
    unwrap_optional,
    wrap,
)
from dmlgpu.tensors import directml as functions
from dmlgpu.tensors.execution import call_op

MOST_ACTIVATIONS = 4
"""Most activations that ``gru`` takes."""


# ---- convolutions, products, recurrences -----------------------------------------------------------------------------


@surface
def convolution(
    input: Expression,
    filter: Expression,
    bias: Expression | None = None,
    mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
    strides: Sequence[int] = [],
    dilations: Sequence[int] = [],
    start_padding: Sequence[int] = [],
    end_padding: Sequence[int] = [],
    output_padding: Sequence[int] = [],
    group_count: int = 1,
    fused_activation: FusedActivation = NO_ACTIVATION,
    output_sizes: Sequence[int] = [],
) -> Expression:
    """Convolve a tensor; empty lists mean steps of 1, no padding, and sizes that follow from the others.

    Backward, sizes that are larger by less than a step are taken, too.
    """
    nodes = unwrap(input), unwrap(filter)
    values = {
        "input_tensor": nodes[0],
        "filter_tensor": nodes[1],
        "bias_tensor": unwrap_optional(bias),
        "mode": directml.ConvolutionMode(mode),
        "direction": directml.ConvolutionDirection(direction),
        "strides": strides or None,
        "dilations": dilations or None,
        "start_padding": start_padding or None,
        "end_padding": end_padding or None,
        "output_padding": output_padding or None,
        "group_count": group_count,
        "fused_activation": activation_desc(fused_activation),
    }
    return wrap(call_op(descs.Convolution, values, sizes={"output_tensor": output_sizes or None})[0])


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
            fused_activation=activation_desc(fused_activation),
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
        described = activation_desc(one)
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
            fused_activation=activation_desc(fused_activation),
        )
    )


@surface
def mean_variance_normalization(
    input: Expression,
    scale: Expression | None = None,
    bias: Expression | None = None,
    axes: Sequence[int] = [],
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
            fused_activation=activation_desc(fused_activation),
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
    strides: Sequence[int] = [],
    start_padding: Sequence[int] = [],
    end_padding: Sequence[int] = [],
    dilations: Sequence[int] = [],
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
