"""Operators on bits, whatever the elements stand for; and moving elements without looking at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def as_bits(array: Array) -> Array:
    """The same elements seen as unsigned integers of their width (a view), so that NaN payloads survive."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _register(desc_class: Any, function: Callable[[Array, Array], Array]) -> None:
    """A function of the bits of two elements as what an operator computes."""

    @reference(desc_class)
    def evaluate(desc: Any, a_tensor: Array, b_tensor: Array) -> Array:
        return function(as_bits(a_tensor), as_bits(b_tensor)).view(a_tensor.dtype)


def _shift(function: Any) -> Callable[[Array, Array], Array]:
    """A shift whose count is taken modulo 32, or 64: narrower elements are shifted in 32 bits, then cut."""

    def shift(a: Array, b: Array) -> Array:
        width = max(32, 8 * a.dtype.itemsize)
        computed = np.dtype(f"u{width // 8}")
        return function(a.astype(computed), b.astype(computed) % computed.type(width)).astype(a.dtype)

    return shift


_register(descs.ElementWiseBitAnd, np.bitwise_and)
_register(descs.ElementWiseBitOr, np.bitwise_or)
_register(descs.ElementWiseBitXor, np.bitwise_xor)
_register(descs.ElementWiseBitShiftLeft, _shift(np.left_shift))
_register(descs.ElementWiseBitShiftRight, _shift(np.right_shift))


@reference(descs.ElementWiseBitNot)
def element_wise_bit_not(desc: descs.ElementWiseBitNot, input_tensor: Array) -> Array:
    """Every bit turned round."""
    return (~as_bits(input_tensor)).view(input_tensor.dtype)


@reference(descs.ElementWiseBitCount)
def element_wise_bit_count(desc: descs.ElementWiseBitCount, input_tensor: Array) -> Array:
    """How many bits are 1."""
    return np.bitwise_count(as_bits(input_tensor)).astype(desc.output_tensor.data_type.numpy)
