"""Attention: rows of queries against blocks of keys."""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps import ScheduledAttend
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.linker import prefix
from dmlgpu.compiler.wgsl.steps.operands import keep, operand, spread
from dmlgpu.compiler.wgsl.steps.step import render_step
from dmlgpu.compiler.wgsl.types import Scalar, vector

FLOAT32 = DataType.FLOAT32

_OPERAND: dict[str, Any] = {"inner": 1, "accumulator": FLOAT32}


@render_step.register
def _attend(step: ScheduledAttend, builder: Builder) -> str:
    tile, output = step.tile, step.output
    *_, batch, shared, group, length, _ = (1, *output.sizes)
    rows, width = group * length, tile.width
    down, across = tile.groups(rows, step.units)
    store, values = builder.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    columns = step.epilogue.sizes[-1]
    parts = ["part"] if step.parts > 1 else []
    digits = {"batch": spread("batch", (batch, shared)), "row": spread("row", (group, length))}
    values |= {
        "launch": step.launch,
        "tile": tile,
        "width": width,
        "vectors": tile.rows // width,
        "row_parts": [f".{part}" for part in "xyzw"[:width]] if width > 1 else [""],
        "rows_t": vector(Scalar.F32, width),
        "across": across,
        "down": down,
        "batches": batch * shared,
        "rows": rows,
        "columns": columns * output.lanes,
        "digits": [*parts, *digits["batch"], *digits["row"], *spread("column", (columns,))],
        "keys": step.score.sizes[-1],
        "size": step.query.source.sizes[step.query.inner_at],
        "units": step.units,
        "parts": step.parts,
        "share": step.share,
        "plain": step.is_plain,
        "causal": step.visible is not None,
        "in_step": tile.alone == 1,
    }
    text = store + builder.epilogue(step.epilogue, FLOAT32)
    text += _operands(step, builder, digits) + _scores(step, builder, digits)
    schedule = "attention_rows" if tile.by_rows else "attention"
    return text + keep(output, values) + templates.render(f"schedules/{schedule}", **values)


def _operands(step: ScheduledAttend, builder: Builder, digits: dict[str, list[str]]) -> str:
    """Return how queries, keys, values and the number of keys that a row sees are read."""
    text = operand(builder, "query", step.query, width=step.tile.width, **_OPERAND)
    text += operand(builder, "key", step.key, width=UNIT, **_OPERAND)
    along = {"value": ["row"], "visible": digits["row"]}
    for name, source in (("value", step.value), ("visible", step.visible)):
        if source is not None:
            text += builder.source(name, source, raw=False, portable=True)
            values: dict[str, Any] = {"name": name, "digits": [*digits["batch"], *along[name]]}
            text += templates.render("schedules/attention_place", parameters=("row",), **values)
    return text


def _scores(step: ScheduledAttend, builder: Builder, digits: dict[str, list[str]]) -> str:
    """``score_finish``: a score by its place and the product of query and key."""
    types = templates.render("access/types", name="output", rank=step.score.rank, scalar="f32", unit="f32")
    text = prefix(types + builder.epilogue(step.score, FLOAT32), "score_")
    names = {"name": "score_output", "digits": [*digits["batch"], *digits["row"], "column"]}
    return text + templates.render("schedules/attention_place", parameters=("row", "column"), **names)
