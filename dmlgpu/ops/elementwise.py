"""Element by element, under NumPy's names. Sizes broadcast, types must be equal, numbers take the tensor's type."""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog.enums import RoundingMode
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_number, is_number, value_range

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "divide",
    "erf",
    "exp",
    "floor",
    "floor_divide",
    "fmod",
    "log",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "power",
    "reciprocal",
    "remainder",
    "round",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "where",
]


@eager
def abs(x: Operand, *, device: Where = None) -> Array:
    """Absolute value of each element."""
    return directml.element_wise_abs(x)


@eager
def sign(x: Operand, *, device: Where = None) -> Array:
    """-1, 0 or 1 by the sign of each element."""
    return directml.element_wise_sign(x)


@eager
def negative(x: Operand, *, device: Where = None) -> Array:
    """Each element with its sign changed."""
    return directml.element_wise_negate(x)


@eager
def exp(x: Operand, *, device: Where = None) -> Array:
    """e to the power of each element."""
    return directml.element_wise_exp(x)


@eager
def log(x: Operand, *, device: Where = None) -> Array:
    """Natural logarithm of each element."""
    return directml.element_wise_log(x)


@eager
def sqrt(x: Operand, *, device: Where = None) -> Array:
    """Square root of each element."""
    return directml.element_wise_sqrt(x)


@eager
def reciprocal(x: Operand, *, device: Where = None) -> Array:
    """1 divided by each element."""
    return directml.element_wise_recip(x)


@eager
def sin(x: Operand, *, device: Where = None) -> Array:
    """Sine of each element, in radians."""
    return directml.element_wise_sin(x)


@eager
def cos(x: Operand, *, device: Where = None) -> Array:
    """Cosine of each element, in radians."""
    return directml.element_wise_cos(x)


@eager
def tan(x: Operand, *, device: Where = None) -> Array:
    """Tangent of each element, in radians."""
    return directml.element_wise_tan(x)


@eager
def asin(x: Operand, *, device: Where = None) -> Array:
    """Arcsine of each element, in radians."""
    return directml.element_wise_asin(x)


@eager
def acos(x: Operand, *, device: Where = None) -> Array:
    """Arccosine of each element, in radians."""
    return directml.element_wise_acos(x)


@eager
def atan(x: Operand, *, device: Where = None) -> Array:
    """Arctangent of each element, in radians."""
    return directml.element_wise_atan(x)


@eager
def sinh(x: Operand, *, device: Where = None) -> Array:
    """Hyperbolic sine of each element."""
    return directml.element_wise_sinh(x)


@eager
def cosh(x: Operand, *, device: Where = None) -> Array:
    """Hyperbolic cosine of each element."""
    return directml.element_wise_cosh(x)


@eager
def tanh(x: Operand, *, device: Where = None) -> Array:
    """Hyperbolic tangent of each element."""
    return directml.element_wise_tanh(x)


@eager
def asinh(x: Operand, *, device: Where = None) -> Array:
    """Inverse hyperbolic sine of each element."""
    return directml.element_wise_asinh(x)


@eager
def acosh(x: Operand, *, device: Where = None) -> Array:
    """Inverse hyperbolic cosine of each element."""
    return directml.element_wise_acosh(x)


@eager
def atanh(x: Operand, *, device: Where = None) -> Array:
    """Inverse hyperbolic tangent of each element."""
    return directml.element_wise_atanh(x)


@eager
def erf(x: Operand, *, device: Where = None) -> Array:
    """Error function of each element."""
    return directml.element_wise_erf(x)


@eager
def floor(x: Operand, *, device: Where = None) -> Array:
    """Largest integer not above each element."""
    return directml.element_wise_floor(x)


@eager
def ceil(x: Operand, *, device: Where = None) -> Array:
    """Smallest integer not below each element."""
    return directml.element_wise_ceil(x)


@eager
def add(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Sum of each pair of elements."""
    return directml.element_wise_add(a, b)


@eager
def subtract(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Difference of each pair of elements."""
    return directml.element_wise_subtract(a, b)


@eager
def multiply(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Product of each pair of elements."""
    return directml.element_wise_multiply(a, b)


@eager
def remainder(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Remainder of each pair, with the sign of the divisor, as Python's ``%``."""
    return directml.element_wise_modulus_floor(a, b)


@eager
def fmod(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Remainder of each pair, with the sign of the dividend."""
    return directml.element_wise_modulus_truncate(a, b)


@eager
def maximum(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Larger of each pair of elements."""
    return directml.element_wise_max(a, b)


@eager
def minimum(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Smaller of each pair of elements."""
    return directml.element_wise_min(a, b)


@eager
def atan2(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Angle in radians of each point (b, a)."""
    return directml.element_wise_atan_yx(a, b)


@eager
def divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Quotient of each pair of floating-point numbers; ``floor_divide`` is for integers.

    Raises:
        InvalidArgument: integers.
    """
    first, second = _pair(a, b)
    data_type = (first if isinstance(first, Tensor) else second).data_type
    if not data_type.is_float:
        raise InvalidArgument(
            f"{caller()}: a and b must be of a floating-point type, got {data_type.name}; see floor_divide"
        )
    return directml.element_wise_divide(first, second)


@eager
def floor_divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Quotient of each pair, rounded towards minus infinity."""
    first, second = _pair(a, b)
    return first // second


@eager
def power(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """First to the power of the second of each pair."""
    first, second = _pair(a, b)
    return first**second


def _pair(a: Operand, b: Operand) -> tuple[Any, Any]:
    """Return two operands, of which one at most is a number."""
    if is_number(a):
        return a, tensor_of("b", b)
    return tensor_of("a", a), b if is_number(b) else tensor_of("b", b)


@eager
def square(x: Operand, *, device: Where = None) -> Array:
    """Each element times itself."""
    return directml.element_wise_multiply(x, x)


@eager
def rsqrt(x: Operand, *, device: Where = None) -> Array:
    """1 divided by the square root of each element."""
    return directml.element_wise_recip(directml.element_wise_sqrt(x))


@eager
def round(x: Operand, *, device: Where = None) -> Array:
    """Each element rounded to an integer, halves to even ones."""
    return directml.element_wise_round(x, rounding_mode=RoundingMode.HALVES_TO_NEAREST_EVEN)


@eager
def clip(x: Operand, min: float | None = None, max: float | None = None, *, device: Where = None) -> Array:
    """Each element, but at least ``min`` and at most ``max``; None for no bound.

    Raises:
        InvalidArgument: a bound that the elements' type does not hold.
    """
    tensor = tensor_of("x", x)
    one = tensor.data_type
    infinity = float("inf")
    low, high = (-infinity, infinity) if one.is_float else value_range(one)
    return directml.element_wise_clip1(
        tensor,
        min=low if min is None else as_number(f"{caller()}: min", min, one),
        max=high if max is None else as_number(f"{caller()}: max", max, one),
    )


@eager
def where(condition: Operand, a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Elements of ``a`` where ``condition``, UINT8, is not 0, else of ``b``; all three broadcast."""
    return directml.element_wise_if(condition, a, b)


@eager
def astype(x: Operand, data_type: TypeLike, *, device: Where = None) -> Array:
    """Each element in another type, converted as CAST does: towards zero, saturating.

    Raises:
        InvalidArgument: no data type.
    """
    return tensor_of("x", x).astype(data_type)
