"""Attend: rows of queries against blocks of keys."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.kernels.attention import Attend
from dmlgpu.kernels.gemm import Form, Operand, spread
from dmlgpu.kernels.gemm_schedules import UNIT
from dmlgpu.kernels.grid import Launch, fold
from dmlgpu.kernels.sources import leaves
from dmlgpu.kernels.walk import WORD_BITS
from dmlgpu.plan import Source, Tensor
from dmlgpu.target import Target
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.linker import prefix
from dmlgpu.wgsl.steps.step import Rendered, render_step
from dmlgpu.wgsl.types import Scalar, vector


@render_step.register
def _attend(step: Attend, builder: Builder, target: Target) -> Rendered:
    tile, output = step.tile, step.output
    *_, batch, shared, group, length, _ = (1, *output.sizes)
    rows, batches, width = group * length, batch * shared, min(tile.rows, UNIT)
    down, across = tile.groups(rows, step.units)
    total = across * down * batches * step.parts
    launch = Launch(tile.workgroup, 1, fold(total, target), total)
    store, values = builder.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    columns = step.epilogue.sizes[-1]
    parts = ["part"] if step.parts > 1 else []
    digits = {"batch": spread("batch", (batch, shared)), "row": spread("row", (group, length))}
    values |= {
        "launch": launch,
        "tile": tile,
        "width": width,
        "vectors": tile.rows // width,
        "row_parts": [f".{part}" for part in "xyzw"[:width]] if width > 1 else [""],
        "rows_t": vector(Scalar.F32, width),
        "across": across,
        "down": down,
        "batches": batches,
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
    }
    text = store + builder.epilogue(step.epilogue, step.epilogue.inputs[0][1].data_type)
    text += _operands(step, builder, digits) + _scores(step, builder, digits)
    text += templates.render(f"schedules/gemm_keep_{'unit' if output.lanes == UNIT else 'lanes'}", **values)
    text += templates.render("schedules/attention", **values)
    sources = (step.query.source, step.key.source, step.value, step.score, *((step.visible,) if step.visible else ()))
    return Rendered(text, launch, (output, *_tensors(*sources)), output.lanes)


def _operands(step: Attend, builder: Builder, digits: dict[str, list[str]]) -> str:
    """How queries, keys, values and the number of keys that a row sees are read."""
    text = _operand(step.query, "query", min(step.tile.rows, UNIT), builder) + _operand(step.key, "key", UNIT, builder)
    along = {"value": ["row"], "visible": digits["row"]}
    for name, source in (("value", step.value), ("visible", step.visible)):
        if source is not None:
            text += builder.source(name, source, raw=False, portable=True)
            values: dict[str, Any] = {"name": name, "digits": [*digits["batch"], *along[name]]}
            text += templates.render("schedules/attention_place", parameters=("row",), **values)
    return text


def _operand(operand: Operand, name: str, width: int, builder: Builder) -> str:
    """Queries or keys as a product reads them: units of rows or of keys, number by number of a head."""
    lanes = UNIT if operand.form is Form.ACROSS else 1
    values: dict[str, Any] = {
        "name": name,
        "unit_t": vector(Scalar.F32, width),
        "width": width,
        "count": math.prod(operand.own),
        "batch_digits": spread("batch", operand.batch),
        "own_digits": spread("own", (*operand.own[:-1], operand.own[-1] // lanes)),
        "own_at": operand.own_at,
        "inner_at": operand.inner_at,
        "inner_steps": ["k0"],
        "parameters": "k0: u32",
        "arguments": "k0",
    }
    text = builder.source(name, operand.source, raw=False, portable=True)
    text += templates.render("schedules/gemm_operand", **values)
    return text + templates.render(f"schedules/gemm_{operand.form}", **values)


def _scores(step: Attend, builder: Builder, digits: dict[str, list[str]]) -> str:
    """``score_finish``: a score by its place and the product of query and key."""
    types = templates.render("access/types", name="output", rank=step.score.rank, scalar="f32", unit="f32")
    text = prefix(types + builder.epilogue(step.score, step.epilogue.inputs[0][1].data_type), "score_")
    names = {"name": "score_output", "digits": [*digits["batch"], *digits["row"], "column"]}
    return text + templates.render("schedules/attention_place", parameters=("row", "column"), **names)


def _tensors(*sources: Source) -> list[Tensor]:
    return [tensor for source in sources for tensor in leaves(source)]
