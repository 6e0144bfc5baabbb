"""NonMaxSuppression: boxes that overlap better ones are left out."""

from __future__ import annotations

from functools import partial

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.onnx.compose import (
    add,
    cast,
    divide,
    doublings,
    multiply,
    number_like,
    sequence,
    spread,
    subtract,
    taken,
)
from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

_MOST_PAIRS = 2**28
"""Most pairs of boxes that are compared."""

_FIRST_ROUNDS = 8


@operator("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> Value:
    """Return batch, class and number of the boxes that no better box of their class overlaps too much.

    Only boxes above the score are compared, so many as the class with the most of them has, up to a power of 2. A box
    stays unless one before it stays and overlaps it: all boxes are decided in rounds at once, until a round changes
    none, which it reports to the host.
    """
    for number in (0, 1):
        node.check_rank(number, 3)
    batch, classes, count = node.shape(1)
    if node.shape(0) != (batch, count, 4):
        raise node.refusal(f"boxes must have shape {[batch, count, 4]}, got {list(node.shape(0))}")
    most = node.host_integer(2) if node.has(2) else 0
    threshold = node.host_number(4) if node.has(4) else None
    if most <= 0:
        return node.known(np.zeros((0, 3), np.int64))
    if threshold is not None:
        above = float(threshold)
        (found,) = node.finish(lambda: [_candidates(node.tensor(1), above)])
        count = min(count, 1 << int(node.read(found).reshape(-1)[0]))
    if batch * classes * count**2 > _MOST_PAIRS:
        raise node.refusal(f"at most {_MOST_PAIRS} pairs of boxes are compared, got {batch * classes} times {count}^2")
    order, overlaps, wanted, keeps, changed = node.finish(lambda: _ranked(node, count, threshold))
    rounds = _FIRST_ROUNDS
    while node.read(changed).reshape(-1)[0]:
        keeps, changed = node.finish(partial(_go_on, node, overlaps, wanted, keeps, rounds))
        rounds *= 2
    sizes = batch, classes, count
    number_found, places = node.finish(lambda: _places(node.expression(keeps), sizes, most))
    total = int(node.read(number_found).reshape(-1)[0])
    if not total:
        return node.known(np.zeros((0, 3), np.int64))
    where = dml.slice(node.expression(places), (0, 0), (total, 3))
    boxes = functions.gather_nd1(
        reshaped(node.expression(order), sizes),
        reshaped(where, (1, total, 3)),
        input_dimension_count=3,
        indices_dimension_count=2,
    )
    named = dml.slice(where, (0, 0), (total, 2))
    return node.valued(dml.join([cast(named, DataType.INT64), cast(reshaped(boxes, (total, 1)), DataType.INT64)], 1))


def _candidates(scores: Expression, threshold: float) -> Expression:
    """Return how many boxes the class with the most of them has above a score, as ``doublings``."""
    above = cast(spread(dml.greater_than, scores, threshold), DataType.INT32)
    counts = dml.reduce(above, ReduceFunction.SUM, axes=(2,))
    return doublings(reshaped(dml.reduce(counts, ReduceFunction.MAX, axes=(0, 1)), (1,)))


def _ranked(node: Node, count: int, threshold: float | None) -> list[Expression]:
    """Return the best boxes of each class and their overlaps, and the first rounds.

    Returns:
        Numbers of boxes {B, C, count}; which overlap which, {1, B * C, count, count}, from better ones in the columns;
        which are above the score, {1, B * C, count, 1}; which stay; whether the last round changed any.
    """
    batch, classes, boxes = node.shape(1)
    scores, order = functions.top_k1(
        node.tensor(1), axis=2, k=count, axis_direction=AxisDirection.DECREASING, output_type=DataType.UINT32
    )
    order = cast(order, DataType.INT32)
    origin = sequence(order, (batch, 1, 1), DataType.INT32, 0, boxes)
    rows = taken(reshaped(node.tensor(0), (batch * boxes, 4)), reshaped(add(order, origin), (batch * classes * count,)))
    sizes = (1, batch * classes, count, 1)
    most_overlap = node.host_number(3) if node.has(3) else 0.0
    overlaps = _overlaps(rows, sizes, node.flag("center_point_box"), most_overlap)
    if threshold is None:
        wanted = dml.fill_value_constant(node.builder, sizes, DataType.FLOAT32, 1.0)
    else:
        wanted = cast(spread(dml.greater_than, reshaped(scores, sizes), threshold), DataType.FLOAT32)
    return [order, overlaps, wanted, *_decided(overlaps, wanted, wanted, _FIRST_ROUNDS)]


def _overlaps(boxes: Expression, sizes: tuple[int, ...], centred: bool, threshold: float) -> Expression:
    """Return 1 where the box of the column comes before that of the row and overlaps it more than a threshold."""
    count = sizes[2]
    first, second = dml.split(boxes, 1, [2, 2])
    if centred:
        low, high = subtract(first, multiply(second, 0.5)), add(first, multiply(second, 0.5))
    else:
        low, high = dml.min(first, second), dml.max(first, second)
    low, high = (reshaped(one, (sizes[1], count, 1, 2)) for one in (low, high))
    other_low, other_high = (reshaped(one, (sizes[1], 1, count, 2)) for one in (low, high))
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


def _go_on(node: Node, overlaps: Value, wanted: Value, keeps: Value, rounds: int) -> list[Expression]:
    return _decided(node.expression(overlaps), node.expression(wanted), node.expression(keeps), rounds)


def _decided(overlaps: Expression, wanted: Expression, keeps: Expression, rounds: int) -> list[Expression]:
    """Return which boxes stay after rounds, and whether the last round changed any."""
    before = keeps
    for _ in range(rounds):
        overlapped = spread(dml.greater_than, functions.gemm(overlaps, keeps), 0.5)
        before, keeps = keeps, multiply(wanted, cast(dml.logical_not(overlapped), DataType.FLOAT32))
    return [keeps, dml.reduce(dml.abs(subtract(keeps, before)), ReduceFunction.MAX, axes=(0, 1, 2, 3))]


def _places(keeps: Expression, sizes: tuple[int, int, int], most: int) -> list[Expression]:
    """Return count and coordinates of boxes that stay, at most so many of a class."""
    kept = cast(reshaped(keeps, sizes), DataType.INT32)
    rank = dml.cumulative_summation(kept, axis=2, axis_direction=AxisDirection.INCREASING, has_exclusive_sum=False)
    limit = min(most, sizes[2])
    chosen = multiply(kept, cast(spread(dml.less_than_or_equal, rank, limit), DataType.INT32))
    found = functions.nonzero_coordinates(chosen)
    return [found.output_count, found.output_coordinates]
