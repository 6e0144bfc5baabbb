"""Operators that only rearrange elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DepthSpaceOrder
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


@reference(descs.Slice1)
def slice1(desc: descs.Slice1, input_tensor: Array) -> Array:
    """A strided window of the input; a negative stride walks the window from its end."""
    return _walk(input_tensor, window_starts(desc), desc.input_window_strides, desc.output_tensor.sizes)


@reference(descs.Slice)
def slice(desc: descs.Slice, input_tensor: Array) -> Array:
    """A strided box of the input."""
    return _walk(input_tensor, desc.offsets, desc.strides, desc.output_tensor.sizes)


def window_starts(desc: descs.Slice1 | descs.SliceGrad) -> list[int]:
    """Return the first element of each window's walk."""
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    return [offset + (size - 1 if stride < 0 else 0) for offset, size, stride in windows]


def _walk(array: Array, starts: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> Array:
    """``out[o] = array[starts + strides * o]`` for every coordinate o of ``sizes``."""
    return picked(array, walks(starts, strides, sizes))


def walks(starts: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> tuple[Array, ...]:
    """Return per dimension the places ``start + stride * o``, as NumPy's indexing takes them."""
    places = zip(starts, strides, sizes, strict=True)
    return np.ix_(*(start + stride * np.arange(size) for start, stride, size in places))


def picked(array: Array, places: tuple[Array, ...]) -> Array:
    """Return elements of an array, to the bit."""
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


@reference(descs.SpaceToDepth1)
def space_to_depth1(desc: descs.SpaceToDepth1, input_tensor: Array) -> Array:
    """``out[n, d, h, w] = input[n, c, h * B + y, w * B + x]``, d made of y, x, c or c, y, x."""
    return _to_depth(input_tensor, desc.block_size, desc.order)


@reference(descs.SpaceToDepth)
def space_to_depth(desc: descs.SpaceToDepth, input_tensor: Array) -> Array:
    """SPACE_TO_DEPTH1 with d = (y * B + x) * C + c."""
    return _to_depth(input_tensor, desc.block_size, DepthSpaceOrder.DEPTH_COLUMN_ROW)


@reference(descs.DepthToSpace1)
def depth_to_space1(desc: descs.DepthToSpace1, input_tensor: Array) -> Array:
    """``out[n, c, h * B + y, w * B + x] = input[n, d, h, w]``, d made of y, x, c or c, y, x."""
    return _to_space(input_tensor, desc.block_size, desc.order)


@reference(descs.DepthToSpace)
def depth_to_space(desc: descs.DepthToSpace, input_tensor: Array) -> Array:
    """DEPTH_TO_SPACE1 with d = (y * B + x) * C + c."""
    return _to_space(input_tensor, desc.block_size, DepthSpaceOrder.DEPTH_COLUMN_ROW)


def _channels(order: DepthSpaceOrder, block: int, channels: int) -> Array:
    """Return the channel on the side of depth of each (y, x, c)."""
    if order is DepthSpaceOrder.DEPTH_COLUMN_ROW:
        return np.arange(block * block * channels).reshape(block, block, channels)
    return np.arange(block * block * channels).reshape(channels, block, block).transpose(1, 2, 0)


def _to_depth(array: Array, block: int, order: DepthSpaceOrder) -> Array:
    batch, channels, height, width = array.shape
    output = np.empty((batch, channels * block * block, height // block, width // block), array.dtype)
    depth = _channels(order, block, channels)
    for y, x in np.ndindex(block, block):
        as_bits(output)[:, depth[y, x]] = as_bits(array)[:, :, y::block, x::block]
    return output


def _to_space(array: Array, block: int, order: DepthSpaceOrder) -> Array:
    batch, depths, height, width = array.shape
    output = np.empty((batch, depths // (block * block), height * block, width * block), array.dtype)
    depth = _channels(order, block, output.shape[1])
    for y, x in np.ndindex(block, block):
        as_bits(output)[:, :, y::block, x::block] = as_bits(array)[:, depth[y, x]]
    return output
