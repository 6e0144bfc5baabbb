"""Which names nodes read, those in bodies included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import AttributeProto, GraphProto, NodeProto


def last_uses(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> dict[str, int]:
    """Return, by name, the number of the last node that reads it, bodies included, or the count of nodes."""
    found: dict[str, int] = {}
    for number, node in enumerate(nodes):
        found.update(dict.fromkeys(read_names(node), number))
    found.update(dict.fromkeys(outputs, len(nodes)))
    return found


def read_names(node: NodeProto) -> Iterable[str]:
    """Return the names that a node and the bodies in its attributes read."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from read_names(inner)
            yield from (one.name for one in attribute.g.output)


def bodies_in(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """Return the bodies in attributes, and those in the attributes of their nodes."""
    for attribute in attributes:
        for graph in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
            yield graph
            yield from bodies_in(inner for node in graph.node for inner in node.attribute)
