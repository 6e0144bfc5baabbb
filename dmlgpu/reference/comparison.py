"""Operators that compare or choose. Truth values are 1 and 0; anything but 0 is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import IsInfinityMode
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _truth(desc_class: Any, function: np.ufunc) -> Callable[[Any, Array, Array], Array]:
    """Register a comparison of two numbers as what an operator computes; any comparison with NaN is false."""

    @reference(desc_class)
    def evaluate(desc: Any, a_tensor: Array, b_tensor: Array) -> Array:
        return function(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)

    evaluate.__name__ = desc_class.operator.lower()
    return evaluate


element_wise_logical_and = _truth(descs.ElementWiseLogicalAnd, np.logical_and)
element_wise_logical_or = _truth(descs.ElementWiseLogicalOr, np.logical_or)
element_wise_logical_xor = _truth(descs.ElementWiseLogicalXor, np.logical_xor)
element_wise_logical_equals = _truth(descs.ElementWiseLogicalEquals, np.equal)
element_wise_logical_greater_than = _truth(descs.ElementWiseLogicalGreaterThan, np.greater)
element_wise_logical_less_than = _truth(descs.ElementWiseLogicalLessThan, np.less)
element_wise_logical_greater_than_or_equal = _truth(descs.ElementWiseLogicalGreaterThanOrEqual, np.greater_equal)
element_wise_logical_less_than_or_equal = _truth(descs.ElementWiseLogicalLessThanOrEqual, np.less_equal)


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
    is_infinite = np.isinf(input_tensor)
    if desc.infinity_mode is not IsInfinityMode.EITHER:
        is_infinite &= np.signbit(input_tensor) == (desc.infinity_mode is IsInfinityMode.NEGATIVE)
    return is_infinite.astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseIf)
def element_wise_if(desc: descs.ElementWiseIf, condition_tensor: Array, a_tensor: Array, b_tensor: Array) -> Array:
    """The bits of ``a`` where the condition is not 0, else those of ``b``."""
    return np.where(condition_tensor != 0, as_bits(a_tensor), as_bits(b_tensor)).view(a_tensor.dtype)
