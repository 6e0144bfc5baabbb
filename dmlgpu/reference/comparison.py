"""Operators that compare or choose. Truth values are 1 and 0; anything but 0 is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.enums import IsInfinityMode
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _register(desc_class: Any, relation: Callable[[Array, Array], Array]) -> None:
    """A relation of two elements as what an operator computes."""

    @reference(desc_class)
    def evaluate(desc: Any, a_tensor: Array, b_tensor: Array) -> Array:
        return relation(a_tensor, b_tensor).astype(desc.output_tensor.data_type.numpy)


_register(descs.ElementWiseLogicalAnd, np.logical_and)
_register(descs.ElementWiseLogicalOr, np.logical_or)
_register(descs.ElementWiseLogicalXor, np.logical_xor)
_register(descs.ElementWiseLogicalEquals, np.equal)
_register(descs.ElementWiseLogicalGreaterThan, np.greater)
_register(descs.ElementWiseLogicalLessThan, np.less)
_register(descs.ElementWiseLogicalGreaterThanOrEqual, np.greater_equal)
_register(descs.ElementWiseLogicalLessThanOrEqual, np.less_equal)


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
