"""Reductions, orders and scans along axes; softmax."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.onnx_nodes.draw import Array, Draw, NodeCase, generator, integers

_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)


@generator(*_REDUCTIONS)
def reduction(draw: Draw) -> NodeCase:
    # The logarithm of a sum of negative elements is omitted.
    low, high = (0.25, 4) if draw.op_type == "ReduceLogSum" else (-4, 4)
    # How logarithms and roots of integers are rounded is left open.
    among = ("float32", "float16", "float64") if "Log" in draw.op_type or draw.op_type == "ReduceL2" else None
    x = draw.main(low_rank=0 if draw.version >= 18 else 1, low=low, high=high, empty=0.06, among=among)
    if draw.op_type == "ReduceMean" and x.dtype.kind in "iu" and not x.size:
        x = draw.array(x.dtype.name, (2, 3))  # an integer 0 / 0 otherwise
    axes = draw.axes(x.ndim) if x.ndim and draw.chance(0.8) else None
    keepdims = draw.maybe(0, 1)
    since = 13 if draw.op_type == "ReduceSum" else 18
    reduced = range(x.ndim) if axes is None else axes
    length = math.prod(x.shape[axis] for axis in reduced)
    scale = float(4**length if draw.op_type == "ReduceProd" and length < 30 else 16 * max(1, length))
    options = {
        "keepdims": keepdims,
        "length": length,
        "scale": scale,
        "exact": draw.op_type in ("ReduceMax", "ReduceMin"),
    }
    if draw.version < since:
        return draw.case(x, axes=axes, **options)
    if axes is None and draw.chance(0.3):
        axes = []
        options["noop_with_empty_axes"] = draw.maybe(0, 1)
    elif axes is None:
        options["noop_with_empty_axes"] = draw.maybe(0, 1, probability=0.3)
    return draw.case(x, None if axes is None else integers(*axes), **options)


@generator("ArgMax", "ArgMin")
def arg_reduction(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, empty=0)
    last = draw.maybe(0, 1) if draw.version >= 12 else None
    return draw.case(x, axis=draw.maybe(draw.axis(x.ndim)), keepdims=draw.maybe(0, 1), select_last_index=last)


@generator("CumSum", "CumProd")
def cumulative(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, low=-2, high=2)
    axis = np.array(draw.axis(x.ndim), draw.pick("int32", "int64"))
    return draw.case(
        x,
        axis,
        exclusive=draw.maybe(0, 1),
        reverse=draw.maybe(0, 1),
        length=max(x.shape),
        scale=2.0 ** min(40, max(x.shape)) if draw.op_type == "CumProd" else 16.0,
    )


@generator("Softmax", "LogSoftmax", "Hardmax")
def softmax(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.axis(x.ndim) if draw.version >= 11 else draw.integer(0, x.ndim - 1)
    return draw.case(x, axis=axis if draw.chance(0.7) or (draw.version < 13 and x.ndim < 2) else None, length=x.size)


def _distinct(draw: Draw, array: Array) -> Array:
    """The array with different elements along every axis: the order of equal ones is only defined for some."""
    order = draw.numbers.permutation(array.size).reshape(array.shape)
    return order.astype(array.dtype)


@generator("TopK")
def top_k(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, accept=lambda array: False)
    x = _distinct(draw, x) if draw.chance(0.5) else x
    axis = draw.axis(x.ndim)
    k = draw.integer(0 if draw.chance(0.1) else min(1, x.shape[axis]), x.shape[axis])
    given_axis = axis if axis not in (-1, x.ndim - 1) or draw.chance(0.5) else None
    if draw.version < 10:
        return draw.case(x, k=k, axis=given_axis, outputs=2, exact=True)
    # Unsorted results come in any order.
    options = {"largest": draw.maybe(0, 1), "sorted": draw.maybe(1)} if draw.version >= 11 else {}
    return draw.case(x, integers(k), axis=given_axis, outputs=2, exact=True, **options)


@generator("Unique")
def unique(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, high_rank=3, low=-2, high=2, empty=0.02)
    axis = draw.axis(x.ndim) if draw.chance(0.5) else None
    return draw.case(x, axis=axis, sorted=draw.maybe(0, 1), outputs=draw.integer(1, 4), exact=True)


@generator("NonZero")
def non_zero(draw: Draw) -> NodeCase:
    return draw.case(draw.main(low=-1, high=1, low_rank=1), exact=True)
