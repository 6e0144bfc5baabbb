"""What an ONNX session compiled goes with it, but for what the device's pipeline cache keeps."""

from __future__ import annotations

import gc

import numpy as np
from onnx import TensorProto, helper

from dmlgpu import CacheLimits, Device
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.session import session_of


def test_pipelines_of_a_dropped_session_are_given_back(adapter: AdapterInfo) -> None:
    device = Device(adapter)
    backend = device._state.backend
    assert isinstance(backend, GpuBackend)
    device.pipeline_cache.limits = CacheLimits(entries=0, size=0)
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=-1)],
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "columns"])],
    )
    session = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString(), device)
    for columns in (3, 4, 5):
        (result,) = session.run({"x": np.zeros((2, columns), np.float32)}).values()
        np.testing.assert_allclose(result, 1 / columns, rtol=1e-6)
    assert len(backend._pipelines) >= 3
    assert len(session_of(device).recorded) == 3
    del session
    gc.collect()
    assert len(session_of(device).recorded) == 0
    assert len(backend._pipelines) == 0
