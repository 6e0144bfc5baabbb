"""Resampling axis by axis: coordinates in float32, weights and sums in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, InterpolationMode
from dmlgpu.reference.registry import Array, reference

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class _ResampledAxis:
    """One dimension: sizes of input and output, and the scale and offsets that map output to input coordinates."""

    size: int
    count: int
    scale: float
    input_offset: float = 0.5
    output_offset: float = -0.5

    def coordinates(self) -> Array:
        """Return the coordinate of every output element, each step rounded to float32."""
        scale, before, after = map(np.float32, (self.scale, self.output_offset, self.input_offset))
        return np.asarray((np.arange(self.count).astype(np.float32) - before) / scale - after)


Taps: TypeAlias = Iterator[tuple[Array, Array]]
"""Indices of the input and their weights, one each per output element of an axis."""

Taking: TypeAlias = Callable[[_ResampledAxis], Taps]
"""Function from an axis to its indices and weights."""


def _axes(desc: Any, sizes: Sizes, counts: Sizes) -> list[_ResampledAxis]:
    """Return the axes of a description; pixel centers if it has no offsets."""
    names = [name for name in ("scales", "input_pixel_offsets", "output_pixel_offsets") if hasattr(desc, name)]
    return [
        _ResampledAxis(*numbers)
        for numbers in zip(sizes, counts, *(getattr(desc, name) for name in names), strict=True)
    ]


# ---- indices and weights of an axis


def _nearest(rounded: Callable[[Array], Array]) -> Taking:
    def taps(axis: _ResampledAxis) -> Taps:
        yield np.clip(rounded(axis.coordinates()), 0, axis.size - 1).astype(np.int64), np.ones(axis.count)

    return taps


def _half_up(x: Array) -> Array:
    return np.asarray(np.floor(x.astype(np.float64) + 0.5))


def _linear(axis: _ResampledAxis) -> Taps:
    x = axis.coordinates().astype(np.float64)
    low = np.floor(x)
    share = x - low
    for element, weight in ((low, 1 - share), (low + 1, share)):
        yield np.clip(element, 0, axis.size - 1).astype(np.int64), weight


def _antialiased(axis: _ResampledAxis) -> Taps:
    """Weigh elements by a triangle as wide as an output element; positions beyond an edge take the edge's element."""
    reach, edge = max(1.0, 1 / float(np.float32(axis.scale))), axis.size - 1
    x = np.clip(axis.coordinates().astype(np.float64), -reach, edge + reach)

    def weight_from(distance: Array) -> Array:
        """Sum the weights of the position at a distance and of all positions further away on that side."""
        count = np.maximum(np.floor(reach - distance) + 1, 0)
        return np.asarray(count * (1 - (distance + (count - 1) / 2) / reach))

    total = weight_from(x - np.floor(x)) + weight_from(np.floor(x) + 1 - x)

    def weight_of_edge(inwards: Array) -> Array:
        """Sum the weights of an edge and of all positions beyond it, for a coordinate ``inwards`` of the edge."""
        return np.where(inwards >= 0, weight_from(np.maximum(inwards, 0)), total - weight_from(1 - inwards))

    first = np.clip(np.floor(x - reach), 0, edge)
    for place in range(int(min(2 * reach, edge)) + 3):
        element = first + place
        weight = np.maximum(1 - np.abs(element - x) / reach, 0)
        weight = np.where(element == 0, weight_of_edge(x), weight)
        weight = np.where(element == edge, weight_of_edge(edge - x) if edge else total, weight)
        yield np.minimum(element, edge).astype(np.int64), np.where(element <= edge, weight / total, 0)


# ---- forward


def _resampled(x: Array, axes: Sequence[_ResampledAxis], taking: Taking) -> Array:
    """Sum weighted elements in float64, integers rounded half to even; elements of weight 0 add nothing."""
    total = x.astype(np.float64)
    for dimension, axis in enumerate(axes):
        source = np.moveaxis(total, dimension, -1)
        result = np.zeros((*source.shape[:-1], axis.count))
        for elements, weights in taking(axis):
            result += np.where(weights == 0, 0, source[..., elements] * weights)
        total = np.moveaxis(result, -1, dimension)
    return (total if x.dtype.kind == "f" else np.rint(total)).astype(x.dtype)


def _moved(x: Array, axes: Sequence[_ResampledAxis], taking: Taking) -> Array:
    """Gather elements without weights."""
    for dimension, axis in enumerate(axes):
        ((elements, _),) = taking(axis)
        x = np.take(x, elements, dimension)
    return x


def _nearest_of(desc: Any) -> Taking:
    """Return the rounding of nearest neighbors: ties go up in operators without a rounding direction."""
    if not hasattr(desc, "rounding_direction"):
        return _nearest(_half_up)
    return _nearest(np.ceil if desc.rounding_direction == AxisDirection.INCREASING else np.floor)


@reference(descs.Resample3, descs.Resample2, descs.Resample1, descs.Resample)
def resample3(desc: Any, input_tensor: Array) -> Array:
    """Nearest or linear, linear antialiased or not; the oldest one between pixel centers."""
    axes = _axes(desc, input_tensor.shape, desc.output_tensor.sizes)
    if desc.interpolation_mode == InterpolationMode.LINEAR:
        return _resampled(input_tensor, axes, _antialiased if getattr(desc, "antialiased", False) else _linear)
    return _moved(input_tensor, axes, _nearest_of(desc))


@reference(descs.Upsample2d)
def upsample_2d(desc: descs.Upsample2d, input_tensor: Array) -> Array:
    """Elements repeated, or linear between pixel centers."""
    scales = (desc.scale_size.height, desc.scale_size.width)
    if desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR:
        return input_tensor.repeat(scales[0], -2).repeat(scales[1], -1)
    lead = [_ResampledAxis(size, size, 1) for size in input_tensor.shape[:-2]]
    plane = [
        _ResampledAxis(size, size * scale, scale) for size, scale in zip(input_tensor.shape[-2:], scales, strict=True)
    ]
    return _resampled(input_tensor, lead + plane, _linear)


# ---- gradients


def _added(gradient: Array, axes: Sequence[_ResampledAxis], taking: Taking) -> Array:
    """Add every output element's gradient, times its weights, to the elements that it read."""
    total = gradient.astype(np.float64)
    for dimension, axis in enumerate(axes):
        source = np.moveaxis(total, dimension, 0)
        result = np.zeros((axis.size, *source.shape[1:]))
        for elements, weights in taking(axis):
            column = weights.reshape(-1, *(1,) * (source.ndim - 1))
            np.add.at(result, elements, np.where(column == 0, 0, source * column))
        total = np.moveaxis(result, 0, dimension)
    return total.astype(gradient.dtype)


@reference(descs.ResampleGrad1, descs.ResampleGrad)
def resample_grad1(desc: descs.ResampleGrad1 | descs.ResampleGrad, input_gradient_tensor: Array) -> Array:
    """The gradient of RESAMPLE2, the older one of RESAMPLE1."""
    axes = _axes(desc, desc.output_gradient_tensor.sizes, input_gradient_tensor.shape)
    is_linear = desc.interpolation_mode == InterpolationMode.LINEAR
    return _added(input_gradient_tensor, axes, _linear if is_linear else _nearest_of(desc))
