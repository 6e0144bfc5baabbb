"""Verdict on all runs in one sentence, and failures grouped by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dmlgpu.common.errors import counted
from dmlgpu.conformance.report.model import Report, kind_of
from dmlgpu.conformance.report.pairs import PairReport
from dmlgpu.conformance.report.suspects import ShaderCounts, Suspect, simplest, sorts_text
from dmlgpu.conformance.running.outcome import Outcome, Status

NAMES = 3
"""Maximum number of runs, and of operators of each, to name."""


NO_OPERATORS = ("pair", "pattern", "graph", "chain", "hazard", "size")
"""First words of names of cases that are not of one operator."""


@dataclass(frozen=True)
class ReportVerdict:
    """Verdict of a report.

    Attributes:
        kind: ``good`` or ``bad``.
        text: Sentence.
    """

    kind: str
    text: str


def verdict(report: Report) -> ReportVerdict:
    """Return the verdict on runs, comparisons of adapters, and measurements."""
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
    for index, run in enumerate(report.runs):
        bad = [outcome for outcome in run.outcomes if kind_of(outcome.status) == "bad"]
        if bad:
            names = _subjects(sorted({outcome.operator for outcome in bad}))
            failed = "failed " if not texts else ""
            cases = counted(len(run.outcomes), "case")
            texts.append(f"{len(bad):,} of {cases} {failed}on {report.labels[index]}: {sorts_text(bad)} in {names}")
    yield from texts[:NAMES]
    if len(texts) > NAMES:
        yield f"and cases of {counted(len(texts) - NAMES, 'more run')}"


def _subjects(stems: Sequence[str]) -> str:
    """Return the operators of cases, then groups of cases that are not of one operator."""
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
    for index, run in enumerate(report.runs):
        if not run.is_complete:
            cases = counted(run.facts["cases"], "case")
            yield f"the run on {report.labels[index]} was truncated after {len(run.outcomes):,} of {cases}"
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
    """Return the first names, and the number of further ones."""
    more = len(names) - NAMES
    return ", ".join([*names[:NAMES], *([f"and {counted(more, f'more {noun}')}"] if more > 0 else [])])


@dataclass(frozen=True)
class Cause:
    """Cases of one run with the same kind of result.

    Attributes:
        run: Index of the run.
        status: Their status.
        text: Reason, that of the simplest case: the reason of an expected failure, the missing feature, or the failure.
        outcomes: Results by name.
    """

    run: int
    status: Status
    text: str
    outcomes: tuple[Outcome, ...]

    @property
    def kind(self) -> str:
        """``bad``, ``known`` or ``refused``."""
        return kind_of(self.status)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Operators of these cases, by name."""
        return tuple(sorted({outcome.operator for outcome in self.outcomes}))

    @property
    def message(self) -> str:
        """Message of driver or compiler for the simplest case; empty if it has at most one line."""
        lines = [_printable(line) for line in self.simplest.message.splitlines()]
        return "\n".join(lines) if len(list(filter(None, lines))) > 1 else ""

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """Names of cases with the same compile error; empty for other causes and for a single case."""
        names = tuple(outcome.case for outcome in self.outcomes if outcome.compile_error)
        return names if len(names) > 1 else ()

    @cached_property
    def simplest(self) -> Outcome:
        """Simplest case: plain numbers, fewest elements."""
        return simplest(self.outcomes)

    @cached_property
    def worst(self) -> Outcome:
        """Case with the largest error, or the first case."""
        return max(self.outcomes, key=lambda outcome: outcome.of_bound or 0.0)


def causes(report: Report) -> tuple[Cause, ...]:
    """Return causes, sorted by kind, then by run: failures by operator and status, or by a compile error shared by
    operators; others by reason."""
    outcomes_of: dict[tuple[str, int, Status, str], list[Outcome]] = {}
    for index, outcome in report.not_passed():
        kind = kind_of(outcome.status)
        cause = (outcome.compile_error or outcome.operator) if kind == "bad" else _why(outcome)
        outcomes_of.setdefault((kind, index, outcome.status, cause), []).append(outcome)
    return tuple(
        Cause(index, status, _why(simplest(outcomes)), tuple(outcomes))
        for (_, index, status, _), outcomes in sorted(outcomes_of.items(), key=lambda entry: entry[0])
    )


def suspects(report: Report) -> tuple[tuple[int, Suspect], ...]:
    """Return the shader files shared by failing cases, most likely cause first, each with the index of its run."""
    return tuple(
        (index, suspect) for index, run in enumerate(report.runs) for suspect in ShaderCounts(run.outcomes).suspects()
    )


def of_kind(all_causes: Iterable[Cause], kind: str) -> tuple[Cause, ...]:
    """Return the causes of a kind: ``bad``, ``known`` or ``refused``."""
    return tuple(cause for cause in all_causes if cause.kind == kind)


def _why(outcome: Outcome) -> str:
    """Return the reason in one line."""
    if outcome.status is Status.NOT_SUPPORTED and outcome.missing:
        return f"needs {outcome.missing}"
    text = outcome.reason or outcome.message
    if not text and outcome.wrong:
        text = f"expected {outcome.expected}, got {outcome.got}"
    return "; ".join(filter(None, map(_printable, text.splitlines())))


def _printable(line: str) -> str:
    """Remove control characters; replace tabs by spaces."""
    return "".join(filter(str.isprintable, line.expandtabs(4))).rstrip()
