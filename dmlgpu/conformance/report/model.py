"""Runs beside each other: what every format of a report is made from."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dmlgpu import catalog as schema
from dmlgpu.compiler import operators
from dmlgpu.conformance.drivers.discovery import in_environment
from dmlgpu.conformance.drivers.pairwise import Comparison
from dmlgpu.conformance.report.labels import Label, labels
from dmlgpu.conformance.report.times import Time, Times
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import Run
from dmlgpu.conformance.running.wording import share_text
from dmlgpu.conformance.suites.registry import DEFAULT, suite_option


@dataclass(frozen=True)
class Cell:
    """Cases on one adapter: those of an operator, of a family, or all.

    Attributes:
        outcomes: of these cases.
    """

    outcomes: tuple[Outcome, ...]

    @cached_property
    def counts(self) -> Mapping[Status, int]:
        """How many cases came out how, in the order of the statuses."""
        found = Counter(outcome.status for outcome in self.outcomes)
        return {status: found[status] for status in Status if found[status]}

    @property
    def kind(self) -> str:
        """The worst: ``bad``, ``known``, ``refused``, ``good``."""
        return min(map(kind_of, self.counts), key=list(SIGNS).index)

    @property
    def passed(self) -> int:
        """How many cases passed."""
        return self.counts.get(Status.PASS, 0)

    @cached_property
    def of_bound(self) -> float | None:
        """The largest error, in units of what is allowed; None where nothing was compared."""
        return max((one.of_bound for one in self.outcomes if one.of_bound is not None), default=None)

    @property
    def seconds(self) -> float:
        """What the cases took, one after the other."""
        return math.fsum(outcome.seconds for outcome in self.outcomes)

    @property
    def summary(self) -> str:
        """``60, 63 %``, or ``57 of 60, beyond any tolerance``."""
        count = len(self.outcomes)
        passed = str(count) if self.passed == count else f"{self.passed} of {count}"
        return ", ".join(filter(None, (passed, share_text(self.of_bound))))


SIGNS = {"bad": "✗", "known": "!", "refused": "○", "good": "✓"}
"""What statuses come to, the worst first, and how that is marked beside its colour."""


def kind_of(status: Status) -> str:
    """The one of SIGNS that a status belongs to."""
    kinds = {Status.PASS: "good", Status.NOT_SUPPORTED: "refused", Status.EXPECTED_FAIL: "known"}
    return kinds.get(status, "bad")


@dataclass(frozen=True)
class Family:
    """Operators that belong together.

    Attributes:
        name: by which their shaders are grouped; ``functions`` for those that are measured, ``others`` for what is no
            operator of DirectML either.
        operators: by name.
    """

    name: str
    operators: tuple[str, ...]


FUNCTIONS, OTHERS = "functions", "others"
_LAST = {FUNCTIONS: 1, OTHERS: 2}
"""Families that come after those of operators."""


@dataclass(frozen=True)
class Matrix:
    """Operators by adapters, for runs that were asked for the same cases: others have few operators in common.

    Attributes:
        suite: the list of cases that was run.
        selection: what was chosen from it, as ``selection_of`` says it.
        is_only: whether all runs of the suite are here.
        numbers: of the runs, among all of the report.
        families: by name, those of operators first.
    """

    suite: str
    selection: str
    is_only: bool
    numbers: tuple[int, ...]
    families: tuple[Family, ...]

    @property
    def title(self) -> str:
        """What its rows are."""
        return "Operators" if self.suite == DEFAULT else self.suite.capitalize()

    @property
    def key(self) -> str:
        """The suite's name, and the number of the first run where the suite has other selections."""
        return self.suite if self.is_only else f"{self.suite}-{self.numbers[0]}"

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """What is by name: operators, then functions, then others; without those that are empty."""
        of_operators = [family for family in self.families if family.name not in _LAST]
        found = {"operators": tuple(sorted(name for family in of_operators for name in family.operators))}
        found |= {family.name: family.operators for family in self.families if family not in of_operators}
        return {name: operators for name, operators in found.items() if operators}


@dataclass(frozen=True)
class Report:
    """Runs beside each other, in the order in which they were given.

    Attributes:
        runs: cases compared with the reference, each run on one adapter.
        comparisons: cases compared between adapters.
        times: what was measured.
    """

    runs: tuple[Run, ...]
    comparisons: tuple[Comparison, ...] = ()
    times: tuple[Times, ...] = ()

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """Short names of the runs."""
        return labels(self.runs)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """One per suite and selection of its cases, in the order in which the runs bring them."""
        found: dict[tuple[str, str], list[int]] = {}
        for suite, numbers in self.suites.items():
            for number in numbers:
                found.setdefault((suite, selection_of(self.runs[number])), []).append(number)
        return tuple(
            Matrix(suite, selection, len(numbers) == len(self.suites[suite]), tuple(numbers), self._families(numbers))
            for (suite, selection), numbers in found.items()
        )

    @cached_property
    def suites(self) -> Mapping[str, tuple[int, ...]]:
        """The runs of each suite, in the order in which they bring them."""
        found: dict[str, tuple[int, ...]] = {}
        for number, run in enumerate(self.runs):
            found[run.facts["suite"]] = (*found.get(run.facts["suite"], ()), number)
        return found

    def _families(self, numbers: Sequence[int]) -> tuple[Family, ...]:
        found: dict[str, list[str]] = {}
        measured = {operator for (operator, _), cell in self._cells.items() if any(one.curve for one in cell.outcomes)}
        for operator in sorted({operator for operator, number in self._cells if number in numbers}):
            name = FUNCTIONS if operator in measured else family_of(operator) or OTHERS
            found.setdefault(name, []).append(operator)
        return tuple(
            Family(name, tuple(found[name])) for name in sorted(found, key=lambda name: (_LAST.get(name, 0), name))
        )

    @cached_property
    def _cells(self) -> Mapping[tuple[str, int], Cell]:
        found: dict[tuple[str, int], list[Outcome]] = {}
        for number, run in enumerate(self.runs):
            for outcome in run.outcomes:
                found.setdefault((outcome.operator, number), []).append(outcome)
        return {key: Cell(tuple(outcomes)) for key, outcomes in found.items()}

    def cell(self, operator: str, number: int) -> Cell | None:
        """An operator in a run; None where the run has no case of it."""
        return self._cells.get((operator, number))

    def family(self, family: Family, number: int) -> Cell | None:
        """A family in a run; None where the run has no case of it."""
        cells = filter(None, (self.cell(operator, number) for operator in family.operators))
        outcomes = tuple(outcome for cell in cells for outcome in cell.outcomes)
        return Cell(outcomes) if outcomes else None

    def truth(self, times: Times, time: Time) -> Cell | None:
        """The cases of a measurement's operator on the same adapter; None where no run has any."""
        adapter = times.adapters.get(time.adapter)
        cells = [
            cell
            for number, run in enumerate(self.runs)
            if run.adapter == adapter and (cell := self.cell(time.operator.lower(), number)) is not None
        ]
        return Cell(tuple(outcome for cell in cells for outcome in cell.outcomes)) if cells else None

    @cached_property
    def totals(self) -> tuple[Cell, ...]:
        """The whole runs."""
        return tuple(Cell(run.outcomes) for run in self.runs)

    def not_passed(self) -> Iterator[tuple[int, Outcome]]:
        """What did not simply pass, by name, each with the number of its run."""
        found = ((number, outcome) for number, run in enumerate(self.runs) for outcome in run.outcomes)
        yield from sorted((one for one in found if one[1].status is not Status.PASS), key=lambda one: one[1].case)


def family_of(operator: str) -> str:
    """The folder of an operator's shaders, or of those of the newer operator that it runs as; empty for other names."""
    name = operator.upper()
    if name not in schema.catalog() or name not in operators.implemented():
        return ""
    files = operators.shader_files(name)
    newer = schema.operator(name).superseded_by
    if files or newer is None:
        return files[0].partition("/")[0] if files else ""
    return family_of(newer)


def selection_of(run: Run) -> str:
    """Which cases of its suite were asked for: ``quick``, or ``quick, -k softmax``."""
    pattern = run.facts["pattern"]
    return f"{run.facts['profile']}, {shlex.join(['-k', pattern])}" if pattern else str(run.facts["profile"])


def command(run: Run) -> str:
    """The command that runs a case again on a run's adapter, up to the case's name."""
    adapter = f"{run.facts['adapter']['backend']}: {run.facts['adapter']['name']}"
    precise = ["--precise"] if run.facts.get("precise") else []
    text = shlex.join(["dmlgpu", "test", *suite_option(run.facts["suite"]), "--adapter", adapter, *precise, "-k"])
    return in_environment(text, run.facts.get("environment", {}))


def reproduce(run: Run, outcome: Outcome) -> str:
    """The command that runs a case again on the same adapter."""
    return f"{command(run)} {shlex.quote(outcome.case)}"
