"""Counts, sums and statistics of float16 are accumulated in float32 and rounded once: against NumPy's float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import Tensor, ops
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import model_of_node

pytestmark = pytest.mark.usefixtures("numpy_device")

Array = NDArray[Any]
AXES: tuple[Any, ...] = (None, 0, -1, (0, 2))
SHAPE = (3, 5, 4800)
"""More elements than float16 holds numbers, and rows of more than it counts."""


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


def data(dtype: str) -> dict[str, Array]:
    """Elements by kind: of the usual size, as large as the dtype holds, far from 0, and tiny."""
    normal = np.random.default_rng(0).standard_normal(SHAPE)
    is_half = dtype == "float16"
    kinds = {
        "usual": normal,
        "large": 15000 * normal if is_half else 1e15 * normal,
        "far": 1500 + 20 * normal if is_half else 1e6 + normal,
        "tiny": 1e-6 * normal if is_half else 1e-15 * normal,
    }
    return {
        name: values.clip(-65504, 65504).astype(dtype) if is_half else values.astype(dtype)
        for name, values in kinds.items()
    }


def assert_rounded_once(actual: Any, exact: Any, dtype: str, what: str, ulps: float = 2) -> None:
    """The result is the exact one, rounded to the dtype, but for a few units in the last place."""
    actual, exact = np.asarray(actual), np.asarray(exact, np.float64)
    assert actual.dtype == dtype and actual.shape == exact.shape, f"{what}: {actual.dtype} {actual.shape}"
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(actual[~finite], rounded[~finite], err_msg=what)
    error = np.abs(actual[finite].astype(np.float64) - exact[finite])
    worst = float((error / np.spacing(np.abs(rounded[finite])).astype(np.float64)).max(initial=0))
    assert worst <= ulps, f"{what}: off by {worst:.3g} units in the last place"


def log_sum_exp(x: Array, axis: Any) -> Array:
    largest = x.max(axis, keepdims=True)
    total: Array = np.log(np.exp(x - largest).sum(axis, keepdims=True)) + largest
    return total.squeeze(axis) if axis is not None else total.reshape(())


STATISTICS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (ops.sum, np.sum),
    "mean": (ops.mean, np.mean),
    "var": (ops.var, np.var),
    "std": (ops.std, np.std),
    "var, correction 1": (
        lambda x, axis: ops.var(x, axis, correction=1),
        lambda x, axis: np.var(x, axis, ddof=1),
    ),
    "std, correction 2.5": (
        lambda x, axis: ops.std(x, axis, correction=2.5),
        lambda x, axis: np.std(x, axis, ddof=2.5),
    ),
    "norm": (ops.norm, lambda x, axis: np.sqrt((x * x).sum(axis))),
    "logsumexp": (ops.logsumexp, log_sum_exp),
    "xp.mean": (lambda x, axis: xp.mean(x, axis=axis), np.mean),
    "xp.var": (lambda x, axis: xp.var(x, axis=axis), np.var),
    "xp.std": (lambda x, axis: xp.std(x, axis=axis, correction=1), lambda x, axis: np.std(x, axis, ddof=1)),
}

OF_SEVERAL: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "xp.vecdot": (
        lambda x, axis: xp.vecdot(x, xp.flip(x, axis=0)),
        lambda x, axis: (x * x[::-1]).sum(-1),
    ),
    "mse_loss": (
        lambda x, axis: ops.mse_loss(x, x.flip(0)),
        lambda x, axis: ((x - x[::-1]) ** 2).mean(),
    ),
    "einsum of three": (
        lambda x, axis: ops.einsum("abc,ac,b->", x, x[:, 0], x[0, :, 0]),
        lambda x, axis: np.einsum("abc,ac,b->", x, x[:, 0], x[0, :, 0]),
    ),
    "einsum with sums": (
        lambda x, axis: ops.einsum("abc,b->b", x, x[0, :, 0]),
        lambda x, axis: np.einsum("abc,b->b", x, x[0, :, 0]),
    ),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_statistics_are_rounded_once(dtype: str) -> None:
    functions = STATISTICS if dtype == "float32" else {**STATISTICS, **OF_SEVERAL}
    for kind, x in data(dtype).items():
        tensor, wide = Tensor(x), x.astype(np.float64)
        for name, (function, formula) in functions.items():
            for axis in AXES:
                what = f"{name} of {kind} {dtype} along {axis}"
                assert_rounded_once(function(tensor, axis=axis).numpy(), formula(wide, axis), dtype, what, 4)


def test_compiled_functions_and_arrays_round_once() -> None:
    for kind, x in data("float16").items():
        wide = x.astype(np.float64)

        @dmlgpu.compile
        def statistics(x: Tensor) -> tuple[Any, ...]:
            return (
                ops.mean(x, 0),
                ops.var(x),
                ops.std(x, -1),
                ops.norm(x),
                xp.std(x, axis=(0, 2)),
                ops.mse_loss(x, x * 0),
            )

        exact = wide.mean(0), wide.var(), wide.std(-1), np.linalg.norm(wide), wide.std((0, 2)), (wide**2).mean()
        for index, (actual, expected) in enumerate(zip(statistics(x), exact, strict=True)):
            assert_rounded_once(actual, expected, "float16", f"compiled result {index} of {kind}")
        assert_rounded_once(ops.std(x), wide.std(), "float16", f"std of an array, {kind}")
        assert_rounded_once(
            ops.var(x[:, ::-2, 1::3], 1), wide[:, ::-2, 1::3].var(1), "float16", f"a strided array, {kind}"
        )


def test_edges_of_statistics() -> None:
    for dtype in ("float16", "float32"):
        assert ops.var(np.asarray(3, dtype)) == 0 and ops.std(np.ones((2, 1), dtype), 1).tolist() == [0, 0]
        assert np.isnan(ops.var(np.ones(1, dtype), correction=1)) and np.isnan(ops.std(np.ones(0, dtype)))
        assert np.isnan(ops.var(np.array([1, np.inf], dtype))) and np.isnan(ops.var(np.array([1, np.nan], dtype)))
        assert ops.var(np.full(70001, 0.1, dtype)) == 0
        assert ops.var(np.ones((2, 3), dtype), axis=()).tolist() == [[0] * 3] * 2
        np.testing.assert_array_equal(
            ops.cumsum(np.ones(70000, dtype))[[0, 2047, 2048, -1]],
            np.cumsum(np.ones(70000)).astype(dtype)[[0, 2047, 2048, -1]],
        )


# ---- gradients -------------------------------------------------------------------------------------------------------


def of_distance(x: Array, axis: Any) -> Array:
    distance: Array = x - x.mean(axis, keepdims=True)
    return distance


def count(x: Array, axis: Any) -> int:
    return x.size // np.sum(x, axis).size


def soft_max(x: Array, axis: Any) -> Array:
    exponentials: Array = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "sum": (ops.sum, lambda x, axis: np.ones_like(x)),
    "mean": (ops.mean, lambda x, axis: np.full_like(x, 1 / count(x, axis))),
    "var": (ops.var, lambda x, axis: 2 * of_distance(x, axis) / count(x, axis)),
    "std": (
        ops.std,
        lambda x, axis: of_distance(x, axis) / count(x, axis) / np.maximum(x.std(axis, keepdims=True), 1e-30),
    ),
    "norm": (ops.norm, lambda x, axis: x / np.sqrt((x * x).sum(axis, keepdims=True))),
    "logsumexp": (ops.logsumexp, soft_max),
}


def scaled(function: Callable[..., Any], factor: float, x: Tensor, **options: Any) -> Any:
    """Return the sum of a function's results times a factor, by which no gradient is subnormal."""
    return ops.sum(function(x, **options).astype("float32")) * factor


@pytest.mark.slow
def test_gradients_are_rounded_once() -> None:
    for kind, x in data("float16").items():
        wide = x.astype(np.float64)
        for name, (function, formula) in GRADIENTS.items():
            for axis in AXES:
                eager = dmlgpu.grad(functools.partial(scaled, function, 1024, axis=axis))
                for grad in (eager, dmlgpu.compile(eager)) if axis is None else (eager,):
                    what = f"gradient of {name} of {kind} along {axis}"
                    assert_rounded_once(grad(x), 1024 * formula(wide, axis), "float16", what, 4)


def test_gradients_count_beyond_float16() -> None:
    number, half = 70000, np.float16
    ones = np.ones(number, half)
    signs = np.where(np.arange(number) % 2, 1, -1).astype(half)
    logits = (np.random.default_rng(1).standard_normal((number, 3)) * 4).astype(half)
    target = np.arange(number) % 3
    shares = soft_max(logits.astype(np.float64), 1)
    one_hot = np.where(np.arange(3) == target[:, None], 1, 0)
    cases: dict[str, tuple[Callable[..., Any], Array, Any]] = {
        "max of equal elements": (ops.max, ones, np.full(number, 1 / number)),
        "prod": (ops.prod, signs, np.prod(signs.astype(float)) * signs),
        "mse_loss": (lambda x: ops.mse_loss(x, x * 0), ones * 200, 2 * 200.0 / number * np.ones(number)),
        "cross_entropy": (lambda x: ops.cross_entropy(x, target), logits, (shares - one_hot) / number),
        "softmax": (lambda x: ops.softmax(x)[0], signs * 0, np.where(np.arange(number), 0, 1 / number) - number**-2),
        "broadcast": (lambda x: ops.mean(x.broadcast_to((number,)) * signs.astype(half)), ones[:1], [0]),
        "sum of a broadcast": (lambda x: ops.sum(x.broadcast_to((60000,))), ones[:1], [60000]),
    }
    for name, (function, x, exact) in cases.items():
        factor = 1 if "broadcast" in name else 8192
        eager = dmlgpu.grad(functools.partial(scaled, function, factor))
        for grad in (eager, dmlgpu.compile(eager)):
            assert_rounded_once(grad(x), factor * np.asarray(exact, np.float64), "float16", name, 4)


def test_losses_count_beyond_float16() -> None:
    number = 70000
    logits = (np.random.default_rng(1).standard_normal((number, 5)) * 100).astype(np.float16)
    target, rows = np.arange(number) % 5, np.arange(number)
    wide = logits.astype(np.float64)
    losses = log_sum_exp(wide, 1) - wide[rows, target]
    assert_rounded_once(ops.cross_entropy(logits, target), losses.mean(), "float16", "cross_entropy")
    assert_rounded_once(ops.cross_entropy(logits, target, reduction="none"), losses, "float16", "losses")
    smoothed = 0.8 * losses + 0.2 * (log_sum_exp(wide, 1) - wide.mean(1))
    result = ops.cross_entropy(logits, target, label_smoothing=0.2)
    assert_rounded_once(result, smoothed.mean(), "float16", "with smoothing")
    assert_rounded_once(ops.nll_loss(logits, target), -wide[rows, target].mean(), "float16", "nll_loss")
    assert_rounded_once(ops.mse_loss(wide.astype("float16"), 0 * logits), (wide**2).mean(), "float16", "mse_loss")


# ---- ONNX ------------------------------------------------------------------------------------------------------------


def of_training(x: Array) -> list[Array]:
    """Return the outputs of BatchNormalization with scale 1, bias 0 and running statistics of 0."""
    mean, variance = (statistic(x, (0, 2), keepdims=True) for statistic in (np.mean, np.var))
    return [(x - mean) / np.sqrt(variance + 1e-5), 0.25 * mean.ravel(), 0.25 * variance.ravel()]


def test_onnx_models_round_once() -> None:
    for kind, x in data("float16").items():
        ones, zeros = np.ones(5, np.float16), np.zeros(5, np.float16)
        row = x[0, :, 0].copy()
        cases: dict[str, tuple[list[Array], dict[str, Any], Callable[..., Any]]] = {
            "ReduceMean": ([x], {}, lambda x: x.mean(keepdims=True)),
            "ReduceSum": ([x], {}, lambda x: x.sum(keepdims=True)),
            "ReduceL2": ([x], {}, lambda x: np.sqrt((x * x).sum(keepdims=True))),
            "ReduceLogSumExp": ([x], {}, lambda x: log_sum_exp(x, None).reshape(1, 1, 1)),
            "GlobalAveragePool": ([x], {}, lambda x: x.mean(2, keepdims=True)),
            "LpNormalization": ([x], {}, lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True))),
            "Mean": ([x, x, -x], {}, lambda *parts: sum(parts) / 3),
            "Sum": ([x, x, -x], {}, lambda *parts: sum(parts)),
            "Einsum": ([x, row], {"equation": "abc,b->b"}, lambda x, row: np.einsum("abc,b->b", x, row)),
            "BatchNormalization": (
                [x, ones, zeros, zeros, zeros],
                {"training_mode": 1, "momentum": 0.75},
                lambda x, *_: of_training(x),
            ),
        }
        for name, (inputs, attributes, formula) in cases.items():
            outputs = ["y", "mean", "variance"] if name == "BatchNormalization" else ["y"]
            model, feeds = model_of_node(name, inputs, outputs, **attributes)
            exact = formula(*(part.astype(np.float64) for part in inputs))
            results = load(model, "numpy").run(dict(feeds))
            for output, expected in zip(outputs, exact if len(outputs) > 1 else [exact], strict=True):
                assert_rounded_once(results[output], expected, "float16", f"{name} of {kind}: {output}")
