"""Functions along axes under NumPy's names: sums, extremes, statistics, running sums, sorting."""

from __future__ import annotations

import builtins
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.common.coercion import argument, as_index, boolean, integer, real
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.sizes.arithmetic import computed
from dmlgpu.ops import directml
from dmlgpu.ops.shape import along, joined
from dmlgpu.tensors.arithmetic import wrapped
from dmlgpu.tensors.calls import (
    Array,
    Operand,
    Where,
    caller,
    eager,
    filled,
    numeric_type,
    tensor_of,
    widened,
)
from dmlgpu.tensors.layout import checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_data_type, as_floating, is_number, promoted

__all__ = [
    "TopK", "argmax", "argmin", "argsort", "cumprod", "cumsum", "diff", "logsumexp", "max", "mean", "min", "norm",
    "prod", "sort", "std", "sum", "topk", "var",
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
    shape = tuple(1 if i in axes else size for i, size in enumerate(x.sizes) if keepdims or i not in axes)
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


def _extreme(x: Any, function: ReduceFunction, axis: Axes, keepdims: bool) -> Tensor:
    """Return the largest or smallest elements along axes, booleans of booleans."""
    tensor = tensor_of("x", x)
    result = reduced(tensor._same(boolean=False), function, axis, keepdims)
    return result._same(boolean=True) if tensor.is_boolean else result


def summable(x: Tensor, dtype: TypeLike | None) -> Tensor:
    """Return elements in the dtype in which they are summed: integers and booleans in one of 64 bits by default."""
    if dtype is not None:
        return x.astype(numeric_type(dtype))
    if x.data_type.is_float:
        return x
    return x.astype(DataType.INT64 if x.data_type.is_signed or x.is_boolean else DataType.UINT64)


_IN_WORD = 4
"""Elements of a mask in a word of memory."""


def counted(x: Tensor, axis: Axes, keepdims: Any) -> Tensor:
    """Return how many elements of a mask are true along axes, int64.

    They are counted in 32 bits, which hold any number of elements, and by the bits of words where rows of the mask are
    words of memory: as int64, a mask takes eight times its memory.
    """
    flags = x._same(boolean=False)
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    first = x.ndim - len(axes)
    if x.graph is None and axes == tuple(range(first, x.ndim)) and flags.signature[2] is None:
        length = math.prod(x.sizes[first:])
        if length and not (length % _IN_WORD or flags.offset % _IN_WORD):
            words = flags.reinterpret((*x.sizes[:first], length // _IN_WORD), dtype=DataType.UINT32)
            bits: Tensor = directml.element_wise_bit_count(words, output_type=DataType.UINT32)
            reduced_sizes = (1,) * len(axes) if argument(caller(), "keepdims", boolean, keepdims) else ()
            counts = reduced(bits, ReduceFunction.SUM, first, False).astype(DataType.INT64)
            return counts._renamed((*x.sizes[:first], *reduced_sizes))
    return reduced(flags.astype(DataType.UINT32), ReduceFunction.SUM, axes, keepdims).astype(DataType.INT64)


@eager
def sum(
    x: Operand, axis: Axes = None, keepdims: bool = False, dtype: TypeLike | None = None, *, device: Where = None
) -> Array:
    """Return the sum of elements along axes.

    Without elements the result is 0.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        dtype: Dtype in which elements are accumulated; defaults to None: the dtype of floating-point elements, int64
            for booleans and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of that dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `dtype` is not numeric.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> ops.sum([[1, 2], [3, 4]], axis=0)
        array([4, 6])
        >>> ops.sum([True, True, False])
        array(2)

    See also:
        `mean`, `prod`, `cumsum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM.
    """
    tensor = tensor_of("x", x)
    if tensor.is_boolean and dtype is None:
        return counted(tensor, axis, keepdims)
    return reduced(summable(tensor, dtype), ReduceFunction.SUM, axis, keepdims)


@eager
def mean(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the mean of elements along axes.

    Without elements the result is NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the floating-point dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.mean([[1.0, 2.0], [3.0, 4.0]], axis=1)
        array([1.5, 3.5], dtype=float32)
        >>> ops.mean([True, True, False, True])
        array(0.75, dtype=float32)

    See also:
        `var`, `std`, `sum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with AVERAGE.
    """
    return reduced(as_floating(tensor_of("x", x)), ReduceFunction.AVERAGE, axis, keepdims)


@eager
def prod(
    x: Operand, axis: Axes = None, keepdims: bool = False, dtype: TypeLike | None = None, *, device: Where = None
) -> Array:
    """Return the product of elements along axes.

    Without elements the result is 1.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        dtype: Dtype in which elements are accumulated; defaults to None: the dtype of floating-point elements, int64
            for booleans and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of that dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `dtype` is not numeric.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> ops.prod([[1, 2], [3, 4]], axis=0)
        array([3, 8])

    See also:
        `sum`, `cumprod`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MULTIPLY.
    """
    return reduced(summable(tensor_of("x", x), dtype), ReduceFunction.MULTIPLY, axis, keepdims)


@eager
def min(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the smallest element along axes.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x` without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, there are no elements, or the dtype of `x` is not supported.

    Examples:
        >>> ops.min([[1, 2], [3, 4]], axis=0)
        array([1, 2])

    See also:
        `max`, `argmin`, `minimum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MIN.
    """
    return _extreme(x, ReduceFunction.MIN, axis, keepdims)


@eager
def max(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the largest element along axes.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x` without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, there are no elements, or the dtype of `x` is not supported.

    Examples:
        >>> ops.max([[1, 2], [3, 4]], axis=0)
        array([3, 4])

    See also:
        `min`, `argmax`, `maximum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX.
    """
    return _extreme(x, ReduceFunction.MAX, axis, keepdims)


@eager
def logsumexp(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Return the logarithm of the sum of the exponentials along axes.

    Without elements the result is -inf.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x` without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or the dtype of `x` is not supported.

    Examples:
        >>> ops.logsumexp([0.0, 0.0]).round(3)
        np.float32(0.693)

    See also:
        `log_softmax`, `exp`, `sum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with LOG_SUM_EXP.
    """
    return reduced(tensor_of("x", x)._same(boolean=False), ReduceFunction.LOG_SUM_EXP, axis, keepdims)


@eager
def norm(
    x: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    ord: float | str | None = None,
    device: Where = None,
) -> Array:
    """Return the Euclidean norm along axes, the square root of the sum of squares, or another norm.

    Without elements the Euclidean norm is 0.

    Args:
        x: Tensor or array of float32, float16, integers or booleans, rank 0 to 8.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        ord: Order of the norm of vectors along one axis, or of matrices along two, as of `dmlgpu.ops.linalg.norm`;
            defaults to None, the Euclidean norm along any axes.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor without the reduced axes, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `ord` does not fit the axes.

    Examples:
        >>> ops.norm([[3.0, 4.0], [5.0, 12.0]], axis=1)
        array([ 5., 13.], dtype=float32)
        >>> ops.norm([3.0, -4.0], ord=1)
        array(7., dtype=float32)

    See also:
        `dmlgpu.ops.linalg.norm`, `sum`, `sqrt`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with L2.
    """
    if ord is not None:
        return importlib.import_module("dmlgpu.ops.linalg").norm(x, ord, axis, keepdims)
    return reduced(as_floating(tensor_of("x", x)), ReduceFunction.L2, axis, keepdims)


def squared_distances(x: Tensor, axis: Axes, keepdims: bool, *, root: bool = False) -> tuple[Tensor, int]:
    """Return the sum of squared distances from the mean along axes, or its square root, and the count of each mean.

    The sum of float16 elements is float32. Distances are not from the mean's float32, which is too far from the mean
    where the elements lie close together: MEAN_VARIANCE_NORMALIZATION2 has the mean in two parts.
    """
    function = ReduceFunction.L2 if root else ReduceFunction.SUM_SQUARE
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    count = math.prod(x.sizes[i] for i in axes)
    if not axes:  # each element is its own mean
        return reduced(widened(x - x), function, axes, keepdims), count
    distances: Tensor = directml.mean_variance_normalization2(widened(x), axes=axes, use_variance=False, epsilon=0.0)
    return reduced(distances, function, axes, keepdims), count


@eager
def var(x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None) -> Array:
    """Return the variance along axes: the mean squared distance from the mean.

    The result is NaN if `correction` is not below the element count.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        correction: Subtracted from the element count before dividing by it; defaults to 0, and 1 gives the sample
            variance.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the floating-point dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.var([1.0, 3.0])
        array(1., dtype=float32)
        >>> ops.var([1.0, 3.0], correction=1)
        array(2., dtype=float32)

    See also:
        `std`, `mean`, `layer_norm`.

    Computed by MEAN_VARIANCE_NORMALIZATION2 (`ns-directml-dml_mean_variance_normalization2_operator_desc`) without the
    variance, and REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM_SQUARE; float16 in float32.
    """
    return variance(tensor_of("x", x), axis, keepdims, correction)


@eager
def std(x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None) -> Array:
    """Return the standard deviation along axes: the square root of `var`.

    The result is NaN if `correction` is not below the element count.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        correction: Subtracted from the element count before dividing by it; defaults to 0, and 1 gives the sample
            variance.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the floating-point dtype without the reduced axes (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.std([1.0, 3.0])
        array(1., dtype=float32)

    See also:
        `var`, `mean`.

    Computed by MEAN_VARIANCE_NORMALIZATION2 (`ns-directml-dml_mean_variance_normalization2_operator_desc`) without the
    variance, and REDUCE (`ns-directml-dml_reduce_operator_desc`) with L2; float16 in float32.
    """
    return variance(tensor_of("x", x), axis, keepdims, correction, root=True)


def variance(x: Tensor, axis: Axes, keepdims: bool, correction: float, *, root: bool = False) -> Tensor:
    """Return the variance along axes or its square root; NaN if there are no more elements than ``correction``."""
    x = as_floating(x)
    subtrahend = argument(caller(), "correction", real, correction)
    if not x.size:
        return reduced(x, ReduceFunction.AVERAGE, axis, keepdims)
    squares, count = squared_distances(x, axis, keepdims, root=root)
    if count <= subtrahend:
        return (squares * math.nan).astype(x.data_type)
    divisor = count - subtrahend
    return (squares / (computed(math.sqrt, divisor) if root else divisor)).astype(x.data_type)


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
    """Return the index of the smallest element along an axis, the first of equal ones.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        axis: Axis to search; negative axes count from the end. Defaults to None: `x`, flattened.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        dtype: Dtype of the indices: int64, the default, int32, uint32 or uint64.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of indices, of `dtype`, without the searched axis (an array if `x` is one). If there is NaN, the index of
        the first one.

    Raises:
        InvalidArgument: If an axis is out of range, there are no elements, or the dtype of `x` is not supported.

    Examples:
        >>> ops.argmin([[3, 1], [0, 2]], axis=1)
        array([1, 0])

    See also:
        `argmax`, `min`, `argsort`.

    Computed by ARGMIN (`ns-directml-dml_argmin_operator_desc`).
    """
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
    """Return the index of the largest element along an axis, the first of equal ones.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        axis: Axis to search; negative axes count from the end. Defaults to None: `x`, flattened.
        keepdims: Whether reduced axes stay, with size 1; defaults to False.
        dtype: Dtype of the indices: int64, the default, int32, uint32 or uint64.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of indices, of `dtype`, without the searched axis (an array if `x` is one). If there is NaN, the index of
        the first one.

    Raises:
        InvalidArgument: If an axis is out of range, there are no elements, or the dtype of `x` is not supported.

    Examples:
        >>> ops.argmax([[3, 1], [0, 2]], axis=1)
        array([0, 1])
        >>> ops.argmax([[3, 1], [0, 2]])
        array(0)

    See also:
        `argmin`, `max`, `topk`.

    Computed by ARGMAX (`ns-directml-dml_argmax_operator_desc`).
    """
    return _place(directml.argmax, tensor_of("x", x), axis, keepdims, dtype)


def _place(function: Any, x: Tensor, axis: int | None, keepdims: bool, dtype: TypeLike) -> Tensor:
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    is_flattened = axis is None
    flat, axis = along(x, axis)
    remaining = flat.sizes[:axis] + flat.sizes[axis + 1 :]
    shape = (1,) * x.ndim if keepdims and is_flattened else remaining
    if keepdims and not is_flattened:
        shape = (*x.sizes[:axis], 1, *x.sizes[axis + 1 :])
    if not x.size:
        if 0 not in remaining:
            raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got {list(x.sizes)}")
        return filled(x, shape, data_type=as_data_type(caller(), "dtype", dtype))
    places: Tensor = function(flat, axes=(axis,), output_type=dtype)
    if x.data_type.is_float:  # DirectML skips NaN, NumPy and PyTorch return its place
        is_nan = directml.element_wise_is_nan(reduced(flat, ReduceFunction.MAX, axis, True))
        first_nan = directml.argmax(directml.element_wise_is_nan(flat), axes=(axis,), output_type=dtype)
        places = first_nan._chosen(is_nan, places)
    return places._renamed(shape)


# ---- running sums, sorting -------------------------------------------------------------------------------------------


@eager
def cumsum(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the running sum along an axis.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis to accumulate along; negative axes count from the end. Defaults to None: `x`, flattened.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x`, flattened if `axis` is None (an array if `x` is one): of the dtype of floating-point
        elements, else int64 or uint64.

    Raises:
        InvalidArgument: If an axis is out of range, or the dtype of `x` is not supported.

    Examples:
        >>> ops.cumsum([1, 2, 3])
        array([1, 3, 6])

    See also:
        `cumprod`, `sum`.

    Computed by CUMULATIVE_SUMMATION (`ns-directml-dml_cumulative_summation_operator_desc`).
    """
    return running(directml.cumulative_summation, summable(tensor_of("x", x), None), axis)


@eager
def cumprod(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the running product along an axis.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis to accumulate along; negative axes count from the end. Defaults to None: `x`, flattened.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x`, flattened if `axis` is None (an array if `x` is one): of the dtype of floating-point
        elements, else int64 or uint64.

    Raises:
        InvalidArgument: If an axis is out of range, or the dtype of `x` is not supported.

    Examples:
        >>> ops.cumprod([1, 2, 3])
        array([1, 2, 6])

    See also:
        `cumsum`, `prod`.

    Computed by CUMULATIVE_PRODUCT (`ns-directml-dml_cumulative_product_operator_desc`).
    """
    return running(directml.cumulative_product, summable(tensor_of("x", x), None), axis)


def running(function: Callable[..., Any], x: Tensor, axis: int | None) -> Tensor:
    """Accumulate along an axis; None means all elements, flattened."""
    x, axis = along(x, axis)
    return _in_32_bits(lambda operand: function(operand, axis=axis), x) if x.size else x


@eager
def diff(
    x: Operand,
    n: int = 1,
    axis: int = -1,
    prepend: Operand | None = None,
    append: Operand | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the difference of each element and the one before it along an axis.

    Of booleans it is whether they differ.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 1 to 8.
        n: Number of repetitions, at least 0; defaults to 1.
        axis: Axis along which to subtract; defaults to the last axis.
        prepend: Tensor or array to join before `x` first, or a number, which is repeated; defaults to None.
        append: Likewise, to join after `x` first; defaults to None.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the common dtype, `n` shorter along `axis` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If `n` is negative, the axis is out of range, or operands do not fit together.

    Examples:
        >>> ops.diff([1, 4, 9])
        array([3, 5])
        >>> ops.diff([1, 4, 9], prepend=0)
        array([1, 3, 5])

    See also:
        `cumsum`.

    Computed by ELEMENT_WISE_SUBTRACT (`ns-directml-dml_element_wise_subtract_operator_desc`).
    """
    tensor = tensor_of("x", x)
    axis, times = checked_axis(caller(), "axis", axis, tensor.ndim), argument(caller(), "n", integer, n)
    if times < 0:
        raise InvalidArgument(f"{caller()}: n must be at least 0, got {times}")
    edge = (*tensor.sizes[:axis], 1, *tensor.sizes[axis + 1 :])
    parts = {
        name: tensor._beside(part, tensor._type).broadcast_to(edge) if is_number(part) else tensor_of(name, part)
        for name, part in (("prepend", prepend), ("x", tensor), ("append", append))
        if part is not None
    }
    result = joined(promoted(caller(), parts), axis) if times and len(parts) > 1 else tensor
    before = (slice(None),) * axis
    for _ in range(builtins.min(times, result.sizes[axis])):
        later, earlier = result[(*before, slice(1, None))], result[(*before, slice(None, -1))]
        result = later ^ earlier if result.is_boolean else later - earlier
    return result._same() if result is x else result


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
    """Return the `k` largest or smallest elements along an axis, in order, and their indices.

    NaN counts as greater than all numbers, as in PyTorch.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 1 to 8.
        k: Number of elements, from 1 to the size of the axis.
        axis: Axis to search; negative axes count from the end. Defaults to the last axis.
        largest: Whether to return the largest elements, in descending order; defaults to True.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        `TopK`: the elements, of the dtype of `x`, and their indices, uint32.

    Raises:
        InvalidArgument: If `k` is not between 1 and the size of the axis, or an axis is out of range.

    Examples:
        >>> values, indices = ops.topk([3.0, 1.0, 2.0], 2)
        >>> values, indices
        (array([3., 2.], dtype=float32), array([0, 2], dtype=uint32))

    See also:
        `sort`, `argsort`, `argmax`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`).
    """
    return ordered(tensor_of("x", x), k, axis, largest)


@eager
def sort(x: Operand, axis: int | None = -1, descending: bool = False, *, device: Where = None) -> Array:
    """Return the elements along an axis in order.

    NaN counts as greater than all numbers: it comes last, or first if `descending`, as in PyTorch.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis to sort; negative axes count from the end. Defaults to the last axis, None flattens `x`.
        descending: Whether the largest element comes first; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x`, and of its shape unless it is flattened (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.sort([3, 1, 2])
        array([1, 2, 3])
        >>> ops.sort([3, 1, 2], descending=True)
        array([3, 2, 1])

    See also:
        `argsort`, `topk`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`).
    """
    tensor, axis = along(tensor_of("x", x), axis)
    return ordered(tensor, None, axis, descending).values


@eager
def argsort(x: Operand, axis: int | None = -1, descending: bool = False, *, device: Where = None) -> Array:
    """Return the indices that sort `x` along an axis.

    NaN counts as greater than all numbers, as in `sort`.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        axis: Axis to sort; negative axes count from the end. Defaults to the last axis, None flattens `x`.
        descending: Whether the largest element comes first; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of int64, of the shape of `x` unless it is flattened (an array if `x` is one). Equal elements keep their
        order.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.argsort([3, 1, 2])
        array([1, 2, 0])

    See also:
        `sort`, `topk`, `take_along_axis`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`).
    """
    tensor, axis = along(tensor_of("x", x), axis)
    return ordered(tensor, None, axis, descending).indices.astype(DataType.INT64)


def ordered(x: Tensor, k: int | None = None, axis: int = -1, descending: bool = False) -> TopK:
    """Return the first k elements in order along an axis, None for all, and their indices."""
    axis = checked_axis(caller(), "axis", axis, x.ndim)
    count = x.sizes[axis] if k is None else as_index(k)
    if count is None or not (k is None or 1 <= count <= x.sizes[axis]):
        raise InvalidArgument(f"{caller()}: k must be an integer between 1 and {x.sizes[axis]}, got {shown(k)}")
    descending = argument(caller(), "largest" if k is not None else "descending", boolean, descending)
    if not x.size:
        shape = (*x.sizes[:axis], count, *x.sizes[axis + 1 :])
        return TopK(x._nothing(shape), filled(x, shape, data_type=DataType.UINT32))
    direction = AxisDirection.DECREASING if descending else AxisDirection.INCREASING
    values, indices = directml.top_k1(x._same(boolean=False), axis=axis, k=count, axis_direction=direction)
    return TopK(values._same(boolean=x.is_boolean), indices)
