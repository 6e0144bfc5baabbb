"""The suite of the operators' cases."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device

FEW = 4
"""Number of an operator's cases that ``first`` takes, besides one example of its documentation."""


def first(names: Sequence[str]) -> tuple[str, ...]:
    """Return few cases of an operator. They are ordered so that the first cover most types, layouts and variants."""
    examples = [name for name in names if "-example" in name]
    others = [name for name in names if "-example" not in name]
    return (*examples[:1], *others[:FEW])


class CaseSuite(Suite):
    """A suite whose names are names of operator cases."""

    @abstractmethod
    def case(self, name: str) -> Case:
        """Return the case with a name.

        Raises:
            InvalidArgument: If there is no such case.
        """

    def has(self, name: str) -> bool:
        try:
            self.case(name)
        except InvalidArgument:
            return False
        return True

    def run(self, name: str, device: Device) -> Outcome:
        """Compare the result of the adapter with the reference.

        Raises:
            DmlError: If the case fails to run although the adapter supports it.
        """
        with np.errstate(all="ignore"):  # special values do what warnings warn of
            return compared(self.case(name), device)


class OperatorSuite(CaseSuite):
    """The cases of all operators, the same objects as in the tests of dmlgpu."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        return case_names(profile)

    def case(self, name: str) -> Case:
        return case_by_name(name)


def compared(case: Case, device: Device) -> Outcome:
    """Return the result of comparing an adapter with the reference.

    Raises:
        DmlError: If the case fails to run although the adapter supports it.
    """
    start, tolerance = time.perf_counter(), str(case.tolerance)
    try:
        verdict = run_case(case, device)
    except NotSupported as error:
        if case.needs is None or case.needs in device.adapter.features:
            raise DmlError(f"every adapter must run it, but: {error}") from error
        message = str(error)
        return Outcome(case.name, Status.NOT_SUPPORTED, tolerance, message=message, missing=case.needs)
    if case.alternatives is not None:
        verdict = replace(verdict, digest="")  # the order of invocations may decide, from run to run anew
    return Outcome.of_verdict(case.name, tolerance, verdict, time.perf_counter() - start)
