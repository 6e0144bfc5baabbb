"""Runs made up for tests of reports: few cases with every kind of result."""

from __future__ import annotations

from dataclasses import asdict, replace

from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.drivers.pairwise import AdapterPair, Agreement, Comparison, Distance
from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun, comparison_facts, facts
from dmlgpu.conformance.suites.registry import DEFAULT
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

GOOD = Outcome("argmin-a", Status.PASS, "exact", 0.0, 0.0, 0.0, elements=4, digest="11", seconds=0.5)
CLOSE = Outcome("cast-a", Status.PASS, "2 ULP", 0.75, 1.5, 0.1, elements=4, digest="22")
BAD = Outcome("cast-b", Status.FAIL, "exact", float("inf"), 7.0, 1.0, 1, 4, (2,), ("<3>",), "4", "5", 0.0)
REFUSED = Outcome("cast-c", Status.NOT_SUPPORTED, message="no float64: needs shader-f64", missing="shader-f64")
KNOWN = Outcome("cast-d", Status.EXPECTED_FAIL, of_bound=2.5, reason="told | so")
CRASHED = Outcome("fold-a", Status.CRASH, message="signal 11\n\x1b[31mwhat </script> a day")


def run(*outcomes, name="this", suite=DEFAULT, **facts_of_adapter) -> RecordedRun:
    info = replace(NUMPY_ADAPTER, **{"name": name, "driver": "", **facts_of_adapter})
    return RecordedRun({**facts(info, suite, "quick", "", ()), "adapter": asdict(info)}, outcomes)


def mixed() -> Report:
    """Two adapters, and something of each kind that did not pass."""
    this = run(GOOD, CLOSE, BAD, REFUSED, features=("shader-f64",), limits={"max-buffer-size": 4096})
    return Report((this, run(GOOD, CLOSE, KNOWN, CRASHED, name="that")))


def measured(case: str, *curve, tolerance="2 ULP of the true value") -> Outcome:
    """A case of a suite that measures functions."""
    worst = max(distance for _, distance in curve)
    status = Status.PASS if worst <= 2 else Status.FAIL
    return Outcome(case, status, tolerance, worst / 2, worst, 0.1, elements=100, curve=curve)


APART = Distance(4, 2, 1, float("inf"), 9.0, (0, 2), ("4", "5"), 0.0)


def compared() -> Comparison:
    """Three adapters, one of which differs from the others."""
    adapters = [LocatedAdapter(replace(NUMPY_ADAPTER, name=label), 0, label=label) for label in "abc"]
    agree = [
        AdapterPair("argmin-a", pair, Agreement.AGREE, "exact", Distance(4))
        for pair in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    differ = [
        AdapterPair("cast-b", ("a", "b"), Agreement.DISAGREE, "exact", APART),
        AdapterPair("cast-b", ("a", "c"), Agreement.AGREE, "exact", Distance(4, 1, 0, 0.5, 1.0)),
        AdapterPair("cast-b", ("b", "c"), Agreement.NO_RESULT, message="c: crash | <x>"),
    ]
    command = ("dmlgpu", "test", "--pairwise", "--drivers", "all")
    names = ("argmin-a", "cast-b")
    header = comparison_facts(adapters, command, suite="operators", profile="quick", pattern="", names=names)
    return Comparison(header, (*agree, *differ))
