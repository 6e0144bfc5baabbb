"""Elementwise functions under NumPy's names: arithmetic, comparisons, booleans and bits.

Shapes broadcast, dtypes must be equal, and a number takes the dtype of the tensor beside it.
"""

from __future__ import annotations

from typing import Any, Protocol

from dmlgpu.catalog.enums import RoundingMode
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_number, is_number, value_range

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cast", "ceil", "clip", "cos", "cosh", "divide", "equal", "erf", "exp", "floor",
    "floor_divide", "fmod", "greater", "greater_equal", "isinf", "isnan", "left_shift", "less", "less_equal", "log",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative",
    "not_equal", "power", "reciprocal", "remainder", "right_shift", "round", "rsqrt", "sign", "sin", "sinh", "sqrt",
    "square", "subtract", "tan", "tanh", "where",
]  # fmt: skip


class UnaryFunction(Protocol):
    """A function of one tensor or array."""

    __name__: str

    def __call__(self, x: Operand, *, device: Where = None) -> Array:
        """Return an array of the shape of `x`."""


class BinaryFunction(Protocol):
    """A function of two tensors, arrays or numbers, one of which at most is a number."""

    __name__: str

    def __call__(self, a: Operand, b: Operand, *, device: Where = None) -> Array:
        """Return an array of the shape to which `a` and `b` broadcast."""


_RESULT = """
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the {shape} (an array if all operands are arrays).

    Computed by {operator}.
    """

_UNARY = """

    Args:
        x: Tensor or array.""" + _RESULT.replace("{shape}", "shape of `x`")

_BINARY = """

    Args:
        a, b: Tensors or arrays of one dtype that broadcast; one of them may be a number.""" + _RESULT.replace(
    "{shape}", "shape to which `a` and `b` broadcast"
)


BY_OPERATOR: dict[str, str] = {}
"""Names of the functions that an operator of DirectML computes alone, by the operator's."""


def unary(name: str, operator: str, summary: str) -> UnaryFunction:
    """Return the function of one operand that an operator of DirectML computes."""

    def function(x: Operand, *, device: Where = None) -> Array:
        return getattr(directml, operator)(x)

    return _documented(function, name, operator, summary + _UNARY)


def binary(name: str, operator: str, summary: str) -> BinaryFunction:
    """Return the function of two operands that an operator of DirectML computes."""

    def function(a: Operand, b: Operand, *, device: Where = None) -> Array:
        return getattr(directml, operator)(a, b)

    return _documented(function, name, operator, summary + _BINARY)


def _documented(function: Any, name: str, operator: str, docstring: str) -> Any:
    BY_OPERATOR[operator] = function.__name__ = function.__qualname__ = name
    function.__module__ = "dmlgpu.ops"
    function.__doc__ = docstring.format(operator=operator.upper())
    return eager(function)


abs = unary("abs", "element_wise_abs", "Return the absolute value of each element.")
sign = unary("sign", "element_wise_sign", "Return -1, 0 or 1 by the sign of each element.")
negative = unary("negative", "element_wise_negate", "Return each element with its sign changed.")
exp = unary("exp", "element_wise_exp", "Return e to the power of each element.")
log = unary("log", "element_wise_log", "Return the natural logarithm of each element.")
sqrt = unary("sqrt", "element_wise_sqrt", "Return the square root of each element.")
reciprocal = unary("reciprocal", "element_wise_recip", "Return 1 divided by each element.")
sin = unary("sin", "element_wise_sin", "Return the sine of each element, in radians.")
cos = unary("cos", "element_wise_cos", "Return the cosine of each element, in radians.")
tan = unary("tan", "element_wise_tan", "Return the tangent of each element, in radians.")
asin = unary("asin", "element_wise_asin", "Return the arcsine of each element, in radians.")
acos = unary("acos", "element_wise_acos", "Return the arccosine of each element, in radians.")
atan = unary("atan", "element_wise_atan", "Return the arctangent of each element, in radians.")
sinh = unary("sinh", "element_wise_sinh", "Return the hyperbolic sine of each element.")
cosh = unary("cosh", "element_wise_cosh", "Return the hyperbolic cosine of each element.")
tanh = unary("tanh", "element_wise_tanh", "Return the hyperbolic tangent of each element.")
asinh = unary("asinh", "element_wise_asinh", "Return the inverse hyperbolic sine of each element.")
acosh = unary("acosh", "element_wise_acosh", "Return the inverse hyperbolic cosine of each element.")
atanh = unary("atanh", "element_wise_atanh", "Return the inverse hyperbolic tangent of each element.")
erf = unary("erf", "element_wise_erf", "Return the error function of each element.")
floor = unary("floor", "element_wise_floor", "Return the largest integer not above each element.")
ceil = unary("ceil", "element_wise_ceil", "Return the smallest integer not below each element.")
isnan = unary("isnan", "element_wise_is_nan", "Return whether each element is NaN, as a mask.")
isinf = unary("isinf", "element_wise_is_infinity", "Return whether each element is infinite, as a mask.")
logical_not = unary("logical_not", "element_wise_logical_not", "Return whether each element of a mask is false.")
bitwise_not = unary("bitwise_not", "element_wise_bit_not", "Return each element with all bits inverted.")

add = binary("add", "element_wise_add", "Return the sum of each pair of elements.")
subtract = binary("subtract", "element_wise_subtract", "Return the difference of each pair of elements.")
multiply = binary("multiply", "element_wise_multiply", "Return the product of each pair of elements.")
remainder = binary(
    "remainder",
    "element_wise_modulus_floor",
    "Return the remainder of each pair of elements, with the sign of the divisor, as Python's ``%``.",
)
fmod = binary(
    "fmod",
    "element_wise_modulus_truncate",
    "Return the remainder of each pair of elements, with the sign of the dividend.",
)
maximum = binary("maximum", "element_wise_max", "Return the larger of each pair of elements.")
minimum = binary("minimum", "element_wise_min", "Return the smaller of each pair of elements.")
atan2 = binary("atan2", "element_wise_atan_yx", "Return the angle in radians of each point (b, a).")
equal = binary("equal", "element_wise_logical_equals", "Return the mask a == b.")
less = binary("less", "element_wise_logical_less_than", "Return the mask a < b.")
less_equal = binary("less_equal", "element_wise_logical_less_than_or_equal", "Return the mask a <= b.")
greater = binary("greater", "element_wise_logical_greater_than", "Return the mask a > b.")
greater_equal = binary("greater_equal", "element_wise_logical_greater_than_or_equal", "Return the mask a >= b.")
logical_and = binary("logical_and", "element_wise_logical_and", "Return whether both of each pair of masks hold.")
logical_or = binary("logical_or", "element_wise_logical_or", "Return whether either of each pair of masks holds.")
logical_xor = binary("logical_xor", "element_wise_logical_xor", "Return whether exactly one of two masks holds.")
bitwise_and = binary("bitwise_and", "element_wise_bit_and", "Return the bits set in both of each pair of elements.")
bitwise_or = binary("bitwise_or", "element_wise_bit_or", "Return the bits set in either of each pair of elements.")
bitwise_xor = binary("bitwise_xor", "element_wise_bit_xor", "Return the bits set in exactly one of each pair.")
left_shift = binary("left_shift", "element_wise_bit_shift_left", "Return each element of a shifted left by b bits.")
right_shift = binary("right_shift", "element_wise_bit_shift_right", "Return each element of a shifted right by b bits.")


@eager
def not_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a != b."""
    return directml.element_wise_logical_not(directml.element_wise_logical_equals(a, b))


@eager
def divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the quotient of each pair of floating-point elements; ``floor_divide`` is for integers.

    Raises:
        InvalidArgument: If the operands are integers.
    """
    dividend, divisor = _pair(a, b)
    data_type = (dividend if isinstance(dividend, Tensor) else divisor).data_type
    if not data_type.is_float:
        raise InvalidArgument(
            f"{caller()}: a and b must be of a floating-point type, got {data_type.name}; floor_divide divides integers, "
            "a.astype('float32') converts them"
        )
    return directml.element_wise_divide(dividend, divisor)


@eager
def floor_divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the quotient of each pair of elements, rounded towards minus infinity."""
    dividend, divisor = _pair(a, b)
    return dividend // divisor


@eager
def power(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return ``a`` to the power of ``b`` for each pair of elements."""
    base, exponent = _pair(a, b)
    return base**exponent


def _pair(a: Operand, b: Operand) -> tuple[Any, Any]:
    """Return two operands, of which at most one is a number."""
    if is_number(a):
        return a, tensor_of("b", b)
    return tensor_of("a", a), b if is_number(b) else tensor_of("b", b)


@eager
def square(x: Operand, *, device: Where = None) -> Array:
    """Return each element times itself."""
    return directml.element_wise_multiply(x, x)


@eager
def rsqrt(x: Operand, *, device: Where = None) -> Array:
    """Return 1 divided by the square root of each element."""
    return directml.element_wise_recip(directml.element_wise_sqrt(x))


@eager
def round(x: Operand, *, device: Where = None) -> Array:
    """Return each element rounded to an integer, halves to even ones."""
    return directml.element_wise_round(x, rounding_mode=RoundingMode.HALVES_TO_NEAREST_EVEN)


@eager
def clip(x: Operand, min: float | None = None, max: float | None = None, *, device: Where = None) -> Array:
    """Return each element limited to the range from ``min`` to ``max``; None means no bound.

    Raises:
        InvalidArgument: If the dtype of `x` cannot hold a bound.
    """
    tensor = tensor_of("x", x)
    data_type = tensor.data_type
    infinity = float("inf")
    low, high = (-infinity, infinity) if data_type.is_float else value_range(data_type)
    return directml.element_wise_clip1(
        tensor,
        min=low if min is None else as_number(f"{caller()}: min", min, data_type),
        max=high if max is None else as_number(f"{caller()}: max", max, data_type),
    )


@eager
def where(condition: Operand, a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return elements of ``a`` where the mask ``condition`` holds, else of ``b``; all three broadcast."""
    return directml.element_wise_if(condition, a, b)


@eager
def astype(x: Operand, dtype: TypeLike, *, device: Where = None) -> Array:
    """Return each element in another dtype, converted as by CAST: towards zero, saturating.

    Args:
        x: Tensor or array.
        dtype: NumPy dtype, its name, or a ``DataType``.
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If ``dtype`` is not a dtype.
    """
    return tensor_of("x", x).astype(dtype)


@eager
def cast(x: Operand, dtype: TypeLike, *, device: Where = None) -> Array:
    """Return each element in another dtype: ``astype`` under ONNX's name."""
    return tensor_of("x", x).astype(dtype)
