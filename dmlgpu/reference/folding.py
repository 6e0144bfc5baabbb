"""Columns of windows, place by place of the window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.memory import claim
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _positions(desc: Any, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """Return the positions of the window along each axis."""
    return tuple(
        (size + desc.start_padding[axis] + desc.end_padding[axis] - desc.dilations[axis] * (window - 1) - 1)
        // desc.strides[axis]
        + 1
        for axis, (size, window) in enumerate(zip(spatial, desc.window_sizes, strict=True))
    )


def _places(desc: Any, positions: tuple[int, ...]) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """Yield each place of the window, in row-major order, with the slices of the padded images that it sees."""
    for number, place in enumerate(itertools.product(*map(range, desc.window_sizes))):
        starts = [k * d for k, d in zip(place, desc.dilations, strict=True)]
        axes = zip(starts, desc.strides, positions, strict=True)
        slices = (slice(start, start + stride * (count - 1) + 1, stride) for start, stride, count in axes)
        yield number, (slice(None), slice(None), *slices)


def _padding(desc: Any) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), *zip(desc.start_padding, desc.end_padding, strict=True)]


def _padded(desc: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size + sum(ends) for size, ends in zip(sizes, _padding(desc), strict=True))


@reference(descs.Unfold)
def unfold(desc: descs.Unfold, input_tensor: Array) -> Array:
    """The columns of all windows."""
    batch, channels = input_tensor.shape[:2]
    positions = _positions(desc, input_tensor.shape[2:])
    claim("the padded images", *_padded(desc, input_tensor.shape))
    padded = np.pad(input_tensor, _padding(desc))
    seen = [padded[slices] for _, slices in _places(desc, positions)]
    return np.stack(seen, axis=2).reshape(batch, channels * len(seen), -1)


@reference(descs.Fold)
def fold(desc: descs.Fold, input_tensor: Array) -> Array:
    """Columns added up, in float64."""
    batch, channels, *spatial = desc.output_tensor.sizes
    positions = _positions(desc, tuple(spatial))
    columns = input_tensor.astype(np.float64).reshape(batch, channels, -1, *positions)
    padding = _padding(desc)
    sizes = _padded(desc, desc.output_tensor.sizes)
    claim("the padded images", *sizes)
    total = np.zeros(sizes)
    for number, slices in _places(desc, positions):
        total[slices] += columns[:, :, number]
    inside = tuple(slice(low, low + size) for size, (low, _) in zip(desc.output_tensor.sizes, padding, strict=True))
    return total[inside].astype(input_tensor.dtype)
