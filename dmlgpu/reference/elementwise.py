"""What the element-wise operators share, and IDENTITY."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.cast import convert
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


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
