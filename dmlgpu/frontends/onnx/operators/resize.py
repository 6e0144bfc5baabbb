"""Resize and Upsample."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode, ReduceFunction
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.frontends.onnx.interpolation import ROUNDINGS, TRANSFORMATIONS, Axis, nearest, weighted
from dmlgpu.frontends.onnx.node import Node, checked_shape, reshaped
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

_OFFSETS: dict[str, tuple[float, float]] = {
    "align_corners": (0.0, 0.0),
    "asymmetric": (0.0, 0.0),
    "tf_half_pixel_for_nn": (0.0, -0.5),
}
"""Offsets of the input's and the output's pixels: x_in = (x_out - output_offset) / scale - input_offset.

Others have those of half_pixel."""

_NEAREST: dict[str, tuple[float, AxisDirection]] = {
    "round_prefer_floor": (0.5, AxisDirection.INCREASING),
    "round_prefer_ceil": (-0.5, AxisDirection.DECREASING),
    "floor": (0.0, AxisDirection.DECREASING),
    "ceil": (0.0, AxisDirection.INCREASING),
}
"""What is added to the input's offset, and where coordinates are rounded: up for INCREASING, else down."""


def _target(node: Node) -> tuple[Shape, list[float]]:
    """Return sizes and scales of the output, one per dimension."""
    shape = node.shape(0)
    axes = node.axes(node.integers("axes") or range(len(shape)), len(shape))
    place = 1 if node.op_type == "Upsample" or node.version < 11 else 2
    sizes, scales = list(shape), [1.0] * len(shape)
    if node.has(3) and node.shape(3) != (0,):
        targets = node.host_integers(3, len(axes))
        if any(not shape[axis] for axis in axes):
            raise node.refusal(f"tensors without elements cannot be resized to sizes, got shape {list(shape)}")
        ratios = [size / shape[axis] for axis, size in zip(axes, targets, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(ratios)
            targets = tuple(int(shape[axis] * ratio + 0.5) for axis in axes)
        for axis, size, ratio in zip(axes, targets, ratios, strict=True):
            sizes[axis], scales[axis] = size, ratio
        return checked_shape(node, sizes), scales
    numbers = node.numbers("scales", len(axes)) or node.host_numbers(place, len(axes))
    for axis, scale in zip(axes, numbers, strict=True):
        # in float32, as onnxruntime: 10 elements by 0.7 are 7, though 0.7 is a little less than that in float32
        with np.errstate(over="ignore"):
            extent = float(np.float32(shape[axis]) * np.float32(scale))
        sizes[axis], scales[axis] = int(min(extent, MAX_ELEMENTS + 1)), scale
    return checked_shape(node, sizes), scales


@operator("Resize", "Upsample")
def resize(node: Node) -> Value:
    """Resample to other sizes: nearest, linear or cubic."""
    mode, old = node.text("mode", "nearest"), node.op_type == "Upsample" or node.version < 11
    how = "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if old else node.text("nearest_mode", "round_prefer_floor")
    for name, given, allowed in (
        ("mode", mode, ("nearest", "linear", "cubic")),
        ("coordinate_transformation_mode", how, TRANSFORMATIONS),
        ("nearest_mode", rounding, tuple(ROUNDINGS)),
    ):
        if given not in allowed:
            raise node.refusal(f"{name} must be one of {', '.join(allowed)}, got {given!r}")
    sizes, scales = _target(node)
    if 0 in sizes:
        return node.known(np.zeros(sizes, node.data_type(0).numpy))
    if any(one <= 0 for one in (*sizes, *scales)):
        raise node.refusal(f"sizes and scales must be positive, got {list(sizes)} and {scales}")
    # operator set 10 leaves the rounding open; its example and onnxruntime round up where an axis shrinks
    roundings = ["ceil" if old and scale < 1 else rounding for scale in scales]
    axes = _axes(node, sizes, scales, roundings, how)
    compute = _by_resample if _is_plain(node, axes, mode) else _by_axis
    return node.valued(compute(node, axes, mode), sizes)


def _axes(node: Node, sizes: Shape, scales: list[float], roundings: list[str], how: str) -> list[Axis]:
    """Return how each axis is resampled."""
    shape = node.shape(0)
    begins, ends = [0.0] * len(shape), [1.0] * len(shape)
    if how == "tf_crop_and_resize":
        chosen = node.axes(node.integers("axes") or range(len(shape)), len(shape))
        region = node.host_numbers(1, 2 * len(chosen))
        for number, axis in enumerate(chosen):
            begins[axis], ends[axis] = region[number], region[number + len(chosen)]
    return [
        Axis(size, wanted, scale, how, rounding, (begin, end))
        for size, wanted, scale, rounding, begin, end in zip(shape, sizes, scales, roundings, begins, ends, strict=True)
    ]


_RESAMPLED = (DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8)


def _is_plain(node: Node, axes: list[Axis], mode: str) -> bool:
    """Return whether one RESAMPLE3 computes the node."""
    how = axes[0].transformation if axes else "asymmetric"
    larger = [one for one in axes if one.size != 1 or one.wanted != 1]
    if mode == "nearest":
        # corners must be met exactly, not up to the rounding of a scale
        fits = how != "align_corners" and len({one.rounding for one in larger}) <= 1
    else:
        fits = mode == "linear" and not node.flag("exclude_outside")
    if how == "align_corners" and node.flag("antialias") and any(one.scale < 1 for one in axes):
        fits = False  # the filter is as wide as 1 / scale, which is not the distance of its coordinates
    if how == "pytorch_half_pixel" and any(one.wanted == 1 and one.size > 1 for one in axes):
        fits = False
    if how == "half_pixel_symmetric" and any(one.wanted != one.size * one.scale for one in axes):
        fits = False
    return fits and how != "tf_crop_and_resize" and len(larger) <= 4 and node.data_type(0) in _RESAMPLED


def _by_resample(node: Node, axes: list[Axis], mode: str) -> Expression:
    """Return the node's result by RESAMPLE3: coordinates are linear functions of places."""
    how = axes[0].transformation if axes else "asymmetric"
    before, behind = _OFFSETS.get(how, (0.5, -0.5))
    direction = AxisDirection.INCREASING
    kept = [one for one in axes if one.size != 1 or one.wanted != 1] or [Axis(1, 1, 1.0, how)]
    if mode == "nearest":
        shift, direction = _NEAREST[kept[0].rounding]
        before += shift
    return functions.resample3(
        reshaped(node.tensor(0), [one.size for one in kept]),
        interpolation_mode=InterpolationMode.LINEAR if mode == "linear" else InterpolationMode.NEAREST_NEIGHBOR,
        rounding_direction=direction,
        scales=[_corner_scale(one) if how == "align_corners" else one.scale for one in kept],
        input_pixel_offsets=[before] * len(kept),
        output_pixel_offsets=[behind] * len(kept),
        output_sizes=[one.wanted for one in kept],
        antialiased=mode == "linear" and node.flag("antialias"),
    )


def _corner_scale(axis: Axis) -> float:
    if axis.size > 1 and axis.wanted > 1:
        return (axis.size * axis.scale - 1) / (axis.size - 1)
    return 1.0


def _by_axis(node: Node, axes: list[Axis], mode: str) -> Expression:
    """Return the node's result axis by axis: a GATHER, and weighted sums of what it picked."""
    x, cubic = node.tensor(0), node.number("cubic_coeff_a", -0.75)
    if not math.isfinite(cubic):
        raise node.refusal(f"cubic_coeff_a must be finite, got {cubic}")
    kept = x.data_type
    if mode != "nearest" and kept is not DataType.FLOAT32:
        x = dml.cast(x, DataType.FLOAT32)
    sizes = [one.size for one in axes]
    for number in sorted(range(len(axes)), key=lambda one: axes[one].wanted / axes[one].size):
        axis = axes[number]
        if axis.size == axis.wanted and axis.scale == 1 and axis.region == (0, 1):
            continue
        rows = reshaped(x, (1, math.prod(sizes[:number]), axis.size, math.prod(sizes[number + 1 :])))
        sizes[number] = axis.wanted
        if mode == "nearest":
            where = node.constant(nearest(axis).reshape(1, 1, 1, -1), DataType.INT32)
            x = functions.gather(rows, where, axis=2, index_dimensions=1)
            continue
        indices, weights = weighted(
            axis,
            cubic=cubic if mode == "cubic" else None,
            antialias=node.flag("antialias"),
            exclude_outside=node.flag("exclude_outside"),
        )
        where = node.constant(indices.reshape(1, 1, *indices.shape), DataType.INT32)
        picked = functions.gather(rows, where, axis=2, index_dimensions=2)
        factors = node.constant(weights.reshape(1, *weights.shape, 1), DataType.FLOAT32)
        x = dml.reduce(dml.multiply(picked, factors.broadcast_to(picked.sizes)), ReduceFunction.SUM, axes=(2,))
    x = _with_extrapolation(node, reshaped(x, sizes or (1,)), axes)
    if x.data_type is not kept:
        x = dml.cast(x if kept.is_float else dml.round(x), kept)
    return x


def _with_extrapolation(node: Node, x: Expression, axes: list[Axis]) -> Expression:
    """Return a result with ``extrapolation_value`` where it lies beyond the input, for tf_crop_and_resize."""
    if not axes or axes[0].transformation != "tf_crop_and_resize":
        return x
    number = node.number("extrapolation_value")
    value = dml.fill_value_constant(node.builder, (1,), x.data_type, number if x.data_type.is_float else int(number))
    for number, axis in enumerate(axes):
        outside = axis.outside()
        if outside.any():
            sizes = [axis.wanted if one == number else 1 for one in range(len(axes))]
            there = node.constant(outside.astype(np.uint8).reshape(sizes), DataType.UINT8).broadcast_to(x.sizes)
            x = dml.if_(there, value.broadcast_to(x.sizes), x)
    return x
