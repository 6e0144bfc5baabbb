"""Map: every element by itself, plain transposes through tiles in registers."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.kernels.collapse import collapse
from dmlgpu.kernels.grid import item_launch, map_launch
from dmlgpu.kernels.packing import pack
from dmlgpu.kernels.sources import fold_views, leaves, settle_views
from dmlgpu.kernels.transpose import Transpose, find_transpose
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import Map, View
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step
from dmlgpu.wgsl.types import raw_lane, raw_unit


@render_step.register
def _map(step: Map, builder: Builder, target: Target) -> Rendered:
    body, output = collapse(settle_views(fold_views(step.body)), step.output)
    transpose = find_transpose(body, output)
    if transpose is not None:
        return _transpose(builder, transpose, target)
    body, output = pack(body, output)
    output = replace(output, view=View.RAW if body.moves else View.COMPUTE)
    walk = choose_walk(output)
    store, values = builder.store(output, body.words, atomic=walk.exchange)
    launch = map_launch(walk.items(output), target)
    text = store + builder.body(body) + templates.render("schedules/map", walk=walk, launch=launch, **values)
    return Rendered(text, launch, (output, *leaves(body)), output.lanes)


def _transpose(builder: Builder, transpose: Transpose, target: Target) -> Rendered:
    output, bits, lanes = transpose.output, transpose.output.data_type.bits, transpose.lanes
    store, values = builder.store(output)
    columns = [
        raw_unit([raw_lane(f"row{row}", column, bits, output.unit_bits) for row in range(lanes)], bits)
        for column in range(lanes)
    ]
    launch = item_launch(transpose.count, target)
    text = store + builder.load("input", transpose.source)
    text += templates.render("schedules/transpose", transpose=transpose, columns=columns, launch=launch, **values)
    return Rendered(text, launch, (output, transpose.source), lanes)
