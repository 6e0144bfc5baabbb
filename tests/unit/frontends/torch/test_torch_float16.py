"""Functions of float16 and bfloat16 on the PyTorch device: as in float64, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

import torch.nn.functional as F  # noqa: E402

GENERATOR = torch.Generator().manual_seed(0)
NORMAL = torch.randn(4, 6, 250, generator=GENERATOR, dtype=torch.float64)
KINDS = {"usual": NORMAL, "large": NORMAL.clip(-3, 3) * 600, "far": NORMAL * 40 + 2000, "tiny": NORMAL * 1e-4}
BIG = torch.randn(70000, generator=GENERATOR, dtype=torch.float64)
TARGET = torch.arange(70000) % 3


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def half(request: Any) -> Any:
    return request.param


def assert_close(half: Any, function: Callable[..., Any], tensors: list[Any], what: str, share: float = 0) -> None:
    """Assert results within four ULP of those in float64, and gradients within a share of the largest one, because
    PyTorch rounds the values that forward saves for backward; ``share`` is for float16."""
    backward = bool(share)
    share *= torch.finfo(half).eps / torch.finfo(torch.float16).eps
    halves = [x.to(half) if x.is_floating_point() else x for x in tensors]
    results = []
    for dtype, device in ((torch.float64, "cpu"), (half, "dml")):
        inputs = [x.to(dtype).to(device) if x.is_floating_point() else x.to(device) for x in halves]
        if backward:
            inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        exact_outputs = outputs
        if backward:
            weights = [torch.arange(part.numel()).remainder(7).reshape(part.shape) / 4 - 0.5 for part in outputs]
            torch.autograd.backward(outputs, [part.to(dtype).to(device) for part in weights])
            outputs = (*outputs, *(x.grad for x in inputs if x.is_floating_point()))
        results.append([part.detach().cpu() for part in outputs])
    for index, (exact, actual) in enumerate(zip(*results, strict=True)):
        rounded = exact.to(half)
        finite = rounded.isfinite()
        name = f"{what}, result {index}"
        assert actual.dtype is half and torch.equal(actual[~finite], rounded[~finite]), name
        allowed = 4 * torch.finfo(half).eps * exact[finite].abs().clamp(min=2.0**-14)
        if backward and index >= len(exact_outputs):
            allowed = share * exact[finite].abs().max() + allowed
        worst = ((actual[finite].double() - exact[finite]).abs() / allowed).max() if finite.any() else 0
        assert worst <= 1, f"{name}: off by {float(worst):.3g} times what is allowed"


STATISTICS: dict[str, Callable[..., Any]] = {
    **{
        f"{name}{axis}": lambda x, name=name, axis=axis: getattr(torch, name)(x, axis)
        for name in ("mean", "var", "std", "var_mean", "std_mean", "logsumexp")
        for axis in (0, (0, 2), -1)
    },
    "var()": torch.var,
    "std, correction": lambda x: torch.std(x, 2, correction=3),
    "vector_norm": torch.linalg.vector_norm,
    "vector_norm of order 3": lambda x: torch.linalg.vector_norm(x, 3, -1),
    "layer_norm": lambda x: F.layer_norm(x, (250,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (1, 7)),
    "avg_pool2d with a divisor": lambda x: F.avg_pool2d(x, (2, 5), divisor_override=40),
    "cdist": lambda x: torch.cdist(x, x.flip(0), p=3),
    "softmax": lambda x: torch.softmax(x, 1)[:, 0],
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
}
OWN_GRADIENTS = {
    "layer_norm",
    "group_norm",
    "batch_norm",
    "adaptive_avg_pool2d",
    "avg_pool2d with a divisor",
    "softmax",
}
"""Functions whose gradients are operators of their own; PyTorch composes those of others from operators that round."""


@pytest.mark.slow
def test_statistics_are_rounded_once(half: Any) -> None:
    for kind, x in KINDS.items():
        for name, function in STATISTICS.items():
            share = 0 if name not in OWN_GRADIENTS else 2**-4 if kind == "far" else 2**-8
            assert_close(half, function, [x], f"{name} of {kind}", share)


VALUES = [0.0, 6e-8, 1e-4, 0.3, 1.0, 2.0, 3.7, 12.0, 15.0, 300.0, 2049.0, 60000.0, 65504.0, float("inf")]
OPERANDS = torch.tensor([*VALUES, *(-x for x in VALUES), float("nan")])
NUMBERS = 1e5, -1e-9, 0.3

WITH_NUMBER: dict[str, Callable[[Any, Any], Any]] = {
    "add with alpha": lambda x, n: torch.add(x, x.flip(0), alpha=n),
    "sub with alpha 2": lambda x, n: torch.sub(x, x.flip(0), alpha=2),
    "mul": lambda x, n: x * n,
    "mul_": lambda x, n: x.clone().mul_(n),
    "mul, scalar tensor": lambda x, n: x * torch.tensor(n, device=x.device),
    "mul, scalar tensor of the CPU": lambda x, n: x * torch.tensor(n),
    "mul of lists": lambda x, n: torch._foreach_mul([x, x.flip(0)], n)[1],
    "div": lambda x, n: x / n,
    "div of a number": lambda x, n: torch.div(torch.tensor(n), x),
    "div, transposed": lambda x, n: (x.expand(2, -1).T / n)[:, 1],
    "mask * number": lambda x, n: (x > 0).to(x.dtype) * n,
    "addcmul": lambda x, n: torch.addcmul(x, x, x.flip(0), value=n),
    "addcmul without a number": lambda x, n: torch.addcmul(x, x, x.flip(0)),
    "addcmul, scalar tensor": lambda x, n: torch.addcmul(x, x, torch.tensor(n, device=x.device)),
    "addcdiv": lambda x, n: torch.addcdiv(x, x, x.flip(0), value=n),
    "lerp": lambda x, n: torch.lerp(x, x.flip(0), 0.3),
    "lerp, scalar tensor": lambda x, n: torch.lerp(x, x.flip(0), torch.tensor(0.3, device=x.device)),
    "xlogy": lambda x, n: torch.xlogy(x, abs(n)),
    "xlogy of a number": lambda x, n: torch.xlogy(n, x),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "elu of 2": lambda x, n: F.elu(x, 2),
    "celu": lambda x, n: F.celu(x, abs(n)),
    "softplus": F.softplus,
    "softplus of 1": lambda x, n: F.softplus(x),
    "mish": lambda x, n: F.mish(x),
    "threshold": lambda x, n: F.threshold(x, 0.3, 2.0),
    "softshrink": lambda x, n: F.softshrink(x, min(abs(n), 1.0)),
    "pow": lambda x, n: x.abs() ** n,
    "pow of a number": lambda x, n: abs(n) ** x,
}
"""Elementwise functions of a tensor and a number: PyTorch computes these in float32."""

ROUNDED = {"add": lambda x, n: x + n, "rsub": lambda x, n: n - x, "comparison": lambda x, n: x > n}
"""Functions for which PyTorch's CPU rounds numbers to float16."""


def assert_near(actual: Any, expected: Any, what: str) -> None:
    """Assert results within two ULP; beyond 65000 also an infinity of float16."""
    half = actual.dtype
    actual = actual.float()
    tolerance = 2 * torch.finfo(half).eps * expected.abs().clamp(min=2.0**-14)
    is_right = ((actual - expected).abs() <= tolerance) | (actual == expected) | (actual.isnan() & expected.isnan())
    if half is torch.float16:
        is_right |= (actual.sign() == expected.sign()) & (actual.abs() > 65000) & (expected.abs() > 65000)
    assert is_right.all(), f"{what}: {actual[~is_right]} instead of {expected[~is_right]} of {OPERANDS[~is_right]}"


def test_numbers_stay_in_float32(half: Any) -> None:
    operands = OPERANDS.to(half)
    for number in NUMBERS:
        for name, function in (WITH_NUMBER | ROUNDED).items():
            expected = function(operands if name in ROUNDED else operands.float(), number)
            actual = function(operands.to("dml"), number).cpu()
            assert actual.dtype is (torch.bool if name == "comparison" else half), name
            assert_near(actual.to(half), expected.float(), f"{name} of {number}")


def test_compiled_numbers_stay_in_float32(half: Any) -> None:
    operands = OPERANDS.to(half)
    names = "mul", "mul, scalar tensor", "addcmul, scalar tensor", "elu", "mask * number"

    def all_of(x: Any) -> Any:
        return [WITH_NUMBER[name](x, 1e5) for name in names]

    results = torch.compile(all_of, backend="dmlgpu")(operands.to("dml"))
    for name, actual, expected in zip(names, results, all_of(operands.float()), strict=True):
        assert_near(actual.cpu(), expected, name)


def test_counts_beyond_float16(half: Any) -> None:
    ones = torch.ones(70000, dtype=torch.float64)
    logits = BIG[:, None] * torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    cases: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "nll_loss": (F.nll_loss, [logits, TARGET]),
        "cross_entropy": (F.cross_entropy, [logits, TARGET]),
        "mse_loss": (lambda x: F.mse_loss(x, x * 0), [ones * 100]),
        "logcumsumexp": (lambda x: torch.logcumsumexp(x, 0), [ones]),
        "norm of order 0": (lambda x: torch.linalg.vector_norm(x[:60000], 0), [ones]),
        "std": (torch.std, [BIG * 100]),
        "index_add": (lambda x, t: x[:3].index_add(0, t, x / 4), [ones, TARGET]),
        "scatter_reduce": (lambda x, t: x[:3].scatter_reduce(0, t, x, "mean"), [ones, TARGET]),
        "embedding_bag": (
            lambda x, t: F.embedding_bag(t, x[:6].reshape(3, 2), torch.tensor([0, 5, 69000], device=x.device)),
            [ones * 30000, TARGET],
        ),
        "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool2d(x.reshape(1, 1, 70000), (1, 1)), [BIG + 5]),
    }
    for name, (function, tensors) in cases.items():
        assert_close(half, function, tensors, name)


def test_gradients_of_embeddings_and_losses(half: Any) -> None:
    table = torch.randn(3, 4, generator=GENERATOR, dtype=torch.float64)
    assert_close(
        half,
        lambda x, t: F.embedding(t, x).float().mean(0).to(x.dtype) * 1000,
        [table, TARGET[:9000]],
        "embedding",
        2**-9,
    )
    assert_close(
        half,
        lambda x, t: F.cross_entropy(x * 1, t) * 1000,
        [NORMAL[0, :, :3].reshape(-1, 3), TARGET[:6]],
        "cross_entropy",
        2**-8,
    )
