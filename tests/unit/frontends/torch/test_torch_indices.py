"""Indices out of range on the PyTorch device: those that the host knows raise IndexError where PyTorch's CPU raises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.frontends.torch import indices  # noqa: E402 - imports torch

functional = torch.nn.functional
X = torch.arange(12.0).reshape(3, 4)


def index(*values: Any) -> Any:
    return torch.tensor(values)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda x, i: functional.embedding(i, x),
    "embedding_bag": lambda x, i: functional.embedding_bag(i, x, torch.tensor([0], device=x.device)),
    "cross_entropy": lambda x, i: functional.cross_entropy(x.mT[: len(i)], i),
    "nll_loss": lambda x, i: functional.nll_loss(x.mT[: len(i)], i, x[:, 0], reduction="none"),
    "nll_loss of pixels": lambda x, i: functional.nll_loss(
        x.expand(1, 3, 4)[..., None][:, :, : len(i)], i[None, :, None]
    ),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 9.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[: len(i)]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[: len(i)]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[: len(i)], "prod"),
    "index_fill": lambda x, i: x.index_fill(0, i, 9.0),
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x.mT[:, i],
    "x[i, j]": lambda x, i: x[i, i],
    "x[mask, i]": lambda x, i: x.mT[torch.tensor([True] * len(i) + [False] * (4 - len(i)), device=x.device), i],
    "x[mask of 2 axes, i]": lambda x, i: x.expand(9, 3, 4).permute(2, 0, 1)[
        torch.arange(36, device=x.device).reshape(4, 9) < len(i), i
    ],
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "take": lambda x, i: x[:, 0].take(i),
    "put": lambda x, i: x[:, 0].put(i, x[0, : len(i)]),
}
"""Calls whose indices may be 0 to 2; some allow -3 to -1 too."""


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    call, y = OPERATORS[name], X.to("dml")
    torch.testing.assert_close(call(y, index(2, 0).to("dml")).cpu(), call(X, index(2, 0)))
    for values in ((0, 3), (-4, 1), (-1, 0)):
        try:
            expected = call(X, index(*values))
        except (IndexError, RuntimeError):
            place = int(values[0] < 0)
            wrong = values[1 - place]
            with pytest.raises(IndexError, match=rf"^aten::\w+.*: indices must be between .* got {wrong} at \[.*\]"):
                call(y, index(*values).to("dml"))
        else:
            torch.testing.assert_close(call(y, index(*values).to("dml")).cpu(), expected)
    torch.testing.assert_close(call(y, index(1, 0).to("dml")).cpu(), call(X, index(1, 0)))  # the device goes on


def test_in_place_and_out() -> None:
    y, out = X.to("dml"), torch.empty(1, 4, device="dml")
    for call in (
        lambda: y.index_add_(0, index(3).to("dml"), y[:1]),
        lambda: y.index_put_((index(3),), y[0]),
        lambda: torch.index_select(y, 0, index(3).to("dml"), out=out),
        lambda: y.__setitem__(index(-4).to("dml"), 1.0),
    ):
        with pytest.raises(IndexError, match="indices must be between"):
            call()
    assert torch.equal(y.cpu(), X)


def test_ignored_classes() -> None:
    scores, target = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), index(0, -100, 2, -100)
    ours = functional.cross_entropy(scores.to("dml"), target.to("dml"))
    torch.testing.assert_close(ours.cpu(), functional.cross_entropy(scores, target))
    with pytest.raises(IndexError, match=r"between 0 and 2, or -1, got -100 at \[1\]"):
        functional.cross_entropy(scores.to("dml"), target.to("dml"), ignore_index=-1)


def test_the_host_knows_views_copies_and_casts() -> None:
    y, numbers = X.to("dml"), index(0, 1, 7, 2, 3, 8).to("dml")
    assert y.index_select(0, numbers[:2]).tolist() == X[:2].tolist()
    assert y.index_select(0, numbers.view(2, 3)[:, 0][:1]).tolist() == X[:1].tolist()
    for wrong in (
        numbers.view(2, 3)[:, 2],
        numbers[1:3].clone(),
        numbers[::2].contiguous(),
        numbers.int(),
        numbers.int().long(),
        index(1, 3).to("dml", torch.int32),
        index(1, 3).to(torch.uint8).to("dml", torch.int64),
        torch.zeros(2, dtype=torch.int64, device="dml").copy_(index(1, 3)),
        torch.tensor([1, 3], device="dml"),
    ):
        with pytest.raises(IndexError, match="aten::index_select: indices must be between 0 and 2"):
            y.index_select(0, wrong)


def test_written_indices_are_not_those_of_the_host() -> None:
    y, numbers = X.to("dml"), index(1, 7, 0).to("dml")
    numbers[1] = 2
    assert y.index_select(0, numbers).tolist() == X[[1, 2, 0]].tolist()
    for write in (
        lambda i: i.fill_(1),
        lambda i: i.view(3, 1).sub_(i.view(3, 1) - 1),
        lambda i: i.set_(i.clone() * 0 + 1),
    ):
        numbers = index(7, 7, 7).to("dml")
        write(numbers)
        assert y.index_select(0, numbers).tolist() == X[[1, 1, 1]].tolist()


@pytest.mark.parametrize("shift", [False, True])
def test_compiled(shift: bool) -> None:
    def loss(scores: Any, labels: Any) -> Any:
        if shift:  # as language models do
            scores, labels = scores[:, :-1].reshape(-1, 3), labels[:, 1:].reshape(-1)
        return functional.cross_entropy(scores.reshape(-1, 3), labels.reshape(-1).long())

    torch.compiler.reset()
    fast = torch.compile(loss, backend="dmlgpu")
    scores = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    leaf = scores.to("dml").requires_grad_()
    first = 9 if shift else 0
    labels = torch.tensor([[first, -100, 2], [0, 1, 2]])
    torch.testing.assert_close(fast(leaf, labels.to("dml")).cpu(), loss(scores, labels), check_device=False)
    labels[1, 1] = 3
    with pytest.raises(IndexError, match=r"aten::nll_loss_forward: .* got 3 at \[\d\], in\n(?s:.*)test_torch_indices"):
        fast(leaf, labels.to("dml"))


def test_compiled_for_tensors_of_the_cpu() -> None:
    torch.compiler.reset()
    rows = torch.compile(lambda x, i: functional.embedding(i, x) + 1, backend="dmlgpu")
    assert rows(X, index(2)).tolist() == (X[2:] + 1).tolist()
    with pytest.raises(IndexError, match="between 0 and 2, got 3"):
        rows(X, index(3))


def test_checks_of_all_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    y, computed = X.to("dml"), index(1, 2).to("dml") + 1
    torch.compiler.reset()
    assert y.index_select(0, computed)[0].tolist() == X[2].tolist()
    monkeypatch.setattr(indices, "checks_all", True)
    with pytest.raises(IndexError, match=r"aten::index_select: indices must be between 0 and 2, got 3 at \[1\]"):
        y.index_select(0, computed)
    rows = torch.compile(lambda x, i: functional.embedding(i + 1, x), backend="dmlgpu")
    assert rows(y, index(1).to("dml")).tolist() == X[2:].tolist()
    with pytest.raises(IndexError, match=r"aten::embedding: indices must be between 0 and 2, got 3 at \[0\]"):
        rows(y, index(2).to("dml"))
    torch.compiler.reset()


def test_the_variable() -> None:
    code = "import dmlgpu.torch; from dmlgpu.frontends.torch import indices; print(indices.checks_all)"
    for value, expected in (("1", "True"), ("0", "False")):
        environment = {**os.environ, indices.VARIABLE: value}
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert result.stdout.strip() == expected
