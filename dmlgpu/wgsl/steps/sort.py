"""Sort, Candidates and Merge: records of ranks and places."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.kernels.grid import Launch, fold, item_launch, loop_launch
from dmlgpu.kernels.sort import Candidates, Merge, Sort, SortSchedule, network
from dmlgpu.kernels.walk import Walk, choose_walk
from dmlgpu.plan import Tensor
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step
from dmlgpu.wgsl.types import scalar_of

SHARE = 16
"""Records of a merged run that one invocation takes: enough to make up for the bisection before."""


@render_step.register
def _sort(step: Sort, builder: Builder, target: Target) -> Rendered:
    output, width = step.output, step.width
    store, values = builder.store(output)
    walk = _walk(step)
    launch = _launch(step, walk, target)
    whole = step.source.sizes[-1] % width == 0
    text = store + _record(output)
    text += _stored(builder, step.source) if step.of_records else _made(builder, step, target, whole)
    values |= {"walk": walk, "launch": launch, "output": output, "width": width, "kept": output.sizes[-1]}
    if step.schedule is SortSchedule.REGISTERS:
        values["network"] = network(width, output.sizes[-1])
    text += templates.render(f"schedules/sort_{step.schedule}", **values)
    return Rendered(text, launch, (output, step.source))


@render_step.register
def _candidates(step: Candidates, builder: Builder, target: Target) -> Rendered:
    store, values = builder.store(step.output)
    length = step.source.sizes[-1]
    text = store + _record(step.output) + _made(builder, step, target, length % step.group == 0)
    text += builder.load("best", step.best)
    walk = choose_walk(step.output)
    launch = item_launch(walk.count, target)
    values |= {"walk": walk, "launch": launch, "best": step.best, "group": step.group}
    text += templates.render("schedules/sort_candidates", groups=-(-length // step.group), **values)
    return Rendered(text, launch, (step.output, step.source, step.best))


@render_step.register
def _merge(step: Merge, builder: Builder, target: Target) -> Rendered:
    store, values = builder.store(step.output)
    count, runs, length = step.output.sizes
    shares = -(-length // SHARE)
    launch = loop_launch(count * runs * shares, target)
    text = store + _record(step.output) + builder.load("records", step.source)
    values |= {"records": step.source, "output": step.output, "launch": launch, "share": SHARE, "shares": shares}
    return Rendered(text + templates.render("schedules/sort_merge", **values), launch, (step.output, step.source))


def _record(records: Tensor) -> str:
    """What a record is."""
    return templates.render("sorting/record" if records.lanes == 2 else "sorting/record_wide")


def _stored(builder: Builder, records: Tensor) -> str:
    """``item``, which reads a record of a line."""
    return builder.load("records", records) + templates.render("schedules/sort_item_of_records", records=records)


def _made(builder: Builder, step: Sort | Candidates, target: Target, whole: bool) -> str:
    """``item``, which makes a record of an element of a line. Only where the line is ``whole`` are all places in it."""
    source, kind = step.source, scalar_of(step.source.data_type, target, portable=True)
    values = {"input": source, "kind": kind, "decreasing": step.decreasing, "whole": whole}
    return builder.load("input", source, portable=True) + templates.render("schedules/sort_item", **values)


def _walk(step: Sort) -> Walk:
    """Over the parts of all lines, in the order in which the source lies in memory."""
    *before, parts, _ = step.output.sizes
    *strides, stride = step.source.strides
    apart = stride if step.schedule is SortSchedule.BEST else stride * step.width
    return choose_walk(replace(step.output, sizes=(*before, parts, 1), strides=(*strides, apart, 1)))


def _launch(step: Sort, walk: Walk, target: Target) -> Launch:
    if step.schedule is not SortSchedule.WORKGROUP:
        return loop_launch(walk.count, target)
    workgroup = min(step.width // 2, 256, target.max_workgroup_invocations)
    return Launch(workgroup, 1, fold(walk.count, target), walk.count)
