"""CAST: one number type to another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


@reference(descs.Cast)
def cast(desc: descs.Cast, input_tensor: Array) -> Array:
    """Each element in the output's type.

    Floats become integers by truncation, saturate, and NaN becomes 0; integers wrap into narrower ones; what becomes a
    float is rounded to nearest even, once, and overflows to infinity. (DirectML's page leaves all of this open.)
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
