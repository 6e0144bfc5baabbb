"""Recurrence: a step in time of recurrent networks."""

from __future__ import annotations

from dmlgpu.compiler.schedule.steps import ScheduledRecurrence
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.steps.step import render_step


@render_step.register
def _recurrence(step: ScheduledRecurrence, builder: Builder) -> str:
    output, weights = step.output, step.weights
    text, values = builder.store(output, portable=True)
    text += builder.load("hidden", step.hidden, portable=True) + builder.load("weights", weights, portable=True)
    text += builder.elements(step.states, {held: held.name for _, held in step.sums})
    values |= {
        "launch": step.launch,
        "rows": step.rows,
        "gates": [(number, gate) for number, (gate, _) in enumerate(step.sums)],
        "units": step.units,
        "groups": step.groups,
        "tiles": step.tiles,
        "sequences": output.sizes[2],
        "steps": step.steps,
        "chunk": step.chunk,
        "wide": 1 if step.along else weights.lanes,
        "along": step.along,
        "states": len(step.states),
    }
    return text + templates.render("schedules/recurrence", **values)
