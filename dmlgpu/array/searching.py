"""Searching, sorting and sets: where elements are, in which order, and which occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dmlgpu import ops
from dmlgpu.array.operands import both, tensor
from dmlgpu.array.statistical import Axes
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.ops.searching import UniqueAll, unique_all_of
from dmlgpu.tensors.calls import ANY, NUMERIC, caller, named
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "where",
]  # fmt: skip


# ---- searching -------------------------------------------------------------------------------------------------------


def _place(function: Callable[..., Any], x: Any, axis: int | None, keepdims: bool) -> Tensor:
    result: Tensor = function(tensor("x", x, NUMERIC), axis, keepdims)
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
    result: Tensor = ops.count_nonzero(tensor("x", x), axis, keepdims)
    return result


@named
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the coordinates of the elements that are true or not 0, an int64 tensor per axis; waits for `x`.

    Raises:
        InvalidArgument: If `x` has no axis.
    """
    return ops.nonzero(tensor("x", x))


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
    order = None if sorter is None else tensor("sorter", sorter, "integer")
    result: Tensor = ops.searchsorted(tensor("x1", x1, NUMERIC), tensor("x2", x2, NUMERIC), side, order)
    return result


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
    result: Tensor = ops.argsort(tensor("x", x, NUMERIC), axis, descending)
    return result


# ---- sets ------------------------------------------------------------------------------------------------------------


class UniqueCounts(NamedTuple):
    """Result of ``unique_counts``; see ``UniqueAll``."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Result of ``unique_inverse``; see ``UniqueAll``."""

    values: Tensor
    inverse_indices: Tensor


def _unique(x: Any) -> UniqueAll:
    return unique_all_of(tensor("x", x))


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
