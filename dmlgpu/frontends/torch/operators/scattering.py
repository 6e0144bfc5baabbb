"""Scatter and gather: elements written, combined and read at a tensor of indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dmlgpu import ops
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.torch.dtypes import cast, dtype_of, number_as
from dmlgpu.frontends.torch.operators.reductions import axes_of, shifted, with_axis
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.tensor import Tensor

_IF = directml.element_wise_if

DENSE_LIMIT = 1 << 20
"""Largest number of pairs of an update and a place that are compared with each other; more updates are sorted."""


@dataclass(frozen=True)
class ScatterReduction:
    """A way to combine updates of the same element.

    Attributes:
        function: Reduction of many.
        combine: Function of two.
        neutral: Returns the number that changes nothing, by dtype.
    """

    function: ReduceFunction
    combine: Callable[[Any, Any], Any]
    neutral: Callable[[torch.dtype], Any]


def _lowest(dtype: torch.dtype) -> Any:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> Any:
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


COMBINATIONS = {
    "sum": ScatterReduction(ReduceFunction.SUM, directml.element_wise_add, lambda dtype: 0),
    "prod": ScatterReduction(ReduceFunction.MULTIPLY, directml.element_wise_multiply, lambda dtype: 1),
    "amax": ScatterReduction(ReduceFunction.MAX, directml.element_wise_max, _lowest),
    "amin": ScatterReduction(ReduceFunction.MIN, directml.element_wise_min, _highest),
}


def _along(x: Any, axis: int, begin: int | None, end: int | None) -> Any:
    return x[(*[slice(None)] * axis, slice(begin, end))]


def collected(updates: Any, index: Any, axis: int, extent: int, combination: ScatterReduction) -> Any:
    """Return updates combined by their index along an axis; the neutral number for an index without updates.

    Args:
        updates: Tensor whose size along the axis is the number of updates.
        index: Tensor of indices from 0 on, of the rank of ``updates``, which broadcasts to it; those that are not
            below ``extent`` are dropped.
        axis: The axis.
        extent: Size of the result along the axis.
        combination: The way updates are combined.
    """
    neutral = combination.neutral(dtype_of(updates))
    if updates.size * extent <= DENSE_LIMIT and updates.ndim < 8:
        places = ops.arange(extent, dtype=index.data_type, device=updates.device)
        places = places.reshape((extent,) + (1,) * (updates.ndim - axis))
        chosen = directml.element_wise_logical_equals(index.expand_dims(axis), places)
        spread = _IF(chosen, updates.expand_dims(axis), neutral)
        return reduced(spread, combination.function, (axis + 1,), False)
    return _collected_in_order(updates, index, axis, extent, combination)


def _collected_in_order(updates: Any, index: Any, axis: int, extent: int, combination: ScatterReduction) -> Any:
    """Sort updates by index, combine equal neighbors over doubling distances, and write the last of each index."""
    count = updates.sizes[axis]
    index, order = directml.top_k1(index, axis=axis, k=count, axis_direction=AxisDirection.INCREASING)
    neutral = combination.neutral(dtype_of(updates))
    updates = directml.gather_elements(updates, order.broadcast_to(updates.sizes), axis=axis)
    distance = 1
    while distance < count:
        is_same = shifted(index, axis, distance, -1) == index
        earlier = shifted(updates, axis, distance, neutral)
        updates = _IF(is_same, combination.combine(earlier, updates), updates)
        distance *= 2
    sizes = (*updates.sizes[:axis], extent, *updates.sizes[axis + 1 :])
    if count > 1:
        is_last = _along(index, axis, 1, None) != _along(index, axis, None, -1)
        end = _along(index, axis, -1, None)
        index = ops.concatenate([_IF(is_last, _along(index, axis, None, -1), extent), end], axis)
    target = ops.full(sizes, neutral, dtype=updates.data_type, device=updates.device)
    return directml.scatter_elements(target, index.broadcast_to(updates.sizes), updates, axis=axis)


def combined(x: Any, axis: int, index: Any, updates: Any, reduce: str, include_self: bool = True) -> Any:
    """Return a tensor whose elements are combined with updates, by index along an axis.

    Args:
        x: Tensor of the sizes of ``updates`` but for the axis.
        axis: The axis.
        index: Indices from 0 on, which broadcast to ``updates``.
        updates: Elements to combine, of the dtype of ``x``.
        reduce: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        include_self: Whether elements of ``x`` that have updates count as well.
    """
    if not updates.size or not x.size:
        return x
    if x.is_boolean:
        wide = combined(cast(x, torch.int32), axis, index, cast(updates, torch.int32), reduce, include_self)
        return cast(wide, torch.bool)
    if index.data_type is not DataType.INT32:
        index = index.astype(DataType.INT32)
    extent = x.sizes[axis]
    if x.data_type.is_reduced_float and reduce not in ("amax", "amin"):
        wide = combined(widened(x), axis, index, widened(updates), reduce, include_self)
        return wide.astype(x.data_type)
    combination = COMBINATIONS["sum" if reduce == "mean" else reduce]
    total = collected(updates, index, axis, extent, combination)
    if include_self and reduce != "mean":
        return combination.combine(x, total)
    ones = ops.ones(updates.sizes, dtype="int32", device=x.device)
    counts = collected(ones, index, axis, extent, COMBINATIONS["sum"])
    is_hit = counts > 0
    if reduce == "mean":
        if include_self:
            total, counts = total + x, counts + 1
        divisor = _IF(counts > 0, counts, 1).astype(x.data_type)
        total = directml.element_wise_divide(total, divisor) if x.data_type.is_float else total // divisor
    return _IF(is_hit, total, x)


# ---- along an axis, one index per element ----------------------------------------------------------------------------


def _corner(x: Any, sizes: tuple[int, ...], axis: int | None = None) -> Any:
    """Return the first elements along every axis but one."""
    return x[tuple(slice(None) if index == axis else slice(0, size) for index, size in enumerate(sizes))]


def _with_corner(x: Any, part: Any) -> Any:
    """Return a tensor whose first elements along every axis are those of another."""
    if part.sizes == x.sizes:
        return part
    missing = [(0, size - count) for size, count in zip(x.sizes, part.sizes, strict=True)]
    mask = ops.ones(part.sizes, dtype="uint8", device=x.device)
    mask, part = ops.pad(mask, missing), ops.pad(part._same(boolean=False), missing)
    return _IF(mask._same(boolean=True), part._same(boolean=x.is_boolean), x)


@aten("gather")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not index.size:
        return x._nothing(index.sizes)
    rows, places = with_axis(x), with_axis(index)
    axis = axes_of(rows, dim)[0]
    result = directml.gather_elements(_corner(rows, places.sizes, axis), places, axis=axis)
    return result._same(boolean=x.is_boolean).reshape(index.sizes)


def _scattered(x: Any, dim: int, index: Any, updates: Any, combine: Callable[..., Any]) -> Any:
    """Combine the corner of a tensor that indices cover with updates."""
    if not index.size:
        return x
    rows, places, parts = with_axis(x), with_axis(index), with_axis(updates)
    axis = axes_of(rows, dim)[0]
    corner = _corner(rows, places.sizes, axis)
    result = combine(corner, axis, places, _corner(parts, places.sizes))
    return _with_corner(rows, result).reshape(x.sizes)


def _write(corner: Any, axis: int, places: Any, parts: Any) -> Any:
    return directml.scatter_elements(corner, places, parts, axis=axis)._same(boolean=corner.is_boolean)


def _value(x: Any, index: Any, value: Any) -> Any:
    """Return a number as a tensor of the sizes of an index and the dtype of another tensor."""
    kind = "bool" if x.is_boolean else x.data_type
    if isinstance(value, Tensor):
        return cast(value, dtype_of(x)).broadcast_to(index.sizes)
    return ops.full(index.sizes, number_as(value, dtype_of(x)), dtype=kind, device=x.device)


@aten("scatter.src", fused=True)
def scatter(x: Any, dim: int, index: Any, src: Any) -> Any:
    return _scattered(x, dim, index, src, _write)


@aten("scatter.value", fused=True)
def scatter_value(x: Any, dim: int, index: Any, value: Any) -> Any:
    return scatter(x, dim, index, _value(x, index, value))


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@aten("scatter_reduce.two")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    def combine(corner: Any, axis: int, places: Any, parts: Any) -> Any:
        return combined(corner, axis, places, parts, reduce, include_self)

    return _scattered(x, dim, index, src, combine)


@aten("scatter_add", fused=True)
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    return scatter_reduce(x, dim, index, src, "sum")


@aten("scatter.reduce")
def scatter_with_reduction(x: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    return scatter_reduce(x, dim, index, src, _REDUCTIONS[reduce])


@aten("scatter.value_reduce")
def scatter_value_with_reduction(x: Any, dim: int, index: Any, value: Any, *, reduce: str) -> Any:
    return scatter_reduce(x, dim, index, _value(x, index, value), _REDUCTIONS[reduce])


# ---- slices along an axis, one index per slice -----------------------------------------------------------------------


def _row_index(index: Any, axis: int, rank: int, extent: int) -> Any:
    """Return indices of slices in the rank of the tensor, none of them negative."""
    places = index.reshape((1,) * axis + (index.size,) + (1,) * (rank - axis - 1))
    places = places.astype(DataType.INT32)
    return _IF(places < 0, places + extent, places)


def _rows(x: Any, dim: int, index: Any, source: Any) -> tuple[Any, int, Any, Any]:
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    sizes = (*rows.sizes[:axis], index.size, *rows.sizes[axis + 1 :])
    updates = source.reshape(sizes) if source.size == math.prod(sizes) else source.broadcast_to(sizes)
    return rows, axis, _row_index(index, axis, rows.ndim, rows.sizes[axis]), updates


@aten("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    if index.ndim > 1:
        raise Unsupported(f"index must be a vector, got {index.ndim} dimensions")
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    places = with_axis(index)
    sizes = (*rows.sizes[:axis], places.size, *rows.sizes[axis + 1 :])
    if 0 in sizes:
        return rows._nothing(sizes)
    result = rows._taken(places, axis, "index_select")
    return result._same(boolean=x.is_boolean).reshape(sizes if x.ndim else ())


@aten("index_add", fused=True)
def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if not index.size or not x.size:
        return x
    rows, axis, places, updates = _rows(x, dim, index, source)
    updates = updates if not isinstance(alpha, Tensor) and alpha == 1 else cast(updates * alpha, dtype_of(x))
    return combined(rows, axis, places, updates, "sum").reshape(x.sizes)


@aten("index_reduce")
def index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    if not index.size or not x.size:
        return x
    rows, axis, places, updates = _rows(x, dim, index, source)
    return combined(rows, axis, places, updates, reduce, include_self).reshape(x.sizes)


@aten("index_copy", fused=True)
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    if not index.size or not x.size:
        return x
    rows, axis, places, updates = _rows(x, dim, index, source)
    return _write(rows, axis, places.broadcast_to(updates.sizes), updates).reshape(x.sizes)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    """Fill slices: a mask along the axis marks them."""
    if not index.size or not x.size:
        return x
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    extent = rows.sizes[axis]
    places = index.reshape(1, index.size).astype(DataType.INT32)
    places = _IF(places < 0, places + extent, places)
    counted = ops.arange(extent, dtype="int32", device=x.device).reshape(extent, 1)
    is_filled = ops.any(places == counted, axis=1).reshape((extent,) + (1,) * (rows.ndim - axis - 1))
    dtype = dtype_of(x)
    value = cast(value, dtype) if isinstance(value, Tensor) else number_as(value, dtype)
    return _IF(is_filled, value, rows)._same(boolean=x.is_boolean).reshape(x.sizes)


# ---- all elements as a row -------------------------------------------------------------------------------------------


@aten("take")
def take(x: Any, index: Any) -> Any:
    if not index.size:
        return x._nothing(index.sizes)
    places = index.reshape(-1)
    return x.reshape(-1)._taken(places, 0, "take")._same(boolean=x.is_boolean).reshape(index.sizes)


@aten("put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    if not index.size:
        return x
    flat = x.reshape(-1)
    places, updates = _row_index(index, 0, 1, flat.size), source.reshape(-1)
    result = combined(flat, 0, places, updates, "sum") if accumulate else _write(flat, 0, places, updates)
    return result.reshape(x.sizes)


@aten("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """Write the next element of a source wherever a mask holds; a source without elements goes with an empty mask."""
    sizes = broadcast_sizes("masked_scatter", [("self", x.sizes), ("mask", mask.sizes)])
    x, mask = x.broadcast_to(sizes), mask.broadcast_to(sizes)
    if not x.size or not source.size:
        return x
    numbers = ops.cumsum(mask.reshape(-1).astype(DataType.INT32), axis=0)
    places = ops.clip(numbers - 1, 0, source.size - 1)
    values = source.reshape(-1)._taken(places, 0, "masked_scatter").reshape(sizes)
    return _IF(mask, values._same(boolean=x.is_boolean), x)
