"""Gradients of functions of tensors, against formulas in float64 and finite differences of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlgpu
from dmlgpu import Tensor, ops

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("numpy_device")


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


def differences(formula: Callable[..., Array], arrays: list[Array], weights: Array, number: int) -> Array:
    """The gradient of ``sum(weights * formula(*arrays))`` with respect to an array, by differences in float64."""
    step = 1e-5
    gradient = np.zeros(arrays[number].shape)
    for place in np.ndindex(gradient.shape):
        values = []
        for sign in (1, -1):
            moved = [array.astype(np.float64) for array in arrays]
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
    np.testing.assert_allclose(value, (weights * expected).sum(), rtol=1e-4, atol=1e-4)
    for number, gradient in enumerate(gradients):
        exact = differences(formula, list(arrays), weights, number)
        assert gradient.shape == arrays[number].shape
        np.testing.assert_allclose(gradient, exact, rtol=tolerance, atol=tolerance * max(1.0, np.abs(exact).max()))


def draw(*sizes: int, low: float = -2, high: float = 2, seed: int = 0) -> Array:
    """Numbers none of which is near another, or near 0: functions with corners are smooth there."""
    generator = np.random.default_rng([seed, *sizes])
    count = math.prod(sizes)
    numbers = low + (high - low) * (generator.permutation(count) + 0.37) / max(count, 1)
    return np.where(np.abs(numbers) < 1e-2, 0.05, numbers).reshape(sizes)


def test_gradients_of_a_layer_are_those_of_the_chain_rule() -> None:
    def loss(parameters: Any, x: Any) -> Any:
        return ops.mean(ops.relu(x @ parameters["weight"] + parameters["bias"]) ** 2)

    x, weight, bias = draw(5, 3), draw(3, 4, seed=1), draw(4, seed=2)
    hidden = x @ weight + bias
    passed = 2 * np.maximum(hidden, 0) / 20
    single = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    for function in (dmlgpu.value_and_grad(loss), dmlgpu.compile(dmlgpu.value_and_grad(loss))):
        value, gradients = function(single, x.astype(np.float32))
        np.testing.assert_allclose(value, (np.maximum(hidden, 0) ** 2).mean(), rtol=1e-5)
        np.testing.assert_allclose(gradients["weight"], x.T @ passed, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradients["bias"], passed.sum(0), rtol=1e-4, atol=1e-5)
    assert dmlgpu.grad(lambda x: ops.sum(x * x))(Tensor([1.0, 2.0])).tolist() == [2, 4]
