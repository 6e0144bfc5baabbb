"""Gradients where a formula divides by zero or operands tie, compared with PyTorch's in eager mode on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Tensor, ops

torch = pytest.importorskip("torch", reason="PyTorch, with whose gradients these are compared, is not installed")
F = torch.nn.functional

POINTS = [-3, -2, -1, -0.5, 0.0, 0.5, 1, 2, 3, 6, np.inf, -np.inf]
PAIRS = [list(pair) for pair in itertools.product([-2, -1, -0.0, 0.0, 1, 2, np.inf], repeat=2)]
ROWS = [[0, 0, 0], [3, 3, 3], [1, 1, 0], [2, 2, 2], [0, 2, 3], [0, 0, 5]]

OF_ONE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "abs": (ops.abs, torch.abs),
    "sqrt": (ops.sqrt, torch.sqrt),
    "log": (ops.log, torch.log),
    "reciprocal": (ops.reciprocal, torch.reciprocal),
    "sign": (ops.sign, torch.sign),
    "asin": (ops.asin, torch.asin),
    "acos": (ops.acos, torch.acos),
    "acosh": (ops.acosh, torch.acosh),
    "atanh": (ops.atanh, torch.atanh),
    "relu": (ops.relu, torch.relu),
    "relu6": (lambda x: ops.relu6(x * 3), lambda x: F.relu6(x * 3)),
    "leaky_relu": (lambda x: ops.leaky_relu(x, 0.1), lambda x: F.leaky_relu(x, 0.1)),
    "prelu": (
        lambda x: ops.directml.activation_parameterized_relu(x, 0.1),
        lambda x: F.prelu(x, torch.tensor([0.1])),
    ),
    "elu": (lambda x: ops.elu(x, 2.0), lambda x: F.elu(x, 2.0)),
    "celu": (lambda x: ops.directml.activation_celu(x, alpha=2.0), lambda x: F.celu(x, 2.0)),
    "clip": (lambda x: ops.clip(x, -1, 2), lambda x: torch.clamp(x, -1, 2)),
    **{
        f"x ** {exponent}": (lambda x, e=exponent: x**e, lambda x, e=exponent: x**e)
        for exponent in (0, 1, 2, 3, -1, -0.5)
    },
    **{
        f"{base} ** x": (lambda x, b=base: b**x, lambda x, b=base: b**x) for base in (2.0, 0.0, 1.0, -2.0, 0.5)
    },
}  # fmt: skip

OF_TWO: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a / b": (lambda a, b: a / b, lambda a, b: a / b),
    "a ** b": (lambda a, b: a**b, lambda a, b: a**b),
    "maximum": (ops.maximum, torch.maximum),
    "minimum": (ops.minimum, torch.minimum),
    "atan2": (ops.atan2, torch.atan2),
}

OF_ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "max": (lambda x: ops.max(x, axis=1), lambda x: torch.amax(x, 1)),
    "min": (lambda x: ops.min(x, axis=1), lambda x: torch.amin(x, 1)),
    "prod": (lambda x: ops.prod(x, axis=1), lambda x: torch.prod(x, 1)),
    "var": (lambda x: ops.var(x, axis=1), lambda x: torch.var(x, 1, correction=0)),
    "std": (lambda x: ops.std(x, axis=1), lambda x: torch.std(x, 1, correction=0)),
    "norm": (lambda x: ops.norm(x, axis=1), lambda x: torch.linalg.norm(x, dim=1)),
    "layer_norm": (lambda x: ops.layer_norm(x)[:, 0], lambda x: F.layer_norm(x, (3,))[:, 0]),
    "softmax": (lambda x: ops.softmax(x, axis=1)[:, 0], lambda x: torch.softmax(x, 1)[:, 0]),
}


def gradients(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    operands = [Tensor(np.array(array, np.float32), device="numpy") for array in arrays]
    loss = dmlgpu.grad(lambda *tensors: ops.sum(function(*tensors)), argnums=tuple(range(len(operands))))
    return [gradient.numpy() for gradient in loss(*operands)]


def of_torch(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    leaves = [torch.tensor(array, dtype=torch.float32, requires_grad=True) for array in arrays]
    function(*leaves).sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients_equal_pytorchs() -> None:
    left, right = zip(*PAIRS, strict=True)
    for table, arrays in ((OF_ONE, [POINTS]), (OF_TWO, [left, right]), (OF_ROWS, [ROWS])):
        for name, (ours, theirs) in table.items():
            for index, (mine, expected) in enumerate(
                zip(gradients(ours, *arrays), of_torch(theirs, *arrays), strict=True)
            ):
                np.testing.assert_allclose(
                    mine, expected, rtol=1e-4, atol=1e-5, err_msg=f"{name}, argument {index}, of {arrays}"
                )
