"""Fixtures that unit tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dmlgpu.compiler.operators.lowering import _LOWERINGS
from dmlgpu.reference.registry import _FUNCTIONS
from tests.unit.device_objects import Objects


@pytest.fixture
def unregister(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes an operator's lowering and reference away for one test, as if dmlgpu did not implement it."""

    def take_away(operator: str) -> None:
        for registry in (_LOWERINGS, _FUNCTIONS):
            monkeypatch.delitem(registry, operator)

    return take_away


@pytest.fixture(scope="module", autouse=True)
def pytorch_computes_with_numpy(request: pytest.FixtureRequest) -> None:
    """Run tests of PyTorch's device on the adapter ``numpy``, and with ``--profile full`` on the default one.

    ``tests/gpu/test_torch_device.py`` runs a sample on every adapter. A process opens the device once.
    """
    if hasattr(request.module, "torch") and request.config.getoption("--profile") != "full":
        reason = "the installed PyTorch is older than 2.13"
        adapters = pytest.importorskip("dmlgpu.frontends.torch.adapters", reason=reason)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DMLGPU_ADAPTER", "numpy")
            adapters.all_adapters()


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home, as containers have them, and without a folder of caches that a variable names."""

    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", refuse)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def objects() -> Objects:
    """A device over a bookkeeping executor whose operators need no resources of their own."""
    return Objects()


@pytest.fixture
def hungry() -> Objects:
    """A device over a bookkeeping executor whose operators need temporary and persistent resources."""
    return Objects(temporary_size=512, persistent_size=256)


@pytest.fixture
def limited_files() -> Iterator[Callable[[int], None]]:
    """Limits the size in bytes of files that this process writes, for one test: a disk that is full from there on."""
    resource = pytest.importorskip("resource", reason="this system has no limits for processes")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)
