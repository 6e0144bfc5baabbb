"""Reports as a self-contained HTML page, as Markdown, or as JUnit XML.

The page embeds all results as compressed columns. Its tables work without JavaScript.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dmlgpu.common.errors import InvalidArgument, counted
from dmlgpu.common.files import whole_file
from dmlgpu.conformance.drivers.pairwise import Comparison
from dmlgpu.conformance.report.cards import speeds, vendor_differences
from dmlgpu.conformance.report.changes import ChangeKind, changes
from dmlgpu.conformance.report.charts import HEIGHT, WIDTH, Chart, ChartLine, charts
from dmlgpu.conformance.report.junit import as_junit
from dmlgpu.conformance.report.model import (
    SIGNS,
    Cell,
    Matrix,
    Report,
    Times,
    command,
    exercised,
    features,
    kind_of,
    limits,
    reproduce,
    run_facts,
    selection_of,
)
from dmlgpu.conformance.report.pairs import PairReport, difference
from dmlgpu.conformance.report.verdict import Cause, causes, of_kind, suspects, verdict
from dmlgpu.conformance.running.outcome import Outcome, Status, bound_text, moment_text, share_text, ulp_text
from dmlgpu.conformance.running.records import RecordedRun

PAGES = Path(__file__).parent / "pages"

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGES),
    undefined=jinja2.StrictUndefined,
    autoescape=jinja2.select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
)


_DIGITS = 7
"""Significant digits of errors, bounds and times, as many as a float32 has."""


def packed(report: Report) -> str:
    """Return the data as JSON, compressed by zlib, in base64, for ``report.js``."""
    text = json.dumps(dataset(report), separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def dataset(report: Report) -> dict[str, Any]:
    """Return the data as JSON values."""
    return {
        "statuses": [{"name": status, "kind": kind_of(status), "failure": status.is_failure} for status in Status],
        "signs": SIGNS,
        "changes": list(ChangeKind),
        "suites": [_suite(report, suite, numbers) for suite, numbers in report.suites.items()],
    }


def _suite(report: Report, suite: str, numbers: Sequence[int]) -> dict[str, Any]:
    """Return one suite: its cases by operator, and the results of each run in that order; null if missing."""
    outcomes_by_run = [{outcome.case: outcome for outcome in report.runs[index].outcomes} for index in numbers]
    operators = {name: outcome.operator for outcomes in outcomes_by_run for name, outcome in outcomes.items()}
    cases = sorted(operators, key=lambda name: (operators[name], name))
    rows = [[outcomes.get(name) for name in cases] for outcomes in outcomes_by_run]
    bits = _bits(rows)
    return {
        "name": suite,
        "cases": cases,
        "operators": _lengths([operators[name] for name in cases]),
        "runs": [
            {
                "number": index,
                "name": report.labels[index].name,
                "details": report.labels[index].details,
                "selection": selection_of(report.runs[index]),
                "command": command(report.runs[index]),
                "columns": {**_columns(row), "bits": same},
            }
            for index, row, same in zip(numbers, rows, bits, strict=True)
        ],
    }


def _lengths(operators: Sequence[str]) -> list[tuple[str, int]]:
    """Return each operator with the number of its consecutive cases."""
    lengths: dict[str, int] = {}
    for operator in operators:
        lengths[operator] = lengths.get(operator, 0) + 1
    return list(lengths.items())


def _columns(row: Sequence[Outcome | None]) -> dict[str, list[Any]]:
    return {name: [None if outcome is None else field(outcome) for outcome in row] for name, field in _FIELDS.items()}


_ORDER = {status: index for index, status in enumerate(Status)}
_FIELDS: Mapping[str, Callable[[Outcome], Any]] = {
    "status": lambda outcome: _ORDER[outcome.status],
    "share": lambda outcome: _number(outcome.of_bound),
    "max": lambda outcome: _number(outcome.max_ulp),
    "mean": lambda outcome: _number(outcome.mean_ulp),
    "tolerance": lambda outcome: outcome.tolerance,
    "wrong": lambda outcome: outcome.wrong,
    "elements": lambda outcome: outcome.elements,
    "worst": lambda outcome: ", ".join(map(str, outcome.worst)),
    "inputs": lambda outcome: ", ".join(outcome.inputs),
    "expected": lambda outcome: outcome.expected,
    "got": lambda outcome: outcome.got,
    "bound": lambda outcome: _number(outcome.bound),
    "message": lambda outcome: outcome.message,
    "missing": lambda outcome: outcome.missing,
    "reason": lambda outcome: outcome.reason,
    "kernels": lambda outcome: "; ".join(outcome.kernels),
    "seconds": lambda outcome: round(outcome.seconds, 3),
}


def _number(value: float | None) -> float | str | None:
    """Return a number with limited digits; as text if JSON cannot represent it."""
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


def _bits(rows: Sequence[Sequence[Outcome | None]]) -> list[list[int | None]]:
    """Return, per run and case, a number that is equal for equal digests (0 for none), which is much smaller."""
    columns: list[list[int | None]] = [[] for _ in rows]
    for outcomes in zip(*rows, strict=True):
        seen: dict[str, int] = {"": 0}
        for column, outcome in zip(columns, outcomes, strict=True):
            column.append(None if outcome is None else seen.setdefault(outcome.digest, len(seen)))
    return columns


SCRIPTS = ("data.js", "elements.js", "matrix.js", "cases.js", "differences.js", "main.js")
"""Scripts, in the order of the page."""


def as_html(report: Report) -> str:
    """Return the page."""
    report_causes, drawn = causes(report), charts(report)
    return ENVIRONMENT.get_template("report.html").render(
        report=report,
        verdict=verdict(report),
        causes=[cause for kind in ("bad", "known") for cause in of_kind(report_causes, kind)],
        charts=[chart for chart in drawn if chart.worst],
        exact=[chart for chart in drawn if not chart.worst],
        lines={line.run: line for chart in drawn for line in chart.lines},
        comparable=any(len(numbers) > 1 for numbers in report.suites.values()),
        features=features(report),
        limits=limits(report),
        facts=run_facts(report),
        exercised=exercised(report),
        suspects=suspects(report),
        pairs=[PairReport(comparison) for comparison in report.comparisons],
        difference=difference,
        vendors=vendor_differences(report),
        speeds=speeds(report),
        data=packed(report),
        style=_file("report.css"),
        script=Markup("\n").join(map(_file, SCRIPTS)),
        **_HELPERS,
    )


def _file(name: str) -> Markup:
    """Return the content of a file of dmlgpu."""
    return Markup((PAGES / name).read_text(encoding="utf-8"))


def _thickness(chart: Chart, line: ChartLine) -> float:
    """Return the width of a line. Later lines are thinner, so that equal ones remain visible."""
    return 1.4 + 1.3 * (len(chart.lines) - 1 - chart.lines.index(line))


_HELPERS: dict[str, Any] = {
    "signs": SIGNS,
    "kind_of": kind_of,
    "of_kind": {kind: [status for status in Status if kind_of(status) == kind] for kind in SIGNS},
    "bound_text": bound_text,
    "share_text": share_text,
    "counted": counted,
    "moment_text": moment_text,
    "selection_of": selection_of,
    "ulp_text": ulp_text,
    "thickness": _thickness,
    "width": WIDTH,
    "height": HEIGHT,
}


NAMES = 6
"""Maximum number of operators to name."""


def as_markdown(report: Report) -> str:
    """Return tables of runs, operators by adapters, and failures with reasons."""
    report_causes = causes(report)
    text = ENVIRONMENT.get_template("report.md").render(
        report=report,
        statuses=[status for status in Status if any(status in total.counts for total in report.totals)],
        versions=tuple(_versions(report)),
        bad=of_kind(report_causes, "bad"),
        known=of_kind(report_causes, "known"),
        refused=of_kind(report_causes, "refused"),
        suspects=suspects(report),
        exercised=[(index, run.exercised) for index, run in enumerate(report.runs) if run.exercised is not None],
        differences=tuple(_differences(report)),
        pairs=[PairReport(comparison) for comparison in report.comparisons],
        difference=difference,
        vendors=vendor_differences(report),
        speeds=speeds(report),
        cell=_cell,
        names=_names,
        escape=_escape,
        code=_code,
        again=lambda cause: reproduce(report.runs[cause.run], cause.simplest),
        bound_text=bound_text,
        counted=counted,
        moment_text=moment_text,
        verdict=verdict(report),
    )
    return text.rstrip() + "\n"


def _versions(report: Report) -> Iterator[str]:
    """Return versions, machine and time; once if equal for all runs."""
    rows = run_facts(report).rows
    for name in (name for name in _VERSIONS if name in rows):
        by_text: dict[str, list[str]] = {}
        for text, label in zip(rows[name], report.labels, strict=True):
            by_text.setdefault(text or "not told", []).append(str(label))
        said = [f"{text} ({'; '.join(dict.fromkeys(labels))})" for text, labels in by_text.items()]
        yield _escape(f"{name}: {rows[name][0] if len(said) == 1 else ', '.join(said)}")


_VERSIONS = ("quirks", "dmlgpu", "commit", "shaders", "wgpu", "numpy", "python", "os", "processor")


def _cell(cell: Cell | None) -> str:
    """Return a cell; failures are bold."""
    if cell is None:
        return "-"
    return f"**{cell.summary}**" if cell.kind == "bad" else cell.summary


def _names(cause: Cause) -> str:
    """Return some operators and the number of further ones."""
    named = ", ".join(map(_code, cause.operators[:NAMES]))
    more = len(cause.operators) - NAMES
    return f"{named} and {more} more" if more > 0 else named


def _escape(text: object) -> str:
    """Escape text, also in table cells: no HTML, links, images or code from the records."""
    signs = {"|": "\\|", "\\": "\\\\", "`": "\\`", "&": "&amp;", "<": "&lt;"}
    return " ".join("".join(signs.get(sign, sign) for sign in str(text)).replace("](", "]\\(").split())


def _code(text: str) -> str:
    """Format as code, also in table cells, with more backticks than the text contains in a row."""
    text = " ".join(text.replace("|", "\\|").split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _differences(report: Report) -> Iterator[tuple[int, int, Sequence[tuple[ChangeKind, int]]]]:
    """Return two runs of one adapter, and the number of changes by kind, the worst first."""
    for matrix in report.matrices:
        for before, after in _same_adapter(report.runs, matrix):
            counts = Counter(change.kind for change in changes(report.runs[before], report.runs[after]))
            yield before, after, [(kind, counts[kind]) for kind in ChangeKind if counts[kind]]


def _same_adapter(runs: Sequence[RecordedRun], matrix: Matrix) -> Iterator[tuple[int, int]]:
    """Return consecutive runs of each adapter."""
    last: dict[tuple[str, str], int] = {}
    for index in matrix.numbers:
        adapter = runs[index].facts["adapter"]["backend"], runs[index].facts["adapter"]["name"]
        if adapter in last:
            yield last[adapter], index
        last[adapter] = index


__all__ = ["FORMATS", "Cell", "Report", "as_html", "as_junit", "as_markdown", "reproduce", "write_report"]

FORMATS: Mapping[str, Callable[[Report], str]] = {".html": as_html, ".md": as_markdown, ".xml": as_junit}
"""Writers of reports by file suffix."""


def write_report(
    runs: Sequence[RecordedRun],
    path: Path,
    comparisons: Sequence[Comparison] = (),
    times: Sequence[Times] = (),
    not_run: Sequence[str] = (),
) -> None:
    """Write a report in the format of the file's suffix: .html, .md or .xml.

    Args:
        runs, comparisons, times, not_run: Contents (see ``Report``).
        path: The file.

    Raises:
        InvalidArgument: If there is nothing to report, or the format is unknown.
        OSError: If the file cannot be written.
    """
    if not runs and not comparisons and not times:
        raise InvalidArgument("there is no run to report")
    if path.suffix not in FORMATS:
        raise InvalidArgument(f"{path}: the suffix must be one of {', '.join(FORMATS)}, got {path.suffix!r}")
    text = FORMATS[path.suffix](Report(tuple(runs), tuple(comparisons), tuple(times), tuple(not_run)))
    with whole_file(path) as stream:
        stream.write(text.encode())
