"""IDENTITY, CAST, bitwise operators, comparisons and logic, and helpers of other elementwise operators.

Booleans are 1 and 0; all elements but 0 are true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import IsInfinityMode
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.reference.registry import Array, reference


@reference(descs.Cast)
def cast(desc: descs.Cast, input_tensor: Array) -> Array:
    """Convert each element to the output's type.

    Floats are truncated to integers with saturation, NaN becomes 0; integers wrap into narrower ones; conversions to
    floats round to nearest even, once, and overflow to infinity. (DirectML's documentation leaves this open.)
    """
    return convert(input_tensor, desc.output_tensor.data_type.numpy)


def convert(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return elements converted as CAST does."""
    if array.dtype.kind == "f" and dtype.kind != "f":
        return _saturate(array.astype(np.float64), dtype)
    return array.astype(dtype)


def _saturate(values: NDArray[np.float64], dtype: np.dtype[Any]) -> Array:
    """Truncated integers; both limits are compared as floats, where max + 1 is a power of two and exact."""
    limits = np.iinfo(dtype)
    too_low, too_high = values < float(limits.min), values >= float(limits.max + 1)
    ordinary = ~(too_low | too_high | np.isnan(values))
    result = np.where(ordinary, values, 0.0).astype(dtype)
    result[too_low], result[too_high] = limits.min, limits.max
    return result


def as_bits(array: Array) -> Array:
    """Return a view of the elements as unsigned integers of their width, which preserves NaN payloads."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _bitwise(desc_class: Any, function: Callable[[Array, Array], Array]) -> Callable[[Any, Array, Array], Array]:
    """Register a function of unsigned integers for a bitwise operator."""

    @reference(desc_class)
    def evaluate(desc: Any, a_tensor: Array, b_tensor: Array) -> Array:
        return function(as_bits(a_tensor), as_bits(b_tensor)).view(a_tensor.dtype)

    evaluate.__name__ = desc_class.operator.lower()
    return evaluate


def _shift(function: np.ufunc) -> Callable[[Array, Array], Array]:
    """Shift by a count modulo 32, or 64; narrower elements are shifted in 32 bits, then cut."""

    def shift(a: Array, b: Array) -> Array:
        width = max(32, 8 * a.dtype.itemsize)
        computed = np.dtype(f"u{width // 8}")
        return function(a.astype(computed), b.astype(computed) % computed.type(width)).astype(a.dtype)

    return shift


element_wise_bit_and = _bitwise(descs.ElementWiseBitAnd, np.bitwise_and)
element_wise_bit_or = _bitwise(descs.ElementWiseBitOr, np.bitwise_or)
element_wise_bit_xor = _bitwise(descs.ElementWiseBitXor, np.bitwise_xor)
element_wise_bit_shift_left = _bitwise(descs.ElementWiseBitShiftLeft, _shift(np.left_shift))
element_wise_bit_shift_right = _bitwise(descs.ElementWiseBitShiftRight, _shift(np.right_shift))


@reference(descs.ElementWiseBitNot)
def element_wise_bit_not(desc: descs.ElementWiseBitNot, input_tensor: Array) -> Array:
    """Every bit inverted."""
    return (~as_bits(input_tensor)).view(input_tensor.dtype)


@reference(descs.ElementWiseBitCount)
def element_wise_bit_count(desc: descs.ElementWiseBitCount, input_tensor: Array) -> Array:
    """How many bits are 1."""
    return np.bitwise_count(as_bits(input_tensor)).astype(desc.output_tensor.data_type.numpy)


def wide(array: Array) -> Array:
    """Return the array in the type to compute in: float64 for floats, integers as they are."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def attribute(value: float | None) -> np.float64:
    """Round an attribute to float32, as DirectML holds it; an absent one is 0."""
    return np.float64(np.float32(0 if value is None else value))


def scaled(array: Array, scale_bias: ScaleBias | None) -> Array:
    """``x * scale + bias``: of floats in float64, not rounded; of integers in float32, converted back as CAST does."""
    if scale_bias is None:
        return wide(array)
    scale, bias = np.float32(scale_bias.scale), np.float32(scale_bias.bias)
    if array.dtype.kind == "f":
        return wide(array) * np.float64(scale) + np.float64(bias)
    return convert(array.astype(np.float32) * scale + bias, array.dtype)


@reference(descs.ElementWiseIdentity)
def element_wise_identity(desc: descs.ElementWiseIdentity, input_tensor: Array) -> Array:
    """The input's bits, or what ``scaled`` makes of it."""
    if desc.scale_bias is None:
        return as_bits(input_tensor).copy().view(input_tensor.dtype)
    return scaled(input_tensor, desc.scale_bias).astype(input_tensor.dtype)


def _truth(desc_class: Any, function: np.ufunc) -> Callable[[Any, Array, Array], Array]:
    """Register a comparison of two numbers for an operator; any comparison with NaN is false."""

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
