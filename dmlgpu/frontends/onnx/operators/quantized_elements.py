"""Operators of com.microsoft that read and write quantised elements: dequantised, computed in floats, quantised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.operators.quantization import (
    Quantization,
    block_sizes,
    dequantized,
    quantization,
    quantized,
)
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.frontends.onnx.windows import window_of, with_dimensions
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

MICROSOFT = "com.microsoft"


def real(node: Node, number: int) -> Expression:
    """Return the floats that an input with its scale and zero point stands for."""
    x = node.tensor(number)
    return dequantized(x, quantization(node, number + 1, number + 2, x.sizes))


def stored(node: Node, found: Expression, scale: int, shape: Sequence[int], like: int = 0) -> Value:
    """Return floats quantised by a scale and the zero point behind it, without one of the type of an input."""
    by = quantization(node, scale, scale + 1, found.sizes)
    wanted = node.data_type(like) if by.zero_point is None else by.zero_point.data_type
    return node.valued(quantized(found, by, wanted), shape)


@operator("QLinearAdd", domain=MICROSOFT)
def qlinear_add(node: Node) -> Value:
    """Add."""
    (a, b), shape = node.broadcast(node.value(0), node.value(3))
    one = (1,) * len(a.sizes)
    numbers = [None if not node.has(number) else reshaped(node.tensor(number), one) for number in (1, 4, 6, 2, 5, 7)]
    a_scale, b_scale, scale, *zeros = numbers
    if a_scale is None or b_scale is None or scale is None:
        raise node.refusal("scales must be given")
    wanted = node.data_type(7) if node.has(7) else node.data_type(0)
    found = functions.element_wise_quantized_linear_add(a, a_scale, b, b_scale, scale, *zeros, output_type=wanted)
    return node.valued(found, shape)


@operator("QLinearMul", domain=MICROSOFT)
def qlinear_multiply(node: Node) -> Value:
    """Multiply."""
    values = [node.valued(real(node, number), node.shape(number)) for number in (0, 3)]
    (a, b), shape = node.broadcast(*values)
    return stored(node, dml.multiply(a, b), 6, shape)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: Node) -> Value:
    """Take elements of one tensor or the other."""
    values = [node.value(0), *(node.valued(real(node, number), node.shape(number)) for number in (1, 4))]
    (condition, a, b), shape = node.broadcast(*values)
    return stored(node, dml.if_(condition, a, b), 7, shape, like=1)


_BY_ELEMENT: dict[str, Callable[[Node, Expression], Expression]] = {
    "QLinearSigmoid": lambda node, x: functions.activation_sigmoid(x),
    "QLinearLeakyRelu": lambda node, x: functions.activation_leaky_relu(x, alpha=node.number("alpha", 0.01)),
}


@operator(*_BY_ELEMENT, domain=MICROSOFT)
def qlinear_activation(node: Node) -> Value:
    """Apply an activation to each element."""
    return stored(node, _BY_ELEMENT[node.op_type](node, real(node, 0)), 3, node.shape(0))


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(node: Node) -> Value:
    """Normalise along an axis, or, as before operator set 13, over all dimensions from it on."""
    shape, x = node.shape(0), real(node, 0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    if node.integer("opset") < 13:
        rows = reshaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        found = reshaped(functions.activation_softmax1(rows, axes=(1,)), x.sizes)
    else:
        found = functions.activation_softmax1(x, axes=(axis,))
    return stored(node, found, 3, shape)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: Node) -> Value:
    """Join tensors along an axis: inputs are the output's scale and zero point, then each tensor with its own."""
    numbers = range(2, len(node), 3)
    axis = node.axis(node.integer("axis"), len(node.shape(2)))
    parts = [real(node, number) for number in numbers if not node.value(number).is_empty]
    if not parts:
        shapes = [node.shape(number) for number in numbers]
        total = sum(one[axis] for one in shapes)
        return node.known(np.zeros((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), node.data_type(2).numpy))
    found = parts[0] if len(parts) == 1 else dml.join(parts, axis)
    return stored(node, found, 0, found.sizes, like=2)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(node: Node) -> Value:
    """Take the mean of each channel."""
    x = real(node, 0)
    first = 1 if node.flag("channels_last") else 2
    axes = tuple(range(first, len(x.sizes) - 2 + first))
    found = dml.reduce(x, ReduceFunction.AVERAGE, axes=axes)
    return stored(node, found, 3, found.sizes)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(node: Node) -> Value:
    """Take the mean of each window."""
    x, rank = node.tensor(0), len(node.shape(0))
    if not 3 <= rank <= 5:
        raise node.refusal(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    last = node.flag("channels_last")
    if last:
        x = transposed(x, (0, rank - 1, *range(1, rank - 1)))
    window = window_of(node, node.integers("kernel_shape") or (), x.sizes[2:])
    counts = window.outputs(x.sizes[2:], ceil=node.flag("ceil_mode"))
    wide = window.reaching(x.sizes[2:], counts).with_leading(max(4 - rank, 0))
    whole = with_dimensions(x, max(rank, 4))
    one = (1,) * len(whole.sizes)
    scale, zero, output_scale, output_zero = (
        reshaped(node.tensor(number), one) if node.has(number) else None for number in range(1, 5)
    )
    if scale is None or output_scale is None:
        raise node.refusal("scales must be given")
    found = functions.quantized_linear_average_pooling(
        whole,
        scale,
        output_scale,
        zero,
        output_zero,
        window_size=wide.sizes,
        strides=wide.strides,
        dilations=wide.dilations,
        start_padding=wide.start,
        end_padding=wide.end,
        include_padding=node.flag("count_include_pad"),
        output_type=x.data_type,
    )
    found = reshaped(found, (*x.sizes[:2], *counts))
    return node.valued(transposed(found, (0, *range(2, rank), 1)) if last else found)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: Node) -> Value:
    """Take parts along an axis of a quantised tensor, whose scales are those of blocks along another, as floats."""
    bits, block = block_sizes(node, 128)
    data, shape = node.tensor(0), node.shape(0)
    if data.data_type is DataType.UINT8 and bits == 4:  # two to a byte along the last axis
        shape = (*shape[:-1], 2 * shape[-1])
        packed = data if data.desc.is_packed else dml.identity(data)
        data = packed.reinterpret(shape, None, DataType.UINT4)
    rank = len(shape)
    axis = node.axis(node.integer("gather_axis"), rank)
    node.check_indices(1, shape[axis])
    along = node.axis(node.integer("quantize_axis", 1), rank)
    blocks = tuple(block if number == along else 1 for number in range(rank))
    scale = node.tensor(2)
    if scale.sizes != tuple(-(-size // one) for size, one in zip(shape, blocks, strict=True)):
        raise node.refusal(f"scales of shape {list(scale.sizes)} do not fit {list(shape)} in blocks of {block}")
    zero = node.optional_tensor(3)
    if zero is not None and zero.data_type is not data.data_type:
        zero = (zero if zero.desc.is_packed else dml.identity(zero)).reinterpret(scale.sizes, None, data.data_type)
    if zero is None and node.data_type(0) is DataType.UINT8:
        middle = node.constant([[1 << (bits - 1)]], data.data_type)
        zero = reshaped(middle, (1,) * rank).broadcast_to(scale.sizes)
    found = dequantized(data, Quantization(scale, zero, blocks))
    indices = node.shape(1)
    result = (*shape[:axis], *indices, *shape[axis + 1 :])
    wide = max(rank, len(indices), len(result))
    x = reshaped(found, (*(1,) * (wide - rank), *shape))
    where = reshaped(node.tensor(1), (*(1,) * (wide - len(indices)), *indices))
    taken = functions.gather(x, where, axis=axis + wide - rank, index_dimensions=max(len(indices), 1))
    return node.valued(taken, result)
