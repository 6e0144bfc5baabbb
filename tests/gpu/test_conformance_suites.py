"""Chains, hazards, large sizes and all halves on every adapter; the operators' own cases are in test_cases."""

from __future__ import annotations

import pytest

from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.device.device import Device
from dmlgpu.gpu import GpuBackend

NAMES = (
    *suite_by_name("chains").names("quick"),
    *suite_by_name("hazards").names("quick"),
    *suite_by_name("sizes").names("quick"),
    "element_wise_is_nan-halves-float16-uint8-65536-packed-s0",
    "activation_elu-halves-float16-65536-packed-s1",
    "element_wise_atan_yx-values-float32-9x3-packed-s0",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_case_passes(backend: GpuBackend, name: str) -> None:
    outcome = suite_by_name("dmlgpu").run(name, Device.from_backend(backend))
    assert outcome.status is Status.PASS, outcome


def test_what_a_binding_cannot_hold_is_refused(backend: GpuBackend) -> None:
    limit = backend.target.max_binding_size
    if limit >= 1 << 31:
        pytest.skip(f"{backend.info} binds {limit:,} bytes")
    outcome = suite_by_name("sizes").run("size-copy-2gib", Device.from_backend(backend))
    assert (outcome.status, outcome.missing) == (Status.NOT_SUPPORTED, "max-storage-buffer-binding-size")
