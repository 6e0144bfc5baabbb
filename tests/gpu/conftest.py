"""Fixtures that run a test on every adapter of the machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlgpu.gpu import GpuBackend, adapters
from dmlgpu.target import AdapterInfo


def _identifier(info: AdapterInfo) -> str:
    return f"{info.backend}-{info.name.split(' (')[0].replace(' ', '_')}"


def _parameters() -> list[object]:
    found: list[object] = [pytest.param(info, id=_identifier(info)) for info in adapters()]
    reason = "wgpu finds no adapter on this machine, not even a software one"
    return found or [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]


@pytest.fixture(scope="session", params=_parameters())
def adapter(request: pytest.FixtureRequest) -> AdapterInfo:
    """Each adapter of the machine."""
    return request.param


@pytest.fixture(scope="session")
def backend(adapter: AdapterInfo) -> Iterator[GpuBackend]:
    """An executor on each adapter, shared by the tests."""
    backend = GpuBackend(adapter)
    yield backend
    backend.close()


@pytest.fixture
def fresh(adapter: AdapterInfo) -> Iterator[GpuBackend]:
    """An executor of the test's own on each adapter, to close or fill up."""
    backend = GpuBackend(adapter)
    yield backend
    backend.close()
