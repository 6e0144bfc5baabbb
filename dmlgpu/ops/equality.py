"""Equality of tensors, under NumPy's names: within tolerances, and of tensors as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, boolean, real
from dmlgpu.ops import directml
from dmlgpu.ops.elementwise import pair
from dmlgpu.ops.searching import all as all_of
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, widened
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = ["allclose", "array_equal", "isclose"]


@eager
def isclose(
    a: Operand,
    b: Operand,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the mask of the pairs of elements that are equal within tolerances: abs(a - b) <= atol + rtol * abs(b).

    Infinities equal themselves only.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        rtol: Tolerance relative to `b`; defaults to 1e-5.
        atol: Absolute tolerance; defaults to 1e-8.
        equal_nan: Whether NaN equals NaN; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Mask of the broadcast shape (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, the shapes do not broadcast, or a tolerance is not a number.

    Examples:
        >>> ops.isclose([1.0, 2.0], [1.000001, 2.1])
        array([ True, False])

    See also:
        `allclose`, `equal`, `array_equal`.

    Computed by ELEMENT_WISE_SUBTRACT (`ns-directml-dml_element_wise_subtract_operator_desc`) and
    ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL (`ns-directml-dml_element_wise_logical_less_than_or_equal_operator_desc`).
    """
    return _close(a, b, rtol, atol, equal_nan)


@eager
def allclose(
    a: Operand,
    b: Operand,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return whether all pairs of elements are equal within tolerances: abs(a - b) <= atol + rtol * abs(b).

    Infinities equal themselves only.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise; promoted with `a` to a common dtype. The shapes broadcast.
        rtol: Tolerance relative to `b`; defaults to 1e-5.
        atol: Absolute tolerance; defaults to 1e-8.
        equal_nan: Whether NaN equals NaN; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Mask of rank 0 (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype, the shapes do not broadcast, or a tolerance is not a number.

    Examples:
        >>> bool(ops.allclose([1.0, 2.0], [1.000001, 2.0]))
        True

    See also:
        `isclose`, `array_equal`.

    Computed by ELEMENT_WISE_SUBTRACT (`ns-directml-dml_element_wise_subtract_operator_desc`) and REDUCE
    (`ns-directml-dml_reduce_operator_desc`).
    """
    return all_of(_close(a, b, rtol, atol, equal_nan))


@eager
def array_equal(a: Operand, b: Operand, equal_nan: bool = False, *, device: Where = None) -> Array:
    """Return whether two tensors have the same shape and equal elements.

    Args:
        a: Tensor or array of any dtype, or a number (not both operands).
        b: Likewise.
        equal_nan: Whether NaN equals NaN; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Mask of rank 0 (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there is no common dtype.

    Examples:
        >>> bool(ops.array_equal([1, 2], [1, 2]))
        True
        >>> bool(ops.array_equal([1, 2], [[1, 2]]))
        False

    See also:
        `allclose`, `equal`.

    Computed by ELEMENT_WISE_LOGICAL_EQUALS (`ns-directml-dml_element_wise_logical_equals_operator_desc`) and REDUCE
    (`ns-directml-dml_reduce_operator_desc`).
    """
    treats_nan_as_equal = argument(caller(), "equal_nan", boolean, equal_nan)
    first, second = _tensors(a, b)
    if first.sizes != second.sizes:
        return first._beside(np.array(False))
    return all_of(_equal(first, second, treats_nan_as_equal))


def _tensors(a: Any, b: Any) -> list[Tensor]:
    """Return two operands, at most one of which is a number, as tensors of their common dtype."""
    operands = promoted(caller(), dict(zip(("a", "b"), pair(a, b), strict=True)))
    beside: Tensor = next(x for x in operands if isinstance(x, Tensor))
    return [x if isinstance(x, Tensor) else beside._beside(x, beside._type) for x in operands]


def _equal(a: Tensor, b: Tensor, treats_nan_as_equal: bool) -> Tensor:
    equal: Any = a == b
    if treats_nan_as_equal and a.data_type.is_float:
        equal = equal | (directml.element_wise_is_nan(a) & directml.element_wise_is_nan(b))
    return equal


def _close(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: Any) -> Tensor:
    relative, absolute = (argument(caller(), name, real, x) for name, x in (("rtol", rtol), ("atol", atol)))
    treats_nan_as_equal = argument(caller(), "equal_nan", boolean, equal_nan)
    first, second = (widened(x) for x in _tensors(a, b))
    equal: Any = _equal(first, second, treats_nan_as_equal)
    if not first.data_type.is_float:
        first, second = _exact(first), _exact(second)
    difference: Any = directml.element_wise_max(first, second) - directml.element_wise_min(first, second)
    if not first.data_type.is_float:
        difference, second = difference.astype(DataType.FLOAT32), second.astype(DataType.FLOAT32)
    tolerance = abs(second) * relative + absolute
    is_finite = abs(second) < float("inf")
    return equal | ((difference <= tolerance) & is_finite)


def _exact(x: Tensor) -> Tensor:
    """Return integers or booleans in a dtype that holds their differences."""
    return x if x.data_type is DataType.UINT64 else x.astype(DataType.INT64)
