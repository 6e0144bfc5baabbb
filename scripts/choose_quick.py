"""Chooses the operators' cases of the quick profile: few that exercise as much of the shaders as all standard ones do.

    python scripts/choose_quick.py

Writes dmlgpu/conformance/suites/quick.txt. What a case exercises are the lines of its kernels, numbers apart, under the
schedules for processors and those for GPUs. Cases are taken in turn, the one first that brings the most new lines for
the length of its kernels and the size of its tensors, which is what drivers and the reference take their time for.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dmlgpu.conformance.case import Case
from dmlgpu.conformance.cases import OPERATOR_CASES
from dmlgpu.conformance.mutation.affected import PROFILES, case_of, shaders
from dmlgpu.target import Target

LIST = Path(__file__).resolve().parents[1] / "dmlgpu" / "conformance" / "suites" / "quick.txt"
TARGET = Target(name="quick", features=frozenset({"immediates", "shader-f16", "shader-int64", "shader-f64"}))

LEAST = 3
"""Cases of an operator, whether they bring anything new or not."""

NEW_LINES = 4
"""New lines that make another case of an operator worth its time."""

FIXED_COST = 12_000
"""What a case costs besides its kernels and tensors, in characters of kernels."""

PER_ELEMENT = 0.2
"""What an element costs, in the same unit."""

_NUMBER = re.compile(r"(?<![\w.])(?![01]u)\d+(?=u?\b)|(?<=\w)\d+\b")


def main() -> int:
    """The command."""
    chosen: list[str] = []
    seen: set[str] = set()
    for stem in OPERATOR_CASES:
        names = choose(stem, seen)
        print(f"{stem}: {len(names)}", file=sys.stderr)
        chosen += names
    LIST.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return 0


def choose(stem: str, seen: set[str]) -> list[str]:
    """Cases of an operator; the lines that they bring are added to those seen."""
    names = OPERATOR_CASES[stem].names("quick")
    lines = dict(exercised(names))
    chosen = [name for name in names if "-example" in name][:1]
    for name in chosen:
        seen |= lines[name][0]
    while True:
        left = [name for name in lines if name not in chosen]
        if len(chosen) >= LEAST:
            left = [name for name in left if is_worth_it(lines[name][0] - seen)]
        if not left:
            return chosen
        best = max(left, key=lambda name: len(lines[name][0] - seen) / lines[name][1])
        chosen.append(best)
        seen |= lines[best][0]


def is_worth_it(new_lines: set[str]) -> bool:
    """Whether a case brings enough: several lines, or a shader file that no other case has."""
    return len(new_lines) >= NEW_LINES or any(line.startswith("// ---- shaders/") for line in new_lines)


def exercised(names: tuple[str, ...]) -> Iterator[tuple[str, tuple[set[str], int]]]:
    """The lines of each case's kernels, and its cost."""
    for name in names:
        texts = [shaders(name, replace(TARGET, profile=profile)) for profile in PROFILES]
        found = {_NUMBER.sub("N", line.strip()) for kernels in texts for text in kernels for line in text.split("\n")}
        yield name, (found, round(FIXED_COST + sum(map(len, texts[0])) + PER_ELEMENT * elements(case_of(name))))


def elements(case: Case) -> int:
    """Of all tensors."""
    slots = (*case.desc.inputs, *case.desc.outputs)
    return sum(math.prod(slot.tensor.sizes) for slot in slots if slot.tensor is not None)


if __name__ == "__main__":
    sys.exit(main())
