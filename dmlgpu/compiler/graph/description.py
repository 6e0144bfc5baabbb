"""Graphs as people describe them: nodes, and edges that say which tensor feeds which (DirectML: DML_GRAPH_DESC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidGraph

_NUMBER = kinds.between(0, 2**32 - 1)
_COUNT = kinds.between(0, 2**16)
_NAME = kinds.optional(kinds.text)


def _check(given: Any, **converters: kinds.Converter[Any]) -> None:
    """Put every field of a node, an edge or a graph into its kind.

    Raises:
        InvalidGraph: for a value of the wrong kind; names the class and the field.
    """
    for field, convert in converters.items():
        try:
            object.__setattr__(given, field, convert(getattr(given, field)))
        except kinds.CoercionError as wrong:
            raise InvalidGraph(f"{type(given).__name__}: {field}{wrong.where} {wrong.describe()}") from None


@dataclass(frozen=True)
class OperatorNode:
    """An operator in a graph (DirectML: DML_OPERATOR_GRAPH_NODE_DESC).

    DirectML's node holds an IDMLOperator; here it holds the description that one is created from.

    Attributes:
        desc: the operator's description.
        name: for messages and labels; None for none.

    Raises:
        InvalidGraph: a field is of the wrong kind.
    """

    desc: OperatorDesc
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, desc=kinds.instance_of(OperatorDesc, "an OperatorDesc"), name=_NAME)


@dataclass(frozen=True)
class ConstantNode:
    """Data that are known when the graph is compiled (DirectML: DML_CONSTANT_DATA_GRAPH_NODE_DESC).

    Attributes:
        data: the bytes of the tensor, as many as the TotalTensorSizeInBytes of the inputs that it feeds.
        name: as for ``OperatorNode``.

    Raises:
        InvalidGraph: a field is of the wrong kind.
    """

    data: bytes
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, data=kinds.instance_of(bytes, "bytes"), name=_NAME)


Node: TypeAlias = OperatorNode | ConstantNode


@dataclass(frozen=True)
class InputEdge:
    """From an input of the graph to an input of a node (DirectML: DML_INPUT_GRAPH_EDGE_DESC).

    Attributes:
        graph_input: number of the graph's input; several edges may start there.
        to_node, to_input: the node's number, and the flat number of its input.
        name: as for ``OperatorNode``.

    Raises:
        InvalidGraph: a field is of the wrong kind.
    """

    graph_input: int
    to_node: int
    to_input: int
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, graph_input=_NUMBER, to_node=_NUMBER, to_input=_NUMBER, name=_NAME)


@dataclass(frozen=True)
class IntermediateEdge:
    """From an output of a node to an input of another (DirectML: DML_INTERMEDIATE_GRAPH_EDGE_DESC).

    The two tensors may differ in type, rank, sizes and strides: the bytes are read anew. Their sizes in bytes agree.

    Attributes:
        from_node, from_output: the node's number, and the flat number of its output; 0 for a constant.
        to_node, to_input: the node's number, and the flat number of its input.
        name: as for ``OperatorNode``.

    Raises:
        InvalidGraph: a field is of the wrong kind.
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
    """From an output of a node to an output of the graph (DirectML: DML_OUTPUT_GRAPH_EDGE_DESC).

    Attributes:
        from_node, from_output: the node's number, and the flat number of its output.
        graph_output: number of the graph's output; one edge ends there.
        name: as for ``OperatorNode``.

    Raises:
        InvalidGraph: a field is of the wrong kind.
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
        input_count, output_count: of the graph, at most 65,536 each. An input that no edge starts at is not bound.
        nodes: in any order; edges name them by their place here.
        input_edges, intermediate_edges, output_edges: in any order.
        name: of the whole, for messages and labels.

    Raises:
        InvalidGraph: a field is of the wrong kind.
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


def _entries(kind: Any, what: str) -> kinds.Converter[tuple[Any, ...]]:
    return kinds.tuple_of(kinds.instance_of(kind, f"an {what}"), what)
