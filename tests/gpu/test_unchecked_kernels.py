"""Kernels without wgpu's checks compute the same bits, and what limits accesses of buffers is measured."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import replace

import pytest

from dmlgpu import Device
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.program import Checks
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.runtime.wgpu import GpuBackend, checks
from tests.gpu.descriptions import run_desc

SHARE = 9
"""Of how many quick cases one is run."""

NAMES = [name for name in case_names("quick") if not zlib.crc32(name.encode()) % SHARE and "-duplicates-" not in name]


def test_results_do_not_depend_on_checks(backend: GpuBackend) -> None:
    if backend.info.backend != "Vulkan":
        pytest.skip("kernels of other drivers than Vulkan's keep all checks")
    target = replace(backend.target.exact, profile=Profile.DISCRETE)
    trusted, compared, different = target.with_policies(checked=False), 0, []
    for name in NAMES:
        desc, inputs = (case := case_by_name(name)).desc, [array for array in case.inputs() if array is not None]
        with contextlib.suppress(NotSupported):
            if all(kernel.checks is Checks.ALL for kernel in compile_operator(desc, trusted).kernels):
                continue
            results = [run_desc(backend, desc, inputs, chosen) for chosen in (trusted, target)]
            compared += 1
            if any(result.tobytes() != reference.tobytes() for result, reference in zip(*results, strict=True)):
                different.append(name)
    assert different == []
    assert compared > 20


def test_software_adapters_limit_accesses(backend: GpuBackend) -> None:
    """llvmpipe and SwiftShader have robustBufferAccess2."""
    if backend.info.backend == "Vulkan" and backend.info.is_software:
        assert checks.measure(backend.wgpu_device) == {checks.LIMITED}


def test_accesses_without_limits_are_found(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the bound range contains the guards, so that nothing limits the accesses of them."""
    monkeypatch.setattr(checks, "_BOUND_BYTES", 2 * checks._BOUND_BYTES)
    assert checks.measure(backend.wgpu_device) == frozenset()


def test_devices_are_checked_on_request(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend.info.backend != "Vulkan":
        pytest.skip("kernels of other drivers than Vulkan's keep all checks")
    monkeypatch.setenv("DMLGPU_CHECKS", "never")
    for is_checked in (False, True):
        device = Device(backend.info, checked=is_checked)
        assert device.backend.target.policies.checked is is_checked
        device.remove()
