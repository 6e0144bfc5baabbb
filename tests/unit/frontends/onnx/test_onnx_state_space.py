"""CausalConvolution and SelectiveScan, against recurrences written out per sequence, row and head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.operators.state_space import SCAN_ROWS
from dmlgpu.runtime.device import Device

Array = NDArray[Any]

BATCH, HEADS, GROUPS, SIZE, ENTRIES = 3, 4, 2, 6, 5


def outputs_of(op_type: str, inputs: Mapping[str, Array | None], **attributes: Any) -> Sequence[Array]:
    """Run a model of one node; inputs that are None are omitted."""
    present = {name: array for name, array in inputs.items() if array is not None}
    names = [name if name in present else "" for name in inputs]
    node = helper.make_node(op_type, names, ["y", "state"], domain="dmlgpu", **attributes)
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in present.items()
        ],
        [helper.make_tensor_value_info(name, 1, None) for name in node.output],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("dmlgpu", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return list(load(model, Device("numpy")).run(present).values())


def counts_of(rows: int) -> tuple[Array, Array]:
    """Tokens before, and those that count: a sequence begins, one has fewer tokens, one has none."""
    return np.array([0, 3, 9], np.int32), np.array([rows, max(rows - 3, 1), 0], np.int32)


@pytest.mark.parametrize("rows", [1, 7, SCAN_ROWS + 9])
def test_scans(rows: int) -> None:
    random = np.random.default_rng(rows)

    def normal(*sizes: int) -> Array:
        return random.standard_normal(sizes).astype(np.float32)

    before, counts = counts_of(rows)
    x, steps, past = normal(BATCH, rows, HEADS * SIZE), normal(BATCH, rows, HEADS), normal(BATCH, HEADS, SIZE, ENTRIES)
    keys, queries = normal(BATCH, rows, GROUPS * ENTRIES), normal(BATCH, rows, GROUPS * ENTRIES)
    decay, skip, bias = -np.abs(normal(HEADS)), normal(HEADS), normal(HEADS)
    inputs = {"x": x, "b": keys, "c": queries, "dt": steps, "a": decay, "d": skip, "bias": bias, "past": past}
    output, state = outputs_of("SelectiveScan", {**inputs, "before": before, "count": counts})
    for batch in range(BATCH):
        for head in range(HEADS):
            group, expected = head * GROUPS // HEADS, past[batch, head].astype(np.float64) * bool(before[batch])
            for row in range(counts[batch]):
                step = math.log1p(math.exp(steps[batch, row, head] + bias[head]))
                values = x[batch, row, head * SIZE : (head + 1) * SIZE].astype(np.float64)
                key, query = (z[batch, row, group * ENTRIES : (group + 1) * ENTRIES] for z in (keys, queries))
                expected = math.exp(step * decay[head]) * expected + step * np.outer(values, key)
                result = output[batch, row, head * SIZE : (head + 1) * SIZE]
                np.testing.assert_allclose(result, expected @ query + skip[head] * values, rtol=2e-5, atol=2e-4)
            np.testing.assert_allclose(state[batch, head], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("rows", "taps", "activation"), [(1, 4, "silu"), (6, 4, "silu"), (2, 5, "none"), (9, 2, "none")]
)
def test_convolutions(rows: int, taps: int, activation: str) -> None:
    """Five taps reach back over both rows into the state."""
    random, channels = np.random.default_rng(taps), 3
    before, counts = counts_of(rows)
    x, weight = random.standard_normal((BATCH, rows, channels)), random.standard_normal((channels, taps))
    bias = random.standard_normal(channels) if taps == 4 else None
    past = random.standard_normal((BATCH, taps - 1, channels))
    named = {"x": x, "weight": weight, "bias": bias, "past": past}
    inputs = {name: None if array is None else array.astype(np.float32) for name, array in named.items()}
    numbers = {"before": before, "count": counts}
    output, state = outputs_of("CausalConvolution", {**inputs, **numbers}, activation=activation)
    for batch in range(BATCH):
        wide = np.concatenate([past[batch] * bool(before[batch]), x[batch]])
        for row in range(rows):
            expected = (wide[row : row + taps] * weight.T).sum(0) + (0 if bias is None else bias)
            if activation == "silu":
                expected = expected / (1 + np.exp(-expected))
            np.testing.assert_allclose(output[batch, row], expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(state[batch], wide[counts[batch] :][: taps - 1], rtol=1e-6)
