"""The functions of PyDirectML: each adds an operator to the graph of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from dmlgpu.catalog import enums as directml
from dmlgpu.frontends.pydirectml.calls import INT32, surface
from dmlgpu.frontends.pydirectml.device import GraphBuilder
from dmlgpu.frontends.pydirectml.enums import (
    PaddingMode,
    TensorDataType,
)
from dmlgpu.frontends.pydirectml.errors import InvalidCall
from dmlgpu.frontends.pydirectml.expression import (
    NO_ACTIVATION,
    Expression,
    FusedActivation,
    activation_desc,
    unwrap,
    wrap,
)
from dmlgpu.frontends.pydirectml.tensors import TensorDesc
from dmlgpu.tensors import directml as functions


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
    return wrap(functions.element_wise_add1(unwrap(a), unwrap(b), fused_activation=activation_desc(fused_activation)))


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
