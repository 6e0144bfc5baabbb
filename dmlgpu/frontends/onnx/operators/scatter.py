"""Elements written at indices: Scatter with and without reductions, TensorScatter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import (
    add,
    broadcast_to,
    cast,
    choose,
    multiply,
    number_like,
    reshaped,
    sequence,
    spread,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

MAX_PAIRS = 2**27
"""Maximum pairs of an element and an update that are compared at once."""

_MAX_ROUNDS = 64

_REDUCTIONS: dict[str, tuple[ReduceFunction, Callable[..., Tensor]]] = {
    "add": (ReduceFunction.SUM, dml.add),
    "mul": (ReduceFunction.MULTIPLY, dml.multiply),
    "max": (ReduceFunction.MAX, dml.max),
    "min": (ReduceFunction.MIN, dml.min),
}


def _neutral(reduction: str, data_type: DataType) -> float:
    """Return the neutral element of a reduction."""
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    if data_type.is_float:
        return -math.inf if reduction == "max" else math.inf
    info = np.iinfo(data_type.numpy)
    return int(info.min if reduction == "max" else info.max)


def _reduction(node: OnnxNode) -> str:
    reduction = node.text("reduction", "none")
    if reduction != "none" and reduction not in _REDUCTIONS:
        raise node.rejection(f"reduction must be one of none, {', '.join(_REDUCTIONS)}, got {reduction!r}")
    # Sums of booleans are 0 or 1 as well: onnxruntime computes "or" and "and".
    return {"add": "max", "mul": "min"}.get(reduction, reduction) if node.value(0).is_bool else reduction


@operator("ScatterElements", "Scatter")
def scatter_elements(node: OnnxNode) -> OnnxValue:
    """Write single elements into a copy, each at its index along an axis."""
    reduction, shape = _reduction(node), node.shape(0)
    axis = node.axis(node.integer("axis"), len(shape))
    node.check_indices(1, shape[axis])
    x, where, updates = (node.tensor(index) for index in range(3))
    bounds = where.sizes
    extent = (*bounds[:axis], shape[axis], *bounds[axis + 1 :])
    head = x if extent == shape else dml.slice(x, (0,) * len(shape), extent)
    if reduction == "none":
        result = directml.scatter_elements(head, where, updates, axis=axis)
        return node.valued(_in_place(x, result), coded=node.value(0).coded)
    outer, inner = math.prod(bounds[:axis]), math.prod(bounds[axis + 1 :])
    result = _combined(
        node,
        reshaped(head, (outer, shape[axis], inner)),
        reshaped(_positive(where, shape[axis]), (outer, bounds[axis], inner)),
        reshaped(updates, (outer, bounds[axis], inner)),
        reduction,
    )
    return node.valued(_in_place(x, reshaped(result, head.sizes)))


def _in_place(x: Tensor, head: Tensor) -> Tensor:
    """Return a tensor with its leading block replaced."""
    for axis in reversed(range(len(x.sizes))):
        rest = x.sizes[axis] - head.sizes[axis]
        if rest:
            extent = [*head.sizes[:axis], rest, *head.sizes[axis + 1 :]]
            begin = [head.sizes[axis] if index == axis else 0 for index in range(len(extent))]
            head = dml.join([head, dml.slice(x, begin, extent)], axis)
    return head


def _positive(where: Tensor, size: int) -> Tensor:
    """Return indices with negative ones counted from the end."""
    if where.data_type in (DataType.UINT32, DataType.UINT64):
        return where
    return choose(spread(dml.less_than, where, 0), add(where, size), where)


def _combined(node: OnnxNode, x: Tensor, where: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """Return {outer, size, inner} combined with updates at indices along the middle.

    Every element is compared with every place, so that several updates of one element all count, in any number, and
    integers stay exact. Many updates are applied in rounds.

    Args:
        node: For messages.
        x: The elements.
        where: {outer, count, inner} or {outer, count, 1}, counted from the first.
        updates: {outer, count, inner}.
        reduction: The way they are combined.
    """
    outer, size, inner = x.sizes
    count, data_type = where.sizes[1], x.data_type
    function, combine = _REDUCTIONS[reduction]
    computed = data_type if data_type.is_float or data_type.bits >= 32 else DataType.INT32
    x, updates = cast(x, computed), cast(updates, computed)
    round_size = max(min(count, MAX_PAIRS // (outer * size * inner)), 1)
    if -(-count // round_size) > _MAX_ROUNDS:
        raise node.rejection(f"at most {_MAX_ROUNDS * MAX_PAIRS} pairs of an element and an update are compared")
    numbers = reshaped(sequence(x, (size,), where.data_type), (1, size, 1, 1))
    nothing = number_like(x, _neutral(reduction, computed))
    for begin in range(0, count, round_size):
        taken = min(round_size, count - begin)
        positions = dml.slice(where, (0, begin, 0), (outer, taken, where.sizes[2]))
        values = dml.slice(updates, (0, begin, 0), (outer, taken, inner))
        hits = spread(dml.equals, reshaped(positions, (outer, 1, taken, positions.sizes[2])), numbers)
        chosen = choose(hits, reshaped(values, (outer, 1, taken, inner)), nothing)
        x = combine(x, reshaped(dml.reduce(chosen, function, axes=(2,)), x.sizes))
    return cast(x, data_type)


@operator("ScatterND")
def scatter_nd(node: OnnxNode) -> OnnxValue:
    """Write slices into a copy at tuples of indices."""
    shapes, reduction = [node.shape(index) for index in range(3)], _reduction(node)
    if not shapes[0] or not shapes[1] or not 1 <= shapes[1][-1] <= len(shapes[0]):
        raise node.rejection(f"indices must name 1 to {len(shapes[0])} dimensions, got shape {list(shapes[1])}")
    shape, tuples = shapes[0], shapes[1][-1]
    if shapes[2] != shapes[1][:-1] + shape[tuples:]:
        raise node.rejection(f"updates must have shape {list(shapes[1][:-1] + shape[tuples:])}, got {list(shapes[2])}")
    node.check_range(1, tuple(-size for size in shape[:tuples]), tuple(size - 1 for size in shape[:tuples]), "indices")
    where = _flat_indices(node.tensor(1), shape[:tuples])
    size, inner, count = math.prod(shape[:tuples]), math.prod(shape[tuples:]), where.sizes[0]
    x = reshaped(node.tensor(0), (1, size, inner))
    updates = reshaped(node.tensor(2), (1, count, inner))
    if reduction != "none":
        result = _combined(node, x, reshaped(where, (1, count, 1)), updates, reduction)
    else:
        everywhere = broadcast_to(reshaped(where, (1, count, 1)), updates.sizes)
        result = directml.scatter_elements(x, everywhere, updates, axis=1)
    return node.valued(result, shape, coded=node.value(0).coded)


def _flat_indices(tuples: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return tuples of indices, the last dimension, as flat row-major indices {count}.

    A tuple with an index out of range becomes the index after the last element, so that its update is dropped.
    """
    count = math.prod(tuples.sizes[:-1])
    columns = dml.split(reshaped(tuples, (count, len(sizes))), 1, [1] * len(sizes)) if len(sizes) > 1 else [tuples]
    first, *others = (_positive(reshaped(column, (count,)), size) for column, size in zip(columns, sizes, strict=True))
    if not others:
        return first
    flat, inside = first, _is_between(first, sizes[0])
    for index, size in zip(others, sizes[1:], strict=True):
        flat = add(multiply(flat, size), index)
        inside = dml.logical_and(inside, _is_between(index, size))
    return choose(inside, flat, math.prod(sizes))


def _is_between(index: Tensor, size: int) -> Tensor:
    """Return a mask of the indices from 0 up to a size."""
    below = spread(dml.less_than, index, size)
    if index.data_type in (DataType.UINT32, DataType.UINT64):
        return below
    return dml.logical_and(spread(dml.greater_than_or_equal, index, 0), below)


@operator("TensorScatter", since=24)
def tensor_scatter(node: OnnxNode) -> OnnxValue:
    """Write new rows into a copy of a cache, after those of each sequence; wrap around if it is circular."""
    node.check_rank(1, len(node.shape(0)))
    cache, update = node.tensor(0), node.tensor(1)
    sizes, new = cache.sizes, update.sizes
    axis = node.axis(node.integer("axis", -2), len(sizes))
    mode = node.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.rejection(f"mode must be linear or circular, got {mode!r}")
    if axis == 0:
        raise node.rejection("axis must not be 0, the sequences'")
    if node.has(2):
        end = sizes[axis] if mode == "linear" else np.iinfo(np.int32).max  # places are INT32
        node.check_range(2, 0, int(end) - new[axis], "write_indices")
    rows = [1] * len(sizes)
    rows[axis] = new[axis]
    positions = dml.fill_value_sequence(node.builder, rows, DataType.INT32, 0, 1)
    rows[0] = sizes[0]
    positions = broadcast_to(positions, rows)
    if node.has(2):
        starts = dml.cast(reshaped(node.tensor(2), (sizes[0], *(1,) * (len(sizes) - 1))), DataType.INT32)
        positions = dml.add(positions, broadcast_to(starts, rows))
    if mode == "circular":
        count = node.constant([sizes[axis]], DataType.INT32)
        positions = dml.modulus_floor(positions, broadcast_to(reshaped(count, (1,) * len(sizes)), rows))
    indices = dml.identity(broadcast_to(positions, new))
    return node.valued(directml.scatter_elements(cache, indices, update, axis=axis))
