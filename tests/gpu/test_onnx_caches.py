"""Caches that a session holds are updated in place; tensors with other owners keep their elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.compiler.graph import compiler
from dmlgpu.compiler.sizes import networks, programs
from dmlgpu.frontends.onnx import Session, load
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.tensor import Tensor

HEADS, ROWS, SIZE = 2, 2048, 64
CACHES = {"past_key": "present_key", "past_value": "present_value"}


def model() -> Any:
    """One GroupQueryAttention, whose caches exceed what a session reads without tensors."""
    cache, new = [1, HEADS, ROWS, SIZE], [1, 1, HEADS * SIZE]
    inputs = {"query": new, "key": new, "value": new} | dict.fromkeys(CACHES, cache)
    shapes = {"output": new} | dict.fromkeys(CACHES.values(), cache)
    node = helper.make_node(
        "GroupQueryAttention",
        [*inputs, "seqlens_k", "total_sequence_length"],
        list(shapes),
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=HEADS,
    )
    integers = [
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, []),
    ]
    graph = helper.make_graph(
        [node],
        "cache",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()] + integers,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions)


def feeds(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    rows = {name: rng.standard_normal((1, 1, HEADS * SIZE)).astype(np.float32) for name in ("query", "key", "value")}
    return rows | {"seqlens_k": np.array([step], np.int32), "total_sequence_length": np.array(step + 1, np.int32)}


def bound(device: Device | str) -> Session:
    session = load(model(), device)
    for index, (name, output) in enumerate(CACHES.items()):
        rng = np.random.default_rng(100 + index)
        rows = rng.standard_normal((1, HEADS, ROWS, SIZE)).astype(np.float32)
        session.bind(name, rows, updated_by=output)
    return session


def places(session: Session) -> list[Any]:
    return [bound.tensor.buffer.memory for bound in session._bound.values()]


def contents(tensors: Any) -> list[Any]:
    return [tensor.numpy() for tensor in tensors.values()]


@pytest.fixture(scope="module")
def expected() -> tuple[list[Any], list[Any]]:
    """Outputs of four steps, and the caches after them, on the adapter numpy."""
    session = bound("numpy")
    outputs = [session.run(feeds(step))["output"] for step in range(4)]
    return outputs, contents(session.bound)


@pytest.mark.slow
def test_steps_write_into_the_caches(device: Device, expected: Any) -> None:
    session = bound(device)
    before = places(session)
    for step, output in enumerate(expected[0]):
        np.testing.assert_allclose(session.run(feeds(step))["output"], output, rtol=1e-5, atol=1e-5)
        assert all(place is other for place, other in zip(places(session), before, strict=True))
    for cache, other in zip(contents(session.bound), expected[1], strict=True):
        np.testing.assert_array_equal(cache, other)


def test_tensors_of_others_keep_their_elements(backend: GpuBackend, expected: Any) -> None:
    device = Device.from_backend(backend)
    session = bound(device)
    session.run(feeds(0))
    held = dict(session.bound)  # taken after a run
    copies = contents(held)
    zeros = Tensor(np.zeros((1, HEADS, ROWS, SIZE), np.float32), device=device)
    session.run(feeds(1))
    taken = session.run(feeds(2), ["output", "present_key", "present_value"])  # returned by a run
    returned = [taken["present_key"].copy(), taken["present_value"].copy()]
    session.run(feeds(3))
    for cache, other in zip([*contents(held), *returned], [*copies, *returned], strict=True):
        np.testing.assert_array_equal(cache, other)
    for cache, other in zip(contents(session.bound), expected[1], strict=True):
        np.testing.assert_array_equal(cache, other)
    session.bind("past_key", zeros, updated_by="present_key")  # bound by its owner
    session.run(feeds(0))
    assert not zeros.numpy().any() and session.bound["past_key"].numpy().any()


LAYERS, SIZE_OF_HEAD = 2, 16
WIDTH = HEADS * SIZE_OF_HEAD


def growing_decoder() -> Any:
    """Layers of attention whose caches grow by Concat, in the nodes of older exports."""
    row, cache = [1, 1, WIDTH], [1, HEADS, "past", SIZE_OF_HEAD]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, row)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, row)]
    rng = np.random.default_rng(5)
    weights = {
        "heads": np.array([1, -1, HEADS, SIZE_OF_HEAD]),
        "rows": np.array([1, -1, WIDTH]),
        "scale": np.float32(SIZE_OF_HEAD**-0.5),
    }
    nodes = []

    def node(op_type: str, *names: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, names, [f"{op_type}.{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    x = "x"
    for layer in range(LAYERS):
        parts = {}
        for part in ("query", "key", "value"):
            weights[f"{part}.{layer}"] = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 6
            heads = node("Reshape", node("MatMul", x, f"{part}.{layer}"), "heads")
            parts[part] = node("Transpose", heads, perm=[0, 2, 1, 3])
        for part in ("key", "value"):
            past, present = f"past_{part}.{layer}", f"present_{part}.{layer}"
            nodes.append(helper.make_node("Concat", [past, parts[part]], [present], axis=2))
            inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, cache))
            outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, None))
        scores = node("MatMul", parts["query"], node("Transpose", f"present_key.{layer}", perm=[0, 1, 3, 2]))
        attended = node("MatMul", node("Softmax", node("Mul", scores, "scale")), f"present_value.{layer}")
        x = node("Add", x, node("Reshape", node("Transpose", attended, perm=[0, 2, 1, 3]), "rows"))
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "growing", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_lengths_of_growing_caches_share_kernels(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    compiled: list[int] = []  # lengths whose graph was compiled by itself, or whose plan was recorded
    past = 0

    def noted(function: Any) -> Any:
        return lambda *arguments: (compiled.append(past), function(*arguments))[1]

    networks.kinds.clear()
    monkeypatch.setattr(compiler, "compile_network", noted(compiler.compile_network))
    monkeypatch.setattr(programs, "PlannedNetwork", noted(programs.PlannedNetwork))
    device, decoder = Device(backend.info), growing_decoder()
    session = load(decoder, device)
    oracle = onnxruntime.InferenceSession(decoder.SerializeToString(), providers=["CPUExecutionProvider"])
    caches = [info.name for info in session.inputs[1:]]
    fed = {name: np.ones((1, HEADS, 1, SIZE_OF_HEAD), np.float32) for name in caches}
    for name, array in fed.items():
        session.bind(name, array, updated_by=name.replace("past", "present"))
    pipelines: list[int] = []
    for past in range(1, 41):
        x = np.random.default_rng(past).standard_normal((1, 1, WIDTH)).astype(np.float32)
        expected, *present = oracle.run(None, {"x": x, **fed})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
        fed = dict(zip(caches, present, strict=True))
        pipelines.append(device.pipeline_cache.info.misses)
    assert compiled[0] == 1
    assert len(compiled) <= 3, compiled  # a length above a vector's, or a workgroup's, has another plan
    assert pipelines[2] == pipelines[-1], pipelines
    device.remove()
