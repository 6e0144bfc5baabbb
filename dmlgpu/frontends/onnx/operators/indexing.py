"""Elements selected by indices or conditions: Gather and its like, OneHot, NonZero, Compress, Unique."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import (
    bits_as,
    broadcast_to,
    cast,
    number_like,
    reshaped,
    sequence,
    subtract,
    transposed,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import AS_FUNCTION, Result, Steps, operator
from dmlgpu.frontends.onnx.symbolic import as_integer
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor


@operator("Gather")
def gather(node: OnnxNode) -> OnnxValue:
    """Gather slices along an axis; negative indices count from its end."""
    axis = node.axis(node.integer("axis"), len(node.shape(0)))
    node.check_indices(1, node.shape(0)[axis])
    return gathered(node, 0, axis)


def gathered(node: OnnxNode, index: int, axis: int, data_type: DataType | None = None) -> OnnxValue:
    """Return slices of an input along an axis, at the indices in input 1.

    Args:
        node: The node.
        index: Index of the input.
        axis: The axis.
        data_type: Wider dtype as which slices are gathered, along the last axis; defaults to the input's.
    """
    shape, indices = node.shape(index), node.shape(1)
    if data_type is not None:
        shape = (*shape[:-1], shape[-1] * node.data_type(index).bits // data_type.bits)
    result = shape[:axis] + indices + shape[axis + 1 :]
    rank = max(len(shape), len(indices), len(result), 1)
    if rank > 8:
        raise node.rejection(f"results have at most 8 dimensions, got {rank}")
    where = reshaped(node.tensor(1), (*(1,) * (rank - len(indices)), *indices))
    pieces = node.pieces(index, axis)
    if data_type is not None:
        pieces = [bits_as(piece, (*piece.sizes[:-1], shape[-1]), data_type) for piece in pieces]
    pieces = [reshaped(piece, (*(1,) * (rank - len(shape)), *piece.sizes)) for piece in pieces]
    position, count = axis + rank - len(shape), max(len(indices), 1)

    def taken(piece: Tensor, own: Tensor) -> Tensor:
        return reshaped(directml.gather(piece, own, axis=position, index_dimensions=count), result or (1,))

    if len(pieces) == 1:
        return node.valued(taken(pieces[0], where), result)
    spread = (*(1,) * axis, *indices, *(1,) * (len(shape) - axis - 1))
    return node.valued(_from_pieces([piece.sizes[position] for piece in pieces], pieces, where, taken, spread), result)


def _from_pieces(
    sizes: Sequence[int],
    pieces: Sequence[Tensor],
    where: Tensor,
    taken: Callable[[Tensor, Tensor], Tensor],
    spread: Sequence[int],
) -> Tensor:
    """Gather from a tensor split into pieces: from every piece, then select the piece that contains the index.

    Args:
        sizes: Sizes of the parts.
        pieces: The parts.
        where: Indices into the tensor.
        taken: A function of a part and indices into it.
        spread: The sizes of the indices, broadcastable with the result.
    """
    graph, total = where.graph, sum(sizes)
    where = where if where.data_type is DataType.INT32 else dml.cast(where, DataType.INT32)
    where = dml.modulus_floor(where + total, graph.constant([total], DataType.INT32).broadcast_to(where.sizes))
    end = total
    result = None
    for size, piece in zip(reversed(sizes), reversed(pieces), strict=True):
        gathered = taken(piece, dml.clip(where - (end - size), 0, size - 1))
        if result is not None:
            inside = dml.less_than(where, graph.constant([end], DataType.INT32).broadcast_to(where.sizes))
            gathered = dml.if_(broadcast_to(reshaped(inside, spread or (1,)), gathered.sizes), gathered, result)
        result, end = gathered, end - size
    assert result is not None
    return result


@operator("GatherElements")
def gather_elements(node: OnnxNode) -> OnnxValue:
    """Gather single elements, each by its index along an axis."""
    axis = node.axis(node.integer("axis"), len(node.shape(0)))
    node.check_indices(1, node.shape(0)[axis])
    x, where = node.tensor(0), node.tensor(1)
    extent = (*where.sizes[:axis], x.sizes[axis], *where.sizes[axis + 1 :])
    if extent != x.sizes:  # along other axes, indices count from the beginning of the input
        x = dml.slice(x, (0,) * len(extent), extent)
    return node.valued(directml.gather_elements(x, where, axis=axis))


@operator("GatherND")
def gather_nd(node: OnnxNode) -> OnnxValue:
    """Gather slices by tuples of indices."""
    shape, indices = node.shape(0), node.shape(1)
    batch = node.integer("batch_dims")
    if not shape or not indices or not 0 <= batch < min(len(shape), len(indices)):
        raise node.rejection(
            f"tensors must have more than batch_dims={batch} dimensions, got {list(shape)} and {list(indices)}"
        )
    if not 1 <= indices[-1] <= len(shape) - batch or shape[:batch] != indices[:batch]:
        raise node.rejection(f"indices {list(indices)} do not fit {list(shape)} with batch_dims={batch}")
    sizes = shape[batch : batch + indices[-1]]
    node.check_range(1, tuple(-size for size in sizes), tuple(size - 1 for size in sizes), "indices")
    result = indices[:-1] + shape[batch + indices[-1] :]
    rank = max(len(shape), len(indices), len(result))
    if rank > 8:
        raise node.rejection(f"results have at most 8 dimensions, got {rank}")
    x = reshaped(node.tensor(0), (*(1,) * (rank - len(shape)), *shape))
    where = reshaped(node.tensor(1), (*(1,) * (rank - len(indices)), *indices))
    gathered = directml.gather_nd1(
        x,
        where,
        input_dimension_count=len(shape),
        indices_dimension_count=len(indices),
        batch_dimension_count=batch,
    )
    return node.valued(gathered, result)


@operator("NonZero")
def non_zero(node: OnnxNode) -> Steps:
    """Return the indices of nonzero elements; the host reads their number."""
    shape = node.shape(0)
    x = node.tensor(0)
    if x.data_type.bits == 64:
        zero = node.constant([0], x.data_type).broadcast_to(x.sizes)
        x = dml.logical_not(dml.equals(x, zero))
    nonzero = directml.nonzero_coordinates(x)
    count, indices = yield from node.computed(nonzero.output_count, nonzero.output_coordinates)
    total = as_integer(count.item())
    rank = len(shape)
    if not total or not rank:
        return node.known(np.zeros((rank, total), np.int64))
    taken = dml.slice(node.expression(indices), (0, 0), (total, rank))
    return node.valued(dml.cast(transposed(taken, (1, 0)), DataType.INT64))


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", since=12)
def loss(node: OnnxNode) -> Sequence[Result]:
    """ONNX's own body, for labels that name classes or are ignored."""
    ignored, shape = node.attribute("ignore_index"), node.shape(0)
    if len(shape) < 2 or node.shape(1) != (shape[0], *shape[2:]):
        raise node.rejection(
            f"inputs must be {{N, C, ...}} and {{N, ...}}, got {list(shape)} and {list(node.shape(1))}"
        )
    node.check_range(1, 0, shape[1] - 1, "labels", besides=ignored)
    return AS_FUNCTION


@operator("OneHot", host=(1,))
def one_hot(node: OnnxNode) -> OnnxValue:
    """Put one value at the index and another elsewhere, along a new axis."""
    shape = node.shape(0)
    depth = int(node.host_number(1))
    axis = node.axis(node.integer("axis", -1), len(shape) + 1)
    sizes = (*shape[:axis], depth, *shape[axis:])
    if depth < 0:
        raise node.rejection(f"depth must be at least 0, got {depth}")
    if 0 in sizes:
        return node.known(np.zeros(sizes, node.data_type(2).numpy))
    indices = reshaped(node.tensor(0), (*shape[:axis], 1, *shape[axis:]))
    if indices.data_type.is_float or indices.data_type.bits < 32:
        indices = dml.cast(indices, DataType.INT64)
    values = reshaped(node.tensor(2), (*(1,) * (len(sizes) - 1), 2))
    return node.valued(directml.one_hot(indices, values, axis=axis, output_sizes=sizes))


_MAX_COLUMNS = 64
"""Maximum number of elements of subtensors that Unique sorts, one element after the other."""


@operator("Compress", since=9)
def compress(node: OnnxNode) -> Steps:
    """Gather the slices along an axis whose condition is true."""
    shape = node.shape(0)
    axis = node.attribute("axis")
    if axis is None:
        shape = (math.prod(shape),)
    dimension = 0 if axis is None else node.axis(int(axis), len(shape))
    node.check_rank(1, 1)
    count = min(shape[dimension], node.shape(1)[0])
    empty = node.known(
        np.zeros(
            (*shape[:dimension], 0, *shape[dimension + 1 :]),
            np.bool_ if node.value(0).is_bool else node.data_type(0).numpy,
        )
    )
    if not count:
        return empty
    nonzero = directml.nonzero_coordinates(dml.slice(node.tensor(1), (0,), (count,)))
    total, indices = yield from node.computed(nonzero.output_count, nonzero.output_coordinates)
    remaining = as_integer(total.item())
    if not remaining:
        return empty
    where = dml.slice(node.expression(indices), (0, 0), (remaining, 1))
    x = reshaped(node.tensor(0), shape)
    parts = directml.gather(
        x, reshaped(where, (*(1,) * (len(shape) - 1), remaining)), axis=dimension, index_dimensions=1
    )
    return node.valued(parts, coded=node.value(0).coded)


@operator("Unique", since=11)
def unique(node: OnnxNode) -> Steps:
    """Return distinct elements or subtensors, their first indices, the inverse indices, and the counts.

    Rows are sorted and grouped; the first row of each group is taken.
    """
    shape, axis = node.shape(0), node.attribute("axis")
    dimension = 0 if axis is None else node.axis(int(axis), len(shape))
    rows = (math.prod(shape), 1) if axis is None else (shape[dimension], math.prod(shape) // shape[dimension])
    if rows[1] > _MAX_COLUMNS:
        raise node.rejection(f"subtensors of at most {_MAX_COLUMNS} elements are compared, got {rows[1]}")
    total, order, group, starts = yield from node.computed(*_grouped(_rows(node, dimension, rows)))
    count = as_integer(total.item())
    order_now, group_now = node.expression(order), node.expression(group)
    begins = cast(reshaped(dml.slice(node.expression(starts), (0, 0), (count, 1)), (count,)), DataType.INT32)
    ends = node.size(rows[0], DataType.INT32)
    if count > 1:
        ends = dml.join([dml.slice(begins, (1,), (count - 1,)), ends], 0)
    often = subtract(ends, begins)
    first = directml.gather(order_now, begins, axis=0, index_dimensions=1)
    inverse = directml.scatter_elements(group_now, order_now, group_now, axis=0)
    if not node.flag("sorted", True):
        _, turn = directml.top_k1(
            first, axis=0, k=count, axis_direction=AxisDirection.INCREASING, output_type=DataType.UINT32
        )
        turn = cast(turn, DataType.INT32)
        rank = directml.scatter_elements(turn, turn, sequence(turn, (count,), DataType.INT32), axis=0)
        first, often, inverse = (
            directml.gather(table, where, axis=0, index_dimensions=1)
            for table, where in ((first, turn), (often, turn), (rank, inverse))
        )
    x = reshaped(node.tensor(0), (rows[0],) if axis is None else shape)
    where = reshaped(first, (*(1,) * (len(x.sizes) - 1), count))
    parts = directml.gather(x, where, axis=dimension, index_dimensions=1)
    return [node.valued(parts), *(node.valued(cast(indices, DataType.INT64)) for indices in (first, inverse, often))]


def _rows(node: OnnxNode, axis: int, sizes: tuple[int, int]) -> Tensor:
    """Return the compared subtensors, one per row."""
    x = node.tensor(0)
    if sizes[1] == 1:
        return reshaped(x, sizes)
    return reshaped(transposed(x, (axis, *(other for other in range(len(x.sizes)) if other != axis))), sizes)


def _grouped(rows: Tensor) -> list[Tensor]:
    """Return the sorting order of rows, each sorted row's group, and the number and indices of first rows."""
    count, width = rows.sizes
    order: Tensor | None = None
    for column in reversed(range(width)):
        keys = reshaped(dml.slice(rows, (0, column), (count, 1)), (count,))
        keys = keys if order is None else directml.gather(keys, order, axis=0, index_dimensions=1)
        _, turn = directml.top_k1(
            keys, axis=0, k=count, axis_direction=AxisDirection.INCREASING, output_type=DataType.UINT32
        )
        turn = cast(turn, DataType.INT32)
        order = turn if order is None else directml.gather(order, turn, axis=0, index_dimensions=1)
    assert order is not None
    starts = number_like(order, 1)
    if count > 1:
        ordered = directml.gather(rows, reshaped(order, (1, count)), axis=0, index_dimensions=1)
        earlier, later = (dml.slice(ordered, (begin, 0), (count - 1, width)) for begin in (0, 1))
        differs = cast(dml.logical_not(dml.equals(earlier, later)), DataType.INT32)
        differs = dml.reduce(differs, ReduceFunction.MAX, axes=(1,))
        starts = dml.join([starts, reshaped(differs, (count - 1,))], 0)
    group = dml.cumulative_summation(starts, axis=0, axis_direction=AxisDirection.INCREASING, has_exclusive_sum=False)
    firsts = directml.nonzero_coordinates(starts)
    return [firsts.output_count, order, subtract(group, 1), firsts.output_coordinates]
