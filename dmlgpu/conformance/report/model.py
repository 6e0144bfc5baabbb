"""Runs side by side: the data of all report formats."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dmlgpu import catalog as schema
from dmlgpu.compiler import operators
from dmlgpu.conformance.drivers.discovery import in_environment
from dmlgpu.conformance.drivers.pairwise import Comparison
from dmlgpu.conformance.running.exercised import VOCABULARY
from dmlgpu.conformance.running.exercised import kind_of as kind_of_name
from dmlgpu.conformance.running.outcome import Outcome, Status, moment_text, share_text
from dmlgpu.conformance.running.pool import TIME_LIMIT, time_limit_option
from dmlgpu.conformance.running.records import RecordedRun
from dmlgpu.conformance.suites.registry import DEFAULT, suite_option

_PARENTHESES = re.compile(r"\s*\([^)]*\)")
_NAMED_VERSION = re.compile(r"[A-Za-z]+ \d+(?:\.\d+)+")
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Label:
    """Short name of a run.

    Attributes:
        name: Name of the adapter: ``llvmpipe``.
        details: Backend, driver and distinguishing facts: ``Vulkan, Mesa 25.0.7``.
    """

    name: str
    details: str

    def __str__(self) -> str:
        return f"{self.name} ({self.details})"

    def with_detail(self, detail: str) -> Label:
        """Return the label with another detail."""
        return replace(self, details=f"{self.details}, {detail}") if detail else self


def labels(runs: Sequence[RecordedRun]) -> tuple[Label, ...]:
    """Return one label per run. Only runs with equal facts, or of different suites, have equal labels."""
    labels_ = [Label(_name(run), _driver(run.facts["adapter"])) for run in runs]
    for detail in _DETAILS:
        texts: dict[tuple[str, Label], set[str]] = {}
        for run, label in zip(runs, labels_, strict=True):
            texts.setdefault((run.facts["suite"], label), set()).add(detail(run.facts))
        labels_ = [
            label.with_detail(detail(run.facts)) if len(texts[run.facts["suite"], label]) > 1 else label
            for run, label in zip(runs, labels_, strict=True)
        ]
    return tuple(labels_)


_DETAILS: Sequence[Callable[[Mapping[str, Any]], str]] = (
    lambda facts: facts["adapter"]["name"],
    lambda facts: facts["adapter"]["driver"],
    lambda facts: "precise" if facts.get("precise") else "",
    lambda facts: facts["profile"],
    lambda facts: facts["pattern"] and shlex.join(["-k", facts["pattern"]]),
    lambda facts: facts["dmlgpu"],
    lambda facts: facts["commit"],
    lambda facts: moment_text(facts["started"]),
)
"""Facts that distinguish runs, in the order in which they are tried."""


def _name(run: RecordedRun) -> str:
    """Return the name of the adapter without parentheses."""
    return _PARENTHESES.sub("", run.facts["adapter"]["name"]) or run.facts["adapter"]["name"]


def _driver(adapter: Mapping[str, Any]) -> str:
    """Return the backend and the version of the driver, abbreviated."""
    match = _NAMED_VERSION.search(adapter["driver"]) or _VERSION.search(adapter["driver"])
    backend, version = adapter["backend"], match[0] if match else ""
    return version if version.startswith(f"{backend} ") else ", ".join(filter(None, (backend, version)))


@dataclass(frozen=True)
class FactTable:
    """Table of facts about runs.

    Attributes:
        numbers: Indices of the runs.
        rows: One text per run and fact; empty if a run lacks the fact.
    """

    numbers: tuple[int, ...]
    rows: Mapping[str, tuple[str, ...]]


def features(report: Report) -> FactTable:
    """Return every feature that some adapter has: ``yes`` or empty."""
    return _of_adapters(report, lambda adapter: dict.fromkeys(sorted(adapter["features"]), "yes"))


def limits(report: Report) -> FactTable:
    """Return every limit of the adapters."""
    return _of_adapters(report, lambda adapter: {name: _text(value) for name, value in adapter["limits"].items()})


def _of_adapters(report: Report, values: Callable[[dict[str, Any]], Mapping[str, str]]) -> FactTable:
    """Return each adapter once, however many suites ran on it."""
    seen: list[dict[str, Any]] = []
    numbers = []
    for index, run in enumerate(report.runs):
        if run.facts["adapter"] not in seen:
            seen.append(run.facts["adapter"])
            numbers.append(index)
    return _side_by_side(tuple(numbers), [values(adapter) for adapter in seen], in_order=sorted)


def run_facts(report: Report) -> FactTable:
    """Return the facts of a run: adapter, versions, list of cases, times."""
    columns = []
    for index, run in enumerate(report.runs):
        adapter = {f"adapter {name}": value for name, value in run.facts["adapter"].items()}
        facts = {
            **adapter,
            **run.facts,
            "started": moment_text(run.facts["started"]),
            "time in cases": f"{report.totals[index].seconds:.1f} s",
        }
        hidden = ("adapter", "adapter features", "adapter limits", "format")
        columns.append({name.replace("_", " "): _text(value) for name, value in facts.items() if name not in hidden})
    return _side_by_side(tuple(range(len(columns))), columns, in_order=list)


def exercised(report: Report) -> FactTable:
    """Return what kernels used of WGSL: the number of kernels, or why there is none. Runs that do not say are
    omitted."""
    columns: dict[int, dict[str, str]] = {}
    for index, run in enumerate(report.runs):
        if run.exercised is not None:
            reasons, used = run.exercised.reasons(), run.exercised.used
            never = {name: f"avoided, {reasons[name]}" if name in reasons else "never" for name in run.exercised.never}
            others = {other.what: f"avoided, {other.reason}" for other in run.exercised.avoided if not other.names}
            counts = {name: f"{count:,}" for name, count in used.items()}
            columns[index] = {"kernels": f"{run.exercised.kernels:,}", **others, **counts, **never}

    def in_order(names: Iterable[str]) -> list[str]:
        order = {kind: place for place, kind in enumerate(VOCABULARY)}
        head, *rest = names
        return [head, *sorted(rest, key=lambda name: (order[kind_of_name(name)], name))]

    return _side_by_side(tuple(columns), list(columns.values()), in_order=in_order if columns else list)


def _side_by_side(
    numbers: tuple[int, ...], columns: Sequence[Mapping[str, str]], in_order: Callable[[Iterable[str]], list[str]]
) -> FactTable:
    names = in_order(dict.fromkeys(name for column in columns for name in column))
    rows = {name: tuple(column.get(name, "") for column in columns) for name in names}
    return FactTable(numbers, {name: texts for name, texts in rows.items() if any(texts)})


def _text(value: Any) -> str:
    """Return numbers by thousands, lists and tables as their entries."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Cell:
    """Results of cases on one adapter: of an operator, of a family, or all.

    Attributes:
        outcomes: Results.
    """

    outcomes: tuple[Outcome, ...]

    @cached_property
    def counts(self) -> Mapping[Status, int]:
        """Number of results by status."""
        counts = Counter(outcome.status for outcome in self.outcomes)
        return {status: counts[status] for status in Status if counts[status]}

    @property
    def kind(self) -> str:
        """Worst kind of result: ``bad``, ``known``, ``refused``, ``good``."""
        return min(map(kind_of, self.counts), key=list(SIGNS).index)

    @property
    def passed(self) -> int:
        """Number of passed cases."""
        return self.counts.get(Status.PASS, 0)

    @cached_property
    def of_bound(self) -> float | None:
        """Largest error relative to the tolerance; None if nothing was compared."""
        return max((outcome.of_bound for outcome in self.outcomes if outcome.of_bound is not None), default=None)

    @property
    def seconds(self) -> float:
        """Total time of the cases."""
        return math.fsum(outcome.seconds for outcome in self.outcomes)

    @property
    def summary(self) -> str:
        """Text of the cell: ``60, 63 %``, or ``57 of 60, out of tolerance``."""
        count = len(self.outcomes)
        passed = str(count) if self.passed == count else f"{self.passed} of {count}"
        return ", ".join(filter(None, (passed, share_text(self.of_bound))))


SIGNS = {"bad": "✗", "known": "!", "refused": "○", "good": "✓"}
"""Kinds of results, the worst first, and their symbols."""


def kind_of(status: Status) -> str:
    """Return the kind of a status."""
    kinds = {Status.PASS: "good", Status.NOT_SUPPORTED: "refused", Status.EXPECTED_FAIL: "known"}
    return kinds.get(status, "bad")


@dataclass(frozen=True)
class Family:
    """Operators that belong together.

    Attributes:
        name: Folder of their shaders; ``functions`` for measured functions, ``others`` for other cases.
        operators: By name.
    """

    name: str
    operators: tuple[str, ...]


FUNCTIONS, OTHERS = "functions", "others"
_LAST = {FUNCTIONS: 1, OTHERS: 2}
"""Families listed after those of operators."""


@dataclass(frozen=True)
class Matrix:
    """Table of operators by adapters, for runs that selected the same cases.

    Attributes:
        suite: Test suite.
        selection: Selected cases, as returned by ``selection_of``.
        is_only: Whether it contains all runs of the suite.
        numbers: Indices of the runs in the report.
        families: By name, those of operators first.
    """

    suite: str
    selection: str
    is_only: bool
    numbers: tuple[int, ...]
    families: tuple[Family, ...]

    @property
    def title(self) -> str:
        """Heading of its rows."""
        return "Operators" if self.suite == DEFAULT else self.suite.capitalize()

    @property
    def key(self) -> str:
        """Name of the suite, with the index of the first run if the suite has other selections."""
        return self.suite if self.is_only else f"{self.suite}-{self.numbers[0]}"

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Non-empty groups by name: operators, functions, others."""
        of_operators = [family for family in self.families if family.name not in _LAST]
        groups = {"operators": tuple(sorted(name for family in of_operators for name in family.operators))}
        groups |= {family.name: family.operators for family in self.families if family not in of_operators}
        return {name: operators for name, operators in groups.items() if operators}


@dataclass(frozen=True)
class Report:
    """Runs side by side, in the order passed.

    Attributes:
        runs: Cases compared with the reference, each run on one adapter.
        comparisons: Cases compared between adapters.
        times: Measurements.
        not_run: Parts of surveys that were not run, a text each.
    """

    runs: tuple[RecordedRun, ...]
    comparisons: tuple[Comparison, ...] = ()
    times: tuple[Times, ...] = ()
    not_run: tuple[str, ...] = ()

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """Short names of the runs."""
        return labels(self.runs)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """One table per suite and selection of cases, in order of first appearance."""
        numbers_of: dict[tuple[str, str], list[int]] = {}
        for suite, numbers in self.suites.items():
            for index in numbers:
                numbers_of.setdefault((suite, selection_of(self.runs[index])), []).append(index)
        return tuple(
            Matrix(suite, selection, len(numbers) == len(self.suites[suite]), tuple(numbers), self._families(numbers))
            for (suite, selection), numbers in numbers_of.items()
        )

    @cached_property
    def suites(self) -> Mapping[str, tuple[int, ...]]:
        """Runs of each suite, in order of first appearance."""
        suites: dict[str, tuple[int, ...]] = {}
        for index, run in enumerate(self.runs):
            suites[run.facts["suite"]] = (*suites.get(run.facts["suite"], ()), index)
        return suites

    def _families(self, numbers: Sequence[int]) -> tuple[Family, ...]:
        families: dict[str, list[str]] = {}
        measured = {
            operator for (operator, _), cell in self._cells.items() if any(outcome.curve for outcome in cell.outcomes)
        }
        for operator in sorted({operator for operator, index in self._cells if index in numbers}):
            name = FUNCTIONS if operator in measured else family_of(operator) or OTHERS
            families.setdefault(name, []).append(operator)
        return tuple(
            Family(name, tuple(families[name]))
            for name in sorted(families, key=lambda name: (_LAST.get(name, 0), name))
        )

    @cached_property
    def _cells(self) -> Mapping[tuple[str, int], Cell]:
        outcomes_of: dict[tuple[str, int], list[Outcome]] = {}
        for index, run in enumerate(self.runs):
            for outcome in run.outcomes:
                outcomes_of.setdefault((outcome.operator, index), []).append(outcome)
        return {key: Cell(tuple(outcomes)) for key, outcomes in outcomes_of.items()}

    def cell(self, operator: str, index: int) -> Cell | None:
        """Return an operator in a run; None if the run has no case of it."""
        return self._cells.get((operator, index))

    def family(self, family: Family, index: int) -> Cell | None:
        """Return a family in a run; None if the run has no case of it."""
        cells = filter(None, (self.cell(operator, index) for operator in family.operators))
        outcomes = tuple(outcome for cell in cells for outcome in cell.outcomes)
        return Cell(outcomes) if outcomes else None

    def truth(self, times: Times, time: Time) -> Cell | None:
        """Return the test results of a measured operator on the same adapter; None if there are none."""
        adapter = times.adapters.get(time.adapter)
        cells = [
            cell
            for index, run in enumerate(self.runs)
            if run.adapter == adapter and (cell := self.cell(time.operator.lower(), index)) is not None
        ]
        return Cell(tuple(outcome for cell in cells for outcome in cell.outcomes)) if cells else None

    @cached_property
    def totals(self) -> tuple[Cell, ...]:
        """Results of whole runs."""
        return tuple(Cell(run.outcomes) for run in self.runs)

    def not_passed(self) -> Iterator[tuple[int, Outcome]]:
        """Results other than pass, by name, each with the index of its run."""
        numbered = ((index, outcome) for index, run in enumerate(self.runs) for outcome in run.outcomes)
        yield from sorted(
            (pair for pair in numbered if pair[1].status is not Status.PASS), key=lambda pair: pair[1].case
        )


def family_of(operator: str) -> str:
    """Return the folder of an operator's shaders, or of the newer operator that it runs as; empty for other names."""
    name = operator.upper()
    if name not in schema.catalog() or name not in operators.implemented():
        return ""
    files = operators.shader_files(name)
    newer = schema.operator(name).superseded_by
    if files or newer is None:
        return files[0].partition("/")[0] if files else ""
    return family_of(newer)


def selection_of(run: RecordedRun) -> str:
    """Return the selected cases of the suite: ``quick``, or ``quick, -k softmax``."""
    pattern = run.facts["pattern"]
    return f"{run.facts['profile']}, {shlex.join(['-k', pattern])}" if pattern else str(run.facts["profile"])


def command(run: RecordedRun) -> str:
    """Return the command that runs a case again on a run's adapter, without the name of the case."""
    adapter = f"{run.facts['adapter']['backend']}: {run.facts['adapter']['name']}"
    precise = ["--precise"] if run.facts.get("precise") else []
    options = [*precise, *time_limit_option(run.facts.get("time_limit", TIME_LIMIT))]
    text = shlex.join(["dmlgpu", "test", *suite_option(run.facts["suite"]), "--adapter", adapter, *options, "-k"])
    return in_environment(text, run.facts.get("environment", {}))


def reproduce(run: RecordedRun, outcome: Outcome) -> str:
    """Return the command that runs a case again on the same adapter."""
    return f"{command(run)} {shlex.quote(outcome.case)}"


@dataclass(frozen=True)
class Time:
    """A measurement.

    Attributes:
        name: What was measured.
        operator: DirectML's name, ``GRAPH`` or ``MODEL``.
        adapter: Name of the adapter.
        where: Name of the adapter, with the requested schedule.
        time: Time with its uncertainty, or why it was not measured.
        phases, work: Other times; rates and fractions of ceilings.
        result: ``right``, ``wrong``, ``unchecked``, or the status of a failed measurement.
        kind: ``good``, ``known`` if doubtful, ``refused`` or ``bad``.
        warnings: Reasons for doubt.
        seconds: Per dispatch; None if nothing was measured.
        predicted: Time that the cost model predicts; empty if none.
    """

    name: str
    operator: str
    adapter: str
    where: str
    time: str
    phases: str = ""
    work: str = ""
    result: str = ""
    kind: str = "good"
    warnings: tuple[str, ...] = ()
    seconds: float | None = None
    predicted: str = ""


@dataclass(frozen=True)
class Times:
    """Measurements of one command.

    Attributes:
        facts: Versions, machine and options.
        adapters: Full names of adapters, by short name.
        times: Measurements.
        is_complete: Whether the run was completed.
    """

    facts: Mapping[str, Any]
    adapters: Mapping[str, str]
    times: tuple[Time, ...]
    is_complete: bool = True

    @property
    def bad(self) -> tuple[Time, ...]:
        """Failed or wrong measurements."""
        return tuple(time for time in self.times if time.kind == "bad")
