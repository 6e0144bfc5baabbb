"""``dmlgpu report-bug``: write a failing case as a folder that the developers of a driver can run."""

from __future__ import annotations

import sys
from pathlib import Path

from dmlgpu.cli import tables
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.running.records import RecordedRun, read_runs
from dmlgpu.export.bugs import write_bug_report
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device


def report_bug(
    case: str,
    folder: Path,
    adapter: str | None,
    record: Path | None,
    *,
    reduce: bool,
    time_limit: float,
    passing: bool,
    precise: bool,
) -> bool:
    """Write a bug report and print a summary. Return whether the case fails in its runner.

    Args:
        case: Name of the case.
        folder: Output folder.
        adapter: Adapter; None takes that of the record, or the default one.
        record: File of a run in which the case failed.
        precise: As for ``Device``; True if the recorded run was precise.
        reduce, time_limit, passing: As for ``write_bug_report``.

    Raises:
        InvalidArgument: If the case did not fail in the record, or its adapter is not on this machine.
        DmlError, OSError: As for ``write_bug_report`` and ``read_runs``.
    """
    run = None if record is None else _failing_run(case, record, adapter)
    chosen: int | str | None = adapter
    if run is not None:
        precise = precise or bool(run.facts.get("precise"))
        chosen = adapter if adapter is not None else _adapter_of(run)

    def show(name: str, status: str) -> None:
        print(f"{name}: {status}", file=sys.stderr)

    report = write_bug_report(
        case,
        folder,
        Device(chosen, precise=precise),
        reduce=reduce,
        time_limit=time_limit,
        passing=passing,
        progress=show,
    )
    tables.facts(
        str(report.folder),
        [
            ("case", report.case if report.case == case else f"{report.case}, reduced from {case}"),
            *([("kernel", report.kernel)] if report.kernel else []),
            ("run.py", f"{report.status}: {report.message.splitlines()[-1] if report.message else ''}"),
            ("files", f"{len(report.files)}, {sum(report.files.values()):,} bytes"),
            *(("missing", reason) for reason in report.missing),
        ],
    )
    print(f"README.md says how to see it fail and where to report it: {report.folder / 'README.md'}")
    return report.status != "pass"


def _failing_run(case: str, record: Path, adapter: str | None) -> RecordedRun:
    """Return the first run of a file in which a case failed, on an adapter if it is given."""
    for run in read_runs(record):
        is_requested = adapter is None or adapter.isdecimal() or adapter.lower() in run.adapter.lower()
        if is_requested and any(outcome.case == case and outcome.status.is_failure for outcome in run.outcomes):
            return run
    raise InvalidArgument(f"{record}: no run in which {case} failed")


def _adapter_of(run: RecordedRun) -> int:
    """Return the index of the adapter of a run; the recorded one if several cards are equal."""
    indices = [index for index, info in enumerate(adapters()) if str(info) == run.adapter]
    if indices:
        recorded = run.facts.get("index")
        return recorded if recorded in indices else indices[0]
    known = ", ".join(map(str, adapters()))
    raise InvalidArgument(f"the run was made on {run.adapter}, which is not on this machine: {known}; pass --adapter")
