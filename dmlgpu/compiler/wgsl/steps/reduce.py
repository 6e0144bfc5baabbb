"""Reductions: lift, merge, finish under the serial, tree and partial schedules."""

from __future__ import annotations

import functools
import math
import re

from dmlgpu.compiler.plan import Body, RegisterValue
from dmlgpu.compiler.rewrites.sources import nodes
from dmlgpu.compiler.schedule.steps import ReduceSchedule, ScheduledReduce
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder, Result
from dmlgpu.compiler.wgsl.linker import prefix
from dmlgpu.compiler.wgsl.steps.step import monoid_operands, render_step
from dmlgpu.compiler.wgsl.types import scalar_of


@render_step.register
def _reduce(step: ScheduledReduce, builder: Builder) -> str:
    sizes, results = step.source.sizes, step.output.sizes[-1]
    together = step.together or results
    portable = step.portable if step.epilogue is None else step.epilogue.portable
    store, values = builder.store(step.output, portable, atomic=step.walk.exchange)
    text = store + _items_of_row(builder, step) + _monoid(step, builder) + _epilogue(step, builder)
    values |= {
        "count": sizes[-1] if step.of_partials else math.prod(sizes[axis] for axis in step.axes),
        "together": together,
        "runs": results // together,
        "output": step.output,
        "of_partials": step.of_partials,
        "lanes": step.lanes,
        "across": step.across is not None,
        "group": step.group,
        "compared": step.compared,
        "decreasing": dict(step.constants).get("decreasing", False),
        "walk": step.walk,
        "launch": step.launch,
        "finished": functools.partial(_finished, step.epilogue is not None),
    }
    if step.across is not None:
        values |= {
            "partial": step.schedule is ReduceSchedule.PARTIAL,
            "dimension": step.across,
            "places": [f"place{number}" for number in range(step.width)],
            "size": sizes[step.across],
            "ragged": sizes[step.across] % step.width != 0,
        }
        return text + templates.render("schedules/reduce_across", **values)
    if step.schedule is ReduceSchedule.TREE:
        return text + templates.render("schedules/reduce_tree", **values)
    text += templates.render(f"schedules/reduce_{step.schedule}", **values)
    return text + templates.render("schedules/map", **values)


def _items_of_row(builder: Builder, step: ScheduledReduce) -> str:
    """Return the accessor of what is reduced, and ``item``, which enumerates a row of it."""
    if step.of_partials:
        scalar = scalar_of(step.element, builder.target, step.portable).wgsl
        text = builder.source("partials", step.source, raw=False, portable=step.portable)
        text += f"alias input_s = {scalar};\n"
        return text + templates.render("schedules/reduce_item_of_partials", partials=step.source)
    text = builder.source("input", step.source, raw=False, portable=step.portable)
    return text + templates.render("schedules/reduce_item", input=step.source, axes=step.axes)


def _monoid(step: ScheduledReduce, builder: Builder) -> str:
    """Return the body with ``lift``, ``merge`` and ``finish``, which gives the result of a row."""
    target, portable = builder.target, step.portable
    result = step.output.data_type if step.epilogue is None else _held(step.epilogue).data_type
    kind, output_kind = (scalar_of(data_type, target, portable) for data_type in (step.element, result))
    output = Result(result, output_kind, portable, step.output.sizes, target)
    operands = monoid_operands(kind, step.element, target)
    text = templates.render(
        step.file, output=output, at_once=step.group * step.lanes, **operands, **dict(step.constants)
    )
    if step.compared:
        text += templates.render(f"{step.file}_unit", lanes=step.lanes, **operands, **dict(step.constants))
    if step.epilogue is None:
        return text
    return f"alias result_s = {output_kind.wgsl};\n" + re.sub(r"\boutput_s\b", "result_s", text)


def _held(epilogue: Body) -> RegisterValue:
    """Return the leaf that stands for the result of a row."""
    return next(node for node in nodes(epilogue) if isinstance(node, RegisterValue))


def _epilogue(step: ScheduledReduce, builder: Builder) -> str:
    """Return what computes an element of the output from the result of a row, if that is not all."""
    if step.epilogue is None:
        return ""
    held = _held(step.epilogue)
    return prefix(builder.element_of(step.epilogue, {held: held.name}), "epilogue_")


def _finished(has_epilogue: bool, accumulator: str, place: str) -> str:
    """Return the expression of what is stored at a place."""
    result = f"finish({accumulator})"
    return f"epilogue_element({place}, {result})" if has_epilogue else result
