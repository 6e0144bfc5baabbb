"""Expressions of graphs: shapes, arithmetic with broadcasting, numbers as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression, Number


def broadcast_to(expression: Expression, sizes: Sequence[int]) -> Expression:
    """Return an expression with these sizes, repeated by strides of 0 if it has 1 or no dimension."""
    return expression if expression.sizes == tuple(sizes) else expression.broadcast_to(sizes)


def reshaped(expression: Expression, sizes: Sequence[int]) -> Expression:
    """Return the elements in order with other sizes, at least one; a strided expression is copied first."""
    if expression.sizes == tuple(sizes):
        return expression
    return (expression if expression.desc.is_packed else dml.identity(expression)).reinterpret(sizes)


def transposed(expression: Expression, order: Sequence[int]) -> Expression:
    """Return the dimensions in another order, by strides."""
    strides = expression.desc.element_strides
    return expression.reinterpret([expression.sizes[axis] for axis in order], [strides[axis] for axis in order])


def unowned(expression: Expression) -> Expression:
    """Return a tensor for an operator that takes no OWNED_BY_DML input: a weight is copied once, at initialization."""
    return dml.identity(expression) if expression.desc.owned_by_dml else expression


def spread(function: Callable[..., Expression], *operands: Expression | float) -> Expression:
    """Apply an operator to tensors that broadcast as NumPy's; numbers take the type of the first tensor."""
    first = next(operand for operand in operands if isinstance(operand, Expression))
    tensors = [operand if isinstance(operand, Expression) else number_like(first, operand) for operand in operands]
    sizes = np.broadcast_shapes(*(tensor.sizes for tensor in tensors))
    return function(*(broadcast_to(tensor, sizes) for tensor in tensors))


def number_like(like: Expression, number: float, data_type: DataType | None = None) -> Expression:
    """Return a number as a tensor {1} of the graph and the type of another."""
    kind = data_type or like.data_type
    return like.graph.constant(np.array([number], kind.numpy), kind)


def same(like: Expression, number: Number) -> Expression:
    """Return a number as a tensor of the type and sizes of another, which has at least 8 bits to an element."""
    return like.graph.constant(np.array([number], like.data_type.numpy)).broadcast_to(like.sizes)


def add(a: Expression, b: Expression | float) -> Expression:
    """a + b; a number added to floats becomes the bias of one operator, as in the following functions."""
    return spread(dml.add, a, b) if isinstance(b, Expression) else a + b


def subtract(a: Expression | float, b: Expression | float) -> Expression:
    """a - b."""
    if isinstance(a, Expression) and isinstance(b, Expression):
        return spread(dml.subtract, a, b)
    return a - b  # type: ignore[return-value]


def multiply(a: Expression, b: Expression | float) -> Expression:
    """a * b."""
    return spread(dml.multiply, a, b) if isinstance(b, Expression) else a * b


def divide(a: Expression | float, b: Expression | float) -> Expression:
    """a / b."""
    if isinstance(a, Expression) and isinstance(b, Expression):
        return spread(dml.divide, a, b)
    return a / b  # type: ignore[return-value]


def choose(condition: Expression, a: Expression | float, b: Expression | float) -> Expression:
    """Return a where a condition is not 0, else b. At least one is a tensor, whose type the other gets."""
    first = next(value for value in (a, b) if isinstance(value, Expression))
    tensors = [value if isinstance(value, Expression) else number_like(first, value) for value in (a, b)]
    return spread(dml.if_, condition, *tensors)


def cast(x: Expression, data_type: DataType) -> Expression:
    """Return elements in a type, as they are if they have it."""
    return x if x.data_type is data_type else dml.cast(x, data_type)


def sequence(like: Expression, sizes: Sequence[int], data_type: DataType, start: int = 0, step: int = 1) -> Expression:
    """Return start, start + step, ... in sizes, in row-major order."""
    return dml.fill_value_sequence(like.graph, sizes, data_type, start, step)


def taken(x: Expression, where: Expression) -> Expression:
    """Return rows of a matrix {rows, n} by a list of numbers: {count, n}."""
    return functions.gather(x, reshaped(where, (1, where.sizes[-1])), axis=0, index_dimensions=1)


def doublings(count: Expression) -> Expression:
    """Return how often 1 must be doubled to reach each number {n} of INT32, {n, 1}.

    The host reads this instead of the numbers, so that few values lead to different graphs.
    """
    powers = count.graph.constant([[2**exponent for exponent in range(31)]], DataType.INT32)
    larger = spread(dml.greater_than, reshaped(count, (*count.sizes, 1)), powers)
    return dml.reduce(cast(larger, DataType.INT32), ReduceFunction.SUM, axes=(1,))
