"""The tables of docs/operator-accuracy.md: what ``dmlgpu test --suite operator_accuracy`` measured.

    dmlgpu test --suite operator_accuracy --profile full --adapter all --time-limit 600 -o errors.jsonl
    python benchmarks/operator_accuracy.py errors.jsonl

Puts a table for each adapter of the files into the document; those of other adapters stay as they are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.accuracy import merged
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.records import RecordedRun, read_runs
from dmlgpu.conformance.suites.accuracy import CASES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "operator-accuracy.md"

INTRODUCTION = """# How accurate whole operators are

Made by the commands at the top of `benchmarks/operator_accuracy.py`, which lets `dmlgpu test --suite operator_accuracy`
measure; see [conformance](conformance.md). Functions of one number have [a table of their own](accuracy.md).

Each operator computes on normally distributed numbers (`dmlgpu/conformance/accuracy/workloads.py`): products of 64 x
1024 by 1024 x 48 matrices, windows of 3 x 3 over 64 channels, rows of 1,000 to 20,000 elements. Its result is compared
with the true one, computed in float64 by formulas that share nothing with the shaders or the reference
(`ground_truth.py`). FLOAT16 is computed in float32 and rounded once.

- *largest*: the largest difference, as a share of the largest result.
- *rms*: the root mean square of the differences, as a share of that of the results.
- *ULP max*, *ULP rms*: differences in units of the last place of the true result; huge where terms cancel out and leave
  next to nothing.
- *roundings*: the largest difference beyond the last rounding, in units of 2^-24 of the sum of the absolute values of
  all terms, which is what one rounding of that sum to float32 may lose.
- *limit*: the roundings up to which the case passes.

A float32 sum of n products in a row may lose n roundings, and loses about the root of n. Sums of reductions carry what
their additions lose.

### What trades digits for speed

- **Winograd's filtering** (`winograd-4` below), which convolutions with windows of 3 x 3 in steps of 1 choose where
  there are channels, outputs and positions enough. It multiplies a quarter as often and loses more digits than a
  product with the windows (`implicit-gemm`): five times as much in the mean, twenty at worst.
- **ALLOW_HALF_PRECISION_COMPUTATION**, where a program sets it: element-wise operators on FLOAT16 may compute in native
  16-bit arithmetic, and round after each of their operations. Products, sums and functions are computed in float32 all
  the same.

`Device(precise=True)` does without both, in graphs too, whatever flags are set; so does a device that is
`deterministic`. There is no execution flag of DirectML's for it: DISABLE_META_COMMANDS is about what drivers bring, and
is always so here. `dmlgpu show --precise` shows what such a device runs, `dmlgpu test --precise` tests it.

Not among them: batch normalisation that graphs fold into the weights of a convolution, attention that streams over the
keys, sums in several parts. They round elsewhere, not more.
"""

HEAD = ("operator", "type", "computed by", "largest", "rms", "ULP max", "ULP rms", "roundings", "limit")
MEASURED = ("largest", "rms", "ulp_max", "ulp_rms", "roundings")


def table(run: RecordedRun) -> str:
    """One adapter's section."""
    outcomes = {outcome.case: outcome for outcome in run.outcomes if outcome.measured}
    lines = [f"## {run.adapter}", "", f"| {' | '.join(HEAD)} |", f"|{'---|' * 3}{'--:|' * (len(HEAD) - 3)}"]
    lines += [_row(outcomes[name]) for name in CASES if name in outcomes]
    return "\n".join(lines) + "\n"


def _row(outcome: Outcome) -> str:
    workload, data_type = CASES[outcome.case]
    numbers = (f"{outcome.measured[name]:.2g}" for name in MEASURED)
    return f"| {' | '.join((outcome.operator, data_type.name, workload.way, *numbers, f'{workload.limit:g}'))} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl", help="what `dmlgpu test -o` wrote")
    runs = [run for path in parser.parse_args().files for run in read_runs(path)]
    sections = [table(run) for run in runs if any(outcome.measured for outcome in run.outcomes)]
    written = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
    DOCUMENT.write_text(merged(written, sections, INTRODUCTION), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
