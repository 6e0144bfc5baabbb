"""Rows: several reductions of a row and then each of its elements, in one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import RegisterValue, Source, Stage, Tensor, apply, stage_results
from dmlgpu.compiler.schedule.steps import ReduceSchedule, ScheduledRows
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder, Result
from dmlgpu.compiler.wgsl.linker import prefix
from dmlgpu.compiler.wgsl.steps.step import monoid_operands, render_step
from dmlgpu.compiler.wgsl.types import LANE_NAMES, Scalar, scalar_of, vector


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and what follows the name of a result for it."""

    number: int
    part: str
    result: str


@render_step.register
def _rows(step: ScheduledRows, builder: Builder) -> str:
    output, is_serial = step.output, step.schedule is ReduceSchedule.SERIAL
    read_once = (*step.fixed, *step.shared)
    text, values = builder.store(output, portable=True)
    text += builder.source("input", step.source, raw=False, portable=True)
    text += "".join(builder.load(name, leaf, portable=True) for name, leaf in read_once)
    stored_as_float = scalar_of(output.data_type, builder.target, portable=True) is Scalar.F32
    counts = step.counts
    runs = step.runs if is_serial and not counts else ("",) * len(step.stages)
    text += "".join(
        _stage_monoid(stage, run, builder.target, counts, stored_as_float=stored_as_float)
        for stage, run in zip(step.stages, runs, strict=True)
    )
    results = stage_results(step.stages, output.sizes, step.axes)
    names: dict[Tensor | RegisterValue, str] = {step.element: "unit"}
    names |= {held: name for name, held in results.items()}
    names |= {leaf: name for name, leaf in read_once}
    text += builder.element_of(step.body, names)
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
        "tile": step.tile,
        "group": step.group,
        "counts": counts,
        "fixed": [name for name, _ in step.fixed],
        "shared": [name for name, _ in step.shared],
        "together": step.together,
        "beside": step.together,
        "groups": step.groups,
    }
    return text + templates.render(f"schedules/rows_{step.schedule}", **values)


def _lanes(count: int, across: bool) -> list[_Lane]:
    """Return the lanes of a unit; neighbouring rows have results of their own."""
    if count == 1:
        return [_Lane(0, "", "")]
    return [_Lane(lane, f".{LANE_NAMES[lane]}", str(lane) if across else "") for lane in range(count)]


def _stage_monoid(stage: Stage, run: str, target: Target, counts: tuple[int, ...], *, stored_as_float: bool) -> str:
    """Return a stage's functions under its name; those of the shader ``run`` too, if it is named.

    Their results are float32, whatever the rows are stored as.
    """
    operands = monoid_operands(Scalar.F32, DataType.FLOAT32, target)
    result = Result(DataType.FLOAT32, Scalar.F32, True, (), target)
    files = filter(None, (stage.file, run))
    values = {"output": result, "counts": counts, **operands, **dict(stage.constants)}
    text = "" if stored_as_float else f"alias output_s = {Scalar.F32.wgsl};\n"
    text += "".join(templates.render(file, **values) for file in files)
    return prefix(text, f"{stage.name}_")


def _stages(builder: Builder, step: ScheduledRows) -> list[dict[str, Any]]:
    """Return what the schedules know of the stages: a name, a function, the results that it takes and those that it
    gives."""
    stages: list[dict[str, Any]] = []
    before: list[str] = []
    for stage in step.stages:
        prepare = _prepare_function(builder, step, stage.prepare, before) if stage.prepare else ""
        parts = list(zip(stage.parts, LANE_NAMES, strict=False))
        stages.append({"name": stage.name, "prepare": prepare, "before": tuple(before), "parts": parts})
        before += stage.results
    return stages


def _prepare_function(builder: Builder, step: ScheduledRows, file: str, before: list[str]) -> str:
    """Return the name of the function that computes what is reduced from an element and the results of earlier
    stages."""
    results = {name: RegisterValue(name, DataType.FLOAT32, step.source.sizes) for name in before}
    sources: dict[str, Source] = {"input": step.source, **results}
    body = apply(file, DataType.FLOAT32, step.source.sizes, portable=True, values=(), **sources)
    return builder.apply_function(body, {name: Scalar.F32 for name, _ in body.inputs})
