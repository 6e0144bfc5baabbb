"""Short forms for translators that compose operators: arithmetic with broadcasting, and numbers as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.node import broadcast_to, reshaped
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


def spread(function: Callable[..., Expression], *given: Expression | float) -> Expression:
    """Apply an operator to tensors that broadcast as NumPy's; numbers take the type of the first tensor."""
    first = next(one for one in given if isinstance(one, Expression))
    tensors = [one if isinstance(one, Expression) else number_like(first, one) for one in given]
    sizes = np.broadcast_shapes(*(one.sizes for one in tensors))
    return function(*(broadcast_to(one, sizes) for one in tensors))


def number_like(like: Expression, number: float, data_type: DataType | None = None) -> Expression:
    """Return a number as a tensor {1} of the graph and the type of another."""
    kind = data_type or like.data_type
    return like.graph.constant(np.array([number], kind.numpy), kind)


def add(a: Expression, b: Expression | float) -> Expression:
    """a + b; a number beside floats is the bias of one operator, as in the functions that follow."""
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
    """Return a where a condition is not 0, else b; one of them is a tensor, of whose type the other is."""
    first = next(one for one in (a, b) if isinstance(one, Expression))
    tensors = [one if isinstance(one, Expression) else number_like(first, one) for one in (a, b)]
    return spread(dml.if_, condition, *tensors)


def cast(given: Expression, data_type: DataType) -> Expression:
    """Return elements in a type, as they are where they have it."""
    return given if given.data_type is data_type else dml.cast(given, data_type)


def sequence(like: Expression, sizes: Sequence[int], data_type: DataType, start: int = 0, step: int = 1) -> Expression:
    """Return start, start + step, ... in sizes, in row-major order."""
    return dml.fill_value_sequence(like.graph, sizes, data_type, start, step)


def taken(x: Expression, where: Expression) -> Expression:
    """Return rows of a matrix {rows, n} by a list of numbers: {count, n}."""
    return functions.gather(x, reshaped(where, (1, where.sizes[-1])), axis=0, index_dimensions=1)


def doublings(count: Expression) -> Expression:
    """Return how often 1 must be doubled to be at least each number {n} of INT32, {n, 1}.

    The host reads that, not the numbers, so that few of them lead to graphs of their own.
    """
    powers = count.graph.constant([[2**one for one in range(31)]], DataType.INT32)
    larger = spread(dml.greater_than, reshaped(count, (*count.sizes, 1)), powers)
    return dml.reduce(cast(larger, DataType.INT32), ReduceFunction.SUM, axes=(1,))
