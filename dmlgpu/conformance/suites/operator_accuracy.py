"""The suite of whole operators' errors: products, convolutions, normalisations, softmax, attention, reductions.

A name spells the operator, the type, and the schedule or what is special about the numbers:
``convolution-accuracy-float32-winograd-4``. Results are compared with true ones in float64, and each must be within so
many roundings as the workload allows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.accuracy.operator_errors import ROUNDING, Errors, operator_errors
from dmlgpu.conformance.accuracy.workloads import WORKLOADS, AccuracyWorkload
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import ShaderBackend

CASES: Mapping[str, tuple[AccuracyWorkload, DataType]] = {
    workload.name(data_type): (workload, data_type) for workload in WORKLOADS for data_type in workload.data_types
}

QUICK = (
    "convolution-accuracy-float32-precise",
    "gemm-accuracy-float32-register",
    "mean_variance_normalization2-accuracy-float32-mean-100",
    "reduce-accuracy-float32-sum",
)


class OperatorAccuracySuite:
    """Every workload in each of its types; a few in the quick profile."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of a profile's cases."""
        return QUICK if profile == "quick" else tuple(CASES)

    def has(self, name: str) -> bool:
        """Whether a name spells a case."""
        return name in CASES

    def run(self, name: str, device: Device) -> Outcome:
        """Measure an operator.

        Raises:
            InvalidArgument: when the name spells none.
            NotSupported: when the adapter lacks what the case needs, or runs no shaders where a schedule is measured.
        """
        if name not in CASES:
            raise InvalidArgument(f"{name!r} names no case such as {QUICK[0]}")
        workload, data_type = CASES[name]
        if workload.needs_shaders and not isinstance(device.backend, ShaderBackend):
            raise NotSupported(f"{device.adapter} runs no shaders, so it has no schedules")
        start = time.perf_counter()
        return outcome(name, operator_errors(workload, data_type, device), workload.limit, time.perf_counter() - start)


def outcome(name: str, errors: Errors, limit: float, seconds: float) -> Outcome:
    """A measurement as the outcome of a case."""
    roundings = errors.roundings
    wrong = int((~(roundings <= limit)).sum())
    worst = tuple(map(int, np.unravel_index(roundings.argmax(), roundings.shape)))
    return Outcome(
        name,
        Status.FAIL if wrong else Status.PASS,
        f"{limit:g} roundings of the sum of the terms' absolute values",
        of_bound=float(roundings.max()) / limit,
        max_ulp=float(errors.ulp.max()),
        mean_ulp=float(errors.ulp.mean()),
        wrong=wrong,
        elements=errors.got.size,
        worst=worst,
        expected=repr(float(errors.true[worst])),
        got=str(errors.got[worst]),
        bound=float(limit * ROUNDING * errors.terms[worst] + errors.units[worst] / 2),
        seconds=seconds,
        measured={key: float(f"{value:.4g}") for key, value in errors.summary.items()},
        kernels=errors.kernels,
    )
