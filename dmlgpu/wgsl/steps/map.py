"""Map: every element by itself, plain transposes through tiles in registers."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.kernels.blocks import Blocks, find_blocks
from dmlgpu.kernels.collapse import collapse
from dmlgpu.kernels.grid import item_launch, loop_launch, map_launch
from dmlgpu.kernels.packing import pack
from dmlgpu.kernels.ranges import near_copy
from dmlgpu.kernels.runs import Runs, find_runs, fixed_leaves
from dmlgpu.kernels.sources import computed, fold_views, leaves
from dmlgpu.kernels.transpose import Transpose, find_transpose
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import Body, Map, Tensor, View
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps.step import Rendered, render_step
from dmlgpu.wgsl.types import raw_lane, raw_unit


@render_step.register
def _map(step: Map, builder: Builder, target: Target) -> Rendered:
    folded = fold_views(step.body)
    body, output = near_copy(*collapse(folded if folded.moves else computed(folded), step.output))
    transpose = find_transpose(body, output)
    if transpose is not None:
        return _transpose(builder, transpose, target)
    body, output = pack(body, output)
    output = replace(output, view=View.RAW if body.moves else View.COMPUTE)
    blocks = find_blocks(body, output, target)
    if blocks is not None:
        return _blocks(builder, body, output, blocks, target)
    runs = None if step.keeps_neighbours else find_runs(body, output, target)
    if runs is not None:
        return _runs(builder, runs, target)
    walk = choose_walk(output, step.keeps_neighbours)
    store, values = builder.store(output, body.portable, atomic=walk.exchange)
    launch = (loop_launch if step.costly else map_launch)(walk.items(output), target)
    values |= {"walk": walk, "launch": launch, "costly": step.costly}
    text = store + builder.body(body) + templates.render("schedules/map", **values)
    return Rendered(text, launch, (output, *leaves(body)), output.lanes)


def _blocks(builder: Builder, body: Body, output: Tensor, blocks: Blocks, target: Target) -> Rendered:
    units = output.sizes[blocks.dimension]
    sizes = tuple(1 if dimension == blocks.dimension else size for dimension, size in enumerate(output.sizes))
    walk = choose_walk(replace(output, sizes=sizes))
    store, values = builder.store(output)
    launch = loop_launch(walk.count, target)
    text = store + builder.body(body)
    text += templates.render("schedules/map_blocks", blocks=blocks, units=units, walk=walk, launch=launch, **values)
    return Rendered(text, launch, (output, *leaves(body)), output.lanes)


def _runs(builder: Builder, runs: Runs, target: Target) -> Rendered:
    body, output = runs.body, runs.output
    sizes = tuple(1 if dimension == runs.axis else size for dimension, size in enumerate(output.sizes))
    walk = choose_walk(replace(output, sizes=sizes))
    launch = loop_launch(walk.count, target)
    fixed = fixed_leaves(body, [runs.axis])
    text, values = builder.store(output, body.portable)
    text += "".join(builder.load(name, leaf, portable=True) for name, leaf in fixed)
    text += builder.element_of(body, {leaf: name for name, leaf in fixed})
    values |= {"axis": runs.axis, "units": output.sizes[runs.axis], "fixed": [name for name, _ in fixed]}
    text += templates.render("schedules/map_runs", walk=walk, launch=launch, **values)
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
