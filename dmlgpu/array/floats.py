"""Element by element on floating-point numbers: functions that are composed of several operators, and those on bits."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.array.elementwise import abs, maximum, minimum
from dmlgpu.array.logic import isinf, isnan
from dmlgpu.array.operands import FLOATING, Number, both, chosen, run, scalar, tensor
from dmlgpu.catalog import descs
from dmlgpu.tensors.calls import named
from dmlgpu.tensors.integers import UNSIGNED
from dmlgpu.tensors.tensor import Tensor

__all__ = ["copysign", "expm1", "hypot", "log1p", "log2", "log10", "logaddexp", "nextafter", "signbit"]


def _log(x: Tensor) -> Tensor:
    return run(descs.ElementWiseLog, input_tensor=x)


def _exp(x: Tensor) -> Tensor:
    return run(descs.ElementWiseExp, input_tensor=x)


@named
def expm1(x: Tensor, /) -> Tensor:
    """Return e to the power of each number, less 1, precisely near 0."""
    given = tensor("x", x, FLOATING)
    half = run(descs.ElementWiseTanh, input_tensor=given * 0.5)
    near = half * 2.0 / (1.0 - half)
    return chosen(abs(given) < 1.0, near, _exp(given) - 1.0)


@named
def log1p(x: Tensor, /) -> Tensor:
    """Return the logarithm of 1 and each number, precisely near 0."""
    return _log1p(tensor("x", x, FLOATING))


def _log1p(x: Tensor) -> Tensor:
    whole = x + 1.0
    scaled = _log(whole) * (x / (whole - 1.0))  # what rounding took from the sum is put back by the quotient
    return chosen((whole == 1.0) | (x == math.inf), x, scaled)


@named
def log2(x: Tensor, /) -> Tensor:
    """Return the logarithm of each number to the base 2."""
    return _log(tensor("x", x, FLOATING)) * (1 / math.log(2))


@named
def log10(x: Tensor, /) -> Tensor:
    """Return the logarithm of each number to the base 10."""
    return _log(tensor("x", x, FLOATING)) * (1 / math.log(10))


@named
def logaddexp(x1: Number, x2: Number, /) -> Tensor:
    """Return the logarithm of the sum of e to the power of each of a pair."""
    first, second = both(x1, x2, FLOATING)
    distance = chosen(first == second, scalar(0.0, first), abs(first - second))
    return maximum(first, second) + _log1p(_exp(-distance))


@named
def hypot(x1: Number, x2: Number, /) -> Tensor:
    """Return the length of each pair of sides at a right angle's hypotenuse, without overflow on the way."""
    first, second = (abs(one) for one in both(x1, x2, FLOATING))
    longer, shorter = maximum(first, second), minimum(first, second)
    ratio = chosen(longer == 0.0, longer, shorter / longer)
    found = longer * run(descs.ElementWiseSqrt, input_tensor=ratio * ratio + 1.0)
    return chosen(isinf(first) | isinf(second), scalar(math.inf, first), found)


def _bits(x: Tensor) -> Tensor:
    """Return the bits of floating-point numbers as unsigned integers: the same memory."""
    return x._same(UNSIGNED[x.data_type])


@named
def signbit(x: Tensor, /) -> Tensor:
    """Return whether the sign bit of each number is set, that of -0 and of NaN included."""
    given = tensor("x", x, FLOATING)
    return _bits(given) >= 1 << (given.data_type.bits - 1)


@named
def copysign(x1: Number, x2: Number, /) -> Tensor:
    """Return the magnitude of the first with the sign of the second of each pair."""
    first, second = both(x1, x2, FLOATING)
    return _signed_as(first, second)


def _signed_as(magnitude: Tensor, sign: Tensor) -> Tensor:
    mask = 1 << (magnitude.data_type.bits - 1)
    found: Any = (_bits(magnitude) & (mask - 1)) | (_bits(sign) & mask)
    return found._same(magnitude.data_type)


@named
def nextafter(x1: Number, x2: Number, /) -> Tensor:
    """Return the floating-point number next to the first towards the second of each pair."""
    first, second = both(x1, x2, FLOATING)
    bits = _bits(first)
    is_away = (second > first) == (first > 0.0)
    stepped = chosen(is_away, bits + 1, bits - 1)._same(first.data_type)
    least = _signed_as(scalar(0.0, first), second)
    smallest = (_bits(least) | 1)._same(first.data_type)
    found = chosen(first == 0.0, smallest, stepped)
    found = chosen(first == second, second, found)
    return chosen(isnan(first) | isnan(second), first + second, found)
