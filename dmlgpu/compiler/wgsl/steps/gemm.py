"""Products in tiles: sums of products, and what is made of them."""

from __future__ import annotations

import math

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.schedule.steps import ScheduledContract
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.steps.operands import keep, operand, spread
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import scalar_of, vector


@render_step.register
def _contract(step: ScheduledContract, builder: Builder) -> str:
    tile, output, space = step.tile, step.output, step.space
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    across, down = tile.groups(rows, columns)
    kind = scalar_of(step.accumulator, builder.target, portable=True)
    store, values = builder.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    inner = len(space.inner)
    values |= {
        "launch": step.launch,
        "tile": tile,
        "sum_t": vector(kind, UNIT),
        "across": across,
        "down": down,
        "batches": math.prod(space.batch),
        "rows": rows // step.interleaved,
        "columns": columns * step.interleaved,
        "interleaved": step.interleaved,
        "digits": _output_digits(step),
        "inner": space.inner,
        "inner_rest": math.prod(space.inner[1:]),
        "inner_names": ", ".join(f"k{dimension}" for dimension in range(inner)),
        "inner_digits": ", ".join(spread("step", space.inner)),
        "parts": step.parts,
        "share": step.share,
        "chunk": step.chunk,
        "sharing": step.sharing,
        "steps": step.steps,
        "between": 1 if step.beside else tile.across,
        "paired": is_paired(output),
        "depth": tile.depth,
        "width": tile.width,
    }
    text = store + builder.epilogue(step.epilogue, step.accumulator)
    for name, source, unit in (("a", step.a, tile.width), ("b", step.b, UNIT)):
        values[f"{name}_fetch"] = source.fetch
        text += operand(builder, name, source, inner=inner, width=unit, accumulator=step.accumulator)
    return text + keep(output, values) + templates.render(f"schedules/gemm_{step.schedule}", **values)


def _output_digits(step: ScheduledContract) -> list[str]:
    """Return the coordinates of the output: rows that are interleaved have none of their own."""
    space = step.space
    rows = space.rows if step.interleaved == 1 else space.rows[:-1]
    columns = (*space.columns[:-1], space.columns[-1] * step.interleaved // step.output.lanes)
    parts = ["part"] if step.parts > 1 else []
    return [*parts, *spread("batch", space.batch), *spread("row", rows), *spread("column", columns)]
