"""Rows: several reductions of a row and then each of its elements, in one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.grid import loop_launch, row_launch
from dmlgpu.kernels.rows import apply_to_row, row_sizes
from dmlgpu.kernels.runs import fixed_leaves
from dmlgpu.kernels.sources import leaves
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import Held, ReduceSchedule, Rows, Stage, Tensor
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.linker import prefix
from dmlgpu.wgsl.steps.step import Rendered, monoid_operands, render_step
from dmlgpu.wgsl.types import LANE_NAMES, Scalar

MOST_HELD = 32
"""Numbers of a row that one invocation keeps in registers."""

TILE = 32
"""Units that one invocation merges before it merges their sum into that of the row."""


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and what follows the name of a result for it."""

    number: int
    part: str
    result: str


@render_step.register
def _rows(step: Rows, builder: Builder, target: Target) -> Rendered:
    output = step.output
    units = math.prod(output.sizes[axis] for axis in step.axes)
    walk = choose_walk(replace(output, sizes=row_sizes(output.sizes, step.axes)))
    fixed = [(name, leaf) for name, leaf in fixed_leaves(step.body, step.axes) if leaf != step.source]
    text, values = _functions(step, fixed, builder, target)
    values |= {
        "walk": walk,
        "output": output,
        "axes": step.axes,
        "units": units,
        "across": step.across,
        "lanes": _lanes(output.lanes, step.across),
        "stages": _stages(builder, step),
        "names": [name for name, _ in step.results],
        "tile": TILE,
        "fixed": [name for name, _ in fixed],
    }
    if step.schedule is ReduceSchedule.SERIAL:
        launch = loop_launch(walk.count, target)
        text += templates.render("schedules/rows_serial", launch=launch, **values)
    else:
        launch = row_launch(walk.count, units, target)
        held = -(-units // launch.workgroup)
        held = held if held * output.lanes <= MOST_HELD else 0
        text += templates.render("schedules/rows_tree", launch=launch, held=held, **values)
    tensors = (leaf for leaf in leaves(step.body))
    return Rendered(text, launch, (output, step.source, *tensors), output.lanes)


def _functions(
    step: Rows, fixed: Iterable[tuple[str, Tensor]], builder: Builder, target: Target
) -> tuple[str, dict[str, Any]]:
    """The accessors, the stages' functions and ``element``; and the template values for the output."""
    text, values = builder.store(step.output, portable=True)
    text += builder.load("input", step.source, portable=True)
    text += "".join(builder.load(name, leaf, portable=True) for name, leaf in fixed)
    in_turn = step.schedule is ReduceSchedule.SERIAL
    text += "".join(_stage_monoid(stage, target, in_turn=in_turn) for stage in step.stages)
    given: dict[Tensor | Held, str] = {step.source: "unit"}
    given |= {held: name for name, held in step.results}
    given |= {leaf: name for name, leaf in fixed}
    return text + builder.element_of(step.body, given), values


def _lanes(count: int, across: bool) -> list[_Lane]:
    """The lanes of a unit; neighbouring rows have results of their own."""
    if count == 1:
        return [_Lane(0, "", "")]
    return [_Lane(lane, f".{LANE_NAMES[lane]}", str(lane) if across else "") for lane in range(count)]


def _stage_monoid(stage: Stage, target: Target, *, in_turn: bool) -> str:
    """A stage's functions under its name; those of a run too, where an invocation takes numbers in turn."""
    operands = monoid_operands(Scalar.F32, DataType.FLOAT32, target)
    result = Result(DataType.FLOAT32, Scalar.F32, True, (), target)
    files = (stage.file, stage.run) if in_turn else (stage.file,)
    given = {"output": result, **operands, **dict(stage.constants)}
    text = "".join(templates.render(file, **given) for file in files)
    return prefix(text, f"{stage.name}_")


def _stages(builder: Builder, step: Rows) -> list[dict[str, Any]]:
    """What the schedules know of the stages: a name, a function, the results that it takes and those that it gives."""
    found: list[dict[str, Any]] = []
    before: list[str] = []
    for stage in step.stages:
        prepare = _prepare_function(builder, step, stage.prepare, before) if stage.prepare else ""
        parts = list(zip(stage.parts, LANE_NAMES, strict=False))
        found.append({"name": stage.name, "prepare": prepare, "before": tuple(before), "parts": parts})
        before += stage.results
    return found


def _prepare_function(builder: Builder, step: Rows, file: str, before: list[str]) -> str:
    """The name of the function that computes what is reduced from an element and the results of earlier stages."""
    results = {name: replace(step.source, data_type=DataType.FLOAT32) for name in before}
    body = apply_to_row(file, DataType.FLOAT32, {"input": step.source, **results})
    return builder.apply_function(body, {name: Scalar.F32 for name, _ in body.inputs})
