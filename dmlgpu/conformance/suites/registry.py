"""Lists of cases that can be run by name: dmlgpu's own, and what other packages register.

A package brings a suite of its own through an entry point of the group ``dmlgpu.suites``, a callable that takes no
arguments and returns a ``Suite``:

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
"""All of the following together."""
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
        ("accuracy", "accuracy:AccuracySuite"),
        ("operator_accuracy", "accuracy:OperatorAccuracySuite"),
    )
)
"""dmlgpu's own, found like those of other packages, also where dmlgpu runs without having been installed."""

MUTANTS = (
    EntryPoint("mutants", "dmlgpu.conformance.mutation.suite:MutantSuite", GROUP),
    EntryPoint("mutant_runs", "dmlgpu.conformance.mutation.suite:MutantRunSuite", GROUP),
)
"""Faults in the shaders, which the other suites must notice."""


EXTRAS = (EntryPoint("onnx", "dmlgpu.conformance.suites.onnx_backend:OnnxBackendSuite", GROUP),)
"""Suites that need more packages: that of ``onnx`` brings models of its own."""


class Suite(Protocol):
    """Cases with names, and how one of them is run."""

    @property
    def profiles(self) -> tuple[str, ...]:
        """What there is to choose from, the quickest first."""

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of a profile's cases; the same on every call."""

    def has(self, name: str) -> bool:
        """Whether there is a case of this name, in whatever profile."""

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case. What it raises becomes a failure, or a refusal if it is NotSupported."""


def suite_by_name(name: str) -> Suite:
    """A suite of dmlgpu's own or of another package.

    Raises:
        InvalidArgument: when there is none of that name; the message lists those that exist. Or when it needs a package
            that is not installed.
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
    """All suites, by name."""
    return {entry.name: entry for entry in (*entry_points(group=GROUP), *BUILT_IN, *MUTANTS, *EXTRAS)}


def suite_names() -> tuple[str, ...]:
    """The names of all suites, those of other packages included, in alphabetical order."""
    return tuple(sorted(_entries()))


def suite_option(name: str) -> list[str]:
    """What names a suite on the command line: nothing for the default, which holds the operators' cases too."""
    return [] if name in (DEFAULT, "operators") else ["--suite", name]


def select(suite: Suite, profile: str, patterns: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of a profile's cases that match one of some patterns, all where there are none.

    A whole name that the profile leaves out is accepted too, so that what a report prints can be run again. A pattern
    without wildcards is a case's whole name, else whole words of names, and a part of names where no name has it so:
    ``add`` finds ``element_wise_add1-...`` and not ``padded``, ``arg`` finds ``argmin-...``.

    Args:
        suite: the suite.
        profile: one of its profiles.
        patterns: words or a part of a name each, or a shell pattern for all of it (see ``matches``).

    Raises:
        InvalidArgument: when the suite has no such profile, or a pattern matches nothing; the message says what is like
            it.
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
    """The names that a pattern finds: the one that it is, else those that have it as words, else as a part."""
    if pattern in names:
        return {pattern}
    parts = {name for name in names if matches(name, pattern)}
    words = _words(pattern)
    return {name for name in parts if words.search(name.lower())} or parts


def _words(pattern: str) -> re.Pattern[str]:
    """Finds a pattern where it begins and ends as words do; an operator's version may follow: ``add`` in ``add1``."""
    before = r"(?<![a-z0-9])" if pattern[:1].isalnum() else ""
    after = r"(?![a-z0-9])" if pattern[-1:].isalnum() else ""
    version = r"\d*" if pattern[-1:].isalpha() else ""
    return re.compile(f"{before}{re.escape(pattern.lower())}{version}{after}")


def operator_pattern(suite: Suite, word: str) -> str:
    """The pattern for all cases of an operator; a case's name and a shell pattern stay what they are.

    Raises:
        InvalidArgument: for what is neither; the message offers names that others have for it, or similar ones.
    """
    if any(sign in word for sign in "*?[") or suite.has(word):
        return word
    try:
        return f"{schema.operator(word).stem}-*"
    except InvalidArgument as error:
        place = f"--suite {word.lower()} is a suite" if word.lower() in _entries() else "-k looks for words in names"
        raise InvalidArgument(f"{error}; {place}") from None


def _hint(suite: Suite, profile: str, pattern: str) -> str:
    """What to say of a pattern that matches nothing."""
    # To list the largest profile may take half a minute.
    for larger in suite.profiles[suite.profiles.index(profile) + 1 : -1]:
        count = sum(matches(name, pattern) for name in suite.names(larger))
        if count:
            return f"; --profile {larger} has {count} {'case' if count == 1 else 'cases'} that it matches"
    return _suggestion(pattern, suite.names(profile), list(_entries()))


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern with ``*``, ``?`` or ``[`` matches the whole name, or one without lies in it, in any case."""
    name, pattern = name.lower(), pattern.lower()
    return fnmatch.fnmatchcase(name, pattern) if any(sign in pattern for sign in "*?[") else pattern in name


def list_digest(names: Sequence[str]) -> str:
    """What two runs of the same cases agree in."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


_MOST_NAMES = 3
"""Names that are offered, at most."""

_LIKENESS = 0.7
"""From which likeness on names are near, as ``difflib`` measures it."""


def _suggestion(pattern: str, names: Sequence[str], suites: Sequence[str]) -> str:
    """Return what a message about a pattern says after a semicolon; empty where nothing is like it.

    Args:
        pattern: it matches none of the names.
        names: of all cases.
        suites: the names of suites.
    """
    word = pattern.strip("*?").lower()
    if word in suites:
        return f"; there is a suite of this name: --suite {word}"
    stem, _, rest = word.partition("-")
    stems = list(dict.fromkeys(name.partition("-")[0] for name in names))
    # An operator's name in another library, then one that is misspelt; the cases of an operator begin with its stem.
    known = [match.operator.stem for match in search.find(stem) if match.fit <= search.SYNONYM]
    alike = [name.lower() for name in search.near(stem)] + _near(stem, stems)
    similar = [candidate for candidate in dict.fromkeys(known or alike) if candidate in stems]
    if rest:
        # As much of each name as there is of the pattern, which may be no more than the beginning.
        beginnings = {name[: len(word)]: name for name in names if name.partition("-")[0] in (stem, *similar)}
        similar = [beginnings[beginning] for beginning in _near(word, list(beginnings))] or similar
    if not similar:
        similar = _near(word, suites)
    return f"; similar names: {', '.join(similar[:_MOST_NAMES])}" if similar else ""


def _near(word: str, names: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(word, names, _MOST_NAMES, _LIKENESS) if len(word) <= search.LONGEST else []
