"""Interval arithmetic by WGSL's rules for floating-point accuracy.

An interval has float64 bounds that contain every result that a conforming driver may give. As in the WebGPU CTS, a
correctly rounded result is either float next to the exact one; other accuracies are a distance in ULP, an absolute one,
or inherited from an expression. Subnormal inputs and results may be flushed to zero. If a result may overflow, or WGSL
gives no accuracy, every result is accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Interval:
    """Bounds of accepted results, of any shape; infinite on both sides if every result is accepted, NaN included."""

    low: Floats
    high: Floats

    @property
    def is_free(self) -> NDArray[np.bool_]:
        """Mask of the elements of which every result is accepted."""
        return np.isneginf(self.low) & np.isposinf(self.high)

    def accepts(self, results: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the accepted results. The sign of a zero does not count."""
        with np.errstate(invalid="ignore"):  # signaling NaN
            numbers = results.astype(np.float64)
        return self.is_free | ((numbers >= self.low) & (numbers <= self.high))

    def free_where(self, condition: NDArray[np.bool_]) -> Interval:
        """Return the interval that accepts every result where a condition holds, or a bound is NaN."""
        condition = condition | np.isnan(self.low) | np.isnan(self.high)
        return Interval(np.where(condition, -np.inf, self.low), np.where(condition, np.inf, self.high))

    def union(self, *others: Interval) -> Interval:
        """Return the smallest interval that contains this one and others."""
        intervals = (self, *others)
        return Interval(
            np.minimum.reduce([interval.low for interval in intervals]),
            np.maximum.reduce([interval.high for interval in intervals]),
        )

    def contains(self, number: float) -> NDArray[np.bool_]:
        """Return a mask of the intervals that contain a number."""
        return (self.low <= number) & (number <= self.high)

    @staticmethod
    def stack(intervals: Sequence[Interval]) -> Interval:
        """Return the intervals of the components of vectors as one, along a new last axis."""
        return Interval(*(np.stack([getattr(each, side) for each in intervals], -1) for side in ("low", "high")))


Operands: TypeAlias = Interval | float


@dataclass(frozen=True)
class Accuracy:
    """WGSL's accuracy of the functions and operators of one float type.

    Attributes:
        wgsl: The type in WGSL.
        dtype: NumPy's type.
        digits: Bits of the significand.
        least: Exponent of the smallest normal number; the largest divisor with an accuracy is 2^-least.
        log_error: Largest absolute error of logarithms in [0.5, 2].
        exp_error: Smallest error of exponentials in ULP, at 0.
        angle_error: Largest absolute error of sin and cos in [-pi, pi].
        atan_error: Error of atan in ULP.
        asin_error, acos_error: Largest absolute errors, unless the inherited errors are larger.
    """

    wgsl: str
    dtype: type[np.floating[Any]]
    digits: int
    least: int
    log_error: float
    exp_error: float
    angle_error: float
    atan_error: float
    asin_error: float
    acos_error: float

    @property
    def tiny(self) -> float:
        """Smallest normal number."""
        return float(2.0**self.least)

    @property
    def largest(self) -> float:
        """Largest finite number."""
        return float(np.finfo(self.dtype).max)

    # ---- numbers

    def of(self, numbers: NDArray[Any]) -> Interval:
        """Return the interval of an input: subnormals may be flushed."""
        exact = numbers.astype(np.float64)
        return self.flushed(Interval(exact, exact))

    def constant(self, number: Operands) -> Interval:
        """Return the interval of a constant, which is rounded to the type."""
        if isinstance(number, Interval):
            return number
        exact = np.array(number, np.float64)
        return Interval(self.neighbor(exact, -np.inf), self.neighbor(exact, np.inf))

    def neighbor(self, numbers: Floats, toward: float) -> Floats:
        """Return equal numbers of the type, or the next ones in a direction; infinities beyond the largest number."""
        with np.errstate(over="ignore"):
            rounded = numbers.astype(self.dtype)
        is_past = rounded > numbers if toward < 0 else rounded < numbers
        stepped: Floats = np.where(is_past, np.nextafter(rounded, self.dtype(toward)), rounded).astype(np.float64)
        return stepped

    def flushed(self, interval: Interval) -> Interval:
        """Return an interval, extended to zero if it contains a subnormal number."""
        low = np.where((interval.low > 0) & (interval.low < self.tiny), 0.0, interval.low)
        high = np.where((interval.high < 0) & (interval.high > -self.tiny), 0.0, interval.high)
        return Interval(low, high)

    def result(self, low: Floats, high: Floats) -> Interval:
        """Return the interval of a result, free where it may overflow."""
        with np.errstate(invalid="ignore"):
            overflows = ~(np.maximum(np.abs(low), np.abs(high)) <= self.largest)
        return self.flushed(Interval(low, high)).free_where(overflows)

    def rounded(self, low: Floats, high: Floats) -> Interval:
        """Return the interval of correctly rounded results between exact bounds."""
        return self.result(self.neighbor(low, -np.inf), self.neighbor(high, np.inf))

    def ulp(self, numbers: Floats) -> Floats:
        """Return the distance between adjacent numbers of the type, around numbers."""
        exponents = np.frexp(numbers)[1] - 1
        spacing: Floats = np.ldexp(1.0, np.maximum(exponents, self.least) - self.digits + 1)
        return spacing

    def within_ulp(self, low: Floats, high: Floats, count: Floats | float) -> Interval:
        """Return the interval around exact bounds, widened by a number of ULP."""
        with np.errstate(invalid="ignore", over="ignore"):
            return self.result(low - count * self.ulp(low), high + count * self.ulp(high))

    # ---- operators

    def add(self, a: Operands, b: Operands) -> Interval:
        """Return a + b, correctly rounded."""
        a, b = self.constant(a), self.constant(b)
        return self.rounded(_sum(a.low, b.low, -np.inf), _sum(a.high, b.high, np.inf))

    def negate(self, a: Operands) -> Interval:
        """Return -a."""
        a = self.constant(a)
        return Interval(-a.high, -a.low)

    def subtract(self, a: Operands, b: Operands) -> Interval:
        """Return a - b, correctly rounded."""
        return self.add(a, self.negate(b))

    def multiply(self, a: Operands, b: Operands) -> Interval:
        """Return a * b, correctly rounded."""
        a, b = self.constant(a), self.constant(b)
        pairs = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        low = np.minimum.reduce([_product(x, y, -np.inf) for x, y in pairs])
        high = np.maximum.reduce([_product(x, y, np.inf) for x, y in pairs])
        return self.rounded(low, high)

    def divide(self, a: Operands, b: Operands) -> Interval:
        """Return a / b, within 2.5 ULP for divisors from the smallest normal number to its reciprocal."""
        a, b = self.constant(a), self.constant(b)
        with np.errstate(all="ignore"):
            quotients = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
            smallest = np.minimum(np.abs(b.low), np.abs(b.high))
            largest = np.maximum(np.abs(b.low), np.abs(b.high))
        interval = self.within_ulp(np.minimum.reduce(quotients), np.maximum.reduce(quotients), 2.5)
        return interval.free_where(b.contains(0) | (smallest < self.tiny) | (largest > 1 / self.tiny))

    def remainder(self, a: Operands, b: Operands) -> Interval:
        """Return a % b, as a - b * trunc(a / b)."""
        return self.subtract(a, self.multiply(b, self.exactly(np.trunc, self.divide(a, b))))

    def exactly(self, function: Callable[[Floats], Floats], a: Operands) -> Interval:
        """Return the results of an increasing function that are numbers of the type."""
        a = self.constant(a)
        with np.errstate(all="ignore"):
            return self.flushed(Interval(function(a.low), function(a.high)))

    # ---- functions

    def exp(self, a: Operands) -> Interval:
        """Return exp(a), within 3 + 2 |a| ULP (float16: 1 + 2 |a|)."""
        return self._exponential(np.exp, self.constant(a))

    def exp2(self, a: Operands) -> Interval:
        """Return 2^a, as accurate as exp."""
        return self._exponential(np.exp2, self.constant(a))

    def _exponential(self, function: Callable[[Floats], Floats], a: Interval) -> Interval:
        with np.errstate(all="ignore"):
            distance = self.exp_error + 2 * np.maximum(np.abs(a.low), np.abs(a.high))
            return self.within_ulp(function(a.low), function(a.high), distance)

    def log(self, a: Operands) -> Interval:
        """Return the logarithm, within an absolute error in [0.5, 2], else within 3 ULP."""
        return self._logarithm(np.log, self.constant(a))

    def log2(self, a: Operands) -> Interval:
        """Return the logarithm to the base 2, as accurate as log."""
        return self._logarithm(np.log2, self.constant(a))

    def _logarithm(self, function: Callable[[Floats], Floats], a: Interval) -> Interval:
        with np.errstate(all="ignore"):
            low, high = function(a.low), function(a.high)
        far = self.within_ulp(low, high, 3)
        near = self.result(low - self.log_error, high + self.log_error)
        is_near = (a.low >= 0.5) & (a.high <= 2)
        interval = Interval(np.where(is_near, near.low, far.low), np.where(is_near, near.high, far.high))
        return interval.free_where(a.low <= 0)

    def power(self, a: Operands, b: Operands) -> Interval:
        """Return a^b, as accurate as exp2(b * log2(a))."""
        return self.exp2(self.multiply(b, self.log2(a)))

    def inverse_sqrt(self, a: Operands) -> Interval:
        """Return 1 / sqrt(a), within 2 ULP."""
        a = self.constant(a)
        with np.errstate(all="ignore"):
            return self.within_ulp(1 / np.sqrt(a.high), 1 / np.sqrt(a.low), 2).free_where(a.low <= 0)

    def sqrt(self, a: Operands) -> Interval:
        """Return the square root, as accurate as 1 / inverseSqrt(a)."""
        return self.divide(1.0, self.inverse_sqrt(a))

    def sin(self, a: Operands) -> Interval:
        """Return the sine, within an absolute error in [-pi, pi]."""
        return self._angle(np.sin, self.constant(a))

    def cos(self, a: Operands) -> Interval:
        """Return the cosine, as accurate as sin."""
        return self._angle(np.cos, self.constant(a))

    def _angle(self, function: Callable[[Floats], Floats], a: Interval) -> Interval:
        ends = function(a.low), function(a.high)
        low, high = np.minimum(*ends) - self.angle_error, np.maximum(*ends) + self.angle_error
        return self.result(low, high).free_where((a.low < -np.pi) | (a.high > np.pi))

    def atan2(self, y: Operands, x: Operands) -> Interval:
        """Return the angle of a point, as accurate as atan; free on the axes."""
        y, x = self.constant(y), self.constant(x)
        with np.errstate(invalid="ignore"):
            corners = [np.arctan2(b, a) for b in (y.low, y.high) for a in (x.low, x.high)]
        interval = self.within_ulp(np.minimum.reduce(corners), np.maximum.reduce(corners), self.atan_error)
        magnitudes = [np.abs(side) for side in (x.low, x.high)]
        is_outside = (np.minimum(*magnitudes) < self.tiny) | (np.maximum(*magnitudes) > 1 / self.tiny)
        return interval.free_where(is_outside | y.contains(0) | x.contains(0))

    def asin(self, a: Operands) -> Interval:
        """Return the arcsine, within an absolute error, or as accurate as atan2(a, sqrt(1 - a * a))."""
        a = self.constant(a)
        inherited = self.atan2(a, self.sqrt(self.subtract(1.0, self.multiply(a, a))))
        return self.result(np.arcsin(a.low) - self.asin_error, np.arcsin(a.high) + self.asin_error).union(inherited)

    def acos(self, a: Operands) -> Interval:
        """Return the arccosine, within an absolute error, or as accurate as atan2(sqrt(1 - a * a), a)."""
        a = self.constant(a)
        inherited = self.atan2(self.sqrt(self.subtract(1.0, self.multiply(a, a))), a)
        return self.result(np.arccos(a.high) - self.acos_error, np.arccos(a.low) + self.acos_error).union(inherited)

    def atan(self, a: Operands) -> Interval:
        """Return the arctangent, within 4096 ULP (float16: 5)."""
        a = self.constant(a)
        return self.within_ulp(np.arctan(a.low), np.arctan(a.high), self.atan_error)

    # ---- vectors

    def dot(self, a: Sequence[Interval], b: Sequence[Interval]) -> Interval:
        """Return the sum of products, added in any order."""
        products = [self.multiply(x, y) for x, y in zip(a, b, strict=True)]
        sums = [self._sum_of(order) for order in itertools.permutations(products)]
        if len(products) == 4:
            sums += [self.add(self.add(p, q), self.add(r, s)) for p, q, r, s in itertools.permutations(products)]
        return sums[0].union(*sums[1:])

    def _sum_of(self, terms: Sequence[Interval]) -> Interval:
        total = terms[0]
        for term in terms[1:]:
            total = self.add(total, term)
        return total

    def length(self, a: Sequence[Interval]) -> Interval:
        """Return the length of a vector, as accurate as sqrt(dot(a, a))."""
        return self.sqrt(self.dot(a, a))


def _sum(a: Floats, b: Floats, toward: float) -> Floats:
    """Return float64 sums, rounded in one direction."""
    with np.errstate(invalid="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
        is_past = error < 0 if toward < 0 else error > 0
    return np.where(is_past, np.nextafter(total, toward), total)


def _product(a: Floats, b: Floats, toward: float) -> Floats:
    """Return float64 products, rounded in one direction; products of float32 numbers are exact."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * b
        is_exact = (a.astype(np.float32) == a) & (b.astype(np.float32) == b)
    return np.where(is_exact, product, np.nextafter(product, toward))


F32: Final = Accuracy("f32", np.float32, 24, -126, 2.0**-21, 3, 2.0**-11, 4096, 6.81e-5, 6.77e-5)
F16: Final = Accuracy("f16", np.float16, 11, -14, 2.0**-7, 1, 2.0**-7, 5, 3.91e-3, 3.91e-3)
