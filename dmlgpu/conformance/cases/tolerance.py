"""Tolerances: allowed differences of results from the reference.

Every operator declares one of these classes; graphs have bounds of their own (``GivenBound``). None of them is an
aggregate: a single bad element fails, and is shown.

WGSL lets an implementation flush subnormal numbers to zero, in operands and in results. The classes that allow it
(``flush_to_zero``) take a zero of either sign for a subnormal result; results from flushed operands are among the
alternatives of a ``Case``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Bound: TypeAlias = NDArray[np.float64]


# ---- Floating-point formats ------------------------------------------------------------------------------------------


def as_bits(array: Array) -> Array:
    """Return the elements as unsigned integers of their width."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.view(np.dtype(f"u{contiguous.dtype.itemsize}"))


def ulp(array: Array) -> Bound:
    """Distance between neighboring numbers of the array's type at each element, in float64; 1 for integers."""
    if array.dtype.kind != "f":
        return np.ones(array.shape)
    limits = np.finfo(array.dtype)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.abs(array.astype(np.float64)))
    smallest = math.frexp(float(limits.smallest_subnormal))[1] - 1
    largest = math.frexp(float(limits.max))[1] - 1
    exponent = np.where(array == 0, smallest, exponent - 1 - limits.nmant)
    exponent = np.where(np.isfinite(array), exponent, largest - limits.nmant)
    return np.ldexp(1.0, np.maximum(exponent, smallest))


def ulp_distance(expected: Array, got: Array) -> Bound:
    """Return numbers of the type between two arrays, element by element: 0 for equal ones and two NaN, inf for one
    NaN."""
    if expected.dtype.kind != "f":
        higher, lower = np.maximum(expected, got), np.minimum(expected, got)
        return (as_bits(higher) - as_bits(lower)).astype(np.float64)
    nan = np.isnan(expected), np.isnan(got)
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, _steps(as_bits(expected), as_bits(got))))


def _steps(a: Array, b: Array) -> Bound:
    """Distance on the number line of a floating-point type, given as bits, where both zeros are one point."""
    sign = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
    magnitude_a, magnitude_b = a & ~sign, b & ~sign
    apart = np.maximum(magnitude_a, magnitude_b) - np.minimum(magnitude_a, magnitude_b)
    return np.where((a ^ b) & sign != 0, magnitude_a + magnitude_b, apart).astype(np.float64)


def flush(array: Array) -> Array:
    """Return the array with subnormal numbers of 32 and 64 bits replaced by zeros of their sign; itself if it has
    none."""
    subnormal = is_subnormal(array)
    return np.where(subnormal, np.copysign(array.dtype.type(0), array), array) if subnormal.any() else array


def is_subnormal(array: Array) -> NDArray[np.bool_]:
    """Return the mask of float32 or float64 subnormals (float16 ones are normal where they are computed, in f32)."""
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        return np.zeros(array.shape, bool)
    return (array != 0) & (np.abs(array) < np.finfo(array.dtype).smallest_normal)


def may_flush(expected: Array) -> NDArray[np.bool_]:
    """Return the mask of results that may be flushed: subnormals, and values that round up from them to the smallest
    normal number.

    Whether a result counts as subnormal before or after rounding is the implementation's choice.
    """
    if expected.dtype.kind != "f" or expected.dtype.itemsize < 4:
        return np.zeros(expected.shape, bool)
    return (expected != 0) & (np.abs(expected) <= np.finfo(expected.dtype).smallest_normal)


# ---- Tolerance classes -----------------------------------------------------------------------------------------------


class Tolerance(ABC):
    """Rule that decides which results are correct."""

    flush_to_zero: ClassVar[bool] = True

    @abstractmethod
    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Return the mask of correct elements.

        Args:
            expected: The reference's result.
            got: The result in question, of the same type and sizes.
            magnitude: Per output element, the sum of the absolute values of its terms (``Accumulated`` only).
        """

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """Largest difference allowed at each element, in units of the value."""
        return np.zeros(expected.shape)

    def errors(self, expected: Array, got: Array, magnitude: Bound | None) -> Bound:
        """Return the error of each element relative to the tolerance: at most 1 if it passes, infinite if no error is
        allowed."""
        return np.where(self.accepts(expected, got, magnitude), 0.0, np.inf)

    def _accepts_flush(self, expected: Array, got: Array) -> NDArray[np.bool_]:
        return may_flush(expected) & (got == 0)


@dataclass(frozen=True)
class Exact(Tolerance):
    """The same bits, NaN payloads included: moved data and integers."""

    flush_to_zero: ClassVar[bool] = False

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Equal bits."""
        return as_bits(expected) == as_bits(got)

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True)
class CorrectlyRounded(Tolerance):
    """The number nearest to the exact result, signed zeros included; any NaN for a NaN."""

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Equal bits, both NaN, or flushed."""
        same = as_bits(expected) == as_bits(got)
        if expected.dtype.kind != "f":
            return same
        return same | (np.isnan(expected) & np.isnan(got)) | self._accepts_flush(expected, got)

    def __str__(self) -> str:
        return "correctly rounded"


@dataclass(frozen=True)
class Ulp(Tolerance):
    """At most ``count`` numbers of the output's type away; integers exactly."""

    count: float

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Near enough, both NaN, or flushed. Infinity is a neighbor of the largest finite number."""
        if expected.dtype.kind != "f":
            return expected == got
        return (ulp_distance(expected, got) <= self.count) | self._accepts_flush(expected, got)

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """``count`` ULP."""
        return self.count * ulp(expected) if expected.dtype.kind == "f" else np.zeros(expected.shape)

    def errors(self, expected: Array, got: Array, magnitude: Bound | None) -> Bound:
        """Return numbers of the type away, of ``count``."""
        if expected.dtype.kind != "f" or self.count == 0:
            return super().errors(expected, got, magnitude)
        return np.where(self._accepts_flush(expected, got), 0.0, ulp_distance(expected, got) / self.count)

    def __str__(self) -> str:
        return f"{self.count:g} ULP"


class Bounded(Tolerance):
    """Within a bound per element; infinities and NaN must agree, and numbers where the bound is 0."""

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Within the bound, equal, or flushed."""
        difference, bound = _difference(expected, got), self.bound(expected, magnitude)
        near = np.isfinite(difference) & (difference <= bound) & (bound > 0)
        return near | (ulp_distance(expected, got) == 0) | self._accepts_flush(expected, got)

    def errors(self, expected: Array, got: Array, magnitude: Bound | None) -> Bound:
        """Return the difference, of the bound."""
        with np.errstate(invalid="ignore", divide="ignore"):
            share = _difference(expected, got) / self.bound(expected, magnitude)
        share = np.where(np.isfinite(share), share, np.inf)
        return np.where((ulp_distance(expected, got) == 0) | self._accepts_flush(expected, got), 0.0, share)


def _difference(expected: Array, got: Array) -> Bound:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(expected.astype(np.float64) - got.astype(np.float64)))


@dataclass(frozen=True)
class Accumulated(Bounded):
    """A sum of ``terms`` floats: the bound grows with the terms and their absolute sum; integers exactly.

    Adding n numbers, pairwise or in tiles of at most 64, gives an error of at most
    ``(min(n, 64) + log2(n)) * u * sum(|x|)``, u being half a ULP of 1 in the type that is added in: float32, or
    float64 for float64. A running float32 over a long axis exceeds it. One ULP of the output covers the last rounding.
    """

    terms: int

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """Return the bound above; ``magnitude`` is ``sum(|x|)``.

        Raises:
            ValueError: If ``magnitude`` is missing.
        """
        if expected.dtype.kind != "f":
            return np.zeros(expected.shape)
        if magnitude is None:
            raise ValueError("Accumulated needs the sum of absolute values of every output element")
        unit = 2.0**-53 if expected.dtype == np.float64 else 2.0**-24
        return self.growth * unit * magnitude + ulp(expected)

    @property
    def growth(self) -> float:
        """Maximum error in half ULP of the sum of absolute values."""
        return min(self.terms, 64) + math.log2(max(self.terms, 1))

    def __str__(self) -> str:
        return f"accumulated over {self.terms} terms"


@dataclass(frozen=True)
class Transformed(Accumulated):
    """A sum of ``terms`` products of transformed numbers, transformed back: a convolution by Winograd's filtering.

    ``magnitude`` is the sum of the absolute values of all terms, through all transforms: terms that cancel count in
    full. The bound is that of the sum, plus one rounding per operation of the transforms:
    along each of two dimensions at most 4 for a patch, 6 for a filter (its factors are rounded too), 6 for the results.
    """

    @property
    def growth(self) -> float:
        """The sum's, and 2 * (4 + 6 + 6)."""
        return super().growth + 32

    def __str__(self) -> str:
        return f"transformed, accumulated over {self.terms} terms"


@dataclass(frozen=True)
class GivenBound(Bounded):
    """Within a bound that is given for each element as its ``magnitude``; equal numbers where that is 0."""

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """Return the bound that is given."""
        return np.zeros(expected.shape) if magnitude is None else magnitude

    def __str__(self) -> str:
        return "the sum of the nodes' errors"


EXACT = Exact()
CORRECTLY_ROUNDED = CorrectlyRounded()
