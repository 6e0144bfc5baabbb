"""Exponentials, logarithms, roots and trigonometry, under NumPy's names.

Floating-point dtypes are kept; integers and booleans are computed in float32.
"""

from __future__ import annotations

import math

from dmlgpu.catalog import descs
from dmlgpu.ops import directml
from dmlgpu.ops.elementwise import pair
from dmlgpu.tensors.arithmetic import combined_as_floats
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of, widened
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_floating

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "expm1", "log", "log1p",
    "log2", "log10", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip


@eager
def exp(x: Operand, *, device: Where = None) -> Array:
    """Return e to the power of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.exp([0.0, 1.0]).round(3)
        array([1.   , 2.718], dtype=float32)

    See also:
        `expm1`, `log`, `power`.

    Computed by ELEMENT_WISE_EXP (`ns-directml-dml_element_wise_exp_operator_desc`).
    """
    return directml.element_wise_exp(as_floating(x))


@eager
def expm1(x: Operand, *, device: Where = None) -> Array:
    """Return e to the power of each element, minus 1, precise near 0.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8; integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.expm1([0.0, 1.0]).round(3)
        array([0.   , 1.718], dtype=float32)

    See also:
        `exp`, `log1p`.

    Computed by ELEMENT_WISE_SINH (`ns-directml-dml_element_wise_sinh_operator_desc`) and ELEMENT_WISE_EXP
    (`ns-directml-dml_element_wise_exp_operator_desc`).
    """
    tensor = as_floating(tensor_of("x", x))
    half: Tensor = directml.element_wise_max(widened(tensor), -40.0) * 0.5  # exp(-40) - 1 rounds to -1
    result = directml.element_wise_sinh(half) * directml.element_wise_exp(half) * 2.0  # cancels nowhere
    return result.astype(tensor.data_type)


@eager
def log(x: Operand, *, device: Where = None) -> Array:
    """Return the natural logarithm of each element.

    Zeros give -inf, negative elements NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.log([1.0, 10.0]).round(3)
        array([0.   , 2.303], dtype=float32)

    See also:
        `log1p`, `exp`, `logsumexp`.

    Computed by ELEMENT_WISE_LOG (`ns-directml-dml_element_wise_log_operator_desc`).
    """
    return directml.element_wise_log(as_floating(x))


@eager
def log1p(x: Operand, *, device: Where = None) -> Array:
    """Return the natural logarithm of 1 plus each element, precise near 0.

    -1 gives -inf, smaller elements NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8; integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.log1p([0.0, 1.0]).round(3)
        array([0.   , 0.693], dtype=float32)

    See also:
        `log`, `expm1`.

    Computed by ELEMENT_WISE_ATANH (`ns-directml-dml_element_wise_atanh_operator_desc`) and ELEMENT_WISE_LOG
    (`ns-directml-dml_element_wise_log_operator_desc`).
    """
    tensor = as_floating(tensor_of("x", x))
    wide = widened(tensor)
    near: Tensor = directml.element_wise_clip1(wide, min=-0.5, max=0.5)
    small = directml.element_wise_atanh(near / (near + 2.0)) * 2.0  # does not round 1 + x
    return small._chosen(near == wide, directml.element_wise_log(wide + 1.0)).astype(tensor.data_type)


@eager
def log2(x: Operand, *, device: Where = None) -> Array:
    """Return the logarithm to the base 2 of each element.

    Zeros give -inf, negative elements NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.log2([1.0, 8.0]).round(3)
        array([0., 3.], dtype=float32)

    See also:
        `log`, `log10`.

    Computed by ELEMENT_WISE_LOG (`ns-directml-dml_element_wise_log_operator_desc`) and ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_log(as_floating(x)) * (1 / math.log(2))


@eager
def log10(x: Operand, *, device: Where = None) -> Array:
    """Return the logarithm to the base 10 of each element.

    Zeros give -inf, negative elements NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.log10([1.0, 1000.0]).round(3)
        array([0., 3.], dtype=float32)

    See also:
        `log`, `log2`.

    Computed by ELEMENT_WISE_LOG (`ns-directml-dml_element_wise_log_operator_desc`) and ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_log(as_floating(x)) * (1 / math.log(10))


@eager
def sqrt(x: Operand, *, device: Where = None) -> Array:
    """Return the square root of each element.

    Negative elements give NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.sqrt([4.0, 9.0])
        array([2., 3.], dtype=float32)

    See also:
        `rsqrt`, `square`.

    Computed by ELEMENT_WISE_SQRT (`ns-directml-dml_element_wise_sqrt_operator_desc`).
    """
    return directml.element_wise_sqrt(as_floating(x))


@eager
def rsqrt(x: Operand, *, device: Where = None) -> Array:
    """Return 1 divided by the square root of each element.

    Zeros give inf, negative elements NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.rsqrt([4.0, 16.0])
        array([0.5 , 0.25], dtype=float32)

    See also:
        `sqrt`, `reciprocal`.

    Computed by ELEMENT_WISE_SQRT (`ns-directml-dml_element_wise_sqrt_operator_desc`) and ELEMENT_WISE_RECIP
    (`ns-directml-dml_element_wise_recip_operator_desc`).
    """
    return directml.element_wise_recip(directml.element_wise_sqrt(as_floating(x)))


@eager
def sin(x: Operand, *, device: Where = None) -> Array:
    """Return the sine of each element, in radians.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.sin([0.0, 1.0]).round(3)
        array([0.   , 0.841], dtype=float32)

    See also:
        `cos`, `asin`.

    Computed by ELEMENT_WISE_SIN (`ns-directml-dml_element_wise_sin_operator_desc`).
    """
    return directml.element_wise_sin(as_floating(x))


@eager
def cos(x: Operand, *, device: Where = None) -> Array:
    """Return the cosine of each element, in radians.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.cos([0.0, 1.0]).round(3)
        array([1.  , 0.54], dtype=float32)

    See also:
        `sin`, `acos`.

    Computed by ELEMENT_WISE_COS (`ns-directml-dml_element_wise_cos_operator_desc`).
    """
    return directml.element_wise_cos(as_floating(x))


@eager
def tan(x: Operand, *, device: Where = None) -> Array:
    """Return the tangent of each element, in radians.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.tan([0.0, 1.0]).round(3)
        array([0.   , 1.557], dtype=float32)

    See also:
        `atan`, `atan2`.

    Computed by ELEMENT_WISE_TAN (`ns-directml-dml_element_wise_tan_operator_desc`).
    """
    return directml.element_wise_tan(as_floating(x))


@eager
def asin(x: Operand, *, device: Where = None) -> Array:
    """Return the arcsine of each element, in radians.

    Elements outside -1 to 1 give NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.asin([0.0, 1.0]).round(3)
        array([0.   , 1.571], dtype=float32)

    See also:
        `sin`.

    Computed by ELEMENT_WISE_ASIN (`ns-directml-dml_element_wise_asin_operator_desc`).
    """
    return directml.element_wise_asin(as_floating(x))


@eager
def acos(x: Operand, *, device: Where = None) -> Array:
    """Return the arccosine of each element, in radians.

    Elements outside -1 to 1 give NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.acos([1.0, 0.0]).round(3)
        array([0.   , 1.571], dtype=float32)

    See also:
        `cos`.

    Computed by ELEMENT_WISE_ACOS (`ns-directml-dml_element_wise_acos_operator_desc`).
    """
    return directml.element_wise_acos(as_floating(x))


@eager
def atan(x: Operand, *, device: Where = None) -> Array:
    """Return the arctangent of each element, in radians.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.atan([0.0, 1.0]).round(3)
        array([0.   , 0.785], dtype=float32)

    See also:
        `tan`, `atan2`.

    Computed by ELEMENT_WISE_ATAN (`ns-directml-dml_element_wise_atan_operator_desc`).
    """
    return directml.element_wise_atan(as_floating(x))


@eager
def atan2(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the angle of each point (b, a), in radians from -pi to pi.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands). Integers are computed in float32.
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common floating-point dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.atan2([1.0, -1.0], [1.0, -1.0]).round(3)
        array([ 0.785, -2.356], dtype=float32)

    See also:
        `atan`.

    Computed by ELEMENT_WISE_ATAN_YX (`ns-directml-dml_element_wise_atan_yx_operator_desc`).
    """
    return combined_as_floats(caller(), *pair(a, b), kind=descs.ElementWiseAtanYx)


@eager
def sinh(x: Operand, *, device: Where = None) -> Array:
    """Return the hyperbolic sine of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.sinh([0.0, 1.0]).round(3)
        array([0.   , 1.175], dtype=float32)

    See also:
        `asinh`, `cosh`.

    Computed by ELEMENT_WISE_SINH (`ns-directml-dml_element_wise_sinh_operator_desc`).
    """
    return directml.element_wise_sinh(as_floating(x))


@eager
def cosh(x: Operand, *, device: Where = None) -> Array:
    """Return the hyperbolic cosine of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.cosh([0.0, 1.0]).round(3)
        array([1.   , 1.543], dtype=float32)

    See also:
        `acosh`, `sinh`.

    Computed by ELEMENT_WISE_COSH (`ns-directml-dml_element_wise_cosh_operator_desc`).
    """
    return directml.element_wise_cosh(as_floating(x))


@eager
def tanh(x: Operand, *, device: Where = None) -> Array:
    """Return the hyperbolic tangent of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.tanh([0.0, 1.0]).round(3)
        array([0.   , 0.762], dtype=float32)

    See also:
        `atanh`, `sigmoid`.

    Computed by ELEMENT_WISE_TANH (`ns-directml-dml_element_wise_tanh_operator_desc`).
    """
    return directml.element_wise_tanh(as_floating(x))


@eager
def asinh(x: Operand, *, device: Where = None) -> Array:
    """Return the inverse hyperbolic sine of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.asinh([0.0, 1.0]).round(3)
        array([0.   , 0.881], dtype=float32)

    See also:
        `sinh`.

    Computed by ELEMENT_WISE_ASINH (`ns-directml-dml_element_wise_asinh_operator_desc`).
    """
    return directml.element_wise_asinh(as_floating(x))


@eager
def acosh(x: Operand, *, device: Where = None) -> Array:
    """Return the inverse hyperbolic cosine of each element.

    Elements below 1 give NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.acosh([1.0, 2.0]).round(3)
        array([0.   , 1.317], dtype=float32)

    See also:
        `cosh`.

    Computed by ELEMENT_WISE_ACOSH (`ns-directml-dml_element_wise_acosh_operator_desc`).
    """
    return directml.element_wise_acosh(as_floating(x))


@eager
def atanh(x: Operand, *, device: Where = None) -> Array:
    """Return the inverse hyperbolic tangent of each element.

    Elements outside -1 to 1 give NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.atanh([0.0, 0.5]).round(3)
        array([0.   , 0.549], dtype=float32)

    See also:
        `tanh`.

    Computed by ELEMENT_WISE_ATANH (`ns-directml-dml_element_wise_atanh_operator_desc`).
    """
    return directml.element_wise_atanh(as_floating(x))


@eager
def erf(x: Operand, *, device: Where = None) -> Array:
    """Return the error function of each element.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Integers and booleans are computed in float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` in its floating-point dtype, or float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.erf([0.0, 1.0]).round(3)
        array([0.   , 0.843], dtype=float32)

    See also:
        `gelu`.

    Computed by ELEMENT_WISE_ERF (`ns-directml-dml_element_wise_erf_operator_desc`).
    """
    return directml.element_wise_erf(as_floating(x))
