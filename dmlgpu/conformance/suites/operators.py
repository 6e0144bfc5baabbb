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
"""How many of an operator's cases ``first`` takes, beside one of its page's examples."""


def first(names: Sequence[str]) -> tuple[str, ...]:
    """Few of an operator's cases: their order is such that beginnings cover most types, layouts and variants."""
    examples = [name for name in names if "-example" in name]
    others = [name for name in names if "-example" not in name]
    return (*examples[:1], *others[:FEW])


class CaseSuite(Suite):
    """A suite whose names spell cases."""

    @abstractmethod
    def case(self, name: str) -> Case:
        """The case with a name.

        Raises:
            InvalidArgument: when it names none.
        """

    def has(self, name: str) -> bool:
        try:
            self.case(name)
        except InvalidArgument:
            return False
        return True

    def run(self, name: str, device: Device) -> Outcome:
        """Compare what the adapter computes with the reference.

        Raises:
            DmlError: when the case cannot be run although the adapter has what it needs.
        """
        with np.errstate(all="ignore"):  # special values do what warnings warn of
            return compared(self.case(name), device)


class OperatorSuite(CaseSuite):
    """Every operator's cases: the same objects from which the tests of dmlgpu come."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        return case_names(profile)

    def case(self, name: str) -> Case:
        return case_by_name(name)


def compared(case: Case, device: Device) -> Outcome:
    """What came of comparing what an adapter computes with the reference.

    Raises:
        DmlError: when the case cannot be run although the adapter has what it needs.
    """
    start, tolerance = time.perf_counter(), str(case.tolerance)
    try:
        verdict = run_case(case, device)
    except NotSupported as refusal:
        if case.needs is None or case.needs in device.adapter.features:
            raise DmlError(f"every adapter must run it, but: {refusal}") from refusal
        message = str(refusal)
        return Outcome(case.name, Status.NOT_SUPPORTED, tolerance, message=message, missing=case.needs)
    if case.alternatives is not None:
        verdict = replace(verdict, digest="")  # the order of invocations may decide, from run to run anew
    return Outcome.of_verdict(case.name, tolerance, verdict, time.perf_counter() - start)
