"""Det: determinants of matrices."""

from __future__ import annotations

import math

from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.frontends.onnx.compose import cast, choose, divide, multiply, sequence, spread, subtract
from dmlgpu.frontends.onnx.node import Node, reshaped
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

_MOST_ROWS = 64


@operator("Det", since=11)
def determinant(node: Node) -> Value:
    """Eliminate column by column, each by the row with the largest element in it."""
    shape = node.shape(0)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] > _MOST_ROWS:
        raise node.refusal(f"matrices must be square, of at most {_MOST_ROWS} rows, got shape {list(shape)}")
    kept, batch = node.data_type(0), math.prod(shape[:-2])
    matrix = reshaped(cast(node.tensor(0), DataType.FLOAT32), (batch, *shape[-2:]))
    found: Expression | None = None
    for size in range(shape[-1], 0, -1):
        factor, matrix = _eliminated(matrix, size)
        found = factor if found is None else multiply(found, factor)
    assert found is not None
    return node.valued(cast(found, kept), shape[:-2])


def _eliminated(matrix: Expression, size: int) -> tuple[Expression, Expression]:
    """Return the factor {B, 1, 1} that one step of elimination adds, and what is left, a row and a column less."""
    batch = matrix.sizes[0]
    if size == 1:
        return matrix, matrix
    column = dml.abs(dml.slice(matrix, (0, 0, 0), (batch, size, 1)))
    best = functions.argmax(
        column, axes=(1,), axis_direction=AxisDirection.INCREASING, output_type=DataType.INT32
    )  # {B, 1, 1}
    row = functions.gather_nd1(
        matrix,
        reshaped(best, (1, batch, 1)),
        input_dimension_count=3,
        indices_dimension_count=2,
        batch_dimension_count=1,
    )
    row = reshaped(row, (batch, 1, size))
    numbers = sequence(matrix, (1, size, 1), DataType.INT32)
    first = dml.slice(matrix, (0, 0, 0), (batch, 1, size))
    swapped = choose(spread(dml.equals, numbers, best), first, matrix)
    rest = dml.slice(swapped, (0, 1, 0), (batch, size - 1, size))
    pivot = dml.slice(row, (0, 0, 0), (batch, 1, 1))
    divisor = choose(spread(dml.equals, pivot, 0.0), 1.0, pivot)
    factors = divide(dml.slice(rest, (0, 0, 0), (batch, size - 1, 1)), divisor)
    beside = dml.slice(row, (0, 0, 1), (batch, 1, size - 1))
    left = subtract(dml.slice(rest, (0, 0, 1), (batch, size - 1, size - 1)), multiply(factors, beside))
    return choose(spread(dml.equals, best, 0), pivot, dml.negate(pivot)), left
