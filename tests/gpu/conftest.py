"""Fixtures that run a test on every adapter of the machine."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator

import pytest

from dmlgpu.compiler.target import AdapterInfo, Profile
from dmlgpu.runtime.adapters import why_unusable
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend, adapters
from tests.gpu.descriptions import division_of_gpus
from tests.gpu.usable import identifier


def _parameters() -> list[object]:
    parameters: list[object] = [pytest.param(info, id=identifier(info), marks=_marks(info)) for info in adapters()]
    reason = "wgpu finds no adapter on this machine, not even a software one"
    return parameters or [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]


def _marks(info: AdapterInfo) -> list[pytest.MarkDecorator]:
    """Return a skip of an adapter on which no device can be created."""
    reason = why_unusable(info)
    return [pytest.mark.skip(reason=reason)] if reason else []


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


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Nothing is released by the collector of garbage."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


OTHER = {Profile.CPU: Profile.DISCRETE, Profile.DISCRETE: Profile.CPU, Profile.INTEGRATED: Profile.CPU}


@pytest.fixture(params=["own schedules", "other schedules"])
def schedules(request: pytest.FixtureRequest) -> str:
    """The schedules for an adapter, and those for the other kind of adapters."""
    return request.param


@pytest.fixture
def device(schedules: str, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device on each adapter, with either schedules; those for GPUs without native division, which few GPUs have."""
    if schedules == "other schedules":
        profile = OTHER[backend.target.profile]
        target = dataclasses.replace(backend.target, profile=profile, division=division_of_gpus(backend))
        monkeypatch.setattr(backend, "target", target)
    return Device.from_backend(backend)
