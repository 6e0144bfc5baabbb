"""Products by cooperative matrices."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.cooperative import (
    ScheduledCooperative,
    ScheduledCooperativeAttend,
    ScheduledCooperativeIntegers,
)
from dmlgpu.compiler.schedule.steps.products import OperandLayout
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.matrices import WRITERS
from dmlgpu.compiler.wgsl.steps.packed_products import integer_operands
from dmlgpu.compiler.wgsl.steps.products import attention, keep, operand, operand_values, output_digits, spread
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special


@special.register
def _cooperative(step: ScheduledCooperative, writer: ShaderWriter, values: dict[str, Any]) -> str:
    space, (a_slab, b_slab) = step.space, step.slabs
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    values |= {
        "across": -(-columns // b_slab.own),
        "down": -(-rows // a_slab.own),
        "rows": rows,
        "columns": columns,
        "inner": space.inner[-1],
        "taps": math.prod(space.inner[:-1]),
        "tap_digits": spread("tap", space.inner[:-1]),
        "batches": math.prod(space.batch),
        "digits": output_digits(space, step.output.lanes, parts=step.parts),
        "block": step.matrices.block,
        "subgroups": step.subgroups,
        "side": step.across,
        "matrix": WRITERS[step.matrices.dialect](step.matrices),
        "operands": (
            ("a", step.a, a_slab, rows, step.edges[0]),
            ("b", step.b, b_slab, columns, step.edges[1]),
        ),
        "is_partial_step": step.edges[2],
    }
    text = writer.epilogue(step.epilogue, DataType.FLOAT32)
    for name, source, slab in (("a", step.a, a_slab), ("b", step.b, b_slab)):
        if source.layout is OperandLayout.SEEN:
            text += writer.source(name, source.source, raw=False, portable=True)
            text += templates.render(
                "schedules/gemm_taps", in_units=not slab.gathers, **operand_values(name, source, "f32", 1)
            )
        else:
            text += operand(writer, name, source, UNIT, transposes=False)
    return text + keep(step.output, values, 1)


@special.register
def _cooperative_integers(step: ScheduledCooperativeIntegers, writer: ShaderWriter, values: dict[str, Any]) -> str:
    space, matrices = step.space, step.matrices
    counts = {"a": math.prod(space.rows), "b": math.prod(space.columns)}
    tile = dict(zip("ab", step.tile, strict=True))
    values |= {
        "across": -(-counts["b"] // tile["b"]),
        "down": -(-counts["a"] // tile["a"]),
        "rows": counts["a"],
        "columns": counts["b"],
        "batches": math.prod(space.batch),
        "digits": output_digits(space, step.output.lanes, parts=step.parts),
        "block": matrices.block,
        "subgroups": step.subgroups,
        "side": step.across,
        "stride": step.words_per_slab + step.padding,
        "inner": step.words,
        "matrix": WRITERS[matrices.dialect](matrices),
        "operands": [
            (name, operand.fetch.inner_fastest, tile[name], counts[name]) for name, operand, _ in step.operands()
        ],
    }
    text = writer.epilogue(step.epilogue, DataType.INT32)
    return text + integer_operands(step, writer, values) + keep(step.output, values, 1)


@special.register
def _cooperative_attend(step: ScheduledCooperativeAttend, writer: ShaderWriter, values: dict[str, Any]) -> str:
    matrices = step.matrices
    width = (1 if step.splits_keys else step.across) * matrices.columns
    text = attention(step, writer, values)
    values |= {
        "matrix": WRITERS[matrices.dialect](matrices),
        "tiles": -(-values["rows"] // step.tile_rows),
        "head_padded": -(-step.head // matrices.steps) * matrices.steps,
        "columns_padded": -(-step.columns // width) * width,
        "units": step.columns // UNIT,
        "share": values["keys"],
    }
    return text
