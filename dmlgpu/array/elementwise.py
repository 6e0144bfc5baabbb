"""Element by element: sizes broadcast, types promote, numbers take the type of the array beside them."""

from __future__ import annotations

import builtins
from typing import Any

from dmlgpu import descs
from dmlgpu.array.creation import zeros
from dmlgpu.array.operands import Number, both, kind_of, operand, pair, run, scalar, tensor
from dmlgpu.eager.calls import caller, named
from dmlgpu.eager.promotion import promoted
from dmlgpu.eager.tensor import Tensor
from dmlgpu.enums import IsInfinityMode, RoundingMode
from dmlgpu.operator_desc import OperatorDesc

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]

NUMERIC = "integer or floating-point"
FLOATING = "floating-point"
ANY = "boolean or integer or floating-point"


def chosen(condition: Tensor, x1: Any, x2: Any) -> Tensor:
    """Return elements of ``x1`` where a condition holds, else of ``x2``."""
    return run(descs.ElementWiseIf, condition_tensor=condition, a_tensor=x1, b_tensor=x2)


def _unary(kind: type[OperatorDesc], x: Any, allowed: str = FLOATING) -> Tensor:
    return run(kind, input_tensor=tensor("x", x, allowed))


def _binary(kind: type[OperatorDesc], x1: Any, x2: Any, allowed: str = NUMERIC) -> Tensor:
    first, second = pair(x1, x2, allowed)
    return run(kind, a_tensor=first, b_tensor=second)


def _rounded(kind: type[OperatorDesc], x: Any, **attributes: Any) -> Tensor:
    given = tensor("x", x, NUMERIC)
    return run(kind, input_tensor=given, **attributes) if given.data_type.is_float else given._same()


@named
def abs(x: Tensor, /) -> Tensor:
    """Return the absolute value of each number."""
    return builtins.abs(tensor("x", x, NUMERIC))


@named
def acos(x: Tensor, /) -> Tensor:
    """Return the arccosine of each floating-point number, in radians."""
    return _unary(descs.ElementWiseAcos, x)


@named
def acosh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic cosine of each floating-point number."""
    return _unary(descs.ElementWiseAcosh, x)


@named
def asin(x: Tensor, /) -> Tensor:
    """Return the arcsine of each floating-point number, in radians."""
    return _unary(descs.ElementWiseAsin, x)


@named
def asinh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic sine of each floating-point number."""
    return _unary(descs.ElementWiseAsinh, x)


@named
def atan(x: Tensor, /) -> Tensor:
    """Return the arctangent of each floating-point number, in radians."""
    return _unary(descs.ElementWiseAtan, x)


@named
def atanh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic tangent of each floating-point number."""
    return _unary(descs.ElementWiseAtanh, x)


@named
def cos(x: Tensor, /) -> Tensor:
    """Return the cosine of each floating-point number, in radians."""
    return _unary(descs.ElementWiseCos, x)


@named
def cosh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic cosine of each floating-point number."""
    return _unary(descs.ElementWiseCosh, x)


@named
def exp(x: Tensor, /) -> Tensor:
    """Return e to the power of each floating-point number."""
    return _unary(descs.ElementWiseExp, x)


@named
def log(x: Tensor, /) -> Tensor:
    """Return the natural logarithm of each floating-point number."""
    return _unary(descs.ElementWiseLog, x)


@named
def reciprocal(x: Tensor, /) -> Tensor:
    """Return 1 divided by each floating-point number."""
    return _unary(descs.ElementWiseRecip, x)


@named
def sin(x: Tensor, /) -> Tensor:
    """Return the sine of each floating-point number, in radians."""
    return _unary(descs.ElementWiseSin, x)


@named
def sinh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic sine of each floating-point number."""
    return _unary(descs.ElementWiseSinh, x)


@named
def sqrt(x: Tensor, /) -> Tensor:
    """Return the square root of each floating-point number."""
    return _unary(descs.ElementWiseSqrt, x)


@named
def tan(x: Tensor, /) -> Tensor:
    """Return the tangent of each floating-point number, in radians."""
    return _unary(descs.ElementWiseTan, x)


@named
def tanh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic tangent of each floating-point number."""
    return _unary(descs.ElementWiseTanh, x)


@named
def ceil(x: Tensor, /) -> Tensor:
    """Return the smallest integer not below each number."""
    return _rounded(descs.ElementWiseCeil, x)


@named
def floor(x: Tensor, /) -> Tensor:
    """Return the largest integer not above each number."""
    return _rounded(descs.ElementWiseFloor, x)


@named
def round(x: Tensor, /) -> Tensor:
    """Return each number rounded to an integer, halves to even ones."""
    return _rounded(descs.ElementWiseRound, x, rounding_mode=RoundingMode.HALVES_TO_NEAREST_EVEN)


@named
def trunc(x: Tensor, /) -> Tensor:
    """Return the integer next to each number towards zero."""
    return _rounded(descs.ElementWiseRound, x, rounding_mode=RoundingMode.TOWARD_ZERO)


@named
def sign(x: Tensor, /) -> Tensor:
    """Return -1, 0 or 1 by the sign of each number; NaN of NaN."""
    found = _unary(descs.ElementWiseSign, x, NUMERIC)
    return chosen(isnan(x), x, found) if x.data_type.is_float else found


@named
def square(x: Tensor, /) -> Tensor:
    """Return each number times itself."""
    given = tensor("x", x, NUMERIC)
    return given * given


@named
def negative(x: Tensor, /) -> Tensor:
    """Return each number with its sign changed."""
    return -tensor("x", x, NUMERIC)


@named
def positive(x: Tensor, /) -> Tensor:
    """Return each number as it is."""
    return tensor("x", x, NUMERIC)._same()


@named
def real(x: Tensor, /) -> Tensor:
    """Return the real part of each number: itself."""
    return tensor("x", x, NUMERIC)._same()


@named
def conj(x: Tensor, /) -> Tensor:
    """Return the complex conjugate of each number: itself."""
    return tensor("x", x, NUMERIC)._same()


@named
def imag(x: Tensor, /) -> Tensor:
    """Return the imaginary part of each number: 0."""
    given = tensor("x", x, NUMERIC)
    return zeros(given.sizes, dtype=given.dtype, device=given.device)


@named
def add(x1: Number, x2: Number, /) -> Tensor:
    """Return the sum of each pair of numbers."""
    return _binary(descs.ElementWiseAdd, x1, x2)


@named
def subtract(x1: Number, x2: Number, /) -> Tensor:
    """Return the difference of each pair of numbers."""
    return _binary(descs.ElementWiseSubtract, x1, x2)


@named
def multiply(x1: Number, x2: Number, /) -> Tensor:
    """Return the product of each pair of numbers."""
    return _binary(descs.ElementWiseMultiply, x1, x2)


@named
def divide(x1: Number, x2: Number, /) -> Tensor:
    """Return the quotient of each pair of floating-point numbers."""
    return _binary(descs.ElementWiseDivide, x1, x2, FLOATING)


@named
def floor_divide(x1: Number, x2: Number, /) -> Tensor:
    """Return the quotient of each pair of numbers, rounded towards minus infinity."""
    first, second = pair(x1, x2, NUMERIC)
    return first // second


@named
def remainder(x1: Number, x2: Number, /) -> Tensor:
    """Return the remainder of each pair of numbers, with the sign of the divisor."""
    first, second = pair(x1, x2, NUMERIC)
    return first % second


@named
def pow(x1: Number, x2: Number, /) -> Tensor:
    """Return the first to the power of the second of each pair of numbers."""
    first, second = pair(x1, x2, NUMERIC)
    return first**second


@named
def atan2(x1: Number, x2: Number, /) -> Tensor:
    """Return the angle in radians of each point (x2, x1)."""
    return _binary(descs.ElementWiseAtanYx, x1, x2, FLOATING)


def _extreme(kind: type[OperatorDesc], x1: Any, x2: Any) -> Tensor:
    """Return the larger or smaller of each pair; NaN where one is NaN."""
    first, second = both(x1, x2, NUMERIC)
    found = run(kind, a_tensor=first, b_tensor=second)
    if not first.data_type.is_float:
        return found
    return chosen(isnan(first), first, chosen(isnan(second), second, found))


@named
def maximum(x1: Number, x2: Number, /) -> Tensor:
    """Return the larger of each pair of numbers, NaN where one is NaN."""
    return _extreme(descs.ElementWiseMax, x1, x2)


@named
def minimum(x1: Number, x2: Number, /) -> Tensor:
    """Return the smaller of each pair of numbers, NaN where one is NaN."""
    return _extreme(descs.ElementWiseMin, x1, x2)


@named
def clip(x: Tensor, /, min: Number | None = None, max: Number | None = None) -> Tensor:
    """Return each number, but at least ``min`` and at most ``max``; None for no bound.

    Raises:
        InvalidArgument: bounds of another kind of type, or whose sizes do not broadcast.
    """
    found = tensor("x", x, NUMERIC)
    given = found
    for kind, name, bound in ((descs.ElementWiseMax, "min", min), (descs.ElementWiseMin, "max", max)):
        if bound is None:
            continue
        limit = operand(name, bound, kind_of(given), given)
        if isinstance(limit, Tensor):
            found, limit = promoted(caller(), {"x": found, name: limit})
        else:
            limit = scalar(limit, found)
        found = _extreme(kind, found, limit)
    return found._same() if found is given else found.astype(given.data_type)


@named
def equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether the two of each pair are equal."""
    return _binary(descs.ElementWiseLogicalEquals, x1, x2, ANY)


@named
def not_equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether the two of each pair differ."""
    return logical_not(_binary(descs.ElementWiseLogicalEquals, x1, x2, ANY))


@named
def less(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 < x2, for each pair of numbers."""
    return _binary(descs.ElementWiseLogicalLessThan, x1, x2)


@named
def less_equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 <= x2, for each pair of numbers."""
    return _binary(descs.ElementWiseLogicalLessThanOrEqual, x1, x2)


@named
def greater(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 > x2, for each pair of numbers."""
    return _binary(descs.ElementWiseLogicalGreaterThan, x1, x2)


@named
def greater_equal(x1: Number, x2: Number, /) -> Tensor:
    """Return whether x1 >= x2, for each pair of numbers."""
    return _binary(descs.ElementWiseLogicalGreaterThanOrEqual, x1, x2)


@named
def logical_and(x1: Any, x2: Any, /) -> Tensor:
    """Return whether both of each pair of truth values hold."""
    return _binary(descs.ElementWiseLogicalAnd, x1, x2, "boolean")


@named
def logical_or(x1: Any, x2: Any, /) -> Tensor:
    """Return whether one of each pair of truth values holds, or both."""
    return _binary(descs.ElementWiseLogicalOr, x1, x2, "boolean")


@named
def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    """Return whether just one of each pair of truth values holds."""
    return _binary(descs.ElementWiseLogicalXor, x1, x2, "boolean")


@named
def logical_not(x: Tensor, /) -> Tensor:
    """Return whether each truth value does not hold."""
    return _unary(descs.ElementWiseLogicalNot, x, "boolean")


def _none_of(x: Tensor) -> Tensor:
    return zeros(x.sizes, dtype="bool", device=x.device)


@named
def isnan(x: Tensor, /) -> Tensor:
    """Return whether each number is NaN."""
    given = tensor("x", x, NUMERIC)
    return _unary(descs.ElementWiseIsNan, given) if given.data_type.is_float else _none_of(given)


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
    return _binary(descs.ElementWiseBitAnd, x1, x2, "boolean or integer")


@named
def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits set in either of each pair of integers, or of truth values."""
    return _binary(descs.ElementWiseBitOr, x1, x2, "boolean or integer")


@named
def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits set in just one of each pair of integers, or of truth values."""
    return _binary(descs.ElementWiseBitXor, x1, x2, "boolean or integer")


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
