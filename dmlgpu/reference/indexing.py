"""Operators that read or write at indices in a tensor, or by lengths in one.

Indices outside a dimension are undocumented; here a gather yields 0 for them and a scatter drops the update. Signed
indices count from the end when negative: signed index types exist from feature level 3_0 on, and so does this rule.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.elementwise import as_bits
from dmlgpu.reference.registry import Array, reference


def _positions(indices: Array, extent: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return indices into a dimension of ``extent``, 0 for those outside, and a mask of those inside."""
    if indices.dtype.kind == "u":
        positions = np.minimum(indices, indices.dtype.type(extent)).astype(np.int64)  # UINT64 may exceed int64
    else:
        positions = indices.astype(np.int64)
        positions = np.where(positions < 0, positions + extent, positions)
    inside = (positions >= 0) & (positions < extent)
    return np.where(inside, positions, 0), inside


def last_dimensions(array: Array, count: int) -> Array:
    """Return the view of the last ``count`` dimensions; those before have size 1."""
    return array.reshape(array.shape[array.ndim - count :])


def _zero_outside(gathered: Array, inside: NDArray[np.bool_]) -> Array:
    """Return the array with zeros where ``inside``, which lacks the last dimensions, is false."""
    mask = inside.reshape(inside.shape + (1,) * (gathered.ndim - inside.ndim))
    return np.where(mask, gathered, gathered.dtype.type(0))


@reference(descs.Gather)
def gather(desc: descs.Gather, input_tensor: Array, indices_tensor: Array) -> Array:
    """``out[a, j, b] = input[a, indices[j], b]``, a and b the coordinates before and after the axis."""
    indices = last_dimensions(indices_tensor, desc.index_dimensions)
    positions, inside = _positions(indices, input_tensor.shape[desc.axis])
    blocks = np.moveaxis(as_bits(input_tensor), desc.axis, 0)[positions]
    picked = np.moveaxis(_zero_outside(blocks, inside), range(indices.ndim), range(desc.axis, desc.axis + indices.ndim))
    return np.ascontiguousarray(picked).view(input_tensor.dtype).reshape(desc.output_tensor.sizes)


@reference(descs.GatherElements)
def gather_elements(desc: descs.GatherElements, input_tensor: Array, indices_tensor: Array) -> Array:
    """``out[c] = input[c with c[axis] = indices[c]]``."""
    positions, inside = _positions(indices_tensor, input_tensor.shape[desc.axis])
    gathered = np.take_along_axis(as_bits(input_tensor), positions, desc.axis)
    return _zero_outside(gathered, inside).view(input_tensor.dtype)


def _gather_nd(source: Array, indices: Array, batch_dimension_count: int) -> Array:
    """``out[n, j] = source[n, indices[n, j, 0], ..., indices[n, j, k - 1]]``, n the batch coordinates."""
    *leading, tuple_size = indices.shape
    lookup: list[Array] = list(np.indices(leading, sparse=True)[:batch_dimension_count])
    inside = np.ones(leading, bool)
    for position in range(tuple_size):
        extent = source.shape[batch_dimension_count + position]
        positions, valid = _positions(indices[..., position], extent)
        lookup.append(positions)
        inside &= valid
    return _zero_outside(np.asarray(as_bits(source)[tuple(lookup)]), inside).view(source.dtype)


@reference(descs.GatherNd1, descs.GatherNd)
def gather_nd1(desc: descs.GatherNd1 | descs.GatherNd, input_tensor: Array, indices_tensor: Array) -> Array:
    """GATHER_ND with leading batch dimensions shared by input, indices and output."""
    source = last_dimensions(input_tensor, desc.input_dimension_count)
    indices = last_dimensions(indices_tensor, desc.indices_dimension_count)
    batch = getattr(desc, "batch_dimension_count", 0)
    return _gather_nd(source, indices, batch).reshape(desc.output_tensor.sizes)


def _last_of_each(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the last occurrence of each place."""
    _, from_end = np.unique(places[::-1], return_index=True)
    return places.size - 1 - from_end


@reference(descs.ScatterElements)
def scatter_elements(
    desc: descs.ScatterElements, input_tensor: Array, indices_tensor: Array, updates_tensor: Array
) -> Array:
    """A copy of the input, then one element overwritten per update.

    Where several updates hit one element, the last in row-major order stays (DirectML calls such input invalid).
    """
    positions, inside = _positions(indices_tensor, input_tensor.shape[desc.axis])
    coordinates = list(np.broadcast_arrays(*np.indices(indices_tensor.shape, sparse=True)))
    coordinates[desc.axis] = positions
    places = np.ravel_multi_index(tuple(c[inside] for c in coordinates), input_tensor.shape)
    last = _last_of_each(places)
    output = as_bits(input_tensor).reshape(math.prod(input_tensor.shape)).copy()
    output[places[last]] = as_bits(updates_tensor)[inside][last]
    return output.view(input_tensor.dtype).reshape(input_tensor.shape)


@reference(descs.ScatterNd)
def scatter_nd(desc: descs.ScatterNd, input_tensor: Array, indices_tensor: Array, updates_tensor: Array) -> Array:
    """A copy of the input, then one block overwritten per coordinate tuple; the last of several updates stays."""
    sizes = input_tensor.shape[input_tensor.ndim - desc.input_dimension_count :]
    tuples = last_dimensions(indices_tensor, desc.indices_dimension_count)
    tuples = tuples.reshape(-1, tuples.shape[-1])
    length = tuples.shape[1]
    by_dimension = [_positions(tuples[:, d], sizes[d]) for d in range(length)]
    inside = np.logical_and.reduce([valid for _, valid in by_dimension])
    places = np.ravel_multi_index(tuple(positions[inside] for positions, _ in by_dimension), sizes[:length])
    last = _last_of_each(places)
    output = as_bits(input_tensor).reshape(math.prod(sizes[:length]), math.prod(sizes[length:])).copy()
    output[places[last]] = as_bits(updates_tensor).reshape(tuples.shape[0], -1)[inside][last]
    return output.view(input_tensor.dtype).reshape(input_tensor.shape)


@reference(descs.OneHot)
def one_hot(desc: descs.OneHot, indices_tensor: Array, values_tensor: Array) -> Array:
    """The on value at each index along the axis, else the off value; all off for an index outside."""
    sizes = desc.output_tensor.sizes
    positions, inside = _positions(indices_tensor, sizes[desc.axis])
    places = np.arange(sizes[desc.axis]).reshape([-1 if d == desc.axis else 1 for d in range(len(sizes))])
    off, on = as_bits(values_tensor).ravel()[:2]
    return np.where((places == positions) & inside, on, off).view(values_tensor.dtype)


@reference(descs.ReverseSubsequences)
def reverse_subsequences(desc: descs.ReverseSubsequences, input_tensor: Array, sequence_lengths_tensor: Array) -> Array:
    """The first elements of each line in reverse order, the others unchanged."""
    size = input_tensor.shape[desc.axis]
    lengths = np.minimum(sequence_lengths_tensor, sequence_lengths_tensor.dtype.type(size)).astype(np.int64)
    places = np.arange(size).reshape([-1 if d == desc.axis else 1 for d in range(input_tensor.ndim)])
    mirrored = np.where(places < lengths, lengths - 1 - places, places)
    return np.take_along_axis(as_bits(input_tensor), mirrored, desc.axis).view(input_tensor.dtype)
