"""Comparisons, truth values and bits, element by element: sizes broadcast, types promote."""

from __future__ import annotations

from typing import Any

from dmlgpu.array.creation import zeros
from dmlgpu.array.operands import ANY, NUMERIC, Number, binary, pair, run, tensor, unary
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import IsInfinityMode
from dmlgpu.tensors.calls import named
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]


@named
def equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether the two of each pair are equal."""
    return binary(descs.ElementWiseLogicalEquals, x1, x2, ANY)


@named
def not_equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether the two of each pair differ."""
    return logical_not(binary(descs.ElementWiseLogicalEquals, x1, x2, ANY))


@named
def less(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 < x2, for each pair of numbers."""
    return binary(descs.ElementWiseLogicalLessThan, x1, x2)


@named
def less_equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 <= x2, for each pair of numbers."""
    return binary(descs.ElementWiseLogicalLessThanOrEqual, x1, x2)


@named
def greater(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 > x2, for each pair of numbers."""
    return binary(descs.ElementWiseLogicalGreaterThan, x1, x2)


@named
def greater_equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 >= x2, for each pair of numbers."""
    return binary(descs.ElementWiseLogicalGreaterThanOrEqual, x1, x2)


@named
def logical_and(x1: Any, x2: Any, /) -> Tensor:
    """Return whether both of each pair of truth values hold."""
    return binary(descs.ElementWiseLogicalAnd, x1, x2, "boolean")


@named
def logical_or(x1: Any, x2: Any, /) -> Tensor:
    """Return whether one of each pair of truth values holds, or both."""
    return binary(descs.ElementWiseLogicalOr, x1, x2, "boolean")


@named
def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    """Return whether just one of each pair of truth values holds."""
    return binary(descs.ElementWiseLogicalXor, x1, x2, "boolean")


@named
def logical_not(x: Tensor, /) -> Tensor:
    """Return whether each truth value does not hold."""
    return unary(descs.ElementWiseLogicalNot, x, "boolean")


def _none_of(x: Tensor) -> Tensor:
    return zeros(x.sizes, dtype="bool", device=x.device)


@named
def isnan(x: Tensor, /) -> Tensor:
    """Return whether each number is NaN."""
    given = tensor("x", x, NUMERIC)
    return unary(descs.ElementWiseIsNan, given) if given.data_type.is_float else _none_of(given)


@named
def isinf(x: Tensor, /) -> Tensor:
    """Return whether each number is infinite."""
    given = tensor("x", x, NUMERIC)
    if not given.data_type.is_float:
        return _none_of(given)
    return run(descs.ElementWiseIsInfinity, input_tensor=given, infinity_mode=IsInfinityMode.EITHER)


@named
def isfinite(x: Tensor, /) -> Tensor:
    """Return whether each number is neither infinite nor NaN."""
    return ~(isnan(x) | isinf(x))


@named
def bitwise_and(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits set in both of each pair of integers, or of truth values."""
    return binary(descs.ElementWiseBitAnd, x1, x2, "boolean or integer")


@named
def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits set in either of each pair of integers, or of truth values."""
    return binary(descs.ElementWiseBitOr, x1, x2, "boolean or integer")


@named
def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits set in just one of each pair of integers, or of truth values."""
    return binary(descs.ElementWiseBitXor, x1, x2, "boolean or integer")


@named
def bitwise_invert(x: Tensor, /) -> Tensor:
    """Return each integer with all bits inverted, or each truth value."""
    return ~tensor("x", x, "boolean or integer")


@named
def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    """Return bits of x1 moved up by x2, for each pair of integers."""
    first, second = pair(x1, x2, "integer")
    return first << second


@named
def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """Return bits of x1 moved down by x2, for each pair of integers; the sign comes in from above."""
    first, second = pair(x1, x2, "integer")
    return first >> second
