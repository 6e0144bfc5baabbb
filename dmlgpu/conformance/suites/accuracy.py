"""The suite of the math library: the errors of the functions of shaders/lib.

A name spells the function and how many numbers of every exponent and sign it is measured on: ``exp_f32-4096``. The
outcome's curve has the largest error for every exponent.
"""

from __future__ import annotations

import math
import re
import time

import numpy as np

from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.accuracy.functions import FUNCTIONS
from dmlgpu.conformance.accuracy.inputs import PER_EXPONENT
from dmlgpu.conformance.accuracy.measure import Measured, measure
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import ShaderBackend

COUNTS = {"quick": 16, "standard": 256, "full": PER_EXPONENT}
FLUSHES = "the adapter flushes subnormals"
"""The message of every outcome on such an adapter."""
_FUNCTIONS = {function.name: function for function in FUNCTIONS}


class AccuracySuite:
    """Every function; the profiles differ in how many numbers they take."""

    profiles = tuple(COUNTS)

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of a profile's cases."""
        return tuple(f"{name}-{COUNTS[profile]}" for name in _FUNCTIONS)

    def has(self, name: str) -> bool:
        """Whether a name spells a function and a count."""
        function, _, count = name.partition("-")
        return function in _FUNCTIONS and re.fullmatch(r"[1-9]\d{0,3}", count) is not None

    def run(self, name: str, device: Device) -> Outcome:
        """Measure a function.

        Raises:
            InvalidArgument: when the name spells none.
            NotSupported: on an adapter that runs no shaders.
        """
        if not self.has(name):
            raise InvalidArgument(f"{name!r} names no function and count such as exp_f32-{PER_EXPONENT}")
        if not isinstance(device.backend, ShaderBackend):
            raise NotSupported(f"{device.adapter} runs no shaders, so there is no math library to measure")
        start = time.perf_counter()
        function, _, count = name.partition("-")
        measured = measure(device.backend, _FUNCTIONS[function], int(count))
        return outcome(name, measured, time.perf_counter() - start)


def outcome(name: str, measured: Measured, seconds: float) -> Outcome:
    """A measurement as the outcome of a case."""
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
