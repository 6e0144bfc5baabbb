"""Functions of tensors on the device and on the CPU, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def leaf(*sizes: int, scale: float = 1.0) -> Any:
    return (torch.randn(*sizes) * scale).requires_grad_()


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for part in value for x in tensors_in(part)] if isinstance(value, list | tuple) else []


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-4) -> None:
    assert actual.device.type == "dml"
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance)


def check_on_device(function: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Compare results and gradients of a function with the CPU's."""
    moved = [x.detach().to("dml").requires_grad_(x.requires_grad) for x in inputs]
    expected, actual = tensors_in(function(*inputs)), tensors_in(function(*moved))
    assert len(expected) == len(actual)
    for result, reference in zip(actual, expected, strict=True):
        assert_close(result, reference)
    roots = [index for index, x in enumerate(expected) if x.requires_grad]
    cotangents = [torch.randn_like(expected[index]) for index in roots]
    if roots:
        torch.autograd.backward([expected[index] for index in roots], cotangents)
        torch.autograd.backward([actual[index] for index in roots], [x.to("dml") for x in cotangents])
    for x, reference in zip(moved, inputs, strict=True):
        assert (x.grad is None) == (reference.grad is None)
        if x.grad is not None:
            assert_close(x.grad, reference.grad)
