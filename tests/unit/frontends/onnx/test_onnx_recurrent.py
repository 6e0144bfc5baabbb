"""LSTM, GRU and RNN of ONNX models on the adapter numpy, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import (
    check_node,
    dequantized,
    expected_of,
    model_of_node,
    normal,
    quantized,
)

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": ["Y", "Y_h"], "GRU": ["Y", "Y_h"], "LSTM": ["Y", "Y_h", "Y_c"]}
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6


def inputs_of(kind: str, directions: int, *extras: str) -> list[np.ndarray | None]:
    """The inputs of a layer; optional ones that ``extras`` names."""
    rows = GATES[kind] * HIDDEN
    state = (directions, BATCH, HIDDEN)
    optional = {
        "B": normal(directions, 2 * rows),
        "lens": np.array([2, 5, 1], np.int32),
        "h": normal(*state),
        "c": normal(*state, seed=1),
        "P": normal(directions, 3 * HIDDEN),
    }
    names = ["B", "lens", "h", "c", "P"] if kind == "LSTM" else ["B", "lens", "h"]
    result = [normal(STEPS, BATCH, WIDTH), normal(directions, rows, WIDTH), normal(directions, rows, HIDDEN)]
    return [*result, *(optional[name] if name in extras else None for name in names)]


CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("RNN", ("B", "h"), {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
    ("RNN", ("lens",), {"direction": "reverse", "activations": ["LeakyRelu"]}),
    ("RNN", ("B", "lens", "h"), {"direction": "bidirectional", "activations": ["Relu", "ScaledTanh"],
                                 "activation_alpha": [0.7], "activation_beta": [0.4]}),
    ("GRU", ("B", "lens", "h"), {"direction": "bidirectional"}),
    ("GRU", ("B",), {"linear_before_reset": 1, "direction": "reverse"}),
    ("GRU", ("B", "h"), {"activations": ["HardSigmoid", "Softsign"], "activation_alpha": [0.3],
                         "activation_beta": [0.4]}),
    ("LSTM", ("B", "lens", "h", "c", "P"), {"direction": "bidirectional"}),
    ("LSTM", ("B", "h", "c"), {"clip": 0.3, "input_forget": 1}),
    ("LSTM", ("lens", "P"), {"direction": "reverse", "activations": ["HardSigmoid", "Elu", "ScaledTanh"],
                             "activation_alpha": [0.3, 0.9, 0.8], "activation_beta": [0.4, 0.6]}),
    ("LSTM", (), {"activations": ["Sigmoid", "Softplus", "ThresholdedRelu"], "activation_alpha": [0.5]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "extras", "attributes"), CASES)
def test_layers(kind: str, extras: tuple[str, ...], attributes: dict[str, Any]) -> None:
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    inputs = inputs_of(kind, directions, *extras)
    check_node(kind, inputs, OUTPUTS[kind], weights=(1, 2), hidden_size=HIDDEN, **attributes)


@pytest.mark.parametrize("kind", GATES)
def test_batch_first(kind: str) -> None:
    """Against the layer with time first: onnxruntime has no batch first."""
    first = inputs_of(kind, 2, "B", "lens", "h", "c")
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    model, feeds = model_of_node(kind, first, OUTPUTS[kind], **attributes)
    expected = load(model, "numpy").run(feeds)
    turned = [
        array.swapaxes(0, 1) if array is not None and index in (0, 5, 6) else array for index, array in enumerate(first)
    ]
    model, feeds = model_of_node(kind, turned, OUTPUTS[kind], layout=1, **attributes)
    results = load(model, "numpy").run(feeds)
    np.testing.assert_array_equal(results["Y"], expected["Y"].transpose(2, 0, 1, 3))
    for name in OUTPUTS[kind][1:]:
        np.testing.assert_array_equal(results[name], expected[name].swapaxes(0, 1))


def test_single_outputs() -> None:
    for name in range(3):
        outputs = ["" if index != name else "y" for index in range(name + 1)]
        check_node("LSTM", inputs_of("LSTM", 1, "B"), outputs, hidden_size=HIDDEN)


def test_float16() -> None:
    inputs = [array.astype(np.float16) if array is not None else None for array in inputs_of("GRU", 1, "B", "h")]
    model, feeds = model_of_node("GRU", inputs, ["Y", "Y_h"], hidden_size=HIDDEN)
    wide = [array.astype(np.float32) if array is not None else None for array in inputs]
    other, wide_feeds = model_of_node("GRU", wide, ["Y", "Y_h"], hidden_size=HIDDEN)
    results, expected = load(model, "numpy").run(feeds), load(other, "numpy").run(wide_feeds)
    np.testing.assert_allclose(results["Y_h"], expected["Y_h"], rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize(
    ("kind", "attributes", "reason"),
    [
        ("GRU", {"clip": 1.0}, "GRU 'it': clip is supported by LSTM only"),
        ("RNN", {"activations": ["Mish"]}, "activation Mish is not supported"),
        ("LSTM", {"activations": ["Tanh"]}, "activations must be 3, got 1"),
        ("LSTM", {"direction": "sideways"}, "direction must be one of forward, reverse, bidirectional"),
    ],
)
def test_rejected(kind: str, attributes: dict[str, Any], reason: str) -> None:
    model, feeds = model_of_node(kind, inputs_of(kind, 1), OUTPUTS[kind], hidden_size=HIDDEN, **attributes)
    with pytest.raises(NotSupported, match=reason):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("per_gate", [False, True])
@pytest.mark.parametrize(("extras", "direction"), [(("B", "lens", "h", "c", "P"), "bidirectional"), ((), "reverse")])
def test_weights_of_8_bits(kind: Any, per_gate: bool, extras: tuple[str, ...], direction: str) -> None:
    """DynamicQuantizeLSTM is LSTM with the dequantized weights; onnxruntime's own rounds inputs and states, too."""
    x, weight, recurrence, *rest = inputs_of("LSTM", 2 if direction == "bidirectional" else 1, *extras)
    assert weight is not None
    assert recurrence is not None
    parts = [quantized(array.transpose(0, 2, 1), kind, per_gate=per_gate) for array in (weight, recurrence)]
    floats = [dequantized(*part).transpose(0, 2, 1) for part in parts]
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    (w, w_scale, w_zero), (r, r_scale, r_zero) = parts
    model, feeds = model_of_node(
        "DynamicQuantizeLSTM",
        [x, w, r, *rest, w_scale, w_zero, r_scale, r_zero],
        OUTPUTS["LSTM"],
        weights=(1, 2, 8, 9, 10, 11),
        domain="com.microsoft",
        **attributes,
    )
    results = load(model, "numpy").run(feeds)
    expected = expected_of(*model_of_node("LSTM", [x, *floats, *rest], OUTPUTS["LSTM"], **attributes))
    for (name, result), other, rounded in zip(results.items(), expected, expected_of(model, feeds), strict=True):
        np.testing.assert_allclose(result, other, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(result, rounded, atol=0.1, err_msg=name)


def test_scales_of_other_shapes_are_rejected() -> None:
    x, weight, recurrence, *rest = inputs_of("LSTM", 1)
    assert weight is not None
    assert recurrence is not None
    (w, _, zero), (r, scale, _) = (quantized(array.transpose(0, 2, 1), np.int8) for array in (weight, recurrence))
    inputs = [x, w, r, *rest, np.ones(5, np.float32), zero, scale, zero]
    model, feeds = model_of_node("DynamicQuantizeLSTM", inputs, ["Y"], domain="com.microsoft", hidden_size=HIDDEN)
    with pytest.raises(NotSupported, match=r"DynamicQuantizeLSTM 'it': input 8 must be of shape \[1\] or \[1, 24\]"):
        load(model, "numpy").run(feeds)
