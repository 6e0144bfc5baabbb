"""The suite of the operators' cases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.conformance.cases import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.outcome import Outcome, Status
from dmlgpu.conformance.runner import run_case
from dmlgpu.device.device import Device
from dmlgpu.errors import DmlError, InvalidArgument, NotSupported

QUICK_COUNT = 4
"""Cases per operator in the quick profile, beside one of its page's examples."""


def _first(names: Sequence[str]) -> tuple[str, ...]:
    """Few of an operator's cases: their order is such that beginnings cover most types, layouts and variants."""
    examples = [name for name in names if "-example" in name]
    others = [name for name in names if "-example" not in name]
    return (*examples[:1], *others[:QUICK_COUNT])


class OperatorSuite:
    """Every operator's cases: the same objects from which the tests of dmlgpu come."""

    profiles = ("quick", "standard", "full")

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of a profile's cases."""
        wanted = "full" if profile == "full" else "quick"
        found = (cases.names(wanted) for cases in OPERATOR_CASES.values())
        return tuple(name for names in found for name in (_first(names) if profile == "quick" else names))

    def has(self, name: str) -> bool:
        """Whether a name spells a case."""
        try:
            case_by_name(name)
        except InvalidArgument:
            return False
        return True

    def run(self, name: str, device: Device) -> Outcome:
        """Compare what the adapter computes with the reference.

        Raises:
            DmlError: when the case cannot be run although the adapter has what it needs.
        """
        case, start = case_by_name(name), time.perf_counter()
        tolerance = str(case.tolerance)
        try:
            verdict = run_case(case, device)
        except NotSupported as refusal:
            if case.needs is None or case.needs in device.adapter.features:
                raise DmlError(f"every adapter must run it, but: {refusal}") from refusal
            message = str(refusal)
            return Outcome(name, Status.NOT_SUPPORTED, tolerance, message=message, missing=case.needs)
        if case.rivals is not None:
            verdict = replace(verdict, digest="")  # the order of invocations may decide, from run to run anew
        return Outcome.of_verdict(name, tolerance, verdict, time.perf_counter() - start)
