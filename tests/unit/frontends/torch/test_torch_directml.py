"""The module ``torch_directml``: devices, installation, and layers that Microsoft's language models call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the module is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from torch.nn import functional  # noqa: E402 - after the check

from dmlgpu.frontends.torch import __main__ as runner  # noqa: E402
from dmlgpu.frontends.torch import torch_directml  # noqa: E402


def on_device(*tensors: Any) -> Any:
    return [x.to(torch_directml.device()) for x in tensors]


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-5, rtol=1e-5)


def test_the_default_device_is_minus_one() -> None:
    assert torch_directml.device(-1) == torch_directml.device() == torch.device("dml", 0)
    assert torch_directml.device_name(-1) == torch.dml.device_name(0)
    assert torch_directml.gpu_memory(-1) is not None and not torch_directml.has_float64_support(-1)


def test_builds_for_cuda_without_a_gpu_look_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_available in (True, False):
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", lambda is_available=is_available: is_available)
        torch_directml._hide_cuda()
        assert torch.version.cuda == ("13.0" if is_available else None)


def test_the_module_is_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner._change(tmp_path, is_installed=True) == 0
    program = "import torch_directml; print(torch_directml.device(-1), torch_directml.__name__)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    output = subprocess.run(
        [sys.executable, "-B", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == ["dml:0", "dmlgpu.frontends.torch.torch_directml"]
    assert runner._change(tmp_path, is_installed=True) == 0
    assert runner._change(tmp_path, is_installed=False) == 0
    assert not list(tmp_path.iterdir())
    (tmp_path / "torch_directml").mkdir()
    for is_installed in (True, False):
        assert runner._change(tmp_path, is_installed=is_installed) == 1
        assert "uninstall torch-directml first" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["torch_directml"]


@pytest.mark.slow
def test_attention_with_a_cache_equals_that_of_the_whole_sequence() -> None:
    """A prompt of 4 tokens, then 1: masks and caches as the samples pass them."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 5, 12)
    heads = [x.view(2, 5, 3, 4).transpose(1, 2) for x in (q, k, v)]
    expected = functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(2, 5, 12)
    mask = torch.tril(torch.ones(1, 3, 5, 5, dtype=torch.int32))
    key = value = None
    for start, end in ((0, 4), (4, 5)):
        parts = on_device(q[:, start:end], k[:, start:end], v[:, start:end])
        (seen,) = on_device(mask[:, :, start:end, :end])
        result, key, value = torch_directml.multi_head_attention(*parts, 12, 3, key, value, seen)
        close(result, expected[:, start:end])
    close(key, heads[1])
    close(value, heads[2])
    result, _, _ = torch_directml.multi_head_attention(*on_device(q, k, v), 12, 3, None, None)
    close(result, functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(2, 5, 12))


@pytest.mark.parametrize("width", [8, 4])
def test_rotary_positions(width: int) -> None:
    """Elements i and i + width / 2 are a point rotated by position * frequency i; others do not change."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 3, 8)
    frequencies = 100.0 ** -(torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(10.0), frequencies)
    tables = [torch.cat((x, x), dim=-1)[None, None] for x in (angles.cos(), angles.sin())]
    results = torch_directml.apply_rotary_position_emb(*on_device(q, k, *tables), 5, 3, width)
    turn = torch.polar(torch.ones(3, width // 2), angles[5:8])
    for x, result in zip((q, k), results, strict=True):
        points = torch.complex(x[..., : width // 2], x[..., width // 2 : width]) * turn
        close(result, torch.cat((points.real, points.imag, x[..., width:]), dim=-1))


def test_normalization_and_feed_forward_layers() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 8), torch.rand(8)
    norm = torch.nn.RMSNorm(8, eps=1e-5)
    norm.weight.data = weight
    close(torch_directml.rmsnorm(*on_device(x, weight), 1e-5), norm(x).detach())
    first, third, second = torch.randn(16, 8), torch.randn(16, 8), torch.randn(8, 16)
    hidden = functional.silu(x @ first.T) * (x @ third.T)
    close(torch_directml.mlp_llama(*on_device(x, first, third, second)), hidden @ second.T)
    both = torch.cat((first, third))
    close(torch_directml.mlp_phi3(*on_device(x, both, second)), hidden @ second.T)
    biases = torch.randn(16), torch.randn(8)
    expected = functional.gelu(x @ first.T + biases[0], approximate="tanh") @ second.T + biases[1]
    close(torch_directml.mlp_phi2(*on_device(x, first, second, *biases)), expected)
