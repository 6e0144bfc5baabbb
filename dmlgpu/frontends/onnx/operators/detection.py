"""Object detection: RoiAlign, MaxRoiPool and NonMaxSuppression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode, ReduceFunction
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.compiler.sizes.arithmetic import smallest, value_of
from dmlgpu.frontends.onnx.expressions import (
    add,
    cast,
    choose,
    divide,
    doublings,
    multiply,
    number_like,
    reshaped,
    sequence,
    spread,
    subtract,
    taken,
    transposed,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import Steps, operator
from dmlgpu.frontends.onnx.symbolic import as_integer
from dmlgpu.frontends.onnx.values import NeedsHost, OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_MAX_SAMPLES = 256
"""Maximum number of samples per element and axis."""


@operator("RoiAlign")
def roi_align(node: OnnxNode) -> Steps:
    """Take the mean or the maximum of samples in each part of a region."""
    mode = node.text("mode", "avg")
    if mode not in ("avg", "max"):
        raise node.rejection(f"mode must be avg or max, got {mode!r}")
    usual = "half_pixel" if node.version >= 16 else "output_half_pixel"
    centered = node.text("coordinate_transformation_mode", usual) == "half_pixel"
    for index, rank in enumerate((4, 2, 1)):
        node.check_rank(index, rank)
    if node.shape(1)[1] != 4 or node.shape(2) != node.shape(1)[:1]:
        raise node.rejection(
            f"regions must be {{R, 4}} and batch indices {{R}}, got {list(node.shape(1))} and {list(node.shape(2))}"
        )
    node.check_range(2, 0, node.shape(0)[0] - 1, "batch_indices")
    sizes = node.integer("output_height", 1), node.integer("output_width", 1)
    if min(sizes) < 1:
        raise node.rejection(f"output_height and output_width must be at least 1, got {list(sizes)}")
    samples = node.integer("sampling_ratio")
    if not 0 <= samples <= _MAX_SAMPLES:
        raise node.rejection(f"sampling_ratio must be between 0 and {_MAX_SAMPLES}, got {samples}")
    slots = (yield from _slots(node, centered, sizes)) if mode == "max" else []
    x, (rois, scale) = node.tensor(0), _regions(node, centered)
    if mode == "max":
        result = _largest(node, x, rois, scale, slots=slots, sizes=sizes, shift=0.5 if centered else 0.0)
    else:
        shape = (rois.sizes[0], x.sizes[1], *sizes)
        result = _mean(node, x, rois, scale, shape=shape, shift=0.5 if centered else 0.0)
    if centered and not samples:
        result = choose(_with_area(rois, scale), result, 0.0)
    return node.valued(result)


def _regions(node: OnnxNode, centered: bool) -> tuple[Tensor, float]:
    """Return the regions and their scale."""
    rois, scale = node.tensor(1), node.number("spatial_scale", 1.0)
    return (rois, scale) if centered else (_at_least_one(rois, scale), 1.0)


def _mean(
    node: OnnxNode, x: Tensor, rois: Tensor, scale: float, *, shape: tuple[int, int, int, int], shift: float
) -> Tensor:
    """Return the mean of the samples of each part of each region."""
    samples = node.integer("sampling_ratio")
    return directml.roi_align1(
        x,
        rois,
        cast(node.tensor(2), DataType.UINT32),
        reduction_function=ReduceFunction.AVERAGE,
        interpolation_mode=InterpolationMode.LINEAR,
        minimum_samples_per_output=samples or 1,
        maximum_samples_per_output=samples or 0xFFFFFFFF,
        output_sizes=shape,
        spatial_scale_x=scale,
        spatial_scale_y=scale,
        input_pixel_offset=shift,
        output_pixel_offset=-0.5,
    )


def _halves(rois: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second corners of regions {R, 4}."""
    first, second = dml.split(rois, 1, [2, 2])
    return first, second


def _at_least_one(rois: Tensor, scale: float) -> Tensor:
    """Return regions in pixels, at least one wide and high.

    Rounding leaves a widened extent at 1 or just below it: above 1, the region would get a second sample.
    """
    first, second = _halves(multiply(rois, scale))
    rounding = multiply(add(dml.abs(first), 1.0), float(np.finfo(rois.data_type.numpy).eps) / 2)
    minimum = add(first, subtract(1.0, rounding))
    return dml.join([first, dml.max(second, minimum)], 1)


def _with_area(rois: Tensor, scale: float) -> Tensor:
    """Return a mask of the regions {R, 1, 1, 1} with an area: others have no samples, and their result is 0."""
    first, second = _halves(multiply(rois, scale))
    width, height = dml.split(spread(dml.greater_than, subtract(second, first), 0.0), 1, [1, 1])
    return reshaped(dml.logical_and(width, height), (rois.sizes[0], 1, 1, 1))


def _largest(
    node: OnnxNode,
    x: Tensor,
    rois: Tensor,
    scale: float,
    *,
    slots: Sequence[int],
    sizes: tuple[int, int],
    shift: float,
) -> Tensor:
    """Return the largest product of an adjacent element and its weight over all samples: ONNX's maximum."""
    batch, channels, height, width = x.sizes
    count = rois.sizes[0]
    first, second = _halves(multiply(cast(rois, DataType.FLOAT32), scale))
    extents = dml.split(subtract(second, first), 1, [1, 1])[::-1]
    starts = dml.split(add(first, -shift), 1, [1, 1])[::-1]
    axes = [
        _adjacent_samples(start, extent, slot, samples=node.integer("sampling_ratio"), size=size, parts=parts)
        for start, extent, slot, size, parts in zip(starts, extents, slots, (height, width), sizes, strict=True)
    ]
    rows = transposed(reshaped(x, (batch, channels, height * width)), (0, 2, 1))
    rows = reshaped(rows, (batch * height * width, channels))
    origin = multiply(reshaped(cast(node.tensor(2), DataType.INT32), (count, 1, 1)), height * width)
    total: Tensor | None = None
    sampled = (count, sizes[0] * slots[0], sizes[1] * slots[1])
    for vertical, horizontal in itertools.product(*axes):
        row, above = (reshaped(part, (*part.sizes, 1)) for part in vertical)
        column, beside = (reshaped(part, (part.sizes[0], 1, part.sizes[1])) for part in horizontal)
        position = reshaped(add(origin, add(multiply(row, width), column)), (math.prod(sampled),))
        picked = cast(taken(rows, position), DataType.FLOAT32)
        product = multiply(picked, reshaped(multiply(above, beside), (position.sizes[0], 1)))
        total = product if total is None else dml.max(total, product)
    assert total is not None
    split = reshaped(total, (count, sizes[0], slots[0], sizes[1], slots[1], channels))
    pictures = reshaped(dml.reduce(split, ReduceFunction.MAX, axes=(2, 4)), (count, *sizes, channels))
    return cast(transposed(pictures, (0, 3, 1, 2)), x.data_type)


def _slots(node: OnnxNode, centered: bool, sizes: tuple[int, int]) -> Generator[NeedsHost, Any, list[int]]:
    """Return the maximum number of samples per element along each axis, a power of 2 if it depends on the largest
    region."""
    samples = node.integer("sampling_ratio")
    if samples > 0:
        return [samples, samples]

    rois, scale = _regions(node, centered)
    first, second = _halves(multiply(cast(rois, DataType.FLOAT32), scale))
    extents = dml.reduce(subtract(second, first), ReduceFunction.MAX, axes=(0,))
    parts = node.constant([[float(sizes[1]), float(sizes[0])]], DataType.FLOAT32)
    counts = dml.clip(dml.ceil(divide(extents, parts)), 1.0, 2.0**30)
    (exponents,) = yield from node.computed(doublings(reshaped(cast(counts, DataType.INT32), (2,))))
    width, height = (1 << value_of(exponent) for exponent in exponents.reshape(-1).tolist())
    if max(height, width) > _MAX_SAMPLES:
        raise node.rejection(f"regions must be at most {_MAX_SAMPLES} times the output, got {height} and {width}")
    return [height, width]


def _adjacent_samples(
    start: Tensor, extent: Tensor, slots: int, *, samples: int, size: int, parts: int
) -> list[tuple[Tensor, Tensor]]:
    """Return the elements {R, parts * slots} on both sides of each sample along an axis, and their weights.

    If a region has fewer samples than there are slots, the last one is repeated.
    """
    bin_size = multiply(extent, 1 / parts)
    sample = sequence(start, (1, 1, slots), DataType.FLOAT32)
    counts = number_like(start, float(samples))
    if samples <= 0:
        counts = reshaped(spread(dml.max, dml.ceil(bin_size), 1.0), (*bin_size.sizes, 1))
        sample = spread(dml.min, sample, subtract(counts, 1))
    which = sequence(start, (1, parts, 1), DataType.FLOAT32)
    within = add(which, divide(add(sample, 0.5), counts))
    rows = (start.sizes[0], 1, 1)
    position = add(reshaped(start, rows), multiply(reshaped(bin_size, rows), within))
    position = reshaped(position, (rows[0], parts * slots))
    inside = dml.logical_and(
        spread(dml.greater_than_or_equal, position, -1.0), spread(dml.less_than_or_equal, position, float(size))
    )
    position = dml.clip(position, 0.0, size - 1.0)
    below = dml.floor(position)
    above = dml.clip(add(below, 1), 0.0, size - 1.0)
    weight = subtract(position, below)
    return [
        (cast(below, DataType.INT32), choose(inside, subtract(1, weight), 0.0)),
        (cast(above, DataType.INT32), choose(inside, weight, 0.0)),
    ]


@operator("MaxRoiPool")
def max_roi_pool(node: OnnxNode) -> OnnxValue:
    """Take the largest element of each part of a region."""
    for index, rank in enumerate((4, 2)):
        node.check_rank(index, rank)
    rois, sizes = node.tensor(1), node.integers("pooled_shape", 2) or (0, 0)
    lowest, highest = (-math.inf,) * 4, (math.inf,) * 4
    node.check_range(1, (0, *lowest), (node.shape(0)[0] - 1, *highest), "batch indices of rois")
    pooled = directml.roi_pooling(
        node.tensor(0),
        reshaped(rois, (1, 1, *rois.sizes)),
        pooled_size=Size2D(sizes[1], sizes[0]),
        spatial_scale=node.number("spatial_scale", 1.0),
    )
    return node.valued(pooled)


_MAX_PAIRS = 2**28
"""Maximum number of pairs of boxes that are compared."""

_FIRST_ROUNDS = 8


@operator("NonMaxSuppression", since=10, host=(2, 3, 4))
def non_max_suppression(node: OnnxNode) -> Steps:
    """Return batch, class and index of the boxes that no better box of their class overlaps too much.

    Only boxes above the score are compared; their number is that of the largest class, rounded up to a power of 2. A
    box stays unless an earlier box stays and overlaps it: all boxes are decided in parallel rounds until a round
    changes none, which it reports to the host.
    """
    for index in (0, 1):
        node.check_rank(index, 3)
    batch, classes, count = node.shape(1)
    if node.shape(0) != (batch, count, 4):
        raise node.rejection(f"boxes must have shape {[batch, count, 4]}, got {list(node.shape(0))}")
    limit = node.host_integer(2) if node.has(2) else 0
    threshold = node.host_number(4) if node.has(4) else None
    if limit <= 0:
        return node.known(np.zeros((0, 3), np.int64))
    if threshold is not None:
        (exponent,) = yield from node.computed(_candidates(node.tensor(1), threshold))
        count = smallest(count, 1 << as_integer(exponent.item()))
    if batch * classes * count**2 > _MAX_PAIRS:
        raise node.rejection(f"at most {_MAX_PAIRS} pairs of boxes are compared, got {batch * classes} times {count}^2")
    changed, keeps, order, overlaps, eligible = yield from node.computed(*_ranked(node, count, threshold))
    rounds = _FIRST_ROUNDS
    while changed.item():
        more = _decided(node.expression(overlaps), node.expression(eligible), node.expression(keeps), rounds)
        changed, keeps = yield from node.computed(*more)
        rounds *= 2
    sizes = batch, classes, count
    count_of_boxes, coordinates = yield from node.computed(*_coordinates(node.expression(keeps), sizes, limit))
    total = as_integer(count_of_boxes.item())
    if not total:
        return node.known(np.zeros((0, 3), np.int64))
    where = dml.slice(node.expression(coordinates), (0, 0), (total, 3))
    boxes = directml.gather_nd1(
        reshaped(node.expression(order), sizes),
        reshaped(where, (1, total, 3)),
        input_dimension_count=3,
        indices_dimension_count=2,
    )
    named = dml.slice(where, (0, 0), (total, 2))
    return node.valued(dml.join([cast(named, DataType.INT64), cast(reshaped(boxes, (total, 1)), DataType.INT64)], 1))


def _candidates(scores: Tensor, threshold: float) -> Tensor:
    """Return the largest number of boxes above a score in any class, as ``doublings``."""
    above = cast(spread(dml.greater_than, scores, threshold), DataType.INT32)
    counts = dml.reduce(above, ReduceFunction.SUM, axes=(2,))
    return doublings(reshaped(dml.reduce(counts, ReduceFunction.MAX, axes=(0, 1)), (1,)))


def _ranked(node: OnnxNode, count: int, threshold: float | None) -> list[Tensor]:
    """Return the best boxes of each class and their overlaps, and the first rounds.

    Returns:
        Whether the last round changed any box; a mask of boxes that stay; indices of boxes {B, C, count}; a mask of
        overlaps {1, B * C, count, count} with better boxes in the columns; a mask of boxes above the score {1, B * C,
        count, 1}.
    """
    batch, classes, boxes = node.shape(1)
    scores, order = directml.top_k1(
        node.tensor(1), axis=2, k=count, axis_direction=AxisDirection.DECREASING, output_type=DataType.UINT32
    )
    order = cast(order, DataType.INT32)
    origin = sequence(order, (batch, 1, 1), DataType.INT32, 0, boxes)
    rows = taken(reshaped(node.tensor(0), (batch * boxes, 4)), reshaped(add(order, origin), (batch * classes * count,)))
    sizes = (1, batch * classes, count, 1)
    max_overlap = node.host_number(3) if node.has(3) else 0.0
    overlaps = _overlaps(rows, sizes, node.flag("center_point_box"), max_overlap)
    if threshold is None:
        eligible = dml.fill_value_constant(node.builder, sizes, DataType.FLOAT32, 1.0)
    else:
        eligible = cast(spread(dml.greater_than, reshaped(scores, sizes), threshold), DataType.FLOAT32)
    return [*_decided(overlaps, eligible, eligible, _FIRST_ROUNDS), order, overlaps, eligible]


def _overlaps(boxes: Tensor, sizes: tuple[int, ...], centered: bool, threshold: float) -> Tensor:
    """Return 1 if the box of the column comes before that of the row and overlaps it more than a threshold."""
    count = sizes[2]
    first, second = dml.split(boxes, 1, [2, 2])
    if centered:
        low, high = subtract(first, multiply(second, 0.5)), add(first, multiply(second, 0.5))
    else:
        low, high = dml.min(first, second), dml.max(first, second)
    low, high = (reshaped(corner, (sizes[1], count, 1, 2)) for corner in (low, high))
    other_low, other_high = (reshaped(corner, (sizes[1], 1, count, 2)) for corner in (low, high))
    extents = spread(
        dml.max, subtract(spread(dml.min, high, other_high), spread(dml.max, low, other_low)), number_like(low, 0.0)
    )
    shared = reshaped(dml.reduce(extents, ReduceFunction.MULTIPLY, axes=(3,)), (1, sizes[1], count, count))
    area = reshaped(dml.reduce(subtract(high, low), ReduceFunction.MULTIPLY, axes=(3,)), sizes)
    together = subtract(add(area, transposed(area, (0, 1, 3, 2))), shared)
    overlap = spread(dml.greater_than, divide(shared, together), threshold)
    numbers = sequence(low, (1, 1, count, 1), DataType.INT32)
    before = spread(dml.greater_than, numbers, transposed(numbers, (0, 1, 3, 2)))
    return cast(spread(dml.logical_and, overlap, before), DataType.FLOAT32)


def _decided(overlaps: Tensor, eligible: Tensor, keeps: Tensor, rounds: int) -> list[Tensor]:
    """Return whether the last of some rounds changed any box, and a mask of the boxes that stay."""
    before = keeps
    for _ in range(rounds):
        overlapped = spread(dml.greater_than, directml.gemm(overlaps, keeps), 0.5)
        before, keeps = keeps, multiply(eligible, cast(dml.logical_not(overlapped), DataType.FLOAT32))
    return [dml.reduce(dml.abs(subtract(keeps, before)), ReduceFunction.MAX, axes=(0, 1, 2, 3)), keeps]


def _coordinates(keeps: Tensor, sizes: tuple[int, int, int], limit: int) -> list[Tensor]:
    """Return the number and the coordinates of boxes that stay, at most ``most`` per class."""
    stays = cast(reshaped(keeps, sizes), DataType.INT32)
    rank = dml.cumulative_summation(stays, axis=2, axis_direction=AxisDirection.INCREASING, has_exclusive_sum=False)
    chosen = multiply(stays, cast(spread(dml.less_than_or_equal, rank, min(limit, 2**31 - 1)), DataType.INT32))
    nonzero = directml.nonzero_coordinates(chosen)
    return [nonzero.output_count, nonzero.output_coordinates]
