"""Recurrence: a step in time of recurrent networks."""

from __future__ import annotations

from dmlgpu.kernels.gemm import CHUNK
from dmlgpu.kernels.grid import Launch, fold
from dmlgpu.kernels.recurrence import INNER, ROW, Recurrence
from dmlgpu.kernels.sources import leaves
from dmlgpu.target import Profile, Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step


@render_step.register
def _recurrence(step: Recurrence, builder: Builder, target: Target) -> Rendered:
    output = step.output
    _, directions, sequences, _ = output.sizes
    wide, units = (1 if step.along else step.weights.lanes), step.weights.sizes[ROW]
    groups = -(-sequences // step.rows)
    workgroup = min(8 if target.profile is Profile.CPU else 64, 1 << (units - 1).bit_length())
    tiles = -(-units // workgroup)
    total = directions * groups * tiles
    launch = Launch(workgroup, 1, fold(total, target), total)
    text, values = builder.store(output, portable=True)
    text += builder.load("hidden", step.hidden, portable=True) + builder.load("weights", step.weights, portable=True)
    text += builder.elements(step.states, {held: f"sum{number}" for number, held in enumerate(step.sums)})
    values |= {
        "launch": launch,
        "rows": step.rows,
        "gates": list(enumerate(step.gates)),
        "units": units,
        "groups": groups,
        "tiles": tiles,
        "sequences": sequences,
        "steps": step.weights.sizes[INNER],
        "chunk": CHUNK,
        "wide": wide,
        "along": step.along,
        "states": len(step.states),
    }
    text += templates.render("schedules/recurrence", **values)
    read = dict.fromkeys(leaf for state in step.states for leaf in leaves(state))
    return Rendered(text, launch, (output, step.hidden, step.weights, *read), step.weights.lanes)
