"""IDENTITY, CAST, bitwise operators, comparisons, logic, elementary functions, and helpers of elementwise operators.

Booleans are 1 and 0; all elements but 0 are true. NumPy computes functions in float64; results are rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import IsInfinityMode
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.reference.registry import Array, named_reference, reference

Wide = NDArray[np.float64]


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
    """Truncate to integers; limits are compared as floats, in which max + 1 is a power of two and exact."""
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
    return named_reference(desc_class, lambda desc, a, b: function(as_bits(a), as_bits(b)).view(a.dtype))


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
    """Number of bits that are 1."""
    return np.bitwise_count(as_bits(input_tensor)).astype(desc.output_tensor.data_type.numpy)


def wide(array: Array) -> Array:
    """Return the array in the dtype to compute in: float64 for floats, integers as they are."""
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
    """The input, bit for bit, or the result of ``scaled``."""
    if desc.scale_bias is None:
        return as_bits(input_tensor).copy().view(input_tensor.dtype)
    return scaled(input_tensor, desc.scale_bias).astype(input_tensor.dtype)


def _truth(desc_class: Any, function: np.ufunc) -> Callable[[Any, Array, Array], Array]:
    """Register a comparison of two numbers for an operator; any comparison with NaN is false."""
    return named_reference(desc_class, lambda desc, a, b: function(a, b).astype(desc.output_tensor.data_type.numpy))


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
    """Whether the element is an infinity of the requested sign."""
    is_infinite = np.isinf(input_tensor)
    if desc.infinity_mode is not IsInfinityMode.EITHER:
        is_infinite &= np.signbit(input_tensor) == (desc.infinity_mode is IsInfinityMode.NEGATIVE)
    return is_infinite.astype(desc.output_tensor.data_type.numpy)


@reference(descs.ElementWiseIf)
def element_wise_if(desc: descs.ElementWiseIf, condition_tensor: Array, a_tensor: Array, b_tensor: Array) -> Array:
    """The bits of ``a`` if the condition is not 0, else those of ``b``."""
    return np.where(condition_tensor != 0, as_bits(a_tensor), as_bits(b_tensor)).view(a_tensor.dtype)


# ---- functions of one number

erf: Callable[[Any], Wide] = np.vectorize(math.erf, otypes=[np.float64])
"""The error function of each element."""


def _scaled_function(desc_class: Any, function: Callable[[Wide], Wide]) -> Callable[[Any, Array], Array]:
    """Register a function of one number for an operator."""
    return named_reference(desc_class, lambda desc, x: function(scaled(x, desc.scale_bias)).astype(x.dtype))


element_wise_recip = _scaled_function(descs.ElementWiseRecip, lambda x: 1 / x)
element_wise_sqrt = _scaled_function(descs.ElementWiseSqrt, np.sqrt)
element_wise_ceil = _scaled_function(descs.ElementWiseCeil, np.ceil)
element_wise_floor = _scaled_function(descs.ElementWiseFloor, np.floor)
element_wise_abs = _scaled_function(descs.ElementWiseAbs, np.abs)
element_wise_acos = _scaled_function(descs.ElementWiseAcos, np.arccos)
element_wise_asin = _scaled_function(descs.ElementWiseAsin, np.arcsin)
element_wise_atan = _scaled_function(descs.ElementWiseAtan, np.arctan)
element_wise_cos = _scaled_function(descs.ElementWiseCos, np.cos)
element_wise_sin = _scaled_function(descs.ElementWiseSin, np.sin)
element_wise_tan = _scaled_function(descs.ElementWiseTan, np.tan)
element_wise_exp = _scaled_function(descs.ElementWiseExp, np.exp)
element_wise_log = _scaled_function(descs.ElementWiseLog, np.log)
element_wise_erf = _scaled_function(descs.ElementWiseErf, erf)
element_wise_sinh = _scaled_function(descs.ElementWiseSinh, np.sinh)
element_wise_cosh = _scaled_function(descs.ElementWiseCosh, np.cosh)
element_wise_tanh = _scaled_function(descs.ElementWiseTanh, np.tanh)
element_wise_asinh = _scaled_function(descs.ElementWiseAsinh, np.arcsinh)
element_wise_acosh = _scaled_function(descs.ElementWiseAcosh, np.arccosh)
element_wise_atanh = _scaled_function(descs.ElementWiseAtanh, np.arctanh)


@reference(descs.ElementWiseAtanYx)
def element_wise_atan_yx(desc: descs.ElementWiseAtanYx, a_tensor: Array, b_tensor: Array) -> Array:
    """The angle of the point (b, a); if both are zeros, by their signs."""
    return np.arctan2(a_tensor.astype(np.float64), b_tensor.astype(np.float64)).astype(a_tensor.dtype)


@reference(descs.ElementWiseConstantPow)
def element_wise_constant_pow(desc: descs.ElementWiseConstantPow, input_tensor: Array) -> Array:
    """``x ** exponent``. NumPy gets an array, since it takes roots for a scalar 0.5, whose zeros have other signs."""
    base = scaled(input_tensor, desc.scale_bias)
    exponent = np.full(base.shape, np.float32(desc.exponent), np.float64)
    return np.power(base, exponent).astype(input_tensor.dtype)


@reference(descs.ElementWisePow)
def element_wise_pow(desc: descs.ElementWisePow, input_tensor: Array, exponent_tensor: Array) -> Array:
    """``x ** exponent``; exact modulo 2**width if both are integers, else in float64.

    An integer's power to a float exponent is that of its float32 value, rounded to float32, converted as CAST does.
    """
    base, dtype = scaled(input_tensor, desc.scale_bias), input_tensor.dtype
    exponent = exponent_tensor.astype(np.float64)
    if dtype.kind == "f":
        return np.power(base, exponent).astype(dtype)
    if exponent_tensor.dtype.kind == "f":
        power = np.power(base.astype(np.float32).astype(np.float64), exponent)
        return convert(power.astype(np.float32), dtype)
    return _integer_power(base.astype(np.int64), exponent_tensor.astype(np.int64)).astype(dtype)


def _integer_power(base: NDArray[np.int64], exponent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute powers modulo 2**64; negative exponents give the integer part of the reciprocal, or all ones for 0."""
    power = np.power(base, np.abs(exponent))
    reciprocal = np.select([base == 0, np.abs(base) == 1], [np.full_like(base, -1), power], 0)
    return np.where(exponent < 0, reciprocal, power)
