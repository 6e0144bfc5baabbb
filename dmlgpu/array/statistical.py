"""Along axes: sums and products, extremes, means, running sums and products."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.array.creation import full
from dmlgpu.array.logic import isnan
from dmlgpu.array.manipulation import joined
from dmlgpu.array.operands import FLOATING, NUMERIC, Dtype, as_type, axes_of, chosen, run, tensor
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.common.coercion import argument, boolean, real
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.integers import total, wrapped
from dmlgpu.tensors.layout import checked_axis
from dmlgpu.tensors.tensor import Tensor

__all__ = ["cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var"]

Axes: TypeAlias = int | tuple[int, ...] | None
"""Axes, negative ones from the back; None for all."""


def reduced(x: Tensor, function: ReduceFunction, axis: Any, keepdims: Any, nothing: float | None = None) -> Tensor:
    """Reduce along axes, which stay with size 1 where ``keepdims``.

    Args:
        x: an array.
        function: how.
        axis: along which.
        keepdims: whether these stay.
        nothing: what no elements make; None refuses them.

    Raises:
        InvalidArgument: an axis out of range, or no elements where they make nothing.
    """
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    axes = axes_of(x, axis)
    kept = tuple(1 if number in axes else size for number, size in enumerate(x.sizes))
    sizes = kept if keepdims else tuple(size for number, size in enumerate(x.sizes) if number not in axes)
    if not x.size:
        if nothing is None and 0 not in sizes:
            raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got sizes {list(x.sizes)}")
        return full(sizes, nothing or 0, dtype=x.dtype, device=x.device)
    if all(x.sizes[number] == 1 for number in axes):
        return x.reshape(sizes)._same() if x.is_view else x._renamed(sizes)
    return total(caller(), x, function, axes)._renamed(sizes)


def _with_nan(x: Tensor, found: Tensor, axis: Any, keepdims: Any) -> Tensor:
    """Return extremes, NaN where there is one among the elements."""
    if not x.data_type.is_float or not x.size:
        return found
    flags = isnan(x)._same(boolean=False).astype(DataType.UINT32)
    is_any = reduced(flags, ReduceFunction.MAX, axis, keepdims) != 0
    return chosen(is_any, Tensor(np.float32(math.nan), x.data_type, device=x.device), found)


@named
def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the largest number along axes, NaN where there is one.

    Raises:
        InvalidArgument: no numbers, none at all, or an axis out of range.
    """
    given = tensor("x", x, NUMERIC)
    return _with_nan(given, reduced(given, ReduceFunction.MAX, axis, keepdims), axis, keepdims)


@named
def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the smallest number along axes, NaN where there is one.

    Raises:
        InvalidArgument: no numbers, none at all, or an axis out of range.
    """
    given = tensor("x", x, NUMERIC)
    return _with_nan(given, reduced(given, ReduceFunction.MIN, axis, keepdims), axis, keepdims)


def _accumulated(x: Any, dtype: Dtype, kind: str = NUMERIC) -> Tensor:
    """Return numbers in the type in which they are added up: integers in one of 64 bits."""
    given = tensor("x", x, kind)
    if dtype is not None:
        wanted = as_type(dtype)
        if wanted is bool:
            raise InvalidArgument(f"{caller()}: dtype must be a type of numbers, got bool")
        return given.astype(wanted)
    if given.data_type.is_float:
        return given
    return given.astype(DataType.INT64 if given.data_type.is_signed or given.is_boolean else DataType.UINT64)


@named
def sum(x: Tensor, /, *, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Tensor:
    """Return the sum along axes: of integers as int64 or uint64, unless another type is asked for; of none 0.

    Raises:
        InvalidArgument: no numbers, or an axis out of range; NotSupported: a type that adapters cannot compute.
    """
    return reduced(_accumulated(x, dtype, f"boolean or {NUMERIC}"), ReduceFunction.SUM, axis, keepdims, 0)


@named
def prod(x: Tensor, /, *, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Tensor:
    """Return the product along axes: of integers as int64 or uint64, unless another type is asked for; of none 1.

    Raises:
        InvalidArgument: no numbers, or an axis out of range; NotSupported: a type that adapters cannot compute.
    """
    return reduced(_accumulated(x, dtype), ReduceFunction.MULTIPLY, axis, keepdims, 1)


@named
def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of floating-point numbers along axes; of none NaN.

    Raises:
        InvalidArgument: no floating-point numbers, or an axis out of range.
    """
    return reduced(tensor("x", x, FLOATING), ReduceFunction.AVERAGE, axis, keepdims, math.nan)


@named
def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the sum of squared distances from the mean along axes, divided by the number of elements less
    ``correction``; NaN where that is not above 0.

    Raises:
        InvalidArgument: no floating-point numbers, or an axis out of range.
    """
    return _variance(tensor("x", x, FLOATING), axis, correction, keepdims)


@named
def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the square root of ``var``."""
    found = _variance(tensor("x", x, FLOATING), axis, correction, keepdims)
    return run(descs.ElementWiseSqrt, input_tensor=found)


def _variance(x: Tensor, axis: Axes, correction: float, keepdims: bool) -> Tensor:
    less = argument(caller(), "correction", real, correction)
    count = math.prod(x.sizes[number] for number in axes_of(x, axis))
    distances = x - reduced(x, ReduceFunction.AVERAGE, axis, True, math.nan)
    total = reduced(distances * distances, ReduceFunction.SUM, axis, keepdims, 0)
    if count - less > 0:
        return total / (count - less)
    return total * math.nan


def _running(function: Any, given: Tensor, axis: int | None, include_initial: bool, first: int) -> Tensor:
    if axis is None:
        if given.ndim != 1:
            raise InvalidArgument(f"{caller()}: axis must be given for {given.ndim} dimensions")
        axis = 0
    number = checked_axis(caller(), "axis", axis, given.ndim)
    narrow = not given.data_type.is_float and given.data_type.bits < 32
    wide = given.astype(DataType.INT32 if given.data_type.is_signed else DataType.UINT32) if narrow else given
    found = function(wide, axis=number) if given.size else given
    found = wrapped(found, given.data_type) if narrow and given.size else found
    if argument(caller(), "include_initial", boolean, include_initial):
        sizes = (*given.sizes[:number], 1, *given.sizes[number + 1 :])
        begin = full(sizes, first, dtype=given.dtype, device=given.device)
        found = joined([begin, found], number)
    return found


@named
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None, include_initial: bool = False
) -> Tensor:
    """Return the running sum along an axis, after a 0 where ``include_initial``; types are those of ``sum``.

    Raises:
        InvalidArgument: no numbers, an axis out of range, or None for several.
        NotSupported: a type that adapters cannot compute.
    """
    return _running(directml.cumulative_summation, _accumulated(x, dtype), axis, include_initial, 0)


@named
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None, include_initial: bool = False
) -> Tensor:
    """Return the running product along an axis, after a 1 where ``include_initial``; types are those of ``prod``.

    Raises:
        InvalidArgument: no numbers, an axis out of range, or None for several.
        NotSupported: a type that adapters cannot compute.
    """
    return _running(directml.cumulative_product, _accumulated(x, dtype), axis, include_initial, 1)
