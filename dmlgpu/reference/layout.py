"""Operators that only rearrange elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


@reference(descs.Slice1)
def slice1(desc: descs.Slice1, input_tensor: Array) -> Array:
    """A strided window of the input; a negative stride walks the window from its end."""
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    starts = [offset + (size - 1 if stride < 0 else 0) for offset, size, stride in windows]
    return _walk(input_tensor, starts, desc.input_window_strides, desc.output_tensor.sizes)


@reference(descs.Slice)
def slice(desc: descs.Slice, input_tensor: Array) -> Array:
    """A strided box of the input."""
    return _walk(input_tensor, desc.offsets, desc.strides, desc.output_tensor.sizes)


def _walk(array: Array, starts: Any, strides: Any, sizes: Any) -> Array:
    """``out[o] = array[starts + strides * o]`` for every coordinate o of ``sizes``."""
    lookup = [start + stride * np.arange(size) for start, stride, size in zip(starts, strides, sizes, strict=True)]
    return as_bits(array)[np.ix_(*lookup)].view(array.dtype)
