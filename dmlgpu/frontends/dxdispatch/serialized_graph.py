"""Graphs that ONNX Runtime's DirectML execution provider serialised: a FlatBuffer, and a file for each weight.

A node is brought into the JSON form of operators, so that one parser checks both.
"""

from __future__ import annotations

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
from dmlgpu.frontends.dxdispatch.flatbuffer import FlatBuffer, MalformedBuffer, Table
from dmlgpu.frontends.dxdispatch.model import BindPoint
from dmlgpu.frontends.dxdispatch.node import Node, quoted
from dmlgpu.frontends.dxdispatch.operators import parse_operator, parse_operator_type

_OPERATOR_NODE, _CONSTANT_NODE = 1, 2
_CONSTANT_NAME, _CONSTANT_DATA = 1, 2
_SCALAR_BYTES = 8


class _Kind(IntEnum):
    """What an attribute is: the numbers of the format's union."""

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
        data: the file.
        name: what to call it in messages.
        weights: returns the bytes of the weight file of a constant, by the constant's name.

    Raises:
        ModelError: the file is malformed, or describes what the operators do not allow; whatever ``weights`` raises.
    """
    try:
        return _Reader(name, weights).read(FlatBuffer(data).root())
    except MalformedBuffer as error:
        raise ModelError(name, f"is no serialised DirectML graph, or it is damaged: {error}") from error


@dataclass
class _Reader:
    """One graph on its way.

    Attributes:
        produced: node and output that write each edge, by the edge's name.
        constants: for each node that is a constant, its name or its bytes.
    """

    name: str
    weights: Callable[[str], bytes]
    produced: dict[str, tuple[int, int]] = field(default_factory=dict)
    operators: dict[int, OperatorDesc] = field(default_factory=dict)
    constants: dict[int, str | bytes] = field(default_factory=dict)

    def read(self, root: Table) -> SerializedGraph:
        nodes = root.tables(0)
        given, wanted = self._names(root.strings(1), "input"), self._names(root.strings(2), "output")
        for number, node in enumerate(nodes):
            self._read_node(number, node)
        inputs, inner = self._feeds(nodes, given)
        outputs = [OutputEdge(*self._source(name, "graph output"), number, name) for name, number in wanted.items()]
        described = tuple(self._described(number, nodes[number].string(2), inner) for number in range(len(nodes)))
        graph = GraphDesc(len(given), len(wanted), described, tuple(inputs), tuple(inner), tuple(outputs), self.name)
        first = {edge.graph_input: self._tensor(edge.to_node, "inputs", edge.to_input) for edge in reversed(inputs)}
        return SerializedGraph(
            graph,
            tuple(BindPoint(name, (first.get(number),)) for name, number in given.items()),
            tuple(
                BindPoint(edge.name or "", (self._tensor(edge.from_node, "outputs", edge.from_output),))
                for edge in outputs
            ),
        )

    def _names(self, names: tuple[str, ...], what: str) -> dict[str, int]:
        numbers = {name: number for number, name in enumerate(names)}
        if "" in numbers or len(numbers) < len(names):
            raise ModelError(self.name, f"the graph's {what}s must have names of their own, got {list(names)[:8]}")
        return numbers

    def _read_node(self, number: int, node: Table) -> None:
        desc, kind, path = node.table(1), node.number(0, "B"), f"{self.name}.nodes[{number}]"
        if desc is None or kind not in (_OPERATOR_NODE, _CONSTANT_NODE):
            raise ModelError(path, "must be an operator or a constant")
        if kind == _OPERATOR_NODE:
            form = Node(_operator_form(desc, node.strings(3), node.strings(4), path), path)
            self.operators[number] = parse_operator(form)[0]
        else:
            self.constants[number] = _constant(desc, path)
        for output, name in enumerate(node.strings(4)):
            if name and self.produced.setdefault(name, (number, output)) != (number, output):
                raise ModelError(path, f"writes {quoted(name)}, as node {self.produced[name][0]} does")

    def _feeds(
        self, nodes: tuple[Table, ...], given: Mapping[str, int]
    ) -> tuple[list[InputEdge], list[IntermediateEdge]]:
        """Return the edges that end at nodes."""
        inputs, inner = [], []
        for number, node in enumerate(nodes):
            for position, name in enumerate(node.strings(3)):
                if name in given:
                    inputs.append(InputEdge(given[name], number, position, name))
                elif name:
                    inner.append(IntermediateEdge(*self._source(name, f"node {number}"), number, position, name))
        return inputs, inner

    def _source(self, name: str, reader: str) -> tuple[int, int]:
        if name not in self.produced:
            raise ModelError(self.name, f"{reader} reads {quoted(name)}, which no node writes and no input is")
        return self.produced[name]

    def _described(self, number: int, name: str, inner: list[IntermediateEdge]) -> OperatorNode | ConstantNode:
        if number in self.operators:
            return OperatorNode(self.operators[number], name or None)
        held = self.constants[number]
        edge = next((edge for edge in inner if edge.from_node == number), None)
        tensor = None if edge is None else self._tensor(edge.to_node, "inputs", edge.to_input)
        data = self.weights(held) if isinstance(held, str) else held
        size = len(data) if tensor is None else tensor.byte_size
        if not size - 4 < len(data) <= size:
            raise ModelError(
                f"{self.name}.nodes[{number}]",
                f"the constant {quoted(name)} must have the {size} bytes of the tensor that it feeds, got {len(data)}",
            )
        return ConstantNode(data.ljust(size, b"\0"), name or None)

    def _tensor(self, number: int, which: str, position: int) -> TensorDesc | None:
        slots = getattr(self.operators.get(number), which, ())
        if position >= len(slots):
            raise ModelError(
                f"{self.name}.nodes[{number}]", f"must have more than {position} {which}, got {len(slots)}"
            )
        tensor: TensorDesc | None = slots[position].tensor
        return tensor


def _constant(desc: Table, path: str) -> str | bytes:
    """Return the name of a constant's weight file without ``.bin``, or its bytes."""
    kind, held = desc.number(0, "B"), desc.table(1)
    if held is not None and kind == _CONSTANT_DATA:
        return held.raw(0)
    if held is not None and kind == _CONSTANT_NAME and held.string(0):
        return held.string(0)
    raise ModelError(path, "a constant must have data, or the name of a file with them")


# -- operators ------------------------------------------------------------------------------------------------------


def _operator_form(desc: Table, inputs: tuple[str, ...], outputs: tuple[str, ...], path: str) -> dict[str, Any]:
    """Return a node as models write operators."""
    schema = parse_operator_type(Node(desc.string(0), f"{path}.type"))
    fields = dict(_tensors(schema, FieldKind.INPUT, inputs, desc.tables(1), path))
    fields |= _tensors(schema, FieldKind.OUTPUT, outputs, desc.tables(2), path)
    return {"type": desc.string(0), "desc": fields | _attributes(schema, desc.tables(3), path)}


def _tensors(
    schema: OperatorSchema, kind: FieldKind, names: tuple[str, ...], tensors: tuple[Table, ...], path: str
) -> Iterator[tuple[str, Any]]:
    """Give the tensors of a kind to the operator's fields: names are empty where an optional tensor is absent."""
    described = iter(tensors)
    position = 0
    for one in schema.tensor_fields:
        if one.kind is not kind:
            continue
        taken = names[position:] if one.is_array else names[position : position + 1]
        position += len(taken)
        forms = [_tensor_form(table) for _, table in zip([name for name in taken if name], described, strict=False)]
        if len(forms) < sum(map(bool, taken)):
            raise ModelError(path, f"{schema.name} must have a tensor for each name, got {len(tensors)}")
        if one.is_array:
            yield one.name, forms
        elif forms:
            yield one.name, forms[0]


def _tensor_form(tensor: Table) -> dict[str, Any]:
    strides, size = tensor.numbers(2, "I"), tensor.number(3, "Q")
    form = {"DataType": tensor.string(0), "Sizes": list(tensor.numbers(1, "I") or ()), "TotalTensorSizeInBytes": size}
    return form if strides is None else form | {"Strides": list(strides)}


def _attributes(schema: OperatorSchema, attributes: tuple[Table, ...], path: str) -> dict[str, Any]:
    """Return the attributes that have values, as models write them."""
    known = {one.name: one for one in schema.fields if not one.is_tensor}
    in_order = list(known)
    values: dict[str, Any] = {}
    for number, attribute in enumerate(attributes):
        # Attributes come in the order of the structure's fields; those that are absent have no name.
        name = attribute.string(0) or (in_order[number] if number < len(in_order) else "")
        if name not in known:
            raise ModelError(path, f"{schema.name} has no field {quoted(name)}")
        value = _value(attribute, known[name], f"{path}.{name}")
        if value is not None:
            values[name] = _spelled(value, known[name], f"{path}.{name}")
    types = [values.get(one.name) for one in schema.fields if one.type == "DML_TENSOR_DATA_TYPE"]
    return {name: _scalar(value, types) if isinstance(value, bytes) else value for name, value in values.items()}


def _value(attribute: Table, one: FieldSchema, path: str) -> Any:
    """Return the value of an attribute: numbers, lists, objects; the bytes of a scalar; None where it has none."""
    kind, target = attribute.number(1, "B"), attribute.target(2)
    if kind == _Kind.NONE or target is None:
        return None
    buffer, table = attribute.buffer, Table(attribute.buffer, target)
    value: Any
    match kind:
        case _ if kind in _NUMBERS:
            value = buffer.number(target, _NUMBERS[_Kind(kind)])
        case _ if kind in _ARRAYS:
            value = list(table.numbers(0, _ARRAYS[_Kind(kind)]) or ())
        case _Kind.ACTIVATION if one.type == "OPERATOR_DESC":
            value = _activation(table, path)
        case _Kind.ACTIVATIONS if one.type == "OPERATOR_DESC":
            value = [_activation(each, f"{path}[{number}]") for number, each in enumerate(table.tables(0))]
        case _Kind.SCALE_BIAS:
            value = dict(zip(("Scale", "Bias"), buffer.numbers(target, "f", 2), strict=True))
        case _Kind.SIZE_2D:
            value = dict(zip(("Width", "Height"), buffer.numbers(target, "I", 2), strict=True))
        case _Kind.SCALAR if (place := table.target(1)) is not None:
            value = bytes(map(int, buffer.numbers(place, "B", _SCALAR_BYTES)))
        case _:
            raise ModelError(path, f"must be {one.type}, got an attribute of kind {kind}")
    return value


def _activation(table: Table, path: str) -> dict[str, Any]:
    """Return an operator that is fused into another; it has no tensors, and nothing is fused into it."""
    schema = parse_operator_type(Node(table.string(0), f"{path}.type"))
    if any(one.type == "OPERATOR_DESC" for one in schema.fields):
        raise ModelError(path, f"{schema.name} cannot be fused into an operator")
    return {"Type": table.string(0), "Desc": _attributes(schema, table.tables(1), path)}


def _spelled(value: Any, one: FieldSchema, path: str) -> Any:
    """Return a value as models spell it: truth values and enumerations are numbers in the file."""
    if one.type == "BOOL" and value in (0, 1):
        return bool(value)
    if not one.type.startswith("DML_"):
        return value
    is_data_type = one.type == "DML_TENSOR_DATA_TYPE"
    members = DataType if is_data_type else getattr(enums, class_name(one.type.removeprefix("DML_")))
    try:
        return members(value).name
    except (ValueError, TypeError):
        raise ModelError(path, f"must be a value of {one.type}, got {value}") from None


def _scalar(raw: bytes, types: list[Any]) -> int | float | None:
    """Return the number in the first bytes of a scalar, of the operator's one data type."""
    found = DataType.__members__.get(types[0]) if len(types) == 1 and isinstance(types[0], str) else None
    if found is None or found.bits < 8:
        return None
    number: int | float = np.frombuffer(raw, found.numpy, 1)[0].item()
    return number
