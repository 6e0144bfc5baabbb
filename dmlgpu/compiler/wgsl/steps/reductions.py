"""Reductions, rows and scans: ``lift``, ``merge`` and ``finish`` under the schedules of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, PlanTensor, RegisterValue, Source, Stage, apply, stage_results
from dmlgpu.compiler.rewrites.sources import nodes
from dmlgpu.compiler.schedule.steps.reductions import (
    ReduceSchedule,
    ScheduledReduce,
    ScheduledRows,
    ScheduledScan,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.expressions import TypedValue
from dmlgpu.compiler.wgsl.types import LANE_NAMES, Scalar, block_of, scalar_of, vector
from dmlgpu.compiler.wgsl.writer import BodyOutput, ShaderWriter, special


def _carried(element: DataType, writer: ShaderWriter, portable: bool) -> tuple[str, str]:
    """Return the conversions of accumulators to types of subgroup operations, and back; empty if they have one."""
    kind = scalar_of(element, writer.target, portable)
    return (f"words_of_{kind}", f"{kind}_of_words") if kind in (Scalar.I64, Scalar.U64) else ("", "")


@special.register
def _reduce(step: ScheduledReduce, writer: ShaderWriter, values: dict[str, Any]) -> str:
    sizes, together = step.source.sizes, step.together or step.output.sizes[-1]
    text = _items_of_row(writer, step) + _reduce_monoid(step, writer) + _epilogue(step, writer)
    values |= {
        "count": sizes[-1] if step.of_partials else math.prod(sizes[axis] for axis in step.axes),
        "together": together,
        "runs": step.output.sizes[-1] // together,
        "carried": _carried(step.element, writer, step.portable),
        "decreasing": dict(step.constants).get("decreasing", False),  # others are of the body alone
    }
    if step.template == "schedules/map":
        text += templates.render(f"schedules/reduce_{step.schedule}", **values)
    return text


def _items_of_row(writer: ShaderWriter, step: ScheduledReduce) -> str:
    """Return the accessor of the reduced source, and ``item``, which enumerates its rows."""
    if step.of_partials:
        scalar = scalar_of(step.element, writer.target, step.portable).wgsl
        text = writer.source("partials", step.source, raw=False, portable=step.portable)
        text += f"alias input_s = {scalar};\n"
        return text + templates.render("schedules/reduce_item_of_partials", partials=step.source)
    text = writer.source("input", step.source, raw=False, portable=step.portable)
    return text + templates.render("schedules/reduce_item", input=step.source, axes=step.axes)


def _reduce_monoid(step: ScheduledReduce, writer: ShaderWriter) -> str:
    """Return the body with ``lift``, ``merge`` and ``finish``, which returns the result of a row."""
    result = step.output.data_type if step.epilogue is None else _held(step.epilogue).data_type
    output = BodyOutput(result, step.portable, step.output.sizes, writer.target)
    values = {**_monoid(step.element, output), **dict(step.constants)}
    renamed = {} if step.epilogue is None else {"output_s": "result_s"}
    with writer.names.renamed(renamed):
        text = templates.render(step.file, at_once=step.group * step.lanes, **values)
        if step.compared:
            text += templates.render(f"{step.file}_unit", lanes=step.lanes, **values)
    return text if step.epilogue is None else f"alias result_s = {output.kind.wgsl};\n{text}"


def _monoid(element: DataType, output: BodyOutput) -> dict[str, Any]:
    """Return the output, and the arguments of ``lift``, ``merge`` and ``finish`` as typed expressions."""
    kind, texts = scalar_of(element, output.target, output.portable), {"input": "value", "a": "a", "b": "b"}
    operands = {name: TypedValue(text, kind, element, output.target) for name, text in texts.items()}
    return {"output": output, **operands}


def _held(epilogue: Body) -> RegisterValue:
    """Return the leaf that represents the result of a row."""
    return next(node for node in nodes(epilogue) if isinstance(node, RegisterValue))


def _epilogue(step: ScheduledReduce, writer: ShaderWriter) -> str:
    """Return the text of the epilogue that computes an output element from the result of a row, if there is one."""
    if step.epilogue is None:
        return ""
    held = _held(step.epilogue)
    with writer.names.within("epilogue_", outer=("output_at", "output_s", "output_t")):
        return writer.element_of(step.epilogue, {held: held.name})


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its index, its accessor, the accumulator into which it is merged, and the suffix of the name of
    its row's result."""

    number: int
    part: str
    state: int
    result: str


def _lanes(count: int, across: bool) -> list[_Lane]:
    """Return the lanes of a unit; adjacent rows or lines have separate accumulators and results."""
    if count == 1:
        return [_Lane(0, "", 0, "")]
    return [
        _Lane(lane, f".{LANE_NAMES[lane]}", lane if across else 0, str(lane) if across else "") for lane in range(count)
    ]


@special.register
def _rows(step: ScheduledRows, writer: ShaderWriter, values: dict[str, Any]) -> str:
    output, is_serial = step.output, step.schedule is ReduceSchedule.SERIAL
    read_once = (*step.fixed, *step.shared)
    text = "".join(writer.load(name, leaf, portable=True) for name, leaf in read_once)
    stored_as_float = scalar_of(output.data_type, writer.target, portable=True) is Scalar.F32
    runs = step.runs if is_serial and not step.counts else ("",) * len(step.stages)
    text += "".join(_stage_monoid(*each, writer, step.counts) for each in zip(step.stages, runs, strict=True))
    results = stage_results(step.stages, output.sizes, step.axes)
    names: dict[PlanTensor | RegisterValue, str] = {step.element: "unit"}
    names |= {held: name for name, held in results.items()}
    names |= {leaf: name for name, leaf in read_once}
    text += writer.element_of(step.body, names)
    values |= {
        "lanes": _lanes(output.lanes, step.across),
        "stages": _stages(writer, step),
        "names": list(results),
        "result_type": "output_t" if stored_as_float else vector(Scalar.F32, output.lanes),
        "fixed": [name for name, _ in step.fixed],
        "shared": [name for name, _ in step.shared],
        "statistics": [f"statistic{index}_put" for index in range(len(step.statistics))],
    }
    return text + "".join(_statistic(index, step, writer, results) for index in range(len(step.statistics)))


def _statistic(index: int, step: ScheduledRows, writer: ShaderWriter, results: dict[str, RegisterValue]) -> str:
    """Return ``statistic<index>_put(at, ...)``, which stores a value of a row, computed from results of the stages."""
    body, output = step.statistics[index]
    with writer.names.within(f"statistic{index}_"):
        text, values = writer.store(output, body.portable)
        text += writer.element_of(body, {result: name for name, result in results.items()})
        kind = vector(Scalar.F32, output.lanes)
        return text + templates.render("schedules/row_statistic", **values, names=list(results), result_type=kind)


def _stage_monoid(stage: Stage, run: str, writer: ShaderWriter, counts: tuple[int, ...]) -> str:
    """Return a stage's functions under its name; those of the shader ``run`` too, if it is not empty.

    Their results are float32 for every type of the rows.
    """
    result = BodyOutput(DataType.FLOAT32, True, (), writer.target)
    files = filter(None, (stage.file, run))
    values = {**_monoid(DataType.FLOAT32, result), "counts": counts, **dict(stage.constants)}
    with writer.names.within(f"{stage.name}_"):
        aliases = "".join(f"alias {stage.name}_{name}_s = {Scalar.F32.wgsl};\n" for name in ("input", "output"))
        return aliases + "".join(templates.render(file, **values) for file in files)


def _stages(writer: ShaderWriter, step: ScheduledRows) -> list[dict[str, Any]]:
    """Return the template values of stages: name, function, results that it reads and results that it writes."""
    stages: list[dict[str, Any]] = []
    before: list[str] = []
    for stage in step.stages:
        prepare = _prepare_function(writer, step, stage.prepare, before) if stage.prepare else ""
        parts = list(zip(stage.parts, LANE_NAMES, strict=False))
        stages.append({"name": stage.name, "prepare": prepare, "before": tuple(before), "parts": parts})
        before += stage.results
    return stages


def _prepare_function(writer: ShaderWriter, step: ScheduledRows, file: str, before: list[str]) -> str:
    """Return the name of the function that computes the reduced value from an element and results of earlier stages."""
    results = {name: RegisterValue(name, DataType.FLOAT32, step.source.sizes) for name in before}
    sources: dict[str, Source] = {"input": step.source, **results}
    body = apply(file, DataType.FLOAT32, step.source.sizes, portable=True, values=(), **sources)
    return writer.apply_function(body, {name: Scalar.F32 for name, _ in body.inputs})


@special.register
def _scan(step: ScheduledScan, writer: ShaderWriter, values: dict[str, Any]) -> str:
    lanes, is_backward = _lanes(step.lanes, step.across), step.scanning.decreasing and not step.across
    values |= {
        "carried": _carried(step.element, writer, step.portable),
        "lanes": lanes[::-1] if is_backward else lanes,  # in the order in which they are merged
        "states": 1 + max(lane.state for lane in lanes),
        "exclusive": step.scanning.exclusive,
        "decreasing": step.scanning.decreasing,
        "block": block_of(step.output.unit_bits),
        **dict(step.constants),
    }
    output = BodyOutput(step.output.data_type, step.portable, (), writer.target)
    text = templates.render(step.scanning.file, **_monoid(step.element, output))
    text += f"alias state_t = array<acc_t, {values['states']}>;\n"
    return text + templates.render(step.advance, **values)
