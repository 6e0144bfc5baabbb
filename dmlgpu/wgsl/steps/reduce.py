"""Reduce: lift, merge, finish under the serial, tree and partial schedules."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.grid import Launch, group_launch, loop_launch, map_launch
from dmlgpu.kernels.sources import computed, fold_views, leaves
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import Reduce, ReduceSchedule, Tensor
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.steps.step import Rendered, monoid_operands, render_step
from dmlgpu.wgsl.types import scalar_of

SHORT = 4
"""Units of a row so short that one invocation takes several rows, as in a map."""


@render_step.register
def _reduce(step: Reduce, builder: Builder, target: Target) -> Rendered:
    step = replace(step, source=computed(fold_views(step.source)))
    together = step.together or step.output.sizes[-1]
    values = {
        "count": step.source.sizes[-1]
        if step.of_partials
        else math.prod(step.source.sizes[axis] for axis in step.axes),
        "together": together,
        "runs": step.output.sizes[-1] // together,
        "output": step.output,
        "of_partials": step.of_partials,
        "lanes": step.lanes,
        "across": step.across is not None,
    }
    renderer = _rows_of_units if step.across is None else _rows_side_by_side
    text, launch = renderer(step, builder, values, target)
    return Rendered(text, launch, (step.output, *leaves(step.source)), step.lanes)


def _rows_of_units(step: Reduce, builder: Builder, values: dict[str, Any], target: Target) -> tuple[str, Launch]:
    """Kernels that compute a unit of the output at a time."""
    walk = choose_walk(step.output)
    store, place = builder.store(step.output, step.portable, atomic=walk.exchange)
    text = store + _items_of_row(builder, step, target) + _monoid(step, target)
    items = walk.items(step.output)
    if step.schedule is ReduceSchedule.TREE:
        launch = group_launch(items, target)
        return text + templates.render("schedules/reduce_tree", walk=walk, launch=launch, **values, **place), launch
    is_short = values["count"] <= SHORT and not walk.by_words
    launch = map_launch(items, target) if is_short else loop_launch(items, target)
    text += templates.render(f"schedules/reduce_{step.schedule}", **values)
    return text + templates.render("schedules/map", walk=walk, launch=launch, **place), launch


def _rows_side_by_side(step: Reduce, builder: Builder, values: dict[str, Any], target: Target) -> tuple[str, Launch]:
    """Kernels whose invocations walk several neighbouring rows at a time."""
    assert step.across is not None
    size = step.source.sizes[step.across]
    walk = choose_walk(_walkers(step, step.across, -(-size // step.width)))
    launch = loop_launch(walk.count, target)
    store, place = builder.store(step.output, step.portable)
    text = store + _items_of_row(builder, step, target) + _monoid(step, target)
    values |= {
        "partial": step.schedule is ReduceSchedule.PARTIAL,
        "dimension": step.across,
        "places": [f"place{number}" for number in range(step.width)],
        "size": size,
        "ragged": size % step.width != 0,
    }
    return text + templates.render("schedules/reduce_across", walk=walk, launch=launch, **values, **place), launch


def _walkers(step: Reduce, across: int, count: int) -> Tensor:
    """The walks of the step as units of a tensor: those of neighbouring rows side by side, those of a row far apart."""
    sizes = (*step.output.sizes[:across], count, *step.output.sizes[across + 1 :])
    others = (dimension for dimension in range(len(step.source.sizes)) if dimension != across)
    partials = range(len(step.source.sizes), len(sizes))
    strides, reach = [0] * len(sizes), 1
    for dimension in (across, *reversed(tuple(others)), *partials):
        strides[dimension], reach = reach, reach * sizes[dimension]
    return Tensor(step.output.binding, DataType.UINT32, sizes, tuple(strides))


def _items_of_row(builder: Builder, step: Reduce, target: Target) -> str:
    """The accessor of what is reduced, and ``item``, which enumerates a row of it."""
    if step.of_partials:
        scalar = scalar_of(step.element, target, step.portable).wgsl
        text = (
            builder.source("partials", step.source, raw=False, portable=step.portable) + f"alias input_s = {scalar};\n"
        )
        return text + templates.render("schedules/reduce_item_of_partials", partials=step.source)
    text = builder.source("input", step.source, raw=False, portable=step.portable)
    return text + templates.render("schedules/reduce_item", input=step.source, axes=step.axes)


def _monoid(step: Reduce, target: Target) -> str:
    """The body with ``lift``, ``merge`` and ``finish``."""
    kind = scalar_of(step.element, target, step.portable)
    output_kind = scalar_of(step.output.data_type, target, step.portable)
    output = Result(step.output.data_type, output_kind, step.portable, step.output.sizes, target)
    operands = monoid_operands(kind, step.element, target)
    return templates.render(step.file, output=output, **operands, **dict(step.constants))
