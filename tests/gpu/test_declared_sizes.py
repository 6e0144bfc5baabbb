"""Sizes with names are symbols from the first shape on, so that other sizes compile nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.compiler.graph import compiler
from dmlgpu.compiler.sizes import programs
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.graphs.graph import Graph


def directions(batch: str = "n", width: str = "w") -> Any:
    """Return a model of two convolutions and a product of the means, for any batch and width."""
    rng = np.random.default_rng(5)
    weights = {
        "filter": rng.standard_normal((8, 4, 1, 1)),
        "bias": rng.standard_normal(8),
        "narrow": rng.standard_normal((8, 8, 1, 1)),
        "classes": rng.standard_normal((8, 3)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "filter", "bias"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        helper.make_node("Conv", ["positive", "narrow"], ["mixed"]),
        helper.make_node("GlobalAveragePool", ["mixed"], ["means"]),
        helper.make_node("Flatten", ["means"], ["rows"]),
        helper.make_node("MatMul", ["rows", "classes"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4, 12, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])
    constants = [numpy_helper.from_array(np.float32(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "directions", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("specialize", ["never", "auto", "always"])
def test_declared_sizes_are_symbols_from_the_first_shape_on(backend: GpuBackend, specialize: str) -> None:
    """A batch of 1 has the kernels of larger ones, and other sizes compile nothing. Devices whose kernels always have
    constants record nothing at first."""
    onnxruntime = pytest.importorskip("onnxruntime")
    device, model = Device(backend.info, specialize=specialize), directions()
    session = load(model, device)
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pipelines, are_sized = [], []
    for batch, width in ((1, 128), (3, 128), (2, 160), (4, 160), (1, 128)):
        x = np.random.default_rng(batch).standard_normal((batch, 4, 12, width)).astype(np.float32)
        (expected,) = oracle.run(None, {"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
        pipelines.append(device.pipeline_cache.info.misses)
        are_sized.append(runner_of(session).last_stages[0].is_recorded)
    if specialize != "always":
        assert are_sized == [True] * 5
        assert len(set(pipelines)) == 1, pipelines
    else:
        assert are_sized == [False, True, True, True, False]
        assert pipelines[0] < pipelines[1] < pipelines[2] < pipelines[3] == pipelines[4], pipelines
    device.remove()


def chosen_rows() -> Any:
    """Return a model of fixed sizes that takes the softmax of a product with the rows that a mask chooses."""
    weights = np.random.default_rng(6).standard_normal((24, 8)).astype(np.float32)
    nodes = [
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Squeeze", ["places", "first"], ["numbers"]),
        helper.make_node("Gather", ["x", "numbers"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "weights"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 24]),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, [16]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([0]), "first")]
    graph = helper.make_graph(nodes, "rows", inputs, [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_numbers_that_the_host_reads_are_symbols_from_the_first_run_on(backend: GpuBackend) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    device, model = Device(backend.info, specialize="auto"), chosen_rows()
    session = load(model, device)
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pipelines = []
    for count in (5, 9, 3, 16):
        x = np.random.default_rng(count).standard_normal((16, 24)).astype(np.float32)
        feeds = {"x": x, "mask": np.arange(16) < count}
        (expected,) = oracle.run(None, feeds)
        np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
        pipelines.append(device.pipeline_cache.info.misses)
    assert runner_of(session).last_stages[-1].is_recorded
    assert len(set(pipelines)) == 1, pipelines
    device.remove()


def test_graphs_with_names_for_sizes_are_planned_once(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    recorded: list[Any] = []

    def noted(function: Any, calls: list[Any]) -> Any:
        return lambda *arguments: (calls.append(arguments), function(*arguments))[1]

    monkeypatch.setattr(compiler, "compile_network", noted(compiler.compile_network, compiled))
    monkeypatch.setattr(programs, "PlannedNetwork", noted(programs.PlannedNetwork, recorded))
    device = Device(backend.info)
    graph = Graph(device)
    x = graph.input(("n", 24))
    output = (x * 2).softmax()
    pipelines = []
    for rows in (1, 20, 24, 40):
        array = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        powers = np.exp(2 * array)
        (result,) = graph.evaluate([output], [array])
        np.testing.assert_allclose(result, powers / powers.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
        pipelines.append(device.pipeline_cache.info.misses)
    assert compiled == []
    assert len(recorded) <= 2, recorded  # one size is one row
    assert len(set(pipelines)) == 1, pipelines
    device.remove()
