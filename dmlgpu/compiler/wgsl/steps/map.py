"""Maps, and what copies, gathers and long runs become instead."""

from __future__ import annotations

from typing import Any

from dmlgpu.compiler.plan import Tensor
from dmlgpu.compiler.schedule.steps import ScheduledMap, ScheduledRuns, ScheduledTranspose, ScheduledWordRows
from dmlgpu.compiler.schedule.steps.maps import ScheduledBlocks
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import raw_lane, raw_unit


@render_step.register
def _map(step: ScheduledMap, builder: Builder) -> str:
    store, values = builder.store(step.output, step.body.portable, atomic=step.walk.exchange)
    values |= {"walk": step.walk, "launch": step.launch, "costly": step.costly}
    text = store + builder.body(step.body)
    if step.run is None:
        return text + templates.render("schedules/map", **values)
    (source,) = step.body.children
    assert isinstance(source, Tensor)
    values |= {"run": step.run, "size": step.output.sizes[step.run], "words": step.words}
    values["total"] = step.walk.items(step.output)
    return text + builder.words("input", source, 1, step.words) + templates.render("schedules/map_words", **values)


@render_step.register
def _rows(step: ScheduledWordRows, builder: Builder) -> str:
    (source,) = step.body.children
    assert isinstance(source, Tensor)
    options = {"walk": step.walk, "launch": step.launch, "run": step.run, "first": step.first}
    options["size"] = step.output.sizes[step.run]
    if step.wide:
        store, values = builder.wide_store(step.output)
        text = store + builder.doubles("input", source)
        options |= _ends(step.first, step.output.sizes[step.run], 4 * step.words)
        return text + templates.render("schedules/map_wide_rows", **options, **values)
    store, values = builder.store(step.output)
    text = store + builder.body(step.body) + builder.words("input", source, 1, step.words)
    options |= {"words": step.words, "keeps_neighbours": step.keeps_neighbours}
    return text + templates.render("schedules/map_rows", **options, **values)


def _ends(first: int, size: int, width: int) -> dict[str, Any]:
    """Return the ``width`` of a block in bytes, and which bits of the first and of the last block belong to a row that
    begins with the byte ``first``, each as two numbers of 64 bits."""
    every, half = (1 << 8 * width) - 1, 1 << 4 * width
    begin = every >> 8 * first << 8 * first
    end = every >> 8 * (-(first + size) % width)
    return {"width": width, "begin": (begin % half, begin // half), "end": (end % half, end // half)}


@render_step.register
def _blocks(step: ScheduledBlocks, builder: Builder) -> str:
    units = step.output.sizes[step.dimension]
    store, values = builder.store(step.output)
    values |= {"blocks": step, "units": units, "walk": step.walk, "launch": step.launch}
    return store + builder.body(step.body) + templates.render("schedules/map_blocks", **values)


@render_step.register
def _runs(step: ScheduledRuns, builder: Builder) -> str:
    body, output = step.body, step.output
    text, values = builder.store(output, body.portable)
    text += "".join(builder.load(name, leaf, portable=True) for name, leaf in step.fixed)
    text += builder.element_of(body, {leaf: name for name, leaf in step.fixed})
    values |= {"axis": step.axis, "units": output.sizes[step.axis], "fixed": [name for name, _ in step.fixed]}
    return text + templates.render("schedules/map_runs", walk=step.walk, launch=step.launch, **values)


@render_step.register
def _transpose(step: ScheduledTranspose, builder: Builder) -> str:
    output, bits, lanes = step.output, step.output.data_type.bits, step.output.lanes
    store, values = builder.store(output)
    columns = [
        raw_unit([raw_lane(f"row{row}", column, bits, output.unit_bits) for row in range(lanes)], bits)
        for column in range(lanes)
    ]
    text = store + builder.load("input", step.source)
    return text + templates.render("schedules/transpose", transpose=step, columns=columns, launch=step.launch, **values)
