"""Tiles: several elements per invocation, from a body that reads for all of them at once."""

from __future__ import annotations

from dmlgpu.kernels.grid import tile_launch
from dmlgpu.kernels.sources import leaves
from dmlgpu.kernels.tiles import Tiles
from dmlgpu.kernels.walk import WORD_BITS
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step
from dmlgpu.wgsl.types import scalar_of


@render_step.register
def _tiles(step: Tiles, builder: Builder, target: Target) -> Rendered:
    output, walk = step.output, step.walk
    store, values = builder.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    launch = tile_launch(walk.count, target)
    values |= {
        "tile_s": scalar_of(step.body.data_type, target, portable=True).wgsl,
        "step": step,
        "lanes": output.lanes,
        "walk": walk,
        "launch": launch,
    }
    text = store + builder.body(step.body) + builder.epilogue(step.epilogue, step.body.data_type)
    text += templates.render("schedules/tiles", **values)
    sources = (*leaves(step.body), *leaves(step.epilogue))
    read = tuple(tensor for tensor in sources)
    return Rendered(text, launch, (output, *read), output.lanes)
