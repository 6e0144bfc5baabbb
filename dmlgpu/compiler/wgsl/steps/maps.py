"""Copies by words, runs, copies in registers, resampling and tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmlgpu.compiler.plan import Body, PlanTensor, View
from dmlgpu.compiler.rewrites.packing import is_paired
from dmlgpu.compiler.schedule.steps.maps import (
    Pattern,
    ScheduledDownsample,
    ScheduledInterleave,
    ScheduledMap,
    ScheduledRuns,
    ScheduledTranspose,
    ScheduledUpsample,
    ScheduledWordRows,
    Tap,
)
from dmlgpu.compiler.schedule.steps.products import ScheduledTiles
from dmlgpu.compiler.wgsl.expressions import f32_literal
from dmlgpu.compiler.wgsl.types import LANE_NAMES, raw_lane, raw_unit, scalar_of
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special


@special.register
def _map(step: ScheduledMap, writer: ShaderWriter, values: dict[str, Any]) -> str:
    if step.run is None:
        return ""
    values |= {"size": step.output.sizes[step.run], "total": step.walk.items(step.output)}
    return writer.words("input", _copied(step.body), 1, step.words)


@special.register
def _word_rows(step: ScheduledWordRows, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values["size"] = step.output.sizes[step.run]
    if not step.wide:
        return writer.words("input", _copied(step.body), 1, step.words)
    values |= _ends(step.first, values["size"], 4 * step.words)
    return writer.doubles("input", _copied(step.body))


def _copied(body: Body) -> PlanTensor:
    """Return the tensor in memory that a body copies."""
    (source,) = body.children
    assert isinstance(source, PlanTensor)
    return source


def _ends(first: int, size: int, width: int) -> dict[str, Any]:
    """Return the ``width`` of a block in bytes, and masks of the bits of the first and of the last block that belong to
    a row that begins with the byte ``first``, each as two integers of half a block."""
    every, half = (1 << 8 * width) - 1, 1 << 4 * width
    begin = every >> 8 * first << 8 * first
    end = every >> 8 * (-(first + size) % width)
    return {"width": width, "begin": (begin % half, begin // half), "end": (end % half, end // half)}


@special.register
def _runs(step: ScheduledRuns, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values |= {"units": step.output.sizes[step.axis], "fixed": [name for name, _ in step.fixed]}
    text = "".join(writer.load(name, leaf, portable=True) for name, leaf in step.fixed)
    return text + writer.element_of(step.body, {leaf: name for name, leaf in step.fixed})


@special.register
def _transpose(step: ScheduledTranspose, writer: ShaderWriter, values: dict[str, Any]) -> str:
    bits, lanes = step.output.data_type.bits, range(step.lanes)
    values["columns"] = [
        raw_unit([raw_lane(f"row{row}", column, bits, step.output.unit_bits) for row in lanes], bits)
        for column in lanes
    ]
    return ""


@special.register
def _interleave(step: ScheduledInterleave, writer: ShaderWriter, values: dict[str, Any]) -> str:
    bits, unit_bits, lanes, count = step.output.data_type.bits, step.output.unit_bits, step.output.lanes, step.count
    planes, places = range(count), range(lanes)
    if step.splits:  # indices of the elements that are read, in the order in which they are written
        order = [count * place + plane for plane in planes for place in places]
    else:
        order = [lanes * plane + place for place in places for plane in planes]
    elements = [raw_lane(f"unit{index // lanes}", index % lanes, bits, unit_bits) for index in order]
    values["results"] = [raw_unit(elements[first : first + lanes], bits) for first in range(0, count * lanes, lanes)]
    return ""


@special.register
def _upsample(step: ScheduledUpsample, writer: ShaderWriter, values: dict[str, Any]) -> str:
    values |= {
        "is_raw": step.units.view is View.RAW,
        "across": _upsampled_units(step.columns, step.units),
        "down": _upsampled_rows(step.rows),
    }
    return ""


def _upsampled_units(pattern: Pattern, units: PlanTensor) -> list[str]:
    """Return the output units interpolated between the elements of a unit and the adjacent ones."""
    bits, is_raw = units.data_type.bits, units.view is View.RAW
    middle = [
        raw_lane("middle", n, bits, units.unit_bits) if is_raw else f"middle.{LANE_NAMES[n]}"
        for n in range(units.lanes)
    ]
    names = ["left", *middle, "right"]
    places = (divmod(index, pattern.factor) for index in range(units.lanes * pattern.factor))
    elements = [_between(pattern.taps[tap], names[element : element + 3]) for element, tap in places]
    runs = [elements[first : first + units.lanes] for first in range(0, len(elements), units.lanes)]
    return [raw_unit(run, bits) if is_raw else f"vec4<f32>({', '.join(run)})" for run in runs]


def _upsampled_rows(pattern: Pattern | None) -> list[str]:
    """Return the expression of a unit for every output row interpolated between a row and the adjacent ones."""
    taps = (Tap(0, 0.0),) if pattern is None else pattern.taps
    return [_between(tap, [f"row{row}[unit]" for row in range(3)]) for tap in taps]


def _between(tap: Tap, names: Sequence[str]) -> str:
    """Return the expression of an output element; the names are those of the previous, the own and the next input
    element."""
    low = names[1 + tap.low]
    if not tap.share:
        return low
    return f"{f32_literal(1 - tap.share)} * {low} + {f32_literal(tap.share)} * {names[2 + tap.low]}"


@special.register
def _downsample(step: ScheduledDownsample, writer: ShaderWriter, values: dict[str, Any]) -> str:
    stencil, lanes = step.stencil, step.output.lanes
    taps_of = [stencil.taps(index) for index in range(lanes if step.is_along else step.rows)]
    places = range(taps_of[0][0], taps_of[-1][-1] + 1)
    whole = range(lanes * stencil.step) if step.is_along else range(0)
    single = [place for place in places if place not in whole]
    names = {place: f"near{place - places[0]}" for place in single}
    names |= {place: f"unit{place // lanes}.{LANE_NAMES[place % lanes]}" for place in whole}
    sums = [_weighted_sum(taps, stencil.weights, names) for taps in taps_of]
    values |= {
        "advance": len(taps_of) * stencil.step,
        "count": step.output.sizes[stencil.dimension],
        "near": {names[place]: place for place in single},
        "sums": [f"vec{lanes}<f32>({', '.join(sums)})"] if step.is_along else sums,
    }
    return writer.load("source", step.source, portable=True) if step.is_along else ""


def _weighted_sum(taps: Sequence[int], weights: Sequence[float], names: Mapping[int, str]) -> str:
    return " + ".join(f"{f32_literal(weight)} * {names[tap]}" for tap, weight in zip(taps, weights, strict=True))


@special.register
def _tiles(step: ScheduledTiles, writer: ShaderWriter, values: dict[str, Any]) -> str:
    held = [(f"held{index}", tensor) for index, tensor in enumerate(step.held)]
    kind = scalar_of(step.body.data_type, writer.target, portable=True)
    values |= {"tile_s": kind.wgsl, "paired": is_paired(step.output), "held": [name for name, _ in held]}
    loads = "".join(writer.load(name, tensor, portable=True) for name, tensor in held)
    finish = writer.epilogue(step.epilogue, step.body.data_type, arguments={tensor: name for name, tensor in held})
    return writer.body(step.body) + loads + finish
