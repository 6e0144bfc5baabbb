"""Shader files shared by the failing cases of a run, and the simplest failing case."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dmlgpu.common.errors import counted
from dmlgpu.conformance.report.model import kind_of
from dmlgpu.conformance.running.outcome import Outcome

_FILES = re.compile(r"\(([^()]*)\)$")
_SHOWN_FILES = 3
MAX_SUSPECTS = 8


@dataclass(frozen=True)
class Suspect:
    """Shader files with the same failing cases.

    Attributes:
        files: By name.
        failing: Failing cases of one run that contain them.
        total: Number of cases of the run that contain them.
    """

    files: tuple[str, ...]
    failing: tuple[Outcome, ...]
    total: int

    @property
    def name(self) -> str:
        """Names of the files, abbreviated."""
        more = len(self.files) - _SHOWN_FILES
        return ", ".join(self.files[:_SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")

    @property
    def share(self) -> str:
        """Failing of all cases: ``10 of 12``."""
        return f"{len(self.failing):,} of {self.total:,}"

    @property
    def simplest(self) -> Outcome:
        """Simplest failing case."""
        return simplest(self.failing)


class ShaderCounts:
    """Counts, per shader file, the results of cases whose kernels contain it."""

    def __init__(self, outcomes: Iterable[Outcome] = ()):
        self._totals: Counter[str] = Counter()
        self._failing: dict[str, dict[str, Outcome]] = {}
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        """Count a result."""
        files = shader_files(outcome.kernels)
        self._totals.update(files)
        if kind_of(outcome.status) == "bad":
            for file in files:
                self._failing.setdefault(file, {})[outcome.case] = outcome

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the files that explain the failing cases, the most likely cause first: files of which most cases
        fail. Cases explained by a file do not count for later ones."""
        left = {file: dict(cases) for file, cases in self._failing.items()}
        suspects: list[Suspect] = []
        while left and len(suspects) < MAX_SUSPECTS:
            best = max(sorted(left), key=lambda file: (len(left[file]) ** 2 / self._totals[file], -self._totals[file]))
            failing = self._failing[best]
            files = tuple(
                sorted(
                    file
                    for file, cases in self._failing.items()
                    if file in left and cases.keys() == failing.keys() and self._totals[file] == self._totals[best]
                )
            )
            suspects.append(Suspect(files, tuple(failing[case] for case in sorted(failing)), self._totals[best]))
            remaining = {
                file: {case: outcome for case, outcome in cases.items() if case not in failing}
                for file, cases in left.items()
            }
            left = {file: cases for file, cases in remaining.items() if cases}
        return tuple(suspects)


def shader_files(kernels: Sequence[str]) -> frozenset[str]:
    """Return the shader files in labels of kernels: ``gemm small (matrix/gemm, schedules/tiled)`` has two."""
    matches = filter(None, map(_FILES.search, kernels))
    return frozenset(file for match in matches for file in match[1].split(", ") if file)


def suspect_lines(suspects: Sequence[Suspect]) -> list[str]:
    """Return lines for the terminal: a heading, and one per suspect; empty if there are none."""
    if not suspects:
        return []
    lines = [
        f"  {suspect.share} {'case' if suspect.total == 1 else 'cases'} with {suspect.name}; "
        f"simplest: {suspect.simplest.case}"
        for suspect in suspects
    ]
    return ["shader files shared by the failing cases:", *lines]


# ---- the simplest case


_PLAIN = (1e-4, 1e6)
"""Range of plain numbers, besides 0."""

_SPECIAL = ("values", "attributes", "special", "subnormal", "broadcast")
"""Words in names of cases that are harder to follow."""


def simplest(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the simplest case: plain numbers, fewest elements."""
    return min(outcomes, key=_difficulty)


def _difficulty(outcome: Outcome) -> tuple[bool, bool, float, int, str]:
    numbers = (outcome.expected, outcome.got, *outcome.inputs)
    return (
        not all(map(_is_plain, numbers)),
        any(f"-{word}" in outcome.case for word in _SPECIAL),
        outcome.elements or math.inf,
        len(outcome.case),
        outcome.case,
    )


def _is_plain(text: str) -> bool:
    """Return whether a text is a plain number or no number."""
    try:
        value = abs(float(text))
    except ValueError:
        return True
    return value == 0 or _PLAIN[0] <= value <= _PLAIN[1]


# ---- kinds of failures


def sorts_text(outcomes: Iterable[Outcome]) -> str:
    """Return the kinds of failures: ``5 wrong results and 10 compile errors``."""
    sorts = Counter(map(_sort_of, outcomes))
    *first, last = (counted(sorts[sort], sort) for sort in _SORTS if sorts[sort])
    return f"{', '.join(first)} and {last}" if first else last


_SORTS = _WRONG, _COMPILE_ERROR, _OTHER = ("wrong result", "compile error", "other failure")


def _sort_of(outcome: Outcome) -> str:
    if outcome.compile_error:
        return _COMPILE_ERROR
    return _WRONG if outcome.wrong else _OTHER
