"""Contents of a graph under construction, arrays passed to it, and its description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import operator
from dmlgpu.catalog.enums import BFLOAT16, DataType, as_elements, holds_numbers
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    Node,
    OperatorNode,
    OutputEdge,
)
from dmlgpu.runtime.child import as_tuple
from dmlgpu.tensors.memory import Origin
from dmlgpu.tensors.types import as_data_type, is_boolean_type


@dataclass(frozen=True)
class InputNode:
    """An input of a graph.

    Attributes:
        desc: Tensor to bind.
        name: Name in messages and pictures.
    """

    desc: TensorDesc
    name: str


@dataclass(frozen=True)
class BuiltNode:
    """An operator or a constant of a graph.

    Attributes:
        desc: The operator; the tensor of a constant.
        fed: Source of each flat input of the operator; None for an absent one.
        name: Name with its scopes; None if unnamed.
        location: ``file:line`` of the caller.
        data: Bytes of a constant.
        number: Value of a constant of one element that depends on named sizes; else None.
    """

    desc: OperatorDesc | TensorDesc
    fed: tuple[Origin | None, ...]
    name: str | None
    location: str
    data: bytes = b""
    number: Any = None

    def __str__(self) -> str:
        kind = self.desc.operator if isinstance(self.desc, OperatorDesc) else "constant"
        return f"{kind} {self.name!r}" if self.name else kind


def used(nodes: Sequence[BuiltNode], outputs: Sequence[Origin]) -> list[int]:
    """Return the indices of the nodes that outputs need, in the order of construction."""
    indices: set[int] = set()
    waiting = [origin.number for origin in outputs if origin.kind != "input"]
    while waiting:
        index = waiting.pop()
        if index not in indices:
            indices.add(index)
            waiting += [origin.number for origin in nodes[index].fed if origin is not None and origin.kind != "input"]
    return sorted(indices)


def unread(nodes: Sequence[BuiltNode], outputs: Sequence[Origin]) -> list[tuple[Origin, TensorDesc]]:
    """Return required outputs of needed nodes that are unused."""
    needed = used(nodes, outputs)
    read = {*outputs, *(origin for index in needed for origin in nodes[index].fed if origin is not None)}
    forgotten = []
    for index in needed:
        node = nodes[index].desc
        if isinstance(node, OperatorDesc):
            for position, slot in enumerate(node.outputs):
                origin = Origin("operator", index, position)
                if slot.tensor and origin not in read and not operator(node.operator).field(slot.field).optional:
                    forgotten.append((origin, slot.tensor))
    return forgotten


def shown(desc: TensorDesc) -> str:
    """Return type and sizes as in messages and pictures: ``FLOAT32 [2, 3]``."""
    return f"{desc.data_type.name} {list(desc.sizes)}"


def describe(
    nodes: Sequence[BuiltNode], inputs: Sequence[str], outputs: Sequence[Origin], name: str | None
) -> GraphDesc:
    """Return the description of a graph.

    Args:
        nodes: All nodes in the order of construction.
        inputs: Names of the graph's inputs.
        outputs: Sources of its outputs.
        name: Name of the graph.
    """
    positions = {index: place for place, index in enumerate(used(nodes, outputs))}
    read = {origin for index in positions for origin in nodes[index].fed if origin is not None} | set(outputs)
    described: list[Node] = []
    input_edges: list[InputEdge] = []
    edges: list[IntermediateEdge] = []
    for index, place in positions.items():
        node = nodes[index]
        if not isinstance(node.desc, OperatorDesc):
            described.append(ConstantNode(node.data, node.name))
            continue
        described.append(OperatorNode(_without_unread(node.desc, index, read), node.name))
        for slot, origin in enumerate(node.fed):
            if origin is not None and origin.kind == "input":
                input_edges.append(InputEdge(origin.number, place, slot, inputs[origin.number]))
            elif origin is not None:
                edges.append(IntermediateEdge(positions[origin.number], origin.output, place, slot))
    ends = [
        OutputEdge(positions[origin.number], origin.output, end, nodes[origin.number].name)
        for end, origin in enumerate(outputs)
    ]
    return GraphDesc(len(inputs), len(outputs), tuple(described), tuple(input_edges), tuple(edges), tuple(ends), name)


def _without_unread(desc: OperatorDesc, index: int, read: set[Origin]) -> OperatorDesc:
    """Return a description without unused optional outputs; at least one output remains.

    Present keys and values that are a cache remain together, since the operator also reads them.
    """
    if getattr(desc, "past_sequence_lengths_tensor", None) is not None:
        return desc
    schema = operator(desc.operator)
    unread = {
        slot.field: None
        for position, slot in enumerate(desc.outputs)
        if schema.field(slot.field).optional and slot.tensor and Origin("operator", index, position) not in read
    }
    return desc.replace(**unread) if unread else desc


Array: TypeAlias = NDArray[Any]

_TYPES = {member.numpy: member for member in DataType if member is not DataType.UNKNOWN and member.bits >= 8}


def _numbers(value: Any) -> Array:
    """Convert a value to an array of numbers with at least one element."""
    try:
        array = np.asarray(value)
    except Exception:  # whatever a foreign __array__ raises
        array = np.empty(0)
    if not holds_numbers(array.dtype) or not array.size:
        raise coercion.CoercionError("an array of numbers, at least one", value)
    return array


def encoded(caller: str, array: Any, dtype: Any) -> tuple[TensorDesc, bytes, bool]:
    """Return the tensor of an array (rank 1 or more), its data, and whether the elements are booleans.

    Args:
        caller: Name in messages.
        array: Numbers, at least one.
        dtype: Type of the tensor; None takes the array's.

    Raises:
        InvalidArgument: If DirectML lacks the dtype, or it cannot represent an element.
    """
    numbers = coercion.argument(caller, "array", _numbers, array)
    is_boolean = numbers.dtype == bool if dtype is None else is_boolean_type(dtype)
    if is_boolean:
        numbers, dtype = np.asarray(numbers != 0), DataType.UINT8
    data_type = None if dtype is None else as_data_type(caller, "dtype", dtype)
    if data_type is None:
        data_type = BFLOAT16 if numbers.dtype.name == "bfloat16" else _TYPES.get(numbers.dtype)
        if data_type is None:
            raise InvalidArgument(
                f"{caller}: array must be of a type of DirectML's, got {numbers.dtype}; pass dtype='float32'"
            )
    if numbers.ndim == 0:
        numbers = numbers.reshape(1)
    desc = TensorDesc(data_type, numbers.shape)
    return desc, desc.encode(as_elements(desc.data_type, numbers)).tobytes(), is_boolean


def by_input(
    caller: str, inputs: Sequence[InputNode], values: Mapping[str, Array] | Sequence[Array | None]
) -> list[Array | None]:
    """Return an array per input, None for inputs without one.

    Raises:
        InvalidArgument: If an array is superfluous.
    """
    names = [source.name for source in inputs]
    if isinstance(values, Mapping):
        for name in values:
            if name not in names:
                raise InvalidArgument(f"{caller}: inputs must be named {', '.join(names)}, got {name!r}")
        return [values.get(name) for name in names]
    arrays = as_tuple(caller, "inputs", values, "arrays")
    if len(arrays) != len(names):
        raise InvalidArgument(f"{caller}: inputs must be {len(names)} arrays, got {len(arrays)}")
    return list(arrays)


def in_order(
    caller: str,
    inputs: Sequence[InputNode],
    needed: Sequence[bool],
    values: Mapping[str, Array] | Sequence[Array | None],
) -> list[Array | None]:
    """Return an array per input, None for inputs that are not needed.

    Raises:
        InvalidArgument: If an array is missing or superfluous.
    """
    arrays = by_input(caller, inputs, values)
    for source, array, is_needed in zip(inputs, arrays, needed, strict=True):
        if is_needed and array is None:
            raise InvalidArgument(f"{caller}: inputs must have an array for {source.name!r}")
    return [array if is_needed else None for array, is_needed in zip(arrays, needed, strict=True)]
