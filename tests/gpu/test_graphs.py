"""Compiled graphs on every adapter, under both families of schedules."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, TensorDesc, TensorFlags, descs
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.runner import run_graph
from dmlgpu.conformance.suites.graphs import QUICK, GraphExpectation, GraphSuite
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.specialization import Specialize, Specializer
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
def test_random_graphs_match_the_reference(device: Device, name: str) -> None:
    outcome = SUITE.run(name, device)
    assert outcome.status is Status.PASS, outcome


TIERS = [Specialize.ALWAYS, Specialize.NEVER]


@pytest.mark.parametrize(
    "name",
    [
        "graph-float32-6-s7",
        "graph-float16-6-s7",
        "graph-int32-12-s7",
        "pair-convolution-residual-float32-odd",
        "pair-softmax-scale_bias-float16-plain",
    ],
)
def test_kernels_with_constants_and_with_parameters_agree(
    device: Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the tolerance of their operators; random graphs, whose numbers are exact, bit for bit."""
    expectation, outputs = GraphExpectation.of(name), []
    for policy in TIERS:
        monkeypatch.setattr(device.backend, "specializer", Specializer(policy))
        own = Device.from_backend(device.backend)
        program = own.compile_graph(expectation.example.graph).program
        assert program is not None
        assert any(kernel.given for kernel in program.kernels) is (policy is Specialize.NEVER)
        verdicts = expectation.verdicts(own, ())
        assert all(verdict.ok for verdict in verdicts), (policy, verdicts)
        outputs.append(SUITE.outputs(name, own, 0xA5))
    if name.startswith("graph"):
        for special, general in zip(*outputs, strict=True):
            np.testing.assert_array_equal(special, general)


@pytest.mark.parametrize("number", range(len(QUICK) // 2))
def test_pairs_and_patterns_match_the_reference(device: Device, schedules: str, number: int) -> None:
    outcome = SUITE.run(QUICK[2 * number + (schedules == "other schedules")], device)
    assert outcome.status is Status.PASS, outcome


@pytest.mark.parametrize("name", ["softmax-quantize-float32-plain", "softmax_of_channels-cast-float16-plain"])
def test_rows_may_be_stored_as_integers(device: Device, name: str) -> None:
    outcome = SUITE.run(f"pair-{name}", device)
    assert outcome.status is Status.PASS, outcome


@pytest.mark.parametrize("data_type", ["uint8", "int8"])
def test_columns_of_bytes_are_reduced_where_pairs_of_them_start(device: Device, data_type: str) -> None:
    outcome = SUITE.run(f"pair-slice_with_steps-maximum-{data_type}-plain", device)
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


@pytest.mark.parametrize("sizes", [(2, 3, 5, 7, 4), (1, 2, 16, 32, 8), (1, 1, 1, 1100, 16)])
def test_rows_of_attention_that_are_hidden_throughout_are_no_numbers(device: Device, sizes: tuple[int, ...]) -> None:
    """As a softmax of -inf alone is; a row with a key that counts is what that key makes of it."""
    rng = np.random.default_rng(4)
    graph, (batch, heads, rows, keys, size) = attention(*sizes), sizes
    query, key, value = (
        rng.standard_normal((batch, heads, count, size)).astype(np.float32) for count in (rows, keys, keys)
    )
    for seen in ([], [0], [keys - 1, keys // 2]):
        mask = np.full((rows, keys), -np.inf, np.float32)
        mask[-1, seen] = 0
        scores = (query.astype(np.float64) @ key.swapaxes(2, 3))[:, :, -1:] * size**-0.5 + mask[-1]
        weights = np.exp(scores)
        expected = np.full((batch, heads, rows, size), np.nan)
        if seen:
            expected[:, :, -1:] = weights / weights.sum(-1, keepdims=True) @ value
        for disabled in ((), PASSES):
            (got,) = computed(device, graph, [query, key, mask, value], disabled)
            np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_parallel_convolutions_in_a_join(device: Device) -> None:
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
    desc = dataclasses.replace(chain(exp()), output_count=2, output_edges=(OutputEdge(0, 0, 0), OutputEdge(0, 0, 1)))
    data = np.linspace(-1, 1, 32, dtype=np.float32)
    first, second = computed(device, desc, [data])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first.ravel(), np.exp(data), rtol=1e-6)


def test_unused_inputs_are_not_bound(device: Device) -> None:
    graph = GraphDesc(2, 1, (OperatorNode(relu()),), (InputEdge(1, 0, 0),), (), (OutputEdge(0, 0, 0),))
    data = np.linspace(-1, 1, 32, dtype=np.float32)
    (got,) = computed(device, graph, [data, data])
    np.testing.assert_array_equal(got.ravel(), np.maximum(data, 0))
