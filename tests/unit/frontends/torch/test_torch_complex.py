"""Complex numbers and Fourier transforms of the PyTorch device, against the CPU."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")
nn: Any = torch.nn

from tests.unit.frontends.torch.torch_comparison import check_on_device  # noqa: E402


def numbers(*sizes: int, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(len(sizes))
    return torch.randn(*sizes, dtype=dtype or torch.complex64, generator=generator)


def leaf(*sizes: int, dtype: Any = None) -> Any:
    return numbers(*sizes, dtype=dtype).requires_grad_()


OF_ONE = [
    "abs", "angle", "conj", "conj_physical", "cos", "cosh", "exp", "log", "neg", "reciprocal", "rsqrt", "sgn",
    "sigmoid", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_number(name: str) -> None:
    check_on_device(getattr(torch, name), [leaf(3, 4)])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "eq", "ne"])
def test_functions_of_two_numbers(name: str) -> None:
    function = getattr(torch, name)
    check_on_device(function, [numbers(3, 4), numbers(4)])
    check_on_device(function, [numbers(3, 4), torch.tensor([2.0, -1.0, 0.5, 3.0])])
    check_on_device(lambda x: function(x, 2 - 1j), [numbers(3, 4)])
    check_on_device(lambda x: function(x, 2), [numbers(3, 4)])


CALLS: dict[str, Callable[..., Any]] = {
    "parts": lambda x: (x.real, x.imag, torch.view_as_real(x)),
    "pairs": lambda x: torch.view_as_complex(torch.view_as_real(x).flip(0) * 2),
    "sums": lambda x: (x.sum(), x.sum(1), x.mean(0, keepdim=True), x.cumsum(1)),
    "norms": lambda x: (torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, dim=1)),
    "joins": lambda x: (torch.cat([x, 2 * x], 1), torch.stack([x, x.conj()])),
    "shapes": lambda x: (x.reshape(2, 6), x.T.contiguous(), x.permute(1, 0).reshape(-1), x[1:, ::2] * 1j, x.flip(1)),
    "indexing": lambda x: (x[torch.tensor([2, 0])], x.gather(1, torch.tensor([[1], [0], [3]]).to(x.device))),
    "expanded": lambda x: x[:, None].expand(3, 2, 4) * x[:, None],
    "chosen": lambda x: (torch.where(x.abs() > 1, x, 0), x.masked_fill(x.real > 0, 1j), torch.tril(x)),
    "powers": lambda x: (x**2, x**-1, x**0.5, x**2.5, (1 + 2j) ** x),
    "products": lambda x: (x @ x.T, x @ x.mH, torch.einsum("ij,kj->ik", x, x.conj()), torch.vdot(x[0], x[1])),
    "sums of products": lambda x: (torch.addmm(x[:, :3], x, x.T, beta=0.5, alpha=1j), x.addcmul(x, x, value=2)),
    "padded": lambda x: torch.nn.functional.pad(x, (1, 2), value=3.0),
    "of real numbers": lambda x: (x * x.real, x.real * 1j, x.real.to(torch.complex64) + x),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check_on_device(CALLS[name], [leaf(3, 4)])


def test_numbers_of_parts() -> None:
    real, imag = torch.randn(3, 1).requires_grad_(), torch.randn(4).requires_grad_()
    check_on_device(torch.complex, [real, imag.detach().expand(3, 4).clone().requires_grad_()])
    check_on_device(torch.complex, [real.detach().requires_grad_(), imag])
    check_on_device(torch.polar, [real.detach().abs(), imag.detach()])


def test_quotients_whose_squares_overflow() -> None:
    x = torch.tensor([3e30 + 4e30j, 1e-30j, 2.0])
    check_on_device(torch.div, [x, torch.tensor([1e30 - 2e30j, 2e-30, 1j])])
    check_on_device(torch.abs, [x])


def test_comparisons() -> None:
    x = numbers(3, 4)
    ours = x.to("dml")
    assert ours.equal(ours.clone()) and not ours.equal(ours + 1)
    assert torch.allclose(ours, ours * (1 + 1e-7)) and not torch.allclose(ours, ours.conj())
    x[0, 0], x[1, 1] = complex("nan"), complex("inf")
    check_on_device(lambda x: (x.isnan(), x.isinf(), x.isfinite(), x != 0, x.any(1), x.nonzero()), [x])


def test_memory_is_that_of_pytorch() -> None:
    x = numbers(3, 4)
    ours = x.to("dml")
    assert ours.dtype is torch.complex64 and ours.nbytes == x.nbytes and ours.untyped_storage().nbytes() == x.nbytes
    assert ours.view(torch.float32).cpu().equal(x.view(torch.float32))
    assert ours.tolist() == x.tolist() and ours[1, 2].item() == x[1, 2].item() and repr(ours)[:7] == "tensor("
    assert ours.to(torch.complex128).cpu().equal(x.to(torch.complex128))
    for target in (ours, x):
        target[1:, ::2] = 1j
        target.real.mul_(2)
        target.imag = torch.ones(3, 4, device=target.device)
        target.conj().copy_(target.T.reshape(3, 4))
        target[0].conj()[1] = 5 + 1j
        target.T[2].zero_()
        target.add_(target.conj())
    assert ours.cpu().equal(x)


def test_conjugates_are_views() -> None:
    x = numbers(3, 4)
    ours = x.to("dml").conj()
    assert ours.is_conj() and ours.cpu().equal(x.conj().resolve_conj())
    assert ours.imag.cpu().equal(x.conj().imag.resolve_neg())
    assert ours.to(torch.complex128).cpu().equal(x.conj().to(torch.complex128))
    for _ in range(3):  # later calls repeat earlier ones
        torch.testing.assert_close((ours @ ours.T).cpu(), x.conj() @ x.mH.resolve_conj())
        torch.testing.assert_close((ours.conj() @ ours.T).cpu(), x @ x.mH)


def test_saving() -> None:
    x = numbers(3, 4)
    file = io.BytesIO()
    torch.save(x.to("dml"), file)
    for location in ("dml", "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded.device.type == location and loaded.cpu().equal(x)
    assert pickle.loads(pickle.dumps(x.to("dml"))).cpu().equal(x)
    assert copy.deepcopy(x.to("dml")).cpu().equal(x)


def test_complex128_is_computed_on_the_cpu() -> None:
    x = numbers(3, 4, dtype=torch.complex128)
    ours = (x.to("dml") * 1j).exp().sum(0)
    assert ours.device.type == "dml" and ours.cpu().equal((x * 1j).exp().sum(0))


def test_the_fallback_returns_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 3)
    with pytest.raises(NotImplementedError, match="DMLGPU_TORCH_FALLBACK=1 computes such operators on the CPU"):
        torch.linalg.eigvals(x.to("dml"))
    with pytest.raises(NotImplementedError, match="does not compute complex numbers; DMLGPU_TORCH_FALLBACK=1"):
        torch.linalg.svd(numbers(3, 3).to("dml"))
    monkeypatch.setenv("DMLGPU_TORCH_FALLBACK", "1")
    with pytest.warns(UserWarning, match="eig.* is computed on the CPU"):
        values = torch.linalg.eigvals(x.to("dml"))
    assert values.device.type == "dml" and values.cpu().equal(torch.linalg.eigvals(x))


# ---- transforms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("length", [7, 12])
def test_transforms(length: int, norm: str) -> None:
    fft = torch.fft
    real = leaf(3, length, dtype=torch.float32)
    check_on_device(lambda x: [f(x, norm=norm) for f in (fft.rfft, fft.fft, fft.ihfft)], [real])
    check_on_device(lambda x: [f(x, norm=norm) for f in (fft.fft, fft.ifft, fft.irfft)], [leaf(3, length)])
    check_on_device(lambda x: (fft.irfft(x, length, norm=norm), fft.hfft(x, length, norm=norm)), [leaf(3, length)])


def test_transforms_of_several_axes() -> None:
    fft = torch.fft
    real = leaf(3, 4, 5, dtype=torch.float32)
    check_on_device(lambda x: (fft.rfft2(x), fft.fftn(x), fft.rfftn(x, dim=(2, 0))), [real])
    check_on_device(lambda x: (fft.ifft2(x), fft.irfftn(x), fft.fftshift(x), fft.fft(x, 3, dim=0)), [leaf(3, 4, 5)])


@pytest.mark.parametrize("length", [1024, 3000, 2 * 1009])
def test_long_transforms(length: int) -> None:
    x = torch.randn(2, length)
    expected = torch.fft.rfft(x)
    ours = torch.fft.rfft(x.to("dml"))
    assert (ours.cpu() - expected).norm() / expected.norm() < 1e-5  # float32, as of the CPU
    torch.testing.assert_close(torch.fft.irfft(ours, length).cpu(), x, rtol=1e-4, atol=1e-5)


def test_short_time_transforms() -> None:
    def spectrogram(x: Any) -> Any:
        window = torch.hann_window(40, device=x.device)
        spectra = torch.stft(x, 40, 10, window=window, return_complex=True)
        return spectra, torch.istft(spectra * 2, 40, 10, window=window, length=200)

    check_on_device(spectrogram, [leaf(2, 200, dtype=torch.float32)])


# ---- compiled --------------------------------------------------------------------------------------------------------


def rotated(x: Any, turns: Any) -> Any:
    """Rotary embedding as of Llama 4 and Qwen-Image."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3)


def turns_of(length: int) -> Any:
    return torch.polar(torch.ones(length, 4), torch.linspace(0, 3, 4 * length).reshape(length, 4))[:, None]


COMPILED: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "rotary embedding": (rotated, [leaf(2, 5, 3, 8, dtype=torch.float32), turns_of(5)]),
    "transform": (lambda x: torch.fft.rfft(x).abs(), [leaf(3, 10, dtype=torch.float32)]),
    "conjugate": (lambda x: (torch.fft.ifft(x.conj()).imag, x.conj()), [leaf(3, 10)]),
    "filled": (lambda x: (torch.zeros_like(x) + torch.ones_like(x) * 2j).T @ x, [leaf(3, 4)]),
    "not in the table": (lambda x: (x * 2).abs().log() + x.view(torch.float32).sum(), [numbers(3, 4)]),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    torch._dynamo.reset()
    function, inputs = COMPILED[name]
    compiled = torch.compile(function, backend="dmlgpu")
    for _ in range(2):
        check_on_device(
            lambda *x: (compiled if x[0].device.type == "dml" else function)(*x),
            [x.detach().requires_grad_(x.requires_grad) for x in inputs],
        )


def test_compiled_with_dynamic_shapes_and_on_the_cpu() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(rotated, backend="dmlgpu", dynamic=True)
    for length in (5, 7, 9):
        x, turns = torch.randn(2, length, 3, 8), turns_of(length)
        torch.testing.assert_close(compiled(x.to("dml"), turns.to("dml")).cpu(), rotated(x, turns))
    torch.testing.assert_close(torch.compile(rotated, backend="dmlgpu")(x, turns), rotated(x, turns))


def test_exported() -> None:
    import dmlgpu.torch

    class Rotation(nn.Module):
        def forward(self, x: Any, turns: Any) -> Any:
            return rotated(x, turns), torch.fft.fft(x)

    x, turns = torch.randn(2, 5, 3, 8), turns_of(5)
    results = dmlgpu.torch.load(torch.export.export(Rotation(), (x, turns)))(x, turns)
    for result, expected in zip(results, Rotation()(x, turns), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["complex", "polar"])
def test_complex_numbers_of_float16_are_rejected(name: str) -> None:
    parts = torch.ones(2, dtype=torch.float16, device="dml")
    with pytest.raises(TypeError, match=r"does not support torch\.complex32"):
        getattr(torch, name)(parts, parts)
