"""Tensors of bfloat16 on the PyTorch device, against PyTorch's CPU."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 is not installed")

from torch import nn  # noqa: E402 - after the check

import dmlgpu.torch  # noqa: E402

BF16 = torch.bfloat16
EVERY = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(BF16)
GENERATOR = torch.Generator().manual_seed(0)


def normal(*sizes: int) -> Any:
    return torch.randn(sizes, generator=GENERATOR).to(BF16)


def assert_rounded(actual: Any, exact: Any) -> None:
    """Assert that results are those in float32, which may cancel each other, rounded once."""
    assert actual.dtype is BF16 and actual.device.type == "dml"
    exact = exact.detach()
    largest = float(exact.abs().max())
    torch.testing.assert_close(actual.detach().cpu().float(), exact, rtol=2**-8, atol=1e-5 * largest)


def bits(x: Any) -> list[int]:
    result: list[int] = x.view(torch.int16).tolist()
    return result


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_every_element_is_moved_and_widened_exactly() -> None:
    x = EVERY.to("dml")
    assert x.element_size() == 2 and x.untyped_storage().nbytes() == 2 << 16
    assert bits(x.cpu()) == bits(EVERY) == x.view(torch.int16).tolist()
    wide = EVERY.float()
    normals = (wide == 0) | (wide.abs() >= torch.finfo(torch.float32).tiny) | wide.isnan()
    assert torch.equal(x.float().cpu()[normals].nan_to_num(7), wide[normals].nan_to_num(7))


def test_floats_are_rounded_to_nearest_even() -> None:
    ties = torch.arange(0x3F7E_0000, 0x3F84_0000, 0x4000, dtype=torch.int32)
    x = torch.cat([ties - 1, ties, ties + 1]).view(torch.float32)
    x = torch.cat([x, -x, torch.tensor([3.3895e38, 3.4e38, float("inf"), -float("inf"), 1e-30])])
    assert bits(x.to("dml").to(BF16).cpu()) == bits(x.to(BF16))
    assert torch.tensor([float("nan"), -float("nan")]).to("dml").to(BF16).isnan().all()
    integers = torch.arange(-600, 600)
    assert torch.equal(integers.to("dml").to(BF16).cpu(), integers.to(BF16))
    assert torch.equal(EVERY[:0x4F00].to("dml").int().cpu(), EVERY[:0x4F00].int())


def test_views_and_copies() -> None:
    x = normal(6, 10)
    moved = x.to("dml")
    for function in (
        lambda x: x.t(),
        lambda x: x[1:, ::3],
        lambda x: x[:, 1].expand(4, 6),
        lambda x: x.view(torch.float16).view(torch.int16),
        lambda x: x.view(torch.int32),
        lambda x: x.unfold(1, 3, 2),
        lambda x: torch.cat([x, x[::2]]),
        lambda x: x.flip(0).roll(1),
        lambda x: x.clone().index_fill_(0, torch.tensor([1], device=x.device), 0.1),
        lambda x: x.to(torch.float64),
        lambda x: x.to(torch.int8),
        lambda x: x.bool(),
        lambda x: x.reshape(3, 2, 2, 5).to(memory_format=torch.channels_last),
    ):
        expected, actual = function(x), function(moved)
        assert actual.dtype is expected.dtype and actual.stride() == expected.stride()
        assert torch.equal(actual.cpu(), expected)
    target = torch.zeros(6, 10, dtype=BF16, device="dml")
    target[:, 1::2] = moved[:, ::2]
    target[2, 3] = 0.1
    assert target[:, 1].tolist() == x[:, 0].tolist() and target[2, 3].item() == torch.tensor(0.1, dtype=BF16).item()
    odd = moved.flatten()[1:4].contiguous()
    assert odd.tolist() == x.flatten()[1:4].tolist() and copy.deepcopy(odd).tolist() == odd.tolist()


def test_printing_saving_and_loading() -> None:
    model = nn.Linear(3, 2).to(BF16).to("dml")
    assert "dtype=torch.bfloat16" in repr(model.weight)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for place in ("cpu", "dml"):
        state = torch.load(io.BytesIO(file.getvalue()), map_location=place)
        assert state["weight"].device.type == place and torch.equal(state["weight"].cpu(), model.weight.detach().cpu())
    model.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2, dtype=BF16)})
    assert model.weight.dtype is BF16 and model.weight.sum().item() == 6


# ---- computation -----------------------------------------------------------------------------------------------------


def test_dtypes_are_promoted_as_on_the_cpu() -> None:
    kinds = torch.float32, torch.float16, BF16, torch.int64, torch.uint8, torch.bool
    for kind in kinds:
        for sizes in ((), (1,), (2,)):
            other = torch.ones(sizes, dtype=kind)
            for function in (torch.add, torch.mul, torch.div, torch.eq, torch.maximum):
                expected = function(EVERY[16384:16386], other)
                actual = function(EVERY[16384:16386].to("dml"), other.to("dml"))
                assert actual.dtype is expected.dtype, (kind, sizes, function)
                assert torch.equal(actual.cpu(), expected)
    assert (EVERY[:1].to("dml") + 1).dtype is (EVERY[:1].to("dml") * 0.5).dtype is BF16


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "matmul": (torch.matmul, [normal(3, 17, 40), normal(40, 9)]),
    "linear": (nn.functional.linear, [normal(5, 33), normal(7, 33), normal(7)]),
    "conv2d": (nn.functional.conv2d, [normal(2, 6, 9, 9), normal(4, 6, 3, 3), normal(4)]),
    "conv_transpose2d": (nn.functional.conv_transpose2d, [normal(2, 4, 5, 5), normal(4, 3, 3, 3)]),
    "softmax": (lambda x: torch.softmax(x, -1), [normal(4, 50)]),
    "log_softmax": (lambda x: torch.log_softmax(x, 0), [normal(40, 5)]),
    "layer_norm": (lambda x, w, b: nn.functional.layer_norm(x, (32,), w, b), [normal(6, 32), normal(32), normal(32)]),
    "rms_norm": (lambda x, w: nn.functional.rms_norm(x, (32,), w), [normal(6, 32), normal(32)]),
    "gelu": (nn.functional.gelu, [normal(100)]),
    "silu": (nn.functional.silu, [normal(100)]),
    "exp": (torch.exp, [normal(100)]),
    "a product with a number": (lambda x: x * 0.1, [normal(100)]),
    "a sum of products": (lambda x, y: torch.addcmul(x, x, y, value=0.3), [normal(9), normal(9)]),
    "sum": (lambda x: x.sum(0), [normal(3000, 2).abs()]),
    "mean": (lambda x: x.mean(), [normal(3000)]),
    "max_pool2d": (lambda x: nn.functional.max_pool2d(x, 2), [normal(1, 3, 8, 8)]),
    "bicubic": (lambda x: nn.functional.interpolate(x, scale_factor=2, mode="bicubic"), [normal(1, 2, 5, 5)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_float32_rounded_once(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    wide = [x.float().requires_grad_() for x in inputs]
    moved = [x.to("dml").requires_grad_() for x in inputs]
    expected = function(*wide)
    weights = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape).to(BF16)
    for _ in range(2):  # the second call repeats the first one
        actual = function(*moved)
        assert_rounded(actual, expected)
    expected.backward(weights.float())
    actual.backward(weights.to("dml"))
    for x, reference in zip(moved, wide, strict=True):  # forward's rounded results are operands of gradients
        largest = float(reference.grad.abs().max())
        assert x.grad.dtype is BF16
        torch.testing.assert_close(x.grad.cpu().float(), reference.grad, rtol=2**-7, atol=2**-8 * largest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_attention_are_those_of_float32_rounded_once(dtype: torch.dtype) -> None:
    """Weights and scores are not rounded on the way: these differ by tens."""
    attend = torch.nn.functional.scaled_dot_product_attention
    operands = [(3 * normal(2, 4, 5, 8)).to(dtype) for _ in range(3)]
    factors = normal(2, 4, 5, 8).to(dtype)

    def gradients(device: str, kind: torch.dtype) -> Any:
        leaves = [x.detach().to(device, kind).requires_grad_() for x in operands]
        return torch.autograd.grad(attend(*leaves), leaves, factors.to(device, kind))

    for actual, exact in zip(gradients("dml", dtype), gradients("cpu", torch.float32), strict=True):
        tolerance = torch.finfo(dtype).eps / 2
        torch.testing.assert_close(actual.float().cpu(), exact, rtol=tolerance * 1.01, atol=tolerance * 1e-2)


def network() -> Any:
    torch.manual_seed(0)
    layers = nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 4)
    return nn.Sequential(*layers).to(BF16)


def errors(results: list[Any], exact: list[Any]) -> list[float]:
    """Return the error of each result relative to its largest element."""
    pairs = zip(results, exact, strict=True)
    return [float((x.detach().cpu().double() - y).abs().max() / y.abs().max()) for x, y in pairs]


@pytest.mark.parametrize("compiles", [False, True])
def test_networks_are_as_accurate_as_on_the_cpu(compiles: bool) -> None:
    torch.compiler.reset()
    x, results = normal(8, 16), []
    for dtype, device in ((torch.float64, "cpu"), (BF16, "cpu"), (BF16, "dml")):
        module = network().to(dtype).to(device)
        run = torch.compile(module, backend="dmlgpu") if compiles and device == "dml" else module
        y = run(x.to(dtype).to(device))
        assert y.dtype is dtype
        y.float().square().mean().backward() if dtype is BF16 else y.square().mean().backward()
        results.append([y, *(parameter.grad for parameter in module.parameters())])
    exact = [value.detach() for value in results[0]]
    for ours, theirs in zip(errors(results[2], exact), errors(results[1], exact), strict=True):
        assert ours <= 1.5 * theirs + 2**-8


def test_compiled_views_and_draws() -> None:
    torch.compiler.reset()

    def function(x: Any) -> Any:
        drawn = torch.rand(50, dtype=BF16, device=x.device) + torch.full((50,), 2.0, dtype=BF16, device=x.device)
        return (x.view(torch.int16) + 1).view(BF16), x.float().to(BF16) * 0.1, drawn

    x = normal(5, 8)
    view, product, drawn = torch.compile(function, backend="dmlgpu")(x.to("dml"))
    assert bits(view.cpu()) == bits((x.view(torch.int16) + 1).view(BF16))
    assert_rounded(product, x.float() * 0.1)
    assert drawn.dtype is BF16 and drawn.min() >= 2 and drawn.max() <= 3


@pytest.mark.parametrize("number", [16842753, 2**40 + 2**32 + 1, 1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40])
def test_numbers_are_rounded_to_float32_first(number: float) -> None:
    for call in (
        lambda device: torch.full((2,), number, dtype=BF16, device=device),
        lambda device: torch.zeros(2, dtype=BF16, device=device).fill_(number),
        lambda device: torch.zeros(2, 2, dtype=BF16, device=device)[0].fill_(number),
        lambda device: torch.zeros(2, dtype=BF16, device=device) + number,
        lambda device: torch.zeros(2, dtype=BF16, device=device).masked_fill_(torch.ones(2, device=device) > 0, number),
        lambda device: torch.tensor([number, number]).to(device).to(BF16),
    ):
        assert call("dml").tolist() == call("cpu").tolist()


def test_exported_programs(tmp_path: Path) -> None:
    module, x, path = network(), normal(3, 16), tmp_path / "model.pt2"
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)), path)
    program = dmlgpu.torch.load(path)
    for rows in (x, normal(7, 16)):
        result = program(rows)
        assert result.dtype is BF16
        torch.testing.assert_close(result.cpu(), module(rows).detach(), rtol=2**-5, atol=2**-6)
    array = program(x.float().numpy().astype(ml_dtypes.bfloat16))
    assert array.dtype == ml_dtypes.bfloat16 and array.tolist() == program(x).tolist()


def test_transformers_of_bfloat16() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).to(BF16).eval()
    x = normal(2, 7, 32)
    exact = copy.deepcopy(layer).double()(x.double()).detach()
    result = copy.deepcopy(layer).to("dml")(x.to("dml"))
    (ours,), (theirs,) = errors([result], [exact]), errors([layer(x)], [exact])
    assert result.dtype is BF16 and ours <= 1.5 * theirs + 2**-8


# ---- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Muon"])
def test_optimizers(name: str) -> None:
    make = getattr(torch.optim, name, None)
    if make is None:
        pytest.skip(f"the installed PyTorch has no {name}")
    gradient = normal(24, 16)
    weights = []
    for device in ("cpu", "dml"):
        weight = nn.Parameter(torch.ones(24, 16, dtype=BF16, device=device))
        optimizer = make([weight], lr=0.02)
        for _ in range(3):
            weight.grad = gradient.to(device)
            optimizer.step()
        weights.append(weight.detach().cpu().float())
    assert not torch.equal(weights[0], torch.ones(24, 16))
    torch.testing.assert_close(weights[1], weights[0], rtol=2**-6, atol=2**-7)


def test_muon_on_weights_of_float32_computes_in_bfloat16() -> None:
    muon = pytest.importorskip("torch.optim._muon", reason="the installed PyTorch has no Muon")
    gradient = torch.randn(24, 16, generator=GENERATOR)
    a, b, c = coefficients = (3.4445, -4.7750, 2.0315)
    exact = gradient.T.double() / gradient.double().norm()
    for _ in range(5):
        gram = exact @ exact.T
        exact = a * exact + (b * gram + c * gram @ gram) @ exact
    ours, theirs = (
        muon._zeropower_via_newtonschulz(gradient.to(device), coefficients, 5, 1e-7) for device in ("dml", "cpu")
    )
    assert ours.dtype is BF16
    (error,), (other,) = errors([ours], [exact.T]), errors([theirs], [exact.T])
    assert error <= 1.5 * other


def test_autocast_trains_weights_of_float32() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to("dml")
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.03)
    x = torch.randn(32, 8, generator=GENERATOR).to("dml")
    target, losses = x.sum(1, keepdim=True), []
    for _ in range(20):
        with torch.autocast("dml", dtype=BF16):
            y = module(x)
            loss = nn.functional.mse_loss(y, target)
        assert y.dtype is BF16 and loss.dtype is torch.float32
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert module[0].weight.grad.dtype is torch.float32 and losses[-1] < losses[0] / 4
    assert torch.dml.is_bf16_supported() and not torch.dml.is_bf16_supported(including_emulation=False)


def test_random_numbers() -> None:
    torch.manual_seed(0)
    uniform = torch.rand(20000, dtype=BF16, device="dml")
    assert float(uniform.min()) >= 0 and float(uniform.max()) < 1 and abs(float(uniform.float().mean()) - 0.5) < 0.01
    draws = torch.randn(20000, dtype=BF16, device="dml").float()
    assert abs(float(draws.mean())) < 0.03 and abs(float(draws.std()) - 1) < 0.03
    scaled = nn.functional.dropout(torch.ones(20000, dtype=BF16, device="dml"), 0.25)
    assert scaled.dtype is BF16 and set(scaled.unique().tolist()) == {0.0, torch.tensor(4 / 3, dtype=BF16).item()}
    assert abs(float((scaled > 0).float().mean()) - 0.75) < 0.02
    whole = torch.empty(5000, dtype=BF16, device="dml").random_()
    assert whole.max() <= 256 and torch.equal(whole, whole.round())
