"""Reduce: lift, merge, finish under the serial, tree and partial schedules."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.kernels.grid import group_launch, loop_launch
from dmlgpu.kernels.sources import computed, folded_views, leaves
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import Reduce, ReduceSchedule, mapping
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.steps.step import Rendered, monoid_operands, render_step
from dmlgpu.wgsl.types import scalar_of


@render_step.register
def _reduce(step: Reduce, builder: Builder, target: Target) -> Rendered:
    step = replace(step, source=computed(folded_views(step.source)))
    output, walk = step.output, choose_walk(step.output)
    store, values = builder.store(output, step.words, atomic=walk.exchange)
    text = store + _items_of_row(builder, step, target) + _monoid(step, target)
    count = step.source.sizes[-1] if step.of_partials else math.prod(step.source.sizes[axis] for axis in step.axes)
    items = walk.items(output)
    if step.schedule is ReduceSchedule.TREE:
        launch = group_launch(items, target)
        text += templates.render("schedules/reduce_tree", count=count, walk=walk, launch=launch, **values)
    else:
        launch = loop_launch(items, target)
        text += templates.render(
            f"schedules/reduce_{step.schedule}", count=count, output=output, parts=output.sizes[-1]
        )
        text += templates.render("schedules/map", walk=walk, launch=launch, **values)
    return Rendered(text, launch, (output, *leaves(step.source)))


def _items_of_row(builder: Builder, step: Reduce, target: Target) -> str:
    """The accessor of what is reduced, and ``item``, which enumerates a row of it."""
    if step.of_partials:
        scalar = scalar_of(step.element, target, step.words).wgsl
        text = builder.source("partials", step.source, raw=False, words=step.words) + f"alias input_s = {scalar};\n"
        return text + templates.render("schedules/reduce_item_of_partials", partials=step.source)
    text = builder.source("input", step.source, raw=False, words=step.words)
    return text + templates.render("schedules/reduce_item", input=step.source, axes=step.axes)


def _monoid(step: Reduce, target: Target) -> str:
    """The body with ``lift``, ``merge`` and ``finish``."""
    kind = scalar_of(step.element, target, step.words)
    output_kind = scalar_of(step.output.data_type, target, step.words)
    output = Result(step.output.data_type, output_kind, step.words, step.output.sizes, target)
    operands = monoid_operands(kind, step.element, target)
    return templates.render(step.file, output=output, **operands, **mapping(step.constants))
