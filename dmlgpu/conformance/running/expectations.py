"""Cases that are expected to fail on some adapters, in TOML (see ``expectations.toml`` in this folder)."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmlgpu.common.errors import ModelError
from dmlgpu.common.files import toml_tables
from dmlgpu.compiler.quirks import Quirk, describes, in_versions, quirks_of
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.running.outcome import Outcome, Status

BUILT_IN = (Path(__file__).with_name("expectations.toml"), Path(__file__).parents[1] / "mutation" / "survivors.toml")
"""Expectations of dmlgpu: failures of adapters, and faults in shaders that change no result."""

_PROBES = "driver-probe-"
"""Beginning of the names of the cases that measure what probes measure."""

_KINDS: Mapping[str, type | tuple[type]] = {
    "cases": (str,),
    **dict.fromkeys(("backend", "vendor", "adapter", "driver", "library", "reason", "link"), str),
}


@dataclass(frozen=True)
class ExpectedFailure:
    """Cases that fail on some adapters.

    Attributes:
        cases: Shell patterns of names.
        reason: Reason of the failures.
        backend, vendor, adapter: Case-insensitive shell patterns of the adapter's facts; empty ones match all.
        driver, library: Versions (see ``quirks.in_versions``): ``>=25.0, <25.1``, ``Mesa <25``; library is the package
            of the WebGPU library: ``wgpu <0.33``.
        link: Further information.
    """

    cases: tuple[str, ...]
    reason: str
    backend: str = ""
    vendor: str = ""
    adapter: str = ""
    driver: str = ""
    library: str = ""
    link: str = ""

    def applies(self, case: str, info: AdapterInfo) -> bool:
        """Return whether it applies to a case on an adapter."""
        versions = {"driver": self.driver, "library": self.library}
        is_described = describes(info, self.backend, self.vendor, self.adapter, **versions)
        return is_described and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


def load(path: Path) -> tuple[ExpectedFailure, ...]:
    """Load the expectations of a file.

    Raises:
        ModelError: If the file is malformed; the message says where.
        OSError: If it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(str(path), f"is not TOML: {error}") from error
    tables = toml_tables(text, str(path), "expected", _KINDS, ("cases", "reason"))
    return tuple(_expectation(place, values) for place, values in tables)


def _expectation(place: str, values: Mapping[str, Any]) -> ExpectedFailure:
    """Return one entry, whose versions are validated."""
    expectation = ExpectedFailure(**values)
    for key in ("driver", "library"):
        try:
            in_versions(getattr(expectation, key), "")
        except ValueError as error:
            raise ModelError(f"{place}.{key}", str(error)) from error
    return expectation


def with_expectation(outcome: Outcome, info: AdapterInfo, expectations: Iterable[ExpectedFailure]) -> Outcome:
    """Return the result, marked if a failure was expected.

    The case of a quirk of the adapter is expected to fail. If it passes, the result is good, and says so: the driver
    may be newer than the quirk's versions suppose.
    """
    quirk = _quirk_of(outcome, info)
    if quirk is not None and outcome.status is Status.PASS:
        return replace(outcome, message=f"the quirk {quirk.name} of compiler/quirks.toml can go for {info.driver}")
    if quirk is not None:
        remedy = f"; {quirk.remedy}" if quirk.remedy else ""
        return outcome.expected_to_fail(f"{quirk}{remedy} ({quirk.link})")
    expectation = next((entry for entry in expectations if entry.applies(outcome.case, info)), None)
    if expectation is None:
        return outcome
    return outcome.expected_to_fail(
        f"{expectation.reason} ({expectation.link})" if expectation.link else expectation.reason
    )


def known_line(outcome: Outcome, info: AdapterInfo) -> str:
    """Return the line that `dmlgpu test` prints for the case of a quirk of the adapter, and for one of a probe if
    kernels avoid what it measures; empty for other results.

    Args:
        outcome: Result of ``with_expectation``.
        info: The adapter.
    """
    quirk = _quirk_of(outcome, info)
    if outcome.case.startswith(_PROBES) and outcome.status is Status.EXPECTED_FAIL:
        return f"known: {outcome.reason}, shown by {outcome.case}"
    if quirk is not None and outcome.status is Status.EXPECTED_FAIL:
        return f"known: {quirk.name}, shown by {outcome.case}: {outcome.reason.removeprefix(f'{quirk.name}: ')}"
    return f"{outcome.case} passes: {outcome.message}" if quirk is not None and outcome.status is Status.PASS else ""


def _quirk_of(outcome: Outcome, info: AdapterInfo) -> Quirk | None:
    """Return the quirk of the adapter that a case shows."""
    return next((quirk for quirk in quirks_of(info) if quirk.case == outcome.case), None)
