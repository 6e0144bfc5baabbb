"""Slow and obvious implementations of DirectML's formulas, and of rounding, in plain Python, without the reference."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def gather_nd(source: Array, indices: Array, batch: int) -> Array:
    """``out[n, j] = source[n, indices[n, j, 0], ..., indices[n, j, k - 1]]``; 0 where an index is out of range."""
    *leading, k = indices.shape
    window = source.shape[batch + k :]
    out = np.zeros((*leading, *window), source.dtype)
    for place in itertools.product(*map(range, leading)):
        lookup = [int(i) for i in indices[place]]
        extents = source.shape[batch : batch + k]
        lookup = [i + n if i < 0 else i for i, n in zip(lookup, extents, strict=True)]
        if all(0 <= i < n for i, n in zip(lookup, extents, strict=True)):
            out[place] = source[(*place[:batch], *lookup)]
    return out


def scatter_elements(source: Array, indices: Array, updates: Array, axis: int) -> Array:
    """A copy of the input; ``out[c with c[axis] = indices[c]] = updates[c]`` in row-major order."""
    out = source.copy()
    for place in np.ndindex(indices.shape):
        index = int(indices[place])
        index += source.shape[axis] if index < 0 else 0
        if 0 <= index < source.shape[axis]:
            out[(*place[:axis], index, *place[axis + 1 :])] = updates[place]
    return out


def gather(source: Array, indices: Array, axis: int) -> Array:
    """``out[a, j, b] = source[a, indices[j], b]``; 0 where an index is out of range."""
    before, size, after = source.shape[:axis], source.shape[axis], source.shape[axis + 1 :]
    out = np.zeros((*before, *indices.shape, *after), source.dtype)
    for place in np.ndindex(out.shape):
        index = int(indices[place[axis : axis + indices.ndim]])
        index += size if index < 0 else 0
        if 0 <= index < size:
            out[place] = source[(*place[:axis], index, *place[axis + indices.ndim :])]
    return out


def gather_elements(source: Array, indices: Array, axis: int) -> Array:
    """``out[c] = source[c with c[axis] = indices[c]]``; 0 where an index is out of range."""
    out = np.zeros(indices.shape, source.dtype)
    for place in np.ndindex(indices.shape):
        index = int(indices[place])
        index += source.shape[axis] if index < 0 else 0
        if 0 <= index < source.shape[axis]:
            out[place] = source[(*place[:axis], index, *place[axis + 1 :])]
    return out


def scatter_nd(source: Array, indices: Array, updates: Array) -> Array:
    """A copy of the input; ``out[indices[j, 0], ..., indices[j, k - 1]] = updates[j]`` in row-major order."""
    out = source.copy()
    for place in np.ndindex(indices.shape[:-1]):
        target = [int(i) + (n if i < 0 else 0) for i, n in zip(indices[place], source.shape, strict=False)]
        if all(0 <= i < n for i, n in zip(target, source.shape, strict=False)):
            out[tuple(target)] = updates[place]
    return out


def one_hot(indices: Array, size: int, axis: int, off: Any, on: Any) -> Array:
    """``off`` except at the index of each line along the axis on which the indices have size 1."""
    out = np.full((*indices.shape[:axis], size, *indices.shape[axis + 1 :]), off)
    for place in np.ndindex(indices.shape):
        index = int(indices[place])
        index += size if index < 0 else 0
        if 0 <= index < size:
            out[(*place[:axis], index, *place[axis + 1 :])] = on
    return out


def reverse_subsequences(source: Array, lengths: Array, axis: int) -> Array:
    """The first elements of each line along an axis reversed."""
    out = source.copy()
    for place in np.ndindex(lengths.shape):
        line = (*place[:axis], slice(None), *place[axis + 1 :])
        length = min(int(lengths[place]), source.shape[axis])
        out[line] = list(reversed(source[line][:length])) + list(source[line][length:])
    return out


def best_place(line: list[Any], *, largest: bool, last: bool) -> int:
    """Return the index of the best number of a line, the first or last of equals; NaN is skipped unless all are NaN."""
    numbers = [(value, place) for place, value in enumerate(line) if not math.isnan(value)]
    if not numbers:
        return len(line) - 1 if last else 0
    best = (max if largest else min)(value for value, _ in numbers)
    places = [place for value, place in numbers if value == best]
    return places[-1] if last else places[0]


def lines(array: Array, axes: tuple[int, ...]) -> dict[tuple[int, ...], list[Any]]:
    """Yield, for every output coordinate (0 along the axes), the elements along the axes, ascending, row-major."""
    result: dict[tuple[int, ...], list[Any]] = {}
    for place in np.ndindex(array.shape):
        remaining = tuple(0 if dimension in axes else i for dimension, i in enumerate(place))
        result.setdefault(remaining, []).append(array[place].item())
    return result


def round_to_float(value: Fraction | float, dtype: Any) -> float:
    """Round an exact value to the nearest number of a float type, ties to even; beyond the range infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    limits = np.finfo(dtype)
    exact = Fraction(value)
    if exact == 0:
        return math.copysign(0.0, value) if isinstance(value, float) else 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    smallest = math.frexp(float(limits.smallest_normal))[1] - 1
    step = Fraction(2) ** (max(exponent, smallest) - limits.nmant)
    rounded = round(magnitude / step) * step  # Fraction rounds halves to even
    if rounded > Fraction(float(limits.max)):
        return math.copysign(math.inf, exact)
    return math.copysign(float(rounded), exact)


def wrap(value: int, dtype: Any) -> int:
    """Return an integer modulo 2**bits, in the range of the type."""
    limits, bits = np.iinfo(dtype), np.dtype(dtype).itemsize * 8
    return (value - int(limits.min)) % (1 << bits) + int(limits.min)


def saturate(value: float, dtype: Any) -> int:
    """Truncate a float to an integer in the range of the type; NaN is 0."""
    limits = np.iinfo(dtype)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(limits.max if value > 0 else limits.min)
    return min(max(int(value), int(limits.min)), int(limits.max))
