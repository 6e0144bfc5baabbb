"""Upsample: whole units between the elements of a unit and their neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from dmlgpu.compiler.plan import Tensor, View
from dmlgpu.compiler.schedule.steps import Pattern, ScheduledUpsample, Tap
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.expressions import f32_literal
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import LANE_NAMES, raw_lane, raw_unit


@render_step.register
def _upsample(step: ScheduledUpsample, builder: Builder) -> str:
    store, values = builder.store(step.output, portable=True)
    text = store + builder.load("units", step.units, portable=True) + builder.load("source", step.source, portable=True)
    return text + templates.render(
        "schedules/upsample",
        walk=step.walk,
        launch=step.launch,
        columns=step.columns,
        rows=step.rows,
        lanes=step.output.lanes,
        is_raw=step.units.view is View.RAW,
        across=_units(step.columns, step.units),
        down=_rows(step.rows),
        **values,
    )


def _units(pattern: Pattern, units: Tensor) -> list[str]:
    """Return the units that lie between the elements of a unit and their neighbours."""
    bits, is_raw = units.data_type.bits, units.view is View.RAW
    middle = [
        raw_lane("middle", n, bits, units.unit_bits) if is_raw else f"middle.{LANE_NAMES[n]}"
        for n in range(units.lanes)
    ]
    names = ["left", *middle, "right"]
    numbers = (divmod(number, pattern.factor) for number in range(units.lanes * pattern.factor))
    elements = [_between(pattern.taps[tap], names[element : element + 3]) for element, tap in numbers]
    runs = [elements[first : first + units.lanes] for first in range(0, len(elements), units.lanes)]
    return [raw_unit(run, bits) if is_raw else f"vec4<f32>({', '.join(run)})" for run in runs]


def _rows(pattern: Pattern | None) -> list[str]:
    """Return what becomes of a unit of every row that lies between a row and its neighbours."""
    taps = (Tap(0, 0.0),) if pattern is None else pattern.taps
    return [_between(tap, [f"row{row}[unit]" for row in range(3)]) for tap in taps]


def _between(tap: Tap, names: Sequence[str]) -> str:
    """Return the expression of an output element; the names are those of the input element before, its own, the one
    behind."""
    low = names[1 + tap.low]
    if not tap.share:
        return low
    return f"{f32_literal(1 - tap.share)} * {low} + {f32_literal(tap.share)} * {names[2 + tap.low]}"
