"""Convolutions, and the windows of FOLD and UNFOLD, position by position of the window.

Floats are computed in float64, integers exactly. Quantized results are computed in float32 after the exact sum,
operation by operation, since float64 could round a quotient to the other side of a tie.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode
from dmlgpu.reference.quantization import quantized
from dmlgpu.reference.registry import Array, activated, claim, reference

Optional = Array | None
LETTERS = "xyz"


def _places(desc: Any, window: tuple[int, ...], positions: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield each window offset with the elements of the padded image at it, one per position."""
    for place in itertools.product(*map(range, window)):
        axes = zip(place, desc.dilations, desc.strides, positions, strict=True)
        part = (slice(k * d, k * d + s * (count - 1) + 1, s) for k, d, s, count in axes)
        yield (..., *place), (..., *part)


def _grouped(array: Array, axis: int, groups: int) -> Array:
    """Split an axis into groups and the channels of each."""
    return array.reshape(*array.shape[:axis], groups, -1, *array.shape[axis + 1 :])


def _forward(desc: Any, source: Array, filters: Array) -> Array:
    """Add the contribution of each position of the window to all outputs."""
    spatial, positions = LETTERS[: source.ndim - 2], desc.output_tensor.sizes[2:]
    padding = zip(desc.start_padding, desc.end_padding, strict=True)
    sizes = (sum(ends) for ends in zip(source.shape[2:], desc.start_padding, desc.end_padding, strict=True))
    claim("the padded input", *source.shape[:2], *sizes)
    padded = _grouped(np.pad(source, [(0, 0), (0, 0), *padding]), 1, desc.group_count)
    weights = _grouped(filters, 0, desc.group_count)
    total = np.zeros((source.shape[0], desc.group_count, weights.shape[1], *positions), source.dtype)
    for place, part in _places(desc, filters.shape[2:], positions):
        total += np.einsum(f"ngc{spatial},goc->ngo{spatial}", padded[part], weights[place])
    return total.reshape(desc.output_tensor.sizes)


def _backward(desc: Any, source: Array, filters: Array) -> Array:
    """Scatter all elements of the input, one window offset at a time; those in the padding are dropped."""
    batch, _, *spatial = source.shape
    letters, sizes = LETTERS[: len(spatial)], desc.output_tensor.sizes
    inputs, weights = _grouped(source, 1, desc.group_count), _grouped(filters, 0, desc.group_count)
    reach = [
        max(s * (n - 1) + d * (k - 1) + 1, start + size)
        for n, k, s, d, start, size in zip(
            spatial, filters.shape[2:], desc.strides, desc.dilations, desc.start_padding, sizes[2:], strict=True
        )
    ]
    claim("the output with its padding", batch, desc.group_count, filters.shape[1], *reach)
    total = np.zeros((batch, desc.group_count, filters.shape[1], *reach))
    for place, part in _places(desc, filters.shape[2:], tuple(spatial)):
        total[part] += np.einsum(f"ngc{letters},gco->ngo{letters}", inputs, weights[place])
    for axis, (start, size) in enumerate(zip(desc.start_padding, sizes[2:], strict=True), start=3):
        total = total.take(range(start, start + size), axis)
    return total.reshape(sizes)


@reference(descs.Convolution)
def convolution(desc: descs.Convolution, input_tensor: Array, filter_tensor: Array, bias_tensor: Optional) -> Array:
    """Convolution with bias, rounded before the activation."""
    filters = filter_tensor.astype(np.float64)
    if desc.mode is ConvolutionMode.CONVOLUTION:
        filters = np.flip(filters, tuple(range(2, filters.ndim)))
    run = _forward if desc.direction is ConvolutionDirection.FORWARD else _backward
    total = run(desc, input_tensor.astype(np.float64), filters)
    if bias_tensor is not None:
        total = total + bias_tensor.astype(np.float64)
    return activated(total.astype(desc.output_tensor.data_type.numpy), desc.fused_activation, desc.output_tensor)


def _less_zero(values: Array, zero_point: Optional, axis: int) -> Array:
    """Subtract zero points from integers: one for all, or one for each along an axis."""
    wide = values.astype(np.int64)
    if zero_point is None:
        return wide
    shape = [-1 if dimension == axis else 1 for dimension in range(values.ndim)]
    return wide - zero_point.astype(np.int64).reshape(shape)


def _sums(desc: Any, source: Array, source_zero: Optional, filters: Array, filter_zero: Optional) -> Array:
    """Return integer sums in int64, which cannot overflow."""
    return _forward(desc, _less_zero(source, source_zero, 1), _less_zero(filters, filter_zero, 0))


@reference(descs.ConvolutionInteger)
def convolution_integer(
    desc: descs.ConvolutionInteger, source: Array, source_zero: Optional, filters: Array, filter_zero: Optional
) -> Array:
    """Integer convolution modulo 2**32."""
    return _sums(desc, source, source_zero, filters, filter_zero).astype(np.int32)


def _channels(parameter: Array, rank: int) -> Array:
    """Reshape a parameter, one for all or one per channel, to broadcast over the output."""
    return parameter.reshape(1, -1, *[1] * (rank - 2))


@reference(descs.QuantizedLinearConvolution)
def quantized_linear_convolution(desc: descs.QuantizedLinearConvolution, *tensors: Any) -> Array:
    """``clamp(round((sum + bias) * (scale * scale) / scale) + zero)``, ties to even; sums modulo 2**32."""
    source, source_scale, source_zero, filters, filter_scale, filter_zero, bias, scale, zero = tensors
    total = _sums(desc, source, source_zero, filters, filter_zero)
    if bias is not None:
        total = total + bias
    rank = source.ndim
    scales = _channels(source_scale, rank) * _channels(filter_scale, rank)
    real = total.astype(np.int32).astype(np.float32) * scales / _channels(scale, rank)
    return quantized(real, 0 if zero is None else _channels(zero, rank), desc.output_tensor.data_type)


def _positions(desc: Any, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """Return the positions of the window along each axis."""
    return tuple(
        (size + desc.start_padding[axis] + desc.end_padding[axis] - desc.dilations[axis] * (window - 1) - 1)
        // desc.strides[axis]
        + 1
        for axis, (size, window) in enumerate(zip(spatial, desc.window_sizes, strict=True))
    )


def _window_positions(desc: Any, positions: tuple[int, ...]) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """Yield the index of each window offset, in row-major order, with its slices of the padded images."""
    for index, place in enumerate(itertools.product(*map(range, desc.window_sizes))):
        starts = [k * d for k, d in zip(place, desc.dilations, strict=True)]
        axes = zip(starts, desc.strides, positions, strict=True)
        slices = (slice(start, start + stride * (count - 1) + 1, stride) for start, stride, count in axes)
        yield index, (slice(None), slice(None), *slices)


def _padding(desc: Any) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), *zip(desc.start_padding, desc.end_padding, strict=True)]


def _padded(desc: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size + sum(ends) for size, ends in zip(sizes, _padding(desc), strict=True))


@reference(descs.Unfold)
def unfold(desc: descs.Unfold, input_tensor: Array) -> Array:
    """Columns of all windows."""
    batch, channels = input_tensor.shape[:2]
    positions = _positions(desc, input_tensor.shape[2:])
    claim("the padded images", *_padded(desc, input_tensor.shape))
    padded = np.pad(input_tensor, _padding(desc))
    seen = [padded[slices] for _, slices in _window_positions(desc, positions)]
    return np.stack(seen, axis=2).reshape(batch, channels * len(seen), -1)


@reference(descs.Fold)
def fold(desc: descs.Fold, input_tensor: Array) -> Array:
    """Sum of columns, in float64."""
    batch, channels, *spatial = desc.output_tensor.sizes
    positions = _positions(desc, tuple(spatial))
    columns = input_tensor.astype(np.float64).reshape(batch, channels, -1, *positions)
    padding = _padding(desc)
    sizes = _padded(desc, desc.output_tensor.sizes)
    claim("the padded images", *sizes)
    total = np.zeros(sizes)
    for index, slices in _window_positions(desc, positions):
        total[slices] += columns[:, :, index]
    inside = tuple(slice(low, low + size) for size, (low, _) in zip(desc.output_tensor.sizes, padding, strict=True))
    return total[inside].astype(input_tensor.dtype)
