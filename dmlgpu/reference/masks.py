"""Operators that choose between two values by place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.cast import convert
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _distances(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how far right of the main diagonal each element of a matrix lies: x - y."""
    return np.arange(sizes[-1])[None, :] - np.arange(sizes[-2])[:, None]


@reference(descs.DiagonalMatrix1)
def diagonal_matrix1(desc: descs.DiagonalMatrix1, input_tensor: Array | None) -> Array:
    """A value in a band of diagonals, or outside it where the band ends before it begins; else the input, or zero."""
    sizes, dtype = desc.output_tensor.sizes, desc.output_tensor.data_type.numpy
    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    distance = _distances(sizes)
    filled = (end >= begin) ^ (distance >= begin) ^ (distance < end)
    matrices = np.zeros(sizes, dtype) if input_tensor is None else input_tensor
    value = np.full((), desc.value, dtype)
    return np.where(filled, as_bits(value), as_bits(matrices)).view(dtype)


@reference(descs.DiagonalMatrix)
def diagonal_matrix(desc: descs.DiagonalMatrix) -> Array:
    """A value where ``y + offset == x``, zeros elsewhere; the value, a float32, is converted as CAST does."""
    sizes, dtype = desc.output_tensor.sizes, desc.output_tensor.data_type.numpy
    value = convert(np.full((), desc.value, np.float32), dtype)
    on_diagonal = _distances(sizes) == desc.offset
    return np.where(np.broadcast_to(on_diagonal, sizes), value, dtype.type(0))
