"""Rows: several reductions of a row and then each of its elements, in one kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.grid import loop_launch, row_launch
from dmlgpu.kernels.rows import apply_to_row
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import ReduceSchedule, Rows, Stage
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.linker import prefix
from dmlgpu.wgsl.steps.step import Rendered, monoid_operands, render_step
from dmlgpu.wgsl.types import LANE_NAMES, Scalar

MOST_HELD = 32
"""Numbers of a row that one invocation keeps in registers."""


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and what follows the name of a result for it."""

    number: int
    part: str
    result: str


@render_step.register
def _rows(step: Rows, builder: Builder, target: Target) -> Rendered:
    source, output = step.source, step.output
    units = math.prod(output.sizes[axis] for axis in step.axes)
    sizes = tuple(1 if axis in step.axes else size for axis, size in enumerate(output.sizes))
    walk = choose_walk(replace(output, sizes=sizes))
    store, values = builder.store(output, words=True)
    text = store + builder.load("input", source, words=True)
    text += "".join(_stage_monoid(stage, target) for stage in step.stages)
    values |= {
        "walk": walk,
        "output": output,
        "axes": step.axes,
        "units": units,
        "across": step.across,
        "lanes": _lanes(output.lanes, step.across),
        "stages": _stages(builder, step),
        "names": [stage.name for stage in step.stages],
        "apply": _row_function(builder, step, step.file, output.data_type, step.stages),
    }
    if step.schedule is ReduceSchedule.SERIAL:
        launch = loop_launch(walk.count, target)
        text += templates.render("schedules/rows_serial", launch=launch, **values)
    else:
        launch = row_launch(walk.count, units, target)
        held = -(-units // launch.workgroup)
        held = held if held * output.lanes <= MOST_HELD else 0
        text += templates.render("schedules/rows_tree", launch=launch, held=held, **values)
    return Rendered(text, launch, (output, source), output.lanes)


def _lanes(count: int, across: bool) -> list[_Lane]:
    """The lanes of a unit; neighbouring rows have results of their own."""
    if count == 1:
        return [_Lane(0, "", "")]
    return [_Lane(lane, f".{LANE_NAMES[lane]}", str(lane) if across else "") for lane in range(count)]


def _stage_monoid(stage: Stage, target: Target) -> str:
    """A stage's ``lift``, ``merge`` and ``finish`` under its name."""
    operands = monoid_operands(Scalar.F32, DataType.FLOAT32, target)
    result = Result(DataType.FLOAT32, Scalar.F32, True, (), target)
    return prefix(templates.render(stage.file, output=result, **operands), f"{stage.name}_")


def _stages(builder: Builder, step: Rows) -> list[dict[str, Any]]:
    """What the schedules know of the stages: a name, a function, the results that this function takes."""
    found = []
    for number, stage in enumerate(step.stages):
        before = step.stages[:number]
        prepare = _row_function(builder, step, stage.prepare, DataType.FLOAT32, before) if stage.prepare else ""
        found.append({"name": stage.name, "prepare": prepare, "before": [earlier.name for earlier in before]})
    return found


def _row_function(builder: Builder, step: Rows, file: str, data_type: DataType, before: tuple[Stage, ...]) -> str:
    """The name of the function that computes an element from itself and the results of stages."""
    results = {stage.name: replace(step.source, data_type=DataType.FLOAT32) for stage in before}
    body = apply_to_row(file, data_type, step.source, results)
    return builder.apply_function(body, {name: Scalar.F32 for name, _ in body.inputs})
