"""Scatters: every element to a place that the shader computes."""

from __future__ import annotations

from dmlgpu.compiler.schedule.steps import ScatterSchedule, ScheduledScatter
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.steps.step import render_step

_FILES = {
    ScatterSchedule.STORE: "schedules/scatter",
    ScatterSchedule.MARK: "schedules/scatter_mark",
    ScatterSchedule.STORE_MARKED: "schedules/scatter_marked",
}


@render_step.register
def _scatter(step: ScheduledScatter, builder: Builder) -> str:
    atomic = step.schedule is ScatterSchedule.MARK or step.output.unit_bits < 32
    store, values = builder.store(step.output, atomic=atomic)
    text = store + builder.load("source", step.source)
    text += "".join(builder.load(name, tensor) for name, tensor in step.inputs)
    text += templates.render(step.file, output=step.output, **dict(step.constants))
    values |= {"source": step.source, "launch": step.launch, "run": step.run}
    return text + templates.render(_FILES[step.schedule], **values)
