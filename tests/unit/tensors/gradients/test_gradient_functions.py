"""Gradients of losses, einsum, interpolation and the other functions that are composed, by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ops
from tests.unit.tensors.gradients.gradient_checks import Array, check, draw


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    """Tensors are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def log_softmax(x: Array) -> Array:
    shifted: Array = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


TARGET = np.array([2, 0, 1, 2])
WEIGHT = np.array([0.5, 1.5, 2.0])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_cross_entropy(reduction: Any, compiled: bool) -> None:
    def formula(x: Array) -> Array:
        scores, counts = log_softmax(x), TARGET != 0
        shares = WEIGHT[TARGET] * counts
        smooth = -(scores * WEIGHT).sum(1) * counts
        losses = -0.8 * scores[np.arange(4), TARGET] * shares + 0.2 / 3 * smooth
        return losses if reduction == "none" else np.asarray(losses.sum() / shares.sum())

    def function(x: Any) -> Any:
        weight = WEIGHT.astype(np.float32)
        return ops.cross_entropy(x, TARGET, weight, 0, reduction, 0.2)

    check(function, formula, draw(4, 3), compiled=compiled)


def test_cross_entropy_of_probabilities() -> None:
    shares = np.abs(draw(4, 3, seed=3))
    check(
        lambda x: ops.cross_entropy(x, shares.astype(np.float32)),
        lambda x: np.asarray(-(log_softmax(x) * shares).sum(1).mean()),
        draw(4, 3),
    )


def test_other_losses() -> None:
    check(lambda x: ops.nll_loss(x, TARGET), lambda x: np.asarray(-x[np.arange(4), TARGET].mean()), draw(4, 3))
    check(ops.mse_loss, lambda x, y: np.asarray(((x - y) ** 2).mean()), draw(2, 3), draw(1, 3, seed=1))


@pytest.mark.parametrize("compiled", [False, True])
def test_embedding(compiled: bool) -> None:
    indices = np.array([[0, 2], [2, 1]])
    check(lambda w: ops.embedding(indices, w), lambda w: w[indices], draw(3, 4), compiled=compiled)


@pytest.mark.parametrize(
    ("subscripts", "sizes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 2, 3), (2, 4, 3)]),
        ("ii->i", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("ii", [(4, 4)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("i,j->ji", [(2,), (3,)]),
        ("...ij,jk", [(2, 2, 3), (3, 2)]),
        ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 2)]),
        ("ij->j", [(2, 3)]),
    ],
)
def test_einsum(subscripts: str, sizes: list[tuple[int, ...]]) -> None:
    operands = [draw(*shape, seed=index) for index, shape in enumerate(sizes)]
    check(lambda *x: ops.einsum(subscripts, *x), lambda *x: np.einsum(subscripts, *x), *operands)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("aligned", [None, True])
def test_interpolate(mode: Any, aligned: bool | None) -> None:
    if aligned and mode in ("nearest", "area"):
        return
    basis = np.eye(6, dtype=np.float32).reshape(6, 1, 2, 3)  # what is resampled is a sum of single pixels
    pieces = ops.interpolate(basis, size=(3, 4), mode=mode, align_corners=aligned).astype(np.float64)
    check(
        lambda x: ops.interpolate(x, size=(3, 4), mode=mode, align_corners=aligned),
        lambda x: np.einsum("pchw,p->chw", pieces, x.reshape(-1))[None],
        draw(1, 1, 2, 3),
    )


def softmax(x: Array) -> Array:
    weights: Array = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_attention_of_heads_with_masks(compiled: bool) -> None:
    seen = np.array([[True, True, False], [True, False, True], [True, True, True]])

    def formula(q: Array, k: Array, v: Array, bias: Array) -> Array:
        products = q @ k.swapaxes(-1, -2) / np.sqrt(2) + bias
        hidden = np.where(seen & np.tril(np.ones((3, 3), bool)), 0, -1e9)
        return softmax(products + hidden) @ v

    def function(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return ops.attention(q, k, v, bias=bias, mask=seen, causal=True)

    operands = [draw(1, 2, 3, 2, seed=seed) for seed in range(3)]
    check(function, formula, *operands, draw(1, 2, 3, 3, seed=4), compiled=compiled)


def test_elementwise_functions() -> None:
    check(
        lambda x: ops.gelu(x, "tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        draw(2, 3),
    )
    check(ops.log2, np.log2, np.abs(draw(2, 3)))
    check(ops.log10, np.log10, np.abs(draw(2, 3)))
    check(ops.sign, np.sign, draw(2, 3))
    check(ops.trunc, np.trunc, draw(2, 3))


def test_functions_that_move_elements() -> None:
    check(lambda x: ops.tril(x) * 2, lambda x: np.tril(x) * 2, draw(3, 3))
    check(lambda x, y: ops.cat([x, y], 1) ** 2, lambda x, y: np.concatenate([x, y], 1) ** 2, draw(2, 2), draw(2, 1))
    check(lambda x: ops.flatten(x, 1) * ops.ones_like(x).reshape(2, -1), lambda x: x.reshape(2, -1), draw(2, 3, 2))
    check(lambda x: ops.permute(x, (1, 0)) * 3, lambda x: x.T * 3, draw(2, 3))
    check(lambda x: ops.view(x, (3, 2)) * 3, lambda x: x.reshape(3, 2) * 3, draw(2, 3))
    indices = np.array([[1], [0]], np.int8)
    check(lambda x: ops.take_along_axis(x, indices, 1), lambda x: np.take_along_axis(x, indices, 1), draw(2, 3))


def test_convolution_with_named_padding() -> None:
    def formula(x: Array, w: Array) -> Array:
        padded = np.pad(x[0, 0], ((1, 1), (0, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2))
        result: Array = (windows * w[0, 0]).sum((2, 3))[None, None]
        return result

    check(lambda x, w: ops.conv2d(x, w, padding="same"), formula, draw(1, 1, 4, 3), draw(1, 1, 3, 2, seed=1))
