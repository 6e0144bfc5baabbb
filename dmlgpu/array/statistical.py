"""Functions along axes: sums and products, extremes, statistics, running sums, all and any, differences."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu import ops
from dmlgpu.array.creation import full
from dmlgpu.array.operands import FLOATING, NUMERIC, Dtype, numeric_type, tensor
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.common.coercion import argument, boolean, integer, real
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import reductions
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.arithmetic import wrapped
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

Axes = int | tuple[int, ...] | None
"""An axis or several, negative ones counted from the end; None means all."""


def _in_32_bits(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute integers below 32 bits, which DirectML does not sum, in 32 bits, and drop the bits they lack."""
    if x.data_type.is_float or x.data_type.bits >= 32 or not x.size:
        return function(x)
    return wrapped(function(x.astype(DataType.INT32 if x.data_type.is_signed else DataType.UINT32)), x.data_type)


def reduced(x: Tensor, function: ReduceFunction, axis: Axes, keepdims: Any, empty_value: float | None = None) -> Tensor:
    """Reduce along axes as `ops` does, also integers below 32 bits; single elements stay as they are.

    ``empty_value`` is the result of no elements; None means that of ``function``, if it has one.
    """
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    if x.size and builtins.all(x.sizes[number] == 1 for number in axes):
        is_kept = argument(caller(), "keepdims", boolean, keepdims)
        shape = tuple(size for number, size in enumerate(x.sizes) if is_kept or number not in axes)
        return x.reshape(shape)._same() if x.is_view else x._renamed(shape)
    if function in (ReduceFunction.SUM, ReduceFunction.MULTIPLY):
        return _in_32_bits(lambda operand: reductions.reduced(operand, function, axes, keepdims, empty_value), x)
    return reductions.reduced(x, function, axes, keepdims, empty_value)


def contains_nan(x: Tensor, axis: Axes, keepdims: Any) -> Tensor:
    """Return whether there is NaN along axes of floating-point elements."""
    flags: Tensor = ops.isnan(x)._same(boolean=False)
    return reduced(flags.astype(DataType.UINT32), ReduceFunction.MAX, axis, keepdims) != 0


def _extreme(x: Any, function: ReduceFunction, axis: Axes, keepdims: Any) -> Tensor:
    """Return extremes along axes, NaN if there is one."""
    operand = tensor("x", x, NUMERIC)
    result = reduced(operand, function, axis, keepdims)
    if not operand.data_type.is_float or not operand.size:
        return result
    nan = Tensor(np.float32(math.nan), operand.data_type, device=operand.device)
    with_nan: Tensor = ops.where(contains_nan(operand, axis, keepdims), nan, result)
    return with_nan


@named
def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the largest element along axes, NaN if there is one.

    Raises:
        InvalidArgument: If the dtype is not numeric, there is no element, or an axis is out of range.
    """
    return _extreme(x, ReduceFunction.MAX, axis, keepdims)


@named
def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element along axes, NaN if there is one; see ``max``."""
    return _extreme(x, ReduceFunction.MIN, axis, keepdims)


def _summable(x: Any, dtype: Dtype, kind: str = NUMERIC) -> Tensor:
    """Return elements in the dtype in which they are summed: integers in one of 64 bits."""
    operand = tensor("x", x, kind)
    if dtype is not None:
        return operand.astype(numeric_type(dtype))
    if operand.data_type.is_float:
        return operand
    return operand.astype(DataType.INT64 if operand.data_type.is_signed or operand.is_boolean else DataType.UINT64)


@named
def sum(x: Tensor, /, *, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Tensor:
    """Return the sum along axes, of integers as int64 or uint64 by default.

    Raises:
        InvalidArgument: If an axis is out of range, or ``dtype`` is not numeric.
        NotSupported: If adapters cannot compute the dtype.
    """
    return reduced(_summable(x, dtype, f"boolean or {NUMERIC}"), ReduceFunction.SUM, axis, keepdims)


@named
def prod(x: Tensor, /, *, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Tensor:
    """Return the product along axes, of integers as int64 or uint64 by default; see ``sum``."""
    return reduced(_summable(x, dtype), ReduceFunction.MULTIPLY, axis, keepdims)


@named
def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of floating-point elements along axes; NaN if there are none.

    Raises:
        InvalidArgument: If the dtype is not floating point, or an axis is out of range.
    """
    return reduced(tensor("x", x, FLOATING), ReduceFunction.AVERAGE, axis, keepdims)


@named
def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance along axes: squared distances from the mean, divided by the count less ``correction``.

    The result is NaN if the divisor is not above 0.

    Raises:
        InvalidArgument: If the dtype is not floating point, or an axis is out of range.
    """
    return _variance(x, axis, correction, keepdims)


@named
def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation along axes: the square root of ``var``."""
    result: Tensor = ops.sqrt(_variance(x, axis, correction, keepdims))
    return result


def _variance(x: Any, axis: Axes, correction: float, keepdims: bool) -> Tensor:
    operand, subtrahend = tensor("x", x, FLOATING), argument(caller(), "correction", real, correction)
    squares, count = reductions.squared_distances(operand, axis, keepdims)
    return squares / (count - subtrahend) if count > subtrahend else squares * math.nan


def _running(function: Callable[..., Any], x: Tensor, axis: int | None, include_initial: bool, initial: int) -> Tensor:
    if axis is None and x.ndim != 1:
        raise InvalidArgument(f"{caller()}: axis must be given for {x.ndim} dimensions")
    number = checked_axis(caller(), "axis", 0 if axis is None else axis, x.ndim)
    result = _in_32_bits(lambda operand: reductions.running(function, operand, number), x)
    if argument(caller(), "include_initial", boolean, include_initial):
        shape = (*x.sizes[:number], 1, *x.sizes[number + 1 :])
        result = joined([full(shape, initial, dtype=x.dtype, device=x.device), result], number)
    return result


@named
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None, include_initial: bool = False
) -> Tensor:
    """Return the running sum along an axis, after a 0 if ``include_initial``, in the dtype of ``sum``.

    Raises:
        InvalidArgument: If the dtype is not numeric, or an axis is out of range, or None for several axes.
        NotSupported: If adapters cannot compute the dtype.
    """
    return _running(ops.directml.cumulative_summation, _summable(x, dtype), axis, include_initial, 0)


@named
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None, include_initial: bool = False
) -> Tensor:
    """Return the running product along an axis, after a 1 if ``include_initial``; see ``cumulative_sum``."""
    return _running(ops.directml.cumulative_product, _summable(x, dtype), axis, include_initial, 1)


def _truth(x: Any, function: ReduceFunction, axis: Axes, keepdims: bool, empty_value: int) -> Tensor:
    flags = tensor("x", x).astype("bool")._same(boolean=False)
    return reduced(flags, function, axis, keepdims, empty_value)._same(boolean=True)


@named
def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along axes are true or not 0; true if there are none.

    Raises:
        InvalidArgument: If an axis is out of range.
    """
    return _truth(x, ReduceFunction.MIN, axis, keepdims, 1)


@named
def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along axes is true or not 0; see ``all``."""
    return _truth(x, ReduceFunction.MAX, axis, keepdims, 0)


@named
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the difference of each element and the one before it along an axis, ``n`` times over.

    Args:
        x: Tensor of a numeric dtype.
        axis: Axis along which to subtract.
        n: Number of repetitions, at least 0.
        prepend, append: Tensors to join before and after `x` first.

    Raises:
        InvalidArgument: If the dtype is not numeric, an axis is out of range, or operands do not fit together.
    """
    operand = tensor("x", x, NUMERIC)
    number, times = checked_axis(caller(), "axis", axis, operand.ndim), argument(caller(), "n", integer, n)
    if times < 0:
        raise InvalidArgument(f"{caller()}: n must be at least 0, got {times}")
    parts = {
        name: tensor(name, part, NUMERIC)
        for name, part in (("prepend", prepend), ("x", operand), ("append", append))
        if part is not None
    }
    result = joined(promoted(caller(), parts), number) if times and len(parts) > 1 else operand
    before = (slice(None),) * number
    for _ in range(builtins.min(times, result.sizes[number])):
        result = result[(*before, slice(1, None))] - result[(*before, slice(None, -1))]
    return result._same() if result is x else result
