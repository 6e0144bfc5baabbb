"""Attention and rotations of ONNX models on the adapter numpy, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import runner_of
from tests.unit.frontends.onnx.onnx_against import check_node, expected_of, model_of_node, normal

MS = "com.microsoft"
BATCH, ROWS, KEYS, HEADS, SIZE = 2, 4, 5, 2, 8
HIDDEN = HEADS * SIZE


def table(places: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    angles = np.outer(np.arange(places), 1 / 10 ** (np.arange(pairs) / pairs)).astype(np.float32)
    return np.cos(angles), np.sin(angles)


# ---- Attention of com.microsoft

MASKS: dict[str, np.ndarray | None] = {
    "none": None,
    "ends": np.array([3, 4], np.int32),
    "ends and starts": np.array([3, 4, 1, 0], np.int32),
    "keys": np.array([[1, 1, 0, 1], [1, 0, 1, 1]], np.int32),
    "rows and keys": np.random.default_rng(0).integers(0, 2, (BATCH, ROWS, ROWS)).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_fused_attention(mask: str, causal: int) -> None:
    inputs = [normal(BATCH, ROWS, 12), normal(12, 3 * HIDDEN), normal(3 * HIDDEN), MASKS[mask]]
    check_node("Attention", inputs, ["y"], domain=MS, num_heads=HEADS, unidirectional=causal, weights=(1, 2))


def test_fused_attention_with_past_and_bias() -> None:
    past = normal(2, BATCH, HEADS, 3, SIZE)
    x, weights, bias = normal(BATCH, ROWS, 12), normal(12, 3 * HIDDEN), normal(3 * HIDDEN)
    for causal in (0, 1):
        check_node(
            "Attention", [x, weights, bias, None, past], ["y", "present"], domain=MS, num_heads=HEADS,
            unidirectional=causal,
        )  # fmt: skip
    added = normal(1, HEADS, ROWS, ROWS)
    inputs = [x, normal(12, 40), normal(40), None, None, added]
    check_node("Attention", inputs, ["y"], domain=MS, num_heads=2, qkv_hidden_sizes=[16, 16, 8], scale=0.3)


def test_a_large_mask_is_cut() -> None:
    """{batch, 1, longest, longest}, which onnxruntime's CPU provider lacks: a causal mask equals the attribute."""
    past, mask = normal(2, BATCH, HEADS, 2, SIZE), np.tril(np.ones((BATCH, 1, 9, 9), np.int32))
    inputs: list[Any] = [normal(BATCH, ROWS, 12), normal(12, 3 * HIDDEN), normal(3 * HIDDEN), mask, past]
    model, feeds = model_of_node("Attention", inputs, ["y", "present"], domain=MS, num_heads=HEADS)
    result = load(model, "numpy").run(feeds)["y"]
    inputs[3] = None
    model, feeds = model_of_node("Attention", inputs, ["y", "present"], domain=MS, num_heads=HEADS, unidirectional=1)
    np.testing.assert_allclose(result, expected_of(model, feeds)[0], rtol=1e-5, atol=1e-5)


# ---- Attention of ONNX


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_attention(causal: int, rank: int) -> None:
    """Shared heads, a past, and a boolean mask; a query that sees no key."""
    heads = [normal(BATCH, count, rows, SIZE, seed=count) for count, rows in ((4, ROWS), (2, KEYS), (2, KEYS))]
    past = [normal(BATCH, 2, 3, SIZE, seed=index) for index in range(2)]
    mask = np.random.default_rng(2).integers(0, 2, (BATCH, 1, ROWS, KEYS + 3)).astype(np.bool_)
    mask[0, 0, 2] = False
    attributes: dict[str, Any] = {"is_causal": causal}
    if rank == 3:
        heads = [head.transpose(0, 2, 1, 3).reshape(BATCH, head.shape[2], -1) for head in heads]
        attributes |= {"q_num_heads": 4, "kv_num_heads": 2}
    check_node("Attention", [*heads, mask, *past], ["y", "k", "v"], version=23, **attributes)
    check_node("Attention", heads, ["y"], version=23, softcap=2.0, scale=0.6, **attributes)


# ---- MultiHeadAttention


@pytest.mark.parametrize("mask", [None, (BATCH,), (3 * BATCH + 2,), (BATCH, KEYS), (BATCH, ROWS, KEYS)])
def test_multi_head_attention(mask: tuple[int, ...] | None) -> None:
    hides = None
    if mask is not None:
        hides = np.random.default_rng(1).integers(0, 2, mask).astype(np.int32)
        hides = np.array([3, 5, 0, 4, 8, 0, 3, 8], np.int32)[: mask[0]] if len(mask) == 1 else hides
    inputs = [
        normal(BATCH, ROWS, HIDDEN),
        normal(BATCH, KEYS, HIDDEN, seed=1),
        normal(BATCH, KEYS, 12, seed=2),
        normal(2 * HIDDEN + 12),
        hides,
        normal(1, HEADS, ROWS, KEYS),
    ]
    check_node("MultiHeadAttention", inputs, ["y"], domain=MS, num_heads=HEADS, weights=(3,))


def test_multi_head_attention_with_past() -> None:
    x = [normal(BATCH, ROWS, HIDDEN, seed=index) for index in range(3)]
    past = [normal(BATCH, HEADS, 3, SIZE, seed=index) for index in range(2)]
    for causal in (0, 1):
        inputs = [*x, None, None, None, *past]
        check_node(
            "MultiHeadAttention", inputs, ["y", "k", "v"], domain=MS, num_heads=HEADS, scale=0.4,
            unidirectional=causal,
        )  # fmt: skip


@pytest.mark.parametrize(("rows", "keys"), [(4, 4), (2, 5), (1, 4), (5, 2), (3, 4)])
def test_unidirectional_with_other_keys_than_queries(rows: int, keys: int) -> None:
    inputs = [normal(BATCH, rows, HIDDEN), normal(BATCH, keys, HIDDEN), normal(BATCH, keys, HIDDEN, seed=1)]
    check_node("MultiHeadAttention", inputs, ["y"], domain=MS, num_heads=HEADS, unidirectional=1)


def test_keys_by_head() -> None:
    key, value = normal(BATCH, HEADS, KEYS, SIZE), normal(BATCH, HEADS, KEYS, SIZE, seed=1)
    check_node("MultiHeadAttention", [normal(BATCH, ROWS, HIDDEN), key, value], ["y"], domain=MS, num_heads=HEADS)


def test_packed() -> None:
    """Compare packed with separate inputs, since onnxruntime's CPU provider lacks packed ones."""
    parts = [normal(BATCH, ROWS, HEADS, SIZE, seed=index) for index in range(3)]
    flat = [part.reshape(BATCH, ROWS, HIDDEN) for part in parts]
    results = []
    for inputs in (flat, [np.stack(parts, 3)], [flat[0], np.stack(parts[1:], 3)]):
        model, feeds = model_of_node("MultiHeadAttention", [*inputs], ["y"], domain=MS, num_heads=HEADS)
        results.append(load(model, "numpy").run(feeds)["y"])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)


# ---- RotaryEmbedding


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary(interleaved: int) -> None:
    cos, sin = table(16, SIZE // 2)
    places = np.array([[3, 4, 5, 6], [0, 1, 2, 3]])
    rest: dict[str, Any] = {"domain": MS, "interleaved": interleaved}
    check_node("RotaryEmbedding", [normal(BATCH, ROWS, HIDDEN), places, cos, sin], ["y"], **rest)
    check_node("RotaryEmbedding", [normal(BATCH, ROWS, HIDDEN), np.array([5]), cos, sin], ["y"], **rest)
    by_head = [normal(BATCH, HEADS, ROWS, SIZE), places, cos, sin]
    check_node("RotaryEmbedding", by_head, ["y"], **rest)
    part = [normal(BATCH, ROWS, HIDDEN), places, cos[:, :2], sin[:, :2]]
    check_node("RotaryEmbedding", part, ["y"], **rest, num_heads=HEADS, rotary_embedding_dim=4)


# ---- GroupQueryAttention

SHARED, QUERIES, WIDE = 2, 4, 16


def group_inputs(rows: int, past: int, ends: list[int], **settings: Any) -> list[Any]:
    """Return inputs with ``past`` rows of a past; ``ends`` are the positions of the last keys."""
    batch = len(ends)
    new: list[Any] = [normal(batch, rows, heads * WIDE, seed=heads) for heads in (QUERIES, SHARED, SHARED)]
    new[2] = new[2] + 1
    before: list[Any] = [normal(batch, SHARED, past, WIDE, seed=index) for index in range(2)]
    if settings.get("packed"):
        new = [np.concatenate(new, 2), None, None]
    tables = table(32, WIDE // 2) if settings.get("do_rotary") else (None, None)
    return [*new, *before, np.array(ends, np.int32), np.array(max(ends) + 1, np.int32), *tables]


@pytest.mark.parametrize(
    ("rows", "past", "ends", "settings"),
    [
        (4, 0, [3, 3], {}),
        (4, 0, [3, 3], {"do_rotary": 1}),
        (1, 6, [6, 6], {"do_rotary": 1, "rotary_interleaved": 1}),
        (1, 16, [6, 3], {}),
        (1, 16, [9, 9], {"do_rotary": 1, "packed": 1}),
        (1, 16, [9, 5], {"local_window_size": 4}),
        (4, 0, [3, 3], {"local_window_size": 2}),
        (1, 16, [9, 5], {"softcap": 2.0}),
        (1, 16, [9, 5], {"smooth_softmax": 1, "scale": 0.7}),
        (3, 16, [9], {"do_rotary": 1}),
    ],
)
def test_group_query_attention(rows: int, past: int, ends: list[int], settings: dict[str, Any]) -> None:
    inputs = group_inputs(rows, past, ends, **settings)
    attributes = {name: value for name, value in settings.items() if name != "packed"}
    model, feeds = model_of_node(
        "GroupQueryAttention", inputs, ["y", "k", "v"], domain=MS, num_heads=QUERIES, kv_num_heads=SHARED, **attributes
    )
    results = load(model, "numpy").run(feeds)
    y, keys, values = expected_of(model, feeds)
    np.testing.assert_allclose(results["y"], y, rtol=1e-4, atol=1e-5)
    for result, other in ((results["k"], keys), (results["v"], values)):
        assert result.shape == other.shape
        for sequence, last in enumerate(ends):
            got, expected = result[sequence, :, : last + 1], other[sequence, :, : last + 1]
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_group_query_attention_with_sinks_and_a_bias() -> None:
    inputs = [*group_inputs(4, 0, [3, 3]), None, normal(1, 1, 4, 4), normal(QUERIES)]
    check_node(
        "GroupQueryAttention", inputs, ["y", "k", "v"], domain=MS, num_heads=QUERIES, kv_num_heads=SHARED,
        tolerance=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("read", ["y", "k", "v", "yk"])
def test_a_cache_that_is_no_output(read: str) -> None:
    """Present keys or values that are no output of the model."""
    rest: dict[str, Any] = {"domain": MS, "num_heads": QUERIES, "kv_num_heads": SHARED}
    model, feeds = model_of_node("GroupQueryAttention", group_inputs(1, 16, [6, 3]), ["y", "k", "v"], **rest)
    expected = load(model, "numpy").run(feeds)
    outputs = [output for output in model.graph.output if output.name in read]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    results = load(model, "numpy").run(feeds)
    assert list(results) == list(read)
    for name, result in results.items():
        np.testing.assert_array_equal(result, expected[name])


def test_one_compilation_for_all_lengths() -> None:
    """Compiled graphs do not depend on the number of keys, as long as the cache has room."""
    inputs = group_inputs(1, 16, [6, 3])
    rest: dict[str, Any] = {"domain": MS, "num_heads": QUERIES, "kv_num_heads": SHARED}
    model, feeds = model_of_node("GroupQueryAttention", inputs, ["y", "k", "v"], **rest)
    session = load(model, "numpy")
    for last in (6, 9, 12):
        feeds["x5"], feeds["x6"] = np.array([last, 3], np.int32), np.array(last + 1, np.int32)
        np.testing.assert_allclose(session.run(feeds)["y"], expected_of(model, feeds)[0], rtol=1e-4, atol=1e-5)
    assert len(runner_of(session).stages) == 2


@pytest.mark.parametrize(("mode", "starts"), [("linear", [2, 5]), ("circular", [6, 3]), ("linear", None)])
def test_rows_into_a_cache(mode: str, starts: list[int] | None) -> None:
    inputs = [normal(2, 3, 8, 4), normal(2, 3, 3, 4, seed=1), None if starts is None else np.array(starts)]
    check_node("TensorScatter", inputs, ["y"], version=24, mode=mode)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes", "reason"),
    [
        ("Attention", [normal(1, 2, 8), normal(8, 24)], ["y"], {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        ("MultiHeadAttention", [normal(1, 2, 8)] * 3, ["y", "", "", "qk"], {"num_heads": 2}, "output qk"),
        ("GroupQueryAttention", group_inputs(1, 4, [2]), ["y", "", "", "qk"],
         {"num_heads": QUERIES, "kv_num_heads": SHARED}, "output output_qk"),
        ("RotaryEmbedding", [normal(1, 2, 8), np.array([0]), normal(4, 4), normal(4, 4)], ["y"],
         {"is_packed_batching": 1}, "is_packed_batching"),
        ("RotaryEmbedding", [normal(2, 16), np.array([0]), normal(4, 4), normal(4, 4)], ["y"], {},
         "input 0 must have 3 or 4 dimensions, got shape"),
        ("Attention", [normal(1, 2, 12), normal(12, 40)], ["y"], {"num_heads": 3}, "num_heads must divide"),
    ],
)  # fmt: skip
def test_rejected(op_type: str, inputs: list[Any], outputs: list[str], attributes: dict[str, Any], reason: str) -> None:
    model, feeds = model_of_node(op_type, inputs, outputs, domain=MS, **attributes)
    with pytest.raises(NotSupported, match=f"{op_type} 'it': .*{reason}"):
        load(model, "numpy").run(feeds)
