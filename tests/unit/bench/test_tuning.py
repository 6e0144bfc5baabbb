"""The search for the fastest choices, on contestants with given times; and the effect of choices on schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.samples import ContestantSamples, Patience, measure
from dmlgpu.bench.tuning import Search, TuningFinding, questions_of, summary
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.schedule.gemm_choice import Shape, alternatives, choose
from dmlgpu.compiler.target import Profile, Target, Tuned
from tests.unit.bench.bench_fakes import Clock, Fake

CPU = Target("CPU", features=frozenset({"subgroup"}))
GEMM = "product 1x256x256x256"
CONVOLUTION = "convolution 1x1x16x28x28 with 1x16x16x3x3: 28 in steps of 1 by 1, 28 in steps of 1 by 1"


def gemm() -> Workload:
    return of_operator("GEMM", ({"m": 256, "k": 256, "n": 256},))[0]


def convolution() -> Workload:
    return of_operator("CONVOLUTION", ({"channels": 16, "filters": 16, "height": 28, "width": 28},))[0]


class FixedTime(Fake):
    """A contestant with a constant time and the result of its check."""

    def __init__(self, clock: Clock, seconds: float, check: str):
        super().__init__(clock, lambda number: seconds)
        self.check = check

    def prepare(self) -> dict[str, Any]:
        return {**super().prepare(), "check": {"status": self.check}}


class Race:
    """Measures by given times, by the answer to one question; others take 0.02 s.

    Attributes:
        sizes: the number of interleaved measurements, and whether it was a final.
    """

    def __init__(
        self,
        question: str,
        seconds: Mapping[str, float],
        wrong: Sequence[str] = (),
        slow_in_finals: Sequence[str] = (),
    ):
        self.question, self.seconds, self.wrong, self.slow = question, seconds, wrong, slow_in_finals
        self.sizes: list[tuple[int, bool]] = []

    def __call__(self, workload: Workload, tables: Sequence[Tuned], final: bool) -> list[ContestantSamples]:
        self.sizes.append((len(tables), final))
        clock = Clock()
        answers = [table.answer(self.question, tuple) for table in tables]
        contestants = [
            FixedTime(
                clock,
                0.04 if final and answer in self.slow else self.seconds.get(answer, 0.02),
                "wrong" if final and answer in self.wrong else "right",
            )
            for answer in answers
        ]
        return measure(contestants, Patience(), clock=clock)


def findings_of(
    workload: Workload, race: Callable[..., Any], known: Mapping[str, str] | None = None
) -> dict[str, TuningFinding]:
    return {finding.question: finding for finding in Search(workload, CPU, race).findings(known or {})}


def test_the_fastest_choice_is_found_and_measured_again_with_the_built_in_one() -> None:
    race = Race(GEMM, {"register 8x4": 0.01, "register 16x2": 0.015})
    finding = findings_of(gemm(), race)[GEMM]
    assert (finding.built_in, finding.answer, finding.gains) == ("register 32x2", "register 8x4", True)
    assert finding.ratio is not None and finding.ratio.median == pytest.approx(0.5)
    assert finding.ratios["register 16x2"] == pytest.approx(0.75)
    assert race.sizes[-2:] == [(2, True)] * 2 and all(size <= 4 and not final for size, final in race.sizes[:-2])


def test_a_choice_that_is_fast_only_when_it_comes_second_is_not_kept() -> None:
    """Each final is repeated in the other order; the first of the two is always slow here."""

    def race(workload: Workload, tables: Sequence[Tuned], final: bool) -> list[ContestantSamples]:
        clock = Clock()
        contestants = [FixedTime(clock, 0.02 if index == 0 else 0.01, "right") for index in range(len(tables))]
        return measure(contestants, Patience(), clock=clock)

    finding = findings_of(gemm(), race)[GEMM]
    assert (finding.gains, finding.ratio and finding.ratio.median) == (False, pytest.approx(2))


def test_a_choice_that_saves_hardly_anything_is_not_kept() -> None:
    finding = findings_of(gemm(), Race(GEMM, {"register 8x4": 0.0198}))[GEMM]
    assert (finding.answer, finding.gains) == ("register 32x2", False)


def test_a_choice_that_computes_something_wrong_is_not_kept() -> None:
    finding = findings_of(gemm(), Race(GEMM, {"register 8x4": 0.001}, wrong=["register 8x4"]))[GEMM]
    assert finding.answer == "register 32x2" and "register 8x4" not in finding.ratios


def test_a_choice_that_only_seemed_fast_loses_to_the_next() -> None:
    race = Race(GEMM, {"register 8x4": 0.01, "register 16x2": 0.012}, slow_in_finals=["register 8x4"])
    finding = findings_of(gemm(), race)[GEMM]
    assert finding.answer == "register 16x2" and finding.ratios["register 8x4"] == pytest.approx(2)
    assert [size for size in race.sizes if size[1]] == [(2, True)] * 3


def test_later_questions_depend_on_earlier_findings() -> None:
    """Winograd's products are 36 of 16 by 49; those of the windows are one, which is chosen if it is faster."""
    race = Race(CONVOLUTION, {"implicit-gemm": 0.001})
    questions = list(findings_of(convolution(), race))
    assert questions[0] == CONVOLUTION and len(questions) == 2 and questions[1].startswith("product 1x")
    slow = list(findings_of(convolution(), Race(CONVOLUTION, {})))
    assert slow[0] == CONVOLUTION and len(slow) == 2 and slow[1].startswith("product 36x")


def test_known_choices_are_used_without_a_search() -> None:
    race = Race(CONVOLUTION, {})
    (question,) = findings_of(convolution(), race, {CONVOLUTION: "implicit-gemm"})
    assert question.startswith("product 1x")


def test_a_summary_counts_gains() -> None:
    findings = [
        *findings_of(gemm(), Race(GEMM, {"register 8x4": 0.01})).values(),
        *findings_of(gemm(), Race(GEMM, {})).values(),
    ]
    assert summary(findings) == "faster than the built-in choice: 1 of 2, on average 0.50 of its time"
    assert summary(findings[1:]) == "faster than the built-in choice: 0 of 1"


# ---- what schedules make of choices


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("sizes", [(1, 256, 256, 256), (1, 8, 64, 4096), (36, 64, 196, 64), (1, 1, 100, 300)])
def test_a_target_tuned_to_an_alternative_chooses_it(sizes: tuple[int, int, int, int], profile: Profile) -> None:
    shape, target = Shape(*sizes), replace(CPU, profile=profile)
    batch, rows, columns, inner = sizes
    choices = alternatives(shape, target)
    assert next(iter(choices)) == choose(shape, target).text and len(choices) > 3
    for text, choice in choices.items():
        tuned = target.with_overrides(tuned=Tuned.of({f"product {batch}x{rows}x{columns}x{inner}": text}))
        assert choose(shape, tuned) == choice
        assert choose(shape, tuned, "small").name == "small"


@pytest.mark.parametrize("answer", ["register 3x3", "winograd-4", "", "register 32x2 in 99 parts", "\0"])
def test_unknown_alternatives_are_ignored(answer: str) -> None:
    shape = Shape(1, 256, 256, 256)
    tuned = CPU.with_overrides(tuned=Tuned.of({GEMM: answer}))
    assert choose(shape, tuned) == choose(shape, CPU)


def test_programs_are_cached_by_tuned_choices() -> None:
    desc = gemm().desc
    tuned = CPU.with_overrides(tuned=Tuned.of({GEMM: "register 8x4"}))
    texts = [compiler.compile_operator(desc, target).kernels[-1].wgsl for target in (CPU, tuned, CPU)]  # type: ignore[arg-type]
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize("careful", [{"precise": True}, {"deterministic": True}])
def test_careful_targets_take_no_choice_that_trades_digits(careful: dict[str, bool]) -> None:
    target = CPU.with_policies(**careful)
    workload = convolution()
    possible = questions_of(workload, target, {})[CONVOLUTION]
    assert not any("winograd" in choice for choice in possible)
    assert "winograd-4" in questions_of(workload, CPU, {})[CONVOLUTION]
    tuned = target.with_overrides(tuned=Tuned.of({CONVOLUTION: "winograd-4"}))
    labels = [kernel.label for kernel in compiler.compile_operator(workload.desc, tuned).kernels]  # type: ignore[arg-type]
    assert not any("winograd" in label for label in labels)
