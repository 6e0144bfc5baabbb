"""Operators that combine the elements along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.enums import AxisDirection, ReduceFunction
from dmlgpu.errors import OperatorNotImplemented
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _rows(array: Array, axes: Sequence[int]) -> Array:
    """The array with all ``axes`` flattened, row-major and in ascending order, into one last dimension."""
    reduced = sorted(set(axes))
    kept = [axis for axis in range(array.ndim) if axis not in reduced]
    return array.transpose(*kept, *reduced).reshape(*(array.shape[axis] for axis in kept), -1)


def _position(rows: Array, best: Array, direction: AxisDirection) -> Array:
    """Where each row first (DECREASING: last) equals its best value; its first (last) place where it never does."""
    candidates = rows == best[..., np.newaxis]
    if direction is AxisDirection.INCREASING:
        return candidates.argmax(-1)
    return rows.shape[-1] - 1 - candidates[..., ::-1].argmax(-1)


@reference(descs.Argmin)
def argmin(desc: descs.Argmin, input_tensor: Array) -> Array:
    """Place of the smallest element along the axes. NaN is skipped; in a line of NaN the first (last) place wins."""
    rows = _rows(input_tensor, desc.axes)
    places = _position(rows, np.fmin.reduce(rows, -1), desc.axis_direction)
    return places.reshape(desc.output_tensor.sizes).astype(desc.output_tensor.data_type.numpy)


@reference(descs.Argmax)
def argmax(desc: descs.Argmax, input_tensor: Array) -> Array:
    """Place of the largest element along the axes. NaN is skipped; in a line of NaN the first (last) place wins."""
    rows = _rows(input_tensor, desc.axes)
    places = _position(rows, np.fmax.reduce(rows, -1), desc.axis_direction)
    return places.reshape(desc.output_tensor.sizes).astype(desc.output_tensor.data_type.numpy)


@reference(descs.Reduce)
def reduce(desc: descs.Reduce, input_tensor: Array) -> Array:
    """SUM along the axes: floats in float64, integers wrap.

    Raises:
        OperatorNotImplemented: for the other functions.
    """
    if desc.function is not ReduceFunction.SUM:
        raise OperatorNotImplemented(f"{desc.operator} with function {desc.function.name}")
    wide = np.float64 if input_tensor.dtype.kind == "f" else input_tensor.dtype
    total = _rows(input_tensor, desc.axes).sum(-1, dtype=wide)
    return total.reshape(desc.output_tensor.sizes).astype(desc.output_tensor.data_type.numpy)
