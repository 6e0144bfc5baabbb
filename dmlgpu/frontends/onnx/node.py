"""A node of a model as the functions of ``operators/`` see it: attributes, inputs, and the graph that they add to."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS
from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx.values import (
    Bounds,
    DecisionNeeded,
    FillNeeded,
    FinishNeeded,
    Limit,
    ReadNeeded,
    Shape,
    Value,
)
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph

Array = NDArray[Any]
Decision = TypeVar("Decision", bound=Hashable)


class Node:
    """One node, at one place of the translation.

    Attributes:
        proto: the node as the model has it.
        name: its name, or where it stands, for messages.
        version: of the operator set that it is of.
        inputs: what it reads; None for an absent optional input.
        builder: the graph under construction.
        bounds: inputs whose elements each run checks where the host knows them, and what they must be between.
    """

    def __init__(
        self,
        proto: NodeProto,
        *,
        name: str,
        version: int,
        inputs: Sequence[Value | None],
        load: Callable[[Value], Expression],
        builder: Graph,
        finished: list[list[Value]],
        decided: list[Hashable],
    ):
        self.proto, self.name, self.version = proto, name, version
        self.inputs, self.builder = tuple(inputs), builder
        self._load, self._finished, self._passed = load, finished, 0
        self._decided, self._asked = decided, 0
        self.bounds: list[tuple[Value, Bounds]] = []
        self._attributes = {one.name: one for one in proto.attribute}

    def __repr__(self) -> str:
        return f"{self.op_type} {self.name!r}"

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    def replaced(self, inputs: Sequence[Value | None], **attributes: Any) -> Node:
        """Return the node with other inputs and attributes, for a function that translates a related operator."""
        found = copy.copy(self)
        found.inputs = tuple(inputs)
        found._attributes = self._attributes | {
            name: onnx.helper.make_attribute(name, value) for name, value in attributes.items()
        }
        return found

    def alone(self) -> Node:
        """Return the node with what is known of its inputs, and without the graph under construction."""
        found = self.replaced([one if one is not None and one.array is not None else None for one in self.inputs])
        del found.builder, found._load
        return found

    # ---- attributes -------------------------------------------------------------------------------------------------

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as ``onnx.helper`` has it: a number, bytes, a list, a tensor, a graph."""
        found = self._attributes.get(name)
        return default if found is None else onnx.helper.get_attribute_value(found)

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute that is an integer."""
        return int(self._typed(name, AttributeProto.INT, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an attribute that is 0 or 1."""
        return bool(self._typed(name, AttributeProto.INT, default))

    def number(self, name: str, default: float = 0.0) -> float:
        """Return an attribute that is a float."""
        return float(self._typed(name, AttributeProto.FLOAT, default))

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a string."""
        found = self._typed(name, AttributeProto.STRING, default)
        return found.decode(errors="replace") if isinstance(found, bytes) else str(found)

    def integers(self, name: str, count: int | None = None) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers, None if it is absent; with ``count``, of so many."""
        listed = self._typed(name, AttributeProto.INTS, None)
        return None if listed is None else tuple(map(int, self._counted(f"attribute {name}", listed, count)))

    def numbers(self, name: str, count: int | None = None) -> tuple[float, ...] | None:
        """Return an attribute that is a list of finite floats, None if it is absent; with ``count``, of so many."""
        listed = self._typed(name, AttributeProto.FLOATS, None)
        if listed is None:
            return None
        return self._finite(f"attribute {name}", self._counted(f"attribute {name}", listed, count))

    def _counted(self, what: str, listed: Sequence[Any], count: int | None) -> Sequence[Any]:
        if count is not None and len(listed) != count:
            raise self.refusal(f"{what} must have {count} elements, got {len(listed)}")
        return listed

    def _finite(self, what: str, listed: Sequence[Any]) -> tuple[float, ...]:
        numbers = tuple(map(float, listed))
        if not all(map(math.isfinite, numbers)):
            raise self.refusal(f"{what} must be finite, got {list(numbers)}")
        return numbers

    def _typed(self, name: str, kind: int, default: Any) -> Any:
        found = self._attributes.get(name)
        if found is None:
            return default
        if found.type != kind:
            kinds = AttributeProto.AttributeType
            raise self.refusal(f"attribute {name} must be of type {kinds.Name(kind)}, got {kinds.Name(found.type)}")
        return onnx.helper.get_attribute_value(found)

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.inputs)

    def has(self, number: int) -> bool:
        """Return whether an optional input is there."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def wants(self, number: int) -> bool:
        """Return whether the model names an output."""
        return number < len(self.proto.output) and bool(self.proto.output[number])

    def value(self, number: int) -> Value:
        """Return an input.

        Raises:
            NotSupported: it is absent.
        """
        found = self.inputs[number] if number < len(self.inputs) else None
        if found is None:
            raise self.refusal(f"input {number} must be given")
        return found

    def shape(self, number: int) -> Shape:
        """Return ONNX's shape of an input: empty for a scalar."""
        return self.value(number).shape

    def check_rank(self, number: int, *allowed: int) -> None:
        """Raise NotSupported unless an input has one of these counts of dimensions."""
        shape = self.shape(number)
        if len(shape) not in allowed:
            counts = " or ".join(map(str, allowed))
            raise self.refusal(f"input {number} must have {counts} dimensions, got shape {list(shape)}")

    def check_range(
        self, number: int, low: Limit, high: Limit | None, what: str, *, besides: int | None = None
    ) -> None:
        """Require that elements of an input, indices or lengths, are in a range.

        Elements of the model are checked at once, those that the host has in a run before that computes anything with
        them. Elements that are on the device are not read for it.

        Args:
            number: of the input.
            low, high: inclusive; tuples have those of each column of the last dimension. A high of None is no limit.
            what: ONNX's name of the input.
            besides: a number that is allowed as well.

        Raises:
            InvalidArgument: an element of the model is out of range.
        """
        value, bounds = self.value(number), Bounds(low, high, f"{self}: {what}", besides)
        if value.array is not None:
            bounds.check(value.array)
        else:
            self.bounds.append((value, bounds))

    def check_indices(self, number: int, size: int, what: str = "indices") -> None:
        """Require as ``check_range`` that an input has indices into a size; negative ones count from its end."""
        self.check_range(number, -size, size - 1, what)

    def data_type(self, number: int) -> DataType:
        """Return the type of an input's elements."""
        return self.value(number).data_type

    def tensor(self, number: int) -> Expression:
        """Return an input as an expression of the graph; a scalar has sizes (1,)."""
        return self.expression(self.value(number))

    def pieces(self, number: int, axis: int) -> list[Expression]:
        """Return an input; a weight that is larger than what the adapter binds at once, in pieces along an axis."""
        value = self.value(number)
        limit = self.builder.device.backend.target.max_binding_size
        count = -(-value.array.size * value.data_type.bits // (8 * limit)) if value.array is not None else 1
        if count <= 1 or not value.is_weight:
            return [self.expression(value)]
        if count > value.shape[axis]:
            raise self.refusal(f"a weight must have rows of at most {limit:,} bytes, got shape {list(value.shape)}")
        return [self.expression(one) for one in value.cut(axis, count)]

    def optional_tensor(self, number: int) -> Expression | None:
        """Return an input as ``tensor`` does, None where it is absent."""
        return self.tensor(number) if self.has(number) else None

    def expression(self, value: Value) -> Expression:
        """Return a value as an expression of the graph.

        Raises:
            NotSupported: it has no elements, or more than 8 dimensions.
        """
        if value.is_empty:
            raise self.refusal(f"tensors without elements are not supported here, got shape {list(value.shape)}")
        if len(value.shape) > MAX_DIMENSIONS:
            raise self.refusal(f"tensors have at most {MAX_DIMENSIONS} dimensions, got shape {list(value.shape)}")
        return self._load(value)

    def host(self, number: int) -> Array:
        """Return the elements of an input on the host, which shapes depend on; what computes it runs before.

        The function is called again from its beginning once they are known.
        """
        return self.read(self.value(number))

    def optional_host(self, number: int) -> Array | None:
        """Return the elements of an input as ``host`` does, None where it is absent."""
        return self.host(number) if self.has(number) else None

    def host_integers(self, number: int, count: int | None = None) -> tuple[int, ...]:
        """Return an input on the host as integers in a row; with ``count``, so many.

        The row may be that of a matrix {1, n}, as onnxruntime takes paddings.
        """
        kind, shape = self.data_type(number), self.shape(number)
        if kind.is_float or len(shape) > 2 or (len(shape) == 2 and shape[0] != 1):
            got = f"{kind.name.lower()} of shape {list(shape)}"
            raise self.refusal(f"input {number} must be integers in a row, got {got}")
        elements = self.host(number).reshape(-1).tolist()
        return tuple(map(int, self._counted(f"input {number}", elements, count)))

    def host_numbers(self, number: int, count: int | None = None) -> tuple[float, ...]:
        """Return an input on the host as finite floats in a row; with ``count``, so many."""
        self.check_rank(number, 0, 1)
        elements = self.host(number).reshape(-1).tolist()
        return self._finite(f"input {number}", self._counted(f"input {number}", elements, count))

    def host_integer(self, number: int) -> int:
        """Return an input of one integer, on the host."""
        return self.host_integers(number, 1)[0]

    def host_number(self, number: int) -> float:
        """Return an input of one finite number, on the host."""
        return self.host_numbers(number, 1)[0]

    def read(self, value: Value) -> Array:
        """Return the elements of a value on the host, truth values as such."""
        if value.array is None:
            raise ReadNeeded(value)
        return value.host_array

    def decided(self, numbers: Sequence[int], function: Callable[..., Decision]) -> Decision:
        """Return what a function makes of the elements of inputs on the host.

        What is compiled depends on that alone: it serves all elements of which the function makes the same. Every call
        must come in the same order.
        """
        values = [self.value(number) for number in numbers]
        if all(one.array is not None for one in values):
            return function(*(one.array for one in values))
        self._asked += 1
        if self._asked > len(self._decided):
            raise DecisionNeeded(values, function)
        return self._decided[self._asked - 1]  # type: ignore[return-value]

    def finish(self, make: Callable[[], Sequence[Expression]]) -> list[Value]:
        """Return what expressions compute, finished: ``read`` and ``expression`` take it then.

        For results whose sizes depend on elements. The function is called again from its beginning once they are
        computed, and ``make`` is not; every call of ``finish`` must come in the same order.
        """
        self._passed += 1
        if self._passed > len(self._finished):
            raise FinishNeeded([self.valued(one) for one in make()])
        return self._finished[self._passed - 1]

    def fill(self, shape: Shape, data_type: DataType, make: Callable[[], Array]) -> Expression:
        """Return elements that the host makes anew in every run.

        The function is called again from its beginning once there is a slot for them; calls count as those of
        ``finish``.
        """
        self._passed += 1
        if self._passed > len(self._finished):
            raise FillNeeded(Value(shape, data_type), make)
        return self.expression(self._finished[self._passed - 1][0])

    # ---- results ----------------------------------------------------------------------------------------------------

    def valued(self, expression: Expression, shape: Sequence[int] | None = None, *, is_bool: bool = False) -> Value:
        """Return an expression as an output of a shape, by default its sizes; as many elements."""
        shape = expression.sizes if shape is None else tuple(shape)
        sizes = shape or (1,)
        if sizes != expression.sizes:
            expression = reshaped(expression, sizes)
        return Value(shape, expression.data_type, is_bool, expression=expression)

    def known(self, array: Array) -> Value:
        """Return an output that the host knows."""
        return Value.of_array(np.asarray(array))

    def constant(self, array: Any, data_type: DataType | None = None) -> Expression:
        """Return numbers as a constant of the graph."""
        return self.builder.constant(array, data_type)

    def broadcast(self, *values: Value) -> tuple[list[Expression], Shape]:
        """Return values as expressions of the sizes that they have together, as NumPy's broadcast, and their shape.

        Raises:
            NotSupported: their shapes do not broadcast.
        """
        try:
            shape = np.broadcast_shapes(*(one.shape for one in values))
        except ValueError:
            listed = ", ".join(str(list(one.shape)) for one in values)
            raise self.refusal(f"inputs must have shapes that broadcast, got {listed}") from None
        sizes = shape or (1,)
        return [broadcast_to(self.expression(one), sizes) for one in values], shape

    def axis(self, given: int, rank: int) -> int:
        """Return an axis counted from the first, for a negative one from the last.

        Raises:
            NotSupported: out of range.
        """
        if not -rank <= given < rank:
            raise self.refusal(f"an axis must be between {-rank} and {rank - 1}, got {given}")
        return given % rank

    def axes(self, listed: Sequence[int], rank: int) -> tuple[int, ...]:
        """Return axes counted from the first, each of them once.

        Raises:
            NotSupported: one is out of range, or comes twice.
        """
        axes = tuple(self.axis(one, rank) for one in listed)
        if len(set(axes)) != len(axes):
            raise self.refusal(f"axes must differ, got {list(listed)}")
        return axes

    def refusal(self, reason: str) -> NotSupported:
        """Return the error that the node cannot be computed, to be raised."""
        return NotSupported(f"{self}: {reason}")


def broadcast_to(expression: Expression, sizes: Sequence[int]) -> Expression:
    """Return an expression with these sizes, repeated by strides of 0 where it has 1 or nothing."""
    return expression if expression.sizes == tuple(sizes) else expression.broadcast_to(sizes)


def reshaped(expression: Expression, sizes: Sequence[int]) -> Expression:
    """Return the elements in order with other sizes, at least one; a strided expression is copied first."""
    if expression.sizes == tuple(sizes):
        return expression
    return (expression if expression.desc.is_packed else dml.identity(expression)).reinterpret(sizes)


def transposed(expression: Expression, order: Sequence[int]) -> Expression:
    """Return the dimensions in another order, by strides."""
    strides = expression.desc.element_strides
    return expression.reinterpret([expression.sizes[one] for one in order], [strides[one] for one in order])


def unowned(expression: Expression) -> Expression:
    """Return a tensor for an operator that takes no OWNED_BY_DML one: a weight is copied, once, at initialisation."""
    return dml.identity(expression) if expression.desc.owned_by_dml else expression


def checked_shape(node: Node, shape: Sequence[int]) -> Shape:
    """Return the shape of a result, unless it has negative sizes or more elements than a tensor may have."""
    if any(size < 0 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise node.refusal(f"sizes must be at least 0, and at most {MAX_ELEMENTS} elements, got {list(shape)}")
    return tuple(shape)


def slice_range(size: int, start: int, end: int, step: int) -> range:
    """Return the places that a Slice takes of a dimension; backwards, it begins at the first element at the earliest.

    Raises:
        ValueError: the step is 0.
    """
    if not size:
        return range(0)
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step < 0:
        return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)
    return range(min(max(start, 0), size), min(max(end, 0), size), step)


def split_sizes(node: Node, size: int) -> list[int]:
    """Return the sizes of the pieces of a node Split along an axis of a size."""
    given = node.host_integers(1) if node.has(1) else node.integers("split")
    count = len(node.proto.output)
    if given is None:
        piece = -(-size // node.integer("num_outputs", count))
        given = tuple(max(min(piece, size - number * piece), 0) for number in range(count))
    if sum(given) != size or min(given) < 0 or len(given) != count:
        raise node.refusal(f"sizes of {count} pieces must sum up to {size}, got {list(given)}")
    return list(given)
