"""Elementwise arithmetic, rounding, selection and conversion, under NumPy's names.

Shapes broadcast, and dtypes are promoted to a common one as in NumPy, with float32 instead of float64. A Python number
takes the dtype of the other operand; a float makes float32 of integers and booleans, an int makes int64 of booleans.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RoundingMode, as_elements
from dmlgpu.common.coercion import argument, integer
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.tensors import arithmetic
from dmlgpu.tensors.array_like import as_operand
from dmlgpu.tensors.calls import (
    NUMERIC,
    Array,
    Operand,
    Parameters,
    Result,
    Where,
    caller,
    check_kind,
    eager,
    filled,
    tensor_of,
    widened,
)
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_number, common_element_type, is_number, promoted, value_range

__all__ = [
    "abs", "add", "astype", "cast", "ceil", "clip", "divide", "floor", "floor_divide", "fmod", "maximum", "minimum",
    "multiply", "negative", "power", "reciprocal", "remainder", "round", "sign", "square", "subtract", "trunc",
    "where",
]  # fmt: skip

_MAX_DIGITS = 38
"""Decimal exponent of the largest float32."""


@eager
def add(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the sum of each pair of elements.

    Integers wrap around on overflow. The sum of masks is their logical or.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.add([1, 2], [3, 4])
        array([4, 6])
        >>> ops.add([1.5, 2.5], 1)
        array([2.5, 3.5], dtype=float32)
        >>> ops.add([1, 2], 0.5)
        array([1.5, 2.5], dtype=float32)

    See also:
        `subtract`, `sum`.

    Computed by ELEMENT_WISE_ADD (`ns-directml-dml_element_wise_add_operator_desc`).
    """
    return arithmetic.combined(caller(), descs.ElementWiseAdd, *pair(a, b))


@eager
def subtract(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the difference of each pair of elements.

    Integers wrap around on overflow.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If both operands are masks, there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.subtract([5, 6], [1, 2])
        array([4, 4])

    See also:
        `add`, `negative`; `logical_xor` for masks.

    Computed by ELEMENT_WISE_SUBTRACT (`ns-directml-dml_element_wise_subtract_operator_desc`).
    """
    return arithmetic.combined(caller(), descs.ElementWiseSubtract, *pair(a, b))


@eager
def multiply(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the product of each pair of elements.

    Integers wrap around on overflow. The product of masks is their logical and.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.multiply([1, 2], [3, 4])
        array([3, 8])

    See also:
        `matmul`, `prod`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return arithmetic.combined(caller(), descs.ElementWiseMultiply, *pair(a, b))


@eager
def divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the quotient of each pair of elements.

    Integers and masks are divided in float32. Division by 0 gives inf or NaN.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common floating-point dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.divide([1.0, 2.0], 4)
        array([0.25, 0.5 ], dtype=float32)
        >>> ops.divide([1, 2], 4)
        array([0.25, 0.5 ], dtype=float32)

    See also:
        `floor_divide`, which keeps integers.

    Computed by ELEMENT_WISE_DIVIDE (`ns-directml-dml_element_wise_divide_operator_desc`).
    """
    return arithmetic.combined_as_floats(caller(), *pair(a, b), kind=descs.ElementWiseDivide)


@eager
def floor_divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the quotient of each pair of elements, rounded towards minus infinity, as Python's `//`.

    The exact quotient is rounded: `a // b * b + a % b` is `a`. Floats divided by 0 give inf or NaN, integers 0.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.floor_divide([7, -7], 2)
        array([ 3, -4])
        >>> ops.floor_divide([1.0, -1.0], 0.1)
        array([  9., -10.], dtype=float32)

    See also:
        `divide`, `remainder`.

    Computed by ELEMENT_WISE_DIVIDE (`ns-directml-dml_element_wise_divide_operator_desc`) and
    ELEMENT_WISE_MODULUS_TRUNCATE (`ns-directml-dml_element_wise_modulus_truncate_operator_desc`).
    """
    return arithmetic.floor_quotient(caller(), *pair(a, b))


@eager
def remainder(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the remainder of each division, with the sign of the divisor, as Python's `%`.

    Floats divided by 0 give NaN, integers 0.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.remainder([7, -7], 3)
        array([1, 2])

    See also:
        `fmod`, `floor_divide`.

    Computed by ELEMENT_WISE_MODULUS_FLOOR (`ns-directml-dml_element_wise_modulus_floor_operator_desc`).
    """
    return arithmetic.remainder(caller(), *pair(a, b))


@eager
def fmod(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the remainder of each division, with the sign of the dividend, as in C.

    Floats divided by 0 give NaN, integers 0.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.fmod([7, -7], 3)
        array([ 1, -1])

    See also:
        `remainder`.

    Computed by ELEMENT_WISE_MODULUS_TRUNCATE (`ns-directml-dml_element_wise_modulus_truncate_operator_desc`).
    """
    return arithmetic.remainder(caller(), *pair(a, b), kind=descs.ElementWiseModulusTruncate)


def _checked_on_host(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap ``power`` to check exponents of the host before they are copied to the device."""

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        operands: dict[str, Any] = {**dict(zip("ab", args, strict=False)), **kwargs}
        try:
            if operands.keys() >= {"a", "b"}:
                base, exponent = (as_operand("power", name, operands[name]) for name in "ab")
                if isinstance(exponent, np.ndarray):
                    arithmetic.check_exponents("power", base, exponent)
        except InvalidArgument as error:
            raise error.concise() from error.__cause__
        return function(*args, **kwargs)

    return call


@_checked_on_host
@eager
def power(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return `a` to the power of `b` for each pair of elements.

    Powers of integers are integers. A negative exponent of them raises if the host knows it; in a tensor it gives the
    integer part of the real result, and 0 for 0. 64-bit integers overflow to unspecified values if `b` is a tensor,
    others wrap around.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If a number or an array has negative exponents for integers, there is no common dtype, or the
            shapes do not broadcast.

    Examples:
        >>> ops.power([2, 3], [3, 2])
        array([8, 9])

    See also:
        `exp`, `square`, `sqrt`.

    Computed by ELEMENT_WISE_POW (`ns-directml-dml_element_wise_pow_operator_desc`).
    """
    return arithmetic.raised(caller(), *pair(a, b))


@eager
def maximum(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the larger of each pair of elements.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.maximum([1, 5], [3, 4])
        array([3, 5])

    See also:
        `minimum`, `max`, `clip`.

    Computed by ELEMENT_WISE_MAX (`ns-directml-dml_element_wise_max_operator_desc`).
    """
    return arithmetic.combined(caller(), descs.ElementWiseMax, *pair(a, b))


@eager
def minimum(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the smaller of each pair of elements.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.minimum([1, 5], [3, 4])
        array([1, 4])

    See also:
        `maximum`, `min`, `clip`.

    Computed by ELEMENT_WISE_MIN (`ns-directml-dml_element_wise_min_operator_desc`).
    """
    return arithmetic.combined(caller(), descs.ElementWiseMin, *pair(a, b))


@eager
def abs(x: Operand, *, device: Where = None) -> Array:
    """Return the absolute value of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.abs([-1.5, 2.0])
        array([1.5, 2. ], dtype=float32)

    See also:
        `sign`, `negative`.

    Computed by ELEMENT_WISE_ABS (`ns-directml-dml_element_wise_abs_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return directml.element_wise_abs(tensor) if tensor.data_type.is_float else builtins.abs(tensor)


@eager
def negative(x: Operand, *, device: Where = None) -> Array:
    """Return each element with its sign changed.

    Unsigned integers wrap around.

    Args:
        x: Tensor or array of float32, float16 or an integer dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is a mask.

    Examples:
        >>> ops.negative([-1.5, 2.0])
        array([ 1.5, -2. ], dtype=float32)

    See also:
        `abs`, `subtract`.

    Computed by ELEMENT_WISE_NEGATE (`ns-directml-dml_element_wise_negate_operator_desc`).
    """
    tensor = tensor_of("x", x)
    check_kind("x", tensor, NUMERIC)
    return directml.element_wise_negate(tensor) if tensor.data_type.is_float else -tensor


@eager
def sign(x: Operand, *, device: Where = None) -> Array:
    """Return -1, 0 or 1 by the sign of each element, NaN for NaN.

    Args:
        x: Tensor or array of float32, float16 or an integer dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is a mask.

    Examples:
        >>> ops.sign([-2.5, 0.0, 3.0])
        array([-1.,  0.,  1.], dtype=float32)

    See also:
        `abs`.

    Computed by ELEMENT_WISE_SIGN (`ns-directml-dml_element_wise_sign_operator_desc`).
    """
    tensor = check_kind("x", tensor_of("x", x), NUMERIC)
    signs: Tensor = directml.element_wise_sign(tensor)
    return tensor._chosen(directml.element_wise_is_nan(tensor), signs) if tensor.data_type.is_float else signs


@eager
def reciprocal(x: Operand, *, device: Where = None) -> Array:
    """Return 1 divided by each element.

    Zeros give inf.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.reciprocal([2.0, 4.0])
        array([0.5 , 0.25], dtype=float32)

    See also:
        `divide`, `rsqrt`.

    Computed by ELEMENT_WISE_RECIP (`ns-directml-dml_element_wise_recip_operator_desc`).
    """
    return directml.element_wise_recip(x)


@eager
def square(x: Operand, *, device: Where = None) -> Array:
    """Return the square of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. The squares of masks are int8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.square([2, -3])
        array([4, 9])

    See also:
        `sqrt`, `power`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    tensor = tensor_of("x", x)
    factor = arithmetic.as_integers(tensor) if tensor.is_boolean else tensor
    return directml.element_wise_multiply(factor, factor)


@eager
def floor(x: Operand, *, device: Where = None) -> Array:
    """Return the largest integer not above each element.

    Integers are returned unchanged.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.floor([1.5, -1.5])
        array([ 1., -2.], dtype=float32)

    See also:
        `ceil`, `trunc`, `round`.

    Computed by ELEMENT_WISE_FLOOR (`ns-directml-dml_element_wise_floor_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return directml.element_wise_floor(tensor) if tensor.data_type.is_float else tensor._same()


@eager
def ceil(x: Operand, *, device: Where = None) -> Array:
    """Return the smallest integer not below each element.

    Integers are returned unchanged.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.ceil([1.5, -1.5])
        array([ 2., -1.], dtype=float32)

    See also:
        `floor`, `trunc`, `round`.

    Computed by ELEMENT_WISE_CEIL (`ns-directml-dml_element_wise_ceil_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return directml.element_wise_ceil(tensor) if tensor.data_type.is_float else tensor._same()


@eager
def round(x: Operand, decimals: int = 0, *, device: Where = None) -> Array:
    """Return each element rounded to a number of decimals, ties to the even last digit.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        decimals: Digits after the decimal point; a negative number counts zeros before it. Defaults to 0: integers are
            returned unchanged.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.round([0.5, 1.5, -1.7])
        array([ 0.,  2., -2.], dtype=float32)
        >>> ops.round([1.234, 9.996], 2)
        array([ 1.23, 10.  ], dtype=float32)
        >>> ops.round([1250, 1350], -2)
        array([1200, 1400])

    See also:
        `floor`, `ceil`, `trunc`.

    Computed by ELEMENT_WISE_ROUND (`ns-directml-dml_element_wise_round_operator_desc`).
    """
    tensor, digits = tensor_of("x", x), argument(caller(), "decimals", integer, decimals)
    if tensor.data_type.is_float:
        return _rounded_at(tensor, digits) if digits else _rounded(tensor, RoundingMode.HALVES_TO_NEAREST_EVEN)
    is_coarser = digits < 0 and not tensor.is_boolean
    return _rounded_integers(tensor, 10 ** builtins.min(-digits, 20)) if is_coarser else tensor._same()


@eager
def trunc(x: Operand, *, device: Where = None) -> Array:
    """Return each element rounded towards zero.

    Integers are returned unchanged.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.trunc([1.5, -1.5])
        array([ 1., -1.], dtype=float32)

    See also:
        `round`, `floor`, `ceil`.

    Computed by ELEMENT_WISE_ROUND (`ns-directml-dml_element_wise_round_operator_desc`).
    """
    return _rounded(tensor_of("x", x), RoundingMode.TOWARD_ZERO)


def pair(a: Operand, b: Operand) -> tuple[Any, Any]:
    """Return two operands, of which at most one is a number."""
    if is_number(a):
        return a, tensor_of("b", b)
    return tensor_of("a", a), b if is_number(b) else tensor_of("b", b)


def _rounded(x: Tensor, mode: RoundingMode) -> Any:
    return directml.element_wise_round(x, rounding_mode=mode) if x.data_type.is_float else x._same()


def _rounded_at(x: Tensor, digits: int) -> Tensor:
    """Return floats rounded at a digit, in float32; those whose multiple overflows, as they are."""
    if digits > _MAX_DIGITS:
        return x._same()
    wide: Any = widened(x)
    scale = 10.0 ** builtins.min(builtins.abs(digits), _MAX_DIGITS)
    scaled = wide * scale if digits > 0 else wide / scale
    if digits < -_MAX_DIGITS:
        scaled = scaled * 0.1  # all numbers round to 0
    rounded: Any = _rounded(scaled, RoundingMode.HALVES_TO_NEAREST_EVEN)
    result: Tensor = rounded / scale if digits > 0 else rounded * scale
    return wide._chosen(directml.element_wise_is_infinity(scaled), result).astype(x.data_type)


def _rounded_integers(x: Tensor, unit: int) -> Tensor:
    """Return integers rounded to multiples of a power of ten."""
    wide: Any = x.astype(DataType.UINT64 if x.data_type is DataType.UINT64 else DataType.INT64)
    if unit > value_range(wide.data_type)[1]:
        return filled(x, x.sizes)
    quotient, rest = wide // unit, wide % unit
    is_up = (rest > unit // 2) | ((rest == unit // 2) & (quotient % 2 != 0))
    return ((quotient + is_up.astype(wide.data_type)) * unit).astype(x.data_type)


def all_false(x: Tensor) -> Tensor:
    """Return a bool tensor of the shape of `x`, false throughout."""
    return filled(x, x.sizes, data_type=DataType.UINT8)._same(boolean=True)


@eager
def clip(x: Operand, min: Operand | None = None, max: Operand | None = None, *, device: Where = None) -> Array:
    """Return each element limited to the range from `min` to `max`.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8, promoted with the bounds to a common dtype.
        min: Lower bound: number, Tensor or array that broadcasts; None means no bound.
        max: Upper bound, likewise. It holds where it is below the lower one.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it cannot hold a bound, or the shapes do not broadcast.

    Examples:
        >>> ops.clip([-1.5, 0.5, 7.0], 0, 1)
        array([0. , 0.5, 1. ], dtype=float32)
        >>> ops.clip([1, 5, 9], max=6)
        array([1, 5, 6])
        >>> ops.clip([1, 5, 9], max=[4, 6, 8])
        array([1, 5, 8])

    See also:
        `maximum`, `minimum`, `relu`.

    Computed by ELEMENT_WISE_CLIP1 (`ns-directml-dml_element_wise_clip1_operator_desc`); with bounds in tensors by
    ELEMENT_WISE_MAX (`ns-directml-dml_element_wise_max_operator_desc`) and ELEMENT_WISE_MIN
    (`ns-directml-dml_element_wise_min_operator_desc`).
    """
    tensor, low, high = promoted(caller(), {"x": tensor_of("x", x), "min": min, "max": max})
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        tensor = tensor if low is None else maximum(tensor, low)
        return tensor if high is None else minimum(tensor, high)
    data_type = tensor.data_type
    infinity = float("inf")
    smallest, greatest = (-infinity, infinity) if data_type.is_float else value_range(data_type)
    result: Tensor = directml.element_wise_clip1(
        tensor,
        min=smallest if low is None else as_number(f"{caller()}: min", low, data_type),
        max=greatest if high is None else as_number(f"{caller()}: max", high, data_type),
    )
    return result._same(boolean=tensor.is_boolean)


@eager
def where(condition: Operand, a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return elements of `a` where the mask `condition` is true, else of `b`.

    Args:
        condition: Tensor or array of bool or uint8.
        a: Tensor or array of any dtype, or a number.
        b: Likewise; promoted with `a` to a common dtype. Two ints are int64, two numbers with a float among them
            float32. All three shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype of `a` and `b` (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If `condition` is not a mask, there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.where([True, False], [1.0, 2.0], 0)
        array([1., 0.], dtype=float32)
        >>> ops.where([True, False], 1, -1)
        array([ 1, -1])

    See also:
        `clip`, `maximum`.

    Computed by ELEMENT_WISE_IF (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    if is_number(a) and is_number(b):
        a = _scalar(tensor_of("condition", condition), a, b)
    return directml.element_wise_if(condition, *promoted(caller(), {"a": a, "b": b}))


def _scalar(beside: Tensor, number: float, other: float) -> Tensor:
    """Return a number as a tensor of rank 0 in the dtype that it has together with another."""
    element_type = common_element_type(caller(), {"a": number, "b": other})
    if element_type is bool:
        return beside._beside(np.asarray(bool(number)))
    return beside._beside(as_elements(element_type, as_number(caller(), number, element_type)))


@eager
def astype(x: Operand, dtype: TypeLike, *, device: Where = None) -> Array:
    """Return each element converted to another dtype.

    Floats are rounded towards zero, and values out of range saturate. Bool is whether an element is not 0.

    Args:
        x: Tensor or array of any dtype.
        dtype: NumPy dtype, its name, or a `DataType`.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` and the requested dtype (an array if `x` is one).

    Raises:
        InvalidArgument: If `dtype` is not a dtype.

    Examples:
        >>> ops.astype([1.7, -1.7, 300.0], "uint8")
        array([  1,   0, 255], dtype=uint8)

    See also:
        `cast`, `Tensor.astype`.

    Computed by CAST (`ns-directml-dml_cast_operator_desc`).
    """
    return tensor_of("x", x).astype(dtype)


@eager
def cast(x: Operand, dtype: TypeLike, *, device: Where = None) -> Array:
    """Return each element converted to another dtype: `astype` under ONNX's name.

    Args:
        x: Tensor or array of any dtype.
        dtype: NumPy dtype, its name, or a `DataType`.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` and the requested dtype (an array if `x` is one).

    Raises:
        InvalidArgument: If `dtype` is not a dtype.

    Examples:
        >>> ops.cast([1.7, -1.7, 300.0], "uint8")
        array([  1,   0, 255], dtype=uint8)

    See also:
        `astype`.

    Computed by CAST (`ns-directml-dml_cast_operator_desc`).
    """
    return tensor_of("x", x).astype(dtype)
