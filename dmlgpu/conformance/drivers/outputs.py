"""Cases run without the reference: what a device computes, and how far that may lie from the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported
from dmlgpu.conformance.cases.case import Array, Case
from dmlgpu.conformance.cases.tolerance import Bound
from dmlgpu.conformance.drivers.pairwise import Allowance
from dmlgpu.conformance.running.runner import inputs_without_subnormals, outputs_of
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device


@runtime_checkable
class OutputSuite(Protocol):
    """What a suite offers for its cases to be compared between adapters."""

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """What a device computes, in memory that held ``poison`` in every byte. Raises as a suite's ``run``."""

    def allowance(self, name: str) -> Allowance:
        """How far a case's outputs may lie from the truth."""


@runtime_checkable
class SuiteWithCases(Protocol):
    """A suite that hands out the cases that its names spell."""

    def case(self, name: str) -> Case:
        """The case with a name."""


def as_output_suite(suite: Suite, name: str) -> OutputSuite:
    """A suite, by its name, as one that can be run without the reference.

    Raises:
        InvalidArgument: when it cannot.
    """
    if isinstance(suite, OutputSuite):
        return suite
    if isinstance(suite, SuiteWithCases):
        return CaseOutputs(suite)
    raise InvalidArgument(f"the suite {name!r} cannot be run without the reference: it does not hand out outputs")


@dataclass(frozen=True)
class CaseOutputs:
    """The cases of a suite."""

    suite: SuiteWithCases

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """What a device computes.

        Raises:
            NotSupported: when the adapter lacks what the case needs.
            DmlError: when the case cannot be run although the adapter has what it needs.
        """
        case = self.suite.case(name)
        try:
            with np.errstate(all="ignore"):  # the numpy adapter, on special values
                return outputs_of(case, device, poison)
        except NotSupported as refusal:
            if case.needs is None or case.needs in device.adapter.features:
                raise DmlError(f"every adapter must run it, but: {refusal}") from refusal
            raise

    def allowance(self, name: str) -> Allowance:
        """The case's tolerance."""
        case = self.suite.case(name)

        def measure() -> tuple[Bound | None, ...]:
            with np.errstate(all="ignore"):
                found = case.magnitudes(inputs_without_subnormals(case))
            return tuple(one for one, slot in zip(found, case.desc.outputs, strict=True) if slot.tensor is not None)

        return Allowance(case.tolerance, measure, case.alternatives is None)
