"""Measurements as `dmlgpu report` shows them, beside what came of the cases."""

from __future__ import annotations

from dmlgpu.bench.measurement import Measurement
from dmlgpu.bench.records import BenchRun
from dmlgpu.bench.wording import hot_text, phases_text, work_text
from dmlgpu.conformance.drivers.discovery import info_from_json
from dmlgpu.conformance.report.times import Time, Times


def as_times(run: BenchRun) -> Times:
    """Return a run as reports take it."""
    adapters = {label: str(info_from_json(one["adapter"])) for label, one in run.facts["adapters"].items()}
    return Times(run.facts, adapters, tuple(map(_time, run.measurements)), run.is_complete)


def _time(one: Measurement) -> Time:
    where = " ".join(filter(None, (one.adapter, one.schedule and f"schedule {one.schedule}")))
    if one.median is None:
        kind = "refused" if one.status == "refused" else "bad"
        return Time(one.name, one.operator, one.adapter, where, one.message, result=one.status, kind=kind)
    kind = "bad" if not one.is_good else "known" if one.warnings or one.check != "right" else "good"
    return Time(
        one.name,
        one.operator,
        one.adapter,
        where,
        hot_text(one),
        phases_text(one),
        work_text(one),
        one.check,
        kind,
        one.warnings,
        one.median,
    )
