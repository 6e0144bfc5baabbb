"""Rows: several reductions of a row and then each of its elements, in one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.sources import rewrite, sameness
from dmlgpu.plan import Body, Held, Source, Stage, Tensor, apply, stage_results
from dmlgpu.schedule.rows import SUBGROUP, shared_leaves
from dmlgpu.schedule.runs import fixed_leaves
from dmlgpu.schedule.steps import ReduceSchedule, ScheduledRows
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.linker import prefix
from dmlgpu.wgsl.steps.step import monoid_operands, render_step
from dmlgpu.wgsl.types import LANE_NAMES, Scalar, scalar_of, vector

TILE = 32
"""Units that one invocation merges before it merges their sum into that of the row."""


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and what follows the name of a result for it."""

    number: int
    part: str
    result: str


@render_step.register
def _rows(step: ScheduledRows, builder: Builder) -> str:
    output, is_serial = step.output, step.schedule is ReduceSchedule.SERIAL
    element, body = _element_and_body(step)
    fixed = [(name, leaf) for name, leaf in fixed_leaves(body, step.axes) if leaf != element]
    shared = [(name, leaf) for name, leaf in shared_leaves(body, step.axes) if leaf != element] if step.together else []
    text, values = builder.store(output, portable=True)
    text += builder.source("input", step.source, raw=False, portable=True)
    text += "".join(builder.load(name, leaf, portable=True) for name, leaf in (*fixed, *shared))
    stored_as_float = scalar_of(output.data_type, builder.target, portable=True) is Scalar.F32
    counts = _counts(step)
    text += "".join(
        _stage_monoid(stage, builder.target, counts, in_turn=is_serial and not counts, stored_as_float=stored_as_float)
        for stage in step.stages
    )
    results = stage_results(step.stages, output.sizes, step.axes)
    given: dict[Tensor | Held, str] = {element: "unit"}
    given |= {held: name for name, held in results.items()}
    given |= {leaf: name for name, leaf in (*fixed, *shared)}
    text += builder.element_of(body, given)
    values |= {
        "walk": step.walk,
        "launch": step.launch,
        "held": step.held,
        "output": output,
        "axes": step.axes,
        "units": step.units,
        "across": step.across,
        "lanes": _lanes(output.lanes, step.across),
        "stages": _stages(builder, step),
        "names": list(results),
        "result_type": "output_t" if stored_as_float else vector(Scalar.F32, output.lanes),
        "tile": TILE,
        "group": step.group,
        "counts": counts,
        "fixed": [name for name, _ in fixed],
        "shared": [name for name, _ in shared],
        "together": step.together,
        "beside": SUBGROUP // 2,
        "groups": _groups(step),
    }
    return text + templates.render(f"schedules/rows_{step.schedule}", **values)


def _element_and_body(step: ScheduledRows) -> tuple[Tensor | Held, Body]:
    """Return the leaf that stands for the element itself in the body, and the body."""
    if isinstance(step.source, Tensor | Held):
        return step.source, step.body
    element = Held("unit", step.source.data_type, step.source.sizes, lanes=step.source.lanes)
    same = sameness()
    return element, rewrite(step.body, lambda node: element if same(node, step.source) else node)


def _lanes(count: int, across: bool) -> list[_Lane]:
    """Return the lanes of a unit; neighbouring rows have results of their own."""
    if count == 1:
        return [_Lane(0, "", "")]
    return [_Lane(lane, f".{LANE_NAMES[lane]}", str(lane) if across else "") for lane in range(count)]


def _groups(step: ScheduledRows) -> list[range]:
    """Return the units that an invocation of a subgroup lifts at once, by their numbers: those that all invocations
    have, and the last one by itself where it is for some of them only."""
    if step.schedule is not ReduceSchedule.SUBGROUP:
        return []
    everyones = step.units // step.launch.workgroup
    found = [range(first, min(first + step.group, everyones)) for first in range(0, everyones, step.group)]
    return found + ([range(everyones, step.held)] if everyones < step.held else [])


def _counts(step: ScheduledRows) -> tuple[int, ...]:
    """Return how many numbers a stage takes at once: of a group of units, and of a unit where some are left over."""
    if step.schedule is ReduceSchedule.SUBGROUP:
        return tuple(sorted({len(group) * step.output.lanes for group in _groups(step)}))
    of_unit = 1 if step.across else step.output.lanes
    rest = (of_unit,) if step.group > 1 and step.units % step.group else ()
    return (step.group * of_unit, *rest) if step.group else ()


def _stage_monoid(
    stage: Stage, target: Target, counts: tuple[int, ...], *, in_turn: bool, stored_as_float: bool
) -> str:
    """Return a stage's functions under its name; those of a run too, where an invocation takes numbers in turn.

    Their results are float32, whatever the rows are stored as.
    """
    operands = monoid_operands(Scalar.F32, DataType.FLOAT32, target)
    result = Result(DataType.FLOAT32, Scalar.F32, True, (), target)
    files = (stage.file, stage.run) if in_turn else (stage.file,)
    given = {"output": result, "counts": counts, **operands, **dict(stage.constants)}
    text = "" if stored_as_float else f"alias output_s = {Scalar.F32.wgsl};\n"
    text += "".join(templates.render(file, **given) for file in files)
    return prefix(text, f"{stage.name}_")


def _stages(builder: Builder, step: ScheduledRows) -> list[dict[str, Any]]:
    """Return what the schedules know of the stages: a name, a function, the results that it takes and those that it
    gives."""
    found: list[dict[str, Any]] = []
    before: list[str] = []
    for stage in step.stages:
        prepare = _prepare_function(builder, step, stage.prepare, before) if stage.prepare else ""
        parts = list(zip(stage.parts, LANE_NAMES, strict=False))
        found.append({"name": stage.name, "prepare": prepare, "before": tuple(before), "parts": parts})
        before += stage.results
    return found


def _prepare_function(builder: Builder, step: ScheduledRows, file: str, before: list[str]) -> str:
    """Return the name of the function that computes what is reduced from an element and the results of earlier
    stages."""
    results = {name: Held(name, DataType.FLOAT32, step.source.sizes) for name in before}
    sources: dict[str, Source] = {"input": step.source, **results}
    body = apply(file, DataType.FLOAT32, step.source.sizes, portable=True, values=(), **sources)
    return builder.apply_function(body, {name: Scalar.F32 for name, _ in body.inputs})
