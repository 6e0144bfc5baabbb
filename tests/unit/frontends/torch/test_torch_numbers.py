"""Numbers that change from call to call: operators compile once for all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.compiler.sizes import recordings  # noqa: E402 - imports torch
from dmlgpu.frontends.torch.dispatch import CALLERS  # noqa: E402 - imports torch

functional = torch.nn.functional

PLACES = torch.tensor([2, 0, 2])

BY_NUMBER: dict[str, Callable[..., Any]] = {
    "elu": lambda x, y, number: functional.elu(x, number),
    "leaky_relu": lambda x, y, number: functional.leaky_relu(x, number),
    "softplus": lambda x, y, number: functional.softplus(x, number, 2 * number),
    "huber_loss": lambda x, y, number: functional.huber_loss(x, y, delta=number),
    "smooth_l1_loss": lambda x, y, number: functional.smooth_l1_loss(x, y, beta=number),
    "threshold_backward": lambda x, y, number: torch.ops.aten.threshold_backward(y, x, number),
    "scatter.value": lambda x, y, number: x.scatter(0, PLACES.to(x.device)[None], number),
    "index_add": lambda x, y, number: x.index_add(0, PLACES.to(x.device), y, alpha=number),
}
"""Calls of fused operators with a positive number, which no condition of Python depends on."""

TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def compiled_graphs(name: str) -> int:
    """Return how many graphs an operator has been compiled to."""
    misses: int = CALLERS[name]._fused_result.cache_info().misses  # type: ignore[attr-defined]
    return misses


def operands(dtype: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    return (2 * torch.randn(3, 3)).to(dtype), (2 * torch.randn(3, 3)).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", BY_NUMBER)
def test_many_numbers_compile_two_graphs(name: str, dtype: Any) -> None:
    call, (x, y) = BY_NUMBER[name], operands(dtype)
    before = compiled_graphs(name)
    for number in (0.3, 0.75, 1.1, 2, 0.3, 0.75, 1e4, 3):
        result, expected = call(x.to("dml"), y.to("dml"), number), call(x, y, number)
        torch.testing.assert_close(result.cpu(), expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    # the first number is a constant, the others are read from memory
    assert compiled_graphs(name) - before <= 2


def test_gradients_by_number() -> None:
    x = operands(torch.float32)[0]
    for function in (functional.elu, functional.leaky_relu, functional.softplus):
        for number in (0.2, 0.9, 1.7, 0.9):
            gradients = []
            for device in ("cpu", "dml"):
                leaf = x.clone().to(device).requires_grad_()
                function(leaf, number).sum().backward()
                gradients.append(leaf.grad.cpu())
            torch.testing.assert_close(gradients[1], gradients[0])


def test_writes_by_number() -> None:
    host = operands(torch.float32)[0]
    ours, theirs = torch.zeros(2, 3, 3, device="dml"), torch.zeros(2, 3, 3)
    for number in (0.2, 0.9, 1.7, 0.9, 0.3):
        for stack, x in ((ours, host.to("dml")), (theirs, host)):
            stack[0].copy_(x)
            stack[1] = functional.elu_(x, number)  # covers its storage
            functional.leaky_relu_(stack[0], number)  # a view
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e38, -2, 2**40])
def test_special_numbers(number: float) -> None:
    x, y = operands(torch.float32)
    for function in (functional.leaky_relu, functional.elu):
        function(x.to("dml"), 0.125), function(x.to("dml"), 0.25)
        torch.testing.assert_close(function(x.to("dml"), number).cpu(), function(x, number), equal_nan=True)
    torch.testing.assert_close(
        functional.smooth_l1_loss(x.to("dml"), y.to("dml"), beta=0.0).cpu(), functional.smooth_l1_loss(x, y, beta=0.0)
    )


def test_integers_stay_exact() -> None:
    x, source = torch.tensor([[1, 2**53 + 1, 3]]), torch.tensor([[2**40 + 1, 5, 7]])
    for number in (2, 3, 2**20 + 1, 4):
        ours = x.to("dml").index_add(0, torch.tensor([0]).to("dml"), source.to("dml"), alpha=number)
        assert torch.equal(ours.cpu(), x.index_add(0, torch.tensor([0]), source, alpha=number))
        ours = x.to("dml").scatter(1, torch.tensor([[1]]).to("dml"), 2**53 + number)
        assert torch.equal(ours.cpu(), x.scatter(1, torch.tensor([[1]]), 2**53 + number))


OUT_OF_RANGE = {
    torch.float16: (1e6, 65519.0, 70000, math.inf, math.nan),
    torch.bfloat16: (1e39, 3.4e38),
    torch.float32: (1e39, -1e300),
    torch.complex64: (1e39, 1e39j),
    torch.int8: (300, -300, 3.7, 1e6),
    torch.uint8: (300, -1, -1.0),
    torch.int32: (1 << 40, 1e12, math.inf),
    torch.int64: (1 << 63, 1e30),
}
"""Numbers at and outside the limits of dtypes, which PyTorch converts, wraps around or rejects."""

ELSEWHERE = {torch.float16, torch.bfloat16, torch.complex64}
"""Dtypes of which elementwise operators are tested elsewhere: they compute in float32, or with parts."""

WITH_A_NUMBER: dict[str, Callable[..., Any]] = {
    "fill_": lambda x, number: x.fill_(number),
    "fill_ of a view": lambda x, number: x[:, 1].fill_(number),
    "fill_ of one element": lambda x, number: x[0, 0].fill_(number),
    "fill_ of many": lambda x, number: x.expand(2048, 3, 3).reshape(-1, 64).fill_(number)[:1],
    "full": lambda x, number: torch.full((2, 3), number, dtype=x.dtype, device=x.device),
    "full of one": lambda x, number: torch.full((1,), number, dtype=x.dtype, device=x.device),
    "full_like": torch.full_like,
    "scalar_tensor": lambda x, number: torch.scalar_tensor(number, dtype=x.dtype, device=x.device),
    "masked_fill": lambda x, number: x.masked_fill(x == 1, number),
    "index_fill": lambda x, number: x.index_fill(0, PLACES.to(x.device), number),
    "scatter": lambda x, number: x.scatter(0, PLACES.to(x.device)[None], number),
    "threshold": lambda x, number: functional.threshold(x, 1, number) if x.dtype not in ELSEWHERE else x,
    "add": lambda x, number: x + number if x.dtype not in ELSEWHERE else x,
    "mul": lambda x, number: x * number if x.dtype not in ELSEWHERE else x,
    "add alpha": lambda x, number: x.add(x, alpha=number) if x.dtype not in ELSEWHERE and number != -1 else x,
    "lt": lambda x, number: x < number if x.dtype not in ELSEWHERE else x,
    "constant_": torch.nn.init.constant_,
}


@pytest.mark.parametrize("dtype", OUT_OF_RANGE, ids=str)
@pytest.mark.parametrize("name", WITH_A_NUMBER)
def test_numbers_out_of_range_are_rejected_like_on_the_cpu(name: str, dtype: Any) -> None:
    def outcome(device: str, number: Any) -> str:
        try:
            result = WITH_A_NUMBER[name](torch.ones(3, 3, dtype=dtype, device=device), number)
        except RuntimeError as error:
            return str(error)
        return f"{result.dtype} {result.tolist()}"

    for number in (2, 3, 4):  # other numbers may repeat these calls
        WITH_A_NUMBER[name](torch.ones(3, 3, dtype=dtype, device="dml"), number)
    for number in OUT_OF_RANGE[dtype]:
        for _ in range(2):
            assert outcome("dml", number) == outcome("cpu", number), number


def test_numbers_out_of_range_are_rejected_for_large_tensors() -> None:
    x = torch.ones(1500, 1500, dtype=torch.float16, device="dml")
    for call in (
        lambda: x.fill_(1e6), lambda: x[1:].fill_(1e6), lambda: x.masked_fill_(x > 0, 1e6), lambda: x.clamp(max=1j),
        lambda: torch.full((1500, 1500), 1e6, dtype=torch.float16, device="dml"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    assert x.min() == x.max() == 1


@pytest.mark.parametrize("limits", [(-1, 300), (-1, None), (None, 300), (300, None), (None, -1), (-300, 1 << 40)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_limits_outside_the_range_of_integers_limit_nothing(dtype: Any, limits: Any) -> None:
    """In PyTorch 2.15; earlier versions reject such limits, or wrap them around."""
    x = torch.tensor([0, 5, 100, 127], dtype=dtype)
    try:
        expected = x.clamp(*limits)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            x.to("dml").clamp(*limits)
    else:
        assert x.to("dml").clamp(*limits).tolist() == expected.tolist()


def test_nan_becomes_infinity() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 1])
    for nan in (math.inf, -math.inf):
        expected = x.nan_to_num(nan, 2, 3)
        assert x.to("dml").nan_to_num(nan, 2, 3).tolist() == expected.tolist()


def test_numbers_that_decide_are_constants() -> None:
    x = operands(torch.float32)[0]
    for correction in (0, 1, 2, 0.5, 1, 0):
        torch.testing.assert_close(x.to("dml").var(0, correction=correction).cpu(), x.var(0, correction=correction))
    query = torch.randn(1, 2, 4, 8)
    for scale in (0.1, 0.5, 0.2):
        ours = functional.scaled_dot_product_attention(*[query.to("dml")] * 3, scale=scale)
        theirs = functional.scaled_dot_product_attention(query, query, query, scale=scale)
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_shares_of_dropout_change() -> None:
    x = torch.ones(4096, device="dml", requires_grad=True)
    for share in (0.1, 0.5, 0.75, 0.2):
        result = functional.dropout(x, share)
        remaining = result.detach().cpu() != 0
        assert abs(remaining.float().mean().item() - (1 - share)) < 0.05
        torch.testing.assert_close(result.detach().cpu(), remaining / (1 - share))


def test_cumulative_averages_of_batch_norm() -> None:
    layers = [torch.nn.BatchNorm1d(3, momentum=None).to(device) for device in ("cpu", "dml")]
    before = compiled_graphs("_native_batch_norm_legit_functional")
    for step in range(6):
        x = torch.arange(12.0).reshape(4, 3) * (step + 1)
        torch.testing.assert_close(layers[1](x.to("dml")).cpu(), layers[0](x), rtol=1e-4, atol=1e-5)
    for name, statistics in layers[0].named_buffers():
        torch.testing.assert_close(layers[1].get_buffer(name).cpu(), statistics)
    assert compiled_graphs("_native_batch_norm_legit_functional") - before <= 2  # momentum is 1, then a half and so on


def test_a_recording_that_fails_is_counted() -> None:
    images = torch.arange(24.0).reshape(2, 3, 4)
    before = recordings.failures.total()
    for epsilon in (0.25, 0.5, 0.125, 0.75):  # a field of DirectML's operator
        ours = functional.instance_norm(images.to("dml"), eps=epsilon)
        torch.testing.assert_close(ours.cpu(), functional.instance_norm(images, eps=epsilon), rtol=1e-4, atol=1e-5)
    assert any("epsilon must be a number" in reason for reason in recordings.failures)
    assert recordings.failures.total() - before <= 1


def test_a_recording_hides_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    x, caller = torch.ones(3, 5, 7, device="dml"), CALLERS["leaky_relu"]
    functional.leaky_relu(x, 0.375)
    compute = caller._compute

    def faulty(args: Any, kwargs: Any, numbers: Any = None) -> Any:
        if numbers:
            raise AssertionError("planted")
        return compute(args, kwargs)

    monkeypatch.setattr(caller, "_compute", faulty)
    with pytest.raises(AssertionError, match="planted"):
        functional.leaky_relu(x, 0.625)
