"""Poolings: windows, and whole pictures."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.compose import add, divide, multiply, number_like, spread, subtract
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.frontends.onnx.windows import Window, window_of, with_dimensions
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


def _windows(node: Node) -> tuple[Expression, Window, Shape]:
    """Return the input with 2 or 3 spatial dimensions, windows over them, and the output's shape.

    Where the sizes are rounded up, windows reach beyond the padding behind; with ``auto_pad`` VALID as well, as ONNX
    infers shapes and onnxruntime computes, though ONNX's formula for it rounds down.
    """
    x = node.tensor(0)
    if not 3 <= len(x.sizes) <= 5:
        raise node.refusal(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    spatial = x.sizes[2:]
    window = window_of(node, node.integers("kernel_shape") or (), spatial)
    if node.flag("ceil_mode"):
        counts = window.outputs(spatial, ceil=True)
        if node.flag("count_include_pad"):
            x, window = _with_zeros(x, window)
        window = window.reaching(x.sizes[2:], counts)
    else:
        counts = window.outputs(spatial)
    rank = max(len(x.sizes), 4)
    return with_dimensions(x, rank), window.with_leading(rank - len(x.sizes)), (*x.sizes[:2], *counts)


def _with_zeros(x: Expression, window: Window) -> tuple[Expression, Window]:
    """Return the input with the windows' padding around it as elements, and the windows without it."""
    nothing = (0,) * len(window.sizes)
    if any((*window.start, *window.end)):
        start, end = (0, 0, *window.start), (0, 0, *window.end)
        x = functions.padding1(x, padding_value=0, start_padding=start, end_padding=end)
    return x, replace(window, start=nothing, end=nothing)


@operator("MaxPool")
def max_pool(node: Node) -> tuple[Value, Value | None]:
    """Take the largest element of each window, and where it stands."""
    x, window, shape = _windows(node)
    found = functions.max_pooling2(
        x,
        window_size=window.sizes,
        strides=window.strides,
        dilations=window.dilations,
        start_padding=window.start,
        end_padding=window.end,
        output_indices=node.wants(1),
        output_type=DataType.UINT64 if node.wants(1) else None,
    )
    if not node.wants(1):
        return node.valued(found.output, shape), None
    assert found.output_indices is not None
    indices = dml.cast(found.output_indices, DataType.INT64)
    if node.integer("storage_order"):
        indices = _column_major(indices, x.sizes[2:])
    return node.valued(found.output, shape), node.valued(indices, shape)


def _column_major(indices: Expression, spatial: Shape) -> Expression:
    """Return places in a tensor of pictures, in each of them counted with the first dimension fastest, not the last."""
    total = number_like(indices, 0)
    for number in reversed(range(len(spatial))):
        place = spread(dml.modulus_floor, indices, spatial[number])
        indices = divide(subtract(indices, place), spatial[number])
        total = add(multiply(place, math.prod(spatial[:number])), total)
    return add(total, multiply(indices, math.prod(spatial)))


@operator("AveragePool")
def average_pool(node: Node) -> Value:
    """Take the mean of each window; padding counts where it is asked for, but never what is behind it."""
    x, window, shape = _windows(node)
    found = functions.average_pooling1(
        x,
        window_size=window.sizes,
        strides=window.strides,
        dilations=window.dilations,
        start_padding=window.start,
        end_padding=window.end,
        include_padding=node.flag("count_include_pad") and not node.flag("ceil_mode"),
    )
    return node.valued(found, shape)


@operator("LpPool")
def lp_pool(node: Node) -> Value:
    """Take the p-norm of each window."""
    x, window, shape = _windows(node)
    found = functions.lp_pooling1(
        x,
        p=node.integer("p", 2),
        window_size=window.sizes,
        strides=window.strides,
        dilations=window.dilations,
        start_padding=window.start,
        end_padding=window.end,
    )
    return node.valued(found, shape)


@operator("GlobalLpPool", since=2)
def global_lp_pool(node: Node) -> Value:
    """Take the p-norm of all spatial dimensions."""
    x = node.tensor(0)
    if not 3 <= len(x.sizes) <= 5:
        raise node.refusal(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    wide = with_dimensions(x, max(len(x.sizes), 4))
    count = len(wide.sizes) - 2
    found = functions.lp_pooling1(
        wide,
        p=node.integer("p", 2),
        window_size=wide.sizes[2:],
        strides=(1,) * count,
        dilations=(1,) * count,
        start_padding=(0,) * count,
        end_padding=(0,) * count,
    )
    return node.valued(found, (*x.sizes[:2], *(1,) * (len(x.sizes) - 2)))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Value:
    """Reduce all spatial dimensions to one element."""
    x = node.tensor(0)
    function = ReduceFunction.AVERAGE if node.op_type == "GlobalAveragePool" else ReduceFunction.MAX
    return node.valued(dml.reduce(x, function, axes=tuple(range(2, len(x.sizes)))))
