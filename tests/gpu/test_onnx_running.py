"""Placement, profiles and shared weights of ONNX models on every adapter."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import Device
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.watching import Profile, watched_by


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
        placed = {one.node: one for one in session.placement}
        assert placed["norm"].where == "none"
        assert all(placed[name].kernels for name in ("conv", "relu", "add"))
    profile = Profile()
    with watched_by(profile):
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    assert sum(seconds for _, seconds in profile.by_kernel().values()) > 0
    if device.adapter.name != "numpy":
        assert placed["relu"].kernels == placed["conv"].kernels
        assert set(profile.by_kernel()) & set(placed["conv"].kernels)
