"""The gradient of each operator, against finite differences of its formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlgpu
from dmlgpu import Tensor, ops
from tests.unit.tensors.gradients.gradient_checks import Array, check, draw, erf, sigmoid

pytestmark = pytest.mark.usefixtures("numpy_device")


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


d = ops.directml

ELEMENTS: dict[str, tuple[Callable[..., Any], Callable[..., Array], float, float]] = {
    "abs": (d.element_wise_abs, np.abs, -2, 2),
    "acos": (d.element_wise_acos, np.arccos, -0.8, 0.8),
    "acosh": (d.element_wise_acosh, np.arccosh, 1.3, 3),
    "asin": (d.element_wise_asin, np.arcsin, -0.8, 0.8),
    "asinh": (d.element_wise_asinh, np.arcsinh, -2, 2),
    "atan": (d.element_wise_atan, np.arctan, -2, 2),
    "atanh": (d.element_wise_atanh, np.arctanh, -0.8, 0.8),
    "cos": (d.element_wise_cos, np.cos, -2, 2),
    "cosh": (d.element_wise_cosh, np.cosh, -2, 2),
    "erf": (d.element_wise_erf, erf, -2, 2),
    "exp": (d.element_wise_exp, np.exp, -2, 2),
    "log": (d.element_wise_log, np.log, 0.3, 3),
    "recip": (d.element_wise_recip, lambda x: 1 / x, 0.4, 3),
    "sin": (d.element_wise_sin, np.sin, -2, 2),
    "sinh": (d.element_wise_sinh, np.sinh, -2, 2),
    "sqrt": (d.element_wise_sqrt, np.sqrt, 0.3, 3),
    "tan": (d.element_wise_tan, np.tan, -1, 1),
    "tanh": (d.element_wise_tanh, np.tanh, -2, 2),
    "negate": (lambda x: -x, lambda x: -x, -2, 2),
    "round": (lambda x: ops.round(x) + x, lambda x: np.round(x) + x, -1.9, 1.9),
    "floor": (lambda x: ops.floor(x) * x, lambda x: np.floor(x) * x, -1.9, 1.9),
    "sign": (lambda x: d.element_wise_sign(x) * x, np.abs, -2, 2),
    "threshold": (lambda x: d.element_wise_threshold(x, min=0.3), lambda x: np.maximum(x, 0.3), -2, 2),
    "clip": (lambda x: ops.clip(x, -0.7, 0.9), lambda x: np.clip(x, -0.7, 0.9), -2, 2),
    "constant pow": (lambda x: x**3, lambda x: x**3, -2, 2),
    "square": (lambda x: x**2, lambda x: x**2, -2, 2),
    "first power": (lambda x: x**1 + x**0, lambda x: x + 1, -2, 2),
    "power of half": (lambda x: x**0.5, lambda x: x**0.5, 0.3, 3),
    "scale and bias": (
        lambda x: d.element_wise_exp(x, scale_bias=(0.5, -0.25)),
        lambda x: np.exp(0.5 * x - 0.25),
        -2,
        2,
    ),
    "scale and bias of clip": (
        lambda x: d.element_wise_clip(x, scale_bias=(0.5, -0.25), min=-0.7, max=0.5),
        lambda x: np.clip(0.5 * x - 0.25, -0.7, 0.5),
        -2,
        2,
    ),
    "identity": (lambda x: d.element_wise_identity(x, scale_bias=(3, 1)), lambda x: 3 * x + 1, -2, 2),
    "copy": (lambda x: x.copy(), lambda x: x, -2, 2),
    "celu": (
        lambda x: d.activation_celu(x, alpha=0.8),
        lambda x: np.maximum(x, 0) + np.minimum(0, 0.8 * np.expm1(x / 0.8)),
        -2,
        2,
    ),
    "elu": (lambda x: ops.elu(x, 0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)), -2, 2),
    "gelu": (ops.gelu, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, -2, 2),
    "hard sigmoid": (
        lambda x: d.activation_hard_sigmoid(x, alpha=0.4, beta=0.5),
        lambda x: np.clip(0.4 * x + 0.5, 0, 1),
        -2.1,
        2,
    ),
    "hard swish": (
        lambda x: d.activation_hard_swish(x, alpha=0.4, beta=0.5),
        lambda x: x * np.clip(0.4 * x + 0.5, 0, 1),
        -2.1,
        2,
    ),
    "activation identity": (d.activation_identity, lambda x: x, -2, 2),
    "leaky relu": (lambda x: ops.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x), -2, 2),
    "linear": (lambda x: d.activation_linear(x, alpha=3, beta=2), lambda x: 3 * x + 2, -2, 2),
    "parametric softplus": (
        lambda x: d.activation_parametric_softplus(x, alpha=1.5, beta=0.7),
        lambda x: 1.5 * np.log1p(np.exp(0.7 * x)),
        -2,
        2,
    ),
    "relu": (ops.relu, lambda x: np.maximum(x, 0), -2, 2),
    "scaled elu": (
        lambda x: d.activation_scaled_elu(x, alpha=1.6, gamma=1.05),
        lambda x: 1.05 * np.where(x > 0, x, 1.6 * np.expm1(x)),
        -2,
        2,
    ),
    "scaled tanh": (
        lambda x: d.activation_scaled_tanh(x, alpha=1.6, beta=0.7),
        lambda x: 1.6 * np.tanh(0.7 * x),
        -2,
        2,
    ),
    "shrink": (
        lambda x: d.activation_shrink(x, bias=0.2, threshold=0.5),
        lambda x: np.where(x > 0.5, x - 0.2, np.where(x < -0.5, x + 0.2, 0)),
        -2,
        2,
    ),
    "sigmoid": (ops.sigmoid, sigmoid, -2, 2),
    "silu": (ops.silu, lambda x: x * sigmoid(x), -2, 2),
    "softplus": (lambda x: d.activation_softplus(x, steepness=2), lambda x: np.log1p(np.exp(2 * x)) / 2, -2, 2),
    "softsign": (d.activation_softsign, lambda x: x / (1 + np.abs(x)), -2, 2),
    "swish": (
        lambda x: d.activation_swish(x, sigmoid_input_scale=0.6),
        lambda x: x * sigmoid(0.6 * x),
        -2,
        2,
    ),
    "activation tanh": (d.activation_tanh, np.tanh, -2, 2),
    "thresholded relu": (
        lambda x: d.activation_thresholded_relu(x, alpha=0.4),
        lambda x: np.where(x > 0.4, x, 0),
        -2,
        2,
    ),
    "cast": (lambda x: x.astype("float16").astype("float32"), lambda x: x, -2, 2),
    "softmax": (ops.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), -2, 2),
    "softmax of two axes": (
        lambda x: ops.softmax(x, (0, 1)),
        lambda x: np.exp(x) / np.exp(x).sum((0, 1), keepdims=True),
        -2,
        2,
    ),
    "log softmax": (
        lambda x: ops.log_softmax(x, 0),
        lambda x: x - np.log(np.exp(x).sum(0, keepdims=True)),
        -2,
        2,
    ),
    "old softmax": (d.activation_softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), -2, 2),
    "old log softmax": (d.activation_log_softmax, lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)), -2, 2),
    "sum": (lambda x: ops.sum(x, 0), lambda x: x.sum(0), -2, 2),
    "mean": (lambda x: ops.mean(x, 1, keepdims=True), lambda x: x.mean(1, keepdims=True), -2, 2),
    "max": (lambda x: ops.max(x, -1), lambda x: x.max(-1), -2, 2),
    "min": (ops.min, lambda x: x.min(), -2, 2),
    "norm": (lambda x: ops.norm(x, 1), lambda x: np.sqrt((x * x).sum(1)), -2, 2),
    "prod": (lambda x: ops.prod(x, 1), lambda x: x.prod(1), -2, 2),
    "prod of all": (ops.prod, lambda x: x.prod(), 0.5, 2),
    "logsumexp": (lambda x: ops.logsumexp(x, 0), lambda x: np.log(np.exp(x).sum(0)), -2, 2),
    "reduce l1": (lambda x: d.reduce(x, function="l1", axes=(1,)), lambda x: np.abs(x).sum(1, keepdims=True), -2, 2),
    "reduce log sum": (
        lambda x: d.reduce(x, function="log_sum", axes=(0,)),
        lambda x: np.log(x.sum(0, keepdims=True)),
        0.3,
        2,
    ),
    "reduce sum square": (
        lambda x: d.reduce(x, function="sum_square", axes=(0, 1)),
        lambda x: (x * x).sum((0, 1), keepdims=True),
        -2,
        2,
    ),
    "var": (lambda x: ops.var(x, 1), lambda x: x.var(1), -2, 2),
    "std": (lambda x: ops.std(x, 0), lambda x: x.std(0), -2, 2),
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), -2, 2),
    "cumsum backwards, exclusive": (
        lambda x: d.cumulative_summation(x, axis=0, axis_direction="decreasing", has_exclusive_sum=True),
        lambda x: x[::-1].cumsum(0)[::-1] - x,
        -2,
        2,
    ),
    "sort": (lambda x: ops.sort(x, 1), lambda x: np.sort(x, 1), -2, 2),
    "topk": (lambda x: ops.topk(x, 2, 0).values, lambda x: -np.sort(-x, 0)[:2], -2, 2),
    "layer norm": (
        ops.layer_norm,
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
        -2,
        2,
    ),
    "rms norm": (
        lambda x: ops.rms_norm(x, axis=0),
        lambda x: x / np.sqrt((x * x).mean(0, keepdims=True) + 1e-6),
        -2,
        2,
    ),
    "mean alone": (
        lambda x: d.mean_variance_normalization2(x, axes=(1,), use_variance=False, epsilon=0.1),
        lambda x: x - x.mean(1, keepdims=True),
        -2,
        2,
    ),
    "lp normalization": (
        lambda x: d.lp_normalization(x.reshape(1, 1, 3, 4), axis=3, p=2, epsilon=1e-5).reshape(3, 4),
        lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
        -2,
        2,
    ),
    "tile": (lambda x: ops.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3)), -2, 2),
    "pad": (lambda x: ops.pad(x, ((1, 2), (0, 1))), lambda x: np.pad(x, ((1, 2), (0, 1))), -2, 2),
    "pad edge": (
        lambda x: ops.pad(x, ((1, 2), (0, 1)), "edge"),
        lambda x: np.pad(x, ((1, 2), (0, 1)), "edge"),
        -2,
        2,
    ),
    "pad reflection": (
        lambda x: d.padding1(x, padding_mode="reflection", start_padding=(2, 1), end_padding=(1, 3)),
        lambda x: np.pad(x, ((2, 1), (1, 3)), "reflect"),
        -2,
        2,
    ),
    "pad symmetric": (
        lambda x: d.padding1(x, padding_mode="symmetric", start_padding=(2, 1), end_padding=(1, 3)),
        lambda x: np.pad(x, ((2, 1), (1, 3)), "symmetric"),
        -2,
        2,
    ),
    "pad wrap": (
        lambda x: d.padding1(x, padding_mode="wrap", start_padding=(2, 1), end_padding=(1, 3)),
        lambda x: np.pad(x, ((2, 1), (1, 3)), "wrap"),
        -2,
        2,
    ),
    "flip": (lambda x: ops.flip(x, 1), lambda x: x[:, ::-1], -2, 2),
    "roll": (lambda x: ops.roll(x, 1, 1), lambda x: np.roll(x, 1, 1), -2, 2),
    "split": (lambda x: ops.split(x, 2, 1)[1] * 2, lambda x: x[:, 2:] * 2, -2, 2),
    "slice and transpose": (lambda x: x[1:, ::2].T * 3, lambda x: x[1:, ::2].T * 3, -2, 2),
    "slice of slice": (lambda x: x[:, 1:][:, ::2] + 0, lambda x: x[:, 1::2], -2, 2),
    "slice backwards": (lambda x: x[::-1, 3:0:-2] + 0, lambda x: x[::-1, 3:0:-2], -2, 2),
    "integers and new axes": (lambda x: x[1, None, ..., None] * 2, lambda x: x[1, None, ..., None] * 2, -2, 2),
    "broadcast": (
        lambda x: x[:, None].broadcast_to((3, 5, 4)) * 2,
        lambda x: np.broadcast_to(x[:, None], (3, 5, 4)) * 2,
        -2,
        2,
    ),
    "reshape": (lambda x: x.T.reshape(2, 6) * x.reshape(2, 6), lambda x: x.T.reshape(2, 6) * x.reshape(2, 6), -2, 2),
    "rows by indices": (lambda x: x[np.array([2, 0, 2, -1])], lambda x: x[[2, 0, 2, -1]], -2, 2),
    "elements by indices": (lambda x: x[np.array([0, 1]), np.array([3, 3])], lambda x: x[[0, 1], [3, 3]], -2, 2),
    "mask": (lambda x: x[np.eye(3, 4, dtype=bool)], lambda x: x[np.eye(3, 4, dtype=bool)], -2, 2),
    "take": (
        lambda x: ops.take(x, np.array([[1, 1], [-1, 0]], np.int32), axis=1),
        lambda x: x[:, [[1, 1], [-1, 0]]],
        -2,
        2,
    ),
    "take along axis": (
        lambda x: ops.take_along_axis(x, np.array([[1, 1], [3, 0], [2, 2]], np.int32), axis=1),
        lambda x: np.take_along_axis(x, np.array([[1, 1], [3, 0], [2, 2]]), 1),
        -2,
        2,
    ),
    "gather nd": (
        lambda x: d.gather_nd1(
            x, np.array([[0, 1], [2, 3], [0, 1]], np.uint32), input_dimension_count=2, indices_dimension_count=2,
            batch_dimension_count=0,
        ).reshape(3),
        lambda x: x[[0, 2, 0], [1, 3, 1]],
        -2,
        2,
    ),
    "where": (lambda x: ops.where(x > 0.2, x * x, 3.0), lambda x: np.where(x > 0.2, x * x, 3.0), -2, 2),
    "compared": (lambda x: (x > 0.2).astype("float32") * x, lambda x: (x > 0.2) * x, -2, 2),
}  # fmt: skip
"""Functions of one matrix {3, 4}, their formulas, and where the elements lie."""


@pytest.mark.parametrize("name", ELEMENTS)
def test_gradient_of_a_function_of_one_tensor(name: str) -> None:
    function, formula, low, high = ELEMENTS[name]
    check(function, formula, draw(3, 4, low=low, high=high), tolerance=2e-3 if name == "cast" else 3e-4)


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "add1": (lambda a, b: d.element_wise_add1(a, b, fused_activation="sigmoid"), lambda a, b: sigmoid(a + b)),
    "subtract": (lambda a, b: a - b, lambda a, b: a - b),
    "multiply": (lambda a, b: a * b, lambda a, b: a * b),
    "divide": (lambda a, b: a / (b + 4), lambda a, b: a / (b + 4)),
    "power": (lambda a, b: (a + 4) ** b, lambda a, b: (a + 4) ** b),
    "maximum": (ops.maximum, np.maximum),
    "minimum": (ops.minimum, np.minimum),
    "mean": (d.element_wise_mean, lambda a, b: (a + b) / 2),
    "difference square": (d.element_wise_difference_square, lambda a, b: (a - b) ** 2),
    "atan yx": (lambda a, b: d.element_wise_atan_yx(a, b + 4), lambda a, b: np.arctan2(a, b + 4)),
    "modulus floor": (lambda a, b: a % (b + 4), lambda a, b: a % (b + 4)),
    "modulus truncate": (
        lambda a, b: d.element_wise_modulus_truncate(a, b + 4),
        lambda a, b: np.fmod(a, b + 4),
    ),
    "where": (lambda a, b: ops.where(a > b, a * 2, b), lambda a, b: np.where(a > b, a * 2, b)),
    "parameterized relu": (d.activation_parameterized_relu, lambda a, b: np.where(a >= 0, a, a * b)),
}
"""Functions of two tensors, and their formulas."""

SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((2, 1, 3), (4, 1)),
    ((), (2, 3)),
    ((1,), (3,)),
    ((2,), ()),
]


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_a_function_of_two_tensors_are_summed_up_where_they_broadcast(name: str) -> None:
    function, formula = PAIRS[name]
    for first, second in SHAPES:
        check(function, formula, draw(*first), np.asarray(draw(*second, seed=1) + 0.011))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_gradients_have_the_sizes_of_any_operands_that_broadcast(sizes: list[int], data: st.DataObject) -> None:
    keeps_size = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    other = [size if keeps else 1 for size, keeps in zip(sizes, keeps_size, strict=True)]
    begin = data.draw(st.integers(0, len(sizes) - 1))
    check(lambda a, b: a * b + b, lambda a, b: a * b + b, draw(*sizes), draw(*other[begin:], seed=1))


def test_equal_operands_share_the_gradient_of_their_extreme() -> None:
    total = dmlgpu.grad(lambda a, b: ops.sum(ops.maximum(a, b)), (0, 1))
    first, second = total(Tensor([1.0, 2.0, 3.0]), Tensor([1.0, 1.0, 4.0]))
    assert first.tolist() == [0.5, 1, 0] and second.tolist() == [0.5, 0, 1]
    assert dmlgpu.grad(ops.max)(Tensor([1.0, 3.0, 3.0])).tolist() == [0, 0.5, 0.5]
    assert dmlgpu.grad(ops.norm)(Tensor([0.0, 0.0])).tolist() == [0, 0]
    assert dmlgpu.grad(ops.prod)(Tensor([0.0, 3.0, 2.0])).tolist() == [6, 0, 0]


# ---- several tensors -------------------------------------------------------------------------------------------------


def test_gradients_of_joined_stacked_and_scattered_tensors() -> None:
    check(lambda a, b: ops.concatenate([a, b, a], 1), lambda a, b: np.concatenate([a, b, a], 1), draw(2, 3), draw(2, 1))
    check(lambda a, b: ops.stack([a, b]) * 2, lambda a, b: np.stack([a, b]) * 2, draw(2, 3), draw(2, 3, seed=1))

    def scattered(x: Array, updates: Array) -> Array:
        result = x.copy()
        np.put_along_axis(result, np.array([[1, 3], [0, 2]]), updates, 1)
        return result * result

    indices = np.array([[1, 3], [0, 2]], np.uint32)

    def function(x: Any, updates: Any) -> Any:
        result = d.scatter_elements(x, indices, updates, axis=1)
        return result * result

    check(function, scattered, draw(2, 4), draw(2, 2, seed=1))

    def scattered_rows(x: Array, updates: Array) -> Array:
        result = x.copy()
        result[[2, 0]] = updates
        return result * result

    def scatter_nd(x: Any, updates: Any) -> Any:
        rows = np.array([[2], [0]], np.uint32)
        result = d.scatter_nd(x, rows, updates, input_dimension_count=2, indices_dimension_count=2)
        return result * result

    check(scatter_nd, scattered_rows, draw(3, 4), draw(2, 4, seed=1))


def test_gradients_go_through_assignment() -> None:
    def function(x: Any, y: Any) -> Any:
        result = x * 2
        result[1:, 0] = y
        result[0, 1] = 5
        x[0, 0] = 0  # the function's own
        return result * result + x

    def formula(x: Array, y: Array) -> Array:
        result = x * 2
        result[1:, 0] = y
        result[0, 1] = 5
        changed = x.copy()
        changed[0, 0] = 0
        return result * result + changed

    for compiled in (False, True):
        check(function, formula, draw(3, 2), draw(2, seed=1), compiled=compiled)


def repeated(x: Any) -> Any:
    return np.stack([x, x]) if isinstance(x, np.ndarray) else x[None].broadcast_to((2, *x.shape))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_gradients_of_views_of_views(data: st.DataObject) -> None:
    steps: list[Callable[[Any], Any]] = []
    shape: tuple[int, ...] = (3, 4, 2)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["slice", "transpose", "flat", "repeat", "part"]))
        if kind == "slice":
            axis = data.draw(st.integers(0, len(shape) - 1))
            begin, step = data.draw(st.integers(0, shape[axis] - 1)), data.draw(st.sampled_from([1, 2, -1]))
            place = (*[slice(None)] * axis, slice(begin, None, step))
            steps.append(lambda x, place=place: x[place])
        elif kind == "transpose":
            order = tuple(data.draw(st.permutations(range(len(shape)))))
            steps.append(lambda x, order=order: x.transpose(order))
        elif kind == "flat":
            steps.append(lambda x: x.reshape(-1))
        elif kind == "repeat" and len(shape) < 4:
            steps.append(repeated)
        elif len(shape) > 1:
            steps.append(lambda x: x[-1])
        probe = np.zeros((3, 4, 2))
        for change in steps:
            probe = change(probe)
        shape = probe.shape

    def changed(x: Any) -> Any:
        result = x
        for change in steps:
            result = change(result)
        return result * 2

    check(changed, changed, draw(3, 4, 2))


def _regions(x: Any) -> Any:
    regions = Tensor([[0.0, 0, 3, 3], [1, 0.5, 2.5, 3]])
    return d.roi_align1(
        x,
        regions,
        Tensor([0, 0], "uint32"),
        reduction_function="average",
        interpolation_mode="linear",
        minimum_samples_per_output=2,
        maximum_samples_per_output=2,
        output_sizes=(2, 1, 2, 2),
    )


LINEAR: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "regions": (_regions, (1, 1, 4, 4)),
    "linear": (lambda x: ops.resize(x, (5, 3)), (1, 2, 4, 4)),
    "nearest": (lambda x: ops.resize(x, (5, 3), mode="nearest"), (1, 2, 4, 4)),
    "resample": (lambda x: d.resample(x, interpolation_mode="nearest_neighbor", scales=(1, 1, 1.5, 0.8)), (1, 2, 4, 4)),
    "resample1": (
        lambda x: d.resample1(x, interpolation_mode="linear", scales=(1, 1, 1.5, 0.8)),
        (1, 1, 4, 4),
    ),
    "reversed": (lambda x: d.reverse_subsequences(x, np.array([[2, 3, 1, 1]], np.uint32), axis=0), (3, 4)),
    "slice": (lambda x: d.slice(x, offsets=(0, 1), sizes=(2, 2), strides=(2, 2)), (3, 4)),
    "unfold": (lambda x: d.unfold(x, window_sizes=(2, 2)), (1, 2, 3, 4)),
    "gather nd": (
        lambda x: d.gather_nd1(
            x,
            np.array([[[0], [2]], [[1], [-1]]], np.int32),
            input_dimension_count=3,
            indices_dimension_count=3,
            batch_dimension_count=1,
        ),
        (2, 3, 4),
    ),
}
"""Linear functions, and the sizes of their operands."""


@pytest.mark.parametrize("name", LINEAR)
def test_gradient_of_a_linear_function_is_its_value_at_each_unit_vector(name: str) -> None:
    function, sizes = LINEAR[name]
    units = np.eye(math.prod(sizes), dtype=np.float32)
    values = np.array([function(Tensor(unit.reshape(sizes))).numpy().reshape(-1) for unit in units])
    weights = draw(values.shape[1]).astype(np.float32)
    gradient = dmlgpu.grad(lambda x: ops.sum(function(x).reshape(-1) * weights))(draw(*sizes).astype(np.float32))
    np.testing.assert_allclose(gradient.reshape(-1), values @ weights, rtol=1e-5, atol=1e-5)
