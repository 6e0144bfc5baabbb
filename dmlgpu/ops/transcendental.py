"""Exponentials, logarithms, roots and trigonometry, under NumPy's names.

Shapes broadcast, dtypes are promoted to a common one, and a number takes the dtype of the other operand.
"""

from __future__ import annotations

import math

from dmlgpu.ops import directml
from dmlgpu.ops.elementwise import alike
from dmlgpu.tensors.calls import Array, Operand, Where, eager

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "log", "log2", "log10",
    "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip


@eager
def exp(x: Operand, *, device: Where = None) -> Array:
    """Return e to the power of each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.exp([0.0, 1.0]).round(3)
        array([1.   , 2.718], dtype=float32)

    See also:
        `log`, `power`.

    Computed by ELEMENT_WISE_EXP (`ns-directml-dml_element_wise_exp_operator_desc`).
    """
    return directml.element_wise_exp(x)


@eager
def log(x: Operand, *, device: Where = None) -> Array:
    """Return the natural logarithm of each element.

    Zeros give -inf, negative elements NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.log([1.0, 10.0]).round(3)
        array([0.   , 2.303], dtype=float32)

    See also:
        `exp`, `logsumexp`.

    Computed by ELEMENT_WISE_LOG (`ns-directml-dml_element_wise_log_operator_desc`).
    """
    return directml.element_wise_log(x)


@eager
def log2(x: Operand, *, device: Where = None) -> Array:
    """Return the logarithm to the base 2 of each element.

    Zeros give -inf, negative elements NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.log2([1.0, 8.0]).round(3)
        array([0., 3.], dtype=float32)

    See also:
        `log`, `log10`.

    Computed by ELEMENT_WISE_LOG (`ns-directml-dml_element_wise_log_operator_desc`) and ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_log(x) * (1 / math.log(2))


@eager
def log10(x: Operand, *, device: Where = None) -> Array:
    """Return the logarithm to the base 10 of each element.

    Zeros give -inf, negative elements NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.log10([1.0, 1000.0]).round(3)
        array([0., 3.], dtype=float32)

    See also:
        `log`, `log2`.

    Computed by ELEMENT_WISE_LOG (`ns-directml-dml_element_wise_log_operator_desc`) and ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_log(x) * (1 / math.log(10))


@eager
def sqrt(x: Operand, *, device: Where = None) -> Array:
    """Return the square root of each element.

    Negative elements give NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.sqrt([4.0, 9.0])
        array([2., 3.], dtype=float32)

    See also:
        `rsqrt`, `square`.

    Computed by ELEMENT_WISE_SQRT (`ns-directml-dml_element_wise_sqrt_operator_desc`).
    """
    return directml.element_wise_sqrt(x)


@eager
def rsqrt(x: Operand, *, device: Where = None) -> Array:
    """Return 1 divided by the square root of each element.

    Zeros give inf, negative elements NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.rsqrt([4.0, 16.0])
        array([0.5 , 0.25], dtype=float32)

    See also:
        `sqrt`, `reciprocal`.

    Computed by ELEMENT_WISE_SQRT (`ns-directml-dml_element_wise_sqrt_operator_desc`) and ELEMENT_WISE_RECIP
    (`ns-directml-dml_element_wise_recip_operator_desc`).
    """
    return directml.element_wise_recip(directml.element_wise_sqrt(x))


@eager
def sin(x: Operand, *, device: Where = None) -> Array:
    """Return the sine of each element, in radians.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.sin([0.0, 1.0]).round(3)
        array([0.   , 0.841], dtype=float32)

    See also:
        `cos`, `asin`.

    Computed by ELEMENT_WISE_SIN (`ns-directml-dml_element_wise_sin_operator_desc`).
    """
    return directml.element_wise_sin(x)


@eager
def cos(x: Operand, *, device: Where = None) -> Array:
    """Return the cosine of each element, in radians.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.cos([0.0, 1.0]).round(3)
        array([1.  , 0.54], dtype=float32)

    See also:
        `sin`, `acos`.

    Computed by ELEMENT_WISE_COS (`ns-directml-dml_element_wise_cos_operator_desc`).
    """
    return directml.element_wise_cos(x)


@eager
def tan(x: Operand, *, device: Where = None) -> Array:
    """Return the tangent of each element, in radians.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.tan([0.0, 1.0]).round(3)
        array([0.   , 1.557], dtype=float32)

    See also:
        `atan`, `atan2`.

    Computed by ELEMENT_WISE_TAN (`ns-directml-dml_element_wise_tan_operator_desc`).
    """
    return directml.element_wise_tan(x)


@eager
def asin(x: Operand, *, device: Where = None) -> Array:
    """Return the arcsine of each element, in radians.

    Elements outside -1 to 1 give NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.asin([0.0, 1.0]).round(3)
        array([0.   , 1.571], dtype=float32)

    See also:
        `sin`.

    Computed by ELEMENT_WISE_ASIN (`ns-directml-dml_element_wise_asin_operator_desc`).
    """
    return directml.element_wise_asin(x)


@eager
def acos(x: Operand, *, device: Where = None) -> Array:
    """Return the arccosine of each element, in radians.

    Elements outside -1 to 1 give NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.acos([1.0, 0.0]).round(3)
        array([0.   , 1.571], dtype=float32)

    See also:
        `cos`.

    Computed by ELEMENT_WISE_ACOS (`ns-directml-dml_element_wise_acos_operator_desc`).
    """
    return directml.element_wise_acos(x)


@eager
def atan(x: Operand, *, device: Where = None) -> Array:
    """Return the arctangent of each element, in radians.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.atan([0.0, 1.0]).round(3)
        array([0.   , 0.785], dtype=float32)

    See also:
        `tan`, `atan2`.

    Computed by ELEMENT_WISE_ATAN (`ns-directml-dml_element_wise_atan_operator_desc`).
    """
    return directml.element_wise_atan(x)


@eager
def atan2(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the angle of each point (b, a), in radians from -pi to pi.

    Args:
        a: Tensor or array of float32 or float16, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is not float32 or float16, or the shapes do not broadcast.

    Examples:
        >>> ops.atan2([1.0, -1.0], [1.0, -1.0]).round(3)
        array([ 0.785, -2.356], dtype=float32)

    See also:
        `atan`.

    Computed by ELEMENT_WISE_ATAN_YX (`ns-directml-dml_element_wise_atan_yx_operator_desc`).
    """
    return directml.element_wise_atan_yx(*alike(a, b))


@eager
def sinh(x: Operand, *, device: Where = None) -> Array:
    """Return the hyperbolic sine of each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.sinh([0.0, 1.0]).round(3)
        array([0.   , 1.175], dtype=float32)

    See also:
        `asinh`, `cosh`.

    Computed by ELEMENT_WISE_SINH (`ns-directml-dml_element_wise_sinh_operator_desc`).
    """
    return directml.element_wise_sinh(x)


@eager
def cosh(x: Operand, *, device: Where = None) -> Array:
    """Return the hyperbolic cosine of each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.cosh([0.0, 1.0]).round(3)
        array([1.   , 1.543], dtype=float32)

    See also:
        `acosh`, `sinh`.

    Computed by ELEMENT_WISE_COSH (`ns-directml-dml_element_wise_cosh_operator_desc`).
    """
    return directml.element_wise_cosh(x)


@eager
def tanh(x: Operand, *, device: Where = None) -> Array:
    """Return the hyperbolic tangent of each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.tanh([0.0, 1.0]).round(3)
        array([0.   , 0.762], dtype=float32)

    See also:
        `atanh`, `sigmoid`.

    Computed by ELEMENT_WISE_TANH (`ns-directml-dml_element_wise_tanh_operator_desc`).
    """
    return directml.element_wise_tanh(x)


@eager
def asinh(x: Operand, *, device: Where = None) -> Array:
    """Return the inverse hyperbolic sine of each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.asinh([0.0, 1.0]).round(3)
        array([0.   , 0.881], dtype=float32)

    See also:
        `sinh`.

    Computed by ELEMENT_WISE_ASINH (`ns-directml-dml_element_wise_asinh_operator_desc`).
    """
    return directml.element_wise_asinh(x)


@eager
def acosh(x: Operand, *, device: Where = None) -> Array:
    """Return the inverse hyperbolic cosine of each element.

    Elements below 1 give NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.acosh([1.0, 2.0]).round(3)
        array([0.   , 1.317], dtype=float32)

    See also:
        `cosh`.

    Computed by ELEMENT_WISE_ACOSH (`ns-directml-dml_element_wise_acosh_operator_desc`).
    """
    return directml.element_wise_acosh(x)


@eager
def atanh(x: Operand, *, device: Where = None) -> Array:
    """Return the inverse hyperbolic tangent of each element.

    Elements outside -1 to 1 give NaN.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.atanh([0.0, 0.5]).round(3)
        array([0.   , 0.549], dtype=float32)

    See also:
        `tanh`.

    Computed by ELEMENT_WISE_ATANH (`ns-directml-dml_element_wise_atanh_operator_desc`).
    """
    return directml.element_wise_atanh(x)


@eager
def erf(x: Operand, *, device: Where = None) -> Array:
    """Return the error function of each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has another dtype.

    Examples:
        >>> ops.erf([0.0, 1.0]).round(3)
        array([0.   , 0.843], dtype=float32)

    See also:
        `gelu`.

    Computed by ELEMENT_WISE_ERF (`ns-directml-dml_element_wise_erf_operator_desc`).
    """
    return directml.element_wise_erf(x)
