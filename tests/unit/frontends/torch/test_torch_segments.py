"""Reductions of segments on the PyTorch device, and their gradients, against the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from tests.unit.frontends.torch.torch_comparison import check_on_device  # noqa: E402 - imports torch

DATA = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.0, 0.0, math.nan, 2.0])
"""A segment without zeros, with one, with two, and with NaN."""

SEGMENTS: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": torch.tensor([2, 2, 2, 0, 2])},
    "int32": {"lengths": torch.tensor([2, 2, 2, 0, 2], dtype=torch.int32)},
    "offsets": {"offsets": torch.tensor([1, 2, 4, 4, 6, 7])},
}


def on_device(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to("dml") for name, value in arguments.items()}


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_values_and_gradients(reduce: str, initial: float | None, name: str) -> None:
    results = []
    for x, segments in ((DATA.clone(), SEGMENTS[name]), (DATA.to("dml"), on_device(SEGMENTS[name]))):
        x.requires_grad_()
        result = torch.segment_reduce(x, reduce, **segments, initial=initial)
        (gradient,) = torch.autograd.grad(result, x, torch.arange(1.0, 6.0, device=x.device))
        results.append((result.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_batches(axis: int) -> None:
    lengths = torch.tensor([3, 0, 1]) if axis == 0 else torch.tensor([[3, 0, 1], [1, 1, 2], [0, 4, 0], [2, 2, 0]])

    def maxima(x: Any) -> Any:
        return torch.segment_reduce(x, "max", lengths=lengths.to(x.device), axis=axis, initial=-9.0)

    check_on_device(maxima, [torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(0))])
