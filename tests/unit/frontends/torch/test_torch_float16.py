"""Statistics, losses and normalizations of float16 on the PyTorch device: as in float64, rounded once."""

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


def assert_close(function: Callable[..., Any], tensors: list[Any], what: str, share: float = 0) -> None:
    """Assert results within four ULP of float16 of those in float64, and gradients within a share of the largest one,
    because PyTorch rounds the values that forward saves for backward."""
    backward = bool(share)
    halves = [x.half() if x.is_floating_point() else x for x in tensors]
    results = []
    for dtype, device in ((torch.float64, "cpu"), (torch.float16, "dml")):
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
        rounded = exact.half()
        finite = rounded.isfinite()
        name = f"{what}, result {index}"
        assert actual.dtype is torch.float16 and torch.equal(actual[~finite], rounded[~finite]), name
        allowed = 4 * torch.finfo(torch.float16).eps * exact[finite].abs().clamp(min=2.0**-14)
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
def test_statistics_are_rounded_once() -> None:
    for kind, x in KINDS.items():
        for name, function in STATISTICS.items():
            share = 0 if name not in OWN_GRADIENTS else 2**-4 if kind == "far" else 2**-8
            assert_close(function, [x], f"{name} of {kind}", share)


def test_counts_beyond_float16() -> None:
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
        assert_close(function, tensors, name)


def test_gradients_of_embeddings_and_losses() -> None:
    table = torch.randn(3, 4, generator=GENERATOR, dtype=torch.float64)
    assert_close(
        lambda x, t: F.embedding(t, x).float().mean(0).half() * 1000, [table, TARGET[:9000]], "embedding", 2**-9
    )
    assert_close(
        lambda x, t: F.cross_entropy(x * 1, t) * 1000,
        [NORMAL[0, :, :3].reshape(-1, 3), TARGET[:6]],
        "cross_entropy",
        2**-8,
    )
