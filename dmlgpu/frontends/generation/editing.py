"""Changes of ONNX graphs in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onnx import GraphProto, TensorProto

from dmlgpu.frontends.onnx.model import all_nodes
from dmlgpu.frontends.onnx.rewriting import bodies_in


def replace_entries(field: Any, entries: Iterable[Any]) -> None:
    """Replace the entries of a repeated field by copies of some."""
    copies = [type(entry).FromString(entry.SerializeToString()) for entry in entries]
    del field[:]
    field.extend(copies)


def stand_in(name: str, shape: Sequence[int], element: int) -> TensorProto:
    """Return an initializer whose data are not in the model."""
    return TensorProto(name=name, dims=shape, data_type=element, data_location=TensorProto.EXTERNAL)


_READ_INDICES = {"Gather", "GatherBlockQuantized", "Shape"}


def index_type(graph: GraphProto, name: str, element: int) -> int:
    """Return the type that an input with indices needs: INT32 instead of ``element`` if its readers take any."""
    readers = {node.op_type for node in all_nodes(graph) if name in node.input}
    return int(TensorProto.INT32) if readers <= _READ_INDICES else element


def prune(graph: GraphProto) -> None:
    """Remove nodes whose outputs nothing reads."""
    needed = {info.name for info in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if any(output in needed for output in node.output):
            nodes.append(node)
            needed.update(node.input)
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    needed.update(name for inner in all_nodes(body) for name in inner.input)
                    needed.update(output.name for output in body.output)
    replace_entries(graph.node, reversed(nodes))


def drop_unread(graph: GraphProto) -> None:
    """Remove the nodes, inputs and initializers that no output needs."""
    prune(graph)
    read = {name for node in all_nodes(graph) for name in node.input} | {info.name for info in graph.output}
    replace_entries(graph.input, [info for info in graph.input if info.name in read])
    replace_entries(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in read])


def rename(graph: GraphProto, name_of: Callable[[str], str]) -> None:
    """Rename all tensors and nodes of a graph and of its bodies."""
    for body in (graph, *bodies_in(attribute for node in graph.node for attribute in node.attribute)):
        del body.value_info[:]
        for entry in (*body.input, *body.output, *body.initializer):
            entry.name = name_of(entry.name)
        for node in body.node:
            node.name = node.name and name_of(node.name)
            for names in (node.input, node.output):
                names[:] = [name and name_of(name) for name in names]
