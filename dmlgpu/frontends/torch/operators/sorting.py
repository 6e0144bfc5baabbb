"""Sorted order, order statistics, sets, binary search, and counts in bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dmlgpu import ops
from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.operators.creation import linspace
from dmlgpu.frontends.torch.operators.reductions import argmax, axes_of, scanned, with_axis, zeros_of
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.frontends.torch.operators.scattering import combined
from dmlgpu.ops import directml
from dmlgpu.ops.reductions import ordered
from dmlgpu.tensors.tensor import Tensor

_IF = directml.element_wise_if
_INT64 = DataType.INT64


def _ordered(x: Any, axis: int, k: int | None = None, descending: bool = False) -> tuple[Any, Any]:
    """Sort elements stably along an axis, NaN above all numbers; return also their former indices in uint32."""
    result = ordered(x._same(boolean=False), k, axis, descending)
    return result.values._same(boolean=x.is_boolean), result.indices


@aten("sort.stable")
def sort(x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    if not x.ndim or not x.size:
        return x, zeros_of(x, x.sizes, torch.int64)
    values, places = _ordered(x, axes_of(x, dim)[0], None, descending)
    return values, places.astype(_INT64)


@aten("sort")
def sort_by_default(x: Any, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    return sort(x, dim=dim, descending=descending)


@aten("topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, Any]:
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    sizes = (*rows.sizes[:axis], k, *rows.sizes[axis + 1 :])
    if k > rows.sizes[axis]:
        raise RuntimeError("selected index k out of range")
    if 0 in sizes:
        return rows._nothing(sizes), zeros_of(x, sizes, torch.int64)
    values, places = _ordered(rows, axis, k, largest)
    sizes = sizes if x.ndim else ()
    return values.reshape(sizes), places.astype(_INT64).reshape(sizes)


# ---- order statistics ------------------------------------------------------------------------------------------------


def _without_axis(x: Any, axis: int, keepdim: bool, rank: int) -> Any:
    """Remove an axis of size 1 of a tensor, unless it is to be kept."""
    if not rank:
        return x.reshape(())
    return x if keepdim else x.squeeze(axis)


def _of_nothing(x: Any, axis: int, keepdim: bool) -> tuple[Any, Any]:
    """Return the values along an axis, and their indices, of a tensor without elements."""
    sizes = (*x.sizes[:axis], *((1,) if keepdim else ()), *x.sizes[axis + 1 :])
    return x._nothing(sizes), zeros_of(x, sizes, torch.int64)


def _part(x: Any, axis: int, begin: int, end: int) -> Any:
    return x[(*[slice(None)] * axis, slice(begin, end))]


@aten("kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    if not 0 < k <= rows.sizes[axis]:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension")
    if not rows.size:
        return _of_nothing(rows, axis, keepdim)
    values, places = _ordered(rows, axis, k)
    parts = (_part(tensor, axis, k - 1, k) for tensor in (values, places.astype(_INT64)))
    value, index = (_without_axis(part, axis, keepdim, x.ndim) for part in parts)
    return value, index


def _median(x: Any, axis: int, skips_nan: bool) -> tuple[Any, Any]:
    """Return the lower median along an axis and its index, with size 1; NaN if there is one, unless skipped."""
    size = x.sizes[axis]
    values, places = _ordered(x, axis)
    if not x.data_type.is_float:
        middle = (size - 1) // 2
        return _part(values, axis, middle, middle + 1), _part(places, axis, middle, middle + 1).astype(_INT64)
    numbers = ops.sum(cast(~directml.element_wise_is_nan(x), torch.int32), axis=axis, keepdims=True, dtype="int32")
    middle = ops.clip((numbers - 1) // 2, 0)
    if not skips_nan:
        middle = _IF(numbers < size, numbers, middle)
    taken = (directml.gather_elements(tensor, middle, axis=axis) for tensor in (values, places))
    value, index = taken
    return value, index.astype(_INT64)


def _median_along(x: Any, dim: int, keepdim: bool, skips_nan: bool) -> tuple[Any, Any]:
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    if not rows.size and rows.sizes[axis]:
        return _of_nothing(rows, axis, keepdim)
    value, index = (_without_axis(tensor, axis, keepdim, x.ndim) for tensor in _median(rows, axis, skips_nan))
    return value, index


@aten("median.dim")
def median_along(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return _median_along(x, dim, keepdim, False)


@aten("nanmedian.dim")
def nanmedian_along(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return _median_along(x, dim, keepdim, True)


def _median_of_all(x: Any, skips_nan: bool) -> Any:
    if not x.size:
        return ops.full((), float("nan"), dtype=x.data_type, device=x.device)
    return _median(x.reshape(-1), 0, skips_nan)[0].reshape(())


@aten("median")
def median(x: Any) -> Any:
    return _median_of_all(x, False)


@aten("nanmedian")
def nanmedian(x: Any) -> Any:
    return _median_of_all(x, True)


@aten("mode")
def mode(x: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Return the most frequent element along an axis, the smallest of several, and its last index."""
    rows = with_axis(x)
    axis = axes_of(rows, dim)[0]
    if not rows.size and rows.sizes[axis]:
        return _of_nothing(rows, axis, keepdim)
    values, places = _ordered(rows, axis)

    def longer(earlier: Any, later: Any) -> Any:
        is_same = (earlier[0] == later[0]) & (earlier[1] > 0)
        return later[0], later[1] + _IF(is_same, earlier[1], 0)

    ones = ops.ones(rows.sizes, dtype="int32", device=x.device)
    _, lengths = scanned((values._same(boolean=False), ones), axis, longer, (0, 0))
    longest = argmax(lengths, axis, True)
    taken = (directml.gather_elements(tensor, longest, axis=axis) for tensor in (values, places))
    value, index = (_without_axis(tensor, axis, keepdim, x.ndim) for tensor in taken)
    return value._same(boolean=x.is_boolean), index.astype(_INT64)


# ---- sets ------------------------------------------------------------------------------------------------------------


def _runs(changes: np.ndarray[Any, Any], count: int) -> tuple[Any, Any, Any]:
    """Return the first indices of runs of equal neighbors, the run of each element, and the lengths of runs, on the
    host."""
    begins = np.flatnonzero(np.concatenate([np.ones(min(count, 1), bool), changes]))
    marks = np.zeros(count, np.int64)
    marks[begins] = 1
    return begins.astype(np.int64), np.cumsum(marks) - 1, np.diff(np.append(begins, count)).astype(np.int64)


def _changes(x: Any, axis: int) -> np.ndarray[Any, Any]:
    """Return a mask of the slices along an axis that differ from the previous one; reads them."""
    size = x.sizes[axis]
    if size < 2:
        return np.zeros(0, bool)
    differs = directml.element_wise_logical_not(_part(x, axis, 1, size) == _part(x, axis, 0, size - 1))
    others = [index for index in range(x.ndim) if index != axis]
    mask: np.ndarray[Any, Any] = (ops.any(differs, axis=others) if others else differs).numpy()
    return mask


def _on(x: Any, array: Any) -> Any:
    return Tensor(np.asarray(array, np.int64), device=x.device)


def _unique_rows(x: Any, axis: int, is_sorted: bool) -> tuple[Any, Any, Any]:
    """Return the first slice of each run of equal ones along an axis, the run of each slice, and lengths of runs.

    Args:
        x: The tensor, not boolean.
        axis: The axis.
        is_sorted: Whether to sort equal slices together first.
    """
    count = x.sizes[axis]
    order = None
    if is_sorted and x.size:
        order = _lexicographic(x, axis)
        x = x._taken(order, axis, "unique")
    begins, runs, lengths = _runs(_changes(x, axis) if x.size else np.zeros(max(count - 1, 0), bool), count)
    values = x._taken(_on(x, begins), axis, "unique") if x.size else x
    inverse = _on(x, runs)
    if order is not None:
        inverse = directml.scatter_elements(inverse, order, inverse, axis=0)
    return values, inverse, _on(x, lengths)


_MAX_COLUMNS = 4096


def _lexicographic(x: Any, axis: int) -> Any:
    """Return the order of slices along an axis by their elements, the first one first: stable sorts, last one first."""
    count = x.sizes[axis]
    columns = x.transpose(axis, *(index for index in range(x.ndim) if index != axis)).reshape(count, x.size // count)
    if columns.sizes[1] > _MAX_COLUMNS:
        raise Unsupported(f"unique slices of more than {_MAX_COLUMNS} elements")
    order: Any = None
    for index in range(columns.sizes[1] - 1, -1, -1):
        column = columns[:, index]
        places = _ordered(column if order is None else column._taken(order, 0, "unique"), 0)[1].astype(DataType.INT32)
        order = places if order is None else order._taken(places, 0, "unique")
    return order


@aten("_unique2", reads=True)
def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, inverse, counts = _unique_rows(x._same(boolean=False).reshape(-1), 0, True)
    nothing = zeros_of(x, (0,), torch.int64)
    return (
        values._same(boolean=x.is_boolean),
        inverse.reshape(x.sizes) if return_inverse or return_counts else nothing,
        counts if return_counts else nothing,
    )


@aten("_unique", reads=True)
def unique_with_inverse(x: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
    return unique(x, sorted, return_inverse)[:2]


@aten("unique_dim", reads=True)
def unique_dim(x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, inverse, counts = _unique_rows(x._same(boolean=False), axes_of(x, dim)[0], True)
    return values._same(boolean=x.is_boolean), inverse, counts


@aten("unique_consecutive", reads=True)
def unique_consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    rows = x._same(boolean=False)
    rows, axis = (rows.reshape(-1), 0) if dim is None else (rows, axes_of(x, dim)[0])
    values, inverse, counts = _unique_rows(rows, axis, False)
    nothing = zeros_of(x, (0,), torch.int64)
    return (
        values._same(boolean=x.is_boolean),
        (inverse.reshape(x.sizes) if dim is None else inverse) if return_inverse else nothing,
        counts if return_counts else nothing,
    )


# ---- binary search ---------------------------------------------------------------------------------------------------


def _found(rows: Any, values: Any, is_right: bool) -> Any:
    """Return by bisection how many elements of sorted rows come before each value."""
    count = rows.sizes[-1]
    low = zeros_of(values, values.sizes, torch.int32)
    if not count or not values.size:
        return low
    high = low + count
    flat = rows.ndim == 1
    ahead = (
        directml.element_wise_logical_greater_than if is_right else directml.element_wise_logical_greater_than_or_equal
    )
    for _ in range(count.bit_length()):
        middle = (low + high) // 2
        position = directml.element_wise_min(middle, count - 1)
        if flat:
            probed = rows._taken(position.reshape(-1), 0, "searchsorted").reshape(values.sizes)
        else:
            probed = directml.gather_elements(rows, position, axis=rows.ndim - 1)
        is_open = low < high
        is_before = directml.element_wise_logical_not(ahead(probed, values)) & is_open
        low = _IF(is_before, middle + 1, low)
        high = _IF(directml.element_wise_logical_not(is_before) & is_open, middle, high)
    return low


def _common(rows: Any, values: Any) -> tuple[Any, Any]:
    dtype = torch.promote_types(dtype_of(rows), dtype_of(values))
    return cast(rows, dtype)._same(boolean=False), cast(values, dtype)._same(boolean=False)


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    sorted_sequence: Any,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if not isinstance(x, Tensor):
        x = ops.full((), x, dtype="float32" if isinstance(x, float) else "int64", device=sorted_sequence.device)
    rows = sorted_sequence
    if sorter is not None:
        rows = directml.gather_elements(rows, sorter, axis=rows.ndim - 1) if rows.size else rows
    places = _found(*_common(rows, x), right or side == "right")
    return places if out_int32 else places.astype(_INT64)


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@aten("isin.Tensor_Tensor")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return a mask of the elements that are among others, by binary search."""
    count = test_elements.size
    if not count or not elements.size:
        return ops.full(elements.sizes, invert, dtype="bool", device=elements.device)
    rows, values = _common(test_elements.reshape(-1), elements)
    rows = _ordered(rows, 0)[0]
    places = directml.element_wise_min(_found(rows, values, False), count - 1)
    present = rows._taken(places.reshape(-1), 0, "isin").reshape(values.sizes) == values
    return directml.element_wise_logical_not(present) if invert else present


# ---- counts ----------------------------------------------------------------------------------------------------------


@aten("bincount", reads=True)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if not x.size:
        return ops.zeros((minlength,), dtype="int64", device=x.device)
    places = x.reshape(-1).astype(DataType.INT32)
    minimum, maximum = (int(function(places).item()) for function in (ops.min, ops.max))
    if minimum < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        updates = ops.ones(places.sizes, dtype="int64", device=x.device)
    elif weights.data_type.is_reduced_float:
        raise Unsupported("weights of float16 or bfloat16, whose counts are float64")
    else:
        updates = weights if weights.data_type is DataType.FLOAT32 else cast(weights, torch.int64)
    counts = combined(zeros_of(updates, (max(maximum + 1, minlength),)), 0, places, updates, "sum")
    is_float64 = weights is not None and not weights.data_type.is_float
    return cast(counts, torch.float64) if is_float64 else counts


@aten("histc", wide=True)
def histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Count elements in bins of equal width; equal limits stand for the range of the elements."""
    result = ops.zeros((bins,), dtype=x.data_type, device=x.device)
    if not x.size:
        return result
    values = x.reshape(-1)
    low: Any = float(min)
    high: Any = float(max)
    if low == high:
        low, high = ops.min(values), ops.max(values)
        is_single = low == high
        low, high = _IF(is_single, low - 1, low), _IF(is_single, high + 1, high)
    elif not x.data_type.is_float:
        low, high = int(min), int(max)
    offset = cast(values - low, torch.float32)
    width = cast(high - low, torch.float32) if isinstance(high, Tensor) else float(high - low)
    bin = directml.element_wise_floor(directml.element_wise_divide(offset * float(bins), width)).astype(DataType.INT32)
    is_inside = (values >= low) & (values <= high)
    bin = _IF(is_inside, directml.element_wise_min(bin, bins - 1), bins)
    ones = ops.ones(values.sizes, dtype=x.data_type, device=x.device)
    return combined(result, 0, bin, ones, "sum")


def _histogram(x: Any, edges: Any, weight: Any, density: bool) -> tuple[Any, Any]:
    """Sum weights between edges; the last bin includes its upper edge."""
    bins = edges.size - 1
    values = x.reshape(-1)
    updates = ops.ones(values.sizes, dtype=x.data_type, device=x.device) if weight is None else weight.reshape(-1)
    bin = _found(edges, values, True) - 1
    bin = _IF(values == edges[-1], bins - 1, bin)
    bin = _IF((bin < 0) | (values > edges[-1]), bins, bin)
    counts = combined(zeros_of(x, (bins,)), 0, bin, updates, "sum")
    if density:
        counts = counts / (edges[1:] - edges[:-1]) / ops.sum(counts)
    return counts, edges


@aten("histogram.bins_tensor", wide=True)
def histogram(x: Any, bins: Any, *, weight: Any = None, density: bool = False) -> tuple[Any, Any]:
    return _histogram(x, bins, weight, density)


@aten("histogram.bin_ct", wide=True)
def histogram_of_count(
    x: Any, bins: int = 100, *, range: Any = None, weight: Any = None, density: bool = False
) -> tuple[Any, Any]:
    if range is not None:
        low, high = map(float, range)
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        edges = linspace(low, high, bins + 1, dtype=dtype_of(x), device=x.device)
    elif x.size:
        minimum, maximum = ops.min(x), ops.max(x)
        is_single = minimum == maximum
        edges = linspace(_IF(is_single, minimum - 0.5, minimum), _IF(is_single, maximum + 0.5, maximum), bins + 1)
    else:
        edges = linspace(0.0, 1.0, bins + 1, dtype=dtype_of(x), device=x.device)
    return _histogram(x, edges, weight, density)


@aten("repeat_interleave.Tensor", reads=True)
def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    """Repeat the index of each count as often as the count says."""
    counts = repeats.numpy()
    return _on(repeats, np.repeat(np.arange(counts.size), counts))
