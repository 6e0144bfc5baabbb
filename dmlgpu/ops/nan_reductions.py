"""Functions along axes that ignore NaN, under NumPy's names: sums, means, variances, extremes, running sums.

Integers and masks hold no NaN: the functions are those without "nan" for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dmlgpu.catalog.enums import DataType, ReduceFunction, float_limits
from dmlgpu.common.coercion import argument, real
from dmlgpu.ops import directml, reductions
from dmlgpu.ops.reductions import Axes, reduced, running, summable
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_number

__all__ = [
    "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
    "nanstd", "nansum", "nanvar",
]  # fmt: skip


def _without_nan(x: Tensor, number: float) -> Tensor:
    """Return floating-point elements with a number in place of NaN."""
    return directml.element_wise_if(directml.element_wise_is_nan(x), number, x)


def _filled_nan(x: Operand, number: float) -> Tensor:
    """Return an operand with a number in place of NaN."""
    tensor = tensor_of("x", x)
    return _without_nan(tensor, number) if tensor.data_type.is_float else tensor


def _numbers(x: Tensor, axis: Axes, keepdims: Any) -> Tensor:
    """Return how many elements along axes are not NaN, float32."""
    is_number = ~directml.element_wise_is_nan(x)
    return reduced(is_number.astype(DataType.UINT32), ReduceFunction.SUM, axis, keepdims).astype(DataType.FLOAT32)


# ---- sums, means, variances ------------------------------------------------------------------------------------------


@eager
def nansum(
    x: Operand, axis: Axes = None, keepdims: bool = False, dtype: TypeLike | None = None, *, device: Where = None
) -> Array:
    """Return the sum of elements along axes, NaN as 0.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        dtype: Dtype in which elements are accumulated; defaults to None: the dtype of floating-point elements, int64
            for booleans and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of that dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `dtype` is not numeric.

    Examples:
        >>> ops.nansum([2.0, np.nan, 3.0])
        array(5., dtype=float32)

    See also:
        `sum`, `nanmean`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM, and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return reduced(summable(_filled_nan(x, 0), dtype), ReduceFunction.SUM, axis, keepdims)


@eager
def nanprod(
    x: Operand, axis: Axes = None, keepdims: bool = False, dtype: TypeLike | None = None, *, device: Where = None
) -> Array:
    """Return the product of elements along axes, NaN as 1.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        dtype: Dtype in which elements are accumulated; defaults to None: the dtype of floating-point elements, int64
            for booleans and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of that dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `dtype` is not numeric.

    Examples:
        >>> ops.nanprod([2.0, np.nan, 3.0])
        array(6., dtype=float32)

    See also:
        `prod`, `nansum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MULTIPLY, and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return reduced(summable(_filled_nan(x, 1), dtype), ReduceFunction.MULTIPLY, axis, keepdims)


@eager
def nanmean(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the mean of the elements along axes that are not NaN.

    The result is NaN if there are none.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x`, float32 for integers, without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.nanmean([1.0, np.nan, 3.0])
        array(2., dtype=float32)

    See also:
        `mean`, `nanvar`, `nanmedian`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM, and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return _mean(_wide(tensor), axis, keepdims).astype(_float_type(tensor))


def _mean(x: Tensor, axis: Axes, keepdims: Any) -> Tensor:
    total: Any = reduced(_without_nan(x, 0.0), ReduceFunction.SUM, axis, keepdims)
    return total / _numbers(x, axis, keepdims)


@eager
def nanvar(
    x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None
) -> Array:
    """Return the variance along axes of the elements that are not NaN.

    The result is NaN if `correction` is not below the number of these elements.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        correction: Subtracted from the number of elements before dividing by it; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x`, float32 for integers, without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.nanvar([1.0, np.nan, 3.0])
        array(1., dtype=float32)

    See also:
        `var`, `nanstd`, `nanmean`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM, and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return _variance(tensor, axis, keepdims, correction).astype(_float_type(tensor))


@eager
def nanstd(
    x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None
) -> Array:
    """Return the standard deviation along axes of the elements that are not NaN: the square root of `nanvar`.

    The result is NaN if `correction` is not below the number of these elements.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        correction: Subtracted from the number of elements before dividing by it; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x`, float32 for integers, without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.nanstd([1.0, np.nan, 3.0])
        array(1., dtype=float32)

    See also:
        `std`, `nanvar`, `nanmean`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM, and ELEMENT_WISE_SQRT
    (`ns-directml-dml_element_wise_sqrt_operator_desc`).
    """
    tensor = tensor_of("x", x)
    variance = _variance(tensor, axis, keepdims, correction)
    return directml.element_wise_sqrt(variance).astype(_float_type(tensor))


def _variance(x: Tensor, axis: Axes, keepdims: Any, correction: Any) -> Tensor:
    """Return the variance of the elements that are not NaN in float32, by two passes."""
    subtrahend = argument(caller(), "correction", real, correction)
    wide = _wide(x)
    distances: Any = directml.element_wise_if(directml.element_wise_is_nan(wide), 0.0, wide - _mean(wide, axis, True))
    count = _numbers(wide, axis, keepdims)
    squares: Any = reduced(distances * distances, ReduceFunction.SUM, axis, keepdims)
    rest: Any = reduced(distances, ReduceFunction.SUM, axis, keepdims)  # rounding error of the mean, summed
    divisor = count - subtrahend
    return (squares - rest * rest / count) / divisor._chosen(divisor > 0, math.nan)


def _wide(x: Tensor) -> Tensor:
    """Return elements in float32 at least."""
    return x if x.data_type is DataType.FLOAT64 else x.astype(DataType.FLOAT32)


def _float_type(x: Tensor) -> DataType:
    return x.data_type if x.data_type.is_reduced_float else DataType.FLOAT32


# ---- extremes --------------------------------------------------------------------------------------------------------


def _of_numbers(
    function: Callable[..., Tensor], x: Tensor, axis: Any, keepdims: Any, filler: float, without_numbers: float
) -> Tensor:
    """Apply a function along axes with a filler in place of NaN, and return another number where there is only NaN."""
    if not x.data_type.is_float or not x.size:
        return function(x, axis, keepdims)
    result = function(_without_nan(x, filler), axis, keepdims)
    return result._chosen(_numbers(x, axis, keepdims) > 0, without_numbers)


@eager
def nanmax(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the largest element along axes, ignoring NaN.

    The result is NaN if all elements are NaN.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x` without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or there are no elements.

    Examples:
        >>> ops.nanmax([1.0, np.nan, 3.0])
        array(3., dtype=float32)

    See also:
        `max`, `nanargmax`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX, and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return _of_numbers(reductions.max, tensor_of("x", x), axis, keepdims, -math.inf, math.nan)


@eager
def nanmin(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the smallest element along axes, ignoring NaN.

    The result is NaN if all elements are NaN.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x` without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or there are no elements.

    Examples:
        >>> ops.nanmin([1.0, np.nan, 3.0])
        array(1., dtype=float32)

    See also:
        `min`, `nanargmin`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MIN, and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return _of_numbers(reductions.min, tensor_of("x", x), axis, keepdims, math.inf, math.nan)


@eager
def nanargmax(x: Operand, axis: int | None = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the index of the largest element along an axis, ignoring NaN, the first of equal ones.

    The result is -1 if all elements are NaN, for which NumPy raises.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        axis: Axis to search; negative axes count from the end. Defaults to None: `x`, flattened.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of indices, int64, without the searched axis (an array if `x` is one).

    Raises:
        InvalidArgument: If the axis is out of range, or there are no elements.

    Examples:
        >>> ops.nanargmax([1.0, np.nan, 3.0])
        array(2)

    See also:
        `argmax`, `nanmax`.

    Computed by ARGMAX (`ns-directml-dml_argmax_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return _of_numbers(reductions.argmax, tensor_of("x", x), axis, keepdims, -math.inf, -1)


@eager
def nanargmin(x: Operand, axis: int | None = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the index of the smallest element along an axis, ignoring NaN, the first of equal ones.

    The result is -1 if all elements are NaN, for which NumPy raises.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        axis: Axis to search; negative axes count from the end. Defaults to None: `x`, flattened.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of indices, int64, without the searched axis (an array if `x` is one).

    Raises:
        InvalidArgument: If the axis is out of range, or there are no elements.

    Examples:
        >>> ops.nanargmin([1.0, np.nan, 3.0])
        array(0)

    See also:
        `argmin`, `nanmin`.

    Computed by ARGMIN (`ns-directml-dml_argmin_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return _of_numbers(reductions.argmin, tensor_of("x", x), axis, keepdims, math.inf, -1)


# ---- running sums, replacement ---------------------------------------------------------------------------------------


@eager
def nancumsum(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the running sum along an axis, NaN as 0.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis to accumulate along; negative axes count from the end. Defaults to None: `x`, flattened.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x`, flattened if `axis` is None (an array if `x` is one): of the dtype of floating-point
        elements, else int64 or uint64.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.nancumsum([2.0, np.nan, 3.0])
        array([2., 2., 5.], dtype=float32)

    See also:
        `cumsum`, `nansum`.

    Computed by CUMULATIVE_SUMMATION (`ns-directml-dml_cumulative_summation_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return running(directml.cumulative_summation, summable(_filled_nan(x, 0), None), axis)


@eager
def nancumprod(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the running product along an axis, NaN as 1.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis to accumulate along; negative axes count from the end. Defaults to None: `x`, flattened.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x`, flattened if `axis` is None (an array if `x` is one): of the dtype of floating-point
        elements, else int64 or uint64.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.nancumprod([2.0, np.nan, 3.0])
        array([2., 2., 6.], dtype=float32)

    See also:
        `cumprod`, `nanprod`.

    Computed by CUMULATIVE_PRODUCT (`ns-directml-dml_cumulative_product_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return running(directml.cumulative_product, summable(_filled_nan(x, 1), None), axis)


@eager
def nan_to_num(
    x: Operand,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the elements with numbers in place of NaN and infinities.

    Integers and masks are returned unchanged.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        nan: Replaces NaN; defaults to 0.
        posinf: Replaces infinity; defaults to None, the largest number of the dtype.
        neginf: Replaces -infinity; defaults to None, the smallest number of the dtype.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If a replacement is not a number.

    Examples:
        >>> ops.nan_to_num([1.0, np.nan, np.inf], posinf=9.0)
        array([1., 0., 9.], dtype=float32)

    See also:
        `isnan`, `isfinite`, `clip`.

    Computed by ELEMENT_WISE_IF (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    tensor = tensor_of("x", x)
    if not tensor.data_type.is_float:
        return tensor._same()
    limits = float_limits(tensor.data_type)
    chosen = {"nan": nan, "posinf": float(limits.max) if posinf is None else posinf}
    chosen["neginf"] = float(limits.min) if neginf is None else neginf
    numbers = {name: as_number(f"{caller()}: {name}", value, tensor.data_type) for name, value in chosen.items()}
    result = _without_nan(tensor, numbers["nan"])
    for sign, name in ((math.inf, "posinf"), (-math.inf, "neginf")):
        result = directml.element_wise_if(tensor == sign, numbers[name], result)
    return result
