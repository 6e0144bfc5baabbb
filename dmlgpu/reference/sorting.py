"""Operators that put elements in order, by ranks and NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _places(array: Array, axis: int, direction: AxisDirection) -> NDArray[np.intp]:
    """Return the stable order of every line. NaN is larger than all numbers, and equal to NaN.

    A stable sort of a line read backwards, read backwards itself, has the largest element first and of equal ones that
    with the lower index.
    """
    if direction is AxisDirection.INCREASING:
        return np.argsort(array, axis, kind="stable")
    last = array.shape[axis] - 1
    return last - np.flip(np.argsort(np.flip(array, axis), axis, kind="stable"), axis)


def _first(desc: Any, array: Array, direction: AxisDirection) -> tuple[Array, Array]:
    """Return the first K values of every line, bit for bit, and their places."""
    places = np.take(_places(array, desc.axis, direction), np.arange(desc.k), desc.axis)
    values = np.take_along_axis(as_bits(array), places, desc.axis).view(array.dtype)
    return values, places.astype(desc.output_index_tensor.data_type.numpy)


@reference(descs.TopK1)
def top_k1(desc: descs.TopK1, input_tensor: Array) -> tuple[Array, Array]:
    """The first K elements along the axis in the order of the direction, and their places."""
    return _first(desc, input_tensor, desc.axis_direction)


@reference(descs.TopK)
def top_k(desc: descs.TopK, input_tensor: Array) -> tuple[Array, Array]:
    """The largest K elements along the axis, and their places."""
    return _first(desc, input_tensor, AxisDirection.DECREASING)
