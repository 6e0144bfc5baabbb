"""Elementwise functions: shapes broadcast, and dtypes promote by NumPy's table, which contains the standard's."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

from dmlgpu import ops
from dmlgpu.array.creation import zeros
from dmlgpu.array.operands import Number, binary, both, operand, scalar, tensor, unary
from dmlgpu.tensors.arithmetic import UNSIGNED
from dmlgpu.tensors.calls import caller, kind_of, named
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_floating, promoted

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign",
    "cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot",
    "imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative",
    "nextafter", "not_equal", "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit",
    "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc",
]  # fmt: skip

# ---- one operand -----------------------------------------------------------------------------------------------------

acos = unary("acos", ops.acos)
acosh = unary("acosh", ops.acosh)
asin = unary("asin", ops.asin)
asinh = unary("asinh", ops.asinh)
atan = unary("atan", ops.atan)
atanh = unary("atanh", ops.atanh)
cos = unary("cos", ops.cos)
cosh = unary("cosh", ops.cosh)
exp = unary("exp", ops.exp)
log = unary("log", ops.log)
reciprocal = unary("reciprocal", ops.reciprocal)
sin = unary("sin", ops.sin)
sinh = unary("sinh", ops.sinh)
sqrt = unary("sqrt", ops.sqrt)
tan = unary("tan", ops.tan)
tanh = unary("tanh", ops.tanh)

abs = unary("abs", ops.abs)
negative = unary("negative", ops.negative)
square = unary("square", ops.square)
positive = unary("positive", operator.pos, "Return each element as it is.")
real = unary("real", Tensor._same, "Return the real part of each element: itself.")
conj = unary("conj", Tensor._same, "Return the complex conjugate of each element: itself.")
logical_not = unary("logical_not", ops.logical_not)
bitwise_invert = unary("bitwise_invert", operator.invert, "Return each integer with all bits inverted, or ~x.")


ceil = unary("ceil", ops.ceil)
floor = unary("floor", ops.floor)
round = unary("round", ops.round)
trunc = unary("trunc", ops.trunc)


def _zeros(x: Tensor) -> Tensor:
    return zeros(x.sizes, dtype=x.dtype, device=x.device)


imag = unary("imag", _zeros, "Return the imaginary part of each element: 0.")
isnan = unary("isnan", ops.isnan)
isinf = unary("isinf", ops.isinf)
isfinite = unary("isfinite", ops.isfinite)
sign = unary("sign", ops.sign)
log2 = unary("log2", ops.log2)
log10 = unary("log10", ops.log10)


expm1 = unary("expm1", ops.expm1)
log1p = unary("log1p", ops.log1p)


def _bits(x: Tensor) -> Tensor:
    """Return the bits of floating-point elements as unsigned integers: the same memory."""
    return x._same(UNSIGNED[x.data_type])


def _signbit(x: Any) -> Any:
    bits = _bits(as_floating(x))
    return bits >= 1 << (bits.data_type.bits - 1)


signbit = unary("signbit", _signbit, "Return whether the sign bit of each element is set, also of -0 and NaN.")

# ---- two operands ----------------------------------------------------------------------------------------------------

add = binary("add", ops.add)
subtract = binary("subtract", ops.subtract)
multiply = binary("multiply", ops.multiply)
divide = binary("divide", ops.divide)
floor_divide = binary("floor_divide", ops.floor_divide)
remainder = binary(
    "remainder", operator.mod, "Return the remainder of each pair of elements, with the sign of the divisor."
)
pow = binary("pow", ops.power, "Return `x1` to the power of `x2` for each pair of elements.")
atan2 = binary("atan2", ops.atan2, "Return the angle in radians of each point (x2, x1).")

equal = binary("equal", ops.equal, "Return the mask x1 == x2.")
not_equal = binary("not_equal", ops.not_equal, "Return the mask x1 != x2.")
less = binary("less", ops.less, "Return the mask x1 < x2.")
less_equal = binary("less_equal", ops.less_equal, "Return the mask x1 <= x2.")
greater = binary("greater", ops.greater, "Return the mask x1 > x2.")
greater_equal = binary("greater_equal", ops.greater_equal, "Return the mask x1 >= x2.")
logical_and = binary("logical_and", ops.logical_and)
logical_or = binary("logical_or", ops.logical_or)
logical_xor = binary("logical_xor", ops.logical_xor)
bitwise_and = binary("bitwise_and", ops.bitwise_and)
bitwise_or = binary("bitwise_or", ops.bitwise_or)
bitwise_xor = binary("bitwise_xor", ops.bitwise_xor)
bitwise_left_shift = binary(
    "bitwise_left_shift", operator.lshift, "Return each integer of `x1` shifted left by `x2` bits."
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    operator.rshift,
    "Return each integer of `x1` shifted right by `x2` bits; the sign bit is repeated.",
)


maximum = binary("maximum", ops.maximum, "Return the larger of each pair of elements, NaN if either is NaN.")
minimum = binary("minimum", ops.minimum, "Return the smaller of each pair of elements, NaN if either is NaN.")


@named
def clip(x: Tensor, /, min: Number | None = None, max: Number | None = None) -> Tensor:
    """Return each element limited to the range from `min` to `max`.

    Args:
        x: Tensor.
        min: Lower bound: number or Tensor that broadcasts; defaults to None, no bound.
        max: Upper bound, likewise.

    Returns:
        Tensor of the dtype of `x`; of the common dtype if a bound is of another kind.

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> xp.clip(xp.asarray([1, 5, 9]), 2, 6).tolist()
        [2, 5, 6]

    See also:
        `maximum`, `minimum`.
    """
    result: Any = tensor("x", x)
    for function, name, bound in ((ops.maximum, "min", min), (ops.minimum, "max", max)):
        if bound is not None:
            result = function(*promoted(caller(), {"x": result, name: operand(name, bound)}))
    if result is x:
        return result._same()
    return result.astype(x.data_type) if kind_of(result) == kind_of(x) != "boolean" else result


@named
def logaddexp(x1: Number, x2: Number, /) -> Tensor:
    """Return the logarithm of the sum of the exponentials of each pair of elements.

    Args:
        x1: Tensor, or a number (not both operands). Integers are computed in float32.
        x2: Tensor, promoted with `x1` to a common dtype, whose shape broadcasts with that of `x1`, or a number.

    Returns:
        Tensor of the broadcast shape and the common dtype.

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> xp.logaddexp(xp.asarray([-float('inf')]), 0.0).tolist()
        [0.0]

    See also:
        `dmlgpu.ops.logsumexp`.
    """
    first, second = both(x1, x2)
    distance = ops.where(first == second, scalar(0.0, first), builtins.abs(first - second))
    return maximum(first, second) + ops.log1p(ops.exp(-distance))


@named
def hypot(x1: Number, x2: Number, /) -> Tensor:
    """Return the length of the hypotenuse of each pair of legs.

    Squares do not overflow.

    Args:
        x1: Tensor, or a number (not both operands). Integers are computed in float32.
        x2: Tensor, promoted with `x1` to a common dtype, whose shape broadcasts with that of `x1`, or a number.

    Returns:
        Tensor of the broadcast shape and the common dtype.

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> xp.hypot(xp.asarray([3.0]), 4.0).tolist()
        [5.0]
    """
    first, second = (builtins.abs(leg) for leg in both(x1, x2))
    longer, shorter = maximum(first, second), minimum(first, second)
    ratio = ops.where(longer == 0.0, longer, shorter / longer)
    length = longer * ops.sqrt(ratio * ratio + 1.0)
    return ops.where(ops.isinf(first) | ops.isinf(second), scalar(math.inf, first), length)


@named
def copysign(x1: Number, x2: Number, /) -> Tensor:
    """Return the magnitude of `x1` with the sign of `x2` for each pair of elements.

    Args:
        x1: Tensor, or a number (not both operands). Integers are computed in float32.
        x2: Tensor, promoted with `x1` to a common dtype, whose shape broadcasts with that of `x1`, or a number.

    Returns:
        Tensor of the broadcast shape and the common dtype.

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> xp.copysign(xp.asarray([3.0]), -0.0).tolist()
        [-3.0]

    See also:
        `signbit`.
    """
    first, second = both(x1, x2)
    return _signed_as(first, second)


def _signed_as(magnitude: Tensor, sign: Tensor) -> Tensor:
    mask = 1 << (magnitude.data_type.bits - 1)
    bits: Any = (_bits(magnitude) & (mask - 1)) | (_bits(sign) & mask)
    return bits._same(magnitude.data_type)


@named
def nextafter(x1: Number, x2: Number, /) -> Tensor:
    """Return the floating-point number next to `x1` towards `x2` for each pair of elements.

    Args:
        x1: Tensor, or a number (not both operands). Integers are computed in float32.
        x2: Tensor, promoted with `x1` to a common dtype, whose shape broadcasts with that of `x1`, or a number.

    Returns:
        Tensor of the broadcast shape and the common dtype.

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> xp.nextafter(xp.asarray([0.0]), 1.0).tolist()[0] > 0
        True
    """
    first, second = both(x1, x2)
    bits = _bits(first)
    is_away = (second > first) == (first > 0.0)
    stepped = ops.where(is_away, bits + 1, bits - 1)._same(first.data_type)
    tiny = _signed_as(scalar(0.0, first), second)
    smallest = (_bits(tiny) | 1)._same(first.data_type)
    result = ops.where(first == 0.0, smallest, stepped)
    result = ops.where(first == second, second, result)
    return ops.where(ops.isnan(first) | ops.isnan(second), first + second, result)
