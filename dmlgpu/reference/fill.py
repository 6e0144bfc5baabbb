"""Operators that fill a tensor from a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


@reference(descs.FillValueConstant)
def fill_value_constant(desc: descs.FillValueConstant) -> Array:
    """One number everywhere."""
    return np.full(desc.output_tensor.sizes, desc.value, desc.output_tensor.data_type.numpy)


@reference(descs.FillValueSequence)
def fill_value_sequence(desc: descs.FillValueSequence) -> Array:
    """``start + delta * place`` in row-major order; floats in float64, rounded once; integers wrap."""
    dtype, sizes = desc.output_tensor.data_type.numpy, desc.output_tensor.sizes
    count = math.prod(sizes)
    if dtype.kind == "f":
        start, delta = (float(dtype.type(number)) for number in (desc.value_start, desc.value_delta))
        return (start + delta * np.arange(count, dtype=np.float64)).astype(dtype).reshape(sizes)
    start_bits, delta_bits = (np.uint64(int(number) % (1 << 64)) for number in (desc.value_start, desc.value_delta))
    return (start_bits + delta_bits * np.arange(count, dtype=np.uint64)).astype(dtype).reshape(sizes)
