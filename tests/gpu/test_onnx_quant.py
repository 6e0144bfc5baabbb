"""Quantized and integer operators of ONNX on every adapter, against the adapter numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend

MICROSOFT = "com.microsoft"
FLOAT, INT64, UINT8, INT4 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT4


def bytes_of(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def compare(
    backend: GpuBackend, nodes: list[Any], feeds: dict[str, Any], outputs: dict[str, int], weights: dict[str, Any]
) -> None:
    """Run a model on the adapter and on numpy: integers must be equal."""
    types = {name: helper.np_dtype_to_tensor_dtype(feed.dtype) for name, feed in feeds.items()}
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, types[name], feed.shape) for name, feed in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=versions)
    expected = load(model, "numpy").run(feeds)
    for name, result in load(model, Device.from_backend(backend)).run(feeds).items():
        if result.dtype.kind == "f":
            np.testing.assert_allclose(result, expected[name], rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(result, expected[name])


def test_quantized_network(backend: GpuBackend) -> None:
    weights = {"s": np.float32(0.05), "z": np.uint8(120), "t": np.float32(0.4), "f": bytes_of(6, 3, 3, 3)}
    weights |= {"m": bytes_of(96, 5, seed=1), "c": np.linspace(0.01, 0.03, 5, dtype=np.float32)}
    weights["n"] = np.full(5, 128, np.uint8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["1"]),
        helper.make_node("QLinearConv", ["1", "s", "z", "f", "s", "z", "t", "z"], ["2"], pads=[1, 1, 1, 1]),
        helper.make_node("QLinearAdd", ["2", "t", "z", "2", "s", "z", "t", "z"], ["3"], domain=MICROSOFT),
        helper.make_node("MaxPool", ["3"], ["4"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["4"], ["5"]),
        helper.make_node("QLinearMatMul", ["5", "t", "z", "m", "c", "n", "t", "z"], ["6"]),
        helper.make_node("DequantizeLinear", ["6", "t", "z"], ["y"]),
    ]
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    compare(backend, nodes, {"x": x}, {"6": UINT8, "y": FLOAT}, weights)


def test_four_bits(backend: GpuBackend) -> None:
    rng = np.random.default_rng(0)
    weights = {"b": bytes_of(6, 3, 16), "s": rng.random(18, np.float32), "z": bytes_of(12, seed=1)}
    bits = {"K": 80, "N": 6, "bits": 4, "block_size": 32}
    nodes = [
        helper.make_node("MatMulNBits", ["x", "b", "s", "z"], ["y"], domain=MICROSOFT, **bits),
        helper.make_node("Cast", ["x"], ["4"], to=INT4),
        helper.make_node("Cast", ["4"], ["i"], to=INT64),
    ]
    x = (rng.standard_normal((2, 80)) * 9).astype(np.float32)
    compare(backend, nodes, {"x": x}, {"y": FLOAT, "i": INT64}, weights)


def test_integers(backend: GpuBackend) -> None:
    rng = np.random.default_rng(0)
    low, high = -(2**62), 2**62
    a, b = rng.integers(low, high, (3, 4)), rng.integers(low, high, (4, 5))
    nodes = [
        helper.make_node("Gemm", ["a", "b"], ["1"], alpha=3.0),
        helper.make_node("Pow", ["1", "e"], ["2"]),
        helper.make_node("ReduceMean", ["a", "axis"], ["3"]),
    ]
    weights = {"e": np.array([3, 5, 7, 2, 9]), "axis": np.array([1])}
    compare(backend, nodes, {"a": a, "b": b}, dict.fromkeys("123", INT64), weights)
