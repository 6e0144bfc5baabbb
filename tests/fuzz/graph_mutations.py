"""Graphs, and changes to them: of edges, counts, nodes and constants, or only of the order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import TensorFlags
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph import ConstantNode, GraphDesc, InputEdge, IntermediateEdge, OperatorNode, OutputEdge
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.suites.chains import LARGEST
from dmlgpu.conformance.suites.graphs import RandomGraph, random_example
from tests.fuzz import description_mutations, values
from tests.fuzz.monitor import Monitor, Refused

EDGES = ("input_edges", "intermediate_edges", "output_edges")


@dataclass(frozen=True)
class GraphExample:
    """A valid graph and the bytes of its inputs.

    Attributes:
        graph: the graph.
        inputs: per input of the graph, uint8.
        exact: whether devices agree bit by bit on what it computes.
    """

    graph: GraphDesc
    inputs: tuple[np.ndarray, ...]
    exact: bool


def random_graph(rng: random.Random) -> GraphExample:
    """A graph of the conformance suite."""
    key = RandomGraph(rng.choice(list(LARGEST)), rng.choice((1, 2, 3, 4, 6, 9)), rng.randrange(10**6))
    example = random_example(key)
    return GraphExample(example.graph, tuple(input.view(np.uint8) for input in example.inputs), True)


def graph_of(case: Case, rng: random.Random) -> GraphExample:
    """A graph of an operator's case; some inputs are constants, copies follow some outputs."""
    arrays = case.fill(np.random.default_rng(rng.randrange(2**32)))
    nodes: list[Any] = [OperatorNode(case.desc, rng.choice((None, "operator")))]
    into, inner, ends, inputs = [], [], [], []
    for position, (slot, array) in enumerate(zip(case.desc.inputs, arrays, strict=True)):
        if slot.tensor is None or array is None:
            continue
        raw = slot.tensor.encode(array)
        if not slot.tensor.owned_by_dml and rng.random() < 0.25:
            inner.append(IntermediateEdge(len(nodes), 0, 0, position))
            nodes.append(ConstantNode(raw.tobytes()))
        else:
            into.append(InputEdge(len(inputs), 0, position))
            inputs.append(raw)
    for position, slot in enumerate(case.desc.outputs):
        if slot.tensor is None:
            continue
        source = 0, position
        if rng.random() < 0.4:
            inner.append(IntermediateEdge(*source, len(nodes), 0))
            source = len(nodes), 0
            nodes.append(OperatorNode(_copy(slot.tensor)))
        ends.append(OutputEdge(*source, len(ends)))
    graph = GraphDesc(len(inputs), len(ends), tuple(nodes), tuple(into), tuple(inner), tuple(ends))
    return GraphExample(graph, tuple(inputs), False)


def _copy(tensor: TensorDesc) -> Any:
    """A copy of a tensor's elements."""
    return description_mutations.descs.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor, scale_bias=None)


def rearranged(example: GraphExample, rng: random.Random) -> GraphExample:
    """The same computation: nodes and edges in another order, inputs that are constants or owned."""
    graph = example.graph
    order = rng.sample(range(len(graph.nodes)), len(graph.nodes))
    place = {old: new for new, old in enumerate(order)}
    nodes = [graph.nodes[old] for old in order]
    into = [replace(edge, to_node=place[edge.to_node]) for edge in graph.input_edges]
    inner = [replace(e, from_node=place[e.from_node], to_node=place[e.to_node]) for e in graph.intermediate_edges]
    ends = [replace(edge, from_node=place[edge.from_node]) for edge in graph.output_edges]
    used = sorted({edge.graph_input for edge in into})
    if used and rng.random() < 0.4:
        chosen = rng.choice(used)
        fed = [edge for edge in into if edge.graph_input == chosen]
        tensors = [nodes[edge.to_node].desc.inputs[edge.to_input].tensor for edge in fed]  # type: ignore[union-attr]
        if not any(tensor is None or tensor.owned_by_dml for tensor in tensors):
            for edge, tensor in zip(fed, tensors, strict=True):
                into.remove(edge)
                inner.append(IntermediateEdge(len(nodes), 0, edge.to_node, edge.to_input))
                raw = np.resize(example.inputs[chosen], tensor.byte_size)  # type: ignore[union-attr]
                nodes.append(ConstantNode(raw.tobytes(), f"input {chosen}"))
    elif used and rng.random() < 0.4:
        chosen = rng.choice(used)
        for edge in into:
            if edge.graph_input == chosen:
                nodes[edge.to_node] = _owning(nodes[edge.to_node], edge.to_input)
    for edges in (into, inner, ends):
        rng.shuffle(edges)
    graph = replace(
        graph,
        nodes=tuple(nodes),
        input_edges=tuple(into),
        intermediate_edges=tuple(inner),
        output_edges=tuple(ends),
        name=rng.choice((None, "graph")),
    )
    return replace(example, graph=graph)


def _owning(node: Any, position: int) -> OperatorNode:
    """A node, one input of which is handed over at initialization."""
    slot = node.desc.inputs[position]
    owned = replace(slot.tensor, flags=TensorFlags.OWNED_BY_DML)
    value = node.desc.values[slot.field]
    if isinstance(value, tuple):
        value = tuple(owned if index == slot.position else tensor for index, tensor in enumerate(value))
    else:
        value = owned
    return replace(node, desc=node.desc.replace(**{slot.field: value}))


def mutate(graph: GraphDesc, rng: random.Random, monitor: Monitor) -> GraphDesc | Refused:
    """A graph with one change, seldom several."""
    mutant: GraphDesc | Refused = graph
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        if isinstance(mutant, Refused):
            break
        mutant = monitor.call(replace, mutant, **rng.choice(_CHANGES)(mutant, rng, monitor))
    return mutant


def _count(graph: GraphDesc, rng: random.Random, monitor: Monitor) -> dict[str, Any]:
    field = rng.choice(("input_count", "output_count"))
    count = getattr(graph, field)
    return {field: rng.choice((count + 1, count - 1, 0, values.integer(rng), values.strange(rng)))}


def _field(graph: GraphDesc, rng: random.Random, monitor: Monitor) -> dict[str, Any]:
    """Any field becomes something else."""
    return {rng.choice(("name", "nodes", *EDGES)): values.strange(rng)}


def _edge(graph: GraphDesc, rng: random.Random, monitor: Monitor) -> dict[str, Any]:
    """An edge starts or ends elsewhere, is there twice, is missing, or is of another kind."""
    field = rng.choice(EDGES)
    edges = list(getattr(graph, field))
    if not edges:
        return {field: [values.strange(rng)]}
    at = rng.randrange(len(edges))
    match rng.randrange(8):
        case 0:
            del edges[at]
        case 1:
            edges.insert(at, edges[at])
        case 2:
            edges[at] = rng.choice([*graph.input_edges, *graph.output_edges, values.strange(rng)])
        case _:
            changed = rng.choice([name for name in vars(edges[at]) if name != "name"] * 3 + ["name"])
            near = rng.randrange(len(graph.nodes) + 1)
            value = rng.choice((near, near, near, values.integer(rng), values.strange(rng)))
            edge = monitor.call(replace, edges[at], **{changed: value})
            edges[at] = edges[at] if isinstance(edge, Refused) else edge
    return {field: edges if rng.random() < 0.5 else tuple(edges)}


def _cycle(graph: GraphDesc, rng: random.Random, monitor: Monitor) -> dict[str, Any]:
    """What feeds an input is another node, perhaps one that reads it."""
    into, inner = list(graph.input_edges), list(graph.intermediate_edges)
    if not (graph.nodes and (into or inner)):
        return {}
    edge = rng.choice([*into, *inner])
    edges: list[Any] = into if isinstance(edge, InputEdge) else inner
    edges.remove(edge)
    inner.append(IntermediateEdge(rng.randrange(len(graph.nodes)), 0, edge.to_node, edge.to_input))
    return {"input_edges": tuple(into), "intermediate_edges": tuple(inner)}


def _node(graph: GraphDesc, rng: random.Random, monitor: Monitor) -> dict[str, Any]:
    """A node with another description or name, other data, of another kind; one more, or one less."""
    nodes: list[Any] = list(graph.nodes)
    at = rng.randrange(len(nodes)) if nodes else 0
    match rng.randrange(10):
        case 0 if nodes:
            del nodes[at]
        case 1 if nodes:
            nodes.append(nodes[at])
        case 2 if nodes:
            nodes[at] = rng.choice((values.strange(rng), ConstantNode(bytes(rng.choice((0, 1, 4, 16, 128))))))
        case 3:
            node = monitor.call(rng.choice((OperatorNode, ConstantNode)), values.strange(rng), values.strange(rng))
            nodes += [] if isinstance(node, Refused) else [node]
        case 4 if nodes:
            node = monitor.call(replace, nodes[at], name=values.strange(rng))
            nodes[at] = nodes[at] if isinstance(node, Refused) else node
        case _ if nodes and isinstance(nodes[at], OperatorNode):
            node = description_mutations.mutate(nodes[at].desc, rng, monitor)
            nodes[at] = nodes[at] if isinstance(node, Refused) else replace(nodes[at], desc=node)
        case _ if nodes and nodes[at].data:
            data = nodes[at].data
            nodes[at] = ConstantNode(rng.choice((data[:-1], data[4:], data * 2, data[::-1], b"\xff" * len(data), b"")))
    return {"nodes": nodes if rng.random() < 0.5 else tuple(nodes)}


_CHANGES: tuple[Callable[[GraphDesc, random.Random, Monitor], dict[str, Any]], ...] = (
    *(_count, _field, _edge, _edge, _edge, _cycle, _cycle, _node, _node, _node),
)
