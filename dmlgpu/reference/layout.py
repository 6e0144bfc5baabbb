"""Operators that move elements: joins, splits, slices, tiles, padding and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DepthSpaceOrder, PaddingMode
from dmlgpu.reference.elementwise import as_bits
from dmlgpu.reference.registry import Array, reference


@reference(descs.Slice1)
def slice1(desc: descs.Slice1, input_tensor: Array) -> Array:
    """A strided window of the input; a negative stride walks the window from its end."""
    return _walk(input_tensor, window_starts(desc), desc.input_window_strides, desc.output_tensor.sizes)


@reference(descs.Slice)
def slice(desc: descs.Slice, input_tensor: Array) -> Array:
    """A strided box of the input."""
    return _walk(input_tensor, desc.offsets, desc.strides, desc.output_tensor.sizes)


def window_starts(desc: descs.Slice1 | descs.SliceGrad) -> list[int]:
    """Return the first element of each window."""
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    return [offset + (size - 1 if stride < 0 else 0) for offset, size, stride in windows]


def _walk(array: Array, starts: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> Array:
    """``out[o] = array[starts + strides * o]`` for every coordinate o of ``sizes``."""
    return picked(array, walks(starts, strides, sizes))


def walks(starts: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> tuple[Array, ...]:
    """Return the indices ``start + stride * o`` of each dimension, for NumPy's indexing."""
    places = zip(starts, strides, sizes, strict=True)
    return np.ix_(*(start + stride * np.arange(size) for start, stride, size in places))


def picked(array: Array, places: tuple[Array, ...]) -> Array:
    """Return elements of an array, bit for bit."""
    return as_bits(array)[places].view(array.dtype)


@reference(descs.Tile)
def tile(desc: descs.Tile, input_tensor: Array) -> Array:
    """``out[o] = input[o mod sizes]``."""
    sizes = zip(desc.output_tensor.sizes, input_tensor.shape, strict=True)
    return picked(input_tensor, np.ix_(*(np.arange(large) % small for large, small in sizes)))


@reference(descs.Split)
def split(desc: descs.Split, input_tensor: Array) -> tuple[Array, ...]:
    """Pieces of the input, one after the other along the axis."""
    outputs, first = [], 0
    for piece in desc.output_tensors:
        starts = [first if axis == desc.axis else 0 for axis in range(input_tensor.ndim)]
        outputs.append(_walk(input_tensor, starts, (1,) * input_tensor.ndim, piece.sizes))
        first += piece.sizes[desc.axis]
    return tuple(outputs)


@reference(descs.Join)
def join(desc: descs.Join, input_tensors: tuple[Array, ...]) -> Array:
    """The inputs one after the other along the axis."""
    output = np.empty(desc.output_tensor.sizes, desc.output_tensor.data_type.numpy)
    along = np.moveaxis(as_bits(output), desc.axis, 0)
    first = 0
    for array in input_tensors:
        after = first + array.shape[desc.axis]
        along[first:after] = np.moveaxis(as_bits(array), desc.axis, 0)
        first = after
    return output


def _channels(desc: Any, block: int, channels: int) -> Array:
    """Return the channel of the depth side for each (y, x, c)."""
    depths = np.arange(block * block * channels)
    if getattr(desc, "order", DepthSpaceOrder.DEPTH_COLUMN_ROW) is DepthSpaceOrder.DEPTH_COLUMN_ROW:
        return depths.reshape(block, block, channels)
    return depths.reshape(channels, block, block).transpose(1, 2, 0)


@reference(descs.SpaceToDepth1, descs.SpaceToDepth)
def space_to_depth1(desc: descs.SpaceToDepth1 | descs.SpaceToDepth, input_tensor: Array) -> Array:
    """``out[n, d, h, w] = input[n, c, h * B + y, w * B + x]``, d made of y, x, c (so the older one) or c, y, x."""
    (_, channels, _, _), block = input_tensor.shape, desc.block_size
    output = np.empty(desc.output_tensor.sizes, input_tensor.dtype)
    depth = _channels(desc, block, channels)
    for y, x in np.ndindex(block, block):
        as_bits(output)[:, depth[y, x]] = as_bits(input_tensor)[:, :, y::block, x::block]
    return output


@reference(descs.DepthToSpace1, descs.DepthToSpace)
def depth_to_space1(desc: descs.DepthToSpace1 | descs.DepthToSpace, input_tensor: Array) -> Array:
    """``out[n, c, h * B + y, w * B + x] = input[n, d, h, w]``, d made of y, x, c (so the older one) or c, y, x."""
    output, block = np.empty(desc.output_tensor.sizes, input_tensor.dtype), desc.block_size
    depth = _channels(desc, block, output.shape[1])
    for y, x in np.ndindex(block, block):
        as_bits(output)[:, :, y::block, x::block] = as_bits(input_tensor)[:, depth[y, x]]
    return output


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
    """Return the input indices along one dimension of output coordinates relative to the input's first element."""
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
    """Zeros, with each element at the position from which SLICE1 reads it."""
    gradient = input_gradient_tensor
    output = np.zeros(desc.output_gradient_tensor.sizes, gradient.dtype)
    places = walks(window_starts(desc), desc.input_window_strides, gradient.shape)
    as_bits(output)[places] = as_bits(gradient)
    return output
