"""Elements by index: Gather and its like, OneHot, NonZero."""

from __future__ import annotations

import numpy as np

from dmlgpu.builder import directmlx as dml
from dmlgpu.builder import functions
from dmlgpu.enums import DataType
from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value


@operator("Gather")
def gather(node: Node) -> Value:
    """Take parts along an axis; negative indices count from its end."""
    shape, indices = node.shape(0), node.shape(1)
    axis = node.axis(node.integer("axis"), len(shape))
    result = shape[:axis] + indices + shape[axis + 1 :]
    rank = max(len(shape), len(indices), len(result), 1)
    if rank > 8:
        raise node.refusal(f"results have at most 8 dimensions, got {rank}")
    x = reshaped(node.tensor(0), (*(1,) * (rank - len(shape)), *shape))
    where = reshaped(node.tensor(1), (*(1,) * (rank - len(indices)), *indices))
    found = functions.gather(x, where, axis=axis + rank - len(shape), index_dimensions=max(len(indices), 1))
    return node.valued(found, result)


@operator("GatherElements")
def gather_elements(node: Node) -> Value:
    """Take single elements, each by its place along an axis."""
    axis = node.axis(node.integer("axis"), len(node.shape(0)))
    x, where = node.tensor(0), node.tensor(1)
    extent = (*where.sizes[:axis], x.sizes[axis], *where.sizes[axis + 1 :])
    if extent != x.sizes:  # indices beside the axis are those of the input's beginning
        x = dml.slice(x, (0,) * len(extent), extent)
    return node.valued(functions.gather_elements(x, where, axis=axis))


@operator("GatherND")
def gather_nd(node: Node) -> Value:
    """Take parts by tuples of indices."""
    shape, indices = node.shape(0), node.shape(1)
    batch = node.integer("batch_dims")
    result = indices[:-1] + shape[batch + indices[-1] :]
    rank = max(len(shape), len(indices), len(result))
    if rank > 8:
        raise node.refusal(f"results have at most 8 dimensions, got {rank}")
    x = reshaped(node.tensor(0), (*(1,) * (rank - len(shape)), *shape))
    where = reshaped(node.tensor(1), (*(1,) * (rank - len(indices)), *indices))
    found = functions.gather_nd1(
        x,
        where,
        input_dimension_count=len(shape),
        indices_dimension_count=len(indices),
        batch_dimension_count=batch,
    )
    return node.valued(found, result)


@operator("NonZero")
def non_zero(node: Node) -> Value:
    """Return where elements are not 0: their number is known when they are counted."""
    shape = node.shape(0)

    def coordinates() -> tuple[dml.Expression, dml.Expression]:
        x = node.tensor(0)
        if x.data_type.bits == 64:
            zero = node.constant([0], x.data_type).broadcast_to(x.sizes)
            x = dml.logical_not(dml.equals(x, zero))
        found = functions.nonzero_coordinates(x)
        return found.output_count, found.output_coordinates

    count, places = node.finish(coordinates)
    found = int(node.read(count).reshape(-1)[0])
    rank = len(shape)
    if not found or not rank:
        return node.known(np.zeros((rank, found), np.int64))
    taken = dml.slice(node.expression(places), (0, 0), (found, rank))
    return node.valued(dml.cast(transposed(taken, (1, 0)), DataType.INT64))


@operator("OneHot")
def one_hot(node: Node) -> Value:
    """One value where an index says, the other elsewhere, along a new axis."""
    shape = node.shape(0)
    depth = int(node.host(1).reshape(-1)[0])
    axis = node.axis(node.integer("axis", -1), len(shape) + 1)
    indices = reshaped(node.tensor(0), (*shape[:axis], 1, *shape[axis:]))
    if indices.data_type.is_float or indices.data_type.bits < 32:
        indices = dml.cast(indices, DataType.INT64)
    sizes = (*shape[:axis], depth, *shape[axis:])
    values = reshaped(node.tensor(2), (*(1,) * (len(sizes) - 1), 2))
    return node.valued(functions.one_hot(indices, values, axis=axis, output_sizes=sizes))
