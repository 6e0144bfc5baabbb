"""Gradients of products, convolution, pooling, normalization and attention, against differences of their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgpu import ops
from tests.unit.tensors.gradients.gradient_checks import Array, attention, check, draw, sigmoid

pytestmark = pytest.mark.usefixtures("numpy_device")


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


d = ops.directml

WHOLE = (slice(None),) * 3


# ---- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("activation", [None, "tanh"])
def test_gradients_of_gemm(trans_a: bool, trans_b: bool, activation: str | None) -> None:
    def turned(x: Array, is_turned: bool) -> Array:
        return x.swapaxes(-1, -2) if is_turned else x

    def formula(a: Array, b: Array, c: Array) -> Array:
        result = 0.7 * turned(a, trans_a) @ turned(b, trans_b) + 1.3 * c
        return result if activation is None else np.tanh(result)

    a = draw(2, 4, 3) if trans_a else draw(2, 3, 4)
    b = draw(2, 5, 4, seed=1) if trans_b else draw(2, 4, 5, seed=1)
    options: Any = {"trans_a": int(trans_a), "trans_b": int(trans_b), "alpha": 0.7, "beta": 1.3}
    for compiled in (False, True):
        check(
            lambda a, b, c: d.gemm(a, b, c, **options, fused_activation=activation),
            formula,
            a * 0.4,
            b * 0.4,
            draw(2, 3, 5, seed=2) * 0.3,
            compiled=compiled,
        )


@pytest.mark.parametrize(
    "sizes",
    [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2)), ((2, 1, 3, 4), (5, 4, 2))],
)
def test_gradients_of_matrix_products(sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check(lambda a, b: a @ b, lambda a, b: a @ b, draw(*sizes[0]), draw(*sizes[1], seed=1))


def test_gradients_of_linear() -> None:
    check(ops.linear, lambda x, w, b: x @ w.T + b, draw(2, 3, 4), draw(5, 4, seed=1), draw(5, seed=2))


def convolved(x: Array, w: Array, steps: Any, groups: int, grow: Any = None) -> Array:
    """A convolution, or with ``grow`` a transposed one, place by place of the window; steps are strides, padding and
    dilations."""
    stride, padding, dilation = steps
    spatial, letters = x.ndim - 2, "xyz"[: x.ndim - 2]
    split_w = w.reshape(groups, -1, *w.shape[1:])
    if grow is None:
        padded = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
        counts = [
            (padded.shape[2 + k] - dilation[k] * (w.shape[2 + k] - 1) - 1) // stride[k] + 1 for k in range(spatial)
        ]
        source = padded.reshape(len(x), groups, -1, *padded.shape[2:])
        result = np.zeros((len(x), groups, split_w.shape[1], *counts))
        for place in np.ndindex(*w.shape[2:]):
            part = tuple(
                slice(p * dilation[k], p * dilation[k] + stride[k] * (counts[k] - 1) + 1, stride[k])
                for k, p in enumerate(place)
            )
            result += np.einsum(
                f"ngc{letters},goc->ngo{letters}",
                source[(*WHOLE, *part)],
                split_w[(*WHOLE, *place)],
            )
        return result.reshape(len(x), -1, *counts)
    counts = [
        stride[k] * (x.shape[2 + k] - 1) + dilation[k] * (w.shape[2 + k] - 1) + 1 + grow[k] for k in range(spatial)
    ]
    source = x.reshape(len(x), groups, -1, *x.shape[2:])
    result = np.zeros((len(x), groups, w.shape[1], *counts))
    for place in np.ndindex(*w.shape[2:]):
        part = tuple(
            slice(p * dilation[k], p * dilation[k] + stride[k] * (x.shape[2 + k] - 1) + 1, stride[k])
            for k, p in enumerate(place)
        )
        result[(*WHOLE, *part)] += np.einsum(f"ngc{letters},gco->ngo{letters}", source, split_w[(*WHOLE, *place)])
    cut = tuple(slice(padding[k], counts[k] - padding[k]) for k in range(spatial))
    return result.reshape(len(x), -1, *counts)[(slice(None), slice(None), *cut)]


CONVOLUTIONS = [
    ((2, 2, 5, 4), (3, 2, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((1, 2, 6, 5), (2, 2, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    ((2, 4, 5, 6), (4, 2, 2, 3), (2, 1), (1, 0), (1, 2), 2),
    ((1, 3, 5, 5), (3, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    ((1, 2, 7, 6), (1, 2, 2, 2), (3, 2), (0, 1), (2, 1), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_gradients_of_convolution(case: Any) -> None:
    x, weight, *steps, groups = case

    def formula(x: Array, w: Array, b: Array) -> Array:
        return np.tanh(convolved(x, w, steps, groups) + b[:, None, None])

    def function(x: Any, w: Any, b: Any) -> Any:
        return ops.conv2d(x, w, b, steps[0], steps[1], steps[2], groups, activation="tanh")

    check(function, formula, draw(*x) * 0.5, draw(*weight, seed=1) * 0.5, draw(weight[0], seed=2))


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("grow", [(0, 0), (1, 0)])
def test_gradients_of_transposed_convolution(case: Any, grow: tuple[int, int]) -> None:
    x, weight, *steps, groups = case
    channels = x[1]
    filters = (channels, weight[0], *weight[2:])

    def formula(x: Array, w: Array) -> Array:
        return convolved(x, w, steps, groups, grow)

    def function(x: Any, w: Any) -> Any:
        return ops.conv_transpose2d(x, w, None, steps[0], steps[1], steps[2], groups, grow)

    check(function, formula, draw(x[0], channels, 3, 3), draw(*filters, seed=1))


def test_gradients_of_a_true_convolution_and_of_other_ranks() -> None:
    check(
        lambda x, w: d.convolution(x, w, mode="convolution", start_padding=(1, 0), strides=(1, 2)),
        lambda x, w: convolved(
            np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 0)]), w[..., ::-1, ::-1], ((1, 2), (0, 0), (1, 1)), 1
        ),
        draw(1, 2, 4, 5),
        draw(3, 2, 2, 3, seed=1),
    )
    check(ops.conv1d, lambda x, w: convolved(x, w, ((1,), (0,), (1,)), 1), draw(2, 2, 6), draw(3, 2, 3, seed=1))
    check(
        ops.conv3d,
        lambda x, w: convolved(x, w, ((1, 1, 1), (0, 0, 0), (1, 1, 1)), 1),
        draw(1, 2, 3, 3, 4),
        draw(2, 2, 2, 2, 2, seed=1),
    )


# ---- pictures --------------------------------------------------------------------------------------------------------


def windows(x: Array, size: int, stride: int, padding: int, fill: float) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    return view[:, :, ::stride, ::stride]


PICTURES: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "max pooling": (lambda x: ops.max_pool2d(x, 2), lambda x: windows(x, 2, 2, 0, 0).max((-1, -2))),
    "max pooling, overlapping": (
        lambda x: ops.max_pool2d(x, 3, 1, 1),
        lambda x: windows(x, 3, 1, 1, -np.inf).max((-1, -2)),
    ),
    "average pooling": (
        lambda x: ops.avg_pool2d(x, 3, 1, 1, include_padding=True),
        lambda x: windows(x, 3, 1, 1, 0).mean((-1, -2)),
    ),
    "average pooling without padding": (
        lambda x: ops.avg_pool2d(x, 2, 2),
        lambda x: windows(x, 2, 2, 0, 0).mean((-1, -2)),
    ),
    "lp pooling": (
        lambda x: d.lp_pooling1(x, window_size=(2, 2), strides=(1, 1), p=2),
        lambda x: np.sqrt((windows(x, 2, 1, 0, 0) ** 2).sum((-1, -2))),
    ),
    "nearest": (lambda x: ops.resize(x, (8, 12), mode="nearest"), lambda x: x.repeat(2, 2).repeat(2, 3)),
    "upsample": (
        lambda x: d.upsample_2d(x, scale_size=(2, 3), interpolation_mode="nearest_neighbor"),
        lambda x: x.repeat(3, 2).repeat(2, 3),
    ),
    "linear": (
        lambda x: ops.resize(x, (2, 3), mode="linear"),
        lambda x: x.reshape(1, 2, 2, 2, 3, 2).mean((3, 5)),
    ),
    "old linear": (
        lambda x: d.resample(x, interpolation_mode="linear", scales=(1, 1, 0.5, 0.5)),
        lambda x: x.reshape(1, 2, 2, 2, 3, 2).mean((3, 5)),
    ),
    "space to depth": (
        lambda x: d.space_to_depth1(x, block_size=2, order="column_row_depth"),
        lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 3),
    ),
    "depth to space": (
        lambda x: d.depth_to_space(d.space_to_depth(x, block_size=2), block_size=2) * x,
        lambda x: x * x,
    ),
    "local response": (
        lambda x: d.local_response_normalization(x, cross_channel=True, local_size=1, alpha=0.5, beta=0.75, bias=1),
        lambda x: x / (1 + 0.5 * x * x) ** 0.75,
    ),
    "instance norm": (
        ops.instance_norm,
        lambda x: (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5),
    ),
    "group norm": (
        lambda x: ops.group_norm(x, 1),
        lambda x: (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(x.var((1, 2, 3), keepdims=True) + 1e-5),
    ),
    "old mean variance": (
        lambda x: d.mean_variance_normalization(x, cross_channel=False, normalize_variance=True, epsilon=1e-5),
        lambda x: (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5),
    ),
    "value scale": (
        lambda x: d.value_scale_2d(x.reshape(2, 1, 4, 6), scale=3, bias=(2,)),
        lambda x: 3 * x.reshape(2, 1, 4, 6) + 2,
    ),
}
"""Functions of pictures {1, 2, 4, 6}, and their formulas."""


@pytest.mark.parametrize("name", PICTURES)
def test_gradient_of_a_function_of_pictures(name: str) -> None:
    function, formula = PICTURES[name]
    check(function, formula, draw(1, 2, 4, 6))


def test_gradients_of_batch_normalization() -> None:
    def formula(x: Array, mean: Array, variance: Array, scale: Array, bias: Array) -> Array:
        columns = [part.reshape(1, -1, 1, 1) for part in (mean, variance, scale, bias)]
        return columns[2] * (x - columns[0]) / np.sqrt(columns[1] + 1e-5) + columns[3]

    statistics = [draw(2), draw(2, low=0.5, high=2), draw(2, seed=1), draw(2, seed=2)]
    check(ops.batch_norm, formula, draw(3, 2, 2, 3), *statistics)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_gradients_of_batch_normalization_with_own_statistics(activation: str | None) -> None:
    def function(x: Any, scale: Any, bias: Any) -> Any:
        result = d.batch_normalization_training(x, scale, bias, epsilon=1e-3, fused_activation=activation)
        return result.output if activation else result.output + result.output_mean * 2 + result.output_variance * x

    def formula(x: Array, scale: Array, bias: Array) -> Array:
        mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        result = scale * (x - mean) / np.sqrt(variance + 1e-3) + bias
        return sigmoid(result) if activation else result + 2 * mean + variance * x

    check(function, formula, draw(2, 2, 2, 3), draw(1, 2, 1, 1), draw(1, 2, 1, 1, seed=1), tolerance=1e-3)


def test_gradients_of_attention() -> None:
    check(
        lambda q, k, v, bias: ops.attention(q, k, v, 2, bias),
        attention,
        draw(2, 3, 4),
        draw(2, 5, 4, seed=1),
        draw(2, 5, 6, seed=2),
        draw(2, 2, 3, 5, seed=3),
    )
