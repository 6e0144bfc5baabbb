"""Searching, sorting and sets: where elements are, in which order, and which occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dmlgpu import ops
from dmlgpu.array.operands import operand, pair, tensor
from dmlgpu.array.statistical import Axes
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.ops.searching import UniqueAll, unique_all_of
from dmlgpu.tensors.calls import NUMERIC, caller, named
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "where",
]  # fmt: skip


# ---- searching -------------------------------------------------------------------------------------------------------


def _place(function: Callable[..., Any], x: Any, axis: int | None, keepdims: bool) -> Tensor:
    return function(tensor("x", x, NUMERIC), axis, keepdims)


@named
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the largest element along an axis, the first of equal ones.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis to search; defaults to None: `x`, flattened.
        keepdims: Whether the searched axis stays, with size 1; defaults to False.

    Returns:
        Tensor of indices, int64, without the searched axis; that of the first NaN if there is one.

    Raises:
        InvalidArgument: If the dtype is not numeric, there are no elements, or the axis is out of range.

    Examples:
        >>> xp.argmax(xp.asarray([1, 3, 2])).tolist()
        1

    See also:
        `dmlgpu.ops.argmax`.
    """
    return _place(ops.argmax, x, axis, keepdims)


@named
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the smallest element along an axis, the first of equal ones.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis to search; defaults to None: `x`, flattened.
        keepdims: Whether the searched axis stays, with size 1; defaults to False.

    Returns:
        Tensor of indices, int64, without the searched axis; that of the first NaN if there is one.

    Raises:
        InvalidArgument: If the dtype is not numeric, there are no elements, or the axis is out of range.

    Examples:
        >>> xp.argmin(xp.asarray([1, 3, 2])).tolist()
        0

    See also:
        `dmlgpu.ops.argmin`.
    """
    return _place(ops.argmin, x, axis, keepdims)


@named
def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of elements along axes that are not 0 or false.

    Args:
        x: Tensor of any dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor of counts, int64.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.count_nonzero(xp.asarray([0, 5, 7])).tolist()
        2

    See also:
        `nonzero`.
    """
    return ops.count_nonzero(tensor("x", x), axis, keepdims)


@named
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the coordinates of the elements that are not 0 or false.

    Waits for `x`, because the shape of the result depends on its values.

    Args:
        x: Tensor of any dtype, rank 1 to 8.

    Returns:
        Tuple of int64 Tensors, one per axis.

    Raises:
        InvalidArgument: If `x` is a scalar.

    Examples:
        >>> [places.tolist() for places in xp.nonzero(xp.asarray([0, 5, 7]))]
        [[1, 2]]

    See also:
        `count_nonzero`, `where`.
    """
    return ops.nonzero(tensor("x", x))


@named
def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return the indices at which elements of `x2` keep `x1` sorted if they are inserted.

    Args:
        x1: Tensor of rank 1, in ascending order.
        x2: Tensor of a numeric dtype.
        side: `"left"`, the default, for the position before equal elements, `"right"` for that after them.
        sorter: Indices that sort `x1`; defaults to None, `x1` is sorted.

    Returns:
        Tensor of the shape of `x2`, int64.

    Raises:
        InvalidArgument: If `x1` has several axes, there is no common dtype, or `side` is another word.

    Examples:
        >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([3, 4])).tolist()
        [1, 2]

    See also:
        `sort`, `argsort`.
    """
    order = None if sorter is None else tensor("sorter", sorter, "integer")
    return ops.searchsorted(tensor("x1", x1, NUMERIC), tensor("x2", x2, NUMERIC), side, order)


@named
def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return elements of `x1` where the mask `condition` is true, else of `x2`.

    Args:
        condition: Bool Tensor.
        x1: Tensor or number.
        x2: Tensor or number, promoted with `x1` to a common dtype. All three shapes broadcast.

    Returns:
        Tensor of the broadcast shape and the common dtype.

    Raises:
        InvalidArgument: If `condition` is not a mask, there is no common dtype, or shapes do not broadcast.

    Examples:
        >>> xp.where(xp.asarray([True, False]), xp.asarray([1, 2]), 0).tolist()
        [1, 0]

    See also:
        `dmlgpu.ops.where`.
    """
    mask = tensor("condition", condition, "boolean")
    has_tensor = isinstance(operand("x1", x1), Tensor) or isinstance(operand("x2", x2), Tensor)
    return ops.where(mask, *(pair(x1, x2) if has_tensor else (x1, x2)))


# ---- sorting ---------------------------------------------------------------------------------------------------------


@named
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the elements along an axis in order.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis to sort; defaults to the last axis.
        descending: Whether the largest element comes first; defaults to False.
        stable: Accepted; equal elements always keep their order.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        InvalidArgument: If the dtype is not numeric, or the axis is out of range.

    Examples:
        >>> xp.sort(xp.asarray([3, 1, 2])).tolist()
        [1, 2, 3]

    See also:
        `argsort`.
    """
    argument(caller(), "stable", boolean, stable)
    return ops.sort(tensor("x", x, NUMERIC), axis, descending)


@named
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices that sort `x` along an axis.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis to sort; defaults to the last axis.
        descending: Whether the largest element comes first; defaults to False.
        stable: Accepted; equal elements always keep their order.

    Returns:
        Tensor of the shape of `x`, int64.

    Raises:
        InvalidArgument: If the dtype is not numeric, or the axis is out of range.

    Examples:
        >>> xp.argsort(xp.asarray([3, 1, 2])).tolist()
        [1, 2, 0]

    See also:
        `sort`, `take_along_axis`.
    """
    argument(caller(), "stable", boolean, stable)
    return ops.argsort(tensor("x", x, NUMERIC), axis, descending)


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
    """Return the distinct elements, their first indices, the index of each element, and counts.

    Waits for `x`, because shapes depend on its values. Each NaN is an element of its own.

    Args:
        x: Tensor of any dtype.

    Returns:
        `UniqueAll`.

    Raises:
        InvalidArgument: If `x` is not a Tensor.

    Examples:
        >>> xp.unique_all(xp.asarray([3, 1, 3])).counts.tolist()
        [1, 2]

    See also:
        `unique_values`.
    """
    return _unique(x)


@named
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements and their counts.

    Waits for `x`, because shapes depend on its values. Each NaN is an element of its own.

    Args:
        x: Tensor of any dtype.

    Returns:
        `UniqueCounts`.

    Raises:
        InvalidArgument: If `x` is not a Tensor.

    Examples:
        >>> xp.unique_counts(xp.asarray([3, 1, 3])).counts.tolist()
        [1, 2]

    See also:
        `unique_all`.
    """
    result = _unique(x)
    return UniqueCounts(result.values, result.counts)


@named
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements and the index of each element among them.

    Waits for `x`, because shapes depend on its values. Each NaN is an element of its own.

    Args:
        x: Tensor of any dtype.

    Returns:
        `UniqueInverse`.

    Raises:
        InvalidArgument: If `x` is not a Tensor.

    Examples:
        >>> xp.unique_inverse(xp.asarray([3, 1, 3])).inverse_indices.tolist()
        [1, 0, 1]

    See also:
        `unique_all`.
    """
    result = _unique(x)
    return UniqueInverse(result.values, result.inverse_indices)


@named
def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements.

    Waits for `x`, because shapes depend on its values. Each NaN is an element of its own.

    Args:
        x: Tensor of any dtype.

    Returns:
        Tensor of rank 1, in ascending order.

    Raises:
        InvalidArgument: If `x` is not a Tensor.

    Examples:
        >>> xp.unique_values(xp.asarray([3, 1, 3])).tolist()
        [1, 3]

    See also:
        `unique_all`.
    """
    return _unique(x).values
