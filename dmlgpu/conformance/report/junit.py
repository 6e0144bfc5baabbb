"""Reports as JUnit XML, for CI systems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from dmlgpu.conformance.report.model import Report, Times, reproduce
from dmlgpu.conformance.report.pairs import PairReport, difference
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun

_ERRORS = (Status.CRASH, Status.TIME_OUT, Status.DEVICE_LOST)
"""Statuses that are JUnit errors: the case ended before a comparison."""

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


_COUNTS = ("tests", "failures", "errors")
"""Counts of a suite and of all suites."""


def as_junit(report: Report) -> str:
    """Return JUnit XML, with a suite per run and per comparison of adapters."""
    root = ElementTree.Element("testsuites", name="dmlgpu")
    for index, run in enumerate(report.runs):
        suite = _suite(root, run.adapter, run.facts, report.totals[index].seconds)
        for outcome in run.outcomes:
            _case(suite, run, outcome)
    for pairs in map(PairReport, report.comparisons):
        _compared_cases(_suite(root, f"pairwise: {', '.join(pairs.alone)}", pairs.comparison.facts), pairs)
    for times in report.times:
        _timed_cases(_suite(root, f"bench: {', '.join(times.adapters)}", times.facts), times)
    for suite in root:
        _count(suite)
    for name in _COUNTS:
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', 0)) for suite in root):.3f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, facts: Mapping[str, Any], seconds: float = 0.0) -> ElementTree.Element:
    """Return a suite without cases, with its facts."""
    suite = ElementTree.SubElement(root, "testsuite", name=_text(name), id=str(len(root)))
    suite.set("timestamp", facts["started"].partition("+")[0])
    suite.set("time", f"{seconds:.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    for fact, value in _flat(facts):
        ElementTree.SubElement(properties, "property", name=_text(fact), value=_text(value))
    return suite


def _timed_cases(suite: ElementTree.Element, times: Times) -> None:
    """Add a case per measurement; its time is that of a dispatch."""
    for row in times.times:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(row.where), name=_text(row.name))
        case.set("time", f"{row.seconds or 0:.9f}")
        if row.kind == "bad":
            ElementTree.SubElement(case, "failure", message=_text(row.result), type=row.result).text = _text(row.time)
        elif row.kind == "refused":
            ElementTree.SubElement(case, "skipped", message=_text(row.time))


def _flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return nested facts with dotted names: ``adapter.limits.max-buffer-size``."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", text) for inner, text in _flat(value))
        else:
            yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _count(suite: ElementTree.Element) -> None:
    """Set the counts of a suite."""
    suite.set("tests", str(len(suite.findall("testcase"))))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))


def _tag(status: Status) -> str:
    """Return the JUnit element of a status; empty for a pass."""
    if status in _ERRORS:
        return "error"
    if not status.is_good:
        return "failure"
    return "" if status is Status.PASS else "skipped"


def _case(suite: ElementTree.Element, run: RecordedRun, outcome: Outcome) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=outcome.operator, name=_text(outcome.case), time=f"{outcome.seconds:.3f}"
    )
    tag = _tag(outcome.status)
    message = "; ".join(filter(None, (outcome.message, outcome.reason))) or str(outcome.status)
    if tag == "skipped":
        ElementTree.SubElement(case, tag, message=_text(f"{outcome.status}: {message}"))
    elif tag:
        element = ElementTree.SubElement(case, tag, type=outcome.status, message=_text(message))
        element.text = _text("\n".join(_details(run, outcome)))


def _compared_cases(suite: ElementTree.Element, pairs: PairReport) -> None:
    disagreements = {disagreement.case: disagreement for disagreement in pairs.disagreements}
    for name in pairs.comparison.by_case:
        case = ElementTree.SubElement(suite, "testcase", classname="pairwise", name=_text(name), time="0.000")
        if name in disagreements:
            disagreement = disagreements[name]
            said = [f"{' / '.join(pair.adapters)}: {difference(pair)}" for pair in disagreement.pairs]
            message = f"{disagreement.outlier} differs" if disagreement.outlier else "no single outlier"
            element = ElementTree.SubElement(case, "failure", type="disagree", message=_text(message))
            element.text = _text("\n".join([*said, *disagreement.kernels, f"again: {disagreement.command}"]))


def _details(run: RecordedRun, outcome: Outcome) -> Iterator[str]:
    if outcome.wrong:
        yield outcome.wrong_elements
    if outcome.kernels:
        yield f"ran as: {'; '.join(outcome.kernels)}"
    yield f"again: {reproduce(run, outcome)}"


def _text(text: str) -> str:
    """Remove characters that XML cannot represent, such as terminal colors in the output of a crashed process."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
