"""A recurrent layer and a cache of keys and values on every adapter, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu import Device
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import dequantized, expected_of, model_of_node, normal, quantized

STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 8, 8


def test_layer(device: Device) -> None:
    inputs = [
        normal(STEPS, BATCH, WIDTH),
        normal(2, 4 * HIDDEN, WIDTH),
        normal(2, 4 * HIDDEN, HIDDEN, seed=1),
        normal(2, 8 * HIDDEN),
        np.array([2, 4], np.int32),
        normal(2, BATCH, HIDDEN),
        normal(2, BATCH, HIDDEN, seed=1),
    ]
    outputs = ["Y", "Y_h", "Y_c"]
    rest: dict[str, Any] = {"direction": "bidirectional", "hidden_size": HIDDEN}
    model, feeds = model_of_node("LSTM", inputs, outputs, weights=(1, 2, 3), **rest)
    results, expected = load(model, device).run(feeds), expected_of(model, feeds)
    for result, other in zip(results.values(), expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5)


def test_layer_of_8_bits(device: Device) -> None:
    x, weight, recurrence = normal(STEPS, BATCH, WIDTH), normal(2, WIDTH, 4 * HIDDEN), normal(2, HIDDEN, 4 * HIDDEN)
    (w, *w_by), (r, *r_by) = quantized(weight, np.int8, per_gate=True), quantized(recurrence, np.uint8)
    rest: dict[str, Any] = {"direction": "bidirectional", "hidden_size": HIDDEN}
    inputs = [x, w, r, None, None, None, None, None, *w_by, *r_by]
    attributes = {"weights": (1, 2, 8, 9, 10, 11), "domain": "com.microsoft", **rest}
    model, feeds = model_of_node("DynamicQuantizeLSTM", inputs, ["Y", "Y_h"], **attributes)
    floats = [dequantized(*operand).transpose(0, 2, 1) for operand in ((w, *w_by), (r, *r_by))]
    expected = expected_of(*model_of_node("LSTM", [x, *floats], ["Y", "Y_h"], **rest))
    for result, other in zip(load(model, device).run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5)


def test_cache(device: Device) -> None:
    """Steps of one row each with a cache; onnxruntime gets all previous rows."""
    heads, size, rows = 2, 16, 8
    parts = [normal(1, 1, heads * size, seed=index) for index in range(3)]
    zeros = np.zeros((1, heads, rows, size), np.float32)
    last = np.array([0], np.int32)
    inputs = [*parts, zeros, zeros, last, np.array(1, np.int32)]
    model, feeds = model_of_node(
        "GroupQueryAttention", inputs, ["y", "k", "v"], domain="com.microsoft", num_heads=heads, kv_num_heads=heads
    )
    session = load(model, device)
    session.bind("x3", zeros, updated_by="k")
    session.bind("x4", zeros, updated_by="v")
    for step in range(3):
        for index in range(3):
            feeds[f"x{index}"] = normal(1, 1, heads * size, seed=3 * step + index)
        feeds["x5"], feeds["x6"] = np.array([step], np.int32), np.array(step + 1, np.int32)
        arrays = {name: feeds[name] for name in feeds if name not in ("x3", "x4")}
        y, feeds["x3"], feeds["x4"] = expected_of(model, feeds)
        np.testing.assert_allclose(session.run(arrays)["y"], y, rtol=1e-4, atol=1e-5)
    cached = session.bound["x4"].numpy()[:, :, :3]
    np.testing.assert_allclose(cached, feeds["x4"][:, :, :3], rtol=1e-6)
