"""Reductions, rows and scans: ``lift``, ``merge`` and ``finish`` under the schedules of each."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, PlanTensor, RegisterValue, Source, Stage, apply, stage_results
from dmlgpu.compiler.rewrites.sources import nodes
from dmlgpu.compiler.schedule.launch import Launch
from dmlgpu.compiler.schedule.steps.reductions import (
    ReduceSchedule,
    ScanSchedule,
    ScheduledReduce,
    ScheduledRows,
    ScheduledScan,
)
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.types import LANE_NAMES, Scalar, block_of, scalar_of, vector
from dmlgpu.compiler.wgsl.writer import BodyOutput, ShaderWriter, monoid_operands, render_step

_CARRIED = {Scalar.I64: ("words_of_i64", "i64_of_words"), Scalar.U64: ("words_of_u64", "u64_of_words")}
"""Conversions of accumulators to types of subgroup operations, and back, by type."""


def combining(launch: Launch, accumulator: Scalar = Scalar.F32) -> dict[str, Any]:
    """Return the template values for combining accumulators of a workgroup, whose type is known if they are one
    number."""
    return {"subgroup": launch.subgroup, "carried": _CARRIED.get(accumulator, ("", ""))}


@render_step.register
def _reduce(step: ScheduledReduce, writer: ShaderWriter) -> str:
    sizes, results = step.source.sizes, step.output.sizes[-1]
    together = step.together or results
    portable = step.portable if step.epilogue is None else step.epilogue.portable
    store, values = writer.store(step.output, portable, atomic=step.walk.exchange)
    text = store + _items_of_row(writer, step) + _reduce_monoid(step, writer) + _epilogue(step, writer)
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
        "ahead": step.ahead,
        "walks_in_loop": step.walks_in_loop,
        "decreasing": dict(step.constants).get("decreasing", False),
        "walk": step.walk,
        "launch": step.launch,
        **combining(step.launch, scalar_of(step.element, writer.target, portable=step.portable)),
        "finished": functools.partial(_finished, step.epilogue is not None),
    }
    if step.across is not None:
        values |= {
            "partial": step.schedule is ReduceSchedule.PARTIAL,
            "dimension": step.across,
            "places": [f"place{index}" for index in range(step.width)],
            "size": sizes[step.across],
            "ragged": sizes[step.across] % step.width != 0,
        }
        return text + templates.render("schedules/reduce_across", **values)
    if step.schedule is ReduceSchedule.TREE:
        return text + templates.render("schedules/reduce_tree", **values)
    text += templates.render(f"schedules/reduce_{step.schedule}", **values)
    return text + templates.render("schedules/map", **values)


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
    target, portable = writer.target, step.portable
    result = step.output.data_type if step.epilogue is None else _held(step.epilogue).data_type
    kind, output_kind = (scalar_of(data_type, target, portable) for data_type in (step.element, result))
    output = BodyOutput(result, output_kind, portable, step.output.sizes, target)
    operands = monoid_operands(kind, step.element, target)
    values = {**operands, **dict(step.constants)}
    renamed = {} if step.epilogue is None else {"output_s": "result_s"}
    with writer.names.renamed(renamed):
        text = templates.render(step.file, output=output, at_once=step.group * step.lanes, **values)
        if step.compared:
            text += templates.render(f"{step.file}_unit", lanes=step.lanes, **values)
    return text if step.epilogue is None else f"alias result_s = {output_kind.wgsl};\n{text}"


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


def _finished(has_epilogue: bool, accumulator: str, place: str) -> str:
    """Return the expression of the result at an index."""
    result = f"finish({accumulator})"
    return f"epilogue_element({place}, {result})" if has_epilogue else result


@dataclass(frozen=True)
class _RowLane:
    """A lane of a unit: its index, its accessor, and the suffix of its result's name."""

    number: int
    part: str
    result: str


@render_step.register
def _rows(step: ScheduledRows, writer: ShaderWriter) -> str:
    output, is_serial = step.output, step.schedule is ReduceSchedule.SERIAL
    read_once = (*step.fixed, *step.shared)
    text, values = writer.store(output, portable=True)
    text += writer.source("input", step.source, raw=False, portable=True)
    text += "".join(writer.load(name, leaf, portable=True) for name, leaf in read_once)
    stored_as_float = scalar_of(output.data_type, writer.target, portable=True) is Scalar.F32
    counts = step.counts
    runs = step.runs if is_serial and not counts else ("",) * len(step.stages)
    text += "".join(_stage_monoid(stage, run, writer, counts) for stage, run in zip(step.stages, runs, strict=True))
    results = stage_results(step.stages, output.sizes, step.axes)
    names: dict[PlanTensor | RegisterValue, str] = {step.element: "unit"}
    names |= {held: name for name, held in results.items()}
    names |= {leaf: name for name, leaf in read_once}
    text += writer.element_of(step.body, names)
    values |= {
        "walk": step.walk,
        "launch": step.launch,
        **combining(step.launch),
        "held": step.held,
        "output": output,
        "axes": step.axes,
        "units": step.units,
        "across": step.across,
        "lanes": _row_lanes(output.lanes, step.across),
        "stages": _stages(writer, step),
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


def _row_lanes(count: int, across: bool) -> list[_RowLane]:
    """Return the lanes of a unit; adjacent rows have separate results."""
    if count == 1:
        return [_RowLane(0, "", "")]
    return [_RowLane(lane, f".{LANE_NAMES[lane]}", str(lane) if across else "") for lane in range(count)]


def _stage_monoid(stage: Stage, run: str, writer: ShaderWriter, counts: tuple[int, ...]) -> str:
    """Return a stage's functions under its name; those of the shader ``run`` too, if it is not empty.

    Their results are float32 for every type of the rows.
    """
    operands = monoid_operands(Scalar.F32, DataType.FLOAT32, writer.target)
    result = BodyOutput(DataType.FLOAT32, Scalar.F32, True, (), writer.target)
    files = filter(None, (stage.file, run))
    values = {"output": result, "counts": counts, **operands, **dict(stage.constants)}
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


@dataclass(frozen=True)
class _ScanLane:
    """A lane of a unit: its index, its accessor, and the accumulator into which it is merged."""

    number: int
    part: str
    state: int


@render_step.register
def _scan(step: ScheduledScan, writer: ShaderWriter) -> str:
    portable, output, lanes = step.scanning.portable, step.output, _scan_lanes(step)
    store, values = writer.store(output, portable, atomic=output.unit_bits < 32)
    text = store + writer.source("input", step.source, raw=False, portable=portable)
    text += "" if step.starts is None else writer.load("starts", step.starts, portable)
    values |= {
        "launch": step.launch,
        **combining(step.launch, scalar_of(step.element, writer.target, portable=portable)),
        "walk": step.walk,
        "source": step.source,
        "output": output,
        "axes": step.axes,
        "lines": step.lines,
        "units": step.units,
        "length": step.length,
        "held": step.held,
        "blocks": step.blocks,
        "lanes": lanes,
        "states": 1 + max(lane.state for lane in lanes),
        "starts": step.starts,
        "exclusive": step.scanning.exclusive,
        "decreasing": step.scanning.decreasing,
        "of_totals": step.of_totals,
        "total": step.is_total,
        "paired": step.paired,
        "block": block_of(output.unit_bits),
        **dict(step.constants),
    }
    text += _scan_monoid(step, writer) + f"alias state_t = array<acc_t, {values['states']}>;\n"
    return (
        text
        + templates.render(step.advance, **values)
        + templates.render(
            f"schedules/scan_{step.schedule}{'_total' if step.is_total and step.schedule is ScanSchedule.TREE else ''}",
            **values,
        )
    )


def _scan_lanes(step: ScheduledScan) -> list[_ScanLane]:
    """Return the lanes of a unit in the order in which they are merged; adjacent lines have separate accumulators."""
    if step.lanes == 1:
        return [_ScanLane(0, "", 0)]
    lanes = [_ScanLane(lane, f".{LANE_NAMES[lane]}", lane if step.across else 0) for lane in range(step.lanes)]
    return lanes[::-1] if step.scanning.decreasing and not step.across else lanes


def _scan_monoid(step: ScheduledScan, writer: ShaderWriter) -> str:
    """Return the body with ``start``, ``lift``, ``merge`` and ``finish``."""
    target, portable = writer.target, step.scanning.portable
    kind, output_kind = (scalar_of(data_type, target, portable) for data_type in (step.element, step.output.data_type))
    output = BodyOutput(step.output.data_type, output_kind, portable, (), target)
    return templates.render(step.scanning.file, output=output, **monoid_operands(kind, step.element, target))
