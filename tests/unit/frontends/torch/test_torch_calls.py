"""Calls that are repeated: several operators as one graph, and nothing computed again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.common.errors import NotSupported  # noqa: E402 - torch may be missing
from dmlgpu.compiler.sizes import recordings  # noqa: E402 - likewise
from dmlgpu.frontends.torch import dispatch  # noqa: E402 - imports torch
from dmlgpu.tensors.recorded_call import RecordedCall  # noqa: E402 - imports torch


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call that runs in this test adds its number of operators; a graph is one."""
    counts: list[int] = []
    run = RecordedCall.run

    def counted(call: RecordedCall, *args: Any, **kwargs: Any) -> Any:
        counts.append(len(call.steps))
        return run(call, *args, **kwargs)

    monkeypatch.setattr(RecordedCall, "run", counted)
    return counts


OF_SEVERAL_OPERATORS: dict[str, Callable[..., Any]] = {
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "copysign.Tensor": torch.copysign,
    "logical_xor": lambda x, y: torch.logical_xor(x > 0, y),
    "div.Tensor_mode": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "clamp.Tensor": lambda x, y: x.clamp(y - 1, y),
}


@pytest.mark.parametrize("name", OF_SEVERAL_OPERATORS)
def test_several_operators_are_one_graph(name: str, operators: list[int]) -> None:
    """Each of these functions calls several operators, and is not marked as fused."""
    call = OF_SEVERAL_OPERATORS[name]
    assert not dispatch.CALLERS[name].entry.fused
    x, y = torch.tensor([[1.5, -2.0, 0.25]]), torch.tensor([[-1.0, 3.0, 0.5]])
    ours = x.to("dml"), y.to("dml")
    expected = call(x, y)
    first = call(*ours)
    operators.clear()
    again = call(*ours)
    executed = set(operators)
    assert torch.equal(first.cpu(), expected) and torch.equal(again.cpu(), expected)
    assert executed == {1}


def test_graphs_that_fail_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, x = dispatch.CALLERS["addcmul"], torch.ones(3, 11, device="dml")
    monkeypatch.setattr(caller, "_is_fused", None)

    def fail(_values: Any, _keywords: Any) -> Any:
        raise NotSupported("no graphs today")

    monkeypatch.setattr(caller, "_fused", fail)
    before = recordings.failures.copy()
    assert torch.equal(torch.addcmul(x, x, x).cpu(), torch.full((3, 11), 2.0))
    assert recordings.failures - before == {"NotSupported: no graphs today": 1}
    assert caller._is_fused is False


def test_graphs_of_functions_that_read_for_some_arguments_are_counted() -> None:
    matrix = 2 * torch.eye(3)
    on_device = matrix.to("dml")
    for _ in range(2):
        torch.linalg.cholesky_ex(on_device)
    assert dispatch.CALLERS["linalg_cholesky_ex"]._is_fused
    before = recordings.failures.copy()
    factor, _ = torch.linalg.cholesky_ex(on_device, check_errors=True)
    torch.testing.assert_close(factor.cpu(), torch.linalg.cholesky(matrix))
    assert (recordings.failures - before).total() == 1


def test_many_numbers_compile_few_graphs() -> None:
    """Numbers on which a condition of the function depends become constants of a few graphs only."""
    x, y = torch.tensor([1.5, -2.0]), torch.tensor([2.0, 3.0])
    graphs = dispatch.CALLERS["addcmul"]._fused_result.cache_info
    before = graphs().misses
    for number in range(20):
        result = torch.addcmul(x.to("dml"), x.to("dml"), y.to("dml"), value=number / 8)
        torch.testing.assert_close(result.cpu(), torch.addcmul(x, x, y, value=number / 8))
    assert graphs().misses - before <= dispatch._MAX_CONSTANTS + 1


def test_results_without_elements_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(0, 3, device="dml")
    assert x.roll(1).shape == (0, 3)
    monkeypatch.delattr(dispatch.Caller, "_compute")
    result = x.roll(1)
    assert result.shape == (0, 3) and result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    with pytest.raises(AttributeError):
        x.roll(2)  # not called before


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (1, True), (float("nan"), 1.0), (2, 2.0)])
def test_numbers_that_are_equal_but_differ(numbers: tuple[Any, Any]) -> None:
    """Calls with numbers that Python takes for equal, or for different from themselves, are different calls."""
    x = torch.tensor([3.0, -4.0])
    for number in (*numbers, *numbers):
        ours, theirs = torch.full((2,), number, device="dml"), torch.full((2,), number)
        assert ours.dtype == theirs.dtype and torch.equal(ours.cpu().isnan(), theirs.isnan())
        expected = torch.copysign(x, number)
        assert torch.equal(torch.copysign(x.to("dml"), number).cpu(), expected) or math.isnan(number)
