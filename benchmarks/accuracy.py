"""Write the tables of docs/accuracy.md from results of ``dmlgpu test --suite accuracy --profile full``.

    dmlgpu test --suite accuracy --profile full --drivers all --time-limit 600 -o accuracy.jsonl
    python benchmarks/accuracy.py accuracy.jsonl

Each adapter in the files gets a table. Tables of other adapters are not changed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.conformance.accuracy.functions import FUNCTIONS
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.records import RecordedRun, read_runs
from dmlgpu.conformance.suites.accuracy import FLUSHES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
BOUNDS = {function.name: function.bound for function in FUNCTIONS}

INTRODUCTION = """# Accuracy of functions

Drivers' own exp, tanh and log are off by up to 10^7 ULP, so `shaders/lib` implements every function. All are within
2 ULP of the true value in float32 (4 for `pow` and `tan`), on every adapter. An error of 1 ULP is one unit in the
last place of the true value. To measure your adapter:

    dmlgpu test --suite accuracy --profile full

The tables show the largest and the mean error per adapter. [Accuracy of operators](operator-accuracy.md) covers
sums, products and convolutions.

`erfc_tail_f32` is x erfc(x / sqrt 2) / 2 from 0.6 on, the part of the complementary error function that GELU needs.
`exp_bounded` is e^x up to 43 without a branch, for softmax. Polynomials are minimax fits whose coefficients are
rounded to float32 one after the other, lowest degree first; `scripts/fit_math.py` reproduces them.
[Suites](conformance-suites.md#sizes-accuracy-operator_accuracy) describes the inputs; the commands at the top of
`benchmarks/accuracy.py` wrote the tables.
"""


def table(run: RecordedRun) -> str:
    """One adapter's section."""
    subnormals = "flushes" if any(FLUSHES in outcome.message for outcome in run.outcomes) else "keeps"
    lines = [f"## {run.adapter}", "", f"The adapter {subnormals} subnormals in arithmetic.", ""]
    lines += ["| function | bound | max | mean |", "|---|---|---|---|"]
    measured = {outcome.operator: outcome for outcome in run.outcomes if outcome.max_ulp is not None}
    lines += [_row(name, measured[name]) for name in BOUNDS if name in measured]
    return "\n".join(lines) + "\n"


def _row(name: str, outcome: Outcome) -> str:
    assert outcome.max_ulp is not None and outcome.mean_ulp is not None
    return f"| `{name}` | {BOUNDS[name]:g} | {_number(outcome.max_ulp)} | {_number(outcome.mean_ulp)} |"


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.3f}"


def merged(document: str, sections: Sequence[str], introduction: str = INTRODUCTION) -> str:
    """A document with these sections put in place of those of the same adapters."""
    present = re.split(r"^(?=## )", document, flags=re.MULTILINE)[1:]
    by_title = {section.split("\n", 1)[0]: section.strip() + "\n" for section in [*present, *sections]}
    return "\n".join([introduction, *(by_title[title] for title in sorted(by_title))])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl", help="what `dmlgpu test -o` wrote")
    runs = [run for path in parser.parse_args().files for run in read_runs(path) if run.facts["suite"] == "accuracy"]
    sections = [table(run) for run in runs if any(outcome.max_ulp is not None for outcome in run.outcomes)]
    DOCUMENT.write_text(merged(DOCUMENT.read_text(encoding="utf-8"), sections), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
