"""Losses, embeddings, dropout, attention with masks, and named padding, against their formulas in NumPy.

The formulas are those of PyTorch's documentation; they were compared with PyTorch 2.14.1 on these options.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special

import dmlgpu
from dmlgpu import InvalidArgument, Tensor, ops
from tests.unit.device_objects import raises

RNG = np.random.default_rng(35)


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    """Arrays are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def floats(*sizes: int) -> Any:
    return RNG.standard_normal(sizes).astype(np.float32)


# ---- losses ----------------------------------------------------------------------------------------------------------


def cross_entropy(
    logits: Any, target: Any, weight: Any, reduction: str, smoothing: float, *, ignored: int | None = None
) -> Any:
    """Cross entropy row by row, with classes in the last axis."""
    axis, probabilities = min(1, logits.ndim - 1), target.dtype.kind == "f"
    classes = logits.shape[axis]
    scores = np.moveaxis(scipy.special.log_softmax(logits.astype(np.float64), axis), axis, -1).reshape(-1, classes)
    weights = np.ones(classes) if weight is None else weight.astype(np.float64)
    losses, shares = [], []
    rows = np.moveaxis(target, axis, -1).reshape(-1, classes) if probabilities else target.reshape(-1)
    for row, kind in zip(scores, rows, strict=True):
        if probabilities:
            losses.append(-(row * weights * (kind * (1 - smoothing) + smoothing / classes)).sum())
            shares.append(1)
        elif kind == ignored:
            losses.append(0.0)
            shares.append(0.0)
        else:
            spread = -(row * weights).sum() * smoothing / classes
            losses.append(-(1 - smoothing) * row[kind] * weights[kind] + spread)
            shares.append(weights[kind])
    if reduction == "none":
        return np.reshape(losses, target.shape if not probabilities else np.delete(target.shape, axis))
    with np.errstate(invalid="ignore"):
        return np.sum(losses) / (1 if reduction == "sum" else np.sum(shares))


SHAPES = [(5, 4), (2, 4, 3), (2, 3, 2, 2), (4,), (1, 1)]
REDUCTIONS: Any = ("mean", "sum", "none")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_cross_entropy_of_classes(shape: tuple[int, ...], is_weighted: bool, dtype: Any) -> None:
    axis = min(1, len(shape) - 1)
    logits, weight = floats(*shape), np.abs(floats(shape[axis])) + np.float32(0.5) if is_weighted else None
    target = RNG.integers(0, shape[axis], np.delete(shape, axis)).astype(dtype)
    for reduction, smoothing, ignored in itertools.product(REDUCTIONS, (0.0, 0.3, 1.0), (-100, int(target.flat[0]))):
        expected = cross_entropy(logits, target, weight, reduction, smoothing, ignored=ignored)
        result = ops.cross_entropy(logits, target, weight, ignored, reduction, smoothing)
        assert result.shape == np.shape(expected) and result.dtype == np.float32
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)
        if not smoothing:
            log_probabilities = scipy.special.log_softmax(logits, axis)
            result = ops.nll_loss(log_probabilities, target, weight, ignored, reduction)
            np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_cross_entropy_of_probabilities(shape: tuple[int, ...], is_weighted: bool) -> None:
    axis = min(1, len(shape) - 1)
    logits, weight = floats(*shape), np.abs(floats(shape[axis])) + np.float32(0.5) if is_weighted else None
    target = scipy.special.softmax(floats(*shape), axis)
    for reduction, smoothing in itertools.product(REDUCTIONS, (0.0, 0.2)):
        expected = cross_entropy(logits, target, weight, reduction, smoothing)
        result = ops.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
        assert result.shape == np.shape(expected)
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)


def test_losses_of_no_rows() -> None:
    nothing, none = np.zeros((0, 3), np.float32), np.zeros(0, np.int64)
    assert np.isnan(ops.cross_entropy(nothing, none)) and ops.cross_entropy(nothing, none, reduction="sum") == 0
    assert ops.cross_entropy(nothing, none, reduction="none").shape == (0,)
    assert np.isnan(ops.cross_entropy(floats(2, 3), np.array([1, 1]), ignore_index=1))


def test_losses_of_half_precision() -> None:
    logits, target = floats(6, 5).astype(np.float16), RNG.integers(0, 5, 6)
    result = ops.cross_entropy(logits, target)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, cross_entropy(logits, target, None, "mean", 0.0), rtol=5e-3)


def test_squared_differences() -> None:
    x, y = floats(3, 4), floats(3, 4)
    np.testing.assert_allclose(ops.mse_loss(x, y), np.mean((x - y) ** 2), rtol=1e-6)
    np.testing.assert_allclose(ops.mse_loss(x, y, "sum"), np.sum((x - y) ** 2), rtol=1e-6)
    np.testing.assert_allclose(ops.mse_loss(x, y[:1], "none"), (x - y[:1]) ** 2, rtol=1e-6)


def test_rejections_of_losses() -> None:
    logits, target = floats(2, 3), np.array([0, 1])
    for text, call in {
        "cross_entropy: target must have the sizes [2], those of logits without the classes, got [3]": (
            lambda: ops.cross_entropy(logits, [0, 1, 2])
        ),
        "cross_entropy: target must have the sizes of logits as it holds probabilities, [2, 3], got [2, 2]": (
            lambda: ops.cross_entropy(logits, np.ones((2, 2), np.float32))
        ),
        "cross_entropy: logits must have sizes {N, C, ...} or {C}, got []": lambda: ops.cross_entropy(
            np.ones((), np.float32), 0
        ),
        "cross_entropy: logits must have sizes {N, C, ...} or {C}, got [2, 0]": (
            lambda: ops.cross_entropy(np.ones((2, 0), np.float32), target)
        ),
        "cross_entropy: reduction must be 'mean' or 'sum' or 'none', got 'average'": (
            lambda: ops.cross_entropy(logits, target, reduction="average")  # type: ignore[arg-type]
        ),
        "cross_entropy: label_smoothing must be between 0 and 1, got 2": (
            lambda: ops.cross_entropy(logits, target, label_smoothing=2)
        ),
        "cross_entropy: weight must have one element per class, [3], got [2]": (
            lambda: ops.cross_entropy(logits, target, np.ones(2, np.float32))
        ),
        "nll_loss: target must be of a type of kind integer, got BOOL; target.astype('int64') converts it": (
            lambda: ops.nll_loss(logits, target > 0)
        ),
        "mse_loss: x must be of a type of kind floating-point, got INT64; x.astype('float32') converts it": (
            lambda: ops.mse_loss(target, logits)
        ),
    }.items():
        with raises(InvalidArgument, text):
            call()


# ---- embedding, dropout ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0, 2)])
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint16])
def test_embedding(shape: tuple[int, ...], dtype: Any) -> None:
    table, indices = floats(7, 3), RNG.integers(0, 7, shape).astype(dtype)
    np.testing.assert_array_equal(ops.embedding(indices, table), table[indices])
    with raises(InvalidArgument, "embedding: weight must have sizes {count, width}, got [3]"):
        ops.embedding(indices, table[0])


def test_dropout() -> None:
    x, rng = floats(200, 50), dmlgpu.random.default_rng(0)
    result = ops.dropout(x, 0.2, generator=rng)
    is_left = result != 0
    np.testing.assert_allclose(result[is_left], x[is_left] / 0.8, rtol=1e-6)
    assert abs(is_left.mean() - 0.8) < 5 * np.sqrt(0.16 / x.size)
    np.testing.assert_array_equal(ops.dropout(x, 0.2, False), x)
    np.testing.assert_array_equal(ops.dropout(x, 0.0, generator=rng), x)
    np.testing.assert_array_equal(ops.dropout(x, 1.0, generator=rng), 0 * np.abs(x))
    assert ops.dropout(x.astype(np.float16), generator=rng).dtype == np.float16


# ---- attention -------------------------------------------------------------------------------------------------------


def attended(q: Any, k: Any, v: Any, bias: Any, scale: float | None = None) -> Any:
    """Attention of operands (N, H, S, E), with what is added to the scaled products."""
    products = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale) + bias
    return scipy.special.softmax(products, -1) @ v


def as_rows(x: Any) -> Any:
    """(N, H, S, E) as (N, S, H * E)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


Q, K, V = floats(2, 3, 5, 4), floats(2, 3, 6, 4), floats(2, 3, 6, 8)
SEEN = RNG.random((2, 3, 5, 6)) > 0.4
SEEN[..., 0] = True
ADDED = floats(2, 3, 5, 6)


def hidden(seen: Any) -> Any:
    return np.where(seen, 0, -np.inf)


@pytest.mark.parametrize("is_split", [True, False])
def test_masks_of_attention(is_split: bool) -> None:
    def attention(**options: Any) -> Any:
        if is_split:
            return ops.attention(Q, K, V, **options)
        return ops.attention(*map(as_rows, (Q, K, V)), 3, **options)

    triangle = np.tril(np.ones((5, 6), bool))
    one_head = SEEN[:, 0] if not is_split else SEEN[:, :1]
    for options, bias in (
        ({}, 0),
        ({"mask": SEEN}, hidden(SEEN)),
        ({"mask": SEEN[0, 0]}, hidden(SEEN[0, 0])),
        ({"mask": one_head}, hidden(SEEN[:, :1])),
        ({"mask": ADDED}, ADDED),
        ({"mask": ADDED[0, 0].astype(np.float16)}, ADDED[0, 0].astype(np.float16)),
        ({"bias": ADDED[:1]}, ADDED[:1]),
        ({"causal": True}, hidden(triangle)),
        ({"causal": True, "mask": SEEN}, hidden(triangle & SEEN)),
        ({"causal": True, "mask": ADDED, "bias": ADDED}, hidden(triangle) + 2 * ADDED),
    ):
        expected = attended(Q, K, V, bias)
        result = attention(**options)
        np.testing.assert_allclose(result, expected if is_split else as_rows(expected), rtol=2e-5, atol=2e-5)
    result = attention(scale=0.3)
    expected = attended(Q, K, V, 0, 0.3)
    np.testing.assert_allclose(result, expected if is_split else as_rows(expected), rtol=2e-5, atol=2e-5)


def test_rows_that_see_nothing() -> None:
    seen = np.ones((5, 6), bool)
    seen[2] = False
    result = ops.attention(Q, K, V, mask=seen)
    assert np.isnan(result[:, :, 2]).all() and np.isfinite(np.delete(result, 2, 2)).all()


def test_attention_without_later_positions_in_a_compiled_function() -> None:
    tensors = [Tensor(x) for x in (Q, K, V)]
    result = dmlgpu.compile(lambda q, k, v: ops.attention(q, k, v, causal=True))(*tensors)
    expected = attended(Q, K, V, hidden(np.tril(np.ones((5, 6), bool))))
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-5, atol=2e-5)


def test_rejections_of_attention() -> None:
    for text, call in {
        "attention: query, key and value must have sizes {N, H, S, E} or {N, S, H * E}, got [2, 3, 5, 4], [2, 6, 12], "
        "[2, 3, 6, 8]": lambda: ops.attention(Q, as_rows(K), V),
        "attention: key and value must have as many heads, of which those of query are a multiple, and num_heads that "
        "of query if it is passed, got 3, 1, 3": (lambda: ops.attention(Q, K[:, :1], V)),
        "attention: last sizes must be whole heads, those of query a multiple of those of key and value, got "
        "[2, 5, 12], [2, 6, 12], [2, 6, 24] and num_heads 5": (lambda: ops.attention(*map(as_rows, (Q, K, V)), 5)),
    }.items():
        with raises(InvalidArgument, text):
            call()
    for keyword, name in {"is_causal": "causal", "attn_mask": "mask"}.items():
        with raises(TypeError, f"attention() got an unexpected keyword argument {keyword!r}; it is called {name!r}"):
            ops.attention(Q, K, V, **{keyword: True})  # type: ignore[arg-type]


# ---- activations and convolutions ------------------------------------------------------------------------------------


def test_gelu() -> None:
    x = np.linspace(-6, 6, 101).astype(np.float32)
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)))
    np.testing.assert_allclose(ops.gelu(x, approximate="tanh"), expected, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(ops.gelu(x), x * scipy.special.ndtr(x), rtol=1e-5, atol=1e-6)
    with raises(InvalidArgument, "gelu: approximate must be 'none' or 'tanh', got 'erf'"):
        ops.gelu(x, "erf")


@pytest.mark.parametrize(("window", "dilation"), [((3, 3), 1), ((4, 2), 1), ((2, 5), (2, 1)), ((1, 1), 1)])
def test_padding_by_name(window: tuple[int, int], dilation: Any) -> None:
    x, weight = floats(2, 4, 9, 8), floats(6, 2, *window)
    steps = np.broadcast_to(dilation, 2)
    reach = [int(step) * (size - 1) for size, step in zip(window, steps, strict=True)]
    pairs = [(extent // 2, extent - extent // 2) for extent in reach]
    same = ops.conv2d(x, weight, padding="same", dilation=dilation, groups=2)
    assert same.shape == (2, 6, 9, 8)
    np.testing.assert_allclose(same, ops.conv2d(x, weight, padding=pairs, dilation=dilation, groups=2), rtol=1e-6)
    valid = ops.conv2d(x, weight, padding="valid", stride=2, dilation=dilation, groups=2)
    np.testing.assert_allclose(valid, ops.conv2d(x, weight, stride=2, dilation=dilation, groups=2), rtol=1e-6)


def test_rejections_of_padding_by_name() -> None:
    x, weight = floats(1, 2, 5, 5), floats(2, 2, 3, 3)
    text = "conv2d: padding must be integers, 'valid', or 'same' for a stride of 1, got"
    with raises(InvalidArgument, f"{text} 'same'"):
        ops.conv2d(x, weight, padding="same", stride=2)
    with raises(InvalidArgument, f"{text} 'full'"):
        ops.conv2d(x, weight, padding="full")
    with pytest.raises(InvalidArgument, match="conv_transpose2d: padding must be"):
        ops.conv_transpose2d(x, weight, padding="same")
    assert ops.conv1d(floats(1, 2, 5), floats(2, 2, 3), padding="same").shape == (1, 2, 5)
    assert ops.conv3d(floats(1, 2, 5, 4, 3), floats(2, 2, 3, 2, 1), padding="same").shape == (1, 2, 5, 4, 3)
