"""Attention of ONNX models with masks of -inf, on every adapter, against onnx and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmlgpu import Device
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx import attention_draws as draws

CASES = [
    *((draws.attention, seed) for seed in (0, 24, 25, 116)),
    (draws.multi_head_attention, 52),
    *((draws.group_query_attention, seed) for seed in (5, 195)),
]


@pytest.mark.parametrize(("draw", "seed"), CASES)
def test_random_masks(device: Device, draw: Callable[[int], draws.Drawn], seed: int) -> None:
    if draw is draws.attention:
        pytest.importorskip("onnxruntime", minversion="1.32", reason="1.30 does not know windows of ONNX's Attention")
    drawn = draw(seed)
    model, feeds = drawn.model()
    assert draws.is_right(drawn, load(model, device).run(feeds), tolerance=1e-4)
