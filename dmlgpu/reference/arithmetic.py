"""Element-wise arithmetic.

Floats are computed in float64 and rounded once. The sum, difference, product, quotient or root of float32 (or float16)
numbers rounds correctly this way, since float64 has more than twice the digits. Integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import RoundingMode
from dmlgpu.reference.elementwise import convert, scaled, wide
from dmlgpu.reference.registry import Array, activated, named_reference, reference

# ---- sums, products, quotients


def _binary(desc_class: Any, function: Callable[[Array, Array], Array]) -> Callable[[Any, Array, Array], Array]:
    """Register a function of two tensors."""
    return named_reference(desc_class, lambda desc, a, b: function(wide(a), wide(b)).astype(a.dtype))


element_wise_add = _binary(descs.ElementWiseAdd, np.add)
element_wise_subtract = _binary(descs.ElementWiseSubtract, np.subtract)
element_wise_multiply = _binary(descs.ElementWiseMultiply, np.multiply)
element_wise_difference_square = _binary(descs.ElementWiseDifferenceSquare, lambda a, b: (a - b) * (a - b))


@reference(descs.ElementWiseAdd1)
def element_wise_add1(desc: descs.ElementWiseAdd1, a_tensor: Array, b_tensor: Array) -> Array:
    """``activation(a + b)``, rounded after each of the two."""
    return activated(element_wise_add(desc, a_tensor, b_tensor), desc.fused_activation, desc.output_tensor)


@reference(descs.ElementWiseDivide)
def element_wise_divide(desc: descs.ElementWiseDivide, a_tensor: Array, b_tensor: Array) -> Array:
    """``a / b``; for integers the integer part, and all ones for division by zero."""
    if a_tensor.dtype.kind == "f":
        return (wide(a_tensor) / wide(b_tensor)).astype(a_tensor.dtype)
    return _quotient(a_tensor, b_tensor)


@reference(descs.ElementWiseModulusTruncate)
def element_wise_modulus_truncate(desc: descs.ElementWiseModulusTruncate, a_tensor: Array, b_tensor: Array) -> Array:
    """``a - b * trunc(a / b)``; all ones for an integer division by zero."""
    return _remainder(np.fmod, a_tensor, b_tensor)


@reference(descs.ElementWiseModulusFloor)
def element_wise_modulus_floor(desc: descs.ElementWiseModulusFloor, a_tensor: Array, b_tensor: Array) -> Array:
    """``a - b * floor(a / b)``; all ones for an integer division by zero."""
    return _remainder(np.mod, a_tensor, b_tensor)


@reference(descs.ElementWiseMean)
def element_wise_mean(desc: descs.ElementWiseMean, a_tensor: Array, b_tensor: Array) -> Array:
    """``(a + b) / 2``; the sum of integers wraps, its half is cut."""
    if a_tensor.dtype.kind == "f":
        return ((wide(a_tensor) + wide(b_tensor)) / 2).astype(a_tensor.dtype)
    return _quotient(a_tensor + b_tensor, np.full_like(a_tensor, 2))


def _quotient(a: Array, b: Array) -> Array:
    """Divide integers: truncated towards zero, all ones for a divisor of zero; the smallest by -1 wraps."""
    divisor = np.where(_is_awkward(b), b.dtype.type(1), b)
    quotient = a // divisor
    is_cut_down = (quotient * divisor != a) & ((a < 0) != (divisor < 0))  # rounded down, past the integer part
    quotient = np.where(b == _all_ones(b), _by_all_ones(a), quotient + is_cut_down)
    return np.where(b == 0, _all_ones(b), quotient).astype(a.dtype)


def _remainder(function: Any, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return function(wide(a), wide(b)).astype(a.dtype)
    remainder = function(a, np.where(_is_awkward(b), b.dtype.type(1), b))
    if a.dtype.kind == "u":
        remainder = np.where(b == _all_ones(b), np.where(a == b, a.dtype.type(0), a), remainder)
    return np.where(b == 0, _all_ones(b), remainder).astype(a.dtype)


def _is_awkward(b: Array) -> Array:
    """Return a mask of divisors that NumPy must not divide by: zero, and -1 (or the largest unsigned number)."""
    return (b == 0) | (b == _all_ones(b))


def _by_all_ones(a: Array) -> Array:
    """Divide by -1, or by the largest unsigned number."""
    return (0 - a).astype(a.dtype) if a.dtype.kind == "i" else (a == _all_ones(a)).astype(a.dtype)


def _all_ones(array: Array) -> Any:
    """Return the integer of an array's dtype whose bits are all 1."""
    return array.dtype.type(-1 if array.dtype.kind == "i" else np.iinfo(array.dtype).max)


# ---- signs


@reference(descs.ElementWiseSign)
def element_wise_sign(desc: descs.ElementWiseSign, input_tensor: Array) -> Array:
    """-1 below 0, 1 above 0, else 0, also for NaN."""
    above, below = input_tensor > 0, input_tensor < 0
    return above.astype(input_tensor.dtype) - below.astype(input_tensor.dtype)


@reference(descs.ElementWiseNegate)
def element_wise_negate(desc: descs.ElementWiseNegate, input_tensor: Array) -> Array:
    """``-x``; the smallest integer is unchanged."""
    return -input_tensor


# ---- extremes


@reference(descs.ElementWiseMin)
def element_wise_min(desc: descs.ElementWiseMin, a_tensor: Array, b_tensor: Array) -> Array:
    """The smaller element, NaN if there is one, -0 rather than 0."""
    return _smaller(a_tensor, b_tensor)


@reference(descs.ElementWiseMax)
def element_wise_max(desc: descs.ElementWiseMax, a_tensor: Array, b_tensor: Array) -> Array:
    """The larger element, NaN if there is one, 0 rather than -0."""
    return _larger(a_tensor, b_tensor)


@reference(descs.ElementWiseClip1, descs.ElementWiseClip)
def element_wise_clip1(desc: descs.ElementWiseClip1 | descs.ElementWiseClip, input_tensor: Array) -> Array:
    """``max(min, min(x, max))``."""
    low, high = _bounds(desc, input_tensor)
    return _larger(low, _smaller(scaled(input_tensor, desc.scale_bias), high)).astype(input_tensor.dtype)


@reference(descs.ElementWiseClipGrad1, descs.ElementWiseClipGrad)
def element_wise_clip_grad1(
    desc: descs.ElementWiseClipGrad1 | descs.ElementWiseClipGrad, input_tensor: Array, input_gradient_tensor: Array
) -> Array:
    """The gradient, or 0 if ``x <= min`` or ``x >= max``."""
    low, high = _bounds(desc, input_tensor)
    is_outside = (input_tensor <= low) | (input_tensor >= high)
    return np.where(is_outside, input_gradient_tensor.dtype.type(0), input_gradient_tensor)


@reference(descs.ElementWiseThreshold)
def element_wise_threshold(desc: descs.ElementWiseThreshold, input_tensor: Array) -> Array:
    """``max(x, min)`` with a float32 bound, cast to the tensor's type."""
    bound = _cast(desc.min, input_tensor)
    return _larger(scaled(input_tensor, desc.scale_bias), bound).astype(input_tensor.dtype)


def _cast(bound: float, like: Array) -> Array:
    """Return a float32 attribute in the type of an array, as CAST converts it."""
    return convert(np.array(bound, np.float32), like.dtype)


def _bounds(desc: Any, like: Array) -> tuple[Array, Array]:
    """Return the bounds in the type of an array: by older descriptions they are float32, cast to it."""
    if hasattr(desc, "min_max_data_type"):
        return np.array(desc.min, like.dtype), np.array(desc.max, like.dtype)
    return _cast(desc.min, like), _cast(desc.max, like)


def _smaller(a: Array, b: Array) -> Array:
    """NumPy's minimum, but with -0 below 0."""
    smaller = np.minimum(a, b)
    if smaller.dtype.kind != "f":
        return smaller
    zero = np.where(np.signbit(a) | np.signbit(b), -0.0, 0.0)
    return np.where((a == 0) & (b == 0), zero, smaller).astype(smaller.dtype)


def _larger(a: Array, b: Array) -> Array:
    """NumPy's maximum, with 0 above -0."""
    return -_smaller(-a, -b) if np.result_type(a, b).kind == "f" else np.maximum(a, b)


# ---- rounding


@reference(descs.ElementWiseRound)
def element_wise_round(desc: descs.ElementWiseRound, input_tensor: Array) -> Array:
    """The nearest integer, ties to even or away from zero, or the integer part."""
    x = wide(input_tensor)
    if desc.rounding_mode is RoundingMode.TOWARD_ZERO:
        result = np.trunc(x)
    elif desc.rounding_mode is RoundingMode.HALVES_TO_NEAREST_EVEN:
        result = np.rint(x)
    else:
        result = np.copysign(np.floor(np.abs(x) + 0.5), x)
    return result.astype(input_tensor.dtype)
