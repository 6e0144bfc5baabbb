"""A report as one page that needs nothing else: no network, no other file. Without JavaScript the tables remain."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from dmlgpu.conformance.report.causes import causes, of_kind
from dmlgpu.conformance.report.charts import HEIGHT, WIDTH, Chart, Line, charts
from dmlgpu.conformance.report.dataset import packed
from dmlgpu.conformance.report.facts import features, limits, run_facts
from dmlgpu.conformance.report.model import SIGNS, Report, kind_of, selection_of
from dmlgpu.conformance.report.pairs import PairReport, difference
from dmlgpu.conformance.report.templates import ENVIRONMENT, PAGES
from dmlgpu.conformance.report.verdict import verdict
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.wording import bound_text, counted, moment_text, share_text, ulp_text

SCRIPTS = ("data.js", "elements.js", "matrix.js", "cases.js", "differences.js", "main.js")
"""In the order in which they stand in the page."""


def as_html(report: Report) -> str:
    """The page."""
    found, drawn = causes(report), charts(report)
    return ENVIRONMENT.get_template("report.html").render(
        report=report,
        verdict=verdict(report),
        causes=[cause for kind in ("bad", "known") for cause in of_kind(found, kind)],
        charts=[chart for chart in drawn if chart.worst],
        exact=[chart for chart in drawn if not chart.worst],
        lines={line.number: line for chart in drawn for line in chart.lines},
        comparable=any(len(numbers) > 1 for numbers in report.suites.values()),
        features=features(report),
        limits=limits(report),
        facts=run_facts(report),
        pairs=[PairReport(comparison) for comparison in report.comparisons],
        difference=difference,
        data=packed(report),
        style=_file("report.css"),
        script=Markup("\n").join(map(_file, SCRIPTS)),
        **_HELPERS,
    )


def _file(name: str) -> Markup:
    """A file of dmlgpu's own, as it is."""
    return Markup((PAGES / name).read_text(encoding="utf-8"))


def _thickness(chart: Chart, line: Line) -> float:
    """Later lines are thinner, so that equal ones show as stripes on each other."""
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
