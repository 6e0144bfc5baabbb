"""Adam over many steps, against onnx's reference evaluator and against torch's formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import reference
from tests.optimizers import BETA1, BETA2, RATE, SIZES, adam

Array = NDArray[Any]
STEPS = 100


def onnx_adam(epsilon: float) -> ReferenceEvaluator:
    names = ["rate", "step", "x", "gradient", "first", "second"]
    results = ["new_x", "new_first", "new_second"]
    domain = "ai.onnx.preview.training"
    node = helper.make_node("Adam", names, results, domain=domain, alpha=BETA1, beta=BETA2, epsilon=epsilon)
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in names]
    values[1] = helper.make_tensor_value_info("step", TensorProto.INT64, None)
    outputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in results]
    graph = helper.make_graph([node], "adam", values, outputs)
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, 1)]))


def gradients() -> Array:
    return np.random.default_rng(1).standard_normal((STEPS, *SIZES)).astype(np.float32)


def ours(epsilon: float) -> tuple[Array, ...]:
    """Return parameters and moments after all steps, which count from 1."""
    desc = adam(epsilon)
    state: tuple[Array, ...] = (np.ones(SIZES, np.float32), np.zeros(SIZES, np.float32), np.zeros(SIZES, np.float32))
    for step, gradient in enumerate(gradients(), start=1):
        state = reference.evaluate(desc, (*state, gradient, np.full((1, 1, 1, 1), step, np.uint32)))
    return state


@pytest.mark.parametrize("epsilon", [2.0**-30, 0.25])
def test_a_hundred_steps_agree_with_onnx(epsilon: float) -> None:
    evaluator = onnx_adam(epsilon)
    x, first, second = np.ones(SIZES), np.zeros(SIZES), np.zeros(SIZES)
    for step, gradient in enumerate(gradients().astype(np.float64), start=1):
        feeds = {"rate": np.float64(RATE), "step": np.int64(step), "x": x, "gradient": gradient}
        x, first, second = evaluator.run(None, feeds | {"first": first, "second": second})
    for got, expected in zip(ours(epsilon), (x, first, second), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)
    assert np.abs(x - 1).min() > 1e-3  # it moved


def test_a_hundred_steps_agree_with_torch() -> None:
    """PyTorch's formula corrects both moments and then adds epsilon, which is equivalent if epsilon is small."""
    x, first, second = np.ones(SIZES), np.zeros(SIZES), np.zeros(SIZES)
    for step, gradient in enumerate(gradients().astype(np.float64), start=1):
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        x = x - RATE * (first / (1 - BETA1**step)) / (np.sqrt(second / (1 - BETA2**step)) + 2.0**-30)
    np.testing.assert_allclose(ours(2.0**-30)[0], x, rtol=2e-5, atol=1e-6)
