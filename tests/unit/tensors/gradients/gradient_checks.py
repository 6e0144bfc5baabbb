"""Gradients compared with finite differences, in float64, of NumPy's formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmlgpu
from dmlgpu import ops

Array = NDArray[Any]


def differences(formula: Callable[..., Array], arrays: list[Array], weights: Array, number: int) -> Array:
    """The gradient of ``sum(weights * formula(*arrays))`` with respect to an array, by differences in float64."""
    step = 1e-5
    gradient = np.zeros(arrays[number].shape)
    for place in np.ndindex(gradient.shape):
        values = []
        for sign in (1, -1):
            moved = [np.array(array, np.float64) for array in arrays]
            moved[number][place] += sign * step
            values.append((weights * formula(*moved)).sum())
        gradient[place] = (values[0] - values[1]) / (2 * step)
    return gradient


def check(
    function: Callable[..., Any],
    formula: Callable[..., Array],
    *arrays: Array,
    tolerance: float = 2e-4,
    compiled: bool = False,
) -> None:
    """A function of tensors has the value and the gradients of a formula."""
    expected = np.asarray(formula(*(array.astype(np.float64) for array in arrays)))
    weights = np.random.default_rng(5).uniform(0.5, 1.5, expected.shape)

    def total(*tensors: Any) -> Any:
        result = function(*tensors)
        assert result.shape == expected.shape
        return ops.sum(result * weights.astype(np.float32))

    differentiated = dmlgpu.value_and_grad(total, tuple(range(len(arrays))))
    if compiled:
        differentiated = dmlgpu.compile(differentiated)
    value, gradients = differentiated(*(array.astype(np.float32) for array in arrays))
    np.testing.assert_allclose(value, (weights * expected).sum(), rtol=tolerance, atol=tolerance)
    for index, gradient in enumerate(gradients):
        exact = differences(formula, list(arrays), weights, index)
        assert gradient.shape == arrays[index].shape
        np.testing.assert_allclose(gradient, exact, rtol=tolerance, atol=tolerance * max(1.0, np.abs(exact).max()))


def draw(*sizes: int, low: float = -2, high: float = 2, seed: int = 0) -> Array:
    """Numbers none of which is near another, or near 0: functions with corners are smooth there."""
    generator = np.random.default_rng([seed, *sizes])
    count = math.prod(sizes)
    numbers = low + (high - low) * (generator.permutation(count) + 0.37) / max(count, 1)
    return np.where(np.abs(numbers) < 1e-2, 0.05, numbers).reshape(sizes)


def erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def attention(q: Array, k: Array, v: Array, bias: Array) -> Array:
    def by_head(x: Array) -> Array:
        return x.reshape(*x.shape[:2], 2, -1).transpose(0, 2, 1, 3)

    scores = by_head(q) @ by_head(k).swapaxes(-1, -2) / math.sqrt(q.shape[-1] // 2) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ by_head(v)).transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1)
