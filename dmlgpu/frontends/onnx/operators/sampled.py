"""Pictures read between their elements: GridSample and DeformConv."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.compose import add, cast, multiply
from dmlgpu.frontends.onnx.node import Node, checked_shape, reshaped, transposed
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.sampling import sample
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.frontends.onnx.windows import window_of
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

_MODES = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}


@operator("GridSample", since=16)
def grid_sample(node: Node) -> Value:
    """Read a picture at the places that a grid names, from -1 to 1 over each dimension."""
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if mode not in _MODES:
        raise node.refusal(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise node.refusal(f"padding_mode must be zeros, border or reflection, got {padding!r}")
    node.check_rank(0, 4, 5)
    node.check_rank(1, len(node.shape(0)))
    x, aligned = node.tensor(0), node.flag("align_corners")
    batch, channels, *spatial = x.sizes
    sizes, count = node.shape(1)[1:-1], len(spatial)
    if node.shape(1)[0] != batch or node.shape(1)[-1] != count or len(sizes) != count:
        raise node.refusal(
            f"grid must be {{{batch}, ..., {count}}} with {count} sizes between, got {list(node.shape(1))}"
        )
    grid = reshaped(cast(node.tensor(1), DataType.FLOAT32), (batch, math.prod(sizes), count))
    columns = _columns(transposed(grid, (2, 0, 1)))
    coordinates = [
        multiply(add(one, 1), (size - 1) / 2) if aligned else add(multiply(add(one, 1), size / 2), -0.5)
        for one, size in zip(reversed(columns), spatial, strict=True)
    ]
    kept = x.data_type
    x = x if kept.is_float else cast(x, DataType.FLOAT32)
    found = sample(x, coordinates, mode=_MODES[mode], padding=padding, aligned=aligned)
    return node.valued(transposed(cast(found, kept), (0, 2, 1)), (batch, channels, *sizes))


def _columns(given: Expression) -> list[Expression]:
    """Return the parts along the first dimension, without it."""
    parts = functions.split(given, axis=0, output_sizes=[(1, *given.sizes[1:])] * given.sizes[0])
    return [reshaped(one, given.sizes[1:]) for one in parts]


@operator("AffineGrid", since=20)
def affine_grid(node: Node) -> Value:
    """Return where in a picture, from -1 to 1 over each dimension, each element of an affine image of it lies.

    With ``align_corners``, the only element of a dimension lies at 1, as in onnxruntime.
    """
    node.check_rank(0, 3)
    theta, sizes = cast(node.tensor(0), DataType.FLOAT32), node.host_integers(1)
    count, batch = len(sizes) - 2, theta.sizes[0]
    if count not in (2, 3) or theta.sizes[1:] != (count, count + 1) or sizes[0] != batch:
        raise node.refusal(
            f"size must have 4 or 5 elements that fit theta {{N, 2, 3}} or {{N, 3, 4}}, got {list(sizes)} "
            f"and {list(theta.sizes)}"
        )
    spatial = checked_shape(node, sizes[2:])
    shape = checked_shape(node, (batch, *spatial, count))
    if 0 in shape:
        return node.known(np.zeros(shape, node.data_type(0).numpy))
    aligned = node.flag("align_corners")
    *factors, grid = (reshaped(one, (batch, *(1,) * count, count)) for one in _columns(transposed(theta, (2, 0, 1))))
    for axis, (factor, size) in enumerate(zip(reversed(factors), spatial, strict=True)):
        steps = max(size - 1, 1) if aligned else size
        coordinates = (1 - (2 * np.arange(size)[::-1] + (not aligned)) / steps).astype(np.float32)
        along = [size if one == axis + 1 else 1 for one in range(count + 2)]
        grid = add(grid, multiply(factor, node.constant(coordinates.reshape(along), DataType.FLOAT32)))
    return node.valued(cast(grid, node.data_type(0)), shape)


@operator("DeformConv", since=19)
def deformable_convolution(node: Node) -> Value:
    """Slide filters whose elements are read at places that offsets move, and weighted by a mask."""
    for number in range(3):
        node.check_rank(number, 4)
    x, filters = node.tensor(0), node.tensor(1)
    batch, channels, *spatial = x.sizes
    groups, count = node.integer("offset_group", 1), len(spatial)
    window = window_of(node, node.integers("kernel_shape") or filters.sizes[2:], tuple(spatial))
    sizes = window.outputs(tuple(spatial))
    taps, places = math.prod(window.sizes), math.prod(sizes)
    offsets = reshaped(cast(node.tensor(2), DataType.FLOAT32), (batch * groups, taps, count, places))
    moved = _columns(transposed(offsets, (2, 0, 1, 3)))
    steps = np.stack(np.meshgrid(*map(np.arange, window.sizes), indexing="ij")).reshape(count, taps, 1)
    corners = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij")).reshape(count, 1, places)
    coordinates = []
    for number, offset in enumerate(moved):
        start = corners[number] * window.strides[number] - window.start[number]
        where = (start + steps[number] * window.dilations[number]).astype(np.float32)
        moved_by = add(offset, node.constant(where[None], DataType.FLOAT32))
        coordinates.append(reshaped(moved_by, (batch * groups, taps * places)))
    split = reshaped(x, (batch * groups, channels // groups, *spatial))
    found = sample(split, coordinates, mode="linear", padding="zeros")
    if node.has(4):
        found = multiply(found, reshaped(node.tensor(4), (batch * groups, taps * places, 1)))
    columns = reshaped(transposed(found, (0, 2, 1)), (batch, channels, taps, places))
    bias = reshaped(node.tensor(3), (1, filters.sizes[0], 1, 1)) if node.has(3) else None
    flat = reshaped(filters, (*filters.sizes[:2], taps, 1))
    made = functions.convolution(columns, flat, bias, group_count=node.integer("group", 1))
    return node.valued(made, (batch, filters.sizes[0], *sizes))
