"""A small network of ONNX's on every adapter, against ONNX's reference."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import Device
from dmlgpu.frontends.onnx import load


def test_network(device: Device) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "filters": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "bias": rng.standard_normal(4).astype(np.float32),
        "matrix": rng.standard_normal((4, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "filters", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    session = load(model, device)
    for sizes in ((1, 3, 6, 8), (2, 3, 5, 5), (1, 3, 6, 8)):
        x = rng.standard_normal(sizes).astype(np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_doubles_are_moved_and_cast(device: Device) -> None:
    """Exact in both directions, on adapters without doubles, too."""
    table = np.array([1.1, -2.2, 3e30, -0.0, 5e-324])
    nodes = [
        helper.make_node("Gather", ["table", "places"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "x"], ["y"]),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Concat", ["wide", "rows"], ["both"], axis=0),
        helper.make_node("Cast", ["both"], ["truth"], to=TensorProto.BOOL),
    ]
    graph = helper.make_graph(
        nodes,
        "doubles",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("places", TensorProto.INT64, [3]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("both", TensorProto.DOUBLE, [6]),
            helper.make_tensor_value_info("truth", TensorProto.BOOL, [6]),
        ],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    x, places = np.array([0.1, 2, -3], np.float32), np.array([4, 0, 3])
    results = load(model, device).run({"x": x, "places": places})
    np.testing.assert_allclose(results["y"], x * table[places].astype(np.float32), rtol=1e-6)
    np.testing.assert_array_equal(results["both"], np.concatenate([x.astype(np.float64), table[places]]))
    np.testing.assert_array_equal(results["truth"], [True, True, True, True, True, False])
