"""Expressions of graphs: shapes, arithmetic with broadcasting, numbers as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmlgpu.catalog.enums import DataType, ReduceFunction, as_elements
from dmlgpu.compiler.sizes.arithmetic import is_broadcastable, is_same_size
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Number = int | float


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast; as NumPy's, but of symbolic sizes too.

    Raises:
        ValueError: If they do not broadcast.
    """
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, size in enumerate(shape, len(result) - len(shape)):
            if is_same_size(result[axis], 1):
                result[axis] = size
            if size < 0 or not is_broadcastable(size, result[axis]):
                raise ValueError(f"shapes do not broadcast: {shapes}")
    return tuple(result)


def has_sizes(expression: Tensor, sizes: Sequence[int]) -> bool:
    """Return whether an expression has these sizes. Symbolic sizes are compared only if the ranks are equal."""
    return len(expression.sizes) == len(sizes) and all(map(is_same_size, expression.sizes, sizes))


def broadcast_to(expression: Tensor, sizes: Sequence[int]) -> Tensor:
    """Broadcast an expression to these sizes by strides of 0."""
    return expression if has_sizes(expression, sizes) else expression.broadcast_to(sizes)


def reshaped(expression: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the elements in order with other sizes, at least one; a strided expression is copied first."""
    if has_sizes(expression, sizes):
        return expression
    return (expression if expression.desc.is_packed else dml.identity(expression)).reinterpret(sizes)


def bits_as(x: Tensor, sizes: Sequence[int], data_type: DataType) -> Tensor:
    """Return the bits of a tensor as elements of another width."""
    return (x if x.desc.is_packed else dml.identity(x)).reinterpret(sizes, None, data_type)


def transposed(expression: Tensor, order: Sequence[int]) -> Tensor:
    """Return the dimensions in another order, by strides."""
    strides = expression.desc.element_strides
    return expression.reinterpret([expression.sizes[axis] for axis in order], [strides[axis] for axis in order])


def unowned(expression: Tensor) -> Tensor:
    """Return a tensor for an operator that rejects OWNED_BY_DML inputs: a weight is copied once, at initialization."""
    return dml.identity(expression) if expression.desc.owned_by_dml else expression


def spread(function: Callable[..., Tensor], *operands: Tensor | float) -> Tensor:
    """Apply an operator to tensors that broadcast as NumPy's; numbers take the type of the first tensor."""
    first = next(operand for operand in operands if isinstance(operand, Tensor))
    tensors = [operand if isinstance(operand, Tensor) else number_like(first, operand) for operand in operands]
    sizes = broadcast_shapes(*(tensor.sizes for tensor in tensors))
    return function(*(broadcast_to(tensor, sizes) for tensor in tensors))


def number_like(like: Tensor, number: float, data_type: DataType | None = None) -> Tensor:
    """Return a number as a tensor {1} of the graph and the type of another."""
    kind = data_type or like.data_type
    return like.graph.constant(as_elements(kind, [number]), kind)


def same(like: Tensor, number: Number) -> Tensor:
    """Return a number as a tensor of the type and sizes of another, whose elements have at least 8 bits."""
    return like.graph.constant(as_elements(like.data_type, [number])).broadcast_to(like.sizes)


def add(a: Tensor, b: Tensor | float) -> Tensor:
    """a + b; a number added to floats becomes the bias of one operator, as in the following functions."""
    return spread(dml.add, a, b) if isinstance(b, Tensor) else a + b


def subtract(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a - b."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return spread(dml.subtract, a, b)
    return a - b  # type: ignore[return-value]


def multiply(a: Tensor, b: Tensor | float) -> Tensor:
    """a * b."""
    return spread(dml.multiply, a, b) if isinstance(b, Tensor) else a * b


def divide(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a / b."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return spread(dml.divide, a, b)
    return a / b  # type: ignore[return-value]


def choose(condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """Return a where a condition is not 0, else b. At least one is a tensor, whose type the other gets."""
    first = next(value for value in (a, b) if isinstance(value, Tensor))
    tensors = [value if isinstance(value, Tensor) else number_like(first, value) for value in (a, b)]
    return spread(dml.if_, condition, *tensors)


def cast(x: Tensor, data_type: DataType) -> Tensor:
    """Cast elements to a type; return a tensor of that type unchanged."""
    return x if x.data_type is data_type else dml.cast(x, data_type)


def sequence(like: Tensor, sizes: Sequence[int], data_type: DataType, start: int = 0, step: int = 1) -> Tensor:
    """Return start, start + step, ... in sizes, in row-major order."""
    return dml.fill_value_sequence(like.graph, sizes, data_type, start, step)


def taken(x: Tensor, where: Tensor) -> Tensor:
    """Return rows of a matrix {rows, n} by a list of numbers: {count, n}."""
    return directml.gather(x, reshaped(where, (1, where.sizes[-1])), axis=0, index_dimensions=1)


def doublings(count: Tensor) -> Tensor:
    """Return how often 1 must be doubled to reach each INT32 number: {n} to {n, 1}.

    The host reads this instead of the numbers, so that few values lead to different graphs.
    """
    powers = count.graph.constant([[2**exponent for exponent in range(31)]], DataType.INT32)
    larger = spread(dml.greater_than, reshaped(count, (*count.sizes, 1)), powers)
    return dml.reduce(cast(larger, DataType.INT32), ReduceFunction.SUM, axes=(1,))
