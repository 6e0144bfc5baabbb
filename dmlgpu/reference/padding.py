"""Operators that set a tensor into a larger one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import PaddingMode
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.layout import picked, walks, window_starts
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


@reference(descs.Padding1)
def padding1(desc: descs.Padding1, input_tensor: Array) -> Array:
    """The input, and around it a constant, its edge, or its mirrored or repeated self."""
    return _padded(desc, input_tensor, desc.padding_value)


@reference(descs.Padding)
def padding(desc: descs.Padding, input_tensor: Array) -> Array:
    """PADDING1 with a float, which an integer tensor takes truncated and saturated (NaN as 0)."""
    dtype, value = input_tensor.dtype, float(np.float32(desc.padding_value))
    if dtype.kind == "f":
        return _padded(desc, input_tensor, value)
    limits = np.iinfo(dtype)
    if math.isnan(value):
        return _padded(desc, input_tensor, 0)
    lowest, highest = int(limits.min), int(limits.max)
    whole = math.trunc(value) if math.isfinite(value) else (highest if value > 0 else lowest)
    return _padded(desc, input_tensor, min(max(whole, lowest), highest))


def _padded(desc: descs.Padding | descs.Padding1, array: Array, value: int | float) -> Array:
    sizes = desc.output_tensor.sizes
    if desc.padding_mode is PaddingMode.CONSTANT:
        output = np.full(sizes, value, array.dtype)
        as_bits(output)[walks(desc.start_padding, (1,) * len(sizes), array.shape)] = as_bits(array)
        return output
    axes = zip(sizes, array.shape, desc.start_padding, strict=True)
    places = (_places(desc.padding_mode, size, np.arange(large) - start) for large, size, start in axes)
    return picked(array, np.ix_(*places))


def _places(mode: PaddingMode, size: int, index: Array) -> Array:
    """Return where coordinates of the output, counted from the input's first element, lie in it along one dimension."""
    if mode is PaddingMode.EDGE:
        return np.clip(index, 0, size - 1)
    if mode is PaddingMode.WRAP:
        return index % size
    if mode is PaddingMode.SYMMETRIC:
        index = index % (2 * size)
        return np.where(index >= size, 2 * size - 1 - index, index)
    if size == 1:
        return np.zeros_like(index)
    index = index % (2 * (size - 1))
    return np.where(index >= size, 2 * (size - 1) - index, index)


@reference(descs.SliceGrad)
def slice_grad(desc: descs.SliceGrad, input_gradient_tensor: Array) -> Array:
    """Zeros, and each element where SLICE1 reads it."""
    gradient = input_gradient_tensor
    output = np.zeros(desc.output_gradient_tensor.sizes, gradient.dtype)
    places = walks(window_starts(desc), desc.input_window_strides, gradient.shape)
    as_bits(output)[places] = as_bits(gradient)
    return output
