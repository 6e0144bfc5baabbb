"""Graph descriptions: nodes and edges (DirectML: DML_GRAPH_DESC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidGraph

_NUMBER = coercion.between(0, 2**32 - 1)
_COUNT = coercion.between(0, 2**16)
_NAME = coercion.optional(coercion.text)


def _check(part: Any, **converters: coercion.Converter[Any]) -> None:
    """Convert every field of a node, an edge or a graph to its type.

    Raises:
        InvalidGraph: If a value has the wrong type; the message names class and field.
    """
    for field, convert in converters.items():
        try:
            object.__setattr__(part, field, convert(getattr(part, field)))
        except coercion.CoercionError as wrong:
            raise InvalidGraph(f"{type(part).__name__}: {field}{wrong.where} {wrong.describe()}") from None


@dataclass(frozen=True)
class OperatorNode:
    """An operator in a graph (DirectML: DML_OPERATOR_GRAPH_NODE_DESC).

    DirectML's node has an IDMLOperator; this one has its description.

    Attributes:
        desc: Description of the operator.
        name: Name in messages and labels; None if unnamed.

    Raises:
        InvalidGraph: If a field has the wrong type.
    """

    desc: OperatorDesc
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, desc=coercion.instance_of(OperatorDesc, "an OperatorDesc"), name=_NAME)


@dataclass(frozen=True)
class ConstantNode:
    """Constant data in a graph (DirectML: DML_CONSTANT_DATA_GRAPH_NODE_DESC).

    Attributes:
        data: Bytes of the tensor, as many as the TotalTensorSizeInBytes of the inputs that it feeds.
        name: As for ``OperatorNode``.

    Raises:
        InvalidGraph: If a field has the wrong type.
    """

    data: bytes
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, data=coercion.instance_of(bytes, "bytes"), name=_NAME)


Node: TypeAlias = OperatorNode | ConstantNode


@dataclass(frozen=True)
class InputEdge:
    """Edge from an input of the graph to an input of a node (DirectML: DML_INPUT_GRAPH_EDGE_DESC).

    Attributes:
        graph_input: Index of the graph's input, at which several edges may start.
        to_node, to_input: Index of the node, and flat index of its input.
        name: As for ``OperatorNode``.

    Raises:
        InvalidGraph: If a field has the wrong type.
    """

    graph_input: int
    to_node: int
    to_input: int
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, graph_input=_NUMBER, to_node=_NUMBER, to_input=_NUMBER, name=_NAME)


@dataclass(frozen=True)
class IntermediateEdge:
    """Edge from an output of a node to an input of another (DirectML: DML_INTERMEDIATE_GRAPH_EDGE_DESC).

    The two tensors may differ in type, rank, sizes and strides (the bytes are reinterpreted), but not in size in bytes.

    Attributes:
        from_node, from_output: Index of the node, and flat index of its output; 0 for a constant.
        to_node, to_input: Index of the node, and flat index of its input.
        name: As for ``OperatorNode``.

    Raises:
        InvalidGraph: If a field has the wrong type.
    """

    from_node: int
    from_output: int
    to_node: int
    to_input: int
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, from_node=_NUMBER, from_output=_NUMBER, to_node=_NUMBER, to_input=_NUMBER, name=_NAME)


@dataclass(frozen=True)
class OutputEdge:
    """Edge from an output of a node to an output of the graph (DirectML: DML_OUTPUT_GRAPH_EDGE_DESC).

    Attributes:
        from_node, from_output: Index of the node, and flat index of its output.
        graph_output: Index of the graph's output, at which one edge ends.
        name: As for ``OperatorNode``.

    Raises:
        InvalidGraph: If a field has the wrong type.
    """

    from_node: int
    from_output: int
    graph_output: int
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, from_node=_NUMBER, from_output=_NUMBER, graph_output=_NUMBER, name=_NAME)


@dataclass(frozen=True)
class GraphDesc:
    """A graph of operators (DirectML: DML_GRAPH_DESC).

    Attributes:
        input_count, output_count: Number of inputs and outputs, at most 65,536 each. An input without edges is not
            bound.
        nodes: Nodes in any order; edges refer to their indices.
        input_edges, intermediate_edges, output_edges: Edges in any order.
        name: Name in messages and labels.

    Raises:
        InvalidGraph: If a field has the wrong type.
    """

    input_count: int
    output_count: int
    nodes: tuple[Node, ...]
    input_edges: tuple[InputEdge, ...] = ()
    intermediate_edges: tuple[IntermediateEdge, ...] = ()
    output_edges: tuple[OutputEdge, ...] = ()
    name: str | None = None

    def __post_init__(self) -> None:
        _check(
            self,
            input_count=_COUNT,
            output_count=_COUNT,
            nodes=_entries(OperatorNode | ConstantNode, "OperatorNode or ConstantNode"),
            input_edges=_entries(InputEdge, "InputEdge"),
            intermediate_edges=_entries(IntermediateEdge, "IntermediateEdge"),
            output_edges=_entries(OutputEdge, "OutputEdge"),
            name=_NAME,
        )


def _entries(cls: Any, what: str) -> coercion.Converter[tuple[Any, ...]]:
    return coercion.tuple_of(coercion.instance_of(cls, f"an {what}"), what)
