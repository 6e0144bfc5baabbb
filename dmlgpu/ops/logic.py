"""Comparisons, masks and bits, under NumPy's names.

Shapes broadcast, and dtypes are promoted to a common one as for `add`.
"""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.ops import directml
from dmlgpu.ops.elementwise import all_false, pair
from dmlgpu.tensors.arithmetic import combined, shifted
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.types import is_number

__all__ = [
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "equal", "greater", "greater_equal", "isfinite",
    "isinf", "isnan", "left_shift", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor",
    "not_equal", "right_shift",
]  # fmt: skip


@eager
def equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a == b.

    NaN equals nothing, itself included.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.equal([1, 2], [1, 3])
        array([ True, False])

    See also:
        `not_equal`.

    Computed by ELEMENT_WISE_LOGICAL_EQUALS (`ns-directml-dml_element_wise_logical_equals_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseLogicalEquals, *pair(a, b))


@eager
def not_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a != b.

    NaN differs from everything, itself included.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.not_equal([1, 2], [1, 3])
        array([False,  True])

    See also:
        `equal`.

    Computed by ELEMENT_WISE_LOGICAL_EQUALS (`ns-directml-dml_element_wise_logical_equals_operator_desc`) and
    ELEMENT_WISE_LOGICAL_NOT (`ns-directml-dml_element_wise_logical_not_operator_desc`).
    """
    return directml.element_wise_logical_not(combined(caller(), descs.ElementWiseLogicalEquals, *pair(a, b)))


@eager
def less(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a < b.

    Comparisons with NaN are false.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.less([1, 2, 3], 2)
        array([ True, False, False])

    See also:
        `less_equal`, `greater`.

    Computed by ELEMENT_WISE_LOGICAL_LESS_THAN (`ns-directml-dml_element_wise_logical_less_than_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseLogicalLessThan, *pair(a, b))


@eager
def less_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a <= b.

    Comparisons with NaN are false.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.less_equal([1, 2, 3], 2)
        array([ True,  True, False])

    See also:
        `less`, `greater_equal`.

    Computed by ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL
    (`ns-directml-dml_element_wise_logical_less_than_or_equal_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseLogicalLessThanOrEqual, *pair(a, b))


@eager
def greater(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a > b.

    Comparisons with NaN are false.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.greater([1, 2, 3], 2)
        array([False, False,  True])

    See also:
        `greater_equal`, `less`.

    Computed by ELEMENT_WISE_LOGICAL_GREATER_THAN (`ns-directml-dml_element_wise_logical_greater_than_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseLogicalGreaterThan, *pair(a, b))


@eager
def greater_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask a >= b.

    Comparisons with NaN are false.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or the shapes do not broadcast.

    Examples:
        >>> ops.greater_equal([1, 2, 3], 2)
        array([False,  True,  True])

    See also:
        `greater`, `less_equal`.

    Computed by ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL
    (`ns-directml-dml_element_wise_logical_greater_than_or_equal_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseLogicalGreaterThanOrEqual, *pair(a, b))


@eager
def isnan(x: Operand, *, device: Where = None) -> Array:
    """Return the mask of the elements that are NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the shape of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.isnan([1.0, float("nan")])
        array([False,  True])

    See also:
        `isinf`, `isfinite`.

    Computed by ELEMENT_WISE_IS_NAN (`ns-directml-dml_element_wise_is_nan_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return directml.element_wise_is_nan(tensor) if tensor.data_type.is_float else all_false(tensor)


@eager
def isinf(x: Operand, *, device: Where = None) -> Array:
    """Return the mask of the elements that are infinite, of either sign.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the shape of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.isinf([1.0, -float("inf")])
        array([False,  True])

    See also:
        `isnan`, `isfinite`.

    Computed by ELEMENT_WISE_IS_INFINITY (`ns-directml-dml_element_wise_is_infinity_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return directml.element_wise_is_infinity(tensor) if tensor.data_type.is_float else all_false(tensor)


@eager
def isfinite(x: Operand, *, device: Where = None) -> Array:
    """Return the mask of the elements that are neither infinite nor NaN.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the shape of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.isfinite([1.0, float("inf")])
        array([ True, False])

    See also:
        `isinf`, `isnan`.

    Computed by ELEMENT_WISE_IS_NAN (`ns-directml-dml_element_wise_is_nan_operator_desc`) and ELEMENT_WISE_IS_INFINITY
    (`ns-directml-dml_element_wise_is_infinity_operator_desc`).
    """
    tensor = tensor_of("x", x)
    if not tensor.data_type.is_float:
        return ~all_false(tensor)
    return ~(directml.element_wise_is_nan(tensor) | directml.element_wise_is_infinity(tensor))


@eager
def logical_not(x: Operand, *, device: Where = None) -> Array:
    """Return the mask of the elements that are false.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8. Elements other than 0 are true.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the shape of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not an array of real numbers.

    Examples:
        >>> ops.logical_not([True, False])
        array([False,  True])

    See also:
        `bitwise_not`.

    Computed by ELEMENT_WISE_LOGICAL_NOT (`ns-directml-dml_element_wise_logical_not_operator_desc`).
    """
    return directml.element_wise_logical_not(tensor_of("x", x).astype(bool))


def _masks(a: Operand, b: Operand) -> list[Any]:
    """Return two operands, of which at most one is a number, as whether their elements are not 0."""
    return [bool(x) if is_number(x) else x.astype(bool) for x in pair(a, b)]


@eager
def logical_and(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask of the pairs of which both elements are true.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands). Elements other than 0 are true.
        b: Likewise. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If the shapes do not broadcast.

    Examples:
        >>> ops.logical_and([True, True], [True, False])
        array([ True, False])

    See also:
        `logical_or`, `bitwise_and`.

    Computed by ELEMENT_WISE_LOGICAL_AND (`ns-directml-dml_element_wise_logical_and_operator_desc`).
    """
    return directml.element_wise_logical_and(*_masks(a, b))


@eager
def logical_or(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask of the pairs of which at least one element is true.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands). Elements other than 0 are true.
        b: Likewise. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If the shapes do not broadcast.

    Examples:
        >>> ops.logical_or([False, True], [False, False])
        array([False,  True])

    See also:
        `logical_and`, `bitwise_or`.

    Computed by ELEMENT_WISE_LOGICAL_OR (`ns-directml-dml_element_wise_logical_or_operator_desc`).
    """
    return directml.element_wise_logical_or(*_masks(a, b))


@eager
def logical_xor(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the mask of the pairs of which exactly one element is true.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands). Elements other than 0 are true.
        b: Likewise. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Bool tensor of the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If the shapes do not broadcast.

    Examples:
        >>> ops.logical_xor([True, True], [True, False])
        array([False,  True])

    See also:
        `logical_or`, `bitwise_xor`.

    Computed by ELEMENT_WISE_LOGICAL_XOR (`ns-directml-dml_element_wise_logical_xor_operator_desc`).
    """
    return directml.element_wise_logical_xor(*_masks(a, b))


@eager
def bitwise_not(x: Operand, *, device: Where = None) -> Array:
    """Return each integer with all bits inverted, each mask inverted.

    Args:
        x: Tensor or array of bool or an integer dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has a floating-point dtype.

    Examples:
        >>> ops.bitwise_not([0, 5])
        array([-1, -6])

    See also:
        `logical_not`.

    Computed by ELEMENT_WISE_BIT_NOT (`ns-directml-dml_element_wise_bit_not_operator_desc`).
    """
    return ~tensor_of("x", x)


@eager
def bitwise_and(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the bits set in both of each pair of elements.

    Args:
        a: Tensor or array of bool or an integer dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is floating-point, or the shapes do not broadcast.

    Examples:
        >>> ops.bitwise_and([6, 5], 3)
        array([2, 1])

    See also:
        `bitwise_or`, `logical_and`.

    Computed by ELEMENT_WISE_BIT_AND (`ns-directml-dml_element_wise_bit_and_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseBitAnd, *pair(a, b))


@eager
def bitwise_or(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the bits set in either of each pair of elements.

    Args:
        a: Tensor or array of bool or an integer dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is floating-point, or the shapes do not broadcast.

    Examples:
        >>> ops.bitwise_or([6, 5], 3)
        array([7, 7])

    See also:
        `bitwise_and`, `logical_or`.

    Computed by ELEMENT_WISE_BIT_OR (`ns-directml-dml_element_wise_bit_or_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseBitOr, *pair(a, b))


@eager
def bitwise_xor(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the bits set in exactly one of each pair of elements.

    Args:
        a: Tensor or array of bool or an integer dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is floating-point, or the shapes do not broadcast.

    Examples:
        >>> ops.bitwise_xor([6, 5], 3)
        array([5, 6])

    See also:
        `bitwise_or`, `logical_xor`.

    Computed by ELEMENT_WISE_BIT_XOR (`ns-directml-dml_element_wise_bit_xor_operator_desc`).
    """
    return combined(caller(), descs.ElementWiseBitXor, *pair(a, b))


@eager
def left_shift(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return each element of `a` shifted left by `b` bits.

    Args:
        a: Tensor or array of an integer dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is floating-point, or the shapes do not broadcast.

    Examples:
        >>> ops.left_shift(np.array([1, 3], np.uint32), 2)
        array([ 4, 12], dtype=uint32)

    See also:
        `right_shift`.

    Computed by ELEMENT_WISE_BIT_SHIFT_LEFT (`ns-directml-dml_element_wise_bit_shift_left_operator_desc`).
    """
    return shifted(caller(), *pair(a, b), kind=descs.ElementWiseBitShiftLeft)


@eager
def right_shift(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return each element of `a` shifted right by `b` bits, filling with the sign bit of signed integers, else zeros.

    Args:
        a: Tensor or array of an integer dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape and the common dtype (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, it is floating-point, or the shapes do not broadcast.

    Examples:
        >>> ops.right_shift(np.array([8, 12], np.uint32), 2)
        array([2, 3], dtype=uint32)

    See also:
        `left_shift`.

    Computed by ELEMENT_WISE_BIT_SHIFT_RIGHT (`ns-directml-dml_element_wise_bit_shift_right_operator_desc`).
    """
    return shifted(caller(), *pair(a, b), kind=descs.ElementWiseBitShiftRight)
