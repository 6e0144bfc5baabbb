"""Operators that read or write at places given by an index tensor.

Indices outside a dimension are undocumented; here a gather yields 0 for them and a scatter drops the update. Signed
indices count from the end when negative: signed index types exist from feature level 3_0 on, and so does this rule.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.reference.bits import as_bits
from dmlgpu.reference.registry import reference

Array = NDArray[Any]


def _positions(indices: Array, extent: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Indices into a dimension of ``extent`` as positions from 0 on, and which of them lie inside; others become 0."""
    if indices.dtype.kind == "u":
        positions = np.minimum(indices, indices.dtype.type(extent)).astype(np.int64)  # UINT64 may exceed int64
    else:
        positions = indices.astype(np.int64)
        positions = np.where(positions < 0, positions + extent, positions)
    inside = (positions >= 0) & (positions < extent)
    return np.where(inside, positions, 0), inside


def _last_dimensions(array: Array, count: int) -> Array:
    """The view of the last ``count`` dimensions; those before have size 1."""
    return array[(0,) * (array.ndim - count)]


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
    gathered = np.asarray(as_bits(source)[tuple(lookup)])
    mask = inside.reshape(inside.shape + (1,) * (gathered.ndim - inside.ndim))
    return np.where(mask, gathered, gathered.dtype.type(0)).view(source.dtype)


@reference(descs.GatherNd1)
def gather_nd1(desc: descs.GatherNd1, input_tensor: Array, indices_tensor: Array) -> Array:
    """GATHER_ND with leading batch dimensions shared by input, indices and output."""
    source = _last_dimensions(input_tensor, desc.input_dimension_count)
    indices = _last_dimensions(indices_tensor, desc.indices_dimension_count)
    return _gather_nd(source, indices, desc.batch_dimension_count).reshape(desc.output_tensor.sizes)


@reference(descs.GatherNd)
def gather_nd(desc: descs.GatherNd, input_tensor: Array, indices_tensor: Array) -> Array:
    """Sub-blocks of the input, picked by the coordinate tuples in the last dimension of the indices."""
    source = _last_dimensions(input_tensor, desc.input_dimension_count)
    indices = _last_dimensions(indices_tensor, desc.indices_dimension_count)
    return _gather_nd(source, indices, 0).reshape(desc.output_tensor.sizes)


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
    targets = np.ravel_multi_index(tuple(c[inside] for c in coordinates), input_tensor.shape)
    output = as_bits(input_tensor).reshape(math.prod(input_tensor.shape)).copy()
    # Assigning through a flat list of repeated indices leaves the last value; the mask kept row-major order.
    output[targets] = as_bits(updates_tensor)[inside]
    return output.view(input_tensor.dtype).reshape(input_tensor.shape)
