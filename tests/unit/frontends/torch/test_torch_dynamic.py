"""Dynamic shapes of ``torch.compile`` and ``torch.export``: one graph of Dynamo, few traces, the CPU's results."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from torch import nn  # noqa: E402 - after the check
from torch._dynamo.utils import counters  # noqa: E402

from dmlgpu.frontends.torch import adapters, symbolic_views  # noqa: E402
from dmlgpu.frontends.torch.exported import load  # noqa: E402
from dmlgpu.tensors.tracing import compiled as tracing_compiled  # noqa: E402

LENGTHS = (4, 7, 9, 12, 5, 16, 21, 30, 33, 40)


@pytest.fixture(autouse=True)
def fresh_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the graphs of earlier tests, which would count as other sizes."""
    if "torchvision" not in sys.modules:
        monkeypatch.setitem(sys.modules, "torchvision", None)  # one for another PyTorch fails to import
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """A list with an entry for each trace."""
    entries: list[None] = []
    trace = tracing_compiled.Trace

    def counting(*args: Any) -> Any:
        entries.append(None)
        return trace(*args)

    monkeypatch.setattr(tracing_compiled, "Trace", counting)
    yield entries


def bert() -> tuple[Any, Callable[[int], Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertModel(config), lambda length: torch.randint(0, 64, (2, length))


def gpt2() -> tuple[Any, Callable[[int], Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=64, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, use_cache=False, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.GPT2Model(config), lambda length: torch.randint(0, 64, (2, length))


def convolutions() -> tuple[Any, Callable[[int], Any]]:
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(8 * 16, 10)), lambda batch: torch.randn(batch, 1, 8, 8)


NETWORKS = {"bert": bert, "gpt2": gpt2, "convolutions": convolutions}


def first_of(result: Any) -> Any:
    return result if isinstance(result, torch.Tensor) else result.last_hidden_state


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("name", NETWORKS)
def test_inference_of_many_sizes(name: str, dynamic: bool | None, traces: list[None]) -> None:
    """Neither Dynamo nor dmlgpu compiles a further size: with ``dynamic=None``, from the second one on."""
    model, make = NETWORKS[name]()
    model.eval()
    ours = copy.deepcopy(model).to("dml")
    function = torch.compile(lambda x: first_of(ours(x)), backend="dmlgpu", dynamic=dynamic)
    counts = []
    with torch.no_grad():
        for size in LENGTHS:
            x = make(size)
            torch.testing.assert_close(function(x.to("dml")).cpu(), first_of(model(x)), atol=1e-4, rtol=1e-4)
            counts.append((counters["stats"]["unique_graphs"], len(traces)))
    first = 1 if dynamic else 2
    assert counts[-1] == counts[first + 1] == (first, first + 1)


@pytest.mark.slow
def test_training_of_many_sizes(traces: list[None]) -> None:
    """Forward and backward computation are traced twice each; later sizes take few pipelines."""
    model, make = convolutions()
    ours = copy.deepcopy(model).to("dml")
    function = torch.compile(ours, backend="dmlgpu", dynamic=True)
    pipelines = []
    for batch in LENGTHS:
        x = make(batch)
        expected, actual = model(x), function(x.to("dml"))
        weights = torch.randn(expected.shape)
        for network, result in ((model, expected), (ours, actual)):
            network.zero_grad()
            (result * weights.to(result.device)).sum().backward()
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), atol=1e-4, rtol=1e-4)
        for theirs, parameter in zip(model.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad.cpu(), theirs.grad, atol=1e-3, rtol=1e-3)
        pipelines.append(adapters.device_of(0).pipeline_cache.info.misses)
    assert (counters["stats"]["unique_graphs"], len(traces)) == (1, 4)
    assert pipelines[-1] - pipelines[1] <= 5 * (len(LENGTHS) - 2), pipelines


@pytest.mark.slow
def test_integers_among_arguments_are_sizes(traces: list[None]) -> None:
    """An integer that Dynamo makes dynamic, in shapes and in arithmetic."""

    def function(x: Any, count: int) -> Any:
        return x[:, :count].sum(1) * count + torch.arange(count, device=x.device).sum(), count * 2

    compiled = torch.compile(function, backend="dmlgpu", dynamic=True)
    x = torch.randn(3, 50)
    for count in (5, 9, 12, 33, 7):
        expected, actual = function(x, count), compiled(x.to("dml"), count)
        torch.testing.assert_close(actual[0].cpu(), expected[0], atol=1e-4, rtol=1e-4)
        assert actual[1] == expected[1]
    assert len(traces) <= 3


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(-1, 2) * 2,
    "transposes": lambda x: (x.t() + 1).transpose(0, 1).permute(1, 0) * x.t(),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1) + 1,
    "squeeze": lambda x: (x.unsqueeze(0).squeeze(0) + x[:, None].squeeze(1)).squeeze() * 2,
    "slices": lambda x: x[1:, ::2] + x[:-1, 1::2],
    "negative slices": lambda x: x[-2:] * x[0] + x.narrow(0, x.shape[0] // 2, 1),
    "select": lambda x: x.select(0, -1) + x.select(0, 1),
    "split": lambda x: torch.cat([part * (1 + index) for index, part in enumerate(x.split([1, x.shape[0] - 1]))]),
    "pieces": lambda x: torch.cat([part * 2 for part in x.split(4)]),
    "columns": lambda x: sum(column * 2 for column in x.unbind(1)),
    "flatten": lambda x: (x.t().reshape(-1) + 1, x.flatten().unflatten(0, (-1, 2)) * 2),
    "diagonal": lambda x: x.diagonal() + 1,
    "windows": lambda x: x.unfold(0, 2, 1).sum(2),
    "new": lambda x: (
        x.new_zeros(x.shape[0], 2) + torch.ones(x.shape[0], 1, device=x.device) + torch.zeros_like(x[:, :2])
    ),
    "mean": lambda x: x.sum(0) / x.shape[0] + x.numel() ** 0.5,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_symbols(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    original = symbolic_views.has_symbols
    monkeypatch.setattr(
        "dmlgpu.frontends.torch.compiled.has_symbols",
        lambda x, arguments: original(x, arguments) and (used.append(None) or True),
    )
    function = torch.compile(VIEWS[name], backend="dmlgpu", dynamic=True)
    for rows in (5, 8, 13, 6, 9):
        x = torch.randn(rows, 4)
        expected, actual = VIEWS[name](x), function(x.to("dml"))
        for theirs, ours in zip(
            *[each if isinstance(each, tuple) else (each,) for each in (expected, actual)], strict=True
        ):
            torch.testing.assert_close(ours.cpu(), theirs, atol=1e-5, rtol=1e-5)
    assert used or name in {"mean"}


@pytest.mark.slow
def test_exported_programs_of_many_sizes(traces: list[None]) -> None:
    model, make = bert()
    model.eval()

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x).last_hidden_state

    network = Hidden()
    program = torch.export.export(network, (make(9),), dynamic_shapes=({1: torch.export.Dim("length", min=2, max=64)},))
    run = load(program)
    for length in LENGTHS:
        x = make(length)
        torch.testing.assert_close(run(x), network(x).detach(), atol=1e-4, rtol=1e-4)
    assert counters["stats"]["unique_graphs"] <= 2
    assert len(traces) <= 3
