"""Products by cooperative matrices."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperative
from dmlgpu.compiler.wgsl.matrices import WRITERS
from dmlgpu.compiler.wgsl.steps.products import keep, operand, output_digits
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
        "inner": space.inner[0],
        "digits": output_digits(space, step.output.lanes),
        "block": step.matrices.block,
        "subgroups": step.subgroups,
        "side": step.across,
        "matrix": WRITERS[step.matrices.dialect](step.matrices),
        "operands": (("a", a_slab, rows, step.edges[0]), ("b", b_slab, columns, step.edges[1])),
        "is_partial_step": step.edges[2],
    }
    text = writer.epilogue(step.epilogue, DataType.FLOAT32)
    for name, source in (("a", step.a), ("b", step.b)):
        text += operand(writer, name, source, UNIT, transposes=False)
    return text + keep(step.output, values, 1)
