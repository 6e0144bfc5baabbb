"""Order statistics, under NumPy's names: medians, quantiles and percentiles, with or without NaN, and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import Axes, ordered, reduced
from dmlgpu.tensors.calls import NUMERIC, Array, Operand, Where, caller, check_kind, eager, filled, tensor_of, word
from dmlgpu.tensors.indexing import on_host
from dmlgpu.tensors.layout import checked_axes
from dmlgpu.tensors.tensor import Tensor

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "ptp", "quantile"]

Levels: TypeAlias = Tensor | ArrayLike
"""A probability, or an array of several."""

Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Indices of the nearer and of the other neighbor of each quantile, and the weight of the other one, at most 1 / 2."""

_MAX, _MIN = ReduceFunction.MAX, ReduceFunction.MIN

# ---- quantiles -------------------------------------------------------------------------------------------------------

_STEPWISE: dict[str, Callable[[Any, Any], Any]] = {
    "lower": lambda count, q: np.floor(q * (count - 1)),
    "higher": lambda count, q: np.ceil(q * (count - 1)),
    "nearest": lambda count, q: np.rint(q * (count - 1)),
    "inverted_cdf": lambda count, q: np.ceil(count * q - 1),
    "closest_observation": lambda count, q: _rounded_to_odd(count * q - 1.5),
}
"""Index of the element that a quantile is, by method."""

_PLOTTING = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""Parameters of the methods that interpolate at plotting positions."""

_METHODS = ("linear", *_STEPWISE, "midpoint", "averaged_inverted_cdf", *_PLOTTING)


def _rounded_to_odd(index: Any) -> Any:
    """Return indices rounded up, but odd ones and those halfway above an odd one down."""
    return np.where(index % 2 == 1, index, np.floor(index) + 1)


def _places(count: Any, q: NDArray[np.float64], method: str) -> Places:
    """Return where quantiles of as many elements in order are."""
    last = np.maximum(count - 1, 0)
    if method in _STEPWISE:
        index = _STEPWISE[method](count, q)
    elif method in _PLOTTING:
        alpha, beta = _PLOTTING[method]
        index = count * q + alpha + q * (1 - alpha - beta) - 1
    else:
        index = count * q - 1 if method == "averaged_inverted_cdf" else q * (count - 1)
    is_inside = (index > 0) & (index < last)
    low = np.floor(np.clip(index, 0, last))
    weight = index - low
    if method == "midpoint":
        weight = np.where(weight > 0, 0.5, 0.0)
    elif method == "averaged_inverted_cdf":
        is_inside = (index >= 0) & (index < last)
        weight = np.where(weight == 0, 0.5, 1.0)
    weight = np.where(is_inside, weight, 0.0)
    high = np.minimum(low + 1, last)
    is_high = weight > 0.5
    near, far = np.where(is_high, high, low), np.where(is_high, low, high)
    weight = np.where(is_high, 1 - weight, weight)
    return near.astype(np.int64), np.where(weight == 0, near, far).astype(np.int64), weight


def _levels(q: Any, unit: int) -> NDArray[np.float64]:
    """Return probabilities by their multiples of 1 / unit."""
    levels = on_host(q)
    if levels.dtype.kind not in "iuf" or not np.all((levels >= 0) & (levels <= unit)):
        raise InvalidArgument(f"{caller()}: q must be numbers between 0 and {unit}, got {shown(q)}")
    return np.asarray(levels.astype(np.float64) / unit)


def _quantiles(
    x: Tensor, levels: NDArray[np.float64], axis: Axes, keepdims: Any, method: Any, skips_nan: bool
) -> Tensor:
    method = word("method", method, _METHODS)
    is_kept = argument(caller(), "keepdims", boolean, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    others = tuple(i for i in range(x.ndim) if i not in axes)
    sizes = tuple(1 if i in axes else size for i, size in enumerate(x.sizes) if is_kept or i not in axes)
    sizes = (*levels.shape, *sizes)
    if len(sizes) > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller()}: q must leave at most {MAX_DIMENSIONS} dimensions, got {len(sizes)}")
    is_same_type = method in _STEPWISE or x.data_type.is_reduced_float
    element_type = x.data_type if is_same_type else DataType.FLOAT32
    if not x.size or not levels.size:
        if 0 not in sizes and not element_type.is_float:
            raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got sizes {list(x.sizes)}")
        return filled(x, sizes, math.nan if element_type.is_float else 0, element_type)
    plain = x._same(boolean=False)
    count = math.prod(x.sizes[i] for i in axes)
    moved = plain.transpose((*others, *axes)) if x.ndim else plain
    rows = ordered(moved.reshape(*(x.sizes[i] for i in others), count)).values
    values = _between(rows, levels.reshape(-1), method, skips_nan)
    values = values.astype(element_type)
    if values.ndim > 1:
        values = values.transpose((values.ndim - 1, *range(values.ndim - 1)))
    return values.reshape(sizes)


def _between(rows: Tensor, levels: NDArray[np.float64], method: str, skips_nan: bool) -> Tensor:
    """Return quantiles of the last axis, which is in order, along the last axis of the result."""
    count, last = rows.sizes[-1], rows.ndim - 1
    is_nan = directml.element_wise_is_nan(rows) if rows.data_type.is_float else None
    if skips_nan and is_nan is not None:
        # The number of elements differs from row to row: where quantiles are comes from a table of all numbers.
        numbers = count - reduced(is_nan.astype(DataType.INT64), ReduceFunction.SUM, last, False)
        table = _places(np.arange(count + 1)[:, None], levels, method)
        near, far, weight = (rows._beside(part)._taken(numbers, 0, caller()) for part in _stored(table))
        first, second = (directml.gather_elements(rows, part, axis=last) for part in (near, far))
    else:
        near, far, weight = (rows._beside(part) for part in _stored(_places(count, levels, method)))
        first, second = (rows._taken(part, last, caller()) for part in (near, far))
    result = first if method in _STEPWISE else _interpolated(first, second, weight)
    if is_nan is None or skips_nan:
        return result
    end = (*[slice(None)] * last, slice(count - 1, count))
    return directml.element_wise_if(is_nan[end], math.nan, result)  # NaN is last in order


def _stored(places: Places) -> tuple[Any, ...]:
    near, far, weight = places
    return near, far, weight.astype(np.float32)


def _interpolated(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Return means of two tensors by the weight of the second, in float32 and without overflow."""
    if first.data_type not in (DataType.FLOAT32, DataType.FLOAT64):
        first, second = first.astype(DataType.FLOAT32), second.astype(DataType.FLOAT32)
    result: Any = first + (second * 0.5 - first * 0.5) * (weight * 2.0)
    is_infinite = directml.element_wise_is_infinity(first) | directml.element_wise_is_infinity(second)
    limit: Tensor = first + second
    return limit._chosen(is_infinite, result)


# ---- functions -------------------------------------------------------------------------------------------------------


@eager
def median(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the median along axes: the middle element in order, or the mean of the middle two.

    The result is NaN if an element is NaN, or there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the reduced axes (an array if `x` is one): float32, float16 if `x` is.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.median([[3, 1, 2], [4, 8, 6]], axis=1)
        array([2., 6.], dtype=float32)

    See also:
        `nanmedian`, `quantile`, `mean`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER
    (`ns-directml-dml_gather_operator_desc`).
    """
    return _quantiles(tensor_of("x", x), _levels(0.5, 1), axis, keepdims, "linear", False)


@eager
def nanmedian(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the median along axes, ignoring NaN: the middle element in order, or the mean of the middle two.

    The result is NaN if all elements are NaN, or there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the reduced axes (an array if `x` is one): float32, float16 if `x` is.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.nanmedian([3.0, np.nan, 1.0])
        array(2., dtype=float32)

    See also:
        `median`, `nanquantile`, `nanmean`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER_ELEMENTS
    (`ns-directml-dml_gather_elements_operator_desc`).
    """
    return _quantiles(tensor_of("x", x), _levels(0.5, 1), axis, keepdims, "linear", True)


@eager
def quantile(
    x: Operand, q: Levels, axis: Axes = None, method: str = "linear", keepdims: bool = False, *, device: Where = None
) -> Array:
    """Return quantiles along axes.

    The result is NaN if an element is NaN, or there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        q: Probability from 0 to 1, or an array of several; the axes of the array come first in the result.
            The elements of a Tensor are read, which a traced function rejects.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        method: How a quantile between two elements is computed: `"linear"`, the default, interpolates; `"lower"`,
            `"higher"` and `"nearest"` take an element, `"midpoint"` the mean of both. NumPy's other methods are
            `"inverted_cdf"`, `"averaged_inverted_cdf"`, `"closest_observation"`, `"interpolated_inverted_cdf"`,
            `"hazen"`, `"weibull"`, `"median_unbiased"` and `"normal_unbiased"`.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the reduced axes (an array if `x` is one): float16 if `x` is, else float32. Methods that take an
        element keep the dtype of `x`.

    Raises:
        InvalidArgument: If an axis is out of range, `q` is not from 0 to 1, or `method` is another word.

    Examples:
        >>> ops.quantile([3, 1, 2, 4], 0.25)
        array(1.75, dtype=float32)

    See also:
        `median`, `percentile`, `nanquantile`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER
    (`ns-directml-dml_gather_operator_desc`).
    """
    return _quantiles(tensor_of("x", x), _levels(q, 1), axis, keepdims, method, False)


@eager
def percentile(
    x: Operand, q: Levels, axis: Axes = None, method: str = "linear", keepdims: bool = False, *, device: Where = None
) -> Array:
    """Return percentiles along axes.

    The result is NaN if an element is NaN, or there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        q: Percentage from 0 to 100, or an array of several; the axes of the array come first in the result.
            The elements of a Tensor are read, which a traced function rejects.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        method: How a quantile between two elements is computed: `"linear"`, the default, interpolates; `"lower"`,
            `"higher"` and `"nearest"` take an element, `"midpoint"` the mean of both. NumPy's other methods are
            `"inverted_cdf"`, `"averaged_inverted_cdf"`, `"closest_observation"`, `"interpolated_inverted_cdf"`,
            `"hazen"`, `"weibull"`, `"median_unbiased"` and `"normal_unbiased"`.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the reduced axes (an array if `x` is one): float16 if `x` is, else float32. Methods that take an
        element keep the dtype of `x`.

    Raises:
        InvalidArgument: If an axis is out of range, `q` is not from 0 to 100, or `method` is another word.

    Examples:
        >>> ops.percentile([3, 1, 2, 4], 25)
        array(1.75, dtype=float32)

    See also:
        `median`, `quantile`, `nanpercentile`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER
    (`ns-directml-dml_gather_operator_desc`).
    """
    return _quantiles(tensor_of("x", x), _levels(q, 100), axis, keepdims, method, False)


@eager
def nanquantile(
    x: Operand, q: Levels, axis: Axes = None, method: str = "linear", keepdims: bool = False, *, device: Where = None
) -> Array:
    """Return quantiles along axes, ignoring NaN.

    The result is NaN if all elements are NaN, or there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        q: Probability from 0 to 1, or an array of several; the axes of the array come first in the result.
            The elements of a Tensor are read, which a traced function rejects.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        method: How a quantile between two elements is computed: `"linear"`, the default, interpolates; `"lower"`,
            `"higher"` and `"nearest"` take an element, `"midpoint"` the mean of both. NumPy's other methods are
            `"inverted_cdf"`, `"averaged_inverted_cdf"`, `"closest_observation"`, `"interpolated_inverted_cdf"`,
            `"hazen"`, `"weibull"`, `"median_unbiased"` and `"normal_unbiased"`.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the reduced axes (an array if `x` is one): float16 if `x` is, else float32. Methods that take an
        element keep the dtype of `x`.

    Raises:
        InvalidArgument: If an axis is out of range, `q` is not from 0 to 1, or `method` is another word.

    Examples:
        >>> ops.nanquantile([3.0, np.nan, 1.0], [0, 0.5, 1])
        array([1., 2., 3.], dtype=float32)

    See also:
        `nanmedian`, `nanpercentile`, `quantile`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER_ELEMENTS
    (`ns-directml-dml_gather_elements_operator_desc`).
    """
    return _quantiles(tensor_of("x", x), _levels(q, 1), axis, keepdims, method, True)


@eager
def nanpercentile(
    x: Operand, q: Levels, axis: Axes = None, method: str = "linear", keepdims: bool = False, *, device: Where = None
) -> Array:
    """Return percentiles along axes, ignoring NaN.

    The result is NaN if all elements are NaN, or there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        q: Percentage from 0 to 100, or an array of several; the axes of the array come first in the result.
            The elements of a Tensor are read, which a traced function rejects.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        method: How a quantile between two elements is computed: `"linear"`, the default, interpolates; `"lower"`,
            `"higher"` and `"nearest"` take an element, `"midpoint"` the mean of both. NumPy's other methods are
            `"inverted_cdf"`, `"averaged_inverted_cdf"`, `"closest_observation"`, `"interpolated_inverted_cdf"`,
            `"hazen"`, `"weibull"`, `"median_unbiased"` and `"normal_unbiased"`.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the reduced axes (an array if `x` is one): float16 if `x` is, else float32. Methods that take an
        element keep the dtype of `x`.

    Raises:
        InvalidArgument: If an axis is out of range, `q` is not from 0 to 100, or `method` is another word.

    Examples:
        >>> ops.nanpercentile([3.0, np.nan, 1.0], [0, 50, 100])
        array([1., 2., 3.], dtype=float32)

    See also:
        `nanmedian`, `nanquantile`, `percentile`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER_ELEMENTS
    (`ns-directml-dml_gather_elements_operator_desc`).
    """
    return _quantiles(tensor_of("x", x), _levels(q, 100), axis, keepdims, method, True)


@eager
def ptp(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the range of the elements along axes: the difference of the largest and the smallest.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x` without the reduced axes (an array if `x` is one). Integers wrap around.

    Raises:
        InvalidArgument: If an axis is out of range, there are no elements, or the dtype of `x` is not supported.

    Examples:
        >>> ops.ptp([[1, 5], [2, 9]], axis=1)
        array([4, 7])

    See also:
        `max`, `min`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX and MIN.
    """
    tensor = check_kind("x", tensor_of("x", x), NUMERIC)
    largest, smallest = (reduced(tensor, function, axis, keepdims) for function in (_MAX, _MIN))
    return largest - smallest
