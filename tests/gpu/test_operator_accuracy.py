"""Errors of whole operators on every adapter: what Winograd's filtering loses, and who does without it."""

from __future__ import annotations

import pytest

from dmlgpu import Device
from dmlgpu.conformance.accuracy.workloads import OperatorErrors, operator_errors, true_result
from dmlgpu.conformance.suites.accuracy import CASES
from dmlgpu.runtime.evaluate import evaluate
from dmlgpu.runtime.wgpu import GpuBackend

DIRECT, DATA_TYPE = CASES["convolution-accuracy-float32-precise"]
WINOGRAD, _ = CASES["convolution-accuracy-float32-winograd-4"]


def test_winograd_s_filtering_is_beyond_the_direct_limit(backend: GpuBackend) -> None:
    measured = operator_errors(WINOGRAD, DATA_TYPE, Device.from_backend(backend))
    assert DIRECT.limit < measured.summary["roundings"] <= WINOGRAD.limit
    assert any("winograd" in kernel for kernel in measured.kernels)


@pytest.mark.parametrize(
    "options", [{"precise": True}, {"deterministic": True}], ids=lambda options: next(iter(options))
)
def test_a_device_that_keeps_digits_is_within_the_direct_limit(backend: GpuBackend, options: dict[str, bool]) -> None:
    desc = DIRECT.desc(DATA_TYPE)
    images, filters = DIRECT.inputs(desc)
    device = Device(backend.info, **options)
    try:
        (got,) = evaluate(desc, [images, filters, None], device)
        errors = OperatorErrors(got, *true_result(DIRECT, (images, filters)))
        assert errors.summary["roundings"] <= DIRECT.limit
        compiled = device.compile_operator(device.create_operator(desc))
        assert compiled.program is not None
        assert not any("winograd" in kernel for kernel in compiled.program.summaries)
    finally:
        device.remove()
