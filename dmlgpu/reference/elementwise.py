"""Operators that compute each output element from the input elements at the same coordinate.

Floats are computed in float64 and rounded once. The sum, difference or product of two float32 (or float16) numbers
rounds correctly this way, since float64 has more than twice the digits. Integers wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.cast import convert
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _wide(array: Array) -> Array:
    """The array in the type to compute in: float64 for floats, integers as they are."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


@reference(descs.ElementWiseIdentity)
def element_wise_identity(desc: descs.ElementWiseIdentity, input_tensor: Array) -> Array:
    """The input's bits; with ScaleBias ``x * scale + bias``, for integers computed in float32 and converted as CAST."""
    if desc.scale_bias is None:
        return as_bits(input_tensor).copy().view(input_tensor.dtype)
    scale, bias = np.float32(desc.scale_bias.scale), np.float32(desc.scale_bias.bias)
    if input_tensor.dtype.kind == "f":
        return (_wide(input_tensor) * np.float64(scale) + np.float64(bias)).astype(input_tensor.dtype)
    return convert(input_tensor.astype(np.float32) * scale + bias, input_tensor.dtype)


@reference(descs.ElementWiseSubtract)
def element_wise_subtract(desc: descs.ElementWiseSubtract, a_tensor: Array, b_tensor: Array) -> Array:
    """``a - b``."""
    return (_wide(a_tensor) - _wide(b_tensor)).astype(a_tensor.dtype)


@reference(descs.ElementWiseMultiply)
def element_wise_multiply(desc: descs.ElementWiseMultiply, a_tensor: Array, b_tensor: Array) -> Array:
    """``a * b``."""
    return (_wide(a_tensor) * _wide(b_tensor)).astype(a_tensor.dtype)


@reference(descs.ElementWiseDifferenceSquare)
def element_wise_difference_square(desc: descs.ElementWiseDifferenceSquare, a_tensor: Array, b_tensor: Array) -> Array:
    """``(a - b) ** 2``."""
    difference = _wide(a_tensor) - _wide(b_tensor)
    return (difference * difference).astype(a_tensor.dtype)
