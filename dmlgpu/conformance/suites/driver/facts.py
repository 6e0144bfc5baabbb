"""Cases of the facts that probes measure. A case whose fact does not hold is a known failure if kernels avoid it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlgpu.common.errors import NotSupported
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.device import Device

if TYPE_CHECKING:
    from dmlgpu.runtime.wgpu.measured import Probe

PREFIX = "probe"


def fact_cases() -> Mapping[str, tuple[Probe, str]]:
    """Return the probe and the fact of each case by its name, such as ``probe-float16-pack``."""
    from dmlgpu.runtime.wgpu.probes import PROBES  # noqa: PLC0415 - suites are listed without wgpu

    return {f"{PREFIX}-{probe.name}-{fact}": (probe, str(fact)) for probe in PROBES for fact in probe.avoided}


def run_fact(case: str, name: str, device: Device) -> Outcome:
    """Measure a fact, regardless of cached and assumed facts.

    Args:
        case: Name of the case in the suite.
        name: Name of the fact's case, ``probe-float16-pack``.
        device: Device to measure on.

    Returns:
        A pass if the fact holds. If not, an expected failure if kernels avoid what is wrong; a failure if they do not.

    Raises:
        NotSupported: If the device is not one of wgpu, or the fact does not matter on it.
    """
    from dmlgpu.runtime.wgpu.backend import GpuBackend  # noqa: PLC0415 - suites are listed without wgpu
    from dmlgpu.runtime.wgpu.libraries import features_of  # noqa: PLC0415
    from dmlgpu.runtime.wgpu.waiting import without_signals  # noqa: PLC0415

    probe, fact = fact_cases()[name]
    backend, info = device.backend, device.adapter
    if not isinstance(backend, GpuBackend):
        raise NotSupported(f"{info}: only adapters of wgpu are measured")
    wgpu_device = backend.context.device
    features = features_of(wgpu_device)
    if not probe.applies(info, features):
        raise NotSupported(f"{info}: {probe.name} does not matter on this adapter")
    with backend.context.lock:
        measured = without_signals(lambda: probe.measure(wgpu_device))
    if fact in measured:
        return Outcome(case, Status.PASS)
    outcome = Outcome(case, Status.FAIL, message=f"wrong: {probe.avoided[fact]}")
    relied = probe.facts(info, features) or ()
    return outcome if fact in relied else outcome.expected_to_fail(f"kernels avoid {probe.avoided[fact]}")
