"""Tiles: several elements per invocation, from a body that reads for all of them at once."""

from __future__ import annotations

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.rewrites.packing import is_paired
from dmlgpu.compiler.schedule.steps import ScheduledTiles
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import scalar_of


@render_step.register
def _tiles(step: ScheduledTiles, builder: Builder) -> str:
    output = step.output
    store, values = builder.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    values |= {
        "tile_s": scalar_of(step.body.data_type, builder.target, portable=True).wgsl,
        "step": step,
        "lanes": output.lanes,
        "paired": is_paired(output),
        "walk": step.walk,
        "launch": step.launch,
    }
    text = store + builder.body(step.body) + builder.epilogue(step.epilogue, step.body.data_type)
    return text + templates.render("schedules/tiles", **values)
