"""Valid calls that are rare: no elements, ignored targets, no biases, tensors of two devices, views of bits.

Each function runs eagerly and compiled, and is compared with PyTorch's CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

import torch.nn.functional as F  # noqa: E402

MODES = ["eager", "compiled"]
DTYPES = [torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8]


def in_mode(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(function, backend="dmlgpu") if mode == "compiled" else function


def with_gradients(function: Callable[..., Any], tensors: list[Any], device: str) -> list[Any]:
    """Return results, and gradients of floating-point tensors, on the CPU."""
    inputs = [x.detach().to(device, copy=True).requires_grad_(x.requires_grad) for x in tensors]
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for result in results:
        if result.requires_grad:
            result.sum().backward(retain_graph=True)
    return [x.detach().cpu() for x in (*results, *(x.grad for x in inputs if x.grad is not None))]


def check(function: Callable[..., Any], tensors: list[Any], mode: str, name: str) -> None:
    expected = with_gradients(function, tensors, "cpu")
    actual = with_gradients(in_mode(function, mode), tensors, "dml")
    assert len(actual) == len(expected), name
    for result, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            result, reference, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda text: f"{name}: {text}"
        )


# ---- no elements -----------------------------------------------------------------------------------------------------

IMAGES, ROWS = (0, 3, 5, 5), (0, 3)
EMPTY: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "mse_loss": (lambda x: F.mse_loss(x, x * 2), ROWS),
    "l1_loss": (lambda x: F.l1_loss(x, x * 2), ROWS),
    "smooth_l1_loss": (lambda x: F.smooth_l1_loss(x, x * 2), ROWS),
    "huber_loss": (lambda x: F.huber_loss(x, x * 2), ROWS),
    "huber_loss, sum": (lambda x: F.huber_loss(x, x * 2, reduction="sum"), ROWS),
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x.sigmoid(), x.detach()), ROWS),
    "binary_cross_entropy_with_logits": (lambda x: F.binary_cross_entropy_with_logits(x, x.detach()), ROWS),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, x.detach()), ROWS),
    "kl_div": (lambda x: F.kl_div(x, x.detach(), reduction="sum"), ROWS),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.zeros(0, dtype=torch.int64, device=x.device)), ROWS),
    "conv2d": (lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3, device=x.device)), IMAGES),
    "conv2d of no channels": (
        lambda x: F.conv2d(x, torch.ones(2, 0, 3, 3, device=x.device), torch.ones(2, device=x.device)),
        (2, 0, 5, 5),
    ),
    "conv1d with a bias": (
        lambda x: F.conv1d(x, torch.ones(2, 3, 3, device=x.device), torch.ones(2, device=x.device), stride=2),
        (0, 3, 5),
    ),
    "conv3d": (lambda x: F.conv3d(x, torch.ones(2, 1, 1, 2, 2, device=x.device)), (0, 1, 3, 3, 3)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 3, device=x.device), stride=2), IMAGES),
    "conv_tbc": (
        lambda x: torch.conv_tbc(x, torch.ones(3, 2, 4, device=x.device), torch.ones(4, device=x.device), 1),
        (5, 0, 2),
    ),
    "median": (lambda x: x.median(1), ROWS),
    "median, axis kept": (lambda x: x.median(1, keepdim=True), ROWS),
    "nanmedian": (lambda x: x.nanmedian(1), ROWS),
    "mode": (lambda x: x.mode(1), ROWS),
    "kthvalue": (lambda x: x.kthvalue(2, 1), ROWS),
    "batch_norm": (lambda x: F.batch_norm(x, torch.zeros(3, device=x.device), torch.ones(3, device=x.device)), IMAGES),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), IMAGES),
}


@pytest.mark.parametrize("mode", MODES)
def test_no_elements(mode: str) -> None:
    for name, (function, sizes) in EMPTY.items():
        check(function, [torch.zeros(sizes).requires_grad_()], mode, name)


def test_axes_of_no_elements_are_rejected() -> None:
    for function in (torch.median, torch.mode, torch.nanmedian):
        with pytest.raises(IndexError):
            function(torch.zeros(3, 0, device="dml"), 1)


# ---- targets ---------------------------------------------------------------------------------------------------------

LOGITS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "cross_entropy": lambda x, t: F.cross_entropy(x, t, ignore_index=0),
    "label smoothing": lambda x, t: F.cross_entropy(x, t, ignore_index=0, label_smoothing=0.1),
    "weights": lambda x, t: F.cross_entropy(x, t, ignore_index=0, weight=x[0].detach().abs()),
    "sum": lambda x, t: F.cross_entropy(x, t, ignore_index=0, reduction="sum"),
    "of each": lambda x, t: F.cross_entropy(x, t, ignore_index=0, reduction="none"),
    "2-D": lambda x, t: F.nll_loss(x.T[None], t[None], ignore_index=0),
    "one": lambda x, t: F.nll_loss(x[0], t[0], ignore_index=0),
}


@pytest.mark.parametrize(  # PyTorch traces no targets of uint8
    ("dtype", "mode"), [(torch.int64, "eager"), (torch.int64, "compiled"), (torch.uint8, "eager")], ids=str
)
def test_ignored_targets(dtype: Any, mode: str) -> None:
    for targets in ([0, 0, 0, 0], [0, 2, 1, 0], [1, 2, 1, 1]):
        for name, loss in LOSSES.items():
            target = torch.tensor(targets).to(dtype)
            try:
                check(loss, [LOGITS, target], "eager", name)
            except RuntimeError as error:  # the CPU has no kernel for uint8
                assert dtype is torch.uint8 and "expected scalar type" in str(error), name
                continue
            if mode == "compiled":
                check(loss, [LOGITS, target], mode, name)


# ---- layers without biases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("mode", MODES)
def test_recurrent_layers_without_biases(kind: str, mode: str) -> None:
    if (kind, mode) == ("LSTMCell", "compiled"):
        pytest.skip("PyTorch's meta kernel of the cell rejects cells without biases")
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 5, bias=False)
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Any, *weights: Any) -> Any:
        result = torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))
        return result[0] if isinstance(result, tuple) else result

    x = torch.randn(3, 4) if kind.endswith("Cell") else torch.randn(3, 2, 4)
    check(run, [x.requires_grad_(), *layer.parameters()], mode, kind)


# ---- tensors of two devices ------------------------------------------------------------------------------------------

BUFFER = torch.tensor([1.0, 2.0, 3.0])
MIXED: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: x + torch.arange(3).to(x.device),
    "ones": lambda x: x + torch.ones(3).to(x.device),
    "eye": lambda x: x @ torch.eye(3).type_as(x),
    "constant": lambda x: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device),
    "constant of float64": lambda x: x + torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).to(x.device, x.dtype),
    "number": lambda x: x * torch.tensor(3.0),
    "buffer": lambda x: x + BUFFER.to(x.device),
    "computed on the CPU": lambda x: x + (BUFFER * 2).sin().to(x.device),
    "computed in float64": lambda x: x + torch.linspace(0, 1, 3, dtype=torch.float64).exp().to(x.device, x.dtype),
    "moved to the CPU": lambda x: ((x * 2).cpu() + 1).cos(),
    "there and back": lambda x: (x * 2).cpu().exp().to(x.device) + 1,
}


@pytest.mark.parametrize("name", MIXED)
def test_compiled_functions_of_two_devices(name: str) -> None:
    x = torch.tensor([1.0, 2.0, -3.0])
    result = in_mode(MIXED[name], "compiled")(x.to("dml"))
    assert result.device == MIXED[name](x.to("dml")).device
    torch.testing.assert_close(result.cpu(), MIXED[name](x))


def test_random_numbers_of_the_cpu_are_its_own() -> None:
    def noisy(x: Any) -> Any:
        return x + torch.rand(3).to(x.device)

    x = torch.zeros(3, device="dml")
    results = []
    for function in (noisy, in_mode(noisy, "compiled")):
        torch.manual_seed(0)
        results.append(function(x).cpu())
    assert torch.equal(*results)


def test_models_on_the_cpu_with_constants() -> None:
    x = torch.tensor([1.0, 2.0, -3.0])
    function = in_mode(lambda x: x * torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3), "compiled")
    assert function(x).tolist() == [1, 5, -7]


# ---- views of bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_compiled_views_of_another_dtype(source: Any) -> None:
    numbers = torch.tensor([[1.0, 2.0, -3.0, 0.5, 100.0, 7.0, 0.0, 77.0]] * 2)
    numbers = numbers if source.is_floating_point else numbers.round()
    x = numbers.to(source) if source is not torch.uint8 else numbers.abs().to(source)
    for target in DTYPES:
        for kind, base in {"packed": x, "part": x[1:], "strided": torch.stack([x, x], 0)[:, 1]}.items():

            def viewed(x: Any, target: Any = target) -> Any:
                bits = x.view(target)
                return bits if target.is_floating_point else bits ^ 1, bits

            results = in_mode(viewed, "compiled")(base.to("dml"))
            for result, expected in zip(results, viewed(base), strict=True):
                what = f"{source} to {target}, {kind}"
                assert result.dtype is target, what
                assert torch.equal(result.cpu().view(torch.uint8), expected.contiguous().view(torch.uint8)), what


def test_views_of_bits_in_exported_programs() -> None:
    import dmlgpu.torch

    class Bits(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.view(torch.int32) >> 1

    x = torch.tensor([1.0, -2.0])
    run = dmlgpu.torch.load(torch.export.export(Bits(), (x,)))
    assert torch.equal(run(x), Bits()(x))


# ---- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("eps", [None, 0.2, 0.5, 0.6])
def test_logit_with_bounds_in_any_order(eps: Any, mode: str) -> None:
    """PyTorch takes the lower bound below it, and the upper one above it, even if both hold."""
    x = torch.tensor([0.1, 0.3, 0.5, 0.55, 0.7, 0.9, float("nan")])
    check(lambda x: torch.logit(x, eps), [x], mode, f"logit {eps}")


@pytest.mark.parametrize("mode", MODES)
def test_uniform_numbers_never_reach_the_end(mode: str) -> None:
    limits = [(0.0, 1.0), (2.0, 3.0), (-1.0, 1.0), (1.0, 1.001), (0.0, 0.1), (-3.0, -2.9), (5.0, 5.0)]

    def draw(x: Any) -> Any:
        return [torch.rand_like(x), *(torch.empty_like(x).uniform_(*pair) for pair in limits)]

    torch.manual_seed(0)
    for dtype in (torch.float16, torch.float32):
        results = in_mode(draw, mode)(torch.zeros(200_000, dtype=dtype, device="dml"))
        for (low, high), values in zip([(0.0, 1.0), *limits], results, strict=True):
            ends = torch.tensor([low, high])
            host = values.cpu().float()
            assert values.dtype is dtype
            assert ((host >= ends[0].to(dtype)).all() and (host < ends[1]).all()) or low == high, (dtype, low, high)
            spacing = torch.finfo(dtype).eps * max(abs(low), abs(high))
            assert abs(host.double().mean() - (low + high) / 2) < (high - low) / 100 + spacing, (dtype, low, high)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16, torch.int64])
def test_assertions_of_values(dtype: Any, mode: str) -> None:
    def positive(x: Any, *message: str) -> Any:
        torch._assert_async((x > 0).to(dtype), *message)
        return x + 1

    function = in_mode(positive, mode)
    assert function(torch.ones(1, device="dml"), "too small").cpu() == 2
    # PyTorch itself drops assertions without a message from graphs.
    default = ["too small"] if mode == "compiled" else []
    for x, message in ((torch.zeros(1), ["too small"]), (torch.zeros(()), default), (torch.ones(2), ["too small"])):
        with pytest.raises(RuntimeError) as expected:
            positive(x, *message)
        with pytest.raises(RuntimeError) as actual:
            function(x.to("dml"), *message)
        assert str(actual.value).splitlines()[0] == str(expected.value)
