"""Devices that drivers reject; measurements and rejected features leave no reference to a device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref

import pytest
from wgpu.backends.wgpu_native._ffi import ffi

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.wgpu import GpuBackend, checks, cooperative
from dmlgpu.runtime.wgpu.adapter import wgpu_adapter
from dmlgpu.runtime.wgpu.context import why_unusable
from dmlgpu.runtime.wgpu.measured import Probe
from dmlgpu.runtime.wgpu.probes import CHECKS, PROBES


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_measurement_keeps_no_device(adapter: AdapterInfo, probe: Probe, without_collections: None) -> None:
    backend = GpuBackend(adapter)
    if not probe.applies(adapter, backend.target.features):
        pytest.skip("the facts do not matter on the adapter")
    types = set(ffi._parsed_types)
    assert probe.measured(backend.wgpu_device, adapter)
    assert set(ffi._parsed_types) == types
    device = weakref.ref(backend.wgpu_device)
    del backend
    assert device() is None


def test_a_failed_measurement_keeps_no_device(
    adapter: AdapterInfo, without_collections: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_KERNEL", "no shader")
    backend = GpuBackend(adapter)
    assert CHECKS.measured(backend.wgpu_device, backend.info) == frozenset()
    device = weakref.ref(backend.wgpu_device)
    del backend
    assert device() is None


def test_a_driver_that_creates_no_device_is_quoted(adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_unusable(adapter) == ""

    def refuse(*_: object) -> None:
        raise RuntimeError("Request device failed (3): Validation Error\n\nCaused by:\n  Parent device is lost\n")

    monkeypatch.setattr(cooperative, "request_device", refuse)
    assert why_unusable(adapter) == "the driver cannot create a device: Parent device is lost"
    with pytest.raises(NotSupported, match=re.escape(f"{adapter}: the driver cannot create a device: Parent")):
        GpuBackend(adapter)


def test_an_adapter_without_compute_shaders_is_skipped(adapter: AdapterInfo) -> None:
    if adapter.backend != "OpenGL" or "Mesa" not in adapter.driver:
        pytest.skip("only Mesa's OpenGL can emulate an old version")
    old = {**os.environ, "MESA_GL_VERSION_OVERRIDE": "3.3", "MESA_EXTENSION_OVERRIDE": "-GL_ARB_compute_shader"}
    command = [sys.executable, "-m", "dmlgpu", "test", "--adapter", "opengl", "-k", "argmin-example1"]
    done = subprocess.run(command, capture_output=True, text=True, env=old, check=False)
    assert done.returncode == 1
    assert done.stdout.endswith(" is skipped: the driver cannot create a device: it has no compute shaders\n")


def test_a_device_without_a_rejected_feature_is_not_kept(
    adapter: AdapterInfo, without_collections: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray queries, which wgpu-native lists and rejects as it does cooperative matrices."""
    needed = {"ray-query"}
    if not wgpu_adapter(adapter).features >= needed:
        pytest.skip("the adapter has no feature that wgpu-native refuses")
    monkeypatch.setattr(cooperative, "NEEDED", needed)
    with pytest.raises(RuntimeError, match="experimental"):
        cooperative.request_features(wgpu_adapter(adapter), needed)
    backend = GpuBackend(adapter)
    device = weakref.ref(backend.wgpu_device)
    del backend
    assert device() is None
