"""Functions along axes: sums and products, extremes, statistics, running sums, all and any, differences."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from dmlgpu import ops
from dmlgpu.array.creation import full
from dmlgpu.array.operands import Dtype, tensor
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import reductions
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import NUMERIC, caller, named
from dmlgpu.tensors.layout import checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_floating

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

Axes = int | tuple[int, ...] | None
"""An axis or several, negative ones counted from the end; None means all."""


def reduced(x: Tensor, function: ReduceFunction, axis: Axes, keepdims: Any, empty_value: float | None = None) -> Tensor:
    """Reduce along axes as `ops` does, also integers below 32 bits; single elements stay as they are.

    ``empty_value`` is the result of no elements; None means that of ``function``, if it has one.
    """
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    if x.size and builtins.all(x.sizes[i] == 1 for i in axes):
        is_kept = argument(caller(), "keepdims", boolean, keepdims)
        shape = tuple(size for i, size in enumerate(x.sizes) if is_kept or i not in axes)
        return x.reshape(shape)._same() if x.is_view else x._renamed(shape)
    return reductions.reduced(x, function, axes, keepdims, empty_value)


def _extreme(x: Any, function: ReduceFunction, axis: Axes, keepdims: Any) -> Tensor:
    """Return extremes along axes, NaN if there is one."""
    return reduced(tensor("x", x, NUMERIC), function, axis, keepdims)


@named
def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the largest element along axes, NaN if there is one.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor of the dtype of `x` without the reduced axes.

    Raises:
        InvalidArgument: If the dtype is not numeric, there are no elements, or an axis is out of range.

    Examples:
        >>> xp.max(xp.asarray([[1, 2], [3, 4]]), axis=0).tolist()
        [3, 4]

    See also:
        `dmlgpu.ops.max`.
    """
    return _extreme(x, ReduceFunction.MAX, axis, keepdims)


@named
def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element along axes, NaN if there is one.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor of the dtype of `x` without the reduced axes.

    Raises:
        InvalidArgument: If the dtype is not numeric, there are no elements, or an axis is out of range.

    Examples:
        >>> xp.min(xp.asarray([[1, 2], [3, 4]]), axis=0).tolist()
        [1, 2]

    See also:
        `dmlgpu.ops.min`.
    """
    return _extreme(x, ReduceFunction.MIN, axis, keepdims)


def _summable(x: Any, dtype: Dtype) -> Tensor:
    return reductions.summable(tensor("x", x, NUMERIC if dtype is None else ""), dtype)


@named
def sum(x: Tensor, /, *, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Tensor:
    """Return the sum of elements along axes.

    Args:
        x: Tensor of bool or a numeric dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        dtype: Dtype of the result; defaults to None, int64 or uint64 for integers, that of `x` for floats.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor without the reduced axes.

    Raises:
        InvalidArgument: If an axis is out of range, or a dtype is not numeric.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=0).tolist()
        [4, 6]

    See also:
        `dmlgpu.ops.sum`, `cumulative_sum`.
    """
    operand = tensor("x", x, f"boolean or {NUMERIC}" if dtype is None else "")
    if operand.is_boolean and dtype is None:
        return reductions.counted(operand, axis, keepdims)
    return reduced(reductions.summable(operand, dtype), ReduceFunction.SUM, axis, keepdims)


@named
def prod(x: Tensor, /, *, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Tensor:
    """Return the product of elements along axes.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        dtype: Dtype of the result; defaults to None, int64 or uint64 for integers, that of `x` for floats.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor without the reduced axes.

    Raises:
        InvalidArgument: If an axis is out of range, or a dtype is not numeric.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.prod(xp.asarray([[1, 2], [3, 4]]), axis=0).tolist()
        [3, 8]

    See also:
        `dmlgpu.ops.prod`, `cumulative_prod`.
    """
    return reduced(_summable(x, dtype), ReduceFunction.MULTIPLY, axis, keepdims)


@named
def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of elements along axes.

    Args:
        x: Tensor. Integers and booleans are computed in float32.
        axis: Axis or axes to reduce; defaults to None, all.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor of the floating-point dtype without the reduced axes; NaN if there are no elements.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.mean(xp.asarray([1.0, 3.0])).tolist()
        2.0

    See also:
        `dmlgpu.ops.mean`.
    """
    return reduced(as_floating(tensor("x", x)), ReduceFunction.AVERAGE, axis, keepdims)


@named
def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance along axes: the mean squared distance from the mean.

    Args:
        x: Tensor. Integers and booleans are computed in float32.
        axis: Axis or axes to reduce; defaults to None, all.
        correction: Subtracted from the element count before dividing by it; defaults to 0.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor of the floating-point dtype without the reduced axes; NaN if the divisor is not above 0.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.var(xp.asarray([1.0, 3.0])).tolist()
        1.0

    See also:
        `std`, `dmlgpu.ops.var`.
    """
    return reductions.variance(tensor("x", x), axis, keepdims, correction)


@named
def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation along axes: the square root of `var`.

    Args:
        x: Tensor. Integers and booleans are computed in float32.
        axis: Axis or axes to reduce; defaults to None, all.
        correction: Subtracted from the element count before dividing by it; defaults to 0.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Tensor of the floating-point dtype without the reduced axes; NaN if the divisor is not above 0.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.std(xp.asarray([1.0, 3.0])).tolist()
        1.0

    See also:
        `var`, `dmlgpu.ops.std`.
    """
    return reductions.variance(tensor("x", x), axis, keepdims, correction, root=True)


def _running(function: Callable[..., Any], x: Tensor, axis: int | None, include_initial: bool, initial: int) -> Tensor:
    if axis is None and x.ndim != 1:
        raise InvalidArgument(f"{caller()}: axis must be given for {x.ndim} dimensions")
    axis = checked_axis(caller(), "axis", 0 if axis is None else axis, x.ndim)
    result = reductions.running(function, x, axis)
    if argument(caller(), "include_initial", boolean, include_initial):
        shape = (*x.sizes[:axis], 1, *x.sizes[axis + 1 :])
        result = joined([full(shape, initial, dtype=x.dtype, device=x.device), result], axis)
    return result


@named
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None, include_initial: bool = False
) -> Tensor:
    """Return the running sum along an axis.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis to accumulate along; may be omitted for rank 1.
        dtype: Dtype of the result; defaults to None, int64 or uint64 for integers, that of `x` for floats.
        include_initial: Whether a 0 comes first; defaults to False.

    Returns:
        Tensor of the shape of `x`, one longer along `axis` if `include_initial`.

    Raises:
        InvalidArgument: If a dtype is not numeric, or the axis is out of range, or omitted for several axes.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.cumulative_sum(xp.asarray([1, 2, 3])).tolist()
        [1, 3, 6]

    See also:
        `sum`, `dmlgpu.ops.cumsum`.
    """
    return _running(ops.directml.cumulative_summation, _summable(x, dtype), axis, include_initial, 0)


@named
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None, include_initial: bool = False
) -> Tensor:
    """Return the running product along an axis.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis to accumulate along; may be omitted for rank 1.
        dtype: Dtype of the result; defaults to None, int64 or uint64 for integers, that of `x` for floats.
        include_initial: Whether a 1 comes first; defaults to False.

    Returns:
        Tensor of the shape of `x`, one longer along `axis` if `include_initial`.

    Raises:
        InvalidArgument: If a dtype is not numeric, or the axis is out of range, or omitted for several axes.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.cumulative_prod(xp.asarray([1, 2, 3])).tolist()
        [1, 2, 6]

    See also:
        `prod`, `dmlgpu.ops.cumprod`.
    """
    return _running(ops.directml.cumulative_product, _summable(x, dtype), axis, include_initial, 1)


@named
def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along axes are true or not 0.

    Args:
        x: Tensor of any dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Bool Tensor; true if there are no elements.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.all(xp.asarray([True, False])).tolist()
        False

    See also:
        `any`.
    """
    return ops.all(tensor("x", x), axis, keepdims)


@named
def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along axes is true or not 0.

    Args:
        x: Tensor of any dtype.
        axis: Axis or axes to reduce; defaults to None, all.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.

    Returns:
        Bool Tensor; false if there are no elements.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.any(xp.asarray([True, False])).tolist()
        True

    See also:
        `all`.
    """
    return ops.any(tensor("x", x), axis, keepdims)


@named
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the difference of each element and the one before it along an axis.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis along which to subtract; defaults to the last axis.
        n: Number of repetitions, at least 0; defaults to 1.
        prepend: Tensor to join before `x` first; defaults to None.
        append: Tensor to join after `x` first; defaults to None.

    Returns:
        Tensor of the common dtype, `n` shorter along `axis`.

    Raises:
        InvalidArgument: If a dtype is not numeric, the axis is out of range, or operands do not fit together.

    Examples:
        >>> xp.diff(xp.asarray([1, 4, 9])).tolist()
        [3, 5]

    See also:
        `cumulative_sum`.
    """
    parts = {"prepend": prepend, "append": append}
    ends = [None if part is None else tensor(name, part, NUMERIC) for name, part in parts.items()]
    return ops.diff(tensor("x", x, NUMERIC), n, axis, *ends)
