"""Products by cooperative matrices."""

from __future__ import annotations

import math

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.cooperative import BLOCK, SIDE, TILE, ScheduledCooperative
from dmlgpu.compiler.schedule.steps.products import OperandLayout
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.steps.products import keep, operand, spread
from dmlgpu.compiler.wgsl.writer import ShaderWriter, render_step


@render_step.register
def _cooperative(step: ScheduledCooperative, writer: ShaderWriter) -> str:
    space, output = step.space, step.output
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    last = space.columns[-1] // output.lanes
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    values |= {
        "launch": step.launch,
        "side": SIDE,
        "block": BLOCK,
        "tile": TILE,
        "depth": step.depth,
        "across": columns // TILE,
        "down": rows // TILE,
        "batches": math.prod(space.batch),
        "rows": rows,
        "columns": columns,
        "inner": space.inner[0],
        "digits": [
            *spread("batch", space.batch),
            *spread("row", space.rows),
            *spread("column", (*space.columns[:-1], last)),
        ],
        "along": {"a": step.a.layout is OperandLayout.ALONG, "b": step.b.layout is OperandLayout.ALONG},
    }
    text = store + writer.epilogue(step.epilogue, DataType.FLOAT32)
    for name, source in (("a", step.a), ("b", step.b)):
        text += operand(writer, name, source, width=UNIT, accumulator=DataType.FLOAT32, transposes=False)
    return text + keep(output, values) + templates.render("schedules/gemm_cooperative", **values)
