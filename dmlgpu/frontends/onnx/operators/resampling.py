"""Resampling of images: Resize, Upsample, GridSample, AffineGrid and DeformConv."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode, ReduceFunction
from dmlgpu.compiler.operators.resampling import scaled_size
from dmlgpu.compiler.sizes.arithmetic import computed, decided, largest, smallest
from dmlgpu.frontends.onnx.expressions import add, cast, multiply, reshaped, transposed
from dmlgpu.frontends.onnx.node import OnnxNode, checked_shape
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.spatial import (
    ROUNDINGS,
    TRANSFORMATIONS,
    Interpolation,
    ResizedAxis,
    nearest,
    outside,
    reaches_outside,
    sample,
    window_of,
)
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_OFFSETS: dict[str, tuple[float, float]] = {
    "align_corners": (0.0, 0.0),
    "asymmetric": (0.0, 0.0),
    "tf_half_pixel_for_nn": (0.0, -0.5),
}
"""Offsets of the input's and the output's pixels: x_in = (x_out - output_offset) / scale - input_offset.

Other modes have the offsets of half_pixel."""

_NEAREST: dict[str, tuple[float, AxisDirection]] = {
    "round_prefer_floor": (0.5, AxisDirection.INCREASING),
    "round_prefer_ceil": (-0.5, AxisDirection.DECREASING),
    "floor": (0.0, AxisDirection.DECREASING),
    "ceil": (0.0, AxisDirection.INCREASING),
}
"""Offset added to the input's, and rounding of coordinates: up for INCREASING, else down."""


def _target(node: OnnxNode) -> tuple[Shape, list[float]]:
    """Return sizes and scales of the output, one per dimension."""
    shape = node.shape(0)
    axes = node.axes(node.integers("axes") or range(len(shape)), len(shape))
    sizes, scales = list(shape), [1.0] * len(shape)
    if node.has(3) and node.shape(3) != (0,):
        targets = node.host_integers(3, len(axes))
        if any(not shape[axis] for axis in axes):
            raise node.rejection(f"tensors without elements cannot be resized to sizes, got shape {list(shape)}")
        ratios = [size / shape[axis] for axis, size in zip(axes, targets, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = smallest(*ratios) if policy == "not_larger" else largest(*ratios)
            ratios = [ratio] * len(ratios)
            targets = tuple(math.floor(shape[axis] * ratio + 0.5) for axis in axes)
        for axis, size, ratio in zip(axes, targets, ratios, strict=True):
            sizes[axis], scales[axis] = size, ratio
        return checked_shape(node, sizes), scales
    numbers = node.numbers("scales", len(axes)) or node.host_numbers(_place_of_scales(node), len(axes))
    for axis, scale in zip(axes, numbers, strict=True):
        sizes[axis], scales[axis] = scaled_size(shape[axis], scale), scale
    return checked_shape(node, sizes), scales


def _read_by_resize(node: OnnxNode) -> Sequence[int]:
    """Return the inputs read on the host: sizes or scales, and the region if the mode uses one."""
    if node.has(3) and node.shape(3) != (0,):
        numbers = [3]
    else:
        numbers = [] if node.numbers("scales") else [_place_of_scales(node)]
    return [*numbers, 1] if node.text("coordinate_transformation_mode") == "tf_crop_and_resize" else numbers


def _place_of_scales(node: OnnxNode) -> int:
    return 1 if node.op_type == "Upsample" or node.version < 11 else 2


@operator("Resize", "Upsample", host=_read_by_resize)
def resize(node: OnnxNode) -> OnnxValue:
    """Resample to other sizes: nearest, linear or cubic."""
    mode, old = node.text("mode", "nearest"), node.op_type == "Upsample" or node.version < 11
    how = "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if old else node.text("nearest_mode", "round_prefer_floor")
    for name, value, allowed in (
        ("mode", mode, ("nearest", "linear", "cubic")),
        ("coordinate_transformation_mode", how, TRANSFORMATIONS),
        ("nearest_mode", rounding, tuple(ROUNDINGS)),
    ):
        if value not in allowed:
            raise node.rejection(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    sizes, scales = _target(node)
    if 0 in sizes:
        return node.known(np.zeros(sizes, node.data_type(0).numpy))
    if any(factor <= 0 for factor in (*sizes, *scales)):
        raise node.rejection(f"sizes and scales must be positive, got {list(sizes)} and {scales}")
    # operator set 10 does not specify the rounding; its example and onnxruntime round up if an axis shrinks
    roundings = ["ceil" if old and scale < 1 else rounding for scale in scales]
    axes = _axes(node, sizes, scales, roundings, how)
    compute = _by_resample if _is_plain(node, axes, mode) else _by_axis
    return node.valued(compute(node, axes, mode), sizes)


def _axes(node: OnnxNode, sizes: Shape, scales: list[float], roundings: list[str], how: str) -> list[ResizedAxis]:
    """Return the resampling of each axis."""
    shape = node.shape(0)
    begins, ends = [0.0] * len(shape), [1.0] * len(shape)
    if how == "tf_crop_and_resize":
        chosen = node.axes(node.integers("axes") or range(len(shape)), len(shape))
        region = node.host_numbers(1, 2 * len(chosen))
        for index, axis in enumerate(chosen):
            begins[axis], ends[axis] = region[index], region[index + len(chosen)]
    return [
        ResizedAxis(size, output_size, scale, how, rounding, begin, end)
        for size, output_size, scale, rounding, begin, end in zip(
            shape, sizes, scales, roundings, begins, ends, strict=True
        )
    ]


_RESAMPLED = (DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8)


def _is_plain(node: OnnxNode, axes: list[ResizedAxis], mode: str) -> bool:
    """Return whether one RESAMPLE3 computes the node."""
    how = axes[0].transformation if axes else "asymmetric"
    nontrivial = [axis for axis in axes if axis.size != 1 or axis.output_size != 1]
    if mode == "nearest":
        # corners must be met exactly, not up to the rounding of a scale
        fits = how != "align_corners" and len({axis.rounding for axis in nontrivial}) <= 1
    else:
        fits = mode == "linear" and not node.flag("exclude_outside")
    if how == "align_corners" and node.flag("antialias") and any(axis.scale < 1 for axis in axes):
        fits = False  # the filter is as wide as 1 / scale, which is not the distance of its coordinates
    if how == "pytorch_half_pixel" and any(axis.output_size == 1 and axis.size > 1 for axis in axes):
        fits = False
    if how == "half_pixel_symmetric" and any(axis.output_size != axis.size * axis.scale for axis in axes):
        fits = False
    return fits and how != "tf_crop_and_resize" and len(nontrivial) <= 4 and node.data_type(0) in _RESAMPLED


def _by_resample(node: OnnxNode, axes: list[ResizedAxis], mode: str) -> Tensor:
    """Return the result by RESAMPLE3: input coordinates are linear functions of output coordinates."""
    how = axes[0].transformation if axes else "asymmetric"
    before, behind = _OFFSETS.get(how, (0.5, -0.5))
    direction = AxisDirection.INCREASING
    nontrivial = [axis for axis in axes if axis.size != 1 or axis.output_size != 1] or [ResizedAxis(1, 1, 1.0, how)]
    if mode == "nearest":
        shift, direction = _NEAREST[nontrivial[0].rounding]
        before += shift
    return directml.resample3(
        reshaped(node.tensor(0), [axis.size for axis in nontrivial]),
        interpolation_mode=InterpolationMode.LINEAR if mode == "linear" else InterpolationMode.NEAREST_NEIGHBOR,
        rounding_direction=direction,
        scales=[_corner_scale(axis) if how == "align_corners" else axis.scale for axis in nontrivial],
        input_pixel_offsets=[before] * len(nontrivial),
        output_pixel_offsets=[behind] * len(nontrivial),
        output_sizes=[axis.output_size for axis in nontrivial],
        antialiased=mode == "linear" and node.flag("antialias"),
    )


def _corner_scale(axis: ResizedAxis) -> float:
    if axis.size > 1 and axis.output_size > 1:
        return (axis.size * axis.scale - 1) / (axis.size - 1)
    return 1.0


def _by_axis(node: OnnxNode, axes: list[ResizedAxis], mode: str) -> Tensor:
    """Return the result axis by axis: a GATHER, and a weighted sum of the gathered elements."""
    x, cubic = node.tensor(0), node.number("cubic_coeff_a", -0.75)
    if not math.isfinite(cubic):
        raise node.rejection(f"cubic_coeff_a must be finite, got {cubic}")
    interpolation = Interpolation(
        cubic if mode == "cubic" else None, node.flag("antialias"), node.flag("exclude_outside")
    )
    data_type = x.data_type
    if mode != "nearest" and data_type is not DataType.FLOAT32:
        x = dml.cast(x, DataType.FLOAT32)
    sizes = [axis.size for axis in axes]
    moved = [index for index, axis in enumerate(axes) if not axis.moves_nothing]
    for index in sorted(moved, key=lambda index: axes[index].output_size >= axes[index].size):  # shrink first
        axis = axes[index]
        rows = reshaped(x, (1, math.prod(sizes[:index]), axis.size, math.prod(sizes[index + 1 :])))
        sizes[index] = axis.output_size
        if mode == "nearest":
            where = node.constant_of((axis.output_size,), DataType.INT32, nearest, *axis)
            x = directml.gather(rows, reshaped(where, (1, 1, 1, axis.output_size)), axis=2, index_dimensions=1)
            continue
        terms = axis.output_size, 2 * computed(interpolation.reach, axis.scale)
        where = node.constant_of(terms, DataType.INT32, interpolation.indices, *axis)
        picked = directml.gather(rows, reshaped(where, (1, 1, *terms)), axis=2, index_dimensions=2)
        factors = node.constant_of(terms, DataType.FLOAT32, interpolation.weights, *axis)
        factors = reshaped(factors, (1, *terms, 1))
        x = dml.reduce(dml.multiply(picked, factors.broadcast_to(picked.sizes)), ReduceFunction.SUM, axes=(2,))
    x = _with_extrapolation(node, reshaped(x, sizes or (1,)), axes)
    if x.data_type is not data_type:
        x = dml.cast(x if data_type.is_float else dml.round(x), data_type)
    return x


def _with_extrapolation(node: OnnxNode, x: Tensor, axes: list[ResizedAxis]) -> Tensor:
    """Return a result with ``extrapolation_value`` outside of the input, for tf_crop_and_resize."""
    if not axes or axes[0].transformation != "tf_crop_and_resize":
        return x
    number = node.number("extrapolation_value")
    value = dml.fill_value_constant(node.builder, (1,), x.data_type, number if x.data_type.is_float else int(number))
    for index, axis in enumerate(axes):
        if decided(reaches_outside, *axis):
            sizes = [axis.output_size if i == index else 1 for i in range(len(axes))]
            there = reshaped(node.constant_of((axis.output_size,), DataType.UINT8, outside, *axis), sizes)
            x = dml.if_(there.broadcast_to(x.sizes), value.broadcast_to(x.sizes), x)
    return x


_MODES = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}


@operator("GridSample", since=16)
def grid_sample(node: OnnxNode) -> OnnxValue:
    """Sample an image at the coordinates of a grid, from -1 to 1 over each dimension."""
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if mode not in _MODES:
        raise node.rejection(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise node.rejection(f"padding_mode must be zeros, border or reflection, got {padding!r}")
    node.check_rank(0, 4, 5)
    node.check_rank(1, len(node.shape(0)))
    x, aligned = node.tensor(0), node.flag("align_corners")
    batch, channels, *spatial = x.sizes
    sizes, count = node.shape(1)[1:-1], len(spatial)
    if node.shape(1)[0] != batch or node.shape(1)[-1] != count or len(sizes) != count:
        raise node.rejection(
            f"grid must be {{{batch}, ..., {count}}} with {count} sizes between, got {list(node.shape(1))}"
        )
    grid = reshaped(cast(node.tensor(1), DataType.FLOAT32), (batch, math.prod(sizes), count))
    columns = _columns(transposed(grid, (2, 0, 1)))
    coordinates = [
        multiply(add(column, 1), (size - 1) / 2) if aligned else add(multiply(add(column, 1), size / 2), -0.5)
        for column, size in zip(reversed(columns), spatial, strict=True)
    ]
    data_type = x.data_type
    x = x if data_type.is_float else cast(x, DataType.FLOAT32)
    samples = sample(x, coordinates, mode=_MODES[mode], padding=padding, aligned=aligned)
    return node.valued(transposed(cast(samples, data_type), (0, 2, 1)), (batch, channels, *sizes))


def _columns(x: Tensor) -> list[Tensor]:
    """Split a tensor along its first dimension, which is removed."""
    parts = directml.split(x, axis=0, output_sizes=[(1, *x.sizes[1:])] * x.sizes[0])
    return [reshaped(part, x.sizes[1:]) for part in parts]


@operator("AffineGrid", since=20, host=(1,))
def affine_grid(node: OnnxNode) -> OnnxValue:
    """Return the coordinates, from -1 to 1 over each dimension, of each element of an affine transform of an image.

    With ``align_corners``, the only element of a dimension lies at 1, as in onnxruntime.
    """
    node.check_rank(0, 3)
    theta, sizes = cast(node.tensor(0), DataType.FLOAT32), node.host_integers(1)
    count, batch = len(sizes) - 2, theta.sizes[0]
    if count not in (2, 3) or theta.sizes[1:] != (count, count + 1) or sizes[0] != batch:
        raise node.rejection(
            f"size must have 4 or 5 elements that fit theta {{N, 2, 3}} or {{N, 3, 4}}, got {list(sizes)} "
            f"and {list(theta.sizes)}"
        )
    spatial = checked_shape(node, sizes[2:])
    shape = checked_shape(node, (batch, *spatial, count))
    if 0 in shape:
        return node.known(np.zeros(shape, node.data_type(0).numpy))
    aligned = node.flag("align_corners")
    columns = _columns(transposed(theta, (2, 0, 1)))
    *factors, grid = (reshaped(column, (batch, *(1,) * count, count)) for column in columns)
    for axis, (factor, size) in enumerate(zip(reversed(factors), spatial, strict=True)):
        steps = max(size - 1, 1) if aligned else size
        coordinates = (1 - (2 * np.arange(size)[::-1] + (not aligned)) / steps).astype(np.float32)
        along = [size if index == axis + 1 else 1 for index in range(count + 2)]
        grid = add(grid, multiply(factor, node.constant(coordinates.reshape(along), DataType.FLOAT32)))
    return node.valued(cast(grid, node.data_type(0)), shape)


@operator("DeformConv", since=19)
def deformable_convolution(node: OnnxNode) -> OnnxValue:
    """Convolve with samples at coordinates that offsets move, weighted by a mask."""
    for index in range(3):
        node.check_rank(index, 4)
    x, filters = node.tensor(0), node.tensor(1)
    batch, channels, *spatial = x.sizes
    groups, count = node.integer("offset_group", 1), len(spatial)
    window = window_of(node, node.integers("kernel_shape") or filters.sizes[2:], tuple(spatial))
    sizes = window.outputs(tuple(spatial))
    taps, pixels = math.prod(window.sizes), math.prod(sizes)
    offsets = reshaped(cast(node.tensor(2), DataType.FLOAT32), (batch * groups, taps, count, pixels))
    moved = _columns(transposed(offsets, (2, 0, 1, 3)))
    steps = np.stack(np.meshgrid(*map(np.arange, window.sizes), indexing="ij")).reshape(count, taps, 1)
    corners = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij")).reshape(count, 1, pixels)
    coordinates = []
    for index, offset in enumerate(moved):
        start = corners[index] * window.strides[index] - window.start[index]
        where = (start + steps[index] * window.dilations[index]).astype(np.float32)
        moved_by = add(offset, node.constant(where[None], DataType.FLOAT32))
        coordinates.append(reshaped(moved_by, (batch * groups, taps * pixels)))
    split = reshaped(x, (batch * groups, channels // groups, *spatial))
    samples = sample(split, coordinates, mode="linear", padding="zeros")
    if node.has(4):
        samples = multiply(samples, reshaped(node.tensor(4), (batch * groups, taps * pixels, 1)))
    columns = reshaped(transposed(samples, (0, 2, 1)), (batch, channels, taps, pixels))
    bias = reshaped(node.tensor(3), (1, filters.sizes[0], 1, 1)) if node.has(3) else None
    flat = reshaped(filters, (*filters.sizes[:2], taps, 1))
    result = directml.convolution(columns, flat, bias, group_count=node.integer("group", 1))
    return node.valued(result, (batch, filters.sizes[0], *sizes))
