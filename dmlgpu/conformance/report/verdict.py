"""The verdict on all runs in one sentence, and all that did not simply pass, grouped by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dmlgpu.conformance.report.model import Report, kind_of
from dmlgpu.conformance.report.pairs import PairReport
from dmlgpu.conformance.report.suspects import ShaderCounts, Suspect, simplest, sorts_text
from dmlgpu.conformance.running.outcome import Outcome, Status, counted

NAMES = 3
"""Runs, and operators of each, that are named; of others it is said how many there are."""


NO_OPERATORS = ("pair", "pattern", "graph", "chain", "hazard", "size")
"""How names of cases of several operators begin."""


@dataclass(frozen=True)
class ReportVerdict:
    """A sentence, and what it comes to.

    Attributes:
        kind: ``good`` or ``bad``.
        text: the sentence.
    """

    kind: str
    text: str


def verdict(report: Report) -> ReportVerdict:
    """Of the runs, of the comparisons between adapters, and of measurements."""
    wrong = [*_wrong_runs(report), *_wrong_times(report), *_disagreements(report), *_cut_off(report)]
    if wrong:
        return ReportVerdict("bad", _sentence(wrong))
    good = [*_good_runs(report), *_agreements(report), *_good_times(report)]
    return ReportVerdict("good", _sentence(good))


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _wrong_runs(report: Report) -> Iterator[str]:
    texts: list[str] = []
    for number, run in enumerate(report.runs):
        bad = [outcome for outcome in run.outcomes if kind_of(outcome.status) == "bad"]
        if bad:
            names = _subjects(sorted({outcome.operator for outcome in bad}))
            failed = "failed " if not texts else ""
            cases = counted(len(run.outcomes), "case")
            texts.append(f"{len(bad):,} of {cases} {failed}on {report.labels[number]}: {sorts_text(bad)} in {names}")
    yield from texts[:NAMES]
    if len(texts) > NAMES:
        yield f"and cases of {counted(len(texts) - NAMES, 'more run')}"


def _subjects(stems: Sequence[str]) -> str:
    """The operators of cases, then what graphs and programs are called by, which are no operators."""
    operators = [stem for stem in stems if stem not in NO_OPERATORS]
    others = [f"cases '{stem}'" for stem in stems if stem in NO_OPERATORS]
    return ", ".join(filter(None, (_some(operators, "operator") if operators else "", *others)))


def _disagreements(report: Report) -> Iterator[str]:
    for comparison in report.comparisons:
        wrong = PairReport(comparison).disagreements
        if wrong:
            cases = counted(len({pair.case for pair in comparison.pairs}), "case")
            yield f"adapters compared with each other disagree on {len(wrong):,} of {cases}"


def _wrong_times(report: Report) -> Iterator[str]:
    bad = [measurement for times in report.times for measurement in times.bad]
    if bad:
        every = sum(len(times.times) for times in report.times)
        names = _some(list(dict.fromkeys(measurement.name for measurement in bad)), "measurement")
        yield f"{len(bad):,} of {counted(every, 'measurement')} failed or gave wrong results: {names}"


def _good_times(report: Report) -> Iterator[str]:
    if report.times:
        yield f"{counted(sum(len(times.times) for times in report.times), 'measurement')} without errors"


def _cut_off(report: Report) -> Iterator[str]:
    for number, run in enumerate(report.runs):
        if not run.is_complete:
            cases = counted(run.facts["cases"], "case")
            yield f"the run on {report.labels[number]} was truncated after {len(run.outcomes):,} of {cases}"
    for comparison in report.comparisons:
        if not comparison.is_complete:
            yield "a comparison of adapters was truncated"
    if not all(times.is_complete for times in report.times):
        yield "a run of measurements was truncated"


def _good_runs(report: Report) -> Iterator[str]:
    outcomes = [outcome for run in report.runs for outcome in run.outcomes]
    if not report.runs:
        return
    where = f"on {report.labels[0]}" if len(report.runs) == 1 else f"in {len(report.runs)} runs"
    passed = sum(outcome.status is Status.PASS for outcome in outcomes)
    if passed == len(outcomes):
        yield f"No failures: {counted(passed, 'case')} passed {where}"
        return
    rest = [
        f"{count:,} {text}"
        for kind, text in (("refused", "not supported"), ("known", "expected to fail"))
        if (count := sum(kind_of(outcome.status) == kind for outcome in outcomes))
    ]
    yield f"No failures: {passed:,} of {counted(len(outcomes), 'case')} passed {where}, {' and '.join(rest)}"


def _agreements(report: Report) -> Iterator[str]:
    for comparison in report.comparisons:
        cases = counted(len({pair.case for pair in comparison.pairs}), "case")
        yield f"{len(comparison.facts['adapters'])} adapters compared with each other agree on {cases}"


def _some(names: Sequence[str], noun: str) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMES
    return ", ".join([*names[:NAMES], *([f"and {counted(more, f'more {noun}')}"] if more > 0 else [])])


@dataclass(frozen=True)
class Cause:
    """Cases of one run that came out alike.

    Attributes:
        number: of the run.
        status: theirs.
        text: why, in the words of the simplest: the reason of an expected failure, the feature that is missing, or what
            went wrong.
        outcomes: by name.
    """

    number: int
    status: Status
    text: str
    outcomes: tuple[Outcome, ...]

    @property
    def kind(self) -> str:
        """``bad``, ``known`` or ``refused``."""
        return kind_of(self.status)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Of these cases, by name."""
        return tuple(sorted({outcome.operator for outcome in self.outcomes}))

    @property
    def message(self) -> str:
        """What the driver or the compiler said to the simplest, in its lines; empty where that is one line or none."""
        lines = [_printable(line) for line in self.simplest.message.splitlines()]
        return "\n".join(lines) if len(list(filter(None, lines))) > 1 else ""

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """Those that one error of compiling fails, by name; none for other causes and where it fails only one."""
        names = tuple(outcome.case for outcome in self.outcomes if outcome.compile_error)
        return names if len(names) > 1 else ()

    @cached_property
    def simplest(self) -> Outcome:
        """The case to look at first: of plain numbers, with few elements."""
        return simplest(self.outcomes)

    @cached_property
    def worst(self) -> Outcome:
        """The case that is farthest off; the first where none is."""
        return max(self.outcomes, key=lambda outcome: outcome.of_bound or 0.0)


def causes(report: Report) -> tuple[Cause, ...]:
    """The bad ones by operator, one for each status, or by the error of compiling that several operators may have; the
    others by their reason. Sorted by kind, then by run."""
    outcomes_of: dict[tuple[str, int, Status, str], list[Outcome]] = {}
    for number, outcome in report.not_passed():
        kind = kind_of(outcome.status)
        cause = (outcome.compile_error or outcome.operator) if kind == "bad" else _why(outcome)
        outcomes_of.setdefault((kind, number, outcome.status, cause), []).append(outcome)
    return tuple(
        Cause(number, status, _why(simplest(outcomes)), tuple(outcomes))
        for (_, number, status, _), outcomes in sorted(outcomes_of.items(), key=lambda entry: entry[0])
    )


def suspects(report: Report) -> tuple[tuple[int, Suspect], ...]:
    """The shader files that failing cases have in common, the most telling first, each with the number of its run."""
    return tuple(
        (number, suspect) for number, run in enumerate(report.runs) for suspect in ShaderCounts(run.outcomes).suspects()
    )


def of_kind(all_causes: Iterable[Cause], kind: str) -> tuple[Cause, ...]:
    """Those that are ``bad``, ``known`` or ``refused``."""
    return tuple(cause for cause in all_causes if cause.kind == kind)


def _why(outcome: Outcome) -> str:
    """In a line."""
    if outcome.status is Status.NOT_SUPPORTED and outcome.missing:
        return f"needs {outcome.missing}"
    text = outcome.reason or outcome.message
    if not text and outcome.wrong:
        text = f"expected {outcome.expected}, got {outcome.got}"
    return "; ".join(filter(None, map(_printable, text.splitlines())))


def _printable(line: str) -> str:
    """Without what moves a terminal's cursor; tabs as spaces."""
    return "".join(filter(str.isprintable, line.expandtabs(4))).rstrip()
