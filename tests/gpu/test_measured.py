"""Measurements, and refused features, leave no reference to a device."""

from __future__ import annotations

import weakref
from types import ModuleType

import pytest

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.wgpu import GpuBackend, checks, cooperative, float16, subgroups
from dmlgpu.runtime.wgpu.adapter import wgpu_adapter


@pytest.mark.parametrize("module", [checks, float16, subgroups], ids=lambda module: module.__name__.split(".")[-1])
def test_a_measurement_keeps_no_device(adapter: AdapterInfo, module: ModuleType, without_collections: None) -> None:
    backend = GpuBackend(adapter)
    if module is subgroups and not backend.target.has("subgroup"):
        pytest.skip("no feature subgroup")
    assert module.measure(backend.wgpu_device)
    device = weakref.ref(backend.wgpu_device)
    del backend
    assert device() is None


def test_a_failed_measurement_keeps_no_device(
    adapter: AdapterInfo, without_collections: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_KERNEL", "no shader")
    backend = GpuBackend(adapter)
    facts = checks.MeasuredFacts("bounds", checks.measure)
    assert facts.measured(backend.wgpu_device, backend.info) == frozenset()
    device = weakref.ref(backend.wgpu_device)
    del backend
    assert device() is None


def test_a_device_without_a_refused_feature_is_not_kept(
    adapter: AdapterInfo, without_collections: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray queries, which wgpu-native lists and refuses as it does cooperative matrices."""
    needed = {"ray-query"}
    if not wgpu_adapter(adapter).features >= needed:
        pytest.skip("the adapter has no feature that wgpu-native refuses")
    monkeypatch.setattr(cooperative, "NEEDED", needed)
    with pytest.raises(RuntimeError, match="experimental"):
        cooperative._request(wgpu_adapter(adapter), needed)
    backend = GpuBackend(adapter)
    device = weakref.ref(backend.wgpu_device)
    del backend
    assert device() is None
