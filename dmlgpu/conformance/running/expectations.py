"""Cases that are expected to fail on some adapters, in TOML (see ``expectations.toml`` in this folder)."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from dmlgpu.common.errors import ModelError
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.running.outcome import Outcome

BUILT_IN = (Path(__file__).with_name("expectations.toml"), Path(__file__).parents[1] / "mutation" / "survivors.toml")
"""Expectations of dmlgpu: failures of adapters, and faults in shaders that change no result."""

_TEXTS = ("backend", "vendor", "adapter", "driver", "reason", "link")
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class ExpectedFailure:
    """Cases that fail on some adapters.

    Attributes:
        cases: Shell patterns of names.
        reason: Reason of the failures.
        backend, vendor, adapter: Case-insensitive shell patterns of the adapter's facts; empty ones match all.
        driver: Versions, such as ``>=25.0, <25.1``, of the first number with a dot in the driver's text.
        link: Further information.
    """

    cases: tuple[str, ...]
    reason: str
    backend: str = ""
    vendor: str = ""
    adapter: str = ""
    driver: str = ""
    link: str = ""

    def applies(self, case: str, info: AdapterInfo) -> bool:
        """Return whether it applies to a case on an adapter."""
        facts = ((self.backend, info.backend), (self.vendor, info.vendor), (self.adapter, info.name))
        return (
            all(not pattern or fnmatch.fnmatchcase(text.lower(), pattern.lower()) for pattern, text in facts)
            and self._covers(info.driver)
            and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)
        )

    def _covers(self, driver: str) -> bool:
        version = _VERSION.search(driver)
        return not self.driver or (version is not None and Version(version[0]) in SpecifierSet(self.driver))


def load(path: Path) -> tuple[ExpectedFailure, ...]:
    """Load the expectations of a file.

    Raises:
        ModelError: If the file is malformed; the message says where.
        OSError: If it cannot be read.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(str(path), f"is not TOML: {error}") from error
    unknown = document.keys() - {"expected"}
    if unknown:
        raise ModelError(f"{path}: {min(unknown)}", "is unknown; the only key is [[expected]]")
    entries = document.get("expected", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ModelError(f"{path}: expected", "must be tables, as [[expected]] writes them")
    return tuple(_expectation(f"{path}: expected[{index}]", entry) for index, entry in enumerate(entries))


def _expectation(where: str, entry: Mapping[str, Any]) -> ExpectedFailure:
    """Return one entry, validated."""
    for name in sorted(entry.keys() - {"cases", *_TEXTS}):
        raise ModelError(f"{where}.{name}", f"is unknown; there are cases, {', '.join(_TEXTS)}")
    for name in ("cases", "reason"):
        if not entry.get(name):
            raise ModelError(f"{where}.{name}", "is missing")
    cases = entry["cases"] if isinstance(entry["cases"], list) else [entry["cases"]]
    texts = {name: entry[name] for name in _TEXTS if name in entry}
    for name, value in [*texts.items(), *(("cases", case) for case in cases)]:
        if not isinstance(value, str):
            raise ModelError(f"{where}.{name}", f"must be a string, got {value!r}")
    try:
        SpecifierSet(texts.get("driver", ""))
    except InvalidSpecifier as error:
        raise ModelError(f"{where}.driver", f"must be versions such as '>=25.0, <25.1': {error}") from error
    return ExpectedFailure(cases=tuple(cases), **texts)


def with_expectation(outcome: Outcome, info: AdapterInfo, expectations: Iterable[ExpectedFailure]) -> Outcome:
    """Return the result, marked if a failure was expected."""
    expectation = next((entry for entry in expectations if entry.applies(outcome.case, info)), None)
    if expectation is None:
        return outcome
    return outcome.expected_to_fail(
        f"{expectation.reason} ({expectation.link})" if expectation.link else expectation.reason
    )
