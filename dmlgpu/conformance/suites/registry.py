"""Test suites by name: those of dmlgpu, and those registered by other packages.

A package registers a suite by an entry point of the group ``dmlgpu.suites``, a function without arguments that returns
a ``Suite``:

    [project.entry-points."dmlgpu.suites"]
    models = "my_package.suites:models"
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import re
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from dmlgpu import catalog as schema
from dmlgpu.catalog import search
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.runtime.device import Device

GROUP = "dmlgpu.suites"
DEFAULT = "dmlgpu"
"""The suite of all cases of dmlgpu."""
BUILT_IN = tuple(
    EntryPoint(name, f"dmlgpu.conformance.suites.{target}", GROUP)
    for name, target in (
        (DEFAULT, "combined:CombinedSuite"),
        ("operators", "operators:OperatorSuite"),
        ("values", "special_values:SpecialValueSuite"),
        ("attributes", "attributes:AttributeSuite"),
        ("halves", "special_values:HalvesSuite"),
        ("chains", "chains:ChainSuite"),
        ("graphs", "graphs:GraphSuite"),
        ("hazards", "hazards:HazardSuite"),
        ("sizes", "sizes:SizeSuite"),
        ("driver", "driver.suite:DriverSuite"),
        ("accuracy", "accuracy:AccuracySuite"),
        ("operator_accuracy", "accuracy:OperatorAccuracySuite"),
    )
)
"""Suites of dmlgpu, found like those of other packages, also if dmlgpu is not installed."""

MUTANTS = (
    EntryPoint("mutants", "dmlgpu.conformance.mutation.suite:MutantSuite", GROUP),
    EntryPoint("mutant_runs", "dmlgpu.conformance.mutation.suite:MutantRunSuite", GROUP),
)
"""The suite of injected shader faults, which the other suites must detect."""


EXTRAS = (
    EntryPoint("quirks", "dmlgpu.conformance.suites.quirks:QuirkSuite", GROUP),
    EntryPoint("onnx", "dmlgpu.conformance.suites.onnx_backend:OnnxBackendSuite", GROUP),
)
"""Suites outside of ``dmlgpu``: ``quirks`` is a part of ``driver``; ``onnx`` uses the models of the package onnx."""


class Suite(Protocol):
    """Named cases, and how to run one."""

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of profiles, the quickest first."""

    def names(self, profile: str) -> tuple[str, ...]:
        """Return the names of the cases of a profile, the same on every call."""

    def has(self, name: str) -> bool:
        """Return whether there is a case of this name in any profile."""

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case. An exception becomes a failure; NotSupported becomes "not supported"."""


def suite_by_name(name: str) -> Suite:
    """Return a suite of dmlgpu or of another package.

    Raises:
        InvalidArgument: If there is no suite of that name (the message lists all), or it needs a package that is not
            installed.
    """
    entries = _entries()
    if name not in entries:
        near = difflib.get_close_matches(name.lower(), entries, 1)
        similar = f"; a similar name: {near[0]}" if near else ""
        raise InvalidArgument(f"there is no suite {name!r}{similar}; there are {', '.join(sorted(entries))}")
    try:
        suite: Suite = entries[name].load()()
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the suite {name!r} needs a package that is not installed: {error}") from None
    return suite


def _entries() -> dict[str, EntryPoint]:
    """Return all suites by name."""
    return {entry.name: entry for entry in (*entry_points(group=GROUP), *BUILT_IN, *MUTANTS, *EXTRAS)}


def suite_names() -> tuple[str, ...]:
    """Return the names of all suites, including those of other packages, sorted."""
    return tuple(sorted(_entries()))


def suite_option(name: str) -> list[str]:
    """Return the command-line option that selects a suite; empty for the default."""
    return [] if name in (DEFAULT, "operators") else ["--suite", name]


def select(suite: Suite, profile: str, patterns: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the cases of a profile that match any of some patterns; all if there are none.

    A complete name outside of the profile is accepted as well, so that commands printed by reports work. A pattern
    without wildcards matches a complete name, else whole words of names, else any part of a name: ``add`` finds
    ``element_wise_add1-...`` and not ``padded``, ``arg`` finds ``argmin-...``.

    Args:
        suite: The suite.
        profile: One of its profiles.
        patterns: Words or parts of names, or shell patterns (see ``matches``).

    Raises:
        InvalidArgument: If the profile is unknown, or a pattern matches nothing; the message suggests similar names.
    """
    if profile not in suite.profiles:
        raise InvalidArgument(f"profile must be one of {', '.join(suite.profiles)}, got {profile!r}")
    names = suite.names(profile)
    selected = set() if patterns else set(names)
    others: list[str] = []
    for pattern in patterns:
        matching = _matching(names, pattern)
        if not matching and not suite.has(pattern):
            hint = _hint(suite, profile, pattern)
            raise InvalidArgument(f"no case of the profile {profile!r} matches {pattern!r}{hint}")
        selected |= matching
        others += [] if matching else [pattern]
    return tuple(dict.fromkeys([*(name for name in names if name in selected), *others]))


def _matching(names: Sequence[str], pattern: str) -> set[str]:
    """Return the names that a pattern matches: itself, else names with its words, else names that contain it."""
    if pattern in names:
        return {pattern}
    parts = {name for name in names if matches(name, pattern)}
    words = _words(pattern)
    return {name for name in parts if words.search(name.lower())} or parts


def _words(pattern: str) -> re.Pattern[str]:
    """Return an expression that matches a pattern at word boundaries; the version of an operator may follow: ``add``
    matches ``add1``."""
    before = r"(?<![a-z0-9])" if pattern[:1].isalnum() else ""
    after = r"(?![a-z0-9])" if pattern[-1:].isalnum() else ""
    version = r"\d*" if pattern[-1:].isalpha() else ""
    return re.compile(f"{before}{re.escape(pattern.lower())}{version}{after}")


def operator_pattern(suite: Suite, word: str) -> str:
    """Return the pattern of all cases of an operator. Names of cases and shell patterns are unchanged.

    Raises:
        InvalidArgument: If it is none of these; the message suggests names from other libraries, or similar ones.
    """
    if any(sign in word for sign in "*?[") or suite.has(word):
        return word
    try:
        return f"{schema.operator(word).stem}-*"
    except InvalidArgument as error:
        place = f"--suite {word.lower()} is a suite" if word.lower() in _entries() else "-k looks for words in names"
        raise InvalidArgument(f"{error}; {place}") from None


def _hint(suite: Suite, profile: str, pattern: str) -> str:
    """Return the hint for a pattern that matches nothing."""
    # Listing the largest profile can take half a minute.
    for larger in suite.profiles[suite.profiles.index(profile) + 1 : -1]:
        count = sum(matches(name, pattern) for name in suite.names(larger))
        if count:
            return f"; --profile {larger} has {count} {'case' if count == 1 else 'cases'} that it matches"
    return _suggestion(pattern, suite.names(profile), list(_entries()))


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern with ``*``, ``?`` or ``[`` matches the whole name, or another is contained in it,
    ignoring case."""
    name, pattern = name.lower(), pattern.lower()
    return fnmatch.fnmatchcase(name, pattern) if any(sign in pattern for sign in "*?[") else pattern in name


def list_digest(names: Sequence[str]) -> str:
    """Return a hash that is equal for equal lists of cases."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


_MAX_NAMES = 3
"""Maximum number of suggested names."""

_LIKENESS = 0.7
"""Minimum similarity of suggested names, as measured by ``difflib``."""


def _suggestion(pattern: str, names: Sequence[str], suites: Sequence[str]) -> str:
    """Return the suggestion for a message, after a semicolon; empty if no name is similar.

    Args:
        pattern: A pattern without matches.
        names: Names of all cases.
        suites: Names of suites.
    """
    word = pattern.strip("*?").lower()
    if word in suites:
        return f"; there is a suite of this name: --suite {word}"
    stem, _, rest = word.partition("-")
    stems = list(dict.fromkeys(name.partition("-")[0] for name in names))
    # An operator's name in another library, then one that is misspelled; the cases of an operator begin with its stem.
    known = [match.operator.stem for match in search.find(stem) if match.fit <= search.SYNONYM]
    alike = [name.lower() for name in search.near(stem)] + _near(stem, stems)
    similar = [candidate for candidate in dict.fromkeys(known or alike) if candidate in stems]
    if rest:
        # As much of each name as there is of the pattern, which may be no more than the beginning.
        beginnings = {name[: len(word)]: name for name in names if name.partition("-")[0] in (stem, *similar)}
        similar = [beginnings[beginning] for beginning in _near(word, list(beginnings))] or similar
    if not similar:
        similar = _near(word, suites)
    return f"; similar names: {', '.join(similar[:_MAX_NAMES])}" if similar else ""


def _near(word: str, names: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(word, names, _MAX_NAMES, _LIKENESS) if len(word) <= search.LONGEST else []
