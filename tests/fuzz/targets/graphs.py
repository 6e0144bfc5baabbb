"""Graphs, changed or in another order: rejected with a message, or computed like their nodes one by one."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np

from dmlgpu import evaluate
from dmlgpu.common.errors import DmlError, NotSupported, OutOfMemory
from dmlgpu.compiler.graph import ConstantNode, GraphDesc, InputEdge, OperatorNode
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.conformance.running.runner import run_graph
from tests.fuzz import values
from tests.fuzz.devices import check_usable, shared_device
from tests.fuzz.graph_mutations import GraphExample, graph_of, mutate, random_graph, rearranged
from tests.fuzz.monitor import Monitor, Refused, shown
from tests.fuzz.targets.descriptions import draw_case
from tests.fuzz.targets.programs import draw_target

MAX_BYTES = 1 << 18
"""Of all tensors of a graph that is executed."""

MAX_INPUTS = 1000
"""Of a graph that is executed."""


def run(seed: int, monitor: Monitor) -> None:
    """Compile one graph, for a device and for a target that is made up; run it if it is small."""
    rng = random.Random(f"graphs {seed}")
    example = random_graph(rng) if rng.random() < 0.6 else graph_of(draw_case(rng), rng)
    monitor.subject = lambda: shown(example.graph, 3000)
    valid = rng.random() < 0.4
    if valid:
        example = rearranged(example, rng)
    graph = example.graph if valid else mutate(example.graph, rng, monitor)
    if isinstance(graph, Refused):
        return
    disabled: Any = rng.sample(PASSES, rng.randrange(len(PASSES) + 1))
    if rng.random() < 0.05:
        disabled = rng.choice((values.strange(rng), [*disabled, values.strange(rng)]))
        valid = False
    monitor.subject = lambda: f"without {shown(disabled)}: {shown(graph, 3000)}"
    _check_value(graph, monitor)
    device = shared_device(monitor.adapter)
    compiled = monitor.call(device.compile_graph, graph, disabled_passes=disabled)
    if isinstance(compiled, Refused):
        # Not every operator takes tensors that are owned, nor a copy every type; those of the suite do.
        expected = not (valid and example.exact) or isinstance(compiled.error, NotSupported | OutOfMemory)
        monitor.check(expected, "refused", "compile_graph", str(compiled.error))
        return
    target = draw_target(rng)
    monitor.call(lambda: compile_network(resolve(graph), target, disabled))
    if graph.input_count > MAX_INPUTS or _bytes(graph) > MAX_BYTES:
        return
    inputs = _inputs(example, graph.input_count)
    results = monitor.call(run_graph, compiled, inputs, rng.randrange(256))
    if not isinstance(results, Refused) and (monitor.adapter == "numpy" or (valid and example.exact)):
        _check_results(graph, inputs, results, monitor)
    check_usable(device, monitor)


def _check_value(graph: GraphDesc, monitor: Monitor) -> None:
    """A graph is a value: it can be compared, pickled and shown."""
    copied = monitor.call(lambda: pickle.loads(pickle.dumps(graph)))
    same = isinstance(copied, Refused) or (copied == graph and hash(copied) == hash(graph))
    monitor.check(same, "unequal copy", "GraphDesc")
    monitor.call(repr, graph)


def _bytes(graph: GraphDesc) -> int:
    """The bytes of all tensors, where those that stay inside operators are as large."""
    slots = [s for n in graph.nodes if isinstance(n, OperatorNode) for s in (*n.desc.inputs, *n.desc.outputs)]
    return sum(max(s.tensor.byte_size, 8 * s.tensor.element_count) for s in slots if s.tensor is not None)


def _inputs(example: GraphExample, count: int) -> list[np.ndarray]:
    some = example.inputs or (np.arange(16, dtype=np.uint8),)
    return [some[index % len(some)] for index in range(count)]


def _check_results(
    graph: GraphDesc, inputs: list[np.ndarray], results: tuple[np.ndarray, ...], monitor: Monitor
) -> None:
    """Compare what a graph computed with what its nodes compute one by one, where that is defined."""
    try:
        expected = _one_by_one(graph, inputs)
    except DmlError as error:
        # A device refuses in the graph what it refuses outside.
        monitor.note("refused", "evaluate", str(error))
        return
    if expected is None:
        return
    for index, (want, got) in enumerate(zip(expected, results, strict=True)):
        same = np.array_equal(want, got, equal_nan=want.dtype.kind == "f")
        monitor.check(same, "wrong result", "graph", f"output {index}: expected {want}, got {got}")


def _one_by_one(graph: GraphDesc, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
    """The outputs of a graph from its nodes, each by itself on the reference; None where bytes are left undefined."""
    results: dict[tuple[int, int], np.ndarray] = {}
    outputs: dict[tuple[int, int], np.ndarray] = {}
    waiting = []
    for index, node in enumerate(graph.nodes):
        if isinstance(node, ConstantNode):
            results[index, 0] = np.frombuffer(node.data, np.uint8)
        else:
            waiting.append((index, node.desc))
    feeds = {(edge.to_node, edge.to_input): edge for edge in (*graph.input_edges, *graph.intermediate_edges)}
    while waiting:
        index, desc = waiting.pop(0)
        edges = [None if s.tensor is None else feeds[index, p] for p, s in enumerate(desc.inputs)]
        raws = [
            None
            if edge is None
            else inputs[edge.graph_input]
            if isinstance(edge, InputEdge)
            else results.get((edge.from_node, edge.from_output))
            for edge in edges
        ]
        if any(edge is not None and raw is None for edge, raw in zip(edges, raws, strict=True)):
            waiting.append((index, desc))  # it reads a later result
            continue
        arrays = [
            None if slot.tensor is None or raw is None else slot.tensor.decode(np.resize(raw, slot.tensor.byte_size))
            for slot, raw in zip(desc.inputs, raws, strict=True)
        ]
        computed = iter(evaluate(desc, arrays, shared_device("numpy")))
        for position, slot in enumerate(desc.outputs):
            if slot.tensor is not None:
                if 8 * slot.tensor.byte_size != slot.tensor.element_count * slot.tensor.data_type.bits:
                    return None
                outputs[index, position] = next(computed)
                results[index, position] = slot.tensor.encode(outputs[index, position])
    ends = {edge.graph_output: edge for edge in graph.output_edges}
    return [outputs[ends[index].from_node, ends[index].from_output] for index in range(graph.output_count)]
