"""Weights that the adapter cannot bind at once, with a limit set low, on the adapter numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import dmlgpu
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray
from dmlgpu.frontends.onnx.values import OnnxValue
from tests.unit.frontends.onnx.onnx_against import expected_of, model_of_node, normal


def limited(op_type: str, inputs: list[np.ndarray], number: int, **attributes: Any) -> tuple[Session, Any, Any]:
    """Return a session that binds at most 1 KiB at once, its feeds, and the expected outputs."""
    model, feeds = model_of_node(op_type, inputs, ["y"], weights=(number,), **attributes)
    return load(model, device_with_small_bindings()), feeds, expected_of(model, feeds)[0]


def device_with_small_bindings() -> dmlgpu.Device:
    """A device that binds at most 1 KiB at once."""
    device = dmlgpu.Device("numpy")
    device.backend.target = replace(device.backend.target, max_binding_size=1024)
    return device


@pytest.mark.parametrize(("rows", "axis"), [((3, 2), 0), ((5,), 1), ((), 0)])
def test_gather(rows: tuple[int, ...], axis: int) -> None:
    indices = np.random.default_rng(0).integers(-40, 40, rows)
    session, feeds, expected = limited("Gather", [normal(40, 40), indices], 0, axis=axis)
    np.testing.assert_array_equal(session.run(feeds)["y"], expected)
    operators = [name for placement in session.placement for name in placement.operators]
    assert operators.count("GATHER") == 7


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(turned: int) -> None:
    b = normal(40, 50) if turned else normal(50, 40)
    a, c = normal(3, 50), normal(40)
    session, feeds, expected = limited("Gemm", [a, b, c], 1, transB=turned, alpha=0.5)
    np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
    operators = [name for placement in session.placement for name in placement.operators]
    assert operators.count("GEMM") == 8


def test_matmul() -> None:
    session, feeds, expected = limited("MatMul", [normal(2, 3, 50), normal(50, 40)], 1)
    np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_zeros", [False, True])
def test_matmul_of_few_bits(has_zeros: bool) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (100, 4, 16), np.uint8)
    inputs = [normal(2, 3, 128), codes, np.abs(normal(100, 4)), *([normal(100, 4)] if has_zeros else [])]
    attributes = {"domain": "com.microsoft", "K": 128, "N": 100, "bits": 4, "block_size": 32}
    model, feeds = model_of_node("MatMulNBits", inputs, ["y"], weights=range(1, len(inputs)), **attributes)
    session = Session(read(model), device_with_small_bindings())
    result = session.run(feeds)["y"]
    np.testing.assert_allclose(result, expected_of(model, feeds)[0], rtol=1e-4, atol=1e-3)
    operators = [name for placement in session.placement for name in placement.operators]
    assert operators.count("GEMM") == 7


def test_gather_of_blocks() -> None:
    codes = np.random.default_rng(0).integers(0, 256, (40, 2, 32), np.uint8)
    inputs = [codes, np.array([[3, -1, 39]]), np.abs(normal(40, 2, 1))]
    attributes = {"domain": "com.microsoft", "bits": 8, "block_size": 32, "gather_axis": 0, "quantize_axis": 2}
    session, feeds, expected = limited("GatherBlockQuantized", inputs, 0, **attributes)
    np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-6)
    operators = [name for placement in session.placement for name in placement.operators]
    assert operators.count("GATHER") == 4


def test_deferred_weights() -> None:
    """Pieces of a weight that is computed on demand compute their own rows only."""
    matrix, spans = normal(40, 50), []

    def rows(span: slice) -> np.ndarray:
        spans.append(span.stop - span.start)
        return matrix[span]

    indices = np.array([0, 17, 39])
    model, feeds = model_of_node("Gather", [matrix, indices], ["y"], weights=(0,))
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    weights = {model.graph.initializer[0].name: OnnxValue.of_weight(DeferredArray((40, 50), np.float32, rows))}
    session = Session(read(model, external=weights), device_with_small_bindings())
    for _ in range(2):
        np.testing.assert_array_equal(session.run(feeds)["y"], matrix[indices])
    assert spans == [5] * 8
