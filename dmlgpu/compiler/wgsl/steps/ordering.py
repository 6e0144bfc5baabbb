"""Sorting of records of ranks and positions, and scattering."""

from __future__ import annotations

from dmlgpu.compiler.plan import PlanTensor
from dmlgpu.compiler.schedule.steps.ordering import (
    ScatterSchedule,
    ScheduledCandidates,
    ScheduledMerge,
    ScheduledScatter,
    ScheduledSort,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.steps.reductions import combining
from dmlgpu.compiler.wgsl.types import scalar_of
from dmlgpu.compiler.wgsl.writer import ShaderWriter, render_step


@render_step.register
def _sort(step: ScheduledSort, writer: ShaderWriter) -> str:
    output, width = step.output, step.width
    store, values = writer.store(output)
    whole = step.source.sizes[-1] % width == 0
    text = store + _record(output)
    text += _stored(writer, step.source) if step.of_records else _made(writer, step, whole)
    values |= {"walk": step.walk, "launch": step.launch, "output": output, "width": width, "kept": output.sizes[-1]}
    values |= combining(step.launch) | {"held": width // step.launch.workgroup}
    return text + templates.render(f"schedules/sort_{step.schedule}", network=step.network, **values)


@render_step.register
def _candidates(step: ScheduledCandidates, writer: ShaderWriter) -> str:
    store, values = writer.store(step.output)
    length = step.source.sizes[-1]
    text = store + _record(step.output) + _made(writer, step, length % step.group == 0)
    text += writer.load("best", step.best)
    values |= {"walk": step.walk, "launch": step.launch, "best": step.best, "group": step.group}
    return text + templates.render("schedules/sort_candidates", groups=-(-length // step.group), **values)


@render_step.register
def _merge(step: ScheduledMerge, writer: ShaderWriter) -> str:
    store, values = writer.store(step.output)
    shares = -(-step.output.sizes[-1] // step.share)
    text = store + _record(step.output) + writer.load("records", step.source)
    values |= {"records": step.source, "output": step.output, "launch": step.launch}
    return text + templates.render("schedules/sort_merge", share=step.share, shares=shares, **values)


def _record(records: PlanTensor) -> str:
    """Return the type of a record."""
    return templates.render("sorting/record" if records.lanes == 2 else "sorting/record_wide")


def _stored(writer: ShaderWriter, records: PlanTensor) -> str:
    """Return ``item``, which reads a record of a line."""
    return writer.load("records", records) + templates.render("schedules/sort_item_of_records", records=records)


def _made(writer: ShaderWriter, step: ScheduledSort | ScheduledCandidates, whole: bool) -> str:
    """Return ``item``, which makes a record of an element of a line. Unless the line is ``whole``, positions are
    checked."""
    source, kind = step.source, scalar_of(step.source.data_type, writer.target, portable=True)
    values = {"input": source, "kind": kind, "decreasing": step.decreasing, "whole": whole}
    return writer.load("input", source, portable=True) + templates.render("schedules/sort_item", **values)


_FILES = {
    ScatterSchedule.STORE: "schedules/scatter",
    ScatterSchedule.MARK: "schedules/scatter_mark",
    ScatterSchedule.STORE_MARKED: "schedules/scatter_marked",
}


@render_step.register
def _scatter(step: ScheduledScatter, writer: ShaderWriter) -> str:
    atomic = step.schedule is ScatterSchedule.MARK or step.output.unit_bits < 32
    store, values = writer.store(step.output, atomic=atomic)
    text = store + writer.load("source", step.source)
    text += "".join(writer.load(name, tensor) for name, tensor in step.inputs)
    text += templates.render(step.file, output=step.output, **dict(step.constants))
    values |= {"source": step.source, "launch": step.launch, "run": step.run}
    return text + templates.render(_FILES[step.schedule], **values)
