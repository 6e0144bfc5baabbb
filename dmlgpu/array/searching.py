"""Where elements are that are extreme, not 0, or next to others in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.array.creation import zeros
from dmlgpu.array.indexing import indices_of
from dmlgpu.array.logic import isnan
from dmlgpu.array.operands import ANY, NUMERIC, both, chosen, run, tensor, word
from dmlgpu.array.statistical import Axes, reduced
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.tensors import indexing
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import checked_axis
from dmlgpu.tensors.promotion import promoted
from dmlgpu.tensors.tensor import Tensor

__all__ = ["argmax", "argmin", "count_nonzero", "nonzero", "searchsorted", "where"]


def _place(kind: type[OperatorDesc], x: Any, axis: int | None, keepdims: Any) -> Tensor:
    given = tensor("x", x, NUMERIC)
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    rank = given.ndim
    number = None if axis is None else checked_axis(caller(), "axis", axis, rank)
    flat, along = (given.reshape(-1), 0) if number is None else (given, number)
    sizes = flat.sizes[:along] + flat.sizes[along + 1 :]
    if not given.size:
        if 0 not in sizes:
            raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got {list(x.sizes)}")
        found = zeros((*sizes[:along], 1, *sizes[along:]), dtype="int64", device=given.device)
    else:
        source = flat
        if given.data_type.is_float:  # where there is NaN, the first NaN is the place
            flags = isnan(flat)._same(boolean=False)
            has_nan = run(descs.Reduce, input_tensor=flags, function=ReduceFunction.MAX, axes=(along,)) != 0
            where_nan = _first(descs.Argmax, flags, along)
            found = chosen(has_nan, where_nan, _first(kind, source, along))
        else:
            found = _first(kind, source, along)
    if number is None:
        return found._renamed((1,) * rank if keepdims else ())
    return found if keepdims else found._renamed(sizes)


def _first(kind: type[OperatorDesc], x: Tensor, axis: int) -> Tensor:
    found: Tensor = run(kind, input_tensor=x, axes=(axis,), axis_direction=0)
    return found.astype(DataType.INT64)


@named
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return where the largest number along an axis is, the first of equal ones, int64; None for all in a row.

    Raises:
        InvalidArgument: no numbers, none at all, or an axis out of range.
    """
    return _place(descs.Argmax, x, axis, keepdims)


@named
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return where the smallest number along an axis is, the first of equal ones, int64; None for all in a row.

    Raises:
        InvalidArgument: no numbers, none at all, or an axis out of range.
    """
    return _place(descs.Argmin, x, axis, keepdims)


@named
def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return how many elements along axes are not 0, or hold, int64.

    Raises:
        InvalidArgument: an axis out of range.
    """
    flags = tensor("x", x).astype("bool").astype(DataType.INT64)
    return reduced(flags, ReduceFunction.SUM, axis, keepdims, 0)


@named
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the coordinates of the elements that are not 0, or hold: int64 per dimension, looked at by the host.

    Raises:
        InvalidArgument: no dimensions.
    """
    given = tensor("x", x)
    if not given.ndim:
        raise InvalidArgument(f"{caller()}: x must have at least one dimension, got a scalar")
    found = np.nonzero(indexing.looked_at(given))
    return tuple(Tensor(one.astype(np.int64), device=given.device) for one in found)


@named
def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return before which of x1's numbers those of x2 belong so that they stay in order, int64.

    Args:
        x1: numbers in ascending order, of one dimension.
        x2: numbers.
        side: ``"left"``: before the first that is not below it; ``"right"``: behind the last that is not above it.
        sorter: integers that put x1 in order.

    Raises:
        InvalidArgument: x1 has several dimensions, no common type, or another side.
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
    high = low + count
    for _ in range(count.bit_length()):  # halves what is left between low and high
        middle = (low + high) // 2
        probed = row._taken(indices_of(chosen(middle < count, middle, middle - 1)), 0, caller())
        is_before = (probed < values) if side == "left" else (probed <= values)
        is_before = is_before & (low < high)
        low, high = chosen(is_before, middle + 1, low), chosen(is_before, high, middle)
    return low


@named
def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return elements of x1 where a condition holds, else of x2; all three broadcast.

    Raises:
        InvalidArgument: a condition of another type than bool, no common type, or sizes that do not broadcast.
    """
    held = tensor("condition", condition, "boolean")
    first, second = both(x1, x2, ANY)
    return chosen(held, first, second)
