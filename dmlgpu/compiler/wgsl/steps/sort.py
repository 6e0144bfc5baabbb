"""Sorting: records of ranks and places."""

from __future__ import annotations

from dmlgpu.compiler.plan import Tensor
from dmlgpu.compiler.schedule.steps import ScheduledCandidates, ScheduledMerge, ScheduledSort
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import scalar_of


@render_step.register
def _sort(step: ScheduledSort, builder: Builder) -> str:
    output, width = step.output, step.width
    store, values = builder.store(output)
    whole = step.source.sizes[-1] % width == 0
    text = store + _record(output)
    text += _stored(builder, step.source) if step.of_records else _made(builder, step, whole)
    values |= {"walk": step.walk, "launch": step.launch, "output": output, "width": width, "kept": output.sizes[-1]}
    return text + templates.render(f"schedules/sort_{step.schedule}", network=step.network, **values)


@render_step.register
def _candidates(step: ScheduledCandidates, builder: Builder) -> str:
    store, values = builder.store(step.output)
    length = step.source.sizes[-1]
    text = store + _record(step.output) + _made(builder, step, length % step.group == 0)
    text += builder.load("best", step.best)
    values |= {"walk": step.walk, "launch": step.launch, "best": step.best, "group": step.group}
    return text + templates.render("schedules/sort_candidates", groups=-(-length // step.group), **values)


@render_step.register
def _merge(step: ScheduledMerge, builder: Builder) -> str:
    store, values = builder.store(step.output)
    shares = -(-step.output.sizes[-1] // step.share)
    text = store + _record(step.output) + builder.load("records", step.source)
    values |= {"records": step.source, "output": step.output, "launch": step.launch}
    return text + templates.render("schedules/sort_merge", share=step.share, shares=shares, **values)


def _record(records: Tensor) -> str:
    """Return what a record is."""
    return templates.render("sorting/record" if records.lanes == 2 else "sorting/record_wide")


def _stored(builder: Builder, records: Tensor) -> str:
    """Return ``item``, which reads a record of a line."""
    return builder.load("records", records) + templates.render("schedules/sort_item_of_records", records=records)


def _made(builder: Builder, step: ScheduledSort | ScheduledCandidates, whole: bool) -> str:
    """Return ``item``, which makes a record of an element of a line. Only where the line is ``whole`` are all places in
    it."""
    source, kind = step.source, scalar_of(step.source.data_type, builder.target, portable=True)
    values = {"input": source, "kind": kind, "decreasing": step.decreasing, "whole": whole}
    return builder.load("input", source, portable=True) + templates.render("schedules/sort_item", **values)
