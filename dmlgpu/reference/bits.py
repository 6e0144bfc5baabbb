"""Operators on bits, whatever the elements stand for; and moving elements without looking at them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def as_bits(array: Array) -> Array:
    """Return the same elements seen as unsigned integers of their width (a view), so that NaN payloads survive."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


@reference(descs.ElementWiseBitAnd)
def element_wise_bit_and(desc: descs.ElementWiseBitAnd, a_tensor: Array, b_tensor: Array) -> Array:
    """``a & b``, bit by bit."""
    return (as_bits(a_tensor) & as_bits(b_tensor)).view(a_tensor.dtype)


@reference(descs.ElementWiseBitOr)
def element_wise_bit_or(desc: descs.ElementWiseBitOr, a_tensor: Array, b_tensor: Array) -> Array:
    """``a | b``, bit by bit."""
    return (as_bits(a_tensor) | as_bits(b_tensor)).view(a_tensor.dtype)


@reference(descs.ElementWiseBitXor)
def element_wise_bit_xor(desc: descs.ElementWiseBitXor, a_tensor: Array, b_tensor: Array) -> Array:
    """``a ^ b``, bit by bit."""
    return (as_bits(a_tensor) ^ as_bits(b_tensor)).view(a_tensor.dtype)


@reference(descs.ElementWiseBitShiftLeft)
def element_wise_bit_shift_left(desc: descs.ElementWiseBitShiftLeft, a_tensor: Array, b_tensor: Array) -> Array:
    """``a << b``."""
    return _shift(np.left_shift, a_tensor, b_tensor)


@reference(descs.ElementWiseBitShiftRight)
def element_wise_bit_shift_right(desc: descs.ElementWiseBitShiftRight, a_tensor: Array, b_tensor: Array) -> Array:
    """``a >> b`` with zeros shifted in."""
    return _shift(np.right_shift, a_tensor, b_tensor)


def _shift(function: Any, a: Array, b: Array) -> Array:
    """Shift by a count modulo 32, or 64; narrower elements are shifted in 32 bits, then cut."""
    width = max(32, 8 * a.dtype.itemsize)
    computed = np.dtype(f"u{width // 8}")
    return function(a.astype(computed), b.astype(computed) % computed.type(width)).astype(a.dtype)


@reference(descs.ElementWiseBitNot)
def element_wise_bit_not(desc: descs.ElementWiseBitNot, input_tensor: Array) -> Array:
    """Every bit turned round."""
    return (~as_bits(input_tensor)).view(input_tensor.dtype)


@reference(descs.ElementWiseBitCount)
def element_wise_bit_count(desc: descs.ElementWiseBitCount, input_tensor: Array) -> Array:
    """How many bits are 1."""
    return np.bitwise_count(as_bits(input_tensor)).astype(desc.output_tensor.data_type.numpy)
