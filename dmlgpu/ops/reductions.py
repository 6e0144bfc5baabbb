"""Along axes, under NumPy's names: sums and extremes, running sums, order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.common.coercion import argument, as_index, boolean, real
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, tensor_of
from dmlgpu.tensors.layout import checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_data_type

__all__ = [
    "TopK",
    "argmax",
    "argmin",
    "argsort",
    "cumprod",
    "cumsum",
    "logsumexp",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "sort",
    "std",
    "sum",
    "topk",
    "var",
]

Axes: TypeAlias = int | Sequence[int] | None
"""Axes, negative ones from the back; None for all."""


class TopK(NamedTuple):
    """What ``topk`` finds.

    Attributes:
        values: the elements.
        indices: where along the axis they were, UINT32.
    """

    values: Array
    indices: Array


def _reduced(x: Operand, function: ReduceFunction, axis: Axes, keepdims: bool) -> Tensor:
    """Reduce along axes, which stay with size 1 where ``keepdims``."""
    tensor, keepdims = tensor_of("x", x), argument(caller(), "keepdims", boolean, keepdims)
    axes = tuple(range(tensor.ndim)) if axis is None else checked_axes(caller(), "axis", axis, tensor.ndim)
    if not axes:
        tensor, axes = tensor.expand_dims(tensor.ndim), (tensor.ndim,)
        keepdims = False
    if not tensor.size:
        return _of_nothing(tensor, function, axes, keepdims)
    found: Tensor = directml.reduce(tensor, function=function, axes=axes)
    return (
        found if keepdims else found._renamed(tuple(found.sizes[one] for one in range(found.ndim) if one not in axes))
    )


_NOTHING = {
    ReduceFunction.SUM: 0.0,
    ReduceFunction.L2: 0.0,
    ReduceFunction.MULTIPLY: 1.0,
    ReduceFunction.AVERAGE: math.nan,
    ReduceFunction.LOG_SUM_EXP: -math.inf,
}
"""Results of reductions over no elements, as NumPy has them."""


def _of_nothing(x: Tensor, function: ReduceFunction, axes: Sequence[int], keepdims: bool) -> Tensor:
    """Reduce a tensor without elements."""
    kept = tuple(1 if number in axes else size for number, size in enumerate(x.sizes))
    sizes = kept if keepdims else tuple(size for number, size in enumerate(x.sizes) if number not in axes)
    nothing = _NOTHING.get(function, math.nan)
    if 0 not in sizes and (function not in _NOTHING or not (x.data_type.is_float or math.isfinite(nothing))):
        raise InvalidArgument(f"{caller()}: x must have at least one element along axis, got sizes {list(x.sizes)}")
    return filled(x, sizes, nothing if x.data_type.is_float or math.isfinite(nothing) else 0)


@eager
def sum(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Sum along axes, in the type of x."""
    return _reduced(x, ReduceFunction.SUM, axis, keepdims)


@eager
def mean(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Mean along axes."""
    return _reduced(x, ReduceFunction.AVERAGE, axis, keepdims)


@eager
def prod(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Product along axes."""
    return _reduced(x, ReduceFunction.MULTIPLY, axis, keepdims)


@eager
def min(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Smallest element along axes."""
    return _reduced(x, ReduceFunction.MIN, axis, keepdims)


@eager
def max(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Largest element along axes."""
    return _reduced(x, ReduceFunction.MAX, axis, keepdims)


@eager
def logsumexp(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Logarithm of the sum of the exponentials along axes."""
    return _reduced(x, ReduceFunction.LOG_SUM_EXP, axis, keepdims)


@eager
def norm(x: Operand, axis: Axes = None, keepdims: bool = False, *, device: Where = None) -> Array:
    """Square root of the sum of squares along axes."""
    return _reduced(x, ReduceFunction.L2, axis, keepdims)


@eager
def var(x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None) -> Array:
    """Mean of the squared distances from the mean along axes.

    Args:
        x: floating-point numbers.
        axis: along which.
        keepdims: whether these stay, with size 1.
        correction: what is taken from the number of elements before dividing by it.

    Raises:
        InvalidArgument: no fewer elements than ``correction``.
    """
    return _variance(tensor_of("x", x), axis, keepdims, correction)


@eager
def std(x: Operand, axis: Axes = None, keepdims: bool = False, correction: float = 0, *, device: Where = None) -> Array:
    """Square root of ``var``."""
    return directml.element_wise_sqrt(_variance(tensor_of("x", x), axis, keepdims, correction))


def _variance(x: Tensor, axis: Axes, keepdims: bool, correction: float) -> Tensor:
    less = argument(caller(), "correction", real, correction)
    middle = _reduced(x, ReduceFunction.AVERAGE, axis, True).reshape(
        tuple(1 if _is_reduced(x, axis, number) else size for number, size in enumerate(x.sizes))
    )
    if not x.size:
        return _reduced(x, ReduceFunction.AVERAGE, axis, keepdims)
    distances = x - middle
    total = _reduced(distances * distances, ReduceFunction.SUM, axis, keepdims)
    count = x.size // total.size - less
    if not count > 0:
        raise InvalidArgument(
            f"{caller()}: correction must be below the number of elements, {x.size // total.size}, got {correction}"
        )
    return total / count


def _is_reduced(x: Tensor, axis: Axes, number: int) -> bool:
    return axis is None or number in checked_axes(caller(), "axis", axis, x.ndim)


@eager
def argmin(
    x: Operand,
    axis: int | None = None,
    keepdims: bool = False,
    output_type: TypeLike = "uint32",
    *,
    device: Where = None,
) -> Array:
    """Where the smallest element along an axis is, the first of equal ones; None for all elements in a row."""
    return _place(directml.argmin, tensor_of("x", x), axis, keepdims, output_type)


@eager
def argmax(
    x: Operand,
    axis: int | None = None,
    keepdims: bool = False,
    output_type: TypeLike = "uint32",
    *,
    device: Where = None,
) -> Array:
    """Where the largest element along an axis is, the first of equal ones; None for all elements in a row."""
    return _place(directml.argmax, tensor_of("x", x), axis, keepdims, output_type)


def _place(function: Any, x: Tensor, axis: int | None, keepdims: bool, output_type: TypeLike) -> Tensor:
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    if axis is None:
        found: Tensor = function(x.reshape(-1), axes=(0,), output_type=output_type)
        return found._renamed((1,) * x.ndim if keepdims else ())
    number = checked_axis(caller(), "axis", axis, x.ndim)
    if not x.size and x.sizes[number]:
        rest = (1,) if keepdims else ()
        sizes = (*x.sizes[:number], *rest, *x.sizes[number + 1 :])
        return filled(x, sizes, data_type=as_data_type(caller(), "output_type", output_type))
    found = function(x, axes=(number,), output_type=output_type)
    return found if keepdims else found._renamed(x.sizes[:number] + x.sizes[number + 1 :])


@eager
def cumsum(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Running sum along an axis; None for all elements in a row."""
    tensor, number = _lined_up(x, axis)
    return directml.cumulative_summation(tensor, axis=number)


@eager
def cumprod(x: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Running product along an axis; None for all elements in a row."""
    tensor, number = _lined_up(x, axis)
    return directml.cumulative_product(tensor, axis=number)


def _lined_up(x: Operand, axis: int | None) -> tuple[Tensor, int]:
    tensor = tensor_of("x", x)
    if axis is None:
        return tensor.reshape(-1), 0
    return tensor, checked_axis(caller(), "axis", axis, tensor.ndim)


@eager
def topk(x: Operand, k: int, axis: int = -1, largest: bool = True, *, device: Where = None) -> TopK:
    """The k largest, or smallest, elements along an axis in order, and where they were.

    Raises:
        InvalidArgument: k is not between 1 and the axis's size.
    """
    return _ordered(tensor_of("x", x), k, axis, largest)


@eager
def sort(x: Operand, axis: int = -1, descending: bool = False, *, device: Where = None) -> Array:
    """The elements along an axis in order."""
    return _ordered(tensor_of("x", x), None, axis, descending).values


@eager
def argsort(x: Operand, axis: int = -1, descending: bool = False, *, device: Where = None) -> Array:
    """Where the elements along an axis were before they were put in order, UINT32; equal ones keep theirs."""
    return _ordered(tensor_of("x", x), None, axis, descending).indices


def _ordered(x: Tensor, k: int | None, axis: int, descending: bool) -> TopK:
    number = checked_axis(caller(), "axis", axis, x.ndim)
    count = x.sizes[number] if k is None else as_index(k)
    if count is None or not (k is None or 1 <= count <= x.sizes[number]):
        raise InvalidArgument(f"{caller()}: k must be an integer between 1 and {x.sizes[number]}, got {shown(k)}")
    descending = argument(caller(), "largest" if k is not None else "descending", boolean, descending)
    if not x.size:
        sizes = (*x.sizes[:number], count, *x.sizes[number + 1 :])
        return TopK(filled(x, sizes), filled(x, sizes, data_type=DataType.UINT32))
    direction = AxisDirection.DECREASING if descending else AxisDirection.INCREASING
    return TopK(*directml.top_k1(x, axis=number, k=count, axis_direction=direction))
