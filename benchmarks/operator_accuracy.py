"""Write the tables of docs/operator-accuracy.md from results of ``dmlgpu test --suite operator_accuracy``.

    dmlgpu test --suite operator_accuracy --profile full --adapter all --time-limit 600 -o errors.jsonl
    python benchmarks/operator_accuracy.py errors.jsonl

Each adapter in the files gets a table. Tables of other adapters are not changed.
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

INTRODUCTION = """# Accuracy of operators

How far is a matrix product, a convolution or a softmax from the exact result, and does a faster algorithm cost
precision? This page measures whole operators in float32 and float16. [Accuracy of functions](accuracy.md) covers
exp, tanh and other functions of one argument. To measure your adapter, with all algorithms or only the precise ones:

    dmlgpu test --suite operator_accuracy
    dmlgpu test --suite operator_accuracy --precise

Each operator computes on normally distributed values (`dmlgpu/conformance/accuracy/workloads.py`): products of 64 x
1024 by 1024 x 48 matrices, 3 x 3 windows over 64 channels, rows of 1,000 to 20,000 elements. The exact result is
computed in float64 by formulas that are independent of the shaders and the reference (`ground_truth.py`). FLOAT16
is computed in float32 and rounded once.

The columns:

- *largest*: the largest difference, relative to the largest result;
- *rms*: the root mean square of the differences, relative to that of the results;
- *ULP max, ULP rms*: differences in units in the last place of the exact result; huge if terms cancel and leave
  almost nothing;
- *roundings*: the largest difference beyond the final rounding, in units of 2^-24 of the sum of the absolute values
  of all terms, which is the most that one rounding of that sum to float32 loses;
- *limit*: the roundings up to which the test case passes.

A sequential float32 sum of n products may lose n roundings, and typically loses about the square root of n.
Reductions compensate the rounding errors of their additions.

### Optimizations that lose precision

- **Winograd's algorithm** (`winograd-4` below) is used for convolutions with 3 x 3 windows and stride 1 that have
  enough channels, outputs and positions. It needs a quarter of the multiplications. For normally distributed inputs,
  its error is twice that of a direct product (`implicit-gemm`) in the mean, and four times in the worst case.
  [Large pixels](#large-pixels-and-winograds-algorithm) do not make it worse.
- **ALLOW_HALF_PRECISION_COMPUTATION**, if a program sets it, allows elementwise operators on FLOAT16 to compute in
  native 16-bit arithmetic and to round after every operation. On GPUs, matrix products and convolutions sum up to 32
  products in float16. Other sums, and functions, are computed in float32 anyway.

`Device(precise=True)` uses neither, in graphs too, with any flags. Deterministic devices are precise as
well. DirectML has no execution flag for this: DISABLE_META_COMMANDS is about drivers' own kernels, which dmlgpu
never uses. `dmlgpu show --precise` shows the kernels of such a device, and `dmlgpu test --precise` tests it.

Batch normalization folded into convolution weights, attention that streams over keys, and sums in several parts
round at other places, but not more.

### Large pixels and Winograd's algorithm

All pixels of a patch of 6 x 6 take part in each of the 4 x 4 outputs of its tile. Where the window does not see them
they cancel, and leave rounding errors in proportion to the norm of the patch. So if the norm of a patch exceeds three
times the sum of the norms of the pixels of a window, that output is summed directly. (The norm of a pixel is that of
all its channels.) With 64 channels, one pixel that is 10^4 or 10^6 times larger than the others costs outputs that do
not see it 14 roundings; without the direct sums, and with the transforms that Lavin and Gray print, it is 2,170 and
462,000.

- The decision takes two small kernels, which read the input again. On llvmpipe, convolutions of 64 x 56 x 56 to 64,
  256 x 14 x 14 to 256, 512 x 7 x 7 to 512, 3 x 112 x 112 to 32 and 32 x 28 x 28 to 32 channels take 1.07 [1.04,
  1.11], 1.01 [1.00, 1.12], 1.00 [0.89, 1.12], 1.12 [0.87, 1.32] and 1.07 [0.99, 1.29] of the CPU time that they took
  before (2026-11-30, medians of 15 ratios, intervals of 95 %). `winograd-2`, which loses fewer digits, takes more
  than twice the time.
- Marked outputs are slow: each reads its whole window in a loop. Pixels of equal norms mark none, corners of padded
  images included; the edges of regions that are zero in all channels may.
- The filter is kept next to its transform, which has four times its elements.
- What the filter does with the channels is not known to the decision: an output whose filter nearly ignores a large
  element is not found. In a simulation with 64 channels, one of which is 10^6 times larger at one pixel, the worst
  output is off by 7,600 roundings. Precise devices avoid that.
"""

HEAD = ("operator", "type", "computed by", "largest", "rms", "ULP max", "ULP rms", "roundings", "limit")
MEASURED = ("largest", "rms", "ulp_max", "ulp_rms", "roundings")


def table(run: RecordedRun) -> str:
    """One adapter's section."""
    outcomes = {outcome.case: outcome for outcome in run.outcomes if outcome.measured}
    lines = [f"## {run.adapter}", "", f"{run.origin}: `dmlgpu test --suite operator_accuracy --profile full`", ""]
    lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * 3}{'--:|' * (len(HEAD) - 3)}"]
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
