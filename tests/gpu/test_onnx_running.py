"""Placement, profiles and shared weights of ONNX models on every adapter."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import Device, Tensor, profile
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.segments import Segment
from dmlgpu.frontends.onnx.session import Session, runner_of
from dmlgpu.frontends.onnx.watching import RunProfile, watched_by
from dmlgpu.frontends.onnx.weights import Weights
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.tensors.session import EagerSession, session_of


def test_a_fused_kernel_is_placed_profiled_and_its_weights_shared(device: Device) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "filters": rng.standard_normal((8, 1, 5, 5)).astype(np.float32),
        **{name: rng.standard_normal(8).astype(np.float32) for name in ("scale", "offset", "mean")},
        "variance": rng.random(8).astype(np.float32) + 0.5,
        "shift": rng.standard_normal((8, 64, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["c"], name="conv", pads=[2, 2, 2, 2], group=8),
        helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["b"], name="norm"),
        helper.make_node("Relu", ["b"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "shift"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 64, "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = load(model, device)
    for sizes in ((1, 8, 64, 8), (2, 8, 64, 8), (1, 8, 64, 8)):
        x = rng.standard_normal(sizes).astype(np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
        placed = {placed_node.node: placed_node for placed_node in session.placement}
        assert placed["norm"].where == "none"
        assert all(placed[name].kernels for name in ("conv", "relu", "add"))
    profile = RunProfile()
    with watched_by(profile):
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    assert sum(seconds for _, seconds in profile.by_kernel().values()) > 0
    if device.adapter.name != "numpy":
        assert placed["relu"].kernels == placed["conv"].kernels
        assert set(profile.by_kernel()) & set(placed["conv"].kernels)


def test_a_second_shape_compiles_new_kernels_but_uploads_and_lays_out_no_weight(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "filters": rng.standard_normal((16, 8, 1, 1)).astype(np.float32),  # laid out for a product
        "more": rng.standard_normal((8, 16, 3, 3)).astype(np.float32),  # filtered by Winograd
        "table": rng.standard_normal((8, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["c"]),
        helper.make_node("Conv", ["c", "more"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["d"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "table"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, "height", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    uploaded, texts, laid_out = [], [], []
    data, fill, compile_one = Weights.data, EagerSession.fill, GpuPipelines.create_pipeline
    monkeypatch.setattr(Weights, "data", lambda self, number: uploaded.append(number) or data(self, number))
    monkeypatch.setattr(EagerSession, "fill", lambda *arguments: laid_out.append(arguments) or fill(*arguments))
    monkeypatch.setattr(
        GpuPipelines, "create_pipeline", lambda *arguments: texts.append(arguments[2].wgsl) or compile_one(*arguments)
    )
    session = load(model, device)
    counts = []
    for height in (32, 40, 32):
        x = rng.standard_normal((1, 8, height, 32)).astype(np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-3, atol=1e-3)
        counts.append((len(uploaded), len(laid_out), len(texts)))
    first, second, third = counts
    assert sorted(set(uploaded)) == sorted(uploaded)  # each once
    assert second[:2] == first[:2]
    assert third == second
    if device.adapter.name != "numpy":
        assert uploaded
        assert laid_out
        assert len(set(texts)) == len(texts)
        initial = {
            kernel.wgsl for segment in segments_of(session) for kernel in segment.compiled.program.initialization
        }
        assert initial
        assert not initial & set(texts[first[2] :])


def segments_of(session: Session) -> list[Segment]:
    """What a session has compiled."""
    return [part.segment for part in runner_of(session).last_stages if part.segment is not None]


def test_runs_hand_out_arrays_of_their_own_and_keep_the_memory_they_take(device: Device) -> None:
    names = {"x": TensorProto.FLOAT, "flags": TensorProto.BOOL}
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Not", ["flags"], ["not_flags"])]
    inputs = [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in names.items()]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("not_flags", TensorProto.BOOL, ["n"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
    ]
    graph = helper.make_graph(nodes, "doubled", inputs, outputs)
    session = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), device)
    pool, results = session_of(device).pool, []
    runs = [{"x": np.full(7, step, np.float32), "flags": np.arange(7) % 2 == step % 2} for step in range(5)]
    for step, each in enumerate(runs):
        results.append(session.run(each))
        if step == 0:
            allocations, retained = pool.allocations, pool.cached_bytes
    for each, result in zip(runs, results, strict=True):
        np.testing.assert_array_equal(result["y"], 2 * each["x"])
        np.testing.assert_array_equal(result["not_flags"], ~each["flags"])
        assert all(array.flags.writeable for array in result.values())
        assert result["x"] is not each["x"]
        assert not np.shares_memory(result["x"], each["x"])
    assert (pool.allocations, pool.cached_bytes) == (allocations, retained)
    # inputs that are on the device already, from the beginning of their memory and from within it
    for there in (Tensor(runs[1]["x"], device=device), Tensor(np.arange(9, dtype=np.float32), device=device)[2:]):
        doubled = session.run({"x": there, "flags": runs[0]["flags"]})
        np.testing.assert_array_equal(doubled["y"], 2 * there.numpy())


def test_compiling_ahead_waits_for_the_driver(backend: GpuBackend) -> None:
    device = Device(backend.info)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 300]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "softmax", [x], [y])
    load(helper.make_model(graph, ir_version=10), device).compile([{"rows": 3}, {"rows": 5}])
    serial = device._state.last_serial
    assert serial is not None and device.backend.is_done(serial)
    device.remove()


def test_outputs_that_are_not_requested_are_not_computed(device: Device) -> None:
    if device.adapter.name == "numpy":
        pytest.skip("has no kernels")
    nodes = [helper.make_node(name, ["x"], [f"{name}.y"], name) for name in ("Relu", "Neg")]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [4]) for node in nodes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session, x = load(model, device), np.array([-1, 2, -3, 4], np.float32)
    for names in (["Neg.y"], ["Neg.y", "Relu.y"], ["Relu.y"]):
        with profile() as times:
            outputs = session.run({"x": x}, names)
        assert list(outputs) == names
        assert sorted(kernel[0].split()[0] for kernel in times.kernels) == sorted(name[:-2] for name in names)
        for name in names:
            np.testing.assert_array_equal(outputs[name], -x if name == "Neg.y" else np.maximum(x, 0))
