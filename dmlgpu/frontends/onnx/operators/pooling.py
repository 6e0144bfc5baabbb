"""Pooling over windows and over whole images, and MaxUnpool."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import add, cast, divide, multiply, number_like, reshaped, spread, subtract
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators.convolution import sliding
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.spatial import SlidingWindow, window_of, with_dimensions
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor


def _windows(node: OnnxNode) -> tuple[Tensor, SlidingWindow, Shape]:
    """Return the input with 2 or 3 spatial dimensions, windows over them, and the output's shape.

    If sizes are rounded up, windows extend beyond the end padding, also with ``auto_pad`` VALID. ONNX's shape inference
    and onnxruntime do the same, although ONNX's formula rounds down.
    """
    x = node.tensor(0)
    if not 3 <= len(x.sizes) <= 5:
        raise node.rejection(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
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


def _with_zeros(x: Tensor, window: SlidingWindow) -> tuple[Tensor, SlidingWindow]:
    """Return the input padded with zeros by the windows' padding, and the windows without padding."""
    nothing = (0,) * len(window.sizes)
    if any((*window.start, *window.end)):
        start, end = (0, 0, *window.start), (0, 0, *window.end)
        x = directml.padding1(x, padding_value=0, start_padding=start, end_padding=end)
    return x, replace(window, start=nothing, end=nothing)


@operator("MaxPool")
def max_pool(node: OnnxNode) -> tuple[OnnxValue, OnnxValue | None]:
    """Take the largest element of each window, and its index."""
    x, window, shape = _windows(node)
    pooled = directml.max_pooling2(
        x,
        window_size=window.sizes,
        **sliding(window),
        output_indices=node.wants(1),
        output_type=DataType.UINT64 if node.wants(1) else None,
    )
    if not node.wants(1):
        return node.valued(pooled.output, shape), None
    assert pooled.output_indices is not None
    indices = dml.cast(pooled.output_indices, DataType.INT64)
    if node.integer("storage_order"):
        indices = _column_major(indices, x.sizes[2:])
    return node.valued(pooled.output, shape), node.valued(indices, shape)


def _column_major(indices: Tensor, spatial: Shape) -> Tensor:
    """Return indices of images' elements, converted from row-major to column-major within each image."""
    total = number_like(indices, 0)
    for index in reversed(range(len(spatial))):
        coordinate = spread(dml.modulus_floor, indices, spatial[index])
        indices = divide(subtract(indices, coordinate), spatial[index])
        total = add(multiply(coordinate, math.prod(spatial[:index])), total)
    return add(total, multiply(indices, math.prod(spatial)))


@operator("AveragePool")
def average_pool(node: OnnxNode) -> OnnxValue:
    """Average each window; padding counts if ``count_include_pad`` is set, elements beyond it never do."""
    x, window, shape = _windows(node)
    pooled = directml.average_pooling1(
        x,
        window_size=window.sizes,
        **sliding(window),
        include_padding=node.flag("count_include_pad") and not node.flag("ceil_mode"),
    )
    return node.valued(pooled, shape)


@operator("LpPool")
def lp_pool(node: OnnxNode) -> OnnxValue:
    """Take the p-norm of each window."""
    x, window, shape = _windows(node)
    pooled = directml.lp_pooling1(
        x,
        p=node.integer("p", 2),
        window_size=window.sizes,
        **sliding(window),
    )
    return node.valued(pooled, shape)


@operator("GlobalLpPool", since=2)
def global_lp_pool(node: OnnxNode) -> OnnxValue:
    """Take the p-norm of all spatial dimensions."""
    x = node.tensor(0)
    if not 3 <= len(x.sizes) <= 5:
        raise node.rejection(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    wide = with_dimensions(x, max(len(x.sizes), 4))
    count = len(wide.sizes) - 2
    pooled = directml.lp_pooling1(
        wide,
        p=node.integer("p", 2),
        window_size=wide.sizes[2:],
        strides=(1,) * count,
        dilations=(1,) * count,
        start_padding=(0,) * count,
        end_padding=(0,) * count,
    )
    return node.valued(pooled, (*x.sizes[:2], *(1,) * (len(x.sizes) - 2)))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode) -> OnnxValue:
    """Reduce all spatial dimensions to one element."""
    x = node.tensor(0)
    function = ReduceFunction.AVERAGE if node.op_type == "GlobalAveragePool" else ReduceFunction.MAX
    return node.valued(dml.reduce(x, function, axes=tuple(range(2, len(x.sizes)))))


@operator("MaxUnpool", host=(2,))
def max_unpool(node: OnnxNode) -> OnnxValue:
    """Write elements to the positions from which a MaxPool took them, and zeros to all others.

    Indices refer to the output, of shape ``output_shape`` if given, so that the operator inverts a MaxPool of that
    size, as in onnxruntime.
    """
    x, kernel = node.tensor(0), node.integers("kernel_shape") or ()
    strides = node.integers("strides") or (1,) * len(kernel)
    pads = node.integers("pads") or (0,) * (2 * len(kernel))
    spatial = x.sizes[2:]
    if not len(kernel) == len(strides) == len(spatial) or len(pads) != 2 * len(kernel):
        raise node.rejection(f"kernel_shape, strides and pads must be of {len(spatial)} dimensions")
    ends = pads[len(kernel) :]
    sizes = [
        (size - 1) * stride - begin - end + extent
        for size, stride, begin, end, extent in zip(spatial, strides, pads, ends, kernel, strict=False)
    ]
    shape = node.host_integers(2) if node.has(2) else (*x.sizes[:2], *sizes)
    if len(shape) != len(x.sizes) or shape[:2] != x.sizes[:2] or min(shape) < 1:
        raise node.rejection(f"output_shape must be {[*x.sizes[:2], *sizes]} or the like, got {list(shape)}")
    node.check_range(1, 0, math.prod(shape) - 1, "I")
    row = (1, 1, 1, math.prod(x.sizes))
    indices = reshaped(cast(node.tensor(1), DataType.INT64), row).reinterpret(row, None, DataType.UINT64)
    result = directml.max_unpooling(reshaped(x, row), indices, output_sizes=(1, 1, 1, math.prod(shape)))
    return node.valued(result, shape)
