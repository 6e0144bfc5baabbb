"""What a page looks up when somebody asks for it: every outcome of every run, as columns, compressed.

Columns of equal things compress well, and a page of fifty thousand outcomes opens at once, since nothing of it becomes
a table before it is wanted.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmlgpu.conformance.report.changes import Kind
from dmlgpu.conformance.report.model import SIGNS, Report, command, kind_of, selection_of
from dmlgpu.conformance.running.outcome import Outcome, Status

_DIGITS = 7
"""Of distances, bounds and times: as many as a float32 has."""


def packed(report: Report) -> str:
    """The data as JSON, compressed by zlib, in base64: what ``report.js`` unpacks."""
    text = json.dumps(dataset(report), separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def dataset(report: Report) -> dict[str, Any]:
    """The data as values of JSON."""
    return {
        "statuses": [{"name": status, "kind": kind_of(status), "failure": status.is_failure} for status in Status],
        "signs": SIGNS,
        "changes": list(Kind),
        "suites": [_suite(report, suite, numbers) for suite, numbers in report.suites.items()],
    }


def _suite(report: Report, suite: str, numbers: Sequence[int]) -> dict[str, Any]:
    """One suite's cases by operator, and each run's outcomes in their order; null where a run has none."""
    found = [{outcome.case: outcome for outcome in report.runs[number].outcomes} for number in numbers]
    operators = {name: outcome.operator for outcomes in found for name, outcome in outcomes.items()}
    cases = sorted(operators, key=lambda name: (operators[name], name))
    rows = [[outcomes.get(name) for name in cases] for outcomes in found]
    bits = _bits(rows)
    return {
        "name": suite,
        "cases": cases,
        "operators": _lengths([operators[name] for name in cases]),
        "runs": [
            {
                "number": number,
                "name": report.labels[number].name,
                "details": report.labels[number].details,
                "selection": selection_of(report.runs[number]),
                "command": command(report.runs[number]),
                "columns": {**_columns(row), "bits": same},
            }
            for number, row, same in zip(numbers, rows, bits, strict=True)
        ],
    }


def _lengths(operators: Sequence[str]) -> list[tuple[str, int]]:
    """Each operator and how many cases in a row are its own."""
    found: dict[str, int] = {}
    for operator in operators:
        found[operator] = found.get(operator, 0) + 1
    return list(found.items())


def _columns(row: Sequence[Outcome | None]) -> dict[str, list[Any]]:
    return {name: [None if one is None else field(one) for one in row] for name, field in _FIELDS.items()}


_ORDER = {status: number for number, status in enumerate(Status)}
_FIELDS: Mapping[str, Callable[[Outcome], Any]] = {
    "status": lambda one: _ORDER[one.status],
    "share": lambda one: _number(one.of_bound),
    "max": lambda one: _number(one.max_ulp),
    "mean": lambda one: _number(one.mean_ulp),
    "tolerance": lambda one: one.tolerance,
    "wrong": lambda one: one.wrong,
    "elements": lambda one: one.elements,
    "worst": lambda one: ", ".join(map(str, one.worst)),
    "inputs": lambda one: ", ".join(one.inputs),
    "expected": lambda one: one.expected,
    "got": lambda one: one.got,
    "bound": lambda one: _number(one.bound),
    "message": lambda one: one.message,
    "missing": lambda one: one.missing,
    "reason": lambda one: one.reason,
    "kernels": lambda one: "; ".join(one.kernels),
    "seconds": lambda one: round(one.seconds, 3),
}


def _number(value: float | None) -> float | str | None:
    """With as many digits as matter; what JSON has no number for as text."""
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


def _bits(rows: Sequence[Sequence[Outcome | None]]) -> list[list[int | None]]:
    """Per run and case a number that is equal where digests are, 0 for none: the digests would be most of a page."""
    columns: list[list[int | None]] = [[] for _ in rows]
    for outcomes in zip(*rows, strict=True):
        seen: dict[str, int] = {"": 0}
        for column, outcome in zip(columns, outcomes, strict=True):
            column.append(None if outcome is None else seen.setdefault(outcome.digest, len(seen)))
    return columns
