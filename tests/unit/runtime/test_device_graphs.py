"""Compiled graphs as the device layer offers them: compiled operators like any other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlgpu import (
    BindingError,
    DataType,
    Device,
    ExecutionFlags,
    InvalidArgument,
    InvalidGraph,
    InvalidState,
    OperatorNotImplemented,
    TensorDesc,
    TensorFlags,
    descs,
)
from dmlgpu.conformance.running.runner import run_graph
from tests.unit.graph_examples import (
    FLOATS,
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
    add,
    chain,
    exponential,
    identity,
    relu,
)

OWNED = dataclasses.replace(FLOATS, flags=TensorFlags.OWNED_BY_DML)
DATA = np.linspace(-1, 1, 32, dtype=np.float32)


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


def test_a_graph_is_a_compiled_operator(device: Device) -> None:
    compiled = device.compile_graph(chain(relu(), add(FLOATS, OWNED, FLOATS), exponential()), ExecutionFlags.NONE)
    assert [(port.label, port.desc) for port in compiled.inputs] == [
        ("graph input 0", FLOATS),
        ("graph input 1", OWNED),
    ]
    assert [(port.label, port.desc) for port in compiled.outputs] == [("graph output 0", FLOATS)]
    assert (compiled.name, compiled.description, compiled.flags) == ("chain", "graph 'chain'", ExecutionFlags.NONE)
    properties = compiled.binding_properties
    assert properties.persistent_resource_size == 256
    assert properties.temporary_resource_size == 512  # two results that are alive together


def test_a_graph_matches_its_nodes(device: Device) -> None:
    compiled = device.compile_graph(chain(relu(), add(FLOATS, OWNED, FLOATS), exponential()))
    (got,) = run_graph(compiled, [DATA, 2 * DATA])
    np.testing.assert_allclose(got.ravel(), np.exp(np.maximum(DATA, 0) + 2 * DATA), rtol=1e-6)


def test_constants_and_bytes_read_again(device: Device) -> None:
    bits = TensorDesc(DataType.UINT32, (32,))
    nodes = (ConstantNode(DATA.tobytes()), OperatorNode(add()), OperatorNode(identity(bits)))
    inner = (IntermediateEdge(0, 0, 1, 1), IntermediateEdge(1, 0, 2, 0))
    graph = GraphDesc(1, 1, nodes, (InputEdge(0, 1, 0),), inner, (OutputEdge(2, 0, 0),))
    (got,) = run_graph(device.compile_graph(graph), [DATA])
    np.testing.assert_array_equal(got, (DATA + DATA).view(np.uint32))


def test_a_value_may_be_several_outputs(device: Device) -> None:
    graph = chain(relu(), relu())
    edges = (OutputEdge(1, 0, 0), OutputEdge(0, 0, 1), OutputEdge(1, 0, 2))
    compiled = device.compile_graph(dataclasses.replace(graph, output_count=3, output_edges=edges))
    for got in run_graph(compiled, [DATA]):
        np.testing.assert_array_equal(got.ravel(), np.maximum(DATA, 0))


def test_it_is_initialized_before_it_runs(device: Device) -> None:
    compiled = device.compile_graph(chain(relu()))
    table = device.create_binding_table(compiled)
    commands = device.create_command_list()
    with pytest.raises(BindingError, match=r"graph 'chain': graph input 0 not bound; call bind_inputs first"):
        device.create_command_recorder().record_dispatch(commands, compiled, table)
    buffer, other = device.create_buffer(128), device.create_buffer(128)
    table.bind_inputs([buffer])
    table.bind_outputs([other])
    device.create_command_recorder().record_dispatch(commands, compiled, table)
    commands.close()
    with pytest.raises(InvalidState, match="graph 'chain'"):
        device.queue.execute([commands])


def test_a_buffer_of_another_device_is_rejected(device: Device) -> None:
    table = device.create_binding_table(device.compile_graph(chain(relu())))
    theirs = Device("numpy").create_buffer(128, "theirs")
    with pytest.raises(InvalidArgument, match=r"graph 'chain': .*graph input 0.*'theirs', belongs to another device"):
        table.bind_inputs([theirs])


def test_a_node_that_breaks_a_rule_is_named(device: Device) -> None:
    halves = TensorDesc(DataType.FLOAT16, FLOATS.sizes)
    wrong = descs.ElementWiseAdd(a_tensor=FLOATS, b_tensor=FLOATS, output_tensor=halves)
    with pytest.raises(InvalidGraph, match=r"graph 'chain': node 'element_wise_add0': ELEMENT_WISE_ADD: output_tensor"):
        device.compile_graph(chain(wrong))


def test_no_graph_and_no_pass_are_rejected(device: Device) -> None:
    with pytest.raises(InvalidArgument, match="compile_graph: graph must be a GraphDesc, got"):
        device.compile_graph(relu())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="compile_graph: disabled_passes must be a sequence of names"):
        device.compile_graph(chain(relu()), disabled_passes="views")
    with pytest.raises(InvalidArgument, match="disabled_passes must name passes"):
        device.compile_graph(chain(relu()), disabled_passes=["x" * 1000])


def test_an_operator_without_a_reference_is_rejected(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgpu.reference.implemented", lambda: frozenset({"ELEMENT_WISE_ADD"}))
    with pytest.raises(OperatorNotImplemented):
        device.compile_graph(chain(relu()))
