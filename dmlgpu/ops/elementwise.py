"""Elementwise arithmetic, rounding, selection and conversion, under NumPy's names.

Shapes broadcast, dtypes are promoted to a common one, and a number takes the dtype of the tensor or array beside it.
"""

from __future__ import annotations

import builtins
from typing import Any

from dmlgpu.catalog.enums import DataType, RoundingMode
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, tensor_of
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_number, is_number, promoted, value_range

__all__ = [
    "abs", "add", "astype", "cast", "ceil", "clip", "divide", "floor", "floor_divide", "fmod", "maximum", "minimum",
    "multiply", "negative", "power", "reciprocal", "remainder", "round", "sign", "square", "subtract", "trunc",
    "where",
]  # fmt: skip


@eager
def add(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the sum of each pair of elements.

    Integers wrap around on overflow.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.add([1, 2], [3, 4])
        array([4, 6])
        >>> ops.add([1.5, 2.5], 1)
        array([2.5, 3.5], dtype=float32)

    See also:
        `subtract`, `sum`.

    Computed by ELEMENT_WISE_ADD (`ns-directml-dml_element_wise_add_operator_desc`).
    """
    return directml.element_wise_add(*alike(a, b))


@eager
def subtract(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the difference of each pair of elements.

    Integers wrap around on overflow.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.subtract([5, 6], [1, 2])
        array([4, 4])

    See also:
        `add`, `negative`.

    Computed by ELEMENT_WISE_SUBTRACT (`ns-directml-dml_element_wise_subtract_operator_desc`).
    """
    return directml.element_wise_subtract(*alike(a, b))


@eager
def multiply(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the product of each pair of elements.

    Integers wrap around on overflow.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.multiply([1, 2], [3, 4])
        array([3, 8])

    See also:
        `matmul`, `prod`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_multiply(*alike(a, b))


@eager
def divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the quotient of each pair of floating-point elements.

    Division by 0 gives inf or NaN.

    Args:
        a: Tensor or array of float32 or float16, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If the operands are integers, or the shapes do not broadcast.

    Examples:
        >>> ops.divide([1.0, 2.0], 4)
        array([0.25, 0.5 ], dtype=float32)

    See also:
        `floor_divide` for integers.

    Computed by ELEMENT_WISE_DIVIDE (`ns-directml-dml_element_wise_divide_operator_desc`).
    """
    dividend, divisor = _pair(a, b)
    data_type = (dividend if isinstance(dividend, Tensor) else divisor).data_type
    if not data_type.is_float:
        raise InvalidArgument(
            f"{caller()}: a and b must be of a floating-point type, got {data_type.name}; floor_divide divides "
            "integers, a.astype('float32') converts them"
        )
    return directml.element_wise_divide(*alike(dividend, divisor))


@eager
def floor_divide(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the quotient of each pair of elements, rounded towards minus infinity.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If the dtypes have no common one, or the shapes do not broadcast.

    Examples:
        >>> ops.floor_divide([7, -7], 2)
        array([ 3, -4])

    See also:
        `divide`, `remainder`.

    Computed by ELEMENT_WISE_DIVIDE (`ns-directml-dml_element_wise_divide_operator_desc`).
    """
    dividend, divisor = _pair(a, b)
    return dividend // divisor


@eager
def remainder(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the remainder of each division, with the sign of the divisor, as Python's `%`.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.remainder([7, -7], 3)
        array([1, 2])

    See also:
        `fmod`, `floor_divide`.

    Computed by ELEMENT_WISE_MODULUS_FLOOR (`ns-directml-dml_element_wise_modulus_floor_operator_desc`).
    """
    return directml.element_wise_modulus_floor(*alike(a, b))


@eager
def fmod(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the remainder of each division, with the sign of the dividend, as in C.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.fmod([7, -7], 3)
        array([ 1, -1])

    See also:
        `remainder`.

    Computed by ELEMENT_WISE_MODULUS_TRUNCATE (`ns-directml-dml_element_wise_modulus_truncate_operator_desc`).
    """
    return directml.element_wise_modulus_truncate(*alike(a, b))


@eager
def power(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return `a` to the power of `b` for each pair of elements.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If the dtypes have no common one, or the shapes do not broadcast.

    Examples:
        >>> ops.power([2, 3], [3, 2])
        array([8, 9])

    See also:
        `exp`, `square`, `sqrt`.

    Computed by ELEMENT_WISE_POW (`ns-directml-dml_element_wise_pow_operator_desc`).
    """
    base, exponent = _pair(a, b)
    return base**exponent


@eager
def maximum(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the larger of each pair of elements.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.maximum([1, 5], [3, 4])
        array([3, 5])

    See also:
        `minimum`, `max`, `clip`.

    Computed by ELEMENT_WISE_MAX (`ns-directml-dml_element_wise_max_operator_desc`).
    """
    return directml.element_wise_max(*alike(a, b))


@eager
def minimum(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the smaller of each pair of elements.

    Args:
        a: Tensor or array of float32, float16 or an integer dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not supported, or the shapes do not broadcast.

    Examples:
        >>> ops.minimum([1, 5], [3, 4])
        array([1, 4])

    See also:
        `maximum`, `min`, `clip`.

    Computed by ELEMENT_WISE_MIN (`ns-directml-dml_element_wise_min_operator_desc`).
    """
    return directml.element_wise_min(*alike(a, b))


@eager
def abs(x: Operand, *, device: Where = None) -> Array:
    """Return the absolute value of each element.

    Args:
        x: Tensor or array of float32, float16 or an integer dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

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
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.negative([-1.5, 2.0])
        array([ 1.5, -2. ], dtype=float32)

    See also:
        `abs`, `subtract`.

    Computed by ELEMENT_WISE_NEGATE (`ns-directml-dml_element_wise_negate_operator_desc`).
    """
    tensor = tensor_of("x", x)
    is_direct = tensor.data_type.is_float or tensor.is_boolean
    return directml.element_wise_negate(tensor) if is_direct else -tensor


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
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.sign([-2.5, 0.0, 3.0])
        array([-1.,  0.,  1.], dtype=float32)

    See also:
        `abs`.

    Computed by ELEMENT_WISE_SIGN (`ns-directml-dml_element_wise_sign_operator_desc`).
    """
    tensor = tensor_of("x", x)
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
        x: Tensor or array of float32, float16 or an integer dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.square([2, -3])
        array([4, 9])

    See also:
        `sqrt`, `power`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_multiply(x, x)


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
def round(x: Operand, *, device: Where = None) -> Array:
    """Return each element rounded to the nearest integer, ties to the even one.

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
        >>> ops.round([0.5, 1.5, -1.7])
        array([ 0.,  2., -2.], dtype=float32)

    See also:
        `floor`, `ceil`, `trunc`.

    Computed by ELEMENT_WISE_ROUND (`ns-directml-dml_element_wise_round_operator_desc`).
    """
    return _rounded(tensor_of("x", x), RoundingMode.HALVES_TO_NEAREST_EVEN)


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


def _pair(a: Operand, b: Operand) -> tuple[Any, Any]:
    """Return two operands, of which at most one is a number."""
    if is_number(a):
        return a, tensor_of("b", b)
    return tensor_of("a", a), b if is_number(b) else tensor_of("b", b)


def _rounded(x: Tensor, mode: RoundingMode) -> Any:
    return directml.element_wise_round(x, rounding_mode=mode) if x.data_type.is_float else x._same()


def alike(a: Operand, b: Operand) -> tuple[Any, Any]:
    """Return two operands, tensors in their common dtype."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.data_type is not b.data_type:
        a, b = promoted(caller(), {"a": a, "b": b})
    return a, b


def all_false(x: Tensor) -> Tensor:
    """Return a bool tensor of the shape of `x`, false throughout."""
    return filled(x, x.sizes, data_type=DataType.UINT8)._same(boolean=True)


@eager
def clip(x: Operand, min: float | None = None, max: float | None = None, *, device: Where = None) -> Array:
    """Return each element limited to the range from `min` to `max`.

    Args:
        x: Tensor or array of float32, float16 or an integer dtype, rank 0 to 8.
        min: Lower bound; None means no bound.
        max: Upper bound; None means no bound.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` cannot hold a bound, or is not supported.

    Examples:
        >>> ops.clip([-1.5, 0.5, 7.0], 0, 1)
        array([0. , 0.5, 1. ], dtype=float32)
        >>> ops.clip([1, 5, 9], max=6)
        array([1, 5, 6])

    See also:
        `maximum`, `minimum`, `relu`.

    Computed by ELEMENT_WISE_CLIP1 (`ns-directml-dml_element_wise_clip1_operator_desc`).
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
    """Return elements of `a` where the mask `condition` is true, else of `b`.

    Args:
        condition: Tensor or array of bool or uint8.
        a: Tensor or array of any dtype, or a number beside a tensor or array.
        b: Likewise; promoted with `a` to a common dtype. All three shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype of `a` and `b` (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If `condition` is not a mask, there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.where([True, False], [1.0, 2.0], 0)
        array([1., 0.], dtype=float32)

    See also:
        `clip`, `maximum`.

    Computed by ELEMENT_WISE_IF (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return directml.element_wise_if(condition, *alike(a, b))


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
