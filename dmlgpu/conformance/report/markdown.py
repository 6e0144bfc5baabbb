"""A report as Markdown: for documents and comments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from dmlgpu.conformance.report.causes import Cause, causes, of_kind
from dmlgpu.conformance.report.changes import Kind, changes
from dmlgpu.conformance.report.facts import run_facts
from dmlgpu.conformance.report.model import Cell, Matrix, Report, reproduce
from dmlgpu.conformance.report.pairs import PairReport, difference
from dmlgpu.conformance.report.templates import ENVIRONMENT
from dmlgpu.conformance.report.verdict import verdict
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.records import Run
from dmlgpu.conformance.running.wording import bound_text, counted, moment_text

NAMES = 6
"""Operators that are named of those that have something in common."""


def as_markdown(report: Report) -> str:
    """Tables: the runs, operators by adapters, what is wrong and why."""
    found = causes(report)
    text = ENVIRONMENT.get_template("report.md").render(
        report=report,
        statuses=[status for status in Status if any(status in total.counts for total in report.totals)],
        versions=tuple(_versions(report)),
        bad=of_kind(found, "bad"),
        known=of_kind(found, "known"),
        refused=of_kind(found, "refused"),
        differences=tuple(_differences(report)),
        pairs=[PairReport(comparison) for comparison in report.comparisons],
        difference=difference,
        cell=_cell,
        names=_names,
        escape=_escape,
        code=_code,
        again=lambda cause: reproduce(report.runs[cause.number], cause.worst),
        bound_text=bound_text,
        counted=counted,
        moment_text=moment_text,
        verdict=verdict(report),
    )
    return text.rstrip() + "\n"


def _versions(report: Report) -> Iterator[str]:
    """What computed, where, when: told once where it is the same for all runs."""
    rows = run_facts(report).rows
    for name in (name for name in _VERSIONS if name in rows):
        by_text: dict[str, list[str]] = {}
        for text, label in zip(rows[name], report.labels, strict=True):
            by_text.setdefault(text or "not told", []).append(str(label))
        said = [f"{text} ({'; '.join(dict.fromkeys(labels))})" for text, labels in by_text.items()]
        yield _escape(f"{name}: {rows[name][0] if len(said) == 1 else ', '.join(said)}")


_VERSIONS = ("dmlgpu", "commit", "shaders", "wgpu", "numpy", "python", "os", "processor")


def _cell(cell: Cell | None) -> str:
    """What failed is bold."""
    if cell is None:
        return "-"
    return f"**{cell.summary}**" if cell.kind == "bad" else cell.summary


def _names(cause: Cause) -> str:
    """Some operators and how many more there are."""
    named = ", ".join(map(_code, cause.operators[:NAMES]))
    more = len(cause.operators) - NAMES
    return f"{named} and {more} more" if more > 0 else named


def _escape(text: object) -> str:
    """As text, also in a cell of a table: no HTML, links, pictures or code, which who wrote the records chose."""
    signs = {"|": "\\|", "\\": "\\\\", "`": "\\`", "&": "&amp;", "<": "&lt;"}
    return " ".join("".join(signs.get(sign, sign) for sign in str(text)).replace("](", "]\\(").split())


def _code(text: str) -> str:
    """As code, also in a cell of a table: between more backticks than it holds in a row."""
    text = " ".join(text.replace("|", "\\|").split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _differences(report: Report) -> Iterator[tuple[int, int, Sequence[tuple[Kind, int]]]]:
    """Two runs of one adapter, and how many cases changed how, the worst kind first."""
    for matrix in report.matrices:
        for before, after in _same_adapter(report.runs, matrix):
            counts = Counter(change.kind for change in changes(report.runs[before], report.runs[after]))
            yield before, after, [(kind, counts[kind]) for kind in Kind if counts[kind]]


def _same_adapter(runs: Sequence[Run], matrix: Matrix) -> Iterator[tuple[int, int]]:
    """Neighbouring runs of each adapter."""
    last: dict[tuple[str, str], int] = {}
    for number in matrix.numbers:
        adapter = runs[number].facts["adapter"]["backend"], runs[number].facts["adapter"]["name"]
        if adapter in last:
            yield last[adapter], number
        last[adapter] = number
