"""The search for the fastest choices: one question after the other, each answer beside the built-in one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dmlgpu.bench.ratios import MINIMUM_ROUNDS, Ratio, summarize
from dmlgpu.bench.samples import Measured
from dmlgpu.bench.tuning.questions import questions_of
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler.target import Target, Tuned

Race: TypeAlias = Callable[[Workload, Sequence[Tuned], bool], Sequence[Measured]]
"""Measures a workload under tables of choices, in turn. The last argument says whether it is the final, which takes
longer and compares results with the reference."""

TOGETHER = 4
"""Tables that are measured in turn at a time, the one with the built-in choice among them: each has its buffers."""

MOST_FINALS = 4
"""Choices that are measured for longer, one after the other, until the best of all is among them."""

LEAST_GAIN = 0.03
"""The share of the time that a choice must save, surely, to be kept."""


@dataclass(frozen=True)
class Finding:
    """What came of a question.

    Attributes:
        question: what was asked.
        built_in: the built-in choice.
        answer: the choice that is kept: the built-in one, unless another is faster beyond doubt.
        ratio: time of the fastest other choice over that of the built-in one; None where there is no other.
        ratios: of every choice that could be measured, the same, less surely; 1 for the built-in one.
        given: answers of other questions of the workload that were faster than the built-in ones.
    """

    question: str
    built_in: str
    answer: str
    ratio: Ratio | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def gains(self) -> bool:
        """Whether tuning found a faster choice."""
        return self.answer != self.built_in


def _silent(text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Search:
    """The search for the fastest choices in scheduling a workload.

    Attributes:
        workload: an operator or a graph.
        target: of the adapter.
        race: measures.
        tell: is told what is being tried.
    """

    workload: Workload
    target: Target
    race: Race
    tell: Callable[[str], None] = _silent

    def findings(self, known: Mapping[str, str]) -> Iterator[Finding]:
        """Yield what comes of each choice, with those found so far in place: they decide what is asked next.

        Args:
            known: answers from before, which are taken and not sought again.

        Raises:
            DmlError: the workload cannot be compiled.
        """
        answers = dict(known)
        while True:
            questions = questions_of(self.workload, self.target, answers)
            question = next((name for name in questions if name not in answers), None)
            if question is None:
                return
            faster = {
                name: answers[name] for name in questions if answers.get(name, questions[name][0]) != questions[name][0]
            }
            finding = replace(self._find(question, questions[question], answers), given=faster)
            yield finding
            answers[question] = finding.answer

    def _find(self, question: str, possible: Sequence[str], answers: Mapping[str, str]) -> Finding:
        """Measure all answers beside the built-in choice, and those that seem best once more, for longer."""
        built_in, *others = possible
        ratios = {built_in: 1.0}
        for first in range(0, len(others), TOGETHER - 1):
            batch = others[first : first + TOGETHER - 1]
            self.tell(f"{question}: {first + len(batch)} of {len(others)} choices")
            tables = [Tuned.of({**answers, question: candidate}) for candidate in (built_in, *batch)]
            base, *measured = self.race(self.workload, tables, False)
            pairs = zip(batch, measured, strict=True)
            ratios |= {
                answer: _ratio(candidate, base).median for answer, candidate in pairs if _is_good(candidate, base)
            }
        finals: dict[str, Ratio] = {}
        while len(finals) < MOST_FINALS:
            # A choice that only seemed fast gives way to the next one.
            best = min(ratios, key=ratios.__getitem__, default=built_in)
            if best in finals or (best == built_in and (finals or len(ratios) == 1)):
                break
            if best == built_in:
                best = min((ratio for ratio in ratios if ratio != built_in), key=ratios.__getitem__)
            self.tell(f"{question}: {best} beside {built_in}")
            final = self._final(question, answers, built_in, best)
            if final is not None:
                finals[best] = final
                ratios[best] = final.median
            else:
                del ratios[best]
        if not finals:
            return Finding(question, built_in, built_in, None, ratios)
        best, ratio = min(finals.items(), key=lambda candidate: candidate[1].median)
        if _is_sure(ratio):
            # Where buffers lie, or what else the machine does, may favour one of them throughout a final.
            again = self._final(question, answers, built_in, best, best_first=True)
            if again is None or not _is_sure(again):
                return Finding(question, built_in, built_in, again or ratio, ratios)
            return Finding(question, built_in, best, max(ratio, again, key=lambda candidate: candidate.median), ratios)
        return Finding(question, built_in, built_in, ratio, ratios)

    def _final(
        self, question: str, answers: Mapping[str, str], built_in: str, best: str, *, best_first: bool = False
    ) -> Ratio | None:
        """Return the time of a choice over that of the built-in one; None where one cannot be measured or is wrong."""
        order = (best, built_in) if best_first else (built_in, best)
        measured = self.race(self.workload, [Tuned.of({**answers, question: answer}) for answer in order], True)
        final, base = (measured[order.index(answer)] for answer in (best, built_in))
        return _ratio(final, base) if _is_good(final, base) else None


def _is_good(measured: Measured, base: Measured) -> bool:
    """Return whether a choice was measured beside the built-in one, and computes what the reference does."""
    wrong = measured.readiness.get("check", {}).get("status") == "wrong"
    return measured.status == base.status == "measured" and not wrong and bool(measured.samples)


def _is_sure(ratio: Ratio) -> bool:
    return ratio.rounds >= MINIMUM_ROUNDS and ratio.high <= 1 - LEAST_GAIN


def _ratio(measured: Measured, base: Measured) -> Ratio:
    return summarize(measured.seconds, base.seconds)


def summary(findings: Sequence[Finding]) -> str:
    """Return how many choices tuning improved, and by how much on the average."""
    gains = [finding.ratio.median for finding in findings if finding.gains and finding.ratio is not None]
    if not gains:
        return f"faster than built in: 0 of {len(findings)}"
    mean = statistics.geometric_mean(gains)
    return f"faster than built in: {len(gains)} of {len(findings)}, taking {mean:.2f} of the time on the average"
