"""Parts that elements choose, so that sizes depend on them: Compress and Unique."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.onnx.compose import cast, number_like, sequence, subtract
from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

_MOST_COLUMNS = 64
"""Most elements of subtensors that Unique sorts, by one after the other."""


@operator("Compress", since=9)
def compress(node: Node) -> Value:
    """Take the parts along an axis for which a condition holds."""
    shape = node.shape(0)
    axis = node.attribute("axis")
    if axis is None:
        shape = (math.prod(shape),)
    number = 0 if axis is None else node.axis(int(axis), len(shape))
    node.check_rank(1, 1)
    count = min(shape[number], node.shape(1)[0])
    empty = node.known(
        np.zeros(
            (*shape[:number], 0, *shape[number + 1 :]), np.bool_ if node.value(0).is_bool else node.data_type(0).numpy
        )
    )
    if not count:
        return empty

    def chosen() -> list[Expression]:
        found = functions.nonzero_coordinates(dml.slice(node.tensor(1), (0,), (count,)))
        return [found.output_count, found.output_coordinates]

    total, places = node.finish(chosen)
    kept = int(node.read(total).reshape(-1)[0])
    if not kept:
        return empty
    where = dml.slice(node.expression(places), (0, 0), (kept, 1))
    x = reshaped(node.tensor(0), shape)
    found = functions.gather(x, reshaped(where, (*(1,) * (len(shape) - 1), kept)), axis=number, index_dimensions=1)
    return node.valued(found, is_bool=node.value(0).is_bool)


@operator("Unique", since=11)
def unique(node: Node) -> list[Value]:
    """Return elements or subtensors once each, where they come first, which ones all are, and how often they come.

    Rows are sorted, numbered by how many differ from the row before them, and each number's first row is taken.
    """
    shape, axis = node.shape(0), node.attribute("axis")
    number = 0 if axis is None else node.axis(int(axis), len(shape))
    rows = (math.prod(shape), 1) if axis is None else (shape[number], math.prod(shape) // shape[number])
    if rows[1] > _MOST_COLUMNS:
        raise node.refusal(f"subtensors of at most {_MOST_COLUMNS} elements are compared, got {rows[1]}")
    order, group, total, starts = node.finish(lambda: _grouped(_rows(node, number, rows)))
    count = int(node.read(total).reshape(-1)[0])
    order_now, group_now = node.expression(order), node.expression(group)
    begins = cast(reshaped(dml.slice(node.expression(starts), (0, 0), (count, 1)), (count,)), DataType.INT32)
    ends = number_like(begins, rows[0])
    if count > 1:
        ends = dml.join([dml.slice(begins, (1,), (count - 1,)), ends], 0)
    often = subtract(ends, begins)
    first = functions.gather(order_now, begins, axis=0, index_dimensions=1)
    inverse = functions.scatter_elements(group_now, order_now, group_now, axis=0)
    if not node.flag("sorted", True):
        _, turn = functions.top_k1(
            first, axis=0, k=count, axis_direction=AxisDirection.INCREASING, output_type=DataType.UINT32
        )
        turn = cast(turn, DataType.INT32)
        rank = functions.scatter_elements(turn, turn, sequence(turn, (count,), DataType.INT32), axis=0)
        first, often, inverse = (
            functions.gather(one, where, axis=0, index_dimensions=1)
            for one, where in ((first, turn), (often, turn), (rank, inverse))
        )
    x = reshaped(node.tensor(0), (rows[0],) if axis is None else shape)
    where = reshaped(first, (*(1,) * (len(x.sizes) - 1), count))
    parts = functions.gather(x, where, axis=number, index_dimensions=1)
    return [node.valued(parts), *(node.valued(cast(one, DataType.INT64)) for one in (first, inverse, often))]


def _rows(node: Node, axis: int, sizes: tuple[int, int]) -> Expression:
    """Return what is compared, a subtensor in each row."""
    x = node.tensor(0)
    if sizes[1] == 1:
        return reshaped(x, sizes)
    return reshaped(transposed(x, (axis, *(one for one in range(len(x.sizes)) if one != axis))), sizes)


def _grouped(rows: Expression) -> list[Expression]:
    """Return the order that sorts rows, the number of each sorted row's group, and count and places of first ones."""
    count, width = rows.sizes
    order: Expression | None = None
    for column in reversed(range(width)):
        keys = reshaped(dml.slice(rows, (0, column), (count, 1)), (count,))
        keys = keys if order is None else functions.gather(keys, order, axis=0, index_dimensions=1)
        _, turn = functions.top_k1(
            keys, axis=0, k=count, axis_direction=AxisDirection.INCREASING, output_type=DataType.UINT32
        )
        turn = cast(turn, DataType.INT32)
        order = turn if order is None else functions.gather(order, turn, axis=0, index_dimensions=1)
    assert order is not None
    starts = number_like(order, 1)
    if count > 1:
        ordered = functions.gather(rows, reshaped(order, (1, count)), axis=0, index_dimensions=1)
        earlier, later = (dml.slice(ordered, (begin, 0), (count - 1, width)) for begin in (0, 1))
        differs = cast(dml.logical_not(dml.equals(earlier, later)), DataType.INT32)
        differs = dml.reduce(differs, ReduceFunction.MAX, axes=(1,))
        starts = dml.join([starts, reshaped(differs, (count - 1,))], 0)
    group = dml.cumulative_summation(starts, axis=0, axis_direction=AxisDirection.INCREASING, has_exclusive_sum=False)
    found = functions.nonzero_coordinates(starts)
    return [order, subtract(group, 1), found.output_count, found.output_coordinates]
