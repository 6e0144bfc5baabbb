"""Accuracy suites: errors of the functions of shaders/lib, and of whole operators.

``accuracy`` measures functions. A name has the function and how many numbers per exponent and sign are measured:
``exp_f32-4096``. The result's curve has the largest error per exponent.

``operator_accuracy`` measures products, convolutions, normalizations, softmax, attention and reductions. A name has the
operator, the type, and the schedule or the kind of numbers: ``convolution-accuracy-float32-winograd-4``. Results are
compared with true ones in float64; the workload sets the allowed number of roundings.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.accuracy.functions import FUNCTIONS, PER_EXPONENT, FunctionErrors, measure
from dmlgpu.conformance.accuracy.workloads import (
    ROUNDING,
    WORKLOADS,
    AccuracyWorkload,
    OperatorErrors,
    limit_of,
    operator_errors,
)
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import ShaderBackend

COUNTS = {"quick": 16, "standard": 256, "full": PER_EXPONENT}
FLUSHES = "the adapter flushes subnormals"
"""The message of every function_outcome on such an adapter."""
_FUNCTIONS = {function.name: function for function in FUNCTIONS}


class AccuracySuite(Suite):
    """Every function; the profiles differ in how many numbers they take."""

    profiles = tuple(COUNTS)

    def names(self, profile: str) -> tuple[str, ...]:
        return tuple(f"{name}-{COUNTS[profile]}" for name in _FUNCTIONS)

    def has(self, name: str) -> bool:
        function, _, count = name.partition("-")
        return function in _FUNCTIONS and re.fullmatch(r"[1-9]\d{0,3}", count) is not None

    def run(self, name: str, device: Device) -> Outcome:
        """Measure a function.

        Raises:
            InvalidArgument: If the name spells none.
            NotSupported: On an adapter that runs no shaders.
        """
        if not self.has(name):
            raise InvalidArgument(f"{name!r} names no function and count such as exp_f32-{PER_EXPONENT}")
        if not isinstance(device.backend, ShaderBackend):
            raise NotSupported(f"{device.adapter} runs no shaders, so there is no math library to measure")
        start = time.perf_counter()
        function, _, count = name.partition("-")
        measured = measure(device.backend, _FUNCTIONS[function], int(count))
        return function_outcome(name, measured, time.perf_counter() - start)


def function_outcome(name: str, measured: FunctionErrors, seconds: float) -> Outcome:
    """Return a measurement as the function_outcome of a case."""
    worst, bound = measured.worst_index, measured.function.bound
    wrong = int((measured.error > bound).sum())
    true = float(measured.true[worst])
    return Outcome(
        name,
        Status.FAIL if wrong else Status.PASS,
        f"{bound:g} ULP of the true value",
        of_bound=measured.max / bound if bound else (math.inf if wrong else 0.0),
        max_ulp=measured.max,
        mean_ulp=measured.mean,
        wrong=wrong,
        elements=measured.error.size,
        worst=(worst,),
        inputs=tuple(str(operand[worst]) for operand in measured.operands),
        expected=repr(true),
        got=str(measured.computed[worst]),
        bound=bound * float(np.spacing(np.float32(min(abs(true), 2.0**127)))) if np.isfinite(true) else 0.0,
        message=FLUSHES if measured.flushed else "",
        seconds=seconds,
        curve=tuple((float(exponent), round(error, 4)) for exponent, error in measured.curve),
        kernels=measured.kernels,
    )


# ---- whole operators -------------------------------------------------------------------------------------------------


CASES: Mapping[str, tuple[AccuracyWorkload, DataType]] = {
    workload.name(data_type): (workload, data_type) for workload in WORKLOADS for data_type in workload.data_types
}

QUICK = (
    "convolution-accuracy-float32-precise",
    "gemm-accuracy-float32-register",
    "mean_variance_normalization2-accuracy-float32-mean-100",
    "reduce-accuracy-float32-sum",
)


class OperatorAccuracySuite(Suite):
    """Every workload in each of its types; a few in the quick profile."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        return QUICK if profile == "quick" else tuple(CASES)

    def has(self, name: str) -> bool:
        return name in CASES

    def run(self, name: str, device: Device) -> Outcome:
        """Measure an operator.

        Raises:
            InvalidArgument: If the name spells none.
            NotSupported: If the adapter lacks what the case needs, or runs no shaders where a schedule is measured.
        """
        if name not in CASES:
            raise InvalidArgument(f"{name!r} names no case such as {QUICK[0]}")
        workload, data_type = CASES[name]
        if workload.needs_shaders and not isinstance(device.backend, ShaderBackend):
            raise NotSupported(f"{device.adapter} runs no shaders, so it has no schedules")
        start = time.perf_counter()
        errors = operator_errors(workload, data_type, device)
        return operator_outcome(name, errors, limit_of(workload, errors.kernels), time.perf_counter() - start)


def operator_outcome(name: str, errors: OperatorErrors, limit: float, seconds: float) -> Outcome:
    """Return a measurement as the operator_outcome of a case."""
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
