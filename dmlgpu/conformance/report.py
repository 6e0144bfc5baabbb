"""Runs side by side: operators by adapters, what is wrong and how to see it again. As a page, Markdown or JUnit XML."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import jinja2

from dmlgpu.conformance.compare import Change, changes
from dmlgpu.conformance.outcome import Outcome, Status
from dmlgpu.conformance.records import Run
from dmlgpu.errors import InvalidArgument

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("pages")),
    undefined=jinja2.StrictUndefined,
    autoescape=jinja2.select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Cell:
    """One operator on one adapter.

    Attributes:
        outcomes: of its cases.
    """

    outcomes: tuple[Outcome, ...]

    @cached_property
    def counts(self) -> Mapping[Status, int]:
        """How many cases came out how, in the order of the statuses."""
        found = Counter(outcome.status for outcome in self.outcomes)
        return {status: found[status] for status in Status if found[status]}

    @property
    def kind(self) -> str:
        """The most remarkable thing: ``bad``, ``known``, ``refused``, ``good``."""
        if any(not status.is_good for status in self.counts):
            return "bad"
        if Status.EXPECTED_FAIL in self.counts:
            return "known"
        return "refused" if Status.NOT_SUPPORTED in self.counts else "good"

    @property
    def max_ulp(self) -> float | None:
        """The largest distance from the reference; None where nothing was compared."""
        return max((one.max_ulp for one in self.outcomes if one.max_ulp is not None), default=None)

    @property
    def summary(self) -> str:
        """``60``, or ``57 of 60``; the distance where it is not 0."""
        good, all_of_them = self.counts.get(Status.PASS, 0), len(self.outcomes)
        passed = str(good) if good == all_of_them else f"{good} of {all_of_them}"
        return f"{passed}, {ulp_text(self.max_ulp)}" if self.max_ulp else passed


@dataclass(frozen=True)
class Report:
    """Runs beside each other, in the order in which they were given."""

    runs: tuple[Run, ...]

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Of all cases, by name."""
        return tuple(sorted({outcome.operator for run in self.runs for outcome in run.outcomes}))

    @cached_property
    def _cells(self) -> Mapping[tuple[str, int], Cell]:
        found: dict[tuple[str, int], list[Outcome]] = {}
        for number, run in enumerate(self.runs):
            for outcome in run.outcomes:
                found.setdefault((outcome.operator, number), []).append(outcome)
        return {place: Cell(tuple(outcomes)) for place, outcomes in found.items()}

    def cell(self, operator: str, number: int) -> Cell | None:
        """An operator in a run; None where the run has no case of it."""
        return self._cells.get((operator, number))

    def total(self, number: int) -> Cell:
        """A whole run."""
        return Cell(self.runs[number].outcomes)

    def remarkable(self, operator: str) -> Iterator[tuple[Run, Outcome]]:
        """What did not simply pass, with the run in which that was."""
        for run in self.runs:
            for outcome in run.outcomes:
                if outcome.operator == operator and outcome.status is not Status.PASS:
                    yield run, outcome

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Every feature that some adapter has."""
        return tuple(sorted({feature for run in self.runs for feature in run.facts["adapter"]["features"]}))

    @cached_property
    def differences(self) -> tuple[tuple[Run, tuple[Change, ...]], ...]:
        """What came out otherwise in each later run than in the first one."""
        return tuple((run, changes(self.runs[0], run)) for run in self.runs[1:])


def ulp_text(distance: float | None) -> str:
    """``3 ULP``; nothing for None."""
    if distance is None:
        return ""
    return "not comparable" if math.isinf(distance) else f"{distance:.3g} ULP"


def reproduce(run: Run, outcome: Outcome) -> str:
    """The command that runs a case again on the same adapter."""
    suite = [] if run.facts["suite"] == "operators" else ["--suite", run.facts["suite"]]
    adapter = f"{run.facts['adapter']['backend']}: {run.facts['adapter']['name']}"
    return shlex.join(["dmlgpu", "test", *suite, "--adapter", adapter, "-k", outcome.case])


# ---- formats --------------------------------------------------------------------------------------------------------


def as_html(report: Report) -> str:
    """One page that needs nothing else."""
    return _TEMPLATES.get_template("report.html").render(
        report=report, Status=Status, reproduce=reproduce, ulp_text=ulp_text, bar=_bar
    )


def _bar(outcome: Outcome) -> float:
    """The length of a bar for a distance, 0 to 1, by logarithm: a million ULP and more fill it."""
    return min(1.0, math.log1p(outcome.max_ulp or 0.0) / math.log1p(1e6))


def as_markdown(report: Report) -> str:
    """Tables for documents and comments."""
    return _TEMPLATES.get_template("report.md").render(report=report, reproduce=reproduce, ulp_text=ulp_text)


def as_junit(report: Report) -> str:
    """JUnit's XML, a suite per run: for what shows test results elsewhere."""
    root = ElementTree.Element("testsuites")
    for run in report.runs:
        suite = ElementTree.SubElement(root, "testsuite", name=run.adapter, tests=str(len(run.outcomes)))
        for outcome in run.outcomes:
            _junit_case(suite, outcome)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit_case(suite: ElementTree.Element, outcome: Outcome) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=outcome.operator, name=outcome.case, time=f"{outcome.seconds:.3f}"
    )
    text = "; ".join(filter(None, (outcome.message, outcome.reason))) or str(outcome.status)
    if not outcome.status.is_good:
        kind = "error" if outcome.status in (Status.CRASH, Status.TIME_OUT, Status.DEVICE_LOST) else "failure"
        ElementTree.SubElement(case, kind, type=outcome.status, message=text)
    elif outcome.status is not Status.PASS:
        ElementTree.SubElement(case, "skipped", message=f"{outcome.status}: {text}")


FORMATS: Mapping[str, Callable[[Report], str]] = {".html": as_html, ".md": as_markdown, ".xml": as_junit}
"""How a report is written, by a file's suffix."""


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write runs down in the format of a file's suffix.

    Raises:
        InvalidArgument: when there is no run, or no such format.
        OSError: when the file cannot be written.
    """
    if not runs:
        raise InvalidArgument("there is no run to report")
    if path.suffix not in FORMATS:
        raise InvalidArgument(f"{path}: the suffix must be one of {', '.join(FORMATS)}, got {path.suffix!r}")
    path.write_text(FORMATS[path.suffix](Report(tuple(runs))), encoding="utf-8")
