"""LinearAttention and CausalConvWithState of ONNX 27: against recurrences written out per head and element, and against
the reference implementation of the package onnx."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device

Array = NDArray[Any]

BATCH, STEPS, HEADS, GROUP, KEY, VALUE = 2, 5, 2, 3, 4, 6
RULES = ("linear", "gated", "delta", "gated_delta")


def model_of(op_type: str, inputs: Mapping[str, Array | None], outputs: int, **attributes: Any) -> onnx.ModelProto:
    """Return a model of one node; inputs that are None are omitted."""
    present = {name: array for name, array in inputs.items() if array is not None}
    names = [name if name in present else "" for name in inputs]
    node = helper.make_node(op_type, names, [f"y{index}" for index in range(outputs)], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(next(iter(present.values())).dtype)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, kind, array.shape) for name, array in present.items()],
        [helper.make_tensor_value_info(name, kind, None) for name in node.output],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=13)


def outputs_of(model: onnx.ModelProto, inputs: Mapping[str, Array | None]) -> list[Array]:
    """Return what dmlgpu computes, after comparing it with the package onnx."""
    present = {name: array for name, array in inputs.items() if array is not None}
    results = list(load(model, Device("numpy")).run(present).values())
    for result, expected in zip(results, ReferenceEvaluator(model).run(None, present), strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
    return results


def attention(inputs: Mapping[str, Array | None], rule: str, scale: float) -> tuple[Array, Array]:
    """Return outputs and state: S <- exp(g) S, v <- beta (v - S^T k), S <- S + k v^T, o = scale S^T q."""
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    past, decay, beta = (inputs[name] for name in ("past", "decay", "beta"))
    assert query is not None and key is not None and value is not None
    output = np.zeros((BATCH, STEPS, HEADS * GROUP * VALUE))
    states = np.zeros((BATCH, HEADS, KEY, VALUE))
    for batch in range(BATCH):
        for head in range(HEADS):
            state = np.zeros((KEY, VALUE)) if past is None else past[batch, head].astype(np.float64)
            for step in range(STEPS):
                k = key[batch, step, head * KEY : (head + 1) * KEY].astype(np.float64)
                v = value[batch, step, head * VALUE : (head + 1) * VALUE].astype(np.float64)
                if decay is not None:
                    per_head = decay.shape[2] // HEADS
                    for row in range(KEY):
                        state[row] *= math.exp(decay[batch, step, head * per_head + row % per_head])
                if beta is not None:
                    v = beta[batch, step, head % beta.shape[2]] * (v - k @ state)
                for row in range(KEY):
                    state[row] += k[row] * v
                for query_head in range(head * GROUP, (head + 1) * GROUP):
                    q = query[batch, step, query_head * KEY : (query_head + 1) * KEY]
                    output[batch, step, query_head * VALUE : (query_head + 1) * VALUE] = scale * (q @ state)
            states[batch, head] = state
    return output, states


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("per_key", "beta_heads", "has_past", "scale"),
    [
        pytest.param(False, HEADS, False, None, id="from nothing"),
        pytest.param(True, HEADS, True, 0.25, id="a decay per key, a past state, a scale"),
        pytest.param(False, 1, True, None, id="one beta for all heads"),
    ],
)
def test_linear_attention(rule: str, per_key: bool, beta_heads: int, has_past: bool, scale: float | None) -> None:
    random = np.random.default_rng(RULES.index(rule))

    def normal(*sizes: int) -> Array:
        return random.standard_normal(sizes).astype(np.float32)

    inputs = {
        "query": normal(BATCH, STEPS, HEADS * GROUP * KEY),
        "key": 0.5 * normal(BATCH, STEPS, HEADS * KEY),
        "value": normal(BATCH, STEPS, HEADS * VALUE),
        "past": normal(BATCH, HEADS, KEY, VALUE) if has_past else None,
        "decay": -np.abs(normal(BATCH, STEPS, HEADS * (KEY if per_key else 1))) if "gated" in rule else None,
        "beta": random.uniform(0, 1, (BATCH, STEPS, beta_heads)).astype(np.float32) if "delta" in rule else None,
    }
    options = {"q_num_heads": HEADS * GROUP, "kv_num_heads": HEADS, "update_rule": rule}
    model = model_of("LinearAttention", inputs, 2, **options, **({} if scale is None else {"scale": scale}))
    expected = attention(inputs, rule, 1 / math.sqrt(KEY) if scale is None else scale)
    for result, number in zip(outputs_of(model, inputs), expected, strict=True):
        np.testing.assert_allclose(result, number, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("activation", [None, "none", "silu", "swish"])
@pytest.mark.parametrize(
    ("width", "has_bias", "has_past"), [(3, False, False), (4, True, True), (1, True, False), (7, False, True)]
)
def test_causal_convolutions(activation: str | None, width: int, has_bias: bool, has_past: bool) -> None:
    """A width of 7 is longer than the sequence, so that part of the state is that of the past."""
    random, channels = np.random.default_rng(width), 3
    x = random.standard_normal((BATCH, channels, STEPS)).astype(np.float32)
    weight = random.standard_normal((channels, 1, width)).astype(np.float32)
    bias = random.standard_normal(channels).astype(np.float32) if has_bias else None
    past = random.standard_normal((BATCH, channels, width - 1)).astype(np.float32) if has_past else None
    inputs = {"x": x, "weight": weight, "bias": bias, "past": past}
    options = {} if activation is None else {"activation": activation}
    output, state = outputs_of(model_of("CausalConvWithState", inputs, 2, **options), inputs)

    def element(batch: int, channel: int, step: int) -> float:
        """Element of the input, of the past state before it, or 0."""
        if step >= 0:
            return float(x[batch, channel, step])
        return 0.0 if past is None else float(past[batch, channel, step + width - 1])

    assert state.shape == (BATCH, channels, width - 1)
    for batch, channel in np.ndindex(BATCH, channels):
        for step in range(STEPS):
            total = 0.0 if bias is None else float(bias[channel])
            for tap in range(width):
                total += float(weight[channel, 0, tap]) * element(batch, channel, step + tap - width + 1)
            if activation in {"silu", "swish"}:
                total /= 1 + math.exp(-total)
            assert output[batch, channel, step] == pytest.approx(total, rel=2e-5, abs=2e-5)
        for index in range(width - 1):
            assert state[batch, channel, index] == element(batch, channel, STEPS - width + 1 + index)
