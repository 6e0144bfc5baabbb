"""Operators that compare or choose. Truth values are 1 and 0; anything but 0 is true."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.enums import IsInfinityMode
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


@reference(descs.ElementWiseLogicalAnd)
def element_wise_logical_and(desc: descs.ElementWiseLogicalAnd, a_tensor: Array, b_tensor: Array) -> Array:
    """Whether both elements are true."""
    return np.logical_and(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalOr)
def element_wise_logical_or(desc: descs.ElementWiseLogicalOr, a_tensor: Array, b_tensor: Array) -> Array:
    """Whether one of the elements is true."""
    return np.logical_or(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalXor)
def element_wise_logical_xor(desc: descs.ElementWiseLogicalXor, a_tensor: Array, b_tensor: Array) -> Array:
    """Whether exactly one of the elements is true."""
    return np.logical_xor(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalEquals)
def element_wise_logical_equals(desc: descs.ElementWiseLogicalEquals, a_tensor: Array, b_tensor: Array) -> Array:
    """``a == b``; NaN is equal to nothing."""
    return np.equal(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalGreaterThan)
def element_wise_logical_greater_than(
    desc: descs.ElementWiseLogicalGreaterThan, a_tensor: Array, b_tensor: Array
) -> Array:
    """``a > b``."""
    return np.greater(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalLessThan)
def element_wise_logical_less_than(desc: descs.ElementWiseLogicalLessThan, a_tensor: Array, b_tensor: Array) -> Array:
    """``a < b``."""
    return np.less(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalGreaterThanOrEqual)
def element_wise_logical_greater_than_or_equal(
    desc: descs.ElementWiseLogicalGreaterThanOrEqual, a_tensor: Array, b_tensor: Array
) -> Array:
    """``a >= b``."""
    return np.greater_equal(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalLessThanOrEqual)
def element_wise_logical_less_than_or_equal(
    desc: descs.ElementWiseLogicalLessThanOrEqual, a_tensor: Array, b_tensor: Array
) -> Array:
    """``a <= b``."""
    return np.less_equal(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseLogicalNot)
def element_wise_logical_not(desc: descs.ElementWiseLogicalNot, input_tensor: Array) -> Array:
    """Whether the element is 0."""
    return (input_tensor == 0).astype(input_tensor.dtype)


@reference(descs.ElementWiseIsNan)
def element_wise_is_nan(desc: descs.ElementWiseIsNan, input_tensor: Array) -> Array:
    """Whether the element is NaN."""
    return np.isnan(input_tensor).astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseIsInfinity)
def element_wise_is_infinity(desc: descs.ElementWiseIsInfinity, input_tensor: Array) -> Array:
    """Whether the element is an infinity of the sign that is sought."""
    found = np.isinf(input_tensor)
    if desc.infinity_mode is not IsInfinityMode.EITHER:
        found &= np.signbit(input_tensor) == (desc.infinity_mode is IsInfinityMode.NEGATIVE)
    return found.astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseIf)
def element_wise_if(desc: descs.ElementWiseIf, condition_tensor: Array, a_tensor: Array, b_tensor: Array) -> Array:
    """The bits of ``a`` where the condition is not 0, else those of ``b``."""
    return np.where(condition_tensor != 0, as_bits(a_tensor), as_bits(b_tensor)).view(a_tensor.dtype)
