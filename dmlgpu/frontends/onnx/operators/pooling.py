"""Poolings: windows, and whole pictures."""

from __future__ import annotations

from dmlgpu.builder import directmlx as dml
from dmlgpu.builder import functions
from dmlgpu.builder.expression import Expression
from dmlgpu.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.frontends.onnx.windows import Window, window_of, with_dimensions


def _windows(node: Node) -> tuple[Expression, Window, Shape]:
    """Return the input with 2 or 3 spatial dimensions, windows over them, and the output's shape."""
    x = node.tensor(0)
    if not 3 <= len(x.sizes) <= 5:
        raise node.refusal(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    spatial = x.sizes[2:]
    window = window_of(node, node.integers("kernel_shape") or (), spatial)
    if node.flag("ceil_mode") and node.text("auto_pad", "NOTSET") == "NOTSET":
        counts = window.outputs(spatial, ceil=True)
        window = window.reaching(spatial, counts)
    else:
        counts = window.outputs(spatial)
    rank = max(len(x.sizes), 4)
    return with_dimensions(x, rank), window.with_leading(rank - len(x.sizes)), (*x.sizes[:2], *counts)


@operator("MaxPool")
def max_pool(node: Node) -> tuple[Value, Value | None]:
    """Take the largest element of each window, and where it stands."""
    x, window, shape = _windows(node)
    if node.wants(1) and node.integer("storage_order"):
        raise node.refusal("indices in column-major order (storage_order 1) are not supported")
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
    size = 1
    for one in x.sizes[2:]:
        size *= one
    assert found.output_indices is not None
    indices = dml.cast(found.output_indices, DataType.INT64)
    starts = dml.fill_value_sequence(node.builder, (*x.sizes[:2], *(1,) * len(x.sizes[2:])), DataType.INT64, 0, size)
    return node.valued(found.output, shape), node.valued(dml.add(indices, starts.broadcast_to(indices.sizes)), shape)


@operator("AveragePool")
def average_pool(node: Node) -> Value:
    """Take the mean of each window."""
    x, window, shape = _windows(node)
    found = functions.average_pooling1(
        x,
        window_size=window.sizes,
        strides=window.strides,
        dilations=window.dilations,
        start_padding=window.start,
        end_padding=window.end,
        include_padding=node.flag("count_include_pad"),
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


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Value:
    """Reduce all spatial dimensions to one element."""
    x = node.tensor(0)
    function = ReduceFunction.AVERAGE if node.op_type == "GlobalAveragePool" else ReduceFunction.MAX
    return node.valued(dml.reduce(x, function, axes=tuple(range(2, len(x.sizes)))))
