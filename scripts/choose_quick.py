"""Choose the quick profile of the suite ``operators``: few cases that cover as many shader lines as all standard ones.

    python scripts/choose_quick.py [--keep] [RUN.jsonl ...]

Writes dmlgpu/conformance/cases/quick.txt. A case covers its variant and the lines of its kernels, without constants,
under the schedules for CPUs and for GPUs. Cases are chosen greedily by new lines per second. Results of few bits,
which hardly show bugs, count less. The seconds come from the given runs. Make these with an empty shader cache,
because most of the time is spent in the driver's compiler. For cases without a run, they are estimated from the
length of the kernels and the size of the tensors. Cases of quick_faults.txt, a hand-written list, are always
included. ``--keep`` also includes the cases chosen before, and adds only cases that contribute much in little time.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dmlgpu.compiler.target import Target
from dmlgpu.conformance.cases.case import Array, Case
from dmlgpu.conformance.cases.keys import INPLACE, OWNED, PLAIN, QUICK, QUICK_FAULTS
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.cases.tolerance import as_bits
from dmlgpu.conformance.mutation.suite import PROFILES, case_of, shaders
from dmlgpu.conformance.running.records import read_runs

TARGET = Target(name="quick", features=frozenset({"immediates", "shader-int64", "shader-f64"}))

MIN_CASES = 2
"""Minimum cases of an operator, whether they bring anything new or not."""

NEW_LINES = 4
"""New lines that make another case of an operator worth its time."""

LINES_PER_SECOND = 20
"""New lines that make a second worth it."""

LINES_PER_SECOND_MORE = 26
"""The same in addition to retained cases."""

LINES_OF_VARIANT = 8
"""What a variant that no other case of the operator has is worth, in lines."""

COMMON = (PLAIN, OWNED, INPLACE)
"""Variants that operators have in common: one case of them all is enough."""

ENOUGH_BITS = 256
"""What the outputs of a case should say, in bits."""

PER_CASE, PER_CHARACTER, PER_ELEMENT = 0.2, 1.6e-5, 3e-6
"""Seconds, where no run says how many."""

_NUMBER = re.compile(r"(?<![\w.])(?![01]u)\d+(?=u?\b)|(?<=\w)\d+\b")


def main() -> int:
    """The command."""
    keeps, *runs = sys.argv[1:] if "--keep" in sys.argv[1:2] else ("", *sys.argv[1:])
    measured = seconds_of(map(Path, runs))
    previous = frozenset(QUICK.read_text(encoding="utf-8").split()) if keeps else frozenset()
    least = LINES_PER_SECOND_MORE if keeps else LINES_PER_SECOND
    chosen: list[str] = []
    seen: set[str] = set()
    detecting = frozenset(QUICK_FAULTS.read_text(encoding="utf-8").split())
    for stem, cases in OPERATOR_CASES.items() if keeps else ():
        variants = variants_of(stem)
        for name in (previous | detecting).intersection(cases.names("standard")):
            seen |= Exercise.of(name, variants.get(name, ""), measured.get(name)).lines
    for stem in OPERATOR_CASES:
        names = choose(stem, seen, detecting, measured, previous, least)
        print(f"{stem}: {len(names)}", file=sys.stderr)
        chosen += names
    QUICK.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return 0


def seconds_of(runs: Iterable[Path]) -> dict[str, float]:
    """The seconds that each case took; the most where several runs have it."""
    slowest: dict[str, float] = {}
    for outcome in (outcome for path in runs for run in read_runs(path) for outcome in run.outcomes):
        slowest[outcome.case] = max(outcome.seconds, slowest.get(outcome.case, 0.0))
    return slowest


def variants_of(stem: str) -> Mapping[str, str]:
    """The variants of an operator's cases by their names."""
    return {f"{stem}-{key}": key.variant for key in OPERATOR_CASES[stem].standard_keys()}


def choose(  # noqa: PLR0917
    stem: str,
    seen: set[str],
    detecting: frozenset[str],
    measured: Mapping[str, float],
    previous: frozenset[str] = frozenset(),
    least: float = LINES_PER_SECOND,
) -> list[str]:
    """Choose cases of an operator in addition to those that detect faults, the previous ones first.

    The lines that they bring are added to those seen. A further case brings at least ``least`` new lines a second.
    """
    names, variants = OPERATOR_CASES[stem].names("standard"), variants_of(stem)
    exercised = {name: Exercise.of(name, variants.get(name, ""), measured.get(name)) for name in names}
    chosen = [name for name in names if "-example" in name][:1]
    chosen += [name for name in names if name in previous.difference(chosen, detecting)]
    for name in detecting.union(chosen).intersection(names):
        seen |= exercised[name].lines
    while True:
        left = [name for name in names if name not in detecting.union(chosen)]
        if len(chosen) >= MIN_CASES:
            left = [name for name in left if exercised[name].is_worth_it(seen, least)]
        if not left:
            return chosen
        best = max(left, key=lambda name: exercised[name].worth(seen))
        chosen.append(best)
        seen |= exercised[best].lines


@dataclass(frozen=True)
class Exercise:
    """The lines that a case exercises, its seconds, and the share of these lines that affects its results."""

    lines: frozenset[str]
    seconds: float
    share: float

    @classmethod
    def of(cls, name: str, variant: str, measured: float | None) -> Exercise:
        """A case's."""
        case = case_of(name)
        texts = [shaders(name, replace(TARGET, profile=profile)) for profile in PROFILES]
        lines = {_NUMBER.sub("N", line.strip()) for kernels in texts for text in kernels for line in text.split("\n")}
        if variant not in COMMON:
            lines |= {f"{variant} {index} of {case.desc.operator}" for index in range(LINES_OF_VARIANT)}
        guessed = PER_CASE + PER_CHARACTER * sum(map(len, texts[0])) + PER_ELEMENT * elements(case)
        with np.errstate(all="ignore"):
            bits = sum(information(output) for output in case.expected(case.inputs()) if output is not None)
        return cls(
            frozenset(lines),
            guessed if measured is None else measured,
            min(1.0, (bits + 1) / ENOUGH_BITS),
        )

    def worth(self, seen: set[str]) -> float:
        """New lines in a second."""
        return len(self.lines - seen) * self.share / self.seconds

    def is_worth_it(self, seen: set[str], least: float) -> bool:
        """Whether a case brings enough: some lines, many for its seconds, or a shader file that no other case has."""
        new = self.lines - seen
        if any(line.startswith("// ---- shaders/") for line in new):
            return True
        return len(new) >= NEW_LINES and self.worth(seen) >= least


def information(output: Array) -> float:
    """How many bits an output says: the entropy of its values, for all of its elements."""
    _, counts = np.unique(as_bits(output), return_counts=True)
    shares = counts / max(1, output.size)
    return float(-np.sum(counts * np.log2(shares)))


def elements(case: Case) -> int:
    """Of all tensors."""
    slots = (*case.desc.inputs, *case.desc.outputs)
    return sum(math.prod(slot.tensor.sizes) for slot in slots if slot.tensor is not None)


if __name__ == "__main__":
    sys.exit(main())
