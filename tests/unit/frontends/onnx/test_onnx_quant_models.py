"""Models that onnxruntime quantizes, run here and by its CPU provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_models import model_of, onnxruntime_outputs

U8, S8, U16, S4 = QuantType.QUInt8, QuantType.QInt8, QuantType.QUInt16, QuantType.QInt4


def pictures(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(1).standard_normal((count, 1, 3, 16, 16)).astype(np.float32))


class Pictures(CalibrationDataReader):
    """Images for calibrating the ranges of activations."""

    def __init__(self) -> None:
        self._left: Iterator[np.ndarray] = iter(pictures(6))

    def get_next(self) -> dict[str, np.ndarray] | None:
        picture = next(self._left, None)
        return None if picture is None else {"x": picture}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network of floats, in a file."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.25).astype(np.float32)

    weights = {"f": normal(8, 3, 3, 3), "g": normal(8, 8, 3, 3), "b": normal(8), "m": normal(128, 10)}
    nodes = [
        helper.make_node("Conv", ["x", "f", "b"], ["1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["1"], ["2"]),
        helper.make_node("MaxPool", ["2"], ["3"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["3", "g", "b"], ["4"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["4", "3"], ["5"]),
        helper.make_node("Sigmoid", ["5"], ["6"]),
        helper.make_node("Mul", ["5", "6"], ["7"]),
        helper.make_node("AveragePool", ["7"], ["8"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["8"], ["9"]),
        helper.make_node("MatMul", ["9", "m"], ["10"]),
        helper.make_node("Softmax", ["10"], ["y"], axis=1),
    ]
    path = tmp_path_factory.mktemp("network") / "network.onnx"
    onnx.save(model_of(nodes, {"x": pictures(1)[0]}, {"y": TensorProto.FLOAT}, weights), path)
    return path


def compare(path: Path, limit: float) -> Any:
    """Run a quantized model here and in onnxruntime; probabilities may differ by a limit."""
    feeds = {"x": pictures(7)[6]}
    session = load(path, "numpy")
    (expected,) = onnxruntime_outputs(onnx.load(path), feeds)
    np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=0, atol=limit)
    assert all(placement.where != "host" or "known" in placement.why for placement in session.placement)
    return session


@pytest.mark.parametrize(
    ("style", "types", "per_channel", "limit"),
    [
        (QuantFormat.QDQ, (U8, S8), False, 0.02),
        (QuantFormat.QDQ, (S8, S8), True, 0.02),
        (QuantFormat.QDQ, (U16, S8), True, 1e-3),
        (QuantFormat.QDQ, (U8, S4), False, 0.02),
        (QuantFormat.QOperator, (S8, S8), True, 0.02),
        (QuantFormat.QOperator, (U8, U8), False, 0.02),
    ],
)
def test_static(network: Path, style: Any, types: Any, per_channel: bool, limit: float) -> None:
    path = network.with_name("static.onnx")
    attributes = dict(zip(("activation_type", "weight_type"), types, strict=True))
    quantize_static(network, path, Pictures(), quant_format=style, per_channel=per_channel, **attributes)
    compare(path, limit)


def test_dynamic(network: Path) -> None:
    path = network.with_name("dynamic.onnx")
    quantize_dynamic(network, path, weight_type=U8)
    session = compare(path, 1e-5)
    assert {"ConvInteger", "MatMulInteger"} <= {placement.op_type for placement in session.placement}


def test_classifier_of_bytes() -> None:
    rng = np.random.default_rng(2)
    table = rng.standard_normal((256, 16)).astype(np.float32)
    filters = (rng.standard_normal((24, 16, 5)) * 0.2).astype(np.float32)
    weights = {"table": table, "f": filters, "w": rng.standard_normal((24, 7)).astype(np.float32)}
    nodes = [
        helper.make_node("Cast", ["x"], ["1"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "1"], ["2"]),
        helper.make_node("Transpose", ["2"], ["3"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["3", "f"], ["4"]),
        helper.make_node("Gelu", ["4"], ["5"]),
        helper.make_node("GlobalMaxPool", ["5"], ["6"]),
        helper.make_node("Flatten", ["6"], ["7"]),
        helper.make_node("MatMul", ["7", "w"], ["8"]),
        helper.make_node("Softmax", ["8"], ["y"]),
        helper.make_node("ArgMax", ["8"], ["best"], axis=1, keepdims=0),
    ]
    feeds = {"x": rng.integers(0, 256, (3, 64), np.uint8)}
    model = model_of(nodes, feeds, {"y": TensorProto.FLOAT, "best": TensorProto.INT64}, weights)
    results = load(model, "numpy").run(feeds)
    expected = onnxruntime_outputs(model, feeds)
    np.testing.assert_allclose(results["y"], expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(results["best"], expected[1])
