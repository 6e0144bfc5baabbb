"""Graphs that ONNX Runtime's DirectML execution provider serialized: a FlatBuffer, and a file for each weight.

A node is converted into the JSON form of operators, so that one parser checks both. FlatBuffers are read as far as
these graphs need them, and every offset is checked (google.github.io/flatbuffers, "FlatBuffer Internals").
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from dmlgpu.catalog import FieldKind, FieldSchema, OperatorSchema, class_name, enums
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import ModelError
from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
)
from dmlgpu.frontends.dxdispatch.json_node import JsonNode, quoted
from dmlgpu.frontends.dxdispatch.model import BindPoint
from dmlgpu.frontends.dxdispatch.operators import parse_operator, parse_operator_type


class MalformedBuffer(ValueError):
    """The bytes are not a valid FlatBuffer."""


class FlatBuffer:
    """The bytes of a file, and how many of them may still be read.

    Tables may share what they refer to, so that a small file could stand for endless data: no more elements of vectors
    and characters of strings are read than the file has bytes. Strings are read once.

    Args:
        data: The file.
    """

    def __init__(self, data: bytes):
        self._data, self._left = data, len(data)
        self._strings: dict[int, str] = {}

    def root(self) -> FlatTable:
        """Return the root table."""
        return FlatTable(self, self.offset(0))

    def number(self, position: int, kind: str) -> int | float:
        """Return a number; ``kind`` is its letter in the module ``struct``."""
        (value,) = self.numbers(position, kind, 1)
        return value

    def numbers(self, position: int, kind: str, count: int) -> tuple[int | float, ...]:
        """Return numbers that follow each other."""
        layout = f"<{count}{kind}"
        if position < 0 or position + struct.calcsize(layout) > len(self._data):
            raise MalformedBuffer(f"an offset leads to byte {position}, outside its {len(self._data)} bytes")
        return struct.unpack_from(layout, self._data, position)

    def offset(self, position: int) -> int:
        """Return the position that the offset at ``position`` leads to."""
        return position + int(self.number(position, "I"))

    def vector(self, position: int, element: int) -> tuple[int, int]:
        """Return the position and number of the elements of a vector; ``element`` is the size of one in bytes."""
        count = int(self.number(position, "I"))
        self._left -= count
        if position + 4 + count * element > len(self._data) or self._left < 0:
            raise MalformedBuffer(f"a vector at byte {position} declares {count:,} elements, more than there can be")
        return position + 4, count

    def raw(self, position: int) -> bytes:
        """Return the bytes of a vector of bytes."""
        start, count = self.vector(position, 1)
        return self._data[start : start + count]

    def string(self, position: int) -> str:
        """Return a string."""
        if position not in self._strings:
            try:
                self._strings[position] = self.raw(position).decode()
            except UnicodeDecodeError as error:
                raise MalformedBuffer(f"a string at byte {position} is not UTF-8") from error
        return self._strings[position]


@dataclass(frozen=True)
class FlatTable:
    """A table of a FlatBuffer. Absent fields are None or a default.

    Attributes:
        buffer: The buffer that contains it.
        position: Its first byte.
    """

    buffer: FlatBuffer
    position: int

    def field_position(self, field: int) -> int | None:
        """Return the position of a field, or None if it is absent."""
        shape = self.position - int(self.buffer.number(self.position, "i"))
        entry = 4 + 2 * field
        if entry + 2 > self.buffer.number(shape, "H"):
            return None
        offset = int(self.buffer.number(shape + entry, "H"))
        return self.position + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        """Return an integer; 0 if it is absent."""
        position = self.field_position(field)
        return 0 if position is None else int(self.buffer.number(position, kind))

    def target(self, field: int) -> int | None:
        """Return the position that a field refers to, or None."""
        position = self.field_position(field)
        return None if position is None else self.buffer.offset(position)

    def table(self, field: int) -> FlatTable | None:
        """Return the table that a field refers to."""
        target = self.target(field)
        return None if target is None else FlatTable(self.buffer, target)

    def string(self, field: int) -> str:
        """Return a string; empty if it is absent."""
        target = self.target(field)
        return "" if target is None else self.buffer.string(target)

    def raw(self, field: int) -> bytes:
        """Return a vector of bytes; empty if it is absent."""
        target = self.target(field)
        return b"" if target is None else self.buffer.raw(target)

    def numbers(self, field: int, kind: str) -> tuple[int | float, ...] | None:
        """Return a vector of numbers."""
        target = self.target(field)
        if target is None:
            return None
        start, count = self.buffer.vector(target, struct.calcsize(f"<{kind}"))
        return self.buffer.numbers(start, kind, count)

    def tables(self, field: int) -> tuple[FlatTable, ...]:
        """Return a vector of tables; empty if it is absent."""
        return tuple(FlatTable(self.buffer, position) for position in self._references(field))

    def strings(self, field: int) -> tuple[str, ...]:
        """Return a vector of strings; empty if it is absent."""
        return tuple(self.buffer.string(position) for position in self._references(field))

    def _references(self, field: int) -> list[int]:
        target = self.target(field)
        if target is None:
            return []
        start, count = self.buffer.vector(target, 4)
        return [self.buffer.offset(start + 4 * index) for index in range(count)]


_OPERATOR_NODE, _CONSTANT_NODE = 1, 2
_CONSTANT_NAME, _CONSTANT_DATA = 1, 2
_SCALAR_BYTES = 8


class _Kind(IntEnum):
    """Types of attributes, as numbered by the format's union."""

    NONE = 0
    ACTIVATION = 1
    ACTIVATIONS = 2
    UINT32 = 3
    UINT64 = 4
    INT32 = 5
    FLOAT32 = 6
    UINTS = 7
    INTS = 8
    FLOATS = 9
    SCALE_BIAS = 10
    SIZE_2D = 11
    SCALAR = 12
    BOOL = 13


_NUMBERS = {_Kind.UINT32: "I", _Kind.UINT64: "Q", _Kind.INT32: "i", _Kind.FLOAT32: "f", _Kind.BOOL: "B"}
_ARRAYS = {_Kind.UINTS: "I", _Kind.INTS: "i", _Kind.FLOATS: "f"}


@dataclass(frozen=True)
class SerializedGraph:
    """A graph and the names by which models bind its inputs and outputs."""

    graph: GraphDesc
    inputs: tuple[BindPoint, ...]
    outputs: tuple[BindPoint, ...]


def read_graph(data: bytes, name: str, weights: Callable[[str], bytes]) -> SerializedGraph:
    """Return the graph that a file holds.

    Args:
        data: The file.
        name: Name in messages.
        weights: Returns the bytes of the weight file of a constant, by the constant's name.
    """
    try:
        return _Reader(name, weights).read(FlatBuffer(data).root())
    except MalformedBuffer as error:
        raise ModelError(name, f"is not a serialized DirectML graph, or is damaged: {error}") from error


@dataclass
class _Reader:
    """A graph that is being read.

    Attributes:
        produced: Node and output that write each edge, by the edge's name.
        constants: For each node that is a constant, its name or its bytes.
    """

    name: str
    weights: Callable[[str], bytes]
    produced: dict[str, tuple[int, int]] = field(default_factory=dict)
    operators: dict[int, OperatorDesc] = field(default_factory=dict)
    constants: dict[int, str | bytes] = field(default_factory=dict)

    def read(self, root: FlatTable) -> SerializedGraph:
        nodes = root.tables(0)
        graph_inputs, graph_outputs = self._names(root.strings(1), "input"), self._names(root.strings(2), "output")
        for index, node in enumerate(nodes):
            self._read_node(index, node)
        inputs, inner = self._feeds(nodes, graph_inputs)
        outputs = [
            OutputEdge(*self._source(name, "graph output"), index, name) for name, index in graph_outputs.items()
        ]
        described = tuple(self._described(index, nodes[index].string(2), inner) for index in range(len(nodes)))
        graph = GraphDesc(
            len(graph_inputs), len(graph_outputs), described, tuple(inputs), tuple(inner), tuple(outputs), self.name
        )
        first = {edge.graph_input: self._tensor(edge.to_node, "inputs", edge.to_input) for edge in reversed(inputs)}
        return SerializedGraph(
            graph,
            tuple(BindPoint(name, (first.get(index),)) for name, index in graph_inputs.items()),
            tuple(
                BindPoint(edge.name or "", (self._tensor(edge.from_node, "outputs", edge.from_output),))
                for edge in outputs
            ),
        )

    def _names(self, names: tuple[str, ...], what: str) -> dict[str, int]:
        indices = {name: index for index, name in enumerate(names)}
        if "" in indices or len(indices) < len(names):
            raise ModelError(self.name, f"the graph's {what}s must have unique names, got {list(names)[:8]}")
        return indices

    def _read_node(self, index: int, node: FlatTable) -> None:
        desc, kind, path = node.table(1), node.number(0, "B"), f"{self.name}.nodes[{index}]"
        if desc is None or kind not in (_OPERATOR_NODE, _CONSTANT_NODE):
            raise ModelError(path, "must be an operator or a constant")
        if kind == _OPERATOR_NODE:
            form = JsonNode(_operator_form(desc, node.strings(3), node.strings(4), path), path)
            self.operators[index] = parse_operator(form)[0]
        else:
            self.constants[index] = _constant(desc, path)
        for output, name in enumerate(node.strings(4)):
            if name and self.produced.setdefault(name, (index, output)) != (index, output):
                raise ModelError(path, f"writes {quoted(name)}, as node {self.produced[name][0]} does")

    def _feeds(
        self, nodes: tuple[FlatTable, ...], graph_inputs: Mapping[str, int]
    ) -> tuple[list[InputEdge], list[IntermediateEdge]]:
        """Return the edges that end at nodes."""
        inputs, inner = [], []
        for index, node in enumerate(nodes):
            for position, name in enumerate(node.strings(3)):
                if name in graph_inputs:
                    inputs.append(InputEdge(graph_inputs[name], index, position, name))
                elif name:
                    inner.append(IntermediateEdge(*self._source(name, f"node {index}"), index, position, name))
        return inputs, inner

    def _source(self, name: str, reader: str) -> tuple[int, int]:
        if name not in self.produced:
            raise ModelError(
                self.name, f"{reader} reads {quoted(name)}, which is neither an input nor an output of a node"
            )
        return self.produced[name]

    def _described(self, index: int, name: str, inner: list[IntermediateEdge]) -> OperatorNode | ConstantNode:
        if index in self.operators:
            return OperatorNode(self.operators[index], name or None)
        held = self.constants[index]
        edge = next((edge for edge in inner if edge.from_node == index), None)
        tensor = None if edge is None else self._tensor(edge.to_node, "inputs", edge.to_input)
        data = self.weights(held) if isinstance(held, str) else held
        size = len(data) if tensor is None else tensor.byte_size
        if not size - 4 < len(data) <= size:
            raise ModelError(
                f"{self.name}.nodes[{index}]",
                f"the constant {quoted(name)} must have the {size} bytes of the tensor that it feeds, got {len(data)}",
            )
        return ConstantNode(data.ljust(size, b"\0"), name or None)

    def _tensor(self, index: int, which: str, position: int) -> TensorDesc | None:
        slots = getattr(self.operators.get(index), which, ())
        if position >= len(slots):
            raise ModelError(f"{self.name}.nodes[{index}]", f"must have more than {position} {which}, got {len(slots)}")
        tensor: TensorDesc | None = slots[position].tensor
        return tensor


def _constant(desc: FlatTable, path: str) -> str | bytes:
    """Return the name of a constant's weight file without ``.bin``, or its bytes."""
    kind, held = desc.number(0, "B"), desc.table(1)
    if held is not None and kind == _CONSTANT_DATA:
        return held.raw(0)
    if held is not None and kind == _CONSTANT_NAME and held.string(0):
        return held.string(0)
    raise ModelError(path, "a constant must have data, or the name of a file with them")


# -- operators ------------------------------------------------------------------------------------------------------


def _operator_form(desc: FlatTable, inputs: tuple[str, ...], outputs: tuple[str, ...], path: str) -> dict[str, Any]:
    """Return a node as models write operators."""
    schema = parse_operator_type(JsonNode(desc.string(0), f"{path}.type"))
    fields = dict(_tensors(schema, FieldKind.INPUT, inputs, desc.tables(1), path))
    fields |= _tensors(schema, FieldKind.OUTPUT, outputs, desc.tables(2), path)
    return {"type": desc.string(0), "desc": fields | _attributes(schema, desc.tables(3), path)}


def _tensors(
    schema: OperatorSchema, kind: FieldKind, names: tuple[str, ...], tensors: tuple[FlatTable, ...], path: str
) -> Iterator[tuple[str, Any]]:
    """Assign tensors to the operator's fields; names of absent optional tensors are empty."""
    described = iter(tensors)
    position = 0
    for field_schema in schema.tensor_fields:
        if field_schema.kind is not kind:
            continue
        taken = names[position:] if field_schema.is_array else names[position : position + 1]
        position += len(taken)
        forms = [_tensor_form(table) for _, table in zip([name for name in taken if name], described, strict=False)]
        if len(forms) < sum(map(bool, taken)):
            raise ModelError(path, f"{schema.name} must have a tensor for each name, got {len(tensors)}")
        if field_schema.is_array:
            yield field_schema.name, forms
        elif forms:
            yield field_schema.name, forms[0]


def _tensor_form(tensor: FlatTable) -> dict[str, Any]:
    strides, size = tensor.numbers(2, "I"), tensor.number(3, "Q")
    form = {"DataType": tensor.string(0), "Sizes": list(tensor.numbers(1, "I") or ()), "TotalTensorSizeInBytes": size}
    return form if strides is None else form | {"Strides": list(strides)}


def _attributes(schema: OperatorSchema, attributes: tuple[FlatTable, ...], path: str) -> dict[str, Any]:
    """Return the attributes that have values, as models write them."""
    fields = {field_schema.name: field_schema for field_schema in schema.fields if not field_schema.is_tensor}
    in_order = list(fields)
    values: dict[str, Any] = {}
    for index, attribute in enumerate(attributes):
        # Attributes come in the order of the structure's fields; those that are absent have no name.
        name = attribute.string(0) or (in_order[index] if index < len(in_order) else "")
        if name not in fields:
            raise ModelError(path, f"{schema.name} has no field {quoted(name)}")
        value = _value(attribute, fields[name], f"{path}.{name}")
        if value is not None:
            values[name] = _spelled(value, fields[name], f"{path}.{name}")
    types = [
        values.get(field_schema.name) for field_schema in schema.fields if field_schema.type == "DML_TENSOR_DATA_TYPE"
    ]
    return {name: _scalar(value, types) if isinstance(value, bytes) else value for name, value in values.items()}


def _value(attribute: FlatTable, field_schema: FieldSchema, path: str) -> Any:
    """Return the value of an attribute: number, list, object or the bytes of a scalar; None if it has none."""
    kind, target = attribute.number(1, "B"), attribute.target(2)
    if kind == _Kind.NONE or target is None:
        return None
    buffer, table = attribute.buffer, FlatTable(attribute.buffer, target)
    value: Any
    match kind:
        case _ if kind in _NUMBERS:
            value = buffer.number(target, _NUMBERS[_Kind(kind)])
        case _ if kind in _ARRAYS:
            value = list(table.numbers(0, _ARRAYS[_Kind(kind)]) or ())
        case _Kind.ACTIVATION if field_schema.type == "OPERATOR_DESC":
            value = _activation(table, path)
        case _Kind.ACTIVATIONS if field_schema.type == "OPERATOR_DESC":
            value = [_activation(each, f"{path}[{index}]") for index, each in enumerate(table.tables(0))]
        case _Kind.SCALE_BIAS:
            value = dict(zip(("Scale", "Bias"), buffer.numbers(target, "f", 2), strict=True))
        case _Kind.SIZE_2D:
            value = dict(zip(("Width", "Height"), buffer.numbers(target, "I", 2), strict=True))
        case _Kind.SCALAR if (position := table.target(1)) is not None:
            value = bytes(map(int, buffer.numbers(position, "B", _SCALAR_BYTES)))
        case _:
            raise ModelError(path, f"must be {field_schema.type}, got an attribute of kind {kind}")
    return value


def _activation(table: FlatTable, path: str) -> dict[str, Any]:
    """Return an operator that is fused into another; it has no tensors, and nothing is fused into it."""
    schema = parse_operator_type(JsonNode(table.string(0), f"{path}.type"))
    if any(field_schema.type == "OPERATOR_DESC" for field_schema in schema.fields):
        raise ModelError(path, f"{schema.name} cannot be fused into an operator")
    return {"Type": table.string(0), "Desc": _attributes(schema, table.tables(1), path)}


def _spelled(value: Any, field_schema: FieldSchema, path: str) -> Any:
    """Return a value as models spell it: booleans and enumerations are numbers in the file."""
    if field_schema.type == "BOOL" and value in (0, 1):
        return bool(value)
    if not field_schema.type.startswith("DML_"):
        return value
    is_data_type = field_schema.type == "DML_TENSOR_DATA_TYPE"
    members = DataType if is_data_type else getattr(enums, class_name(field_schema.type.removeprefix("DML_")))
    try:
        return members(value).name
    except (ValueError, TypeError):
        raise ModelError(path, f"must be a value of {field_schema.type}, got {value}") from None


def _scalar(raw: bytes, types: list[Any]) -> int | float | None:
    """Return the number in the first bytes of a scalar, of the operator's one data type."""
    data_type = DataType.__members__.get(types[0]) if len(types) == 1 and isinstance(types[0], str) else None
    if data_type is None or data_type.bits < 8:
        return None
    value: int | float = np.frombuffer(raw, data_type.numpy, 1)[0].item()
    return value
