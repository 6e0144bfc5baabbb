"""Gradients compared with PyTorch's, in float64, for each operator that has a rule, a transformer block and a CNN.

PyTorch is no part of the extra ``test``: these tests run where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ops, value_and_grad
from dmlgpu.demo import training
from dmlgpu.tensors.gradients import rules
from tests.unit.tensors.gradients.gradient_checks import Array, draw

torch = pytest.importorskip("torch", reason="PyTorch, with whose gradients these are compared, is not installed")
F = torch.nn.functional
d = ops.directml

TOLERANCE = 2e-5
"""Largest difference of a gradient, relative to its largest element. float32 has 6e-8 per operation."""

Case = tuple[Callable[..., Any], Callable[..., Any], list[Array]]

X, Y = draw(3, 4), draw(3, 4, seed=1) + 0.011
POSITIVE, SMALL, LARGE = draw(3, 4, low=0.3, high=3), draw(3, 4, low=-0.8, high=0.8), draw(3, 4, low=1.3, high=3)
PICTURE, ROWS = draw(1, 2, 4, 6), draw(1, 1, 3, 4)
CHOSEN = np.array([[1, 1], [3, 0], [2, 2]])
PAIRS = np.array([[0, 1], [2, 3], [1, 1]], np.uint32)


def of_one(ours: Callable[..., Any], theirs: Callable[..., Any], x: Array = X) -> Case:
    return ours, theirs, [x]


def of_two(ours: Callable[..., Any], theirs: Callable[..., Any], a: Array = X, b: Array = Y) -> Case:
    return ours, theirs, [a, b]


def pytorchs_batch_norm(x: Any, *columns: Any) -> Any:
    """The formula: ``F.batch_norm`` has no gradient of statistics."""
    mean, variance, weight, bias = (column.reshape(1, -1, 1, 1) for column in columns)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


CASES: dict[str, Case] = {
    "ELEMENT_WISE_ABS": of_one(ops.abs, torch.abs),
    "ELEMENT_WISE_ACOS": of_one(ops.acos, torch.acos, SMALL),
    "ELEMENT_WISE_ACOSH": of_one(ops.acosh, torch.acosh, LARGE),
    "ELEMENT_WISE_ASIN": of_one(ops.asin, torch.asin, SMALL),
    "ELEMENT_WISE_ASINH": of_one(ops.asinh, torch.asinh),
    "ELEMENT_WISE_ATAN": of_one(ops.atan, torch.atan),
    "ELEMENT_WISE_ATANH": of_one(ops.atanh, torch.atanh, SMALL),
    "ELEMENT_WISE_COS": of_one(ops.cos, torch.cos),
    "ELEMENT_WISE_COSH": of_one(ops.cosh, torch.cosh),
    "ELEMENT_WISE_ERF": of_one(ops.erf, torch.erf),
    "ELEMENT_WISE_EXP": of_one(ops.exp, torch.exp),
    "ELEMENT_WISE_LOG": of_one(ops.log, torch.log, POSITIVE),
    "ELEMENT_WISE_NEGATE": of_one(d.element_wise_negate, torch.neg),
    "ELEMENT_WISE_RECIP": of_one(d.element_wise_recip, torch.reciprocal, POSITIVE),
    "ELEMENT_WISE_SIN": of_one(ops.sin, torch.sin),
    "ELEMENT_WISE_SINH": of_one(ops.sinh, torch.sinh),
    "ELEMENT_WISE_SQRT": of_one(ops.sqrt, torch.sqrt, POSITIVE),
    "ELEMENT_WISE_TAN": of_one(ops.tan, torch.tan, SMALL),
    "ELEMENT_WISE_TANH": of_one(d.element_wise_tanh, torch.tanh),
    "ELEMENT_WISE_IDENTITY": of_one(lambda x: d.element_wise_identity(x, scale_bias=(3, 1)), lambda x: 3 * x + 1),
    "ELEMENT_WISE_CEIL": of_one(lambda x: ops.ceil(x) * x, lambda x: x.ceil() * x),
    "ELEMENT_WISE_FLOOR": of_one(lambda x: ops.floor(x) * x, lambda x: x.floor() * x),
    "ELEMENT_WISE_ROUND": of_one(lambda x: ops.round(x) * x, lambda x: x.round() * x),
    "ELEMENT_WISE_SIGN": of_one(lambda x: ops.sign(x) * x, lambda x: x.sign() * x),
    "ELEMENT_WISE_CLIP": of_one(lambda x: d.element_wise_clip(x, min=-0.7, max=0.9), lambda x: x.clip(-0.7, 0.9)),
    "ELEMENT_WISE_CLIP1": of_one(lambda x: ops.clip(x, -0.7, 0.9), lambda x: x.clip(-0.7, 0.9)),
    "ELEMENT_WISE_CONSTANT_POW": of_one(lambda x: x**3, lambda x: x**3),
    "ELEMENT_WISE_THRESHOLD": of_one(lambda x: d.element_wise_threshold(x, min=0.3), lambda x: x.clip(min=0.3)),
    "CAST": of_one(lambda x: x.astype("float16").astype("float32"), lambda x: x.half().double()),
    "ELEMENT_WISE_ADD": of_two(lambda a, b: a + b, lambda a, b: a + b, X, draw(4, seed=2)),
    "ELEMENT_WISE_ADD1": of_two(
        lambda a, b: d.element_wise_add1(a, b, fused_activation="sigmoid"), lambda a, b: torch.sigmoid(a + b)
    ),
    "ELEMENT_WISE_SUBTRACT": of_two(lambda a, b: a - b, lambda a, b: a - b, X, draw(3, 1, seed=2)),
    "ELEMENT_WISE_MULTIPLY": of_two(lambda a, b: a * b, lambda a, b: a * b, draw(2, 1, 4), X),
    "ELEMENT_WISE_DIVIDE": of_two(lambda a, b: a / b, lambda a, b: a / b, X, POSITIVE),
    "ELEMENT_WISE_POW": of_two(lambda a, b: a**b, lambda a, b: a**b, POSITIVE, Y),
    "ELEMENT_WISE_MAX": of_two(ops.maximum, torch.maximum),
    "ELEMENT_WISE_MIN": of_two(ops.minimum, torch.minimum),
    "ELEMENT_WISE_MEAN": of_two(d.element_wise_mean, lambda a, b: (a + b) / 2),
    "ELEMENT_WISE_DIFFERENCE_SQUARE": of_two(d.element_wise_difference_square, lambda a, b: (a - b) ** 2),
    "ELEMENT_WISE_ATAN_YX": of_two(ops.atan2, torch.atan2),
    "ELEMENT_WISE_MODULUS_FLOOR": of_two(lambda a, b: a % b, torch.remainder, X, POSITIVE),
    "ELEMENT_WISE_MODULUS_TRUNCATE": of_two(d.element_wise_modulus_truncate, torch.fmod, X, POSITIVE),
    "ELEMENT_WISE_IF": of_two(lambda a, b: ops.where(a > b, a * 2, b), lambda a, b: torch.where(a > b, a * 2, b)),
    "ELEMENT_WISE_DEQUANTIZE_LINEAR": of_one(
        lambda s: d.element_wise_dequantize_linear(
            np.arange(12, dtype=np.uint8).reshape(3, 4), s, np.full((3, 4), 3, np.uint8)
        ),
        lambda s: (torch.arange(12.0).reshape(3, 4) - 3) * s,
    ),
    "ACTIVATION_CELU": of_one(lambda x: d.activation_celu(x, alpha=0.8), lambda x: F.celu(x, 0.8)),
    "ACTIVATION_ELU": of_one(lambda x: ops.elu(x, 0.7), lambda x: F.elu(x, 0.7)),
    "ACTIVATION_GELU": of_one(ops.gelu, F.gelu),
    "ACTIVATION_HARDMAX": of_one(
        lambda x: d.activation_hardmax(x.reshape(1, 1, 3, 4)).reshape(3, 4) * x,
        lambda x: F.one_hot(x.argmax(1), 4) * x,
    ),
    "ACTIVATION_HARDMAX1": of_one(
        lambda x: d.activation_hardmax1(x, axes=(1,)) * x, lambda x: F.one_hot(x.argmax(1), 4) * x
    ),
    "ACTIVATION_HARD_SIGMOID": of_one(
        lambda x: d.activation_hard_sigmoid(x, alpha=0.4, beta=0.5), lambda x: (0.4 * x + 0.5).clip(0, 1)
    ),
    "ACTIVATION_HARD_SWISH": of_one(
        lambda x: d.activation_hard_swish(x, alpha=1 / 6, beta=0.5), lambda x: x * (x / 6 + 0.5).clip(0, 1)
    ),
    "ACTIVATION_IDENTITY": of_one(lambda x: d.activation_identity(x) * x, lambda x: x * x),
    "ACTIVATION_LEAKY_RELU": of_one(lambda x: ops.leaky_relu(x, 0.1), lambda x: F.leaky_relu(x, 0.1)),
    "ACTIVATION_LINEAR": of_one(lambda x: d.activation_linear(x, alpha=3, beta=2), lambda x: 3 * x + 2),
    "ACTIVATION_LOG_SOFTMAX": of_one(d.activation_log_softmax, lambda x: F.log_softmax(x, -1)),
    "ACTIVATION_LOG_SOFTMAX1": of_one(lambda x: ops.log_softmax(x, 0), lambda x: F.log_softmax(x, 0)),
    "ACTIVATION_PARAMETERIZED_RELU": of_two(
        d.activation_parameterized_relu, lambda a, b: torch.where(a >= 0, a, a * b)
    ),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": of_one(
        lambda x: d.activation_parametric_softplus(x, alpha=1.5, beta=0.7), lambda x: 1.5 * F.softplus(0.7 * x)
    ),
    "ACTIVATION_RELU": of_one(ops.relu, F.relu),
    "ACTIVATION_RELU_GRAD": of_two(d.activation_relu_grad, lambda a, b: (a > 0) * b),
    "ACTIVATION_SCALED_ELU": of_one(
        lambda x: d.activation_scaled_elu(x, alpha=1.6732632423543772, gamma=1.0507009873554805), F.selu
    ),
    "ACTIVATION_SCALED_TANH": of_one(
        lambda x: d.activation_scaled_tanh(x, alpha=1.6, beta=0.7), lambda x: 1.6 * torch.tanh(0.7 * x)
    ),
    "ACTIVATION_SHRINK": of_one(
        lambda x: d.activation_shrink(x, bias=0.5, threshold=0.5), lambda x: F.softshrink(x, 0.5)
    ),
    "ACTIVATION_SIGMOID": of_one(ops.sigmoid, torch.sigmoid),
    "ACTIVATION_SOFTMAX": of_one(d.activation_softmax, lambda x: F.softmax(x, -1)),
    "ACTIVATION_SOFTMAX1": of_one(ops.softmax, lambda x: F.softmax(x, -1)),
    "ACTIVATION_SOFTPLUS": of_one(lambda x: d.activation_softplus(x, steepness=2), lambda x: F.softplus(x, 2)),
    "ACTIVATION_SOFTSIGN": of_one(d.activation_softsign, F.softsign),
    "ACTIVATION_SWISH": of_one(lambda x: d.activation_swish(x, sigmoid_input_scale=1), F.silu),
    "ACTIVATION_TANH": of_one(d.activation_tanh, torch.tanh),
    "ACTIVATION_THRESHOLDED_RELU": of_one(
        lambda x: d.activation_thresholded_relu(x, alpha=0.4), lambda x: F.threshold(x, 0.4, 0)
    ),
    "REDUCE": of_one(
        lambda x: ops.sum(x, 0) + ops.mean(x, 0) + ops.max(x, 0) * ops.min(x, 0) + ops.prod(x, 0) + ops.norm(x, 0),
        lambda x: x.sum(0) + x.mean(0) + x.amax(0) * x.amin(0) + x.prod(0) + x.norm(dim=0),
    ),
    "REDUCE, others": of_one(
        lambda x: ops.logsumexp(x, 1) + ops.var(x, 1) + ops.std(x, 1),
        lambda x: x.logsumexp(1) + x.var(1, correction=0) + x.std(1, correction=0),
    ),
    "CUMULATIVE_SUMMATION": of_one(lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
    "TOP_K": of_one(lambda x: d.top_k(x, axis=0, k=2)[0], lambda x: x.topk(2, 0).values),
    "TOP_K1": of_one(lambda x: ops.sort(x, 1) * ops.topk(x, 4).values, lambda x: x.sort(1).values * x.topk(4).values),
    "GEMM": of_two(lambda a, b: a @ b.T, lambda a, b: a @ b.T),
    "JOIN": of_two(lambda a, b: ops.concatenate([a, b], 1), lambda a, b: torch.cat([a, b], 1)),
    "SPLIT": of_one(
        lambda x: d.split(x, axis=1, output_sizes=((3, 1), (3, 3)))[1] * 2, lambda x: x.split((1, 3), 1)[1] * 2
    ),
    "SLICE": of_one(
        lambda x: d.slice(x.reshape(1, 1, 3, 4), offsets=(0, 0, 1, 0), sizes=(1, 1, 2, 3), strides=(1, 1, 1, 1)),
        lambda x: x[None, None, 1:3, 0:3],
    ),
    "SLICE1": of_one(lambda x: x[::-1, 3:0:-2] + 0, lambda x: x.flip(0)[:, [3, 1]]),
    "SLICE_GRAD": of_one(
        lambda x: d.slice_grad(x, input_window_sizes=(3, 4), input_window_offsets=(1, 0), output_sizes=(5, 4)),
        lambda x: F.pad(x, (0, 0, 1, 1)),
    ),
    "TILE": of_one(lambda x: d.tile(x, repeats=(2, 3)), lambda x: x.tile(2, 3)),
    "PADDING": of_one(lambda x: d.padding(x, padding_mode="constant", start_padding=(1, 0), end_padding=(2, 1),
                                          padding_value=0.0), lambda x: F.pad(x, (0, 1, 1, 2))),
    "PADDING1": of_one(
        lambda x: ops.pad(x.reshape(1, 3, 4), ((0, 0), (1, 2), (1, 1)), "reflect"),
        lambda x: F.pad(x[None], (1, 1, 1, 2), "reflect"),
    ),
    "GATHER": of_one(lambda x: ops.take(x, CHOSEN.astype(np.int32), axis=1), lambda x: x[:, torch.tensor(CHOSEN)]),
    "GATHER_ELEMENTS": of_one(
        lambda x: ops.take_along_axis(x, CHOSEN.astype(np.int32), axis=1), lambda x: x.gather(1, torch.tensor(CHOSEN))
    ),
    "GATHER_ND": of_one(
        lambda x: d.gather_nd(x, PAIRS, input_dimension_count=2, indices_dimension_count=2).reshape(3),
        lambda x: x[[0, 2, 1], [1, 3, 1]],
    ),
    "GATHER_ND1": of_one(
        lambda x: d.gather_nd1(
            x, PAIRS, input_dimension_count=2, indices_dimension_count=2, batch_dimension_count=0
        ).reshape(3),
        lambda x: x[[0, 2, 1], [1, 3, 1]],
    ),
    "SCATTER_ELEMENTS": of_two(
        lambda x, u: d.scatter_elements(x, np.array([[1], [3], [2]], np.uint32), u, axis=1),
        lambda x, u: x.scatter(1, torch.tensor([[1], [3], [2]]), u),
        X, draw(3, 1, seed=3),
    ),
    "SCATTER_ND": of_two(
        lambda x, u: d.scatter_nd(x, PAIRS, u.reshape(1, 3), input_dimension_count=2, indices_dimension_count=2),
        lambda x, u: x.index_put((torch.tensor([0, 2, 1]), torch.tensor([1, 3, 1])), u),
        X, draw(3, seed=3),
    ),
    "REVERSE_SUBSEQUENCES": of_one(
        lambda x: d.reverse_subsequences(x, np.array([[2], [4], [1]], np.uint32), axis=1) * X.astype(np.float32),
        lambda x: torch.stack([x[0, [1, 0, 2, 3]], x[1].flip(0), x[2]]) * torch.tensor(X),
    ),
    "CONVOLUTION": of_two(
        lambda x, w: ops.conv2d(x, w, stride=(1, 2), padding=1, dilation=(1, 2)),
        lambda x, w: F.conv2d(x, w, stride=(1, 2), padding=1, dilation=(1, 2)),
        draw(2, 2, 5, 6), draw(3, 2, 3, 3, seed=1),
    ),
    "CONVOLUTION, groups": of_two(
        lambda x, w: ops.conv2d(x, w, groups=2), lambda x, w: F.conv2d(x, w, groups=2),
        draw(2, 4, 4, 4), draw(6, 2, 3, 3, seed=1),
    ),
    "CONVOLUTION, transposed": of_two(
        lambda x, w: ops.conv_transpose2d(x, w, stride=2, padding=1),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        draw(1, 2, 3, 4), draw(2, 3, 3, 3, seed=1),
    ),
    "MAX_POOLING": of_one(
        lambda x: d.max_pooling(x, strides=(2, 2), window_size=(2, 2)), lambda x: F.max_pool2d(x, 2), PICTURE
    ),
    "MAX_POOLING1": of_one(
        lambda x: d.max_pooling1(x, strides=(2, 2), window_size=(2, 2)).output, lambda x: F.max_pool2d(x, 2), PICTURE
    ),
    "MAX_POOLING2": of_one(
        lambda x: ops.max_pool2d(x, 3, 1, 1), lambda x: F.max_pool2d(x, 3, 1, 1), PICTURE
    ),
    "AVERAGE_POOLING": of_one(
        lambda x: d.average_pooling(x, strides=(2, 2), window_size=(2, 2), include_padding=False),
        lambda x: F.avg_pool2d(x, 2), PICTURE,
    ),
    "AVERAGE_POOLING1": of_one(
        lambda x: ops.avg_pool2d(x, 3, 1, 1, include_padding=True), lambda x: F.avg_pool2d(x, 3, 1, 1), PICTURE
    ),
    "AVERAGE_POOLING_GRAD": of_one(
        lambda x: d.average_pooling_grad(
            x, strides=(2, 2), window_size=(2, 2), include_padding=False, output_sizes=(1, 2, 8, 12)
        ),
        lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4, PICTURE,
    ),
    "LP_POOLING": of_one(
        lambda x: d.lp_pooling(x, window_size=(2, 2), strides=(2, 2), p=2), lambda x: F.lp_pool2d(x, 2, 2), PICTURE
    ),
    "LP_POOLING1": of_one(
        lambda x: d.lp_pooling1(x, window_size=(2, 2), strides=(1, 1), p=2), lambda x: F.lp_pool2d(x, 2, 2, 1), PICTURE
    ),
    "UPSAMPLE_2D": of_one(
        lambda x: d.upsample_2d(x, scale_size=(2, 3), interpolation_mode="nearest_neighbor"),
        lambda x: F.interpolate(x, scale_factor=(3, 2)), PICTURE,
    ),
    "RESAMPLE": of_one(
        lambda x: d.resample(x, interpolation_mode="linear", scales=(1, 1, 2, 2)),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), PICTURE,
    ),
    "RESAMPLE1": of_one(
        lambda x: d.resample1(
            x, interpolation_mode="linear", scales=(1, 1, 2, 2), input_pixel_offsets=(0.5,) * 4,
            output_pixel_offsets=(-0.5,) * 4,
        ),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), PICTURE,
    ),
    "RESAMPLE2": of_one(
        lambda x: d.resample2(
            x, interpolation_mode="linear", rounding_direction="increasing", scales=(1, 1, 2, 2),
            input_pixel_offsets=(0.5,) * 4, output_pixel_offsets=(-0.5,) * 4,
        ),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), PICTURE,
    ),
    "RESAMPLE3": of_one(
        lambda x: ops.resize(x, (7, 9), mode="linear"),
        lambda x: F.interpolate(x, (7, 9), mode="bilinear"), PICTURE,
    ),
    "SPACE_TO_DEPTH": of_one(
        lambda x: d.depth_to_space(d.space_to_depth(x, block_size=2), block_size=2) * x, lambda x: x * x, PICTURE
    ),
    "SPACE_TO_DEPTH1": of_one(
        lambda x: d.space_to_depth1(x, block_size=2, order="column_row_depth"), lambda x: F.pixel_unshuffle(x, 2),
        PICTURE,
    ),
    "DEPTH_TO_SPACE1": of_one(
        lambda x: d.depth_to_space1(x, block_size=2, order="column_row_depth"), lambda x: F.pixel_shuffle(x, 2),
        draw(1, 8, 2, 3),
    ),
    "UNFOLD": of_one(
        lambda x: d.unfold(x, window_sizes=(2, 3), strides=(1, 1)), lambda x: F.unfold(x, (2, 3)), PICTURE
    ),
    "FOLD": of_one(
        lambda x: d.fold(x, window_sizes=(2, 2), strides=(1, 1), output_sizes=(1, 2, 3, 4)),
        lambda x: F.fold(x, (3, 4), (2, 2)), draw(1, 8, 6),
    ),
    "LOCAL_RESPONSE_NORMALIZATION": of_one(
        lambda x: d.local_response_normalization(x, cross_channel=True, local_size=3, alpha=0.5, beta=0.75, bias=1),
        lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 1), draw(1, 4, 2, 3),
    ),
    "LP_NORMALIZATION": of_one(
        lambda x: d.lp_normalization(x, axis=1, p=2, epsilon=1e-12), lambda x: F.normalize(x, 2, 1)
    ),
    "MEAN_VARIANCE_NORMALIZATION": of_one(
        lambda x: d.mean_variance_normalization(x, cross_channel=False, normalize_variance=True, epsilon=1e-5),
        F.instance_norm, PICTURE,
    ),
    "MEAN_VARIANCE_NORMALIZATION1": of_one(
        lambda x: d.mean_variance_normalization1(x, axes=(2, 3), normalize_variance=True, epsilon=1e-5),
        F.instance_norm, PICTURE,
    ),
    "MEAN_VARIANCE_NORMALIZATION2": (
        lambda x, w, b: ops.layer_norm(x, weight=w, bias=b), lambda x, w, b: F.layer_norm(x, (4,), w, b),
        [X, draw(4, seed=1), draw(4, seed=2)],
    ),
    "BATCH_NORMALIZATION": (
        ops.batch_norm, pytorchs_batch_norm,
        [draw(3, 2, 2, 3), draw(2, seed=3), draw(2, low=0.5, high=2), draw(2, seed=1), draw(2, seed=2)],
    ),
    "BATCH_NORMALIZATION_TRAINING": (
        lambda x, w, b: d.batch_normalization_training(
            x, w.reshape(1, 2, 1, 1), b.reshape(1, 2, 1, 1), epsilon=1e-5
        ).output,
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [draw(3, 2, 2, 3), draw(2, seed=1), draw(2, seed=2)],
    ),
    "MULTIHEAD_ATTENTION": (
        lambda q, k, v: ops.attention(q, k, v, 2),
        lambda q, k, v: F.scaled_dot_product_attention(
            *(part.unflatten(2, (2, -1)).transpose(1, 2) for part in (q, k, v))
        ).transpose(1, 2).flatten(2),
        [draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 5, 6, seed=2)],
    ),
    "VALUE_SCALE_2D": of_one(
        lambda x: d.value_scale_2d(x.reshape(1, 1, 3, 4), scale=3, bias=(2,)), lambda x: 3 * x[None, None] + 2
    ),
    "ROI_ALIGN1": of_one(
        lambda x: d.roi_align1(
            x, np.array([[1, 0, 5, 4]], np.float32), np.zeros(1, np.uint32), reduction_function="average",
            interpolation_mode="linear", minimum_samples_per_output=1, maximum_samples_per_output=1,
            output_sizes=(1, 2, 2, 2), input_pixel_offset=0.5, output_pixel_offset=-0.5,
        ),
        lambda x: F.grid_sample(
            x, torch.tensor([[[[-1 / 3, -0.5], [1 / 3, -0.5]], [[-1 / 3, 0.5], [1 / 3, 0.5]]]], dtype=x.dtype),
            align_corners=False,
        ), PICTURE,
    ),
}  # fmt: skip
"""Functions of dmlgpu and of PyTorch by the operator whose gradient they have, and their arguments."""


@pytest.fixture(autouse=True)
def applied(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The operators whose rules were applied."""
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    names: set[str] = set()

    def watched(name: str, rule: Any) -> Any:
        def apply(*args: Any) -> Any:
            names.add(name)
            return rule(*args)

        return apply

    for name, rule in list(rules.RULES.items()):
        monkeypatch.setitem(rules.RULES, name, watched(name, rule))
    return names


def compared(ours: Callable[..., Any], theirs: Callable[..., Any], arrays: list[Array]) -> float:
    """The largest difference of a gradient, relative to its largest element, of a weighted sum of the results."""
    leaves = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]
    expected = theirs(*leaves)
    weights = np.random.default_rng(5).uniform(0.5, 1.5, tuple(expected.shape))
    (expected * torch.tensor(weights)).sum().backward()

    def total(*tensors: Any) -> Any:
        result = ops.sum(ours(*tensors).reshape(weights.shape) * weights.astype(np.float32))
        assert result.shape == ()
        return result

    single = [array.astype(np.float32) for array in arrays]
    value, gradients = value_and_grad(total, tuple(range(len(arrays))))(*single)
    np.testing.assert_allclose(value, (expected.detach().numpy() * weights).sum(), rtol=2e-3, atol=1e-3)
    differences = []
    for gradient, leaf in zip(gradients, leaves, strict=True):
        exact = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        differences.append(np.abs(gradient - exact).max() / max(np.abs(exact).max(), 1e-3))
    return float(max(differences))


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_pytorch(name: str, applied: set[str], record_property: Any) -> None:
    difference = compared(*CASES[name])
    record_property("difference", f"{difference:.1e}")
    assert name.partition(",")[0] in applied
    assert difference < (1e-3 if name == "CAST" else TOLERANCE)  # float16 has 5e-4


def test_every_operator_with_a_gradient_is_compared() -> None:
    elsewhere = {"DEPTH_TO_SPACE", "RNN", "GRU", "LSTM"}  # by the case of SPACE_TO_DEPTH, test_gradients_recurrent.py
    names = {name.partition(",")[0] for name in CASES} | elsewhere
    assert set(rules.RULES) == names


# ---- networks --------------------------------------------------------------------------------------------------------

WIDTH, HEADS, LENGTH = 8, 2, 5
BLOCK = {
    **dict.fromkeys(("query", "key", "value", "output"), (WIDTH, WIDTH)),
    **dict.fromkeys(("scale1", "shift1", "scale2", "shift2"), (WIDTH,)),
    "up": (WIDTH, 4 * WIDTH),
    "down": (4 * WIDTH, WIDTH),
}


def block_of_tensors(x: Any, p: dict[str, Any]) -> Any:
    hidden = ops.layer_norm(x, weight=p["scale1"], bias=p["shift1"])
    mask = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)[None, None]
    x = x + ops.attention(*(hidden @ p[name] for name in ("query", "key", "value")), HEADS, mask) @ p["output"]
    hidden = ops.layer_norm(x, weight=p["scale2"], bias=p["shift2"])
    return x + ops.gelu(hidden @ p["up"]) @ p["down"]


def block_of_torch(x: Any, p: dict[str, Any]) -> Any:
    hidden = F.layer_norm(x, (WIDTH,), p["scale1"], p["shift1"])
    heads = [(hidden @ p[name]).unflatten(2, (HEADS, -1)).transpose(1, 2) for name in ("query", "key", "value")]
    x = x + F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2) @ p["output"]
    hidden = F.layer_norm(x, (WIDTH,), p["scale2"], p["shift2"])
    return x + F.gelu(hidden @ p["up"]) @ p["down"]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_transformer_block_has_pytorchs_gradients(is_compiled: bool, record_property: Any) -> None:
    parameters = {name: 0.5 * draw(*shape, seed=index) for index, (name, shape) in enumerate(BLOCK.items())}
    x, target = draw(2, LENGTH, WIDTH, seed=20), draw(2, LENGTH, WIDTH, seed=21)
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in parameters.items()}
    expected = ((block_of_torch(torch.tensor(x), leaves) - torch.tensor(target)) ** 2).mean()
    expected.backward()

    def loss(p: dict[str, Any], x: Any, target: Any) -> Any:
        return ops.mean((block_of_tensors(x, p) - target) ** 2)

    step = value_and_grad(loss)
    single = {name: array.astype(np.float32) for name, array in parameters.items()}
    run: Any = dmlgpu.compile(step) if is_compiled else step
    value, gradients = run(single, x.astype(np.float32), target.astype(np.float32))
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    for name, leaf in leaves.items():
        theirs = leaf.grad.numpy()
        difference = np.abs(gradients[name] - theirs).max() / np.abs(theirs).max()
        record_property(name, f"{difference:.1e}")
        assert difference < TOLERANCE, name


def test_the_network_of_demo_train_has_pytorchs_gradients(record_property: Any) -> None:
    numbers = np.random.default_rng(3)
    images = numbers.uniform(0, 1, (6, 1, 8, 8))
    labels = numbers.integers(0, 10, 6)
    parameters = training.initial_parameters(0, (2, 3))
    leaves = {
        name: torch.tensor(
            array if name.startswith("filter") else array.squeeze(), dtype=torch.float64, requires_grad=True
        )
        for name, array in parameters.items()
    }
    values = torch.tensor(images)
    for number in (1, 2):
        values = F.conv2d(values, leaves[f"filter{number}"], padding=1)
        scale, shift = leaves[f"scale{number}"], leaves[f"shift{number}"]
        values = F.batch_norm(values, None, None, scale, shift, training=True, eps=training.EPSILON)
        values = F.max_pool2d(F.relu(values), 2)
    F.cross_entropy(F.linear(values.flatten(1), leaves["weights"], leaves["bias"]), torch.tensor(labels)).backward()

    def loss(p: dict[str, Any], images: Any, right: Any) -> Any:
        values = images
        for number in (1, 2):
            values = ops.conv2d(values, p[f"filter{number}"], padding=1)
            scale, shift = p[f"scale{number}"], p[f"shift{number}"]
            values = d.batch_normalization_training(values, scale, shift, epsilon=training.EPSILON).output
            values = ops.max_pool2d(ops.relu(values), 2)
        scores = ops.linear(values.reshape(len(images), -1), p["weights"][0, 0], p["bias"][0, 0, 0])
        return -ops.mean(ops.sum(ops.log_softmax(scores) * right, -1))

    gradients = dmlgpu.grad(loss)(parameters, images.astype(np.float32), np.eye(10, dtype=np.float32)[labels])
    for name, leaf in leaves.items():
        theirs = leaf.grad.numpy()
        difference = np.abs(gradients[name].reshape(theirs.shape) - theirs).max() / np.abs(theirs).max()
        record_property(name, f"{difference:.1e}")
        assert difference < TOLERANCE, name
