"""Operators that combine elements along axes: reductions, running sums and products, sorted order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, ReduceFunction
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.reference.elementwise import as_bits
from dmlgpu.reference.registry import Array, reference


def _rows(array: Array, axes: Sequence[int]) -> Array:
    """Return the array with all ``axes`` flattened, row-major and in ascending order, into one last dimension."""
    reduced = sorted(set(axes))
    remaining = [axis for axis in range(array.ndim) if axis not in reduced]
    return array.transpose(*remaining, *reduced).reshape(*(array.shape[axis] for axis in remaining), -1)


def _position(rows: Array, best: Array, direction: AxisDirection) -> Array:
    """Return the first (DECREASING: last) index of each row's best value; if there is none, the first (last) index."""
    candidates = rows == best[..., np.newaxis]
    if direction is AxisDirection.INCREASING:
        return candidates.argmax(-1)
    return rows.shape[-1] - 1 - candidates[..., ::-1].argmax(-1)


def _place(rows: Array, extreme: np.ufunc, direction: AxisDirection = AxisDirection.INCREASING) -> Array:
    if rows.dtype.kind == "f":
        rows = np.where(np.isnan(rows), np.nan, rows)  # fmin and fmax skip only quiet NaN
    return _position(rows, extreme.reduce(rows, -1), direction)


def _shaped(result: Array, output: TensorDesc) -> Array:
    return result.reshape(output.sizes).astype(output.data_type.numpy)


@reference(descs.Argmin)
def argmin(desc: descs.Argmin, input_tensor: Array) -> Array:
    """Index of the smallest element along the axes. NaN is skipped; lines of only NaN give the first (last) index."""
    return _shaped(_place(_rows(input_tensor, desc.axes), np.fmin, desc.axis_direction), desc.output_tensor)


@reference(descs.Argmax)
def argmax(desc: descs.Argmax, input_tensor: Array) -> Array:
    """Index of the largest element along the axes. NaN is skipped; lines of only NaN give the first (last) index."""
    return _shaped(_place(_rows(input_tensor, desc.axes), np.fmax, desc.axis_direction), desc.output_tensor)


# ---- REDUCE: each function of rows along the last dimension, floats as float64


def _sum(rows: Array) -> Array:
    """Return the sum; of integers modulo 2^bits."""
    return rows.sum(-1, dtype=rows.dtype)


def _product(rows: Array) -> Array:
    """Return the product. Floats are multiplied pairwise with separate exponents to avoid intermediate overflow."""
    if rows.dtype.kind != "f":
        return rows.prod(-1, dtype=rows.dtype)
    significands, exponents = _split(rows)
    while significands.shape[-1] > 1:
        if significands.shape[-1] % 2:
            odd = [(0, 0)] * (rows.ndim - 1) + [(0, 1)]
            significands, exponents = np.pad(significands, odd, constant_values=1), np.pad(exponents, odd)
        significands, more = _split(significands[..., ::2] * significands[..., 1::2])
        exponents = exponents[..., ::2] + exponents[..., 1::2] + more
    return np.ldexp(significands[..., 0], exponents[..., 0].clip(-5000, 5000))


def _split(array: Array) -> tuple[Array, Array]:
    """Split numbers into significands and exponents; infinities and NaN stay significands."""
    significands, exponents = np.frexp(array)
    return significands, np.where(np.isfinite(array), exponents, 0)


def _smallest(rows: Array) -> Array:
    """Return the smallest element; NaN if there is one; -0 rather than 0."""
    smallest = rows.min(-1)
    if rows.dtype.kind != "f":
        return smallest
    has_negative_zero = ((rows == 0) & np.signbit(rows)).any(-1)
    return np.where((smallest == 0) & has_negative_zero, -0.0, smallest)


def _largest(rows: Array) -> Array:
    """Return the largest element; NaN if there is one; 0 rather than -0."""
    return -_smallest(-rows) if rows.dtype.kind == "f" else rows.max(-1)


def _log_sum_exp(rows: Array) -> Array:
    """Return log(sum(e^x)) as m + log(1 + the sum of e^(x - m) over the other elements), m the largest element."""
    place = rows.argmax(-1)[..., np.newaxis]  # NaN is largest for NumPy
    largest = np.take_along_axis(rows, place, -1)
    terms = np.exp(rows - largest)
    np.put_along_axis(terms, place, 0, -1)
    return np.where(np.isfinite(largest[..., 0]), largest[..., 0] + np.log1p(terms.sum(-1)), largest[..., 0])


_FUNCTIONS: dict[ReduceFunction, Callable[[Array], Array]] = {
    ReduceFunction.ARGMAX: lambda rows: _place(rows, np.fmax),
    ReduceFunction.ARGMIN: lambda rows: _place(rows, np.fmin),
    ReduceFunction.AVERAGE: lambda rows: rows.mean(-1),
    ReduceFunction.L1: lambda rows: _sum(np.abs(rows)),
    ReduceFunction.L2: lambda rows: np.sqrt(_sum(rows * rows)),
    ReduceFunction.LOG_SUM: lambda rows: np.log(_sum(rows)),
    ReduceFunction.LOG_SUM_EXP: _log_sum_exp,
    ReduceFunction.MAX: _largest,
    ReduceFunction.MIN: _smallest,
    ReduceFunction.MULTIPLY: _product,
    ReduceFunction.SUM: _sum,
    ReduceFunction.SUM_SQUARE: lambda rows: _sum(rows * rows),
}


@reference(descs.Reduce)
def reduce(desc: descs.Reduce, input_tensor: Array) -> Array:
    """The function's reduction along the axes: floats in float64, rounded once; integers wrap."""
    rows = _rows(input_tensor, desc.axes)
    rows = rows.astype(np.float64) if rows.dtype.kind == "f" else rows
    return _shaped(_FUNCTIONS[desc.function](rows), desc.output_tensor)


AT_ONCE = 512
"""Number of significands from 1/2 to 1 whose product cannot underflow in float64."""


def _scanned(
    array: Array, axis: int, direction: AxisDirection, running: Callable[[Array], Array], *, start: int, exclusive: bool
) -> Array:
    """Apply ``running`` to lines along the last axis in a direction; exclusive results omit the element itself."""
    lines = np.moveaxis(array, axis, -1)
    if direction is AxisDirection.DECREASING:
        lines = lines[..., ::-1]
    if exclusive:
        lines = np.concatenate([np.full((*lines.shape[:-1], 1), start, lines.dtype), lines[..., :-1]], -1)
    results = running(lines)
    if direction is AxisDirection.DECREASING:
        results = results[..., ::-1]
    return np.moveaxis(results, -1, axis).astype(array.dtype)


def _sums(lines: Array) -> Array:
    """Compute running sums from 0: floats in float64, integers wrap."""
    if lines.dtype.kind == "f":
        return 0.0 + lines.cumsum(-1, np.float64)
    return lines.cumsum(-1, lines.dtype)


def _products(lines: Array) -> Array:
    """Compute running products: floats as significands in float64 and separate exponents, integers wrap."""
    if lines.dtype.kind != "f":
        return lines.cumprod(-1, lines.dtype)
    significands, exponents = np.frexp(lines.astype(np.float64))
    exponents = exponents.astype(np.int64).cumsum(-1)
    carried, shift = np.ones((*lines.shape[:-1], 1)), np.zeros((*lines.shape[:-1], 1), np.int64)
    for first in range(0, lines.shape[-1], AT_ONCE):
        block = significands[..., first : first + AT_ONCE]
        products, more = np.frexp(carried * block.cumprod(-1))
        significands[..., first : first + AT_ONCE] = products
        exponents[..., first : first + AT_ONCE] += shift + more
        carried, shift = products[..., -1:], shift + more[..., -1:]
    return np.ldexp(significands, np.clip(exponents, -5000, 5000).astype(np.int32))


@reference(descs.CumulativeSummation)
def cumulative_summation(desc: descs.CumulativeSummation, input_tensor: Array) -> Array:
    """Running sums along an axis."""
    return _scanned(input_tensor, desc.axis, desc.axis_direction, _sums, start=0, exclusive=desc.has_exclusive_sum)


@reference(descs.CumulativeProduct)
def cumulative_product(desc: descs.CumulativeProduct, input_tensor: Array) -> Array:
    """Running products along an axis."""
    return _scanned(
        input_tensor, desc.axis, desc.axis_direction, _products, start=1, exclusive=desc.has_exclusive_product
    )


@reference(descs.NonzeroCoordinates)
def nonzero_coordinates(desc: descs.NonzeroCoordinates, input_tensor: Array) -> tuple[Array, Array]:
    """Number of nonzero elements, and their coordinates in row-major order, followed by rows of 0."""
    coordinates = np.zeros(desc.output_coordinates_tensor.sizes, np.uint32)
    nonzero = np.argwhere(input_tensor != 0)
    coordinates.reshape(coordinates.shape[-2:])[: len(nonzero)] = nonzero[:, -coordinates.shape[-1] :]
    return np.full(desc.output_count_tensor.sizes, len(nonzero), np.uint32), coordinates


def _places(array: Array, axis: int, direction: AxisDirection) -> NDArray[np.intp]:
    """Return the stable order of every line. NaN is larger than all numbers, and equal to NaN.

    A stable sort of a line read backwards, read backwards itself, has the largest element first and of equal ones that
    with the lower index.
    """
    if direction is AxisDirection.INCREASING:
        return np.argsort(array, axis, kind="stable")
    last = array.shape[axis] - 1
    return last - np.flip(np.argsort(np.flip(array, axis), axis, kind="stable"), axis)


@reference(descs.TopK1, descs.TopK)
def top_k1(desc: descs.TopK1 | descs.TopK, input_tensor: Array) -> tuple[Array, Array]:
    """The first k elements of the sorted axis, and their indices."""
    direction = getattr(desc, "axis_direction", AxisDirection.DECREASING)
    places = np.take(_places(input_tensor, desc.axis, direction), np.arange(desc.k), desc.axis)
    values = np.take_along_axis(as_bits(input_tensor), places, desc.axis).view(input_tensor.dtype)
    return values, places.astype(desc.output_index_tensor.data_type.numpy)
