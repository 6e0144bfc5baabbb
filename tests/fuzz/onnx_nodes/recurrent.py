"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.onnx_nodes.draw import MICROSOFT, Array, Draw, NodeCase, generator

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


@generator("RNN", "GRU", "LSTM")
def recurrent(draw: Draw) -> NodeCase:
    gates = _GATES[draw.op_type]
    direction = draw.maybe("forward", "reverse", "bidirectional")
    directions = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 4)
    # Without steps, onnxruntime's GRU ends the process.
    if draw.chance(0.03) and draw.op_type != "GRU":
        steps = 0
    dtype = draw.dtype(0, ("float32", "float32", "float16"))
    layout = draw.maybe(0, 1, probability=0.2) if draw.version >= 14 else None
    x = draw.tensor(dtype, (batch, steps, width) if layout else (steps, batch, width), -2, 2)
    w, r = (
        draw.array(dtype, (directions, gates * hidden, width), -1, 1),
        draw.array(dtype, (directions, gates * hidden, hidden), -1, 1),
    )
    b = draw.array(dtype, (directions, 2 * gates * hidden), -1, 1) if draw.chance(0.6) else None
    lengths = draw.array("int32", (batch,), 1, steps) if draw.chance(0.3) and steps else None
    shape = (batch, directions, hidden) if layout else (directions, batch, hidden)
    # The last state without steps is left open: onnxruntime says 0, dmlgpu the initial one.
    states = [
        draw.array(dtype, shape, -1, 1) if steps and draw.chance(0.4) else None
        for _ in range(2 if draw.op_type == "LSTM" else 1)
    ]
    inputs: list[Array | None] = [x, w, r, b, lengths, *states]
    options: dict[str, Any] = {"clip": draw.maybe(0.5, 2.0, probability=0.15)}
    if draw.op_type == "LSTM":
        inputs.append(draw.array(dtype, (directions, 3 * hidden), -1, 1) if draw.chance(0.3) else None)
        options["input_forget"] = draw.maybe(0, 1, probability=0.2)
    if draw.op_type == "GRU":
        options["linear_before_reset"] = draw.maybe(0, 1)
    if draw.chance(0.25):
        count = _ACTIVATIONS[draw.op_type] * directions
        options["activations"] = [draw.pick("Tanh", "Sigmoid", "Relu", "Softsign") for _ in range(count)]
    elif draw.chance(0.15):
        # The same function everywhere: onnxruntime gives parameters out to those that take some, in order.
        name = draw.pick("HardSigmoid", "LeakyRelu", "Affine", "Elu", "ScaledTanh", "ThresholdedRelu")
        count = _ACTIVATIONS[draw.op_type] * directions
        options |= {"activations": [name] * count, "activation_alpha": [draw.number(0.1, 1) for _ in range(count)]}
        if name in ("HardSigmoid", "Affine", "ScaledTanh"):
            options["activation_beta"] = [draw.number(0.1, 1) for _ in range(count)]
    # Nor does onnxruntime write the cell's last state then.
    outputs = draw.integer(1, 3 if draw.op_type == "LSTM" and steps else 2)
    absent = (0,) if outputs > 1 and draw.chance(0.3) else ()
    return draw.case(
        *inputs,
        hidden_size=hidden,
        direction=direction,
        layout=layout,
        outputs=outputs,
        absent=absent,
        length=100,
        scale=4,
        **options,
    )


@generator("DynamicQuantizeLSTM", domain=MICROSOFT)
def quantized_lstm(draw: Draw) -> NodeCase:
    # onnxruntime rounds inputs to 8 bits in each step, which dmlgpu documents not to do: only types and shapes count.
    steps, batch, width, hidden = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 4)
    x = draw.tensor("float32", (steps, batch, width), -2, 2)
    weights = [draw.array("uint8", (1, size, 4 * hidden), 0, 255) for size in (width, hidden)]
    scale, zero = np.array([0.01], "float32"), np.array([120], "uint8")
    bias = draw.array("float32", (1, 8 * hidden), -1, 1) if draw.chance(0.6) else None
    inputs = [x, *weights, bias, None, None, None, None, scale, zero, scale, zero]
    return draw.case(
        *inputs, hidden_size=hidden, outputs=draw.integer(1, 3), random=True, constants=(1, 2, 8, 9, 10, 11)
    )
