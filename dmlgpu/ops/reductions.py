"""Functions along axes under NumPy's names: sums, extremes, statistics, running sums, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.common.coercion import argument, as_index, boolean, real
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import (
    FLOATING,
    Array,
    Operand,
    Where,
    caller,
    check_kind,
    eager,
    filled,
    numeric_type,
    tensor_of,
)
from dmlgpu.tensors.integers import wrapped
from dmlgpu.tensors.layout import checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_data_type

__all__ = [
    "TopK", "argmax", "argmin", "argsort", "cumprod", "cumsum", "logsumexp", "max", "mean", "min", "norm", "prod",
    "sort", "std", "sum", "topk", "var",
]  # fmt: skip

Axes: TypeAlias = int | Sequence[int] | None
"""An axis or several, negative ones counted from the end; None means all."""

# ---- reductions ------------------------------------------------------------------------------------------------------

_EMPTY_VALUES = {
    ReduceFunction.SUM: 0.0,
    ReduceFunction.L2: 0.0,
    ReduceFunction.MULTIPLY: 1.0,
    ReduceFunction.AVERAGE: math.nan,
    ReduceFunction.LOG_SUM_EXP: -math.inf,
}
"""Results of reductions of no elements, as in NumPy."""

_EXTREMES = (ReduceFunction.MIN, ReduceFunction.MAX)


class ReductionFunction(Protocol):
    """A function that reduces a tensor or array along axes."""

    __name__: str

    def __call__(self, x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
        """Return an array of the shape of `x` without the reduced axes, or with size 1 there."""


def reduced(x: Tensor, function: ReduceFunction, axis: Axes, keepdims: Any, empty_value: float | None = None) -> Tensor:
    """Reduce along axes, which stay with size 1 if ``keepdims``.

    Args:
        x: A tensor.
        function: How to reduce.
        axis: Along which axes.
        keepdims: Whether these stay.
        empty_value: Result of no elements; None means that of ``function``, if it has one.

    Raises:
        InvalidArgument: If an axis is out of range, or there are no elements and no result of nothing.
    """
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    shape = tuple(
        1 if number in axes else size for number, size in enumerate(x.sizes) if keepdims or number not in axes
    )
    if not x.size:
        value = _EMPTY_VALUES.get(function) if empty_value is None else empty_value
        is_held = value is not None and (x.data_type.is_float or math.isfinite(value))
        if 0 not in shape and not is_held:
            raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got sizes {list(x.sizes)}")
        return filled(x, shape, value if is_held and value is not None else 0)
    if not axes:
        x, axes = x.reshape(-1, 1), (1,)

    def reduce(operand: Tensor) -> Tensor:
        result: Tensor = directml.reduce(operand, function=function, axes=axes)
        return result._renamed(shape)

    return _in_32_bits(reduce, x) if function in (ReduceFunction.SUM, ReduceFunction.MULTIPLY) else reduce(x)


def _in_32_bits(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute integers below 32 bits, which DirectML does not sum, in 32 bits, and drop the bits they lack."""
    if x.data_type.is_float or x.data_type.bits >= 32:
        return function(x)
    return wrapped(function(x.astype(DataType.INT32 if x.data_type.is_signed else DataType.UINT32)), x.data_type)


def _reduction(name: str, reduce_function: ReduceFunction, summary: str) -> ReductionFunction:
    """Return the function that reduces in one of DirectML's ways."""

    def function(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
        tensor = tensor_of("x", x)
        if reduce_function is ReduceFunction.AVERAGE:
            check_kind("x", tensor, FLOATING)
        result = reduced(tensor._same(boolean=False), reduce_function, axis, keepdims)
        return result._same(boolean=True) if tensor.is_boolean and reduce_function in _EXTREMES else result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{summary}

    Args:
        x: Tensor or array.
        axis: Axis or axes to reduce; negative axes count from the end, None means all.
        keepdims: Whether reduced axes stay, with size 1.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the dtype of `x` (an array if `x` is one).

    Computed by REDUCE with {reduce_function.name}.
    """
    return eager(function)


class SumFunction(Protocol):
    """A function that sums or multiplies elements along axes."""

    __name__: str

    def __call__(
        self,
        x: Operand,
        axis: Axes = None,
        keepdims: bool = False,
        dtype: TypeLike | None = None,
        *,
        device: Where = None,
    ) -> Array:
        """Return an array of the shape of `x` without the reduced axes, or with size 1 there."""


def summable(x: Tensor, dtype: TypeLike | None) -> Tensor:
    """Return elements in the dtype in which they are summed: integers and booleans in one of 64 bits by default."""
    if dtype is not None:
        return x.astype(numeric_type(dtype))
    if x.data_type.is_float:
        return x
    return x.astype(DataType.INT64 if x.data_type.is_signed or x.is_boolean else DataType.UINT64)


def _sum(name: str, reduce_function: ReduceFunction, summary: str) -> SumFunction:
    """Return the function that sums or multiplies."""

    def function(
        x: Operand, axis: Axes = None, keepdims: bool = False, dtype: TypeLike | None = None, *, device: Where = None
    ) -> Array:
        return reduced(summable(tensor_of("x", x), dtype), reduce_function, axis, keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{summary}

    Args:
        x: Tensor or array.
        axis: Axis or axes to reduce; negative axes count from the end, None means all.
        keepdims: Whether reduced axes stay, with size 1.
        dtype: Dtype in which elements are accumulated; None means that of floating-point elements, int64 for booleans
            and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of that dtype (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or ``dtype`` is not numeric.
        NotSupported: If adapters cannot compute the dtype.

    Computed by REDUCE with {reduce_function.name}.
    """
    return eager(function)


sum = _sum("sum", ReduceFunction.SUM, "Return the sum along axes.")
mean = _reduction("mean", ReduceFunction.AVERAGE, "Return the mean along axes.")
prod = _sum("prod", ReduceFunction.MULTIPLY, "Return the product along axes.")
min = _reduction("min", ReduceFunction.MIN, "Return the smallest element along axes.")
max = _reduction("max", ReduceFunction.MAX, "Return the largest element along axes.")
logsumexp = _reduction(
    "logsumexp", ReduceFunction.LOG_SUM_EXP, "Return the logarithm of the sum of the exponentials along axes."
)
norm = _reduction("norm", ReduceFunction.L2, "Return the square root of the sum of squares along axes.")


def squared_distances(x: Tensor, axis: Axes, keepdims: bool) -> tuple[Tensor, int]:
    """Return the sum of squared distances from the mean along axes, and the element count of each mean."""
    axes = range(x.ndim) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    distances = x - reduced(x, ReduceFunction.AVERAGE, axis, True)
    squares = reduced(distances * distances, ReduceFunction.SUM, axis, keepdims)
    return squares, math.prod(x.sizes[number] for number in axes)


@eager
def var(x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None) -> Array:
    """Return the variance along axes: the mean of the squared distances from the mean.

    Args:
        x: Tensor or array of a floating-point dtype.
        axis: Axis or axes to reduce; negative axes count from the end, None means all.
        keepdims: Whether reduced axes stay, with size 1.
        correction: Subtracted from the element count before dividing by it.
        device: Device or adapter name that computes arrays.

    Returns:
        Tensor of the dtype of `x` (an array if `x` is one), NaN if there are no more elements than ``correction``.

    Raises:
        InvalidArgument: If the dtype is not floating point, or an axis is out of range.
    """
    return variance(tensor_of("x", x), axis, keepdims, correction)


@eager
def std(x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None) -> Array:
    """Return the standard deviation along axes: the square root of ``var``."""
    return directml.element_wise_sqrt(variance(tensor_of("x", x), axis, keepdims, correction))


def variance(x: Tensor, axis: Axes, keepdims: bool, correction: float) -> Tensor:
    """Return the variance along axes; NaN if there are no more elements than ``correction``."""
    check_kind("x", x, FLOATING)
    subtrahend = argument(caller(), "correction", real, correction)
    if not x.size:
        return reduced(x, ReduceFunction.AVERAGE, axis, keepdims)
    squares, count = squared_distances(x, axis, keepdims)
    return squares / (count - subtrahend) if count > subtrahend else squares * math.nan


# ---- places of extremes ----------------------------------------------------------------------------------------------


@eager
def argmin(
    x: Operand,
    axis: int | None = None,
    keepdims: bool = False,
    dtype: TypeLike = "int64",
    *,
    device: Where = None,
) -> Array:
    """Return the index of the smallest element along an axis, the first of equal ones; None means all, flattened."""
    return _place(directml.argmin, tensor_of("x", x), axis, keepdims, dtype)


@eager
def argmax(
    x: Operand,
    axis: int | None = None,
    keepdims: bool = False,
    dtype: TypeLike = "int64",
    *,
    device: Where = None,
) -> Array:
    """Return the index of the largest element along an axis, the first of equal ones; None means all, flattened."""
    return _place(directml.argmax, tensor_of("x", x), axis, keepdims, dtype)


def _place(function: Any, x: Tensor, axis: int | None, keepdims: bool, dtype: TypeLike) -> Tensor:
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    flat, number = (x.reshape(-1), 0) if axis is None else (x, checked_axis(caller(), "axis", axis, x.ndim))
    remaining = flat.sizes[:number] + flat.sizes[number + 1 :]
    shape = (1,) * x.ndim if keepdims and axis is None else remaining
    if keepdims and axis is not None:
        shape = (*x.sizes[:number], 1, *x.sizes[number + 1 :])
    if not x.size:
        if 0 not in remaining:
            raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got {list(x.sizes)}")
        return filled(x, shape, data_type=as_data_type(caller(), "dtype", dtype))
    places: Tensor = function(flat, axes=(number,), output_type=dtype)
    if x.data_type.is_float:  # DirectML skips NaN, NumPy and PyTorch return its place
        is_nan = directml.element_wise_is_nan(reduced(flat, ReduceFunction.MAX, number, True))
        first_nan = directml.argmax(directml.element_wise_is_nan(flat), axes=(number,), output_type=dtype)
        places = first_nan._chosen(is_nan, places)
    return places._renamed(shape)


# ---- running sums, sorting -------------------------------------------------------------------------------------------


@eager
def cumsum(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the running sum along an axis; None means all elements, flattened."""
    return running(directml.cumulative_summation, summable(tensor_of("x", x), None), axis)


@eager
def cumprod(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the running product along an axis; None means all elements, flattened."""
    return running(directml.cumulative_product, summable(tensor_of("x", x), None), axis)


def running(function: Callable[..., Any], x: Tensor, axis: int | None) -> Tensor:
    """Accumulate along an axis; None means all elements, flattened."""
    x, number = (x.reshape(-1), 0) if axis is None else (x, checked_axis(caller(), "axis", axis, x.ndim))
    return _in_32_bits(lambda operand: function(operand, axis=number), x) if x.size else x


class TopK(NamedTuple):
    """Outputs of ``topk``.

    Attributes:
        values: The elements.
        indices: Their indices along the axis, uint32.
    """

    values: Array
    indices: Array


@eager
def topk(x: Operand, k: int, axis: int = -1, largest: bool = True, *, device: Where = None) -> TopK:
    """Return the k largest, or smallest, elements along an axis in order, and their indices.

    Raises:
        InvalidArgument: If k is not between 1 and the size of the axis.
    """
    return ordered(tensor_of("x", x), k, axis, largest)


@eager
def sort(x: Operand, axis: int = -1, descending: bool = False, *, device: Where = None) -> Array:
    """Return the elements along an axis in order."""
    return ordered(tensor_of("x", x), None, axis, descending).values


@eager
def argsort(x: Operand, axis: int = -1, descending: bool = False, *, device: Where = None) -> Array:
    """Return the indices that sort along an axis, int64; equal elements keep their order."""
    return ordered(tensor_of("x", x), None, axis, descending).indices.astype(DataType.INT64)


def ordered(x: Tensor, k: int | None = None, axis: int = -1, descending: bool = False) -> TopK:
    """Return the first k elements in order along an axis, None for all, and their indices."""
    number = checked_axis(caller(), "axis", axis, x.ndim)
    count = x.sizes[number] if k is None else as_index(k)
    if count is None or not (k is None or 1 <= count <= x.sizes[number]):
        raise InvalidArgument(f"{caller()}: k must be an integer between 1 and {x.sizes[number]}, got {shown(k)}")
    descending = argument(caller(), "largest" if k is not None else "descending", boolean, descending)
    if not x.size:
        shape = (*x.sizes[:number], count, *x.sizes[number + 1 :])
        return TopK(filled(x, shape), filled(x, shape, data_type=DataType.UINT32))
    direction = AxisDirection.DECREASING if descending else AxisDirection.INCREASING
    return TopK(*directml.top_k1(x, axis=number, k=count, axis_direction=direction))
