"""Compiled graphs on every adapter, under both families of schedules; faults of the compiler must be seen."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, TensorDesc, TensorFlags, descs
from dmlgpu.conformance.running.graph_runner import run_graph
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.graphs import GraphSuite
from dmlgpu.device.device import Device
from dmlgpu.gpu import GpuBackend, adapters
from dmlgpu.graph import compiler
from dmlgpu.graph.network import Network, Result
from dmlgpu.graph.passes import PASSES, inlining, trees, views
from dmlgpu.plan import Affine
from tests.unit.graph_examples import (
    FLOATS,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
    add,
    attention,
    chain,
    convolution,
    product,
    relu,
)
from tests.unit.graph_examples import exponential as exp

SUITE = GraphSuite()


@pytest.mark.parametrize("name", [name for name in SUITE.names("quick") if name.endswith("s0")])
def test_random_graphs_compute_what_the_reference_does(device: Device, name: str) -> None:
    outcome = SUITE.run(name, device)
    assert outcome.status is Status.PASS, outcome


def computed(device: Device, graph: GraphDesc, inputs: list[Any], disabled: tuple[str, ...] = ()) -> list[Any]:
    return list(run_graph(device.compile_graph(graph, disabled_passes=disabled), inputs))


def test_a_residual_block_agrees_fused_unfused_and_on_the_host(device: Device) -> None:
    rng = np.random.default_rng(1)
    owned = TensorDesc(DataType.FLOAT32, (2, 2, 3, 3), flags=TensorFlags.OWNED_BY_DML)
    block = chain(convolution(FLOATS, owned), relu(), convolution(), add(), relu(), product(), exp())
    arrays = [
        (rng.standard_normal(port.desc.sizes) / 4).astype(np.float32)
        for port in Device("numpy").compile_graph(block).inputs
        if port.desc is not None
    ]
    (expected,) = computed(Device("numpy"), block, arrays)
    for disabled in ((), PASSES):
        (got,) = computed(device, block, arrays, disabled)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(2, 3, 5, 7, 4), (1, 2, 16, 32, 8)])
def test_attention_agrees_fused_unfused_and_on_the_host(device: Device, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    graph = attention(*sizes)
    host = Device("numpy").compile_graph(graph)
    arrays = [rng.standard_normal(port.desc.byte_size // 4).astype(np.float32) for port in host.inputs if port.desc]
    (expected,) = run_graph(host, arrays)
    for disabled in ((), PASSES):
        (got,) = computed(device, graph, arrays, disabled)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_convolutions_beside_each_other_in_a_join(device: Device) -> None:
    rng = np.random.default_rng(3)
    wide = TensorDesc(DataType.FLOAT32, (1, 4, 4, 4))
    join = descs.Join(input_tensors=(FLOATS, FLOATS), output_tensor=wide, axis=1)
    nodes = tuple(map(OperatorNode, (convolution(), convolution(), join)))
    inputs = (InputEdge(0, 0, 0), InputEdge(1, 0, 1), InputEdge(0, 1, 0), InputEdge(2, 1, 1))
    inner = (IntermediateEdge(0, 0, 2, 0), IntermediateEdge(1, 0, 2, 1))
    graph = GraphDesc(3, 1, nodes, inputs, inner, (OutputEdge(2, 0, 0),))
    arrays = [rng.standard_normal(count).astype(np.float32) for count in (32, 36, 36)]
    (expected,) = computed(Device("numpy"), graph, arrays)
    for disabled in ((), PASSES):
        (got,) = computed(device, graph, arrays, disabled)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_two_outputs_of_one_value_and_a_folded_output(device: Device) -> None:
    one = dataclasses.replace(chain(exp()), output_count=2, output_edges=(OutputEdge(0, 0, 0), OutputEdge(0, 0, 1)))
    data = np.linspace(-1, 1, 32, dtype=np.float32)
    first, second = computed(device, one, [data])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first.ravel(), np.exp(data), rtol=1e-6)


def test_unused_inputs_are_not_bound(device: Device) -> None:
    graph = GraphDesc(2, 1, (OperatorNode(relu()),), (InputEdge(1, 0, 0),), (), (OutputEdge(0, 0, 0),))
    data = np.linspace(-1, 1, 32, dtype=np.float32)
    (got,) = computed(device, graph, [data, data])
    np.testing.assert_array_equal(got.ravel(), np.maximum(data, 0))


# ---- faults that the suite must see


def _loses_offsets(locate: Callable[..., Any]) -> Callable[..., Any]:
    def located(view: Any, written: Any) -> Any:
        found = locate(view, written)
        return None if found is None else Affine((0,) * len(found.start), found.steps)

    return located


def _swaps_operands(seen_from: Callable[..., Any]) -> Callable[..., Any]:
    def seen(root: Any, *rest: Any) -> Any:
        found = seen_from(root, *rest)
        inputs = getattr(found, "inputs", ())
        if len(inputs) != 2:
            return found
        (a, first), (b, second) = inputs
        return dataclasses.replace(found, inputs=((a, second), (b, first)))

    return seen


def _frees_too_early(lay_out: Callable[..., Any]) -> Callable[..., Any]:
    def laid_out(uses: Any, *, reuse: bool) -> Any:
        """All allocations in one place."""
        arena = lay_out(list(uses), reuse=reuse)
        return dataclasses.replace(arena, offsets=dict.fromkeys(arena.offsets, 0))

    return laid_out


def _drops_a_node(drop_dead: Callable[..., Network]) -> Callable[..., Network]:
    def dropped(network: Network, notes: Any) -> Network:
        """The last node reads what the node before its own producer computed, where that has as many bytes."""
        found = drop_dead(network, notes)
        for number, position, value in reversed(list(found.reads())):
            if not isinstance(value, Result):
                continue
            earlier = found.nodes[value.node].inputs[0]
            if isinstance(earlier, Result) and found.tensor(earlier).byte_size == found.tensor(value).byte_size:
                node = found.nodes[number]
                inputs = (*node.inputs[:position], earlier, *node.inputs[position + 1 :])
                changed = dataclasses.replace(node, inputs=inputs)
                return dataclasses.replace(found, nodes=(*found.nodes[:number], changed, *found.nodes[number + 1 :]))
        return found

    return dropped


FAULTS = {
    "a view loses its offset": [(module, "locate", _loses_offsets) for module in (inlining, views)],
    "operands are swapped": [(inlining, "seen_from", _swaps_operands), (trees, "seen_from", _swaps_operands)],
    "memory is free too early": [(sys.modules["dmlgpu.wgsl.render"], "lay_out", _frees_too_early)],
}


@pytest.mark.parametrize("fault", [*FAULTS, "a node is dropped"])
def test_faults_of_the_compiler_are_seen(fault: str, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend.info != adapters()[0]:
        pytest.skip("the compiler is the same on every adapter")
    for module, name, alter in FAULTS.get(fault, ()):
        monkeypatch.setattr(module, name, alter(getattr(module, name)))
    if fault == "a node is dropped":
        monkeypatch.setitem(compiler.NODE_PASSES, "dead", _drops_a_node(compiler.NODE_PASSES["dead"]))
    device = Device.from_backend(backend)
    outcomes = (SUITE.run(name, device) for name in SUITE.names("quick"))
    assert any(outcome.status is Status.FAIL for outcome in outcomes)
