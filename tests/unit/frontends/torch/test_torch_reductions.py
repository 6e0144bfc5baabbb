"""Reductions, running sums, order statistics and sets of the PyTorch device, against the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from tests.unit.frontends.torch.test_torch_elementwise import compare  # noqa: E402 - imports torch

GENERATOR = torch.Generator().manual_seed(0)
FLOATS = torch.randn(3, 4, 5, generator=GENERATOR)
WITH_NAN = FLOATS.clone()
WITH_NAN[0, 1, 2] = WITH_NAN[2, 3] = math.nan
INTEGERS = torch.randint(-4, 5, (3, 4, 5), generator=GENERATOR)
BOOLEANS = INTEGERS > 0
AXES: tuple[Any, ...] = ((), (0,), (-1,), (1,))

OF_FLOATS = ["sum", "mean", "amax", "amin", "prod", "logsumexp", "nansum", "std", "var"]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", [*OF_FLOATS, "all", "any", "argmax", "argmin"])
def test_reductions_along_an_axis(name: str, axis: int, keepdim: bool) -> None:
    for x in (FLOATS, WITH_NAN, FLOATS.transpose(0, 2)):
        compare(getattr(torch, name), x, axis, keepdim=keepdim)


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "all", "any", "argmax", "count_nonzero"])
@pytest.mark.parametrize("x", [INTEGERS, BOOLEANS, INTEGERS.to(torch.uint8), INTEGERS.to(torch.int8)])
def test_reductions_of_integers(name: str, x: Any) -> None:
    if name == "argmax" and x.dtype is torch.bool:
        with pytest.raises(RuntimeError):
            torch.argmax(x, 1)
        return
    compare(getattr(torch, name), x, 1)


@pytest.mark.parametrize("name", [*OF_FLOATS[:6], "var_mean", "std_mean"])
def test_reductions_of_everything(name: str) -> None:
    function = getattr(torch, name)
    for x in (FLOATS, FLOATS[0, 0, 0]):
        axes = tuple(range(x.ndim))
        if name in {"logsumexp", "amax", "amin"}:
            compare(function, x, axes)
        else:
            compare(function, x)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "logsumexp", "all", "any"])
def test_reductions_of_no_elements(name: str) -> None:
    compare(getattr(torch, name), torch.empty(2, 0, 3), 1)
    compare(getattr(torch, name), torch.empty(2, 0, 3), 0)


def test_several_axes_and_dtypes() -> None:
    compare(torch.sum, FLOATS, (0, 2), keepdim=True)
    compare(torch.var, FLOATS, (0, 2), correction=3)
    compare(torch.sum, INTEGERS, dtype=torch.float32)
    compare(torch.sum, FLOATS, dtype=torch.float16)
    compare(torch.prod, BOOLEANS, 1, dtype=torch.bool)
    compare(torch.max, INTEGERS, 1)
    compare(torch.min, FLOATS, 1)
    compare(torch.aminmax, FLOATS, dim=1)
    compare(torch.trace, FLOATS[0])
    with pytest.raises(IndexError, match="Dimension out of range"):
        FLOATS.to("dml").sum(5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_running_values(name: str, axis: int) -> None:
    for x in (FLOATS, WITH_NAN, FLOATS[:, :0]):
        compare(getattr(torch, name), x, axis)
    if name != "logcumsumexp":
        compare(getattr(torch, name), INTEGERS, axis)


def test_running_logarithms_of_large_numbers() -> None:
    compare(torch.logcumsumexp, torch.tensor([1e4, 1e4, -1e4, 0.0, 1.1e4, -math.inf, math.inf]), 0)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_sorted_order(axis: int, descending: bool) -> None:
    for x in (FLOATS, WITH_NAN, INTEGERS, BOOLEANS, FLOATS[0, 0, 0]):
        compare(torch.sort, x, dim=axis, descending=descending, stable=True)


def test_equal_elements_keep_their_order() -> None:
    """The CPU's order of equal elements depends on its instruction set, unless stable=True; the device's does not."""
    x = torch.arange(2000).remainder(5).reshape(2, 1000).float()
    places = torch.sort(x, stable=True, descending=True).indices
    assert torch.equal(torch.sort(x.to("dml"), descending=True).indices.cpu(), places)
    assert torch.equal(torch.argsort(x.to("dml"), descending=True).cpu(), places)
    assert torch.equal(torch.topk(x.to("dml"), 300).indices.cpu(), places[:, :300])


def test_order_statistics() -> None:
    compare(torch.topk, FLOATS, 2, 1)
    compare(torch.topk, FLOATS, 3, 0, largest=False)
    compare(torch.kthvalue, FLOATS, 2, 1, keepdim=True)
    for name in ("median", "nanmedian"):
        compare(getattr(torch, name), WITH_NAN)
        compare(getattr(torch, name), FLOATS, 1)
        ours, theirs = (getattr(torch, name)(x, 1).values.cpu() for x in (WITH_NAN.to("dml"), WITH_NAN))
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert torch.equal(torch.mode(INTEGERS.to("dml"), 1).values.cpu(), torch.mode(INTEGERS, 1).values)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        torch.topk(FLOATS.to("dml"), 9)


@pytest.mark.parametrize("x", [INTEGERS, INTEGERS[0, 0, :1], INTEGERS[:0], BOOLEANS])
def test_sets(x: Any) -> None:
    compare(torch.unique, x, return_inverse=True, return_counts=True)
    compare(torch.unique_consecutive, x, return_inverse=True, return_counts=True)
    compare(torch.unique, x)


def test_unique_slices() -> None:
    rows = torch.tensor([[2, 1], [1, 3], [2, 1], [1, 2], [1, 3]])
    compare(torch.unique, rows, dim=0, return_inverse=True, return_counts=True)
    compare(torch.unique, rows.T, dim=1, return_inverse=True, return_counts=True)
    compare(torch.unique_consecutive, rows.repeat_interleave(2, 0), dim=0, return_counts=True)


@pytest.mark.parametrize("right", [False, True])
def test_binary_search(right: bool) -> None:
    row = torch.tensor([-1.0, 0.0, 0.0, 2.0, 5.0])
    values = torch.tensor([[-2.0, -1.0, 0.0], [0.5, 5.0, math.nan]])
    compare(torch.searchsorted, row, values, right=right)
    compare(torch.searchsorted, row.expand(2, 5).contiguous(), values, right=right, out_int32=True)
    compare(torch.bucketize, values, row, right=right)
    compare(torch.isin, INTEGERS, torch.tensor([3, -4, 9]), invert=right)


def test_counts() -> None:
    compare(torch.histc, FLOATS, 7)
    compare(torch.histc, FLOATS, 4, -1, 1)
    compare(torch.histogram, FLOATS.reshape(-1), 5, range=(-1.0, 1.0))
    compare(torch.bincount, INTEGERS.reshape(-1) + 4, minlength=12)
    compare(torch.bincount, INTEGERS.reshape(-1) + 4, FLOATS.reshape(-1))
    with pytest.raises(RuntimeError, match="bincount only supports 1-d non-negative integral inputs"):
        torch.bincount(INTEGERS.reshape(-1).to("dml"))
