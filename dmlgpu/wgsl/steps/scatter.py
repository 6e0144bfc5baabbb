"""Scatter: every element to a place that the body computes."""

from __future__ import annotations

import math

from dmlgpu.kernels.grid import item_launch
from dmlgpu.plan import Scatter, ScatterSchedule
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step

_SCATTER_FILES = {
    ScatterSchedule.STORE: "schedules/scatter",
    ScatterSchedule.MARK: "schedules/scatter_mark",
    ScatterSchedule.STORE_MARKED: "schedules/scatter_marked",
}


@render_step.register
def _scatter(step: Scatter, builder: Builder, target: Target) -> Rendered:
    marking = step.schedule is ScatterSchedule.MARK
    atomic = marking or step.output.unit_bits < 32
    store, values = builder.store(step.output, atomic=atomic)
    text = store + builder.load("source", step.source)
    text += "".join(builder.load(name, tensor) for name, tensor in step.inputs)
    text += templates.render(step.file, output=step.output, **dict(step.constants))
    launch = item_launch(math.prod(step.source.sizes), target)
    text += templates.render(_SCATTER_FILES[step.schedule], source=step.source, launch=launch, **values)
    tensors = (step.output, step.source, *(tensor for _, tensor in step.inputs))
    return Rendered(text, launch, tensors, step.source.lanes)
