"""float64 on the PyTorch device: the CPU's own results, for small tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")
nn: Any = torch.nn

from dmlgpu.frontends.torch import float64  # noqa: E402
from dmlgpu.tensors.array_like import Float64Warning  # noqa: E402

TENTHS = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 4) / 10 + 0.1


def embedding(positions: Any) -> Any:
    """Return rotary angles, as diffusers computes them for Flux."""
    steps = torch.arange(0, 8, 2, dtype=torch.float64, device=positions.device) / 8
    angles = torch.outer(positions.double(), 1.0 / 10000**steps)
    zeros = torch.zeros_like(angles)
    return torch.cat([angles.cos().float(), angles.sin().float(), zeros.float()], -1) * positions[:, None]


def layer(x: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (4,)).softmax(1) @ x.T


CALLS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x: (x + 0.1, 1 / x, x**3, x // 0.3, x.neg(), x > 0.1, x.round(decimals=1)),
    "functions": lambda x: (x.exp(), x.sin(), x.erf(), torch.special.gammaln(x), x.sigmoid()),
    "reductions": lambda x: (x.sum(), x.mean(1), x.std(), x.sort(1), x.argmax(), x.cumsum(0), torch.linalg.svdvals(x)),
    "layer": layer,
    "with float32": lambda x: (x * x.float(), x.float().sum(dtype=torch.float64), x.float().double()),
    "created": lambda x: (
        torch.arange(0, 1, 0.1, dtype=x.dtype, device=x.device),
        torch.linspace(0, 1, 7, dtype=x.dtype, device=x.device),
        torch.full((3,), 0.1, dtype=x.dtype, device=x.device),
        torch.eye(3, dtype=x.dtype, device=x.device),
        torch.hann_window(7, dtype=x.dtype, device=x.device),
    ),
    "moved": lambda x: (
        torch.cat([x, x]), x.flip(1), x.roll(1, 0), x.repeat(2, 1), x.T.contiguous(), x[x > 0.1], x[[2, 0], 1:],
        x.gather(1, x.argsort(1)), torch.where(x > 0, x, 0.1), x.tril(), torch.stack([x, x]), torch.zeros_like(x),
        torch.nn.functional.pad(x, (1, 2), value=0.1), x.index_select(0, torch.tensor([2, 1], device=x.device)),
        x.take(torch.tensor([0, 5], device=x.device)), x.new_full((2,), 0.1), x.to(torch.float32),
    ),
    "missing operators": lambda x: (torch.special.bessel_j0(x), torch.fft.fft(x), x.to(torch.complex128).exp()),
}  # fmt: skip


def flattened(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [x for part in value for x in flattened(part)]


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_the_cpu(name: str) -> None:
    for _ in range(2):
        results = flattened(CALLS[name](TENTHS.to("dml")))
        for result, expected in zip(results, flattened(CALLS[name](TENTHS)), strict=True):
            assert result.device.type == "dml" and result.dtype is expected.dtype
            assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("name", sorted(float64.MOVES))
def test_operators_that_move_elements_stay_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float64, "MAX_ELEMENTS", -1)
    samples: dict[str, Callable[[Any], Any]] = {
        "constant_pad_nd": lambda x: torch.nn.functional.pad(x, (1, 2)),
        "fill.Scalar": lambda x: x.clone().fill_(0.1),
        "fill.Tensor": lambda x: x.clone().fill_(torch.tensor(0.1, device=x.device)),
        "gather": lambda x: x.gather(1, torch.tensor([[1], [0], [3]], device=x.device)),
        "index.Tensor": lambda x: x[torch.tensor([2, 0], device=x.device)],
        "index_select": lambda x: x.index_select(1, torch.tensor([2, 0], device=x.device)),
        "masked_select": lambda x: x.masked_select(torch.tensor([True, False, True, False], device=x.device)),
        "select_backward": lambda x: torch.ops.aten.select_backward(x, [3, 2, 4], 1, 1),
        "slice_backward": lambda x: torch.ops.aten.slice_backward(x, [3, 9], 1, 1, 9, 2),
        "take": lambda x: x.take(torch.tensor([2, 0], device=x.device)),
        "where.self": lambda x: torch.where(torch.tensor([True, False, True, False], device=x.device), x, x[:1]),
        "cat": lambda x: torch.cat([x, x], 1),
        "stack": lambda x: torch.stack([x, x]),
        "flip": lambda x: x.flip(0),
        "repeat": lambda x: x.repeat(2, 1),
        "roll": lambda x: x.roll(1, 1),
        "tril": torch.tril,
        "triu": torch.triu,
        "zero": lambda x: x.clone().zero_(),
    }
    assert torch.equal(samples[name](TENTHS.to("dml")).cpu(), samples[name](TENTHS))


def test_in_place_and_out() -> None:
    ours, x = TENTHS.to("dml"), TENTHS.clone()
    for target in (ours, x):
        target.add_(target[:, :1].clone().expand(3, 4))
        target[:, 1].mul_(3).exp_()
        target[0] += 0.1
        target.div_(7)
    assert torch.equal(ours.cpu(), x)
    result = torch.empty(0, dtype=torch.float64, device="dml")
    assert torch.exp(ours, out=result) is result and torch.equal(result.cpu(), x.exp())


def test_gradients() -> None:
    x, ours = TENTHS.clone().requires_grad_(), TENTHS.to("dml").requires_grad_()
    for leaf in (x, ours):
        layer(leaf).pow(2).sum().backward()
    assert torch.equal(ours.grad.cpu(), x.grad)


def test_large_tensors_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float64, "MAX_ELEMENTS", 100)
    ours = torch.full((101,), 0.1, dtype=torch.float64).to("dml")
    message = r"float64 is computed on the CPU, and only .* x.float\(\) converts .*; DMLGPU_TORCH_FALLBACK=1"
    with pytest.raises(NotImplementedError, match=message):
        ours.exp()
    with pytest.raises(NotImplementedError, match=message):
        torch.arange(101, dtype=torch.float64, device="dml")
    with pytest.raises(NotImplementedError, match=message):
        torch.outer(ours[:11], ours[:11])
    assert torch.equal(ours[:10].exp().cpu(), torch.full((10,), 0.1, dtype=torch.float64).exp())
    assert ours.float().exp().cpu().equal(torch.full((101,), 0.1).exp())
    monkeypatch.setenv("DMLGPU_TORCH_FALLBACK", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ours.exp().shape == (101,)


def test_many_elements_are_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float64, "_MAX_SILENT", 11)
    monkeypatch.setattr(float64, "_announced", set())
    ours = TENTHS.to("dml")
    with pytest.warns(Float64Warning, match=r"aten::exp computes 12 elements of float64 on the CPU: x.float\(\)"):
        ours.exp()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.exp()


def test_errors_are_those_of_the_cpu() -> None:
    ours = TENTHS.to("dml")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        ours @ ours


def test_scalars_do_not_widen_tensors() -> None:
    x = torch.ones(3, device="dml") * torch.tensor(0.1, dtype=torch.float64, device="dml")
    assert x.dtype is torch.float32 and torch.equal(x.cpu(), torch.ones(3) * torch.tensor(0.1, dtype=torch.float64))


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled(dynamic: bool | None) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(embedding, backend="dmlgpu", dynamic=dynamic)
    x, ours = torch.arange(5.0).requires_grad_(), torch.arange(5.0, device="dml").requires_grad_()
    for _ in range(2):
        torch.testing.assert_close(compiled(ours).cpu(), embedding(x))
    torch.testing.assert_close(compiled(x), embedding(x))  # on the CPU
    for function, leaf in ((embedding, x), (compiled, ours)):
        function(leaf).pow(2).sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), x.grad)


def test_exported() -> None:
    import dmlgpu.torch

    class Embedding(nn.Module):
        def forward(self, x: Any) -> Any:
            return embedding(x)

    x = torch.arange(5.0)
    run = dmlgpu.torch.load(torch.export.export(Embedding(), (x,)))
    torch.testing.assert_close(run(x), embedding(x))


def test_float64_as_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        for device in ("dml", "cpu"):
            results = torch.arange(0, 1, 0.1, device=device), torch.tensor([1, 2], device=device) / 3
            expected = torch.arange(0, 1, 0.1), torch.tensor([1, 2]) / 3
            assert all(torch.equal(x.cpu(), y) for x, y in zip(results, expected, strict=True))
    finally:
        torch.set_default_dtype(torch.float32)
