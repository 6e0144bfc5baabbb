"""Maps, and special kernels of copies, gathers, long runs, resampling and tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import PlanTensor, View
from dmlgpu.compiler.rewrites.packing import is_paired
from dmlgpu.compiler.schedule.steps.maps import (
    Pattern,
    ScheduledBlocks,
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
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.expressions import f32_literal
from dmlgpu.compiler.wgsl.types import LANE_NAMES, raw_lane, raw_unit, scalar_of
from dmlgpu.compiler.wgsl.writer import ShaderWriter, render_step


@render_step.register
def _map(step: ScheduledMap, writer: ShaderWriter) -> str:
    store, values = writer.store(step.output, step.body.portable, atomic=step.walk.exchange)
    values |= {"walk": step.walk, "launch": step.launch, "costly": step.costly}
    text = store + writer.body(step.body)
    if step.run is None:
        return text + templates.render("schedules/map", **values)
    (source,) = step.body.children
    assert isinstance(source, PlanTensor)
    values |= {"run": step.run, "size": step.output.sizes[step.run], "words": step.words}
    values["total"] = step.walk.items(step.output)
    return text + writer.words("input", source, 1, step.words) + templates.render("schedules/map_words", **values)


@render_step.register
def _word_rows(step: ScheduledWordRows, writer: ShaderWriter) -> str:
    (source,) = step.body.children
    assert isinstance(source, PlanTensor)
    options = {"walk": step.walk, "launch": step.launch, "run": step.run, "first": step.first}
    options["size"] = step.output.sizes[step.run]
    if step.wide:
        store, values = writer.wide_store(step.output)
        text = store + writer.doubles("input", source)
        options |= _ends(step.first, step.output.sizes[step.run], 4 * step.words)
        return text + templates.render("schedules/map_wide_rows", **options, **values)
    store, values = writer.store(step.output)
    text = store + writer.body(step.body) + writer.words("input", source, 1, step.words)
    options |= {"words": step.words, "keeps_neighbors": step.keeps_neighbors}
    return text + templates.render("schedules/map_rows", **options, **values)


def _ends(first: int, size: int, width: int) -> dict[str, Any]:
    """Return the ``width`` of a block in bytes, and masks of the bits of the first and of the last block that belong to
    a row that begins with the byte ``first``, each as two integers of half a block."""
    every, half = (1 << 8 * width) - 1, 1 << 4 * width
    begin = every >> 8 * first << 8 * first
    end = every >> 8 * (-(first + size) % width)
    return {"width": width, "begin": (begin % half, begin // half), "end": (end % half, end // half)}


@render_step.register
def _blocks(step: ScheduledBlocks, writer: ShaderWriter) -> str:
    units = step.output.sizes[step.dimension]
    store, values = writer.store(step.output)
    values |= {"blocks": step, "units": units, "walk": step.walk, "launch": step.launch}
    return store + writer.body(step.body) + templates.render("schedules/map_blocks", **values)


@render_step.register
def _runs(step: ScheduledRuns, writer: ShaderWriter) -> str:
    body, output = step.body, step.output
    text, values = writer.store(output, body.portable)
    text += "".join(writer.load(name, leaf, portable=True) for name, leaf in step.fixed)
    text += writer.element_of(body, {leaf: name for name, leaf in step.fixed})
    values |= {"axis": step.axis, "units": output.sizes[step.axis], "fixed": [name for name, _ in step.fixed]}
    return text + templates.render("schedules/map_runs", walk=step.walk, launch=step.launch, **values)


@render_step.register
def _transpose(step: ScheduledTranspose, writer: ShaderWriter) -> str:
    output, bits, lanes = step.output, step.output.data_type.bits, step.output.lanes
    store, values = writer.store(output)
    columns = [
        raw_unit([raw_lane(f"row{row}", column, bits, output.unit_bits) for row in range(lanes)], bits)
        for column in range(lanes)
    ]
    text = store + writer.load("input", step.source)
    return text + templates.render("schedules/transpose", transpose=step, columns=columns, launch=step.launch, **values)


@render_step.register
def _interleave(step: ScheduledInterleave, writer: ShaderWriter) -> str:
    bits, unit_bits, lanes, count = step.output.data_type.bits, step.output.unit_bits, step.output.lanes, step.count
    planes, places = range(count), range(lanes)
    if step.splits:  # indices of the elements that are read, in the order in which they are written
        order = [count * place + plane for plane in planes for place in places]
    else:
        order = [lanes * plane + place for place in places for plane in planes]
    elements = [raw_lane(f"unit{index // lanes}", index % lanes, bits, unit_bits) for index in order]
    results = [raw_unit(elements[first : first + lanes], bits) for first in range(0, count * lanes, lanes)]
    store, values = writer.store(step.output)
    values |= {"copy": step, "results": results, "walk": step.walk, "launch": step.launch}
    return store + writer.load("input", step.source) + templates.render("schedules/map_interleave", **values)


@render_step.register
def _upsample(step: ScheduledUpsample, writer: ShaderWriter) -> str:
    store, values = writer.store(step.output, portable=True)
    text = store + writer.load("units", step.units, portable=True) + writer.load("source", step.source, portable=True)
    return text + templates.render(
        "schedules/upsample",
        walk=step.walk,
        launch=step.launch,
        columns=step.columns,
        rows=step.rows,
        split=step.split,
        lanes=step.output.lanes,
        is_raw=step.units.view is View.RAW,
        across=_upsampled_units(step.columns, step.units),
        down=_upsampled_rows(step.rows),
        **values,
    )


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


@render_step.register
def _downsample(step: ScheduledDownsample, writer: ShaderWriter) -> str:
    stencil, lanes = step.stencil, step.output.lanes
    is_along = step.is_along
    taps_of = [stencil.taps(index) for index in range(lanes if is_along else step.rows)]
    places = range(taps_of[0][0], taps_of[-1][-1] + 1)
    whole = range(lanes * stencil.step) if is_along else range(0)
    single = [place for place in places if place not in whole]
    names = {place: f"near{place - places[0]}" for place in single}
    names |= {place: f"unit{place // lanes}.{LANE_NAMES[place % lanes]}" for place in whole}
    sums = [_weighted_sum(taps, stencil.weights, names) for taps in taps_of]
    store, values = writer.store(step.output, portable=True)
    text = store + writer.load("units", step.units, portable=True)
    if is_along:
        text += writer.load("source", step.source, portable=True)
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


def _weighted_sum(taps: Sequence[int], weights: Sequence[float], names: Mapping[int, str]) -> str:
    return " + ".join(f"{f32_literal(weight)} * {names[tap]}" for tap, weight in zip(taps, weights, strict=True))


@render_step.register
def _tiles(step: ScheduledTiles, writer: ShaderWriter) -> str:
    output = step.output
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    values |= {
        "tile_s": scalar_of(step.body.data_type, writer.target, portable=True).wgsl,
        "step": step,
        "lanes": output.lanes,
        "paired": is_paired(output),
        "walk": step.walk,
        "launch": step.launch,
    }
    held = [(f"held{index}", tensor) for index, tensor in enumerate(step.held)]
    loads = "".join(writer.load(name, tensor, portable=True) for name, tensor in held)
    finish = writer.epilogue(step.epilogue, step.body.data_type, arguments={tensor: name for name, tensor in held})
    text = store + writer.body(step.body) + loads + finish
    return text + templates.render("schedules/tiles", held=[name for name, _ in held], **values)
