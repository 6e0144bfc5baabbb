"""A small network of ONNX's on every adapter, against ONNX's reference."""

from __future__ import annotations

import ml_dtypes
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


def test_float64_is_moved_and_cast(device: Device) -> None:
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


def test_types_that_devices_lack(device: Device) -> None:
    """Casts to bfloat16 and 8-bit floats and back, and a node that computes with them, by all codes and middles."""
    numbers = np.concatenate(
        [(np.arange(0, 1 << 32, 1 << 20, dtype=np.uint64) + low) for low in (0, 0x7FFF, 0x8000, 0x18001)]
    )
    x = numbers.astype(np.uint32).view(np.float32)
    x = x[np.isfinite(x) & ((np.abs(x) >= np.finfo(np.float32).tiny) | (x == 0))]
    kinds = {
        TensorProto.BFLOAT16: ml_dtypes.bfloat16,
        TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
        TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    }
    nodes, outputs = [], {}
    for kind in kinds:
        nodes.append(helper.make_node("Cast", ["x"], [f"c{kind}"], to=kind))
        nodes.append(helper.make_node("Cast", [f"c{kind}"], [f"f{kind}"], to=TensorProto.FLOAT))
        outputs |= {f"c{kind}": kind, f"f{kind}": TensorProto.FLOAT}
    nodes.append(helper.make_node("Mul", [f"c{TensorProto.BFLOAT16}", "third"], ["y"]))
    outputs["y"] = TensorProto.BFLOAT16
    third = np.array([1 / 3], ml_dtypes.bfloat16)
    graph = helper.make_graph(
        nodes,
        "codes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in outputs.items()],
        [numpy_helper.from_array(third, "third")],
    )
    results = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), device).run(
        {"x": x}
    )
    for kind, dtype in kinds.items():
        limit = float(ml_dtypes.finfo(dtype).max) if kind != TensorProto.BFLOAT16 else np.inf
        with np.errstate(over="ignore"):
            expected = np.clip(x, -limit, limit).astype(dtype)
        np.testing.assert_array_equal(results[f"c{kind}"].astype(np.float32), expected.astype(np.float32))
        np.testing.assert_array_equal(results[f"f{kind}"], expected.astype(np.float32))
    wide = results[f"c{TensorProto.BFLOAT16}"].astype(np.float32)
    normal = np.abs(wide) > 1e-36
    with np.errstate(over="ignore"):
        product = (wide * third.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(results["y"][normal].astype(np.float32), product[normal].astype(np.float32))


def test_sampling_far_beyond_the_border(device: Device) -> None:
    """Where float32 has no room for the taps of cubic sampling; all modes give the border."""
    row = np.array([3, 1, 4, 1, 5], np.float32)
    places = np.array([-1e20, -6e7, -1e3, 1e3, 3.3e7, 1e20, np.inf], np.float32)
    grid = np.stack([places, np.zeros_like(places)], -1)[None, None]
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="cubic", padding_mode="border")
    graph = helper.make_graph(
        [node],
        "border",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 5]),
            helper.make_tensor_value_info("grid", TensorProto.FLOAT, list(grid.shape)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    session = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), device)
    result = session.run({"x": row.reshape(1, 1, 1, 5), "grid": grid})["y"].reshape(-1)
    np.testing.assert_allclose(result, [3, 3, 3, 5, 5, 5, 5], rtol=1e-6)
