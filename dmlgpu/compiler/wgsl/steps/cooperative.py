"""Products by cooperative matrices."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperative
from dmlgpu.compiler.wgsl.steps.products import keep, operand, output_digits
from dmlgpu.compiler.wgsl.writer import ShaderWriter, special


@special.register
def _cooperative(step: ScheduledCooperative, writer: ShaderWriter, values: dict[str, Any]) -> str:
    space = step.space
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    values |= {
        "across": columns // step.tile,
        "down": rows // step.tile,
        "rows": rows,
        "columns": columns,
        "digits": output_digits(space, step.output.lanes),
    }
    text = writer.epilogue(step.epilogue, DataType.FLOAT32)
    for name, source in (("a", step.a), ("b", step.b)):
        text += operand(writer, name, source, UNIT, transposes=False)
    return text + keep(step.output, values)
