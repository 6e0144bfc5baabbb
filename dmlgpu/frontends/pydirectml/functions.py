"""The functions of PyDirectML: each adds an operator to the graph of its operands.

Most only declare their parameters, and call a function of ``ops.directml``.
"""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Annotated, Any, TypeVar

from dmlgpu.catalog import descs, enums
from dmlgpu.catalog.operator_desc import Size2D as Size
from dmlgpu.frontends.pydirectml.calls import INT32, REQUIRED, InvalidCall, surface
from dmlgpu.frontends.pydirectml.device import GraphBuilder
from dmlgpu.frontends.pydirectml.enums import (
    ConvolutionDirection,
    ConvolutionMode,
    InterpolationMode,
    MatrixTransform,
    OutputOptions,
    PaddingMode,
    RecurrentNetworkDirection,
    TensorDataType,
)
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
from dmlgpu.frontends.pydirectml.tensors import TensorDesc
from dmlgpu.tensors import directml
from dmlgpu.tensors.execution import call_op

Declared = TypeVar("Declared", bound=Callable[..., Any])

MAX_ACTIVATIONS = 4
"""Maximum number of activations of ``gru``."""


def operator(name: str, **names: str) -> Callable[[Declared], Declared]:
    """Turn a declaration into a function that calls one of ``ops.directml``.

    Args:
        name: Name of that function.
        names: Its parameter names by those of the declaration, if different.
    """

    def decorate(declaration: Declared) -> Declared:
        parameters = [names.get(parameter, parameter) for parameter in inspect.signature(declaration).parameters]

        @functools.wraps(declaration)
        def call(*values: Any) -> Expression:
            arguments = dict(zip(parameters, map(_converted, values), strict=True))
            return wrap(getattr(directml, name)(**arguments))

        return surface(call)  # type: ignore[return-value]

    return decorate


def _converted(value: Any) -> Any:
    """Convert an argument for functions of ``ops.directml``."""
    if isinstance(value, Expression):
        return unwrap(value)
    if isinstance(value, FusedActivation):
        return activation_desc(value)
    if isinstance(value, Size2D):
        return Size(value.width, value.height)
    return getattr(enums, type(value).__name__)(value) if isinstance(value, IntEnum) else value


@surface
def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """Add an input to a graph.

    Args:
        scope: The graph.
        input_index: Its index in the list of bindings of ``Device.compute``.
        tensor_desc: Its data type, sizes and strides.
    """
    return scope._input(input_index, tensor_desc._desc)


# ---- element-wise ----------------------------------------------------------------------------------------------------


@operator("element_wise_add1")
def add(a: Expression, b: Expression, fused_activation: FusedActivation = NO_ACTIVATION) -> Expression:
    """Add two tensors (ELEMENT_WISE_ADD1: floats)."""


@operator("element_wise_subtract")
def subtract(a: Expression, b: Expression) -> Expression:
    """Subtract a tensor from another."""


@operator("element_wise_multiply")
def multiply(a: Expression, b: Expression) -> Expression:
    """Multiply two tensors, element by element."""


@operator("element_wise_divide")
def divide(a: Expression, b: Expression) -> Expression:
    """Divide a tensor by another, element by element."""


@operator("activation_relu")
def activation_relu(input: Expression) -> Expression:
    """max(0, x)."""


@operator("activation_sigmoid")
def activation_sigmoid(input: Expression) -> Expression:
    """1 / (1 + exp(-x))."""


@operator("activation_identity")
def activation_identity(input: Expression) -> Expression:
    """Copy a tensor."""


@operator("activation_tanh")
def activation_tanh(input: Expression) -> Expression:
    """Hyperbolic tangent."""


@operator("activation_linear")
def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    """alpha * x + beta."""


@operator("activation_softmax")
def activation_soft_max(input: Expression) -> Expression:
    """exp(x) divided by the sum over the last dimension (ACTIVATION_SOFTMAX)."""


@operator("value_scale_2d")
def value_scale_2d(input: Expression, scale: float, bias: Sequence[float]) -> Expression:
    """scale * x + bias[channel]."""


# ---- movement of data ------------------------------------------------------------------------------------------------


@operator("padding")
def padding(
    input: Expression,
    padding_mode: PaddingMode,
    padding_value: float,
    start_padding: Sequence[int],
    end_padding: Sequence[int],
) -> Expression:
    """Put a border around a tensor."""


@operator("slice1")
def slice(
    input: Expression,
    input_window_offsets: Sequence[int],
    input_window_sizes: Sequence[int],
    input_window_strides: Sequence[Annotated[int, INT32]],
) -> Expression:
    """Take a strided slice of a tensor; negative strides run from the end of the window."""


@surface
def join(input: Sequence[Expression], axis: int) -> Expression:
    """Put tensors one after another along an axis."""
    if not input:
        raise InvalidCall("join: input must be at least one Expression, got none")
    return wrap(directml.join([unwrap(part) for part in input], axis=axis))


@operator("gather")
def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """Gather elements along an axis."""


@surface
def reinterpret(
    input: Expression, new_type: TensorDataType, new_size: Sequence[int], new_strides: Sequence[int] | None
) -> Expression:
    """Reinterpret a tensor's bytes with another type, sizes and strides."""
    return wrap(unwrap(input).reinterpret(new_size, new_strides, enums.DataType(new_type)))


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

    Backward convolutions also accept output sizes that are larger by less than a step.
    """
    nodes = unwrap(input), unwrap(filter)
    values = {
        "input_tensor": nodes[0],
        "filter_tensor": nodes[1],
        "bias_tensor": unwrap_optional(bias),
        "mode": enums.ConvolutionMode(mode),
        "direction": enums.ConvolutionDirection(direction),
        "strides": strides or None,
        "dilations": dilations or None,
        "start_padding": start_padding or None,
        "end_padding": end_padding or None,
        "output_padding": output_padding or None,
        "group_count": group_count,
        "fused_activation": activation_desc(fused_activation),
    }
    return wrap(call_op(descs.Convolution, values, sizes={"output_tensor": output_sizes or None})[0])


@operator("gemm")
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
    if len(activation_descs) > MAX_ACTIVATIONS:
        raise InvalidCall(f"gru: activation_descs must be at most {MAX_ACTIVATIONS}, got {len(activation_descs)}")
    activations = []
    for index, activation in enumerate(activation_descs):
        described = activation_desc(activation)
        if described is None:
            raise InvalidCall(f"gru: activation_descs[{index}] must be an activation, got OperatorType.INVALID")
        activations.append(described)
    outputs = directml.gru(
        unwrap(input),
        unwrap(weight),
        unwrap(recurrence),
        unwrap_optional(bias),
        unwrap_optional(hidden_init),
        unwrap_optional(sequence_lengths),
        activation_descs=activations,
        linear_before_reset=bool(linear_before_reset),
        direction=enums.RecurrentNetworkDirection(direction),
        output_sequence=output_options is not OutputOptions.Single,
        output_single=output_options is not OutputOptions.Sequence,
    )
    return GRUOutputs(wrap(outputs.output_sequence), wrap(outputs.output_single))


# ---- normalizations --------------------------------------------------------------------------------------------------


@operator("batch_normalization")
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
        directml.mean_variance_normalization1(
            unwrap(input),
            unwrap_optional(scale),
            unwrap_optional(bias),
            axes=axes,
            normalize_variance=normalize_variance,
            epsilon=epsilon,
            fused_activation=activation_desc(fused_activation),
        )
    )


@operator("local_response_normalization")
def local_response_normalization(
    input: Expression, cross_channel: bool, local_size: int, alpha: float, beta: float, bias: float
) -> Expression:
    """x / (bias + alpha * mean of the squares of the region) ** beta."""


# ---- pooling and up-sampling -----------------------------------------------------------------------------------------


@operator("average_pooling", window_sizes="window_size")
def average_pooling(
    input: Expression,
    strides: Sequence[int],
    window_sizes: Sequence[int],
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    include_padding: bool,
) -> Expression:
    """Average each window."""


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
    outputs = directml.max_pooling2(
        unwrap(input),
        window_size=window_sizes,
        strides=strides or None,
        start_padding=start_padding or None,
        end_padding=end_padding or None,
        dilations=dilations or None,
        output_indices=output_indices,
    )
    return MaxPoolingOutputs(wrap(outputs.output), wrap(outputs.output_indices))


@operator("upsample_2d")
def up_sample_2d(input: Expression, scale_size: Size2D, interpolation_mode: InterpolationMode) -> Expression:
    """Enlarge height and width by integer factors."""
