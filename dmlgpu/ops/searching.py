"""Searching and counting of elements: any, all, nonzero, searchsorted, unique."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import Axes, counted, ordered, reduced
from dmlgpu.ops.shape import indices_of
from dmlgpu.tensors import indexing
from dmlgpu.tensors.calls import NUMERIC, Array, Operand, Where, caller, check_kind, eager, filled, tensor_of, word
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = ["all", "any", "count_nonzero", "nonzero", "searchsorted", "unique"]

# ---- conditions ------------------------------------------------------------------------------------------------------


@eager
def all(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return whether all elements along axes are true or not 0.

    Args:
        x: Tensor or array; NaN counts as true.
        axis: Axis or axes to reduce; negative axes count from the end, None means all.
        keepdims: Whether reduced axes stay, with size 1.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Mask (an array if `x` is one); true if there are no elements.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.all([[1, 2], [0, 3]], axis=1)
        array([ True, False])

    See also:
        `any`, `logical_and`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MIN.
    """
    return _condition(tensor_of("x", x), ReduceFunction.MIN, axis, keepdims, 1)


@eager
def any(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return whether any element along axes is true or not 0.

    Args:
        x: Tensor or array; NaN counts as true.
        axis: Axis or axes to reduce; negative axes count from the end, None means all.
        keepdims: Whether reduced axes stay, with size 1.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Mask (an array if `x` is one); false if there are no elements.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.any([[0, 2], [0, 0]], axis=1)
        array([ True, False])

    See also:
        `all`, `logical_or`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX.
    """
    return _condition(tensor_of("x", x), ReduceFunction.MAX, axis, keepdims, 0)


def _condition(x: Tensor, function: ReduceFunction, axis: Axes, keepdims: bool, empty_value: int) -> Tensor:
    flags = x.astype("bool")._same(boolean=False)
    return reduced(flags, function, axis, keepdims, empty_value)._same(boolean=True)


@eager
def count_nonzero(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the number of elements along axes that are true or not 0.

    Args:
        x: Tensor or array; NaN counts.
        axis: Axis or axes to reduce; negative axes count from the end, None means all.
        keepdims: Whether reduced axes stay, with size 1.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of int64 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.count_nonzero([0, 5, 7])
        array(2)

    See also:
        `nonzero`, `sum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`).
    """
    return counted(tensor_of("x", x).astype("bool"), axis, keepdims)


# ---- searching -------------------------------------------------------------------------------------------------------


@eager
def nonzero(x: Operand, *, device: Where = None) -> tuple[Array, ...]:
    """Return the coordinates of the elements that are true or not 0; waits for `x`, since shapes depend on its values.

    Args:
        x: Tensor or array of rank 1 to 8.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        A tensor of int64 per axis (arrays if `x` is one), in row-major order of the elements.

    Raises:
        InvalidArgument: If `x` has no axis.
        InvalidState: If a function is being traced.

    Examples:
        >>> ops.nonzero([[0, 5], [7, 0]])
        (array([0, 1]), array([1, 0]))

    See also:
        `where`, `count_nonzero`.
    """
    tensor = tensor_of("x", x)
    if not tensor.ndim:
        raise InvalidArgument(f"{caller()}: x must have at least one dimension, got a scalar")
    coordinates = np.nonzero(indexing.looked_at(tensor))
    return tuple(Tensor(places.astype(np.int64), device=tensor.device) for places in coordinates)


@eager
def searchsorted(
    x1: Operand, x2: Operand, side: str = "left", sorter: Operand | None = None, *, device: Where = None
) -> Array:
    """Return the index in `x1` before which each element of `x2` keeps the order.

    Args:
        x1: Tensor or array of numbers in ascending order, NaN last, rank 1.
        x2: Tensor or array of numbers.
        side: ``"left"``: before the first element that is not below; ``"right"``: after the last that is not above.
        sorter: Integer indices that sort `x1`.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of int64 of the shape of `x2` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If `x1` has several axes, there is no common dtype, ``side`` is another word, or an index of a
            ``sorter`` that is an array or a list is out of range.

    Examples:
        >>> ops.searchsorted([1, 3, 5], [3, 4])
        array([1, 2])

    See also:
        `sort`, `argsort`.

    Computed by GATHER (`ns-directml-dml_gather_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    side = word("side", side, ("left", "right"))
    operands = {"x1": tensor_of("x1", x1), "x2": tensor_of("x2", x2)}
    row, values = promoted(caller(), {name: check_kind(name, x, NUMERIC) for name, x in operands.items()})
    if row.ndim != 1:
        raise InvalidArgument(f"{caller()}: x1 must have one dimension, got {row.ndim}")
    if sorter is not None:
        row = row._taken(indices_of("sorter", sorter, row, 0), 0, caller())
    count = row.size
    low = filled(values, values.sizes, data_type=DataType.INT64)
    if not count or not values.size:
        return low
    high: Tensor = low + count
    for _ in range(count.bit_length()):  # bisects between low and high
        middle = (low + high) // 2
        probed = row._taken(middle._chosen(middle < count, middle - 1), 0, caller())
        is_before = (probed < values) if side == "left" else (probed <= values)
        is_before = is_before & (low < high)
        low, high = (middle + 1)._chosen(is_before, low), high._chosen(is_before, middle)
    if row.data_type.is_float:  # NaN is last in the row, and compares as false
        end = counted(~_is_nan(row), None, False) if side == "left" else low._beside(np.asarray(count, np.int64))
        low = end._chosen(_is_nan(values), low)
    return low


def _is_nan(x: Tensor) -> Tensor:
    return directml.element_wise_is_nan(x)


# ---- sets ------------------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """Elements that occur.

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


@eager
def unique(
    x: Operand,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    equal_nan: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the elements that occur, in ascending order; waits for `x`, since shapes depend on its values.

    Args:
        x: Tensor or array, read as if it had one axis.
        return_index: Whether to return the index of the first occurrence of each, too.
        return_inverse: Whether to return the index of each element of `x` among the results, of the shape of `x`.
        return_counts: Whether to return the number of occurrences of each.
        equal_nan: Whether all NaN are one element, as in NumPy; defaults to False, each is an element of its own, as in
            PyTorch.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of rank 1 and the dtype of `x` (an array if `x` is one). If indices, inverse or counts are requested, a
        tuple of it and of these as int64. NaN is last.

    Raises:
        InvalidState: If a function is being traced.

    Examples:
        >>> ops.unique([3, 1, 3], return_counts=True)
        (array([1, 3]), array([1, 2]))

    See also:
        `sort`; `dmlgpu.array.unique_all`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`).
    """
    parts = unique_all_of(tensor_of("x", x), argument(caller(), "equal_nan", boolean, equal_nan))
    options = {"return_index": return_index, "return_inverse": return_inverse, "return_counts": return_counts}
    chosen = [argument(caller(), name, boolean, value) for name, value in options.items()]
    others = [part for part, is_chosen in zip(parts[1:], chosen, strict=True) if is_chosen]
    return (parts.values, *others) if others else parts.values


def unique_all_of(x: Tensor, equal_nan: bool = False) -> UniqueAll:
    """Sort, mark the first of equal neighbors, and number the marked elements."""
    flat = x.reshape(-1)
    if not flat.size:
        nothing = flat._nothing((0,))
        places = nothing.astype(DataType.INT64)
        return UniqueAll(nothing, places, places._same()._renamed(x.sizes), places._same())
    ordering: Any = ordered(flat._same(boolean=False))
    values, order = ordering.values, ordering.indices.astype(DataType.INT64)
    if flat.size == 1:
        is_first = np.ones(1, bool)
    else:
        differs = values[1:] != values[:-1]
        if equal_nan and values.data_type.is_float:  # NaN differs from NaN, and none comes before a number
            differs = differs & ~_is_nan(values[:-1])
        is_first = np.concatenate([[True], indexing.looked_at(differs)])
    begins = np.flatnonzero(is_first)
    device = x.device
    starts = Tensor(begins.astype(np.int64), device=device)
    ranks = Tensor(np.cumsum(is_first) - 1, device=device)
    back = ordered(order).indices.astype(DataType.INT64)
    return UniqueAll(
        values._taken(starts, 0, caller())._same(boolean=x.is_boolean),
        order._taken(starts, 0, caller()),
        ranks._taken(back, 0, caller())._renamed(x.sizes),
        Tensor(np.diff(np.append(begins, flat.size)).astype(np.int64), device=device),
    )
