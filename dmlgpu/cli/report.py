"""``dmlgpu report``: report runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.bench.records import as_times, is_bench_file
from dmlgpu.bench.records import read_file as read_measurements
from dmlgpu.cli.survey_file import SurveyFile, is_survey_file, read_survey
from dmlgpu.conformance.report.writing import write_report
from dmlgpu.conformance.running.records import RecordFile, read_file


def report(files: Sequence[Path], output: Path) -> None:
    """Write a report of surveys, runs, comparisons and measurements, in the format of the output's suffix.

    Truncated runs are reported on standard error.

    Raises:
        InvalidArgument: If a file holds no run, or the format is unknown.
        OSError: If a file cannot be read or written.
    """
    surveys = {path: read_survey(path) for path in files if is_survey_file(path)}
    timed = [path for path in files if path not in surveys and is_bench_file(path)]
    contents = [read_file(path) for path in files if path not in timed and path not in surveys]
    times = [as_times(run, survey.predicted) for survey in surveys.values() for run in survey.measured]
    times += [as_times(run) for path in timed for run in read_measurements(path)]
    tested: list[SurveyFile | RecordFile] = [*surveys.values(), *contents]
    for problem in (problem for content in tested for problem in content.problems):
        print(f"dmlgpu: {problem}", file=sys.stderr)
    runs = [run for content in tested for run in content.runs]
    write_report(
        runs,
        output,
        [comparison for content in contents for comparison in content.comparisons],
        times,
        [f"{path.name}: {text}" for path, survey in surveys.items() for text in survey.not_run],
    )
    print(output)
