"""The line that is printed when kernels take long to compile."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
notice = pytest.importorskip("dmlgpu.frontends.torch.notice", reason="the installed PyTorch is older than 2.13")

DEVICE: Any = SimpleNamespace(adapter=SimpleNamespace(backend="Vulkan", short_name="Vulkan: a GPU"))


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "SECONDS", 0.1)
    monkeypatch.setenv("DMLGPU_CACHE", "/the/folder")


@pytest.mark.parametrize("seconds", [[0.3], [0.06, 0.06]])
def test_long_and_many_calls_print_one_line(seconds: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    compiled = notice.CompileNotice()
    for duration in (*seconds, 0.2):
        with compiled.compiling(DEVICE), compiled.compiling(DEVICE):
            time.sleep(duration)
    line = "dmlgpu: compiling kernels for Vulkan: a GPU, kept in /the/folder: later processes start faster\n"
    assert capfd.readouterr().err == line


def test_short_calls_print_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(notice, "SECONDS", 1.0)
    compiled = notice.CompileNotice()
    with compiled.compiling(DEVICE), compiled.compiling(DEVICE):  # nested calls count once
        time.sleep(0.6)
    assert not capfd.readouterr().err


def test_numpy_compiles_no_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    compiled, device = notice.CompileNotice(), SimpleNamespace(adapter=SimpleNamespace(backend="NumPy"))
    with compiled.compiling(device):
        time.sleep(0.2)
    assert not capfd.readouterr().err


def test_the_cache_may_be_off(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DMLGPU_CACHE", "off")
    with notice.CompileNotice().compiling(DEVICE):
        time.sleep(0.2)
    assert capfd.readouterr().err == "dmlgpu: compiling kernels for Vulkan: a GPU\n"
