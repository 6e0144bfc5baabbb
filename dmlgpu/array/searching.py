"""Searching, sorting and sets: where elements are, in which order, and which occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlgpu import ops
from dmlgpu.array.creation import zeros
from dmlgpu.array.operands import ANY, NUMERIC, both, tensor, word
from dmlgpu.array.statistical import Axes, contains_nan, reduced
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops.reductions import ordered
from dmlgpu.tensors import indexing
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "where",
]  # fmt: skip


def indices_of(x: Tensor) -> Tensor:
    """Return integers as GATHER takes them: of at least 32 bits."""
    return x if x.data_type.bits >= 32 else x.astype(DataType.INT32)


# ---- searching -------------------------------------------------------------------------------------------------------


def _place(function: Callable[..., Any], x: Any, axis: int | None, keepdims: bool) -> Tensor:
    """Return indices of extremes, int64; that of the first NaN if there is one."""
    operand = tensor("x", x, NUMERIC)
    places: Tensor = function(operand, axis, keepdims).astype(DataType.INT64)
    if not operand.data_type.is_float or not operand.size:
        return places
    first_nan = ops.argmax(ops.isnan(operand)._same(boolean=False), axis, keepdims).astype(DataType.INT64)
    result: Tensor = ops.where(contains_nan(operand, axis, keepdims), first_nan, places)
    return result


@named
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the largest element along an axis, the first of equal ones, int64; None means all, flattened.

    Raises:
        InvalidArgument: If the dtype is not numeric, there is no element, or an axis is out of range.
    """
    return _place(ops.argmax, x, axis, keepdims)


@named
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the smallest element along an axis, the first of equal ones, int64; see ``argmax``."""
    return _place(ops.argmin, x, axis, keepdims)


@named
def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of elements along axes that are true or not 0, int64.

    Raises:
        InvalidArgument: If an axis is out of range.
    """
    flags = tensor("x", x).astype("bool").astype(DataType.INT64)
    return reduced(flags, ReduceFunction.SUM, axis, keepdims)


@named
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the coordinates of the elements that are true or not 0, an int64 tensor per axis; waits for `x`.

    Raises:
        InvalidArgument: If `x` has no axis.
    """
    operand = tensor("x", x)
    if not operand.ndim:
        raise InvalidArgument(f"{caller()}: x must have at least one dimension, got a scalar")
    coordinates = np.nonzero(indexing.looked_at(operand))
    return tuple(Tensor(places.astype(np.int64), device=operand.device) for places in coordinates)


@named
def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return the index in `x1` before which each element of `x2` keeps the order, int64.

    Args:
        x1: Numbers in ascending order, rank 1.
        x2: Numbers.
        side: ``"left"``: before the first element that is not below; ``"right"``: after the last that is not above.
        sorter: Indices that sort `x1`.

    Raises:
        InvalidArgument: If `x1` has several axes, there is no common dtype, or ``side`` is another word.
    """
    side = word("side", side, ("left", "right"))
    row, values = promoted(caller(), {"x1": tensor("x1", x1, NUMERIC), "x2": tensor("x2", x2, NUMERIC)})
    if row.ndim != 1:
        raise InvalidArgument(f"{caller()}: x1 must have one dimension, got {row.ndim}")
    if sorter is not None:
        row = row._taken(indices_of(tensor("sorter", sorter, "integer")), 0, caller())
    count = row.size
    low = zeros(values.sizes, dtype="int64", device=values.device)
    if not count or not values.size:
        return low
    high: Tensor = low + count
    for _ in range(count.bit_length()):  # bisects between low and high
        middle = (low + high) // 2
        probed = row._taken(indices_of(ops.where(middle < count, middle, middle - 1)), 0, caller())
        is_before = (probed < values) if side == "left" else (probed <= values)
        is_before = is_before & (low < high)
        low, high = ops.where(is_before, middle + 1, low), ops.where(is_before, high, middle)
    return low


@named
def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return elements of `x1` where the mask ``condition`` holds, else of `x2`; all three broadcast.

    Raises:
        InvalidArgument: If ``condition`` is not a mask, there is no common dtype, or shapes do not broadcast.
    """
    mask = tensor("condition", condition, "boolean")
    result: Tensor = ops.where(mask, *both(x1, x2, ANY))
    return result


# ---- sorting ---------------------------------------------------------------------------------------------------------


@named
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the elements along an axis in order; equal ones keep theirs, ``stable`` or not.

    Raises:
        InvalidArgument: If the dtype is not numeric, or an axis is out of range.
    """
    argument(caller(), "stable", boolean, stable)
    result: Tensor = ops.sort(tensor("x", x, NUMERIC), axis, descending)
    return result


@named
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices that sort along an axis, int64; see ``sort``."""
    argument(caller(), "stable", boolean, stable)
    result: Tensor = ops.argsort(tensor("x", x, NUMERIC), axis, descending).astype(DataType.INT64)
    return result


# ---- sets ------------------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """Result of ``unique_all``.

    Attributes:
        values: Elements that occur, in ascending order.
        indices: Index of the first occurrence of each, int64.
        inverse_indices: Index of each element among ``values``, int64.
        counts: Number of occurrences of each, int64.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Result of ``unique_counts``; see ``UniqueAll``."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Result of ``unique_inverse``; see ``UniqueAll``."""

    values: Tensor
    inverse_indices: Tensor


def _unique(x: Any) -> UniqueAll:
    """Sort, mark the first of equal neighbors, and number what is marked."""
    operand = tensor("x", x)
    flat = operand.reshape(-1)
    if not flat.size:
        nothing = flat._nothing((0,))
        places = nothing.astype(DataType.INT64)
        return UniqueAll(nothing, places, places._same()._renamed(operand.sizes), places._same())
    values, order = ordered(flat._same(boolean=False))
    order = order.astype(DataType.INT64)
    if flat.size == 1:
        is_first = np.ones(1, bool)
    else:
        is_first = np.concatenate([[True], indexing.looked_at(values[1:] != values[:-1])])
    begins = np.flatnonzero(is_first)
    device = operand.device
    starts = Tensor(begins.astype(np.int64), device=device)
    ranks = Tensor(np.cumsum(is_first) - 1, device=device)
    back = ordered(order).indices.astype(DataType.INT64)
    return UniqueAll(
        values._taken(starts, 0, "unique")._same(boolean=operand.is_boolean),
        order._taken(starts, 0, "unique"),
        ranks._taken(back, 0, "unique")._renamed(operand.sizes),
        Tensor(np.diff(np.append(begins, flat.size)).astype(np.int64), device=device),
    )


@named
def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the elements that occur, their first indices, the index of each element, and counts.

    Each NaN is an element of its own. Waits for `x`, since shapes depend on its values.
    """
    return _unique(x)


@named
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the elements that occur and their counts; see ``unique_all``."""
    result = _unique(x)
    return UniqueCounts(result.values, result.counts)


@named
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the elements that occur and the index of each element among them; see ``unique_all``."""
    result = _unique(x)
    return UniqueInverse(result.values, result.inverse_indices)


@named
def unique_values(x: Tensor, /) -> Tensor:
    """Return the elements that occur; see ``unique_all``."""
    return _unique(x).values
