"""Masks that hide all keys of a query, alone and with causality, windows and lengths, against onnx and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx import attention_draws as draws
from tests.unit.frontends.onnx.onnx_against import model_of_node

F = np.float32
INF = np.inf
QUERY, KEY, VALUE = np.zeros((1, 1, 2, 3), F), np.zeros((1, 1, 3, 3), F), np.eye(3, dtype=F)[None, None]
HIDES_FIRST = np.array([[-INF, 0, 0], [0, 0, 0]], F)


def output(inputs: list[Any], outputs: tuple[str, ...] = ("y",), **attributes: Any) -> list[np.ndarray]:
    model, feeds = model_of_node("Attention", inputs, list(outputs), version=25, **attributes)
    return list(load(model, "numpy").run(feeds).values())


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("mask", "lengths", "attributes", "rows"),
    [
        (HIDES_FIRST, None, {"is_causal": 1}, [[0, 0, 0], [0.5, 0.5, 0]]),
        (HIDES_FIRST, None, {"right_window_size": 0}, [[0, 0, 0], [0.5, 0.5, 0]]),
        (np.array([[0, -INF, -INF]] * 2, F), None, {"left_window_size": 0}, [[1, 0, 0], [0, 0, 0]]),
        (HIDES_FIRST, [1], {}, [[0, 0, 0], [1, 0, 0]]),
        (HIDES_FIRST, [1], {"is_causal": 1}, [[0, 0, 0], [1, 0, 0]]),
        (None, [1], {"is_causal": 1}, [[0, 0, 0], [1, 0, 0]]),
        (np.full((2, 3), -INF, F), None, {}, [[0, 0, 0], [0, 0, 0]]),
        (np.full((2, 3), -INF, F), None, {"softcap": 2.0}, [[0, 0, 0], [0, 0, 0]]),
        (HIDES_FIRST > -1, None, {"is_causal": 1}, [[0, 0, 0], [0.5, 0.5, 0]]),
    ],
)
def test_a_query_that_sees_no_key(kind: Any, mask: Any, lengths: Any, attributes: Any, rows: Any) -> None:
    if mask is not None and mask.dtype != np.bool_:
        mask = mask.astype(kind)
    inputs = [x.astype(kind) for x in (QUERY, KEY, VALUE)]
    (y,) = output([*inputs, mask, None, None, None if lengths is None else np.array(lengths)], **attributes)
    np.testing.assert_array_equal(y[0, 0], np.array(rows, kind))


def test_weights_of_a_query_that_sees_no_key() -> None:
    _, weights = output([QUERY, KEY, VALUE, HIDES_FIRST], ("y", "", "", "qk"), is_causal=1, qk_matmul_output_mode=3)
    np.testing.assert_array_equal(weights[0, 0], [[0, 0, 0], [0.5, 0.5, 0]])


def test_a_score_that_is_no_number_stays_one() -> None:
    """Only a mask makes a row 0: NaN in the mask, the query or a value reaches the output."""
    mask = np.array([[np.nan, -INF, -INF], [-INF, -INF, -INF]], F)
    (y,) = output([QUERY, KEY, VALUE, mask])
    assert np.isnan(y[0, 0, 0]).all()
    np.testing.assert_array_equal(y[0, 0, 1], [0, 0, 0])


SEEDS = [range(first, first + 50) for first in range(0, 400, 50)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start} to {seeds.stop - 1}")
def test_random_masks(seeds: range) -> None:
    _check(draws.attention, seeds)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draws.multi_head_attention, draws.fused_attention, draws.group_query_attention])
@pytest.mark.parametrize("seeds", SEEDS[:3], ids=lambda seeds: f"{seeds.start} to {seeds.stop - 1}")
def test_random_masks_of_com_microsoft(draw: Callable[[int], draws.Drawn], seeds: range) -> None:
    _check(draw, seeds)


def _check(draw: Callable[[int], draws.Drawn], seeds: range) -> None:
    wrong = []
    for seed in seeds:
        drawn = draw(seed)
        model, feeds = drawn.model()
        if not draws.is_right(drawn, load(model, "numpy").run(feeds)):
            wrong.append((seed, drawn.attributes))
    assert not wrong


@pytest.mark.parametrize(
    ("inputs", "attributes", "reason"),
    [
        ([None, KEY], {}, "past_key and past_value must be given together"),
        ([None, KEY, VALUE, np.array([1])], {}, "and without nonpad_kv_seqlen"),
        ([], {"left_window_size": -2}, r"must be at least -1, got \[-2, -1\]"),
    ],
)
def test_rejected(inputs: list[Any], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotSupported, match=f"Attention 'it': .*{reason}"):
        output([QUERY, KEY, VALUE, *inputs], **attributes)


def test_a_mode_that_there_is_not() -> None:
    with pytest.raises(NotSupported, match="qk_matmul_output_mode must be between 0 and 3, got 4"):
        output([QUERY, KEY, VALUE], ("y", "", "", "qk"), qk_matmul_output_mode=4)
