"""Reductions along axes, running sums and products, and helpers of other operators along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dmlgpu import ops
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.torch.dtypes import cast, data_type_of, dtype_of
from dmlgpu.frontends.torch.operators.comparison import as_mask
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import counted, reduced, squared_distances

_IF = directml.element_wise_if


def axes_of(x: Any, dim: Any) -> tuple[int, ...]:
    """Return axes counted from 0; None and an empty list mean all."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(x.ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    rank = max(x.ndim, 1)
    axes = tuple(axis % rank if -rank <= axis < rank else _reject_axis(axis, rank) for axis in dims)
    return axes if x.ndim else ()


def _reject_axis(axis: int, rank: int) -> int:
    raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {axis})")


def with_axis(x: Any) -> Any:
    """Return a scalar with one axis, other tensors as they are."""
    return x if x.ndim else x.reshape(1)


def _reduce(function: ReduceFunction, x: Any, dim: Any, keepdim: bool, empty_value: float | None = None) -> Any:
    axes = axes_of(x, dim)
    if not x.ndim:
        return reduced(x.reshape(1), function, (0,), False, empty_value)
    return reduced(x, function, axes, keepdim, empty_value)


def _accumulated(x: Any, dtype: torch.dtype | None) -> Any:
    """Return elements in the dtype in which they are added: a requested one, int64 for integers and booleans."""
    if dtype is None:
        dtype = dtype_of(x) if x.data_type.is_float else torch.int64
    return cast(x, dtype)


# ---- sums ------------------------------------------------------------------------------------------------------------


@aten("sum", "sum.dim_IntList")
def summed(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    if dtype is torch.bool:
        return any_true(x, dim, keepdim)
    if x.is_boolean and dtype in {None, torch.int64}:
        return counted(x, axes_of(x, dim), keepdim)
    return _reduce(ReduceFunction.SUM, _accumulated(x, dtype), dim, keepdim)


@aten("nansum")
def nansum(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    if x.data_type.is_float:
        x = _IF(directml.element_wise_is_nan(x), 0.0, x)
    return summed(x, dim, keepdim, dtype=dtype)


@aten("mean", "mean.dim")
def mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    x = x if dtype is None else cast(x, dtype)
    if not x.data_type.is_float:
        raise Unsupported("mean of integers")
    return _reduce(ReduceFunction.AVERAGE, x, dim, keepdim)


@aten("prod", "prod.dim_int")
def prod(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    result = _reduce(ReduceFunction.MULTIPLY, _accumulated(x, dtype), dim, keepdim)
    return result._same(boolean=True) if dtype is torch.bool else result


@aten("count_nonzero", "count_nonzero.dim_IntList", fused=True)
def count_nonzero(x: Any, dim: Any = None) -> Any:
    return counted(as_mask(x), axes_of(x, dim), False)


@aten("logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    x = x if x.data_type.is_float else cast(x, torch.get_default_dtype())
    return _reduce(ReduceFunction.LOG_SUM_EXP, x, dim, keepdim)


@aten("trace")
def trace(x: Any) -> Any:
    count = min(x.sizes)
    diagonal = x._view((count,), (sum(x.strides),)) if count else x.reshape(-1)[:0]
    return summed(diagonal)


# ---- extremes --------------------------------------------------------------------------------------------------------


def _extreme(function: ReduceFunction, x: Any, dim: Any, keepdim: bool) -> Any:
    result = _reduce(function, x._same(boolean=False), dim, keepdim)
    return result._same(boolean=True) if x.is_boolean else result


@aten("amax", "max")
def amax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(ReduceFunction.MAX, x, dim, keepdim)


@aten("amin", "min")
def amin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(ReduceFunction.MIN, x, dim, keepdim)


@aten("aminmax")
def aminmax(x: Any, *, dim: int | None = None, keepdim: bool = False) -> tuple[Any, Any]:
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


def _condition(function: ReduceFunction, x: Any, dim: Any, keepdim: bool, empty_value: int) -> Any:
    result = _reduce(function, as_mask(x)._same(boolean=False), dim, keepdim, empty_value)
    return result._same(boolean=True) if dtype_of(x) is not torch.uint8 else result


@aten("all", "all.dim", "all.dims")
def all_true(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return as_mask(x)
    return _condition(ReduceFunction.MIN, x, dim, keepdim, 1)


@aten("any", "any.dim", "any.dims")
def any_true(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return as_mask(x)
    return _condition(ReduceFunction.MAX, x, dim, keepdim, 0)


def _place(function: Callable[..., Any], x: Any, dim: int | None, keepdim: bool) -> Any:
    x = x._same(boolean=False)
    if not x.ndim:
        return ops.zeros((), dtype="int64", device=x.device)
    axis = None if dim is None else axes_of(x, dim)[0]
    return function(x, axis=axis, keepdims=keepdim, dtype="int64")


@aten("argmax", fused=True)
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(ops.argmax, x, dim, keepdim)


@aten("argmin", fused=True)
def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(ops.argmin, x, dim, keepdim)


@aten("max.dim", fused=True)
def max_with_places(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return amax(x, dim, keepdim), argmax(x, dim, keepdim)


@aten("min.dim", fused=True)
def min_with_places(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return amin(x, dim, keepdim), argmin(x, dim, keepdim)


# ---- statistics ------------------------------------------------------------------------------------------------------


def _variance(x: Any, dim: Any, correction: Any, keepdim: bool, root: bool) -> Any:
    """Return the variance along axes, or its square root."""
    if not x.size:
        return _reduce(ReduceFunction.AVERAGE, x, dim, keepdim)
    squares, count = squared_distances(x, axes_of(x, dim), keepdim, root=root)
    divisor = float(max(count - (1 if correction is None else correction), 0))
    return squares / (math.sqrt(divisor) if root else divisor)


@aten("var.correction", wide=True, fused=True)
def var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance(x, dim, correction, keepdim, False)


@aten("std.correction", wide=True, fused=True)
def std(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance(x, dim, correction, keepdim, True)


@aten("var_mean.correction", wide=True, fused=True)
def var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    return var(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


@aten("std_mean.correction", wide=True, fused=True)
def std_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    return std(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


# ---- running sums, products and extremes -----------------------------------------------------------------------------


def _running(function: Callable[..., Any], x: Any, dim: int, dtype: torch.dtype | None) -> Any:
    accumulated = _accumulated(x, dtype)
    data_type = accumulated.data_type
    if not x.size or not x.ndim:
        return accumulated
    if data_type.is_float or data_type.bits >= 32:
        return function(accumulated, axis=axes_of(x, dim)[0])
    return function(accumulated.astype(DataType.INT32), axis=axes_of(x, dim)[0]).astype(data_type)


@aten("cumsum")
def cumsum(x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _running(directml.cumulative_summation, x, dim, dtype)


@aten("cumprod")
def cumprod(x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _running(directml.cumulative_product, x, dim, dtype)


def shifted(x: Any, axis: int, distance: int, value: Any) -> Any:
    """Return a tensor moved towards higher indices along an axis, with a number before it."""
    size = x.sizes[axis]
    before = [(0, 0)] * x.ndim
    before[axis] = (distance, 0)
    index = (*[slice(None)] * axis, slice(0, size - distance))
    return ops.pad(x[index], before, value=value)


def scanned(
    parts: Sequence[Any], axis: int, combine: Callable[..., Sequence[Any]], empty: Sequence[Any]
) -> Sequence[Any]:
    """Accumulate tensors along an axis by doubling distances.

    Args:
        parts: Tensors that are accumulated together.
        axis: Axis to accumulate along.
        combine: Returns earlier parts combined with later ones.
        empty: Values of each part before the first element, neutral in ``combine``.
    """
    distance = 1
    while distance < parts[0].sizes[axis]:
        earlier = [shifted(part, axis, distance, value) for part, value in zip(parts, empty, strict=True)]
        parts = combine(earlier, parts)
        distance *= 2
    return parts


def _running_extreme(x: Any, dim: int, is_largest: bool) -> tuple[Any, Any]:
    """Return running extremes and their indices, the last index of equal ones."""
    if not x.size or not x.ndim:
        return x, ops.zeros(x.sizes, dtype="int64", device=x.device)
    is_boolean, axis = x.is_boolean, axes_of(x, dim)[0]
    x = x._same(boolean=False)
    sizes = [1] * x.ndim
    sizes[axis] = x.sizes[axis]
    places = ops.arange(x.sizes[axis], dtype="int32", device=x.device).reshape(sizes).broadcast_to(x.sizes)
    ahead = directml.element_wise_logical_greater_than if is_largest else directml.element_wise_logical_less_than

    def combine(earlier: Sequence[Any], later: Sequence[Any]) -> Sequence[Any]:
        (before, before_places), (after, after_places) = earlier, later
        stays = (before_places >= 0) & ahead(before, after)
        if x.data_type.is_float:
            is_nan = directml.element_wise_is_nan
            stays = (before_places >= 0) & (ahead(before, after) | is_nan(before)) & ~is_nan(after)
        return _IF(stays, before, after), _IF(stays, before_places, after_places)

    values, indices = scanned((x, places), axis, combine, (0, -1))
    return values._same(boolean=is_boolean), indices.astype(DataType.INT64)


@aten("cummax")
def cummax(x: Any, dim: int) -> tuple[Any, Any]:
    return _running_extreme(x, dim, True)


@aten("cummin")
def cummin(x: Any, dim: int) -> tuple[Any, Any]:
    return _running_extreme(x, dim, False)


@aten("_logcumsumexp", "logcumsumexp", wide=True)
def logcumsumexp(x: Any, dim: int) -> Any:
    """Return logarithms of running sums of exponentials, which are kept relative to the largest so far."""
    if not x.size or not x.ndim:
        return x

    def combine(earlier: Sequence[Any], later: Sequence[Any]) -> Sequence[Any]:
        largest = directml.element_wise_max(earlier[0], later[0])
        parts = (
            _IF(maximum == largest, total, total * directml.element_wise_exp(maximum - largest))
            for maximum, total in (earlier, later)
        )
        return largest, directml.element_wise_add(*parts)

    ones = ops.ones(x.sizes, dtype=x.data_type, device=x.device)
    largest, total = scanned((x, ones), axes_of(x, dim)[0], combine, (-math.inf, 0.0))
    return largest + directml.element_wise_log(total)


def zeros_of(x: Any, sizes: Sequence[int], dtype: torch.dtype | None = None) -> Any:
    """Return zeros on the device of a tensor, in its dtype unless another is named."""
    data_type, is_boolean = data_type_of(dtype or dtype_of(x))
    return ops.zeros(tuple(sizes), dtype="bool" if is_boolean else data_type, device=x.device)
