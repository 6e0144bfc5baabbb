"""Truth values, 0 or 1 in UINT8, and bits, element by element, under NumPy's names. Sizes broadcast, types must be
equal, numbers take the tensor's type."""

from __future__ import annotations

from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, eager

__all__ = [
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
]


@eager
def isnan(x: Operand, *, device: Where = None) -> Array:
    """Whether each element is NaN: 0 or 1, UINT8."""
    return directml.element_wise_is_nan(x)


@eager
def isinf(x: Operand, *, device: Where = None) -> Array:
    """Whether each element is infinite: 0 or 1, UINT8."""
    return directml.element_wise_is_infinity(x)


@eager
def logical_not(x: Operand, *, device: Where = None) -> Array:
    """Whether each element of UINT8 is 0: 0 or 1."""
    return directml.element_wise_logical_not(x)


@eager
def bitwise_not(x: Operand, *, device: Where = None) -> Array:
    """Each element with all bits inverted."""
    return directml.element_wise_bit_not(x)


@eager
def equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether a = b, for each pair: 0 or 1, UINT8."""
    return directml.element_wise_logical_equals(a, b)


@eager
def less(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether a < b, for each pair: 0 or 1, UINT8."""
    return directml.element_wise_logical_less_than(a, b)


@eager
def less_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether a <= b, for each pair: 0 or 1, UINT8."""
    return directml.element_wise_logical_less_than_or_equal(a, b)


@eager
def greater(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether a > b, for each pair: 0 or 1, UINT8."""
    return directml.element_wise_logical_greater_than(a, b)


@eager
def greater_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether a >= b, for each pair: 0 or 1, UINT8."""
    return directml.element_wise_logical_greater_than_or_equal(a, b)


@eager
def logical_and(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether both of each pair of UINT8 are not 0: 0 or 1."""
    return directml.element_wise_logical_and(a, b)


@eager
def logical_or(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether either of each pair of UINT8 is not 0: 0 or 1."""
    return directml.element_wise_logical_or(a, b)


@eager
def logical_xor(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether just one of each pair of UINT8 is not 0: 0 or 1."""
    return directml.element_wise_logical_xor(a, b)


@eager
def bitwise_and(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Bits set in both of each pair."""
    return directml.element_wise_bit_and(a, b)


@eager
def bitwise_or(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Bits set in either of each pair."""
    return directml.element_wise_bit_or(a, b)


@eager
def bitwise_xor(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Bits set in just one of each pair."""
    return directml.element_wise_bit_xor(a, b)


@eager
def left_shift(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Bits of a moved up by b, for each pair."""
    return directml.element_wise_bit_shift_left(a, b)


@eager
def right_shift(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Bits of a moved down by b, for each pair."""
    return directml.element_wise_bit_shift_right(a, b)


@eager
def not_equal(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Whether a and b differ, for each pair: 0 or 1, UINT8."""
    return directml.element_wise_logical_not(directml.element_wise_logical_equals(a, b))
