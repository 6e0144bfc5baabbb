"""Convolutions of quantised pictures."""

from __future__ import annotations

import math

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.operators.casting import converted
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.frontends.onnx.windows import Window, window_of, with_dimensions
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


def _parts(node: Node, x: Expression, filters: int) -> tuple[Expression, Expression, Window, Shape]:
    """Return input and filters with two spatial dimensions, windows over them, and the output's shape."""
    given = node.tensor(filters)
    if not 3 <= len(x.sizes) <= 4:
        raise node.refusal(f"1 or 2 spatial dimensions are supported, got shape {list(x.sizes)}")
    window = window_of(node, node.integers("kernel_shape") or given.sizes[2:], x.sizes[2:])
    shape = (x.sizes[0], given.sizes[0], *window.outputs(x.sizes[2:]))
    return with_dimensions(x, 4), with_dimensions(given, 4), window.with_leading(4 - len(x.sizes)), shape


def _parameter(node: Node, number: int) -> Expression | None:
    """Return a scale, zero point or bias as {1, 1, 1, 1} or, one for each channel of the output, {1, C, 1, 1}."""
    if not node.has(number):
        return None
    return reshaped(node.tensor(number), (1, math.prod(node.shape(number)), 1, 1))


def _scale(node: Node, number: int) -> Expression:
    return converted(reshaped(node.tensor(number), (1, math.prod(node.shape(number)), 1, 1)), DataType.FLOAT32)


@operator("ConvInteger", since=10)
def convolution_integer(node: Node) -> Value:
    """Convolution of 8-bit integers less their zero points, in INT32."""
    x, filters, window, shape = _parts(node, node.tensor(0), 1)
    found = functions.convolution_integer(
        x,
        filters,
        _parameter(node, 2),
        _parameter(node, 3),
        strides=window.strides,
        dilations=window.dilations,
        start_padding=window.start,
        end_padding=window.end,
        group_count=node.integer("group", 1),
    )
    return node.valued(found, shape)


@operator("QLinearConv", since=10)
@operator("QLinearConv", domain="com.microsoft")
def qlinear_convolution(node: Node) -> Value:
    """Convolution of quantised pictures, quantised; the bias is of INT32, in units of the product."""
    given, last = node.tensor(0), node.flag("channels_last")
    rank = len(given.sizes)
    if last and rank > 2:
        given = transposed(given, (0, rank - 1, *range(1, rank - 1)))
    x, filters, window, shape = _parts(node, given, 3)
    found = functions.quantized_linear_convolution(
        x,
        _scale(node, 1),
        filters,
        _scale(node, 4),
        _scale(node, 6),
        _parameter(node, 2),
        _parameter(node, 5),
        _parameter(node, 8),
        _parameter(node, 7),
        strides=window.strides,
        dilations=window.dilations,
        start_padding=window.start,
        end_padding=window.end,
        group_count=node.integer("group", 1),
        output_type=node.data_type(7),
    )
    found = reshaped(found, shape)
    return node.valued(transposed(found, (0, *range(2, rank), 1)) if last else found)
