"""The errors of whole operators: how they are computed, and in which units they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, ExecutionFlags
from dmlgpu.conformance.accuracy.functions import Doubles
from dmlgpu.conformance.accuracy.workloads import AccuracyWorkload, true_result
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.evaluate import run_compiled

ROUNDING = 2.0**-24
"""What rounding to float32 changes a number by, at most, in proportion to it."""


@dataclass(frozen=True)
class Errors:
    """A result and the true one.

    Attributes:
        got: in the type of the operator's output.
        true: in float64.
        terms: the sum of the absolute values of what was added up for each element (see ``truths.py``).
        inputs: what it was computed from.
        kernels: what ran.
    """

    got: NDArray[np.floating]
    true: Doubles
    terms: Doubles
    inputs: tuple[NDArray[np.floating], ...] = ()
    kernels: tuple[str, ...] = ()

    @cached_property
    def absolute(self) -> Doubles:
        """The differences; infinite where there is no number."""
        difference = np.abs(self.got.astype(np.float64) - self.true)
        return np.where(np.isfinite(difference), difference, np.inf)

    @cached_property
    def ulp(self) -> Doubles:
        """The differences in units of the last place of the true result, in the output's type."""
        return self.absolute / self.units

    @cached_property
    def roundings(self) -> Doubles:
        """The differences beyond the last rounding, to the output's type, in roundings of the terms to float32.

        1 is what one rounding of the sum of the terms' absolute values may lose; a good sum of many terms of both signs
        loses less than its every addition, because their errors cancel.
        """
        return np.maximum(self.absolute - self.units / 2, 0.0) / (self.terms * ROUNDING)

    @cached_property
    def units(self) -> Doubles:
        """A unit of the last place of each true result, in the output's type."""
        smallest = np.finfo(self.got.dtype).tiny
        return np.spacing(np.maximum(np.abs(self.true), smallest).astype(self.got.dtype)).astype(np.float64)

    @property
    def summary(self) -> Mapping[str, float]:
        """The errors by what they are told in.

        ``largest``: the largest difference, of the largest result; ``rms``: the root mean square of the differences, of
        that of the results; ``ulp_max``, ``ulp_rms``: in units of the last place; ``roundings``: the most.
        """
        squares = float(np.mean(self.true**2))
        return {
            "largest": float(self.absolute.max() / np.abs(self.true).max()),
            "rms": float(np.sqrt(np.mean(self.absolute**2) / squares)),
            "ulp_max": float(self.ulp.max()),
            "ulp_rms": float(np.sqrt(np.mean(self.ulp**2))),
            "roundings": float(self.roundings.max()),
        }


def operator_errors(workload: AccuracyWorkload, data_type: DataType, device: Device) -> Errors:
    """The errors of a workload in a type on a device, computed by the way that the workload says.

    Raises:
        NotSupported: when the adapter lacks what the operator needs.
    """
    desc = workload.desc(data_type)
    inputs = workload.inputs(desc)
    flags = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION if workload.half_precision else ExecutionFlags.NONE
    backend = device.backend
    own = Device(device.adapter, precise=workload.precise or device.backend.target.precise)
    try:
        # The profile is the given device's: its family of schedules is what is measured.
        own.backend.target = replace(own.backend.target, profile=backend.target.profile, schedule=workload.schedule)
        compiled = own.compile_operator(own.create_operator(desc), flags)
        given = iter(inputs)
        tensors = [port.desc for port in compiled.inputs]
        arrays = [None if tensor is None else next(given) for tensor in tensors]
        (raw,) = [data for data in run_compiled(compiled, arrays, tensors, desc.operator) if data is not None]
        kernels = () if compiled.program is None else compiled.program.summaries
    finally:
        own.remove()
    output = desc.outputs[0].tensor
    assert output is not None
    true, terms = true_result(workload, inputs)
    return Errors(output.decode(raw), true, terms, inputs, kernels)
