"""Elements by index: Gather and its like, OneHot, NonZero."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.registry import AS_FUNCTION, Result, operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


@operator("Gather")
def gather(node: Node) -> Value:
    """Take parts along an axis; negative indices count from its end."""
    shape, indices = node.shape(0), node.shape(1)
    axis = node.axis(node.integer("axis"), len(shape))
    node.check_indices(1, shape[axis])
    result = shape[:axis] + indices + shape[axis + 1 :]
    rank = max(len(shape), len(indices), len(result), 1)
    if rank > 8:
        raise node.refusal(f"results have at most 8 dimensions, got {rank}")
    where = reshaped(node.tensor(1), (*(1,) * (rank - len(indices)), *indices))
    pieces = [reshaped(one, (*(1,) * (rank - len(shape)), *one.sizes)) for one in node.pieces(0, axis)]
    place, count = axis + rank - len(shape), max(len(indices), 1)

    def taken(piece: Expression, own: Expression) -> Expression:
        return reshaped(functions.gather(piece, own, axis=place, index_dimensions=count), result or (1,))

    if len(pieces) == 1:
        return node.valued(taken(pieces[0], where), result)
    spread = (*(1,) * axis, *indices, *(1,) * (len(shape) - axis - 1))
    return node.valued(_from_pieces([one.sizes[place] for one in pieces], pieces, where, taken, spread), result)


def _from_pieces(
    sizes: Sequence[int],
    pieces: Sequence[Expression],
    where: Expression,
    taken: Callable[[Expression, Expression], Expression],
    spread: Sequence[int],
) -> Expression:
    """Return what is taken from pieces of these sizes, one behind the other: from each, and then the one that is meant.

    Args:
        sizes: of the pieces.
        pieces: the parts of a tensor.
        where: indices into the whole.
        taken: a function of a piece and indices into it.
        spread: the sizes of the indices beside the result.
    """
    graph, whole = where.graph, sum(sizes)
    where = where if where.data_type is DataType.INT32 else dml.cast(where, DataType.INT32)
    where = dml.modulus_floor(where + whole, graph.constant([whole], DataType.INT32).broadcast_to(where.sizes))
    end = whole
    found = None
    for size, piece in zip(reversed(sizes), reversed(pieces), strict=True):
        part = taken(piece, dml.clip(where - (end - size), 0, size - 1))
        if found is not None:
            inside = dml.less_than(where, graph.constant([end], DataType.INT32).broadcast_to(where.sizes))
            part = dml.if_(broadcast_to(reshaped(inside, spread or (1,)), part.sizes), part, found)
        found, end = part, end - size
    assert found is not None
    return found


@operator("GatherElements")
def gather_elements(node: Node) -> Value:
    """Take single elements, each by its place along an axis."""
    axis = node.axis(node.integer("axis"), len(node.shape(0)))
    node.check_indices(1, node.shape(0)[axis])
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
    if not shape or not indices or not 0 <= batch < min(len(shape), len(indices)):
        raise node.refusal(
            f"tensors must have more than batch_dims={batch} dimensions, got {list(shape)} and {list(indices)}"
        )
    if not 1 <= indices[-1] <= len(shape) - batch or shape[:batch] != indices[:batch]:
        raise node.refusal(f"indices {list(indices)} do not fit {list(shape)} with batch_dims={batch}")
    sizes = shape[batch : batch + indices[-1]]
    node.check_range(1, tuple(-size for size in sizes), tuple(size - 1 for size in sizes), "indices")
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


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", since=12)
def loss(node: Node) -> Sequence[Result]:
    """ONNX's own body, for labels that name classes or are ignored."""
    ignored, shape = node.attribute("ignore_index"), node.shape(0)
    if len(shape) < 2 or node.shape(1) != (shape[0], *shape[2:]):
        raise node.refusal(f"inputs must be {{N, C, ...}} and {{N, ...}}, got {list(shape)} and {list(node.shape(1))}")
    node.check_range(1, 0, shape[1] - 1, "labels", besides=ignored)
    return AS_FUNCTION


@operator("OneHot")
def one_hot(node: Node) -> Value:
    """One value where an index says, the other elsewhere, along a new axis."""
    shape = node.shape(0)
    depth = int(node.host_number(1))
    axis = node.axis(node.integer("axis", -1), len(shape) + 1)
    sizes = (*shape[:axis], depth, *shape[axis:])
    if depth < 0:
        raise node.refusal(f"depth must be at least 0, got {depth}")
    if 0 in sizes:
        return node.known(np.zeros(sizes, node.data_type(2).numpy))
    indices = reshaped(node.tensor(0), (*shape[:axis], 1, *shape[axis:]))
    if indices.data_type.is_float or indices.data_type.bits < 32:
        indices = dml.cast(indices, DataType.INT64)
    values = reshaped(node.tensor(2), (*(1,) * (len(sizes) - 1), 2))
    return node.valued(functions.one_hot(indices, values, axis=axis, output_sizes=sizes))
