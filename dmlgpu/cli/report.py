"""``dmlgpu report``: runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dmlgpu.conformance.report.writing import write_report
from dmlgpu.conformance.running.records import read_comparisons, read_runs


def report(files: Sequence[Path], output: Path) -> None:
    """Write the runs and comparisons of some files down side by side, in the format of the output's suffix.

    Raises:
        InvalidArgument: when the files are no runs, or there is no such format.
        OSError: when a file cannot be read or written.
    """
    runs = [run for path in files for run in read_runs(path)]
    comparisons = [comparison for path in files for comparison in read_comparisons(path)]
    write_report(runs, output, comparisons)
    print(output)
