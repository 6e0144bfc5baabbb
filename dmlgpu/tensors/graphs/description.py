"""From built nodes to a graph's description: the nodes that outputs need, and their edges."""

from __future__ import annotations

from collections.abc import Sequence

from dmlgpu.catalog import operator
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    Node,
    OperatorNode,
    OutputEdge,
)
from dmlgpu.tensors.graphs.nodes import BuiltNode, used
from dmlgpu.tensors.memory import Origin


def describe(
    nodes: Sequence[BuiltNode], inputs: Sequence[str], outputs: Sequence[Origin], name: str | None
) -> GraphDesc:
    """Return the description of a graph.

    Args:
        nodes: all nodes in the order in which they were built.
        inputs: the names of the graph's inputs.
        outputs: what its outputs are.
        name: of the graph.
    """
    numbers = {number: place for place, number in enumerate(used(nodes, outputs))}
    read = {origin for number in numbers for origin in nodes[number].fed if origin is not None} | set(outputs)
    described: list[Node] = []
    input_edges: list[InputEdge] = []
    edges: list[IntermediateEdge] = []
    for number, place in numbers.items():
        node = nodes[number]
        if not isinstance(node.desc, OperatorDesc):
            described.append(ConstantNode(node.data, node.name))
            continue
        described.append(OperatorNode(_without_unread(node.desc, number, read), node.name))
        for position, origin in enumerate(node.fed):
            if origin is not None and origin.kind == "input":
                input_edges.append(InputEdge(origin.number, place, position, inputs[origin.number]))
            elif origin is not None:
                edges.append(IntermediateEdge(numbers[origin.number], origin.output, place, position))
    ends = [
        OutputEdge(numbers[origin.number], origin.output, end, nodes[origin.number].name)
        for end, origin in enumerate(outputs)
    ]
    return GraphDesc(len(inputs), len(outputs), tuple(described), tuple(input_edges), tuple(edges), tuple(ends), name)


def _without_unread(desc: OperatorDesc, number: int, read: set[Origin]) -> OperatorDesc:
    """Return a description without the optional outputs that nothing reads; at least one output is left.

    Present keys and values that are a cache stay together: the operator reads them as well.
    """
    if getattr(desc, "past_sequence_lengths_tensor", None) is not None:
        return desc
    schema = operator(desc.operator)
    unread = {
        slot.field: None
        for position, slot in enumerate(desc.outputs)
        if schema.field(slot.field).optional and slot.tensor and Origin("operator", number, position) not in read
    }
    return desc.replace(**unread) if unread else desc
