"""Element by element: sizes broadcast, types promote, numbers take the type of the array beside them."""

from __future__ import annotations

import builtins
from typing import Any

from dmlgpu.array.creation import zeros
from dmlgpu.array.logic import isnan
from dmlgpu.array.operands import (
    FLOATING,
    NUMERIC,
    Number,
    binary,
    both,
    chosen,
    kind_of,
    operand,
    pair,
    run,
    scalar,
    tensor,
    unary,
)
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import RoundingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.promotion import promoted
from dmlgpu.tensors.tensor import Tensor

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
    "ceil",
    "clip",
    "conj",
    "cos",
    "cosh",
    "divide",
    "exp",
    "floor",
    "floor_divide",
    "imag",
    "log",
    "maximum",
    "minimum",
    "multiply",
    "negative",
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
    return unary(descs.ElementWiseAcos, x)


@named
def acosh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic cosine of each floating-point number."""
    return unary(descs.ElementWiseAcosh, x)


@named
def asin(x: Tensor, /) -> Tensor:
    """Return the arcsine of each floating-point number, in radians."""
    return unary(descs.ElementWiseAsin, x)


@named
def asinh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic sine of each floating-point number."""
    return unary(descs.ElementWiseAsinh, x)


@named
def atan(x: Tensor, /) -> Tensor:
    """Return the arctangent of each floating-point number, in radians."""
    return unary(descs.ElementWiseAtan, x)


@named
def atanh(x: Tensor, /) -> Tensor:
    """Return the inverse hyperbolic tangent of each floating-point number."""
    return unary(descs.ElementWiseAtanh, x)


@named
def cos(x: Tensor, /) -> Tensor:
    """Return the cosine of each floating-point number, in radians."""
    return unary(descs.ElementWiseCos, x)


@named
def cosh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic cosine of each floating-point number."""
    return unary(descs.ElementWiseCosh, x)


@named
def exp(x: Tensor, /) -> Tensor:
    """Return e to the power of each floating-point number."""
    return unary(descs.ElementWiseExp, x)


@named
def log(x: Tensor, /) -> Tensor:
    """Return the natural logarithm of each floating-point number."""
    return unary(descs.ElementWiseLog, x)


@named
def reciprocal(x: Tensor, /) -> Tensor:
    """Return 1 divided by each floating-point number."""
    return unary(descs.ElementWiseRecip, x)


@named
def sin(x: Tensor, /) -> Tensor:
    """Return the sine of each floating-point number, in radians."""
    return unary(descs.ElementWiseSin, x)


@named
def sinh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic sine of each floating-point number."""
    return unary(descs.ElementWiseSinh, x)


@named
def sqrt(x: Tensor, /) -> Tensor:
    """Return the square root of each floating-point number."""
    return unary(descs.ElementWiseSqrt, x)


@named
def tan(x: Tensor, /) -> Tensor:
    """Return the tangent of each floating-point number, in radians."""
    return unary(descs.ElementWiseTan, x)


@named
def tanh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic tangent of each floating-point number."""
    return unary(descs.ElementWiseTanh, x)


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
    found = unary(descs.ElementWiseSign, x, NUMERIC)
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
    return binary(descs.ElementWiseAdd, x1, x2)


@named
def subtract(x1: Number, x2: Number, /) -> Tensor:
    """Return the difference of each pair of numbers."""
    return binary(descs.ElementWiseSubtract, x1, x2)


@named
def multiply(x1: Number, x2: Number, /) -> Tensor:
    """Return the product of each pair of numbers."""
    return binary(descs.ElementWiseMultiply, x1, x2)


@named
def divide(x1: Number, x2: Number, /) -> Tensor:
    """Return the quotient of each pair of floating-point numbers."""
    return binary(descs.ElementWiseDivide, x1, x2, FLOATING)


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
    return binary(descs.ElementWiseAtanYx, x1, x2, FLOATING)


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
