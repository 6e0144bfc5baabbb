"""``dmlgpu compare``: compare two runs of ``dmlgpu test``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlgpu.cli import tables
from dmlgpu.common.errors import counted
from dmlgpu.conformance.report.changes import Change, ChangeKind, changes, pairs
from dmlgpu.conformance.report.model import selection_of
from dmlgpu.conformance.running.outcome import Outcome, bound_text
from dmlgpu.conformance.running.records import RecordedRun, read_file


def compare(before: Path, after: Path, as_json: bool = False) -> bool:
    """Print the changes, regressions first. Truncated runs are reported on standard error.

    Returns:
        True if there is no regression, and no case or adapter is missing.

    Raises:
        InvalidArgument: If a file holds no run, or the files have no adapter in common.
        OSError: If a file cannot be read.
    """
    files = [read_file(path) for path in (before, after)]
    for problem in (problem for file in files for problem in file.problems):
        print(f"dmlgpu: {problem}", file=sys.stderr)
    runs = files[0].runs
    compared = [(old, new, changes(old, new)) for old, new in pairs(runs, files[1].runs)]
    missing = [run for run in runs if not any(run is old for old, *_ in compared)]
    worse = any(
        change.kind in (ChangeKind.REGRESSION, ChangeKind.MISSING) for *_, changed in compared for change in changed
    )
    if as_json:
        record = {"pairs": [_as_json(*pair) for pair in compared], "missing": [_run_as_json(run) for run in missing]}
        print(json.dumps(record | {"worse": worse or bool(missing)}, indent=2, ensure_ascii=False))
        return not worse and not missing
    for old, new, changed in compared:
        _print(old, new, changed)
    for run in missing:
        cases, be = counted(len(run.outcomes), "case"), "was" if len(run.outcomes) == 1 else "were"
        print(f"{run.adapter}\nmissing: {cases} of {run.facts['suite']} {be} not run")
    return not worse and not missing


def _as_json(old: RecordedRun, new: RecordedRun, changed: Sequence[Change]) -> dict[str, Any]:
    """Return the changes on one adapter, each with both results as in the JSON Lines of a run."""
    return {
        "before": _run_as_json(old),
        "after": _run_as_json(new),
        "changes": [
            {
                "kind": change.kind,
                "case": change.case,
                "before": change.before and change.before.to_json(),
                "after": change.after and change.after.to_json(),
            }
            for change in changed
        ],
    }


def _run_as_json(run: RecordedRun) -> dict[str, Any]:
    return {"adapter": run.adapter, "selection": selection_of(run), "cases": len(run.outcomes)}


def _print(old: RecordedRun, new: RecordedRun, changed: Sequence[Change]) -> None:
    print(old.adapter if old.adapter == new.adapter else f"{old.adapter}\n-> {new.adapter}")
    if changed:
        rows = [(change.kind, change.case, _text(change.before), _text(change.after)) for change in changed]
        tables.table(("change", "case", "before", "after"), rows)
    counts = Counter(change.kind for change in changed)
    said = [kind.counted(counts[kind]) for kind in ChangeKind if counts[kind]]
    cases = counted(len(new.outcomes), "case")
    selections = [selection_of(run) for run in (old, new)]
    if selections[0] != selections[1]:
        both = len({outcome.case for outcome in old.outcomes} & {outcome.case for outcome in new.outcomes})
        cases = f"different selections ({'; '.join(selections)}), compared on {counted(both, 'case')}"
    print(f"{cases}: {', '.join(said) or 'nothing changed'}")


def _text(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    return ", ".join(filter(None, (outcome.status, bound_text(outcome.of_bound))))
