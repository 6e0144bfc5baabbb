"""Downsample: weighted sums of neighbours, in whole units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlgpu.compiler.schedule.steps import ScheduledDownsample
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.expressions import f32_literal
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import LANE_NAMES


@render_step.register
def _downsample(step: ScheduledDownsample, builder: Builder) -> str:
    stencil, lanes = step.stencil, step.output.lanes
    is_along = step.is_along
    taps_of = [stencil.taps(number) for number in range(lanes if is_along else step.rows)]
    places = range(taps_of[0][0], taps_of[-1][-1] + 1)
    whole = range(lanes * stencil.step) if is_along else range(0)
    single = [place for place in places if place not in whole]
    names = {place: f"near{place - places[0]}" for place in single}
    names |= {place: f"unit{place // lanes}.{LANE_NAMES[place % lanes]}" for place in whole}
    sums = [_sum(taps, stencil.weights, names) for taps in taps_of]
    store, values = builder.store(step.output, portable=True)
    text = store + builder.load("units", step.units, portable=True)
    if is_along:
        text += builder.load("source", step.source, portable=True)
        sums = [f"vec{lanes}<f32>({', '.join(sums)})"]
    return text + templates.render(
        "schedules/downsample",
        walk=step.walk,
        launch=step.launch,
        stencil=stencil,
        advance=len(taps_of) * stencil.step,
        rows=step.rows,
        count=step.output.sizes[stencil.dimension],
        lanes=lanes,
        is_along=is_along,
        near={names[place]: place for place in single},
        sums=sums,
        **values,
    )


def _sum(taps: Sequence[int], weights: Sequence[float], names: Mapping[int, str]) -> str:
    return " + ".join(f"{f32_literal(weight)} * {names[tap]}" for tap, weight in zip(taps, weights, strict=True))
