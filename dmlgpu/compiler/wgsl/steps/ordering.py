"""Sorting of records of ranks and positions, and scattering."""

from __future__ import annotations

from typing import Any

from dmlgpu.compiler.plan import PlanTensor
from dmlgpu.compiler.schedule.steps.ordering import (
    ScheduledCandidates,
    ScheduledMerge,
    ScheduledScatter,
    ScheduledSort,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.types import scalar_of
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special


@special.register
def _sort(step: ScheduledSort, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values |= {"kept": step.output.sizes[-1], "held": step.width // step.launch.workgroup}
    if not step.of_records:
        return _record(step.output) + _made(writer, step, step.source.sizes[-1] % step.width == 0)
    text = _record(step.output) + writer.load("records", step.source)
    return text + templates.render("schedules/sort_item_of_records", records=step.source)


@special.register
def _candidates(step: ScheduledCandidates, writer: ShaderWriter, values: dict[str, Any]) -> str:
    length = step.source.sizes[-1]
    values["groups"] = -(-length // step.group)
    text = _record(step.output) + _made(writer, step, length % step.group == 0)
    return text + writer.load("best", step.best)


@special.register
def _merge(step: ScheduledMerge, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values |= {"records": step.source, "shares": -(-step.output.sizes[-1] // step.share)}
    return _record(step.output) + writer.load("records", step.source)


def _record(records: PlanTensor) -> str:
    """Return the type of a record."""
    return templates.render("sorting/record" if records.lanes == 2 else "sorting/record_wide")


def _made(writer: ShaderWriter, step: ScheduledSort | ScheduledCandidates, whole: bool) -> str:
    """Return ``item``, which makes a record of an element of a line. Unless the line is ``whole``, positions are
    checked."""
    source, kind = step.source, scalar_of(step.source.data_type, writer.target, portable=True)
    values = {"input": source, "kind": kind, "decreasing": step.decreasing, "whole": whole}
    return writer.load("input", source, portable=True) + templates.render("schedules/sort_item", **values)


@special.register
def _scatter(step: ScheduledScatter, writer: ShaderWriter, values: dict[str, Any]) -> str:
    text = "".join(writer.load(name, tensor) for name, tensor in step.inputs)
    return text + templates.render(step.file, output=step.output, **dict(step.constants))
