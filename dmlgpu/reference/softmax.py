"""Softmax, its logarithm and Hardmax, in float64, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.registry import Array, reference


def _shifted(array: Array, axes: Sequence[int]) -> NDArray[np.float64]:
    """``x - max(x)`` along the axes: NaN in a row with NaN or infinity, or with only negative infinity."""
    wide = array.astype(np.float64)
    return wide - wide.max(tuple(axes), keepdims=True)


def _softmax(array: Array, axes: Sequence[int]) -> Array:
    powers = np.exp(_shifted(array, axes))
    return (powers / powers.sum(tuple(axes), keepdims=True)).astype(array.dtype)


def _log_softmax(array: Array, axes: Sequence[int]) -> Array:
    shifted = _shifted(array, axes)
    return (shifted - np.log(np.exp(shifted).sum(tuple(axes), keepdims=True))).astype(array.dtype)


def _first_largest(array: Array, axes: Sequence[int]) -> NDArray[np.bool_]:
    """Return where the first largest element of each row lies; NaN is skipped, a row of NaN has it at the start."""
    along = sorted(axes)
    across = [axis for axis in range(array.ndim) if axis not in along]
    moved = array.transpose(*across, *along)
    rows = moved.reshape(*moved.shape[: len(across)], -1)
    numbers = np.where(np.isnan(rows), -np.inf, rows)  # fmax skips no signalling NaN
    places = (rows == numbers.max(-1)[..., np.newaxis]).argmax(-1)
    marks = (np.arange(rows.shape[-1]) == places[..., np.newaxis]).reshape(moved.shape)
    return marks.transpose(np.argsort([*across, *along]))


def _hardmax(array: Array, axes: Sequence[int]) -> Array:
    return _first_largest(array, axes).astype(array.dtype)


@reference(descs.ActivationSoftmax1)
def activation_softmax1(desc: descs.ActivationSoftmax1, input_tensor: Array) -> Array:
    """``e^x / sum(e^x)`` along the axes."""
    return _softmax(input_tensor, desc.axes)


@reference(descs.ActivationLogSoftmax1)
def activation_log_softmax1(desc: descs.ActivationLogSoftmax1, input_tensor: Array) -> Array:
    """``x - log(sum(e^x))`` along the axes."""
    return _log_softmax(input_tensor, desc.axes)


@reference(descs.ActivationHardmax1)
def activation_hardmax1(desc: descs.ActivationHardmax1, input_tensor: Array) -> Array:
    """1 at the first largest element along the axes, in row-major order, else 0."""
    return _hardmax(input_tensor, desc.axes)


@reference(descs.ActivationSoftmax)
def activation_softmax(desc: descs.ActivationSoftmax, input_tensor: Array) -> Array:
    """SOFTMAX1 along the last axis."""
    return _softmax(input_tensor, (input_tensor.ndim - 1,))


@reference(descs.ActivationLogSoftmax)
def activation_log_softmax(desc: descs.ActivationLogSoftmax, input_tensor: Array) -> Array:
    """LOG_SOFTMAX1 along the last axis."""
    return _log_softmax(input_tensor, (input_tensor.ndim - 1,))


@reference(descs.ActivationHardmax)
def activation_hardmax(desc: descs.ActivationHardmax, input_tensor: Array) -> Array:
    """HARDMAX1 along the last axis."""
    return _hardmax(input_tensor, (input_tensor.ndim - 1,))
