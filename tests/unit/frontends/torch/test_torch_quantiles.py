"""Quantiles, whose positions PyTorch computes in float64 from version 2.14 on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from tests.unit.frontends.torch.torch_comparison import check_on_device  # noqa: E402 - after the check

ROWS = torch.tensor([[3.0, -1.0, 7.0, 2.0, 0.5], [1.0, 4.0, float("nan"), -2.0, 9.0]])
QUANTILES: dict[str, Any] = {
    "number": 0.3,
    "last": 1.0,
    "0-D": torch.tensor(0.25),
    "1-D": torch.tensor([0.0, 1 / 3, 0.5, 0.3, 1.0]),
}


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("q", QUANTILES)
@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile], ids=lambda function: function.__name__)
def test_quantiles(function: Callable[..., Any], q: str, interpolation: str) -> None:
    value = QUANTILES[q]

    def quantiles(x: Any, *tensors: Any) -> list[Any]:
        (ranks,) = tensors or (value,)
        return [
            function(x, ranks, dim, keepdim, interpolation=interpolation)
            for dim, keepdim in ((None, False), (0, True), (1, False))
        ]

    is_tensor = isinstance(value, torch.Tensor)
    x = ROWS if function is torch.nanquantile else ROWS.nan_to_num(5.0)
    inputs = [x.clone().requires_grad_(), value.clone().requires_grad_()] if is_tensor else [x.clone()]
    check_on_device(quantiles, inputs)


def test_quantiles_of_rows_with_nan() -> None:
    for dim in (None, 0, 1):
        actual, expected = torch.quantile(ROWS.to("dml"), 0.3, dim), torch.quantile(ROWS, 0.3, dim)
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)


def test_quantiles_with_out_and_of_wrong_arguments() -> None:
    x = ROWS[:1]
    result = torch.empty(0, device="dml")
    assert torch.quantile(x.to("dml"), 0.5, 1, out=result) is result
    assert result.tolist() == torch.quantile(x, 0.5, 1).tolist()
    wrong: list[tuple[Any, ...]] = [(x, 1.5), (x.int(), 0.5), (x[:0], 0.5), (x, torch.ones(2, 2)), (x, 0.5, 4)]
    for arguments in wrong:
        with pytest.raises((RuntimeError, IndexError)) as expected:
            torch.quantile(*arguments)
        moved = [value.to("dml") if isinstance(value, torch.Tensor) else value for value in arguments]
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            torch.quantile(*moved)


@pytest.mark.slow
def test_quantiles_compile() -> None:
    compiled = torch.compile(torch.quantile, backend="dmlgpu", fullgraph=True)
    q = torch.tensor([0.1, 0.9])
    for x in (ROWS, torch.randn(3, 4)):
        actual = compiled(x.to("dml"), q.to("dml"), 1)
        torch.testing.assert_close(actual.cpu(), torch.quantile(x, q, 1), equal_nan=True)
