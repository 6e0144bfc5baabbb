"""A node of a model, as seen by the functions of ``operators/``: attributes, inputs, and the graph under
construction."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.frontends.onnx.expressions import broadcast_shapes, broadcast_to, reshaped
from dmlgpu.frontends.onnx.symbolic import array_of, as_integer, has_symbols
from dmlgpu.frontends.onnx.values import Bounds, Limit, NeedsDecision, NeedsHost, OnnxSequence, OnnxValue, Shape
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]


class NodeContext(Protocol):
    """Services of the translation for a node."""

    builder: Graph
    """The graph under construction."""

    def load(self, value: OnnxValue) -> Tensor:
        """Return a value as an expression of the graph under construction."""

    def fill(self, function: Callable[..., Any], numbers: Sequence[Any], node: OnnxNode | None = None) -> int:
        """Return a slot that the host fills in every run; see ``Fill``."""


class OnnxNode:
    """A node during translation.

    Attributes:
        proto: The node in the model.
        name: Its name, or that of its first output, for messages.
        version: Version of its operator set.
        inputs: Its inputs; None for an absent optional input.
        arrays: Weights that were prepared from its attributes, by name.
        first: Index of the first node that it adds to the graph under construction.
        bounds: Inputs with their allowed ranges; each run checks elements that are known on the host.
    """

    def __init__(
        self,
        proto: NodeProto,
        *,
        name: str,
        version: int,
        inputs: Sequence[OnnxValue | None],
        context: NodeContext | None,
        arrays: Mapping[str, OnnxValue] | None = None,
    ):
        self.proto, self.name, self.version = proto, name, version
        self.inputs, self.arrays, self._context = tuple(inputs), arrays or {}, context
        self.first = 0
        self.bounds: list[tuple[OnnxValue, Bounds]] = []
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    def __repr__(self) -> str:
        return f"{self.op_type} {self.name!r}"

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    @property
    def builder(self) -> Graph:
        """The graph under construction; a new one after elements were read."""
        assert self._context is not None
        return self._context.builder

    def replaced(self, inputs: Sequence[OnnxValue | None], **attributes: Any) -> OnnxNode:
        """Return the node with other inputs and attributes, for a function that translates a related operator."""
        node = copy.copy(self)
        node.inputs = tuple(inputs)
        node._attributes = self._attributes | {
            name: onnx.helper.make_attribute(name, value) for name, value in attributes.items()
        }
        return node

    def alone(self) -> OnnxNode:
        """Return the node with known inputs only, and without the translation."""
        inputs = [None if value is None or value.array is None else value for value in self.inputs]
        node = self.replaced([None if value is None or has_symbols(value.array) else value for value in inputs])
        node._context = None
        return node

    # ---- attributes -------------------------------------------------------------------------------------------------

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as ``onnx.helper`` has it: a number, bytes, a list, a tensor, a graph."""
        attribute = self._attributes.get(name)
        return default if attribute is None else onnx.helper.get_attribute_value(attribute)

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
        text = self._typed(name, AttributeProto.STRING, default)
        return text.decode(errors="replace") if isinstance(text, bytes) else str(text)

    def integers(self, name: str, count: int | None = None) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers, None if it is absent; with ``count``, of that many."""
        listed = self._typed(name, AttributeProto.INTS, None)
        return None if listed is None else tuple(map(int, self._counted(f"attribute {name}", listed, count)))

    def numbers(self, name: str, count: int | None = None) -> tuple[float, ...] | None:
        """Return an attribute that is a list of finite floats, None if it is absent; with ``count``, of that many."""
        listed = self._typed(name, AttributeProto.FLOATS, None)
        if listed is None:
            return None
        return self._finite(f"attribute {name}", self._counted(f"attribute {name}", listed, count))

    def _counted(self, what: str, listed: Sequence[Any], count: int | None) -> Sequence[Any]:
        if count is not None and len(listed) != count:
            raise self.rejection(f"{what} must have {count} elements, got {len(listed)}")
        return listed

    def _finite(self, what: str, listed: Sequence[Any]) -> tuple[float, ...]:
        numbers = tuple(number if is_symbolic(number) else float(number) for number in listed)
        if not all(abs(number) < math.inf for number in numbers):
            raise self.rejection(f"{what} must be finite, got {list(numbers)}")
        return numbers

    def _typed(self, name: str, kind: int, default: Any) -> Any:
        attribute = self._attributes.get(name)
        if attribute is None:
            return default
        if attribute.type != kind:
            kinds = AttributeProto.AttributeType
            raise self.rejection(
                f"attribute {name} must be of type {kinds.Name(kind)}, got {kinds.Name(attribute.type)}"
            )
        return onnx.helper.get_attribute_value(attribute)

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.inputs)

    def has(self, index: int) -> bool:
        """Return whether an optional input is present."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Return whether the model uses an output."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def value(self, index: int) -> OnnxValue:
        """Return an input.

        Raises:
            NotSupported: If it is absent.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.rejection(f"input {index} must be given")
        return value

    def sequence(self, index: int) -> OnnxSequence:
        """Return an input that is a sequence.

        Raises:
            NotSupported: If it is absent, or an optional without an element.
        """
        value = self.value(index)
        if not isinstance(value, OnnxSequence):
            raise self.rejection(f"input {index} must be a sequence, got an optional without an element")
        return value

    def shape(self, index: int) -> Shape:
        """Return ONNX's shape of an input: empty for a scalar."""
        return self.value(index).shape

    def check_rank(self, index: int, *allowed: int) -> None:
        """Raise NotSupported unless an input has one of these ranks."""
        shape = self.shape(index)
        if len(shape) not in allowed:
            counts = " or ".join(map(str, allowed))
            raise self.rejection(f"input {index} must have {counts} dimensions, got shape {list(shape)}")

    def check_range(self, index: int, low: Limit, high: Limit | None, what: str, *, besides: int | None = None) -> None:
        """Require that elements of an input (indices or lengths) are in a range.

        Constant elements are checked at once; elements known to the host in a run, before they are used. Elements on
        the device are not read for this.

        Args:
            index: Index of the input.
            low, high: Inclusive bounds; tuples have those of each column of the last dimension. A high of None is no
                limit.
            what: ONNX's name of the input.
            besides: Another allowed number.

        Raises:
            InvalidArgument: If a constant element is out of range.
        """
        value, bounds = self.value(index), Bounds(low, high, f"{self}: {what}", besides)
        if value.array is not None:
            bounds.check(value.array)
        else:
            self.bounds.append((value, bounds))

    def check_indices(self, index: int, size: int, what: str = "indices") -> None:
        """Require as ``check_range`` that an input has indices into a size; negative ones count from its end."""
        self.check_range(index, -size, size - 1, what)

    def data_type(self, index: int) -> DataType:
        """Return the type of an input's elements."""
        return self.value(index).data_type

    def tensor(self, index: int) -> Tensor:
        """Return an input as an expression of the graph; a scalar has sizes (1,)."""
        return self.expression(self.value(index))

    def pieces(self, index: int, axis: int) -> list[Tensor]:
        """Return an input; a weight larger than a binding of the adapter is split along an axis."""
        value, count = self.value(index), self.piece_count(index)
        limit = self.builder.device.backend.target.max_binding_size
        if count <= 1:
            return [self.expression(value)]
        if count > value.shape[axis]:
            raise self.rejection(f"a weight must have rows of at most {limit:,} bytes, got shape {list(value.shape)}")
        return [self.expression(piece) for piece in value.cut(axis, count)]

    def piece_count(self, index: int) -> int:
        """Return the number of pieces of a weight that fit the adapter's bindings; 1 for other inputs."""
        value, limit = self.value(index), self.builder.device.backend.target.max_binding_size
        if value.array is None or not value.is_weight:
            return 1
        return max(1, -(-value.array.size * value.data_type.bits // (8 * limit)))

    def array(self, name: str) -> Tensor:
        """Return a weight that was prepared from the node's attributes.

        Raises:
            NotSupported: If it is larger than a binding of the adapter.
        """
        value, limit = self.arrays[name], self.builder.device.backend.target.max_binding_size
        size = math.prod(value.shape) * value.data_type.bits // 8
        if size > limit:
            raise self.rejection(f"{name} must have at most {limit:,} bytes on this adapter, got {size:,}")
        return self.expression(value)

    def optional_tensor(self, index: int) -> Tensor | None:
        """Return an input as ``tensor`` does, None if it is absent."""
        return self.tensor(index) if self.has(index) else None

    def expression(self, value: OnnxValue) -> Tensor:
        """Return a value as an expression of the graph.

        Raises:
            NotSupported: If it has no elements, or more than 8 dimensions.
        """
        if value.is_empty:
            raise self.rejection(f"tensors without elements are not supported here, got shape {list(value.shape)}")
        if len(value.shape) > MAX_DIMENSIONS:
            raise self.rejection(f"tensors have at most {MAX_DIMENSIONS} dimensions, got shape {list(value.shape)}")
        assert self._context is not None
        return self._context.load(value)

    def host(self, index: int) -> Array:
        """Return the elements of an input on the host, booleans as such.

        The registration of the node's operator must name the input, so that it is read before the function is called.
        """
        value = self.value(index)
        assert value.array is not None, f"{self}: the operator's registration must name input {index} (host=...)"
        return value.host_array

    def host_integers(self, index: int, count: int | None = None) -> tuple[int, ...]:
        """Return an input on the host as a list of integers; with ``count``, that many.

        It may be a matrix {1, n}, as onnxruntime accepts for paddings.
        """
        kind, shape = self.data_type(index), self.shape(index)
        if kind.is_float or len(shape) > 2 or (len(shape) == 2 and shape[0] != 1):
            got = f"{kind.name.lower()} of shape {list(shape)}"
            raise self.rejection(f"input {index} must be integers in a row, got {got}")
        elements = self.host(index).reshape(-1).tolist()
        return tuple(map(as_integer, self._counted(f"input {index}", elements, count)))

    def host_numbers(self, index: int, count: int | None = None) -> tuple[float, ...]:
        """Return an input on the host as finite floats in a row; with ``count``, that many."""
        self.check_rank(index, 0, 1)
        elements = self.host(index).reshape(-1).tolist()
        return self._finite(f"input {index}", self._counted(f"input {index}", elements, count))

    def host_integer(self, index: int) -> int:
        """Return an input of one integer, on the host."""
        return self.host_integers(index, 1)[0]

    def host_number(self, index: int) -> float:
        """Return an input of one finite number, on the host."""
        return self.host_numbers(index, 1)[0]

    def decided(self, inputs: Sequence[int], function: Callable[..., Hashable], *numbers: Any) -> NeedsDecision:
        """Return the request for the result of a function of the elements of inputs, to be yielded; see
        ``NeedsDecision``."""
        return NeedsDecision([self.value(index) for index in inputs], function, numbers)

    def computed(self, read: Tensor, *others: Tensor) -> Generator[NeedsHost, Any, Any]:
        """Compute expressions and read one: ``count, where = yield from node.computed(count, where)``.

        This ends the graph under construction: earlier expressions belong to it, values remain valid.

        Args:
            read: Tensor to read, for results whose shapes depend on it.
            others: Further expressions that are needed later.

        Returns:
            The elements of the first, and a value for each of the others.
        """
        values = [self.valued(expression) for expression in (read, *others)]
        (elements,) = yield NeedsHost(values[:1], values[1:])
        return elements, *values[1:]

    def fill(self, shape: Shape, data_type: DataType, start: Callable[..., Iterator[Array]], *numbers: Any) -> Tensor:
        """Return elements that the host generates in every run.

        Args:
            shape: Their shape.
            data_type: Their type.
            start: Returns, for the numbers, an iterator over the elements of each run.
            *numbers: Plain or symbolic numbers.
        """
        assert self._context is not None
        return self.expression(OnnxValue(shape, data_type, slot=self._context.fill(start, numbers, self)))

    def constant_of(self, shape: Shape, data_type: DataType, function: Callable[..., Array], *numbers: Any) -> Tensor:
        """Return the array that a pure function computes from numbers; the host fills it if some are symbolic."""
        if not any(map(is_symbolic, numbers)):
            return self.constant(function(*numbers), data_type)
        assert self._context is not None
        return self.expression(OnnxValue(shape, data_type, slot=self._context.fill(function, numbers)))

    # ---- results ----------------------------------------------------------------------------------------------------

    def valued(self, expression: Tensor, shape: Sequence[int] | None = None, *, coded: int = 0) -> OnnxValue:
        """Return an expression as an output; its shape defaults to the expression's sizes."""
        shape = expression.sizes if shape is None else tuple(shape)
        sizes = shape or (1,)
        expression = reshaped(expression, sizes)
        return OnnxValue(shape, expression.data_type, coded, expression=expression)

    def known(self, array: Array) -> OnnxValue:
        """Return an output whose elements are known on the host."""
        elements: Any = array if has_symbols(array) else np.asarray(array)
        return OnnxValue.of_array(elements)

    def constant(self, array: Any, data_type: DataType | None = None) -> Tensor:
        """Return numbers as a constant of the graph."""
        return self.builder.constant(array, data_type)

    def size(self, number: int, data_type: DataType) -> Tensor:
        """Return a size as a tensor {1}, which a run fills if it is symbolic."""
        return self.expression(self.known(array_of([number], data_type.numpy)))

    def broadcast(self, *values: OnnxValue) -> tuple[list[Tensor], Shape]:
        """Return values as expressions of their broadcast shape, and the shape.

        Raises:
            NotSupported: If their shapes do not broadcast.
        """
        try:
            shape = broadcast_shapes(*(value.shape for value in values))
        except ValueError:
            listed = ", ".join(str(list(value.shape)) for value in values)
            raise self.rejection(f"inputs must have shapes that broadcast, got {listed}") from None
        sizes = shape or (1,)
        return [broadcast_to(self.expression(value), sizes) for value in values], shape

    def axis(self, axis: int, rank: int) -> int:
        """Normalize an axis, which may be negative.

        Raises:
            NotSupported: If it is out of range.
        """
        if not -rank <= axis < rank:
            raise self.rejection(f"an axis must be between {-rank} and {rank - 1}, got {axis}")
        return axis % rank

    def axes(self, listed: Sequence[int], rank: int) -> tuple[int, ...]:
        """Normalize axes, which may be negative.

        Raises:
            NotSupported: If one is out of range, or duplicate.
        """
        axes = tuple(self.axis(axis, rank) for axis in listed)
        if len(set(axes)) != len(axes):
            raise self.rejection(f"axes must differ, got {list(listed)}")
        return axes

    def rejection(self, reason: str) -> NotSupported:
        """Return the exception for an unsupported case of the node."""
        return NotSupported(f"{self}: {reason}")


def checked_shape(node: OnnxNode, shape: Sequence[int]) -> Shape:
    """Return the shape of a result, unless it has negative sizes or too many elements."""
    if any(size < 0 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise node.rejection(f"sizes must be at least 0, and at most {MAX_ELEMENTS} elements, got {list(shape)}")
    return tuple(shape)


def slice_range(size: int, start: int, end: int, step: int) -> range:
    """Return the positions that a Slice takes from a dimension; backward slices never start before the first element.

    Raises:
        ValueError: If the step is 0.
    """
    begin, count = slice_extent(size, start, end, step)
    return range(begin, begin + count * step, step)


def slice_extent(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Return the first position and the number of positions of ``slice_range``; supports symbolic sizes."""
    if not size:
        return 0, 0
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step < 0:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    else:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    return start, max(-(-(end - start) // step), 0)


def split_sizes(node: OnnxNode, size: int) -> list[int]:
    """Return the sizes of the pieces of a node Split along an axis of a size."""
    sizes = node.host_integers(1) if node.has(1) else node.integers("split")
    count = len(node.proto.output)
    if sizes is None:
        piece = -(-size // node.integer("num_outputs", count))
        sizes = tuple(max(min(piece, size - index * piece), 0) for index in range(count))
    if sum(sizes) != size or min(sizes) < 0 or len(sizes) != count:
        raise node.rejection(f"sizes of {count} pieces must sum up to {size}, got {list(sizes)}")
    return list(sizes)
