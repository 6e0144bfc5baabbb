"""``dmlgpu report``: report runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.bench.records import as_times, is_bench_file
from dmlgpu.bench.records import read_file as read_measurements
from dmlgpu.conformance.report.writing import write_report
from dmlgpu.conformance.running.records import read_file


def report(files: Sequence[Path], output: Path) -> None:
    """Write a report of runs, comparisons and measurements, in the format of the output's suffix.

    Truncated runs are reported on standard error.

    Raises:
        InvalidArgument: If a file holds no run, or the format is unknown.
        OSError: If a file cannot be read or written.
    """
    timed = [path for path in files if is_bench_file(path)]
    times = [as_times(run) for path in timed for run in read_measurements(path)]
    contents = [read_file(path) for path in files if path not in timed]
    for problem in (problem for content in contents for problem in content.problems):
        print(f"dmlgpu: {problem}", file=sys.stderr)
    runs = [run for content in contents for run in content.runs]
    write_report(runs, output, [comparison for content in contents for comparison in content.comparisons], times)
    print(output)
