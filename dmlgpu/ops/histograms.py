"""Counts of elements in bins, under NumPy's names: histogram, bincount, digitize.

Elements are sorted by their bin, so that the work does not grow with the number of bins.
"""

from __future__ import annotations

import builtins
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, as_index, between, boolean
from dmlgpu.common.errors import InvalidArgument, InvalidState, shown
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import max as largest
from dmlgpu.ops.reductions import min as smallest
from dmlgpu.ops.reductions import ordered
from dmlgpu.ops.searching import searchsorted
from dmlgpu.ops.shape import pad
from dmlgpu.tensors.calls import NUMERIC, Array, Operand, Where, caller, check_kind, eager, filled, tensor_of
from dmlgpu.tensors.indexing import looked_at, on_host
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.tensor import Tensor

__all__ = ["bincount", "digitize", "histogram"]

Edges: TypeAlias = Tensor | ArrayLike
"""Edges of bins: a sequence of numbers. The elements of a tensor are read."""

_COUNT = between(1, 2**31 - 2)
_LENGTH = between(0, 2**31 - 2)


@eager
def histogram(
    x: Operand,
    bins: int | Edges = 10,
    range: tuple[float, float] | None = None,
    weights: Operand | None = None,
    density: bool = False,
    *,
    device: Where = None,
) -> tuple[Array, Array]:
    """Count the elements in each of several bins.

    A bin holds its lower edge, but not its upper one; the last bin holds both. Elements outside of the bins and NaN do
    not count.

    Args:
        x: Tensor or array of float32, float16 or integers, read as if it had one axis.
        bins: Number of bins of equal width, or their edges in ascending order; defaults to 10.
        range: Lowest and highest edge, if `bins` is a number; defaults to None, the extremes of `x`, which are read.
            Required in a traced function.
        weights: Weight of each element, of the shape of `x`; defaults to None, 1.
        density: Whether to divide by the sum of all counts and by the widths of the bins; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Counts, int64, or float32 with `weights` or `density`, and edges, which are one more (arrays if all operands are
        arrays).

    Raises:
        InvalidArgument: If edges do not ascend, `range` or the extremes of `x` are not finite, or `weights` has another
            shape.
        InvalidState: If a function is being traced without `range`, or with edges that it computes.

    Examples:
        >>> counts, edges = ops.histogram([1, 2, 1, 4], bins=3)
        >>> counts.tolist(), edges.tolist()
        ([2, 1, 1], [1.0, 2.0, 3.0, 4.0])

    See also:
        `bincount`, `digitize`, `searchsorted`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER
    (`ns-directml-dml_gather_operator_desc`).
    """
    tensor = check_kind("x", tensor_of("x", x), NUMERIC)
    edges = _edges(tensor, bins, range)
    places = _bins_of(tensor, edges)
    counts = _counted(places, edges.size - 1, _summands(tensor, weights))
    if argument(caller(), "density", boolean, density):
        shares = counts.astype(DataType.FLOAT32)
        counts = shares / (tensor._beside(np.diff(edges).astype(np.float32)) * shares.sum())
    return counts, tensor._beside(edges.astype(np.float32) if edges.dtype == np.float64 else edges)


@eager
def bincount(x: Operand, weights: Operand | None = None, minlength: int = 0, *, device: Where = None) -> Array:
    """Count how often each integer occurs.

    Reads the largest integer, which determines the length of the result.

    Args:
        x: Tensor or array of integers from 0 on, rank 1.
        weights: Weight of each element, of the shape of `x`; defaults to None, 1.
        minlength: Smallest length of the result; defaults to 0. Required in a traced function, where it is the length,
            and other integers do not count.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of counts, int64, or of sums of weights, float32 (an array if all operands are arrays).

    Raises:
        InvalidArgument: If `x` is not a row of integers from 0 on, or `weights` has another shape.
        InvalidState: If a function is being traced without `minlength`.

    Examples:
        >>> ops.bincount([0, 2, 2])
        array([1, 0, 2])

    See also:
        `histogram`, `unique`.

    Computed by TOP_K1 (`ns-directml-dml_top_k1_operator_desc`), which sorts, and GATHER
    (`ns-directml-dml_gather_operator_desc`).
    """
    tensor = check_kind("x", tensor_of("x", x), "boolean or integer")
    if tensor.ndim != 1:
        raise InvalidArgument(f"{caller()}: x must have one dimension, got sizes {list(tensor.sizes)}")
    length = argument(caller(), "minlength", _LENGTH, minlength)
    places = tensor.astype(DataType.INT64)
    if _is_traced(tensor):
        if not length:
            raise InvalidState(f"{caller()}: minlength must be given while a function is traced, got {length}")
        places = places._chosen((places >= 0) & (places < length), length)
    elif tensor.size:
        minimum, greatest = (int(looked_at(function(places))) for function in (smallest, largest))
        if minimum < 0 or greatest > 2**31 - 2:
            raise InvalidArgument(
                f"{caller()}: x must hold integers between 0 and 2^31 - 2, got {minimum if minimum < 0 else greatest}"
            )
        length = builtins.max(length, greatest + 1)
    return _counted(places, length, _summands(tensor, weights))


@eager
def digitize(x: Operand, bins: Edges, right: bool = False, *, device: Where = None) -> Array:
    """Return the bin of each element.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        bins: Edges of the bins, in ascending or descending order.
        right: Whether bins hold their upper edges instead of the lower ones; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x`, int64 (an array if `x` is one): 0 before the first edge, the number of edges after
        the last one.

    Raises:
        InvalidArgument: If `bins` are not a row of numbers in order.
        InvalidState: If a function that is being traced computes `bins`.

    Examples:
        >>> ops.digitize([0.5, 1.0, 7.0], [1.0, 2.0, 3.0])
        array([0, 1, 3])

    See also:
        `searchsorted`, `histogram`.

    Computed by GATHER (`ns-directml-dml_gather_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    tensor = check_kind("x", tensor_of("x", x), NUMERIC)
    holds_upper = argument(caller(), "right", boolean, right)
    edges = _row("bins", bins)
    is_descending = edges.size > 1 and bool(edges[0] > edges[-1])
    ascending = edges[::-1] if is_descending else edges
    if not np.all(ascending[1:] >= ascending[:-1]):
        raise InvalidArgument(f"{caller()}: bins must be in order, got {shown(bins)}")
    values = _comparable(tensor)
    bounds = values._beside(_bounds(values, ascending, is_lower=not holds_upper))
    below: Tensor = searchsorted(bounds, values, "left" if holds_upper else "right")
    return edges.size - below if is_descending else below


# ---- edges -----------------------------------------------------------------------------------------------------------


def _is_traced(x: Tensor) -> bool:
    """Return whether the elements of a tensor cannot be read because a function is being traced."""
    return recorder() is not None or x.graph is not None


def _row(name: str, values: Any) -> NDArray[Any]:
    """Return an argument that must be a row of numbers as an array."""
    row = on_host(values)
    if row.dtype.kind not in "iuf" or row.ndim != 1 or np.isnan(row).any():
        raise InvalidArgument(f"{caller()}: {name} must be numbers in a row, got {shown(values)}")
    return row


def _edges(x: Tensor, bins: Any, limits: Any) -> NDArray[Any]:
    """Return the edges of bins, those of equal width in the dtype that NumPy gives them."""
    if as_index(bins) is None:
        edges = _row("bins", bins)
        if edges.size < 2 or not np.all(edges[1:] >= edges[:-1]):
            raise InvalidArgument(f"{caller()}: bins must be a number of bins or edges that ascend, got {shown(bins)}")
        return edges
    count = argument(caller(), "bins", _COUNT, bins)
    low, high = _limits(x, limits)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, count + 1, dtype=x.dtype if x.data_type.is_float else np.float64)


def _limits(x: Tensor, limits: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest edge."""
    if limits is not None:
        edges = _row("range", limits)
        if edges.size != 2 or not np.isfinite(edges).all() or edges[0] > edges[1]:
            raise InvalidArgument(f"{caller()}: range must be two finite numbers in order, got {shown(limits)}")
        low, high = edges.tolist()
        return low, high
    if _is_traced(x):
        raise InvalidState(f"{caller()}: range must be given while a function is traced")
    if not x.size:
        return 0.0, 1.0
    low, high = (looked_at(function(x))[()] for function in (smallest, largest))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InvalidArgument(f"{caller()}: range must be given if x is not finite, got extremes {low} and {high}")
    return low, high


def _comparable(x: Tensor) -> Tensor:
    """Return elements in a dtype that holds all bounds: integers as int64."""
    return x if x.data_type.is_float else x.astype(DataType.INT64)


def _bounds(values: Tensor, edges: NDArray[Any], is_lower: bool) -> NDArray[Any]:
    """Return edges in the dtype of the values, rounded so that the same values lie above lower or below upper ones."""
    if values.data_type.is_float:
        with np.errstate(over="ignore"):
            rounded = edges.astype(values.dtype)
        if is_lower:
            return np.where(rounded < edges, np.nextafter(rounded, values.dtype.type(np.inf)), rounded)
        return np.where(rounded > edges, np.nextafter(rounded, values.dtype.type(-np.inf)), rounded)
    if edges.dtype.kind == "f":
        edges = np.ceil(edges) if is_lower else np.floor(edges)
    limits = np.iinfo(np.int64)
    return np.array([builtins.min(builtins.max(edge, limits.min), limits.max) for edge in edges.tolist()], np.int64)


# ---- counts ----------------------------------------------------------------------------------------------------------


def _bins_of(x: Tensor, edges: NDArray[Any]) -> Tensor:
    """Return the bin of each element in a row; the number of bins for those outside."""
    values = _comparable(x).reshape(-1)
    if not values.size:
        return filled(values, (0,), data_type=DataType.INT64)
    lower = values._beside(_bounds(values, edges[:-1], is_lower=True))
    upper = values._beside(_bounds(values, edges[-1:], is_lower=False))
    places: Any = searchsorted(lower, values, "right") - 1
    return places._chosen((values >= lower[:1]) & (values <= upper), edges.size - 1)


def _summands(x: Tensor, weights: Any) -> Tensor | None:
    """Return the weight of each element in a row, float32."""
    if weights is None:
        return None
    summands = tensor_of("weights", weights)
    if summands.sizes != x.sizes:
        raise InvalidArgument(
            f"{caller()}: weights must have the sizes of x, {list(x.sizes)}, got {list(summands.sizes)}"
        )
    return summands.reshape(-1).astype(DataType.FLOAT32)


def _counted(places: Tensor, length: int, weights: Tensor | None) -> Tensor:
    """Return the number of elements, or the sum of weights, of each bin; bins beyond the length are ignored."""
    if not places.size or not length:
        return filled(places, (length,), data_type=DataType.INT64 if weights is None else DataType.FLOAT32)
    order = ordered(places.astype(DataType.INT32))
    ends = searchsorted(order.values, places._beside(np.arange(length + 1, dtype=np.int32)))
    counts: Tensor = ends[1:] - ends[:-1]
    if weights is None:
        return counts
    sums = _sums_of_equals(weights._taken(order.indices, 0, caller()), order.values)
    last: Any = directml.element_wise_max(ends[1:] - 1, 0)
    return sums._taken(last, 0, caller())._chosen(counts > 0, 0.0)


def _sums_of_equals(summands: Tensor, keys: Tensor) -> Tensor:
    """Return running sums of neighbors with equal keys, by doubling distances, so that they round little."""
    sums, distance = summands, 1
    while distance < summands.size:
        is_same = keys[distance:] == keys[:-distance]
        earlier = sums[:-distance]._chosen(is_same, 0.0)
        sums = sums + pad(earlier, (distance, 0))
        distance *= 2
    return sums
