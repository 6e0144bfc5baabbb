"""The suite of all cases that dmlgpu brings: those of the other suites together."""

from __future__ import annotations

from functools import cached_property

from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.drivers.pairwise import Allowance
from dmlgpu.conformance.drivers.pairwise_run import OutputSuite, SuiteWithCases, as_output_suite
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.suites.accuracy import AccuracySuite, OperatorAccuracySuite
from dmlgpu.conformance.suites.attributes import AttributeSuite
from dmlgpu.conformance.suites.chains import ChainSuite
from dmlgpu.conformance.suites.driver.suite import DriverSuite
from dmlgpu.conformance.suites.graphs import GraphSuite
from dmlgpu.conformance.suites.hazards import HazardSuite
from dmlgpu.conformance.suites.operators import OperatorSuite
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.conformance.suites.sizes import SizeSuite
from dmlgpu.conformance.suites.special_values import HalvesSuite, SpecialValueSuite
from dmlgpu.runtime.device import Device


class CombinedSuite(Suite):
    """The cases of several suites, whose names differ."""

    profiles = PROFILES

    @cached_property
    def parts(self) -> tuple[Suite, ...]:
        """The suites."""
        return (
            OperatorSuite(),
            SpecialValueSuite(),
            AttributeSuite(),
            HalvesSuite(),
            ChainSuite(),
            GraphSuite(),
            HazardSuite(),
            SizeSuite(),
            DriverSuite(),
            AccuracySuite(),
            OperatorAccuracySuite(),
        )

    def names(self, profile: str) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.names(profile))

    def has(self, name: str) -> bool:
        return any(part.has(name) for part in self.parts)

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case. Raises as its suite, and InvalidArgument if no suite has it."""
        return self.part(name).run(name, device)

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """Return the outputs of a device (see ``OutputSuite``).

        Raises:
            NotSupported: For a case without outputs to compare.
            Exception: As its suite.
        """
        return self._output_suite(name).outputs(name, device, poison)

    def allowance(self, name: str) -> Allowance:
        """Return the allowed distance of a case's outputs from the true ones."""
        return self._output_suite(name).allowance(name)

    def part(self, name: str) -> Suite:
        """Return the suite that has a case.

        Raises:
            InvalidArgument: If none has.
        """
        for part in self.parts:
            if part.has(name):
                return part
        raise InvalidArgument(f"{name!r} names no case")

    def _output_suite(self, name: str) -> OutputSuite:
        part = self.part(name)
        if not isinstance(part, OutputSuite | SuiteWithCases):
            raise NotSupported(f"{name!r} is compared with what is true only, not between adapters")
        return as_output_suite(part, name)
