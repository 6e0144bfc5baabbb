"""Products of few rows with quantized columns."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.schedule.steps.quantized import ScheduledQuantizedProduct
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.steps.products import spread
from dmlgpu.compiler.wgsl.writer import ShaderWriter, render_step


@render_step.register
def _quantized(step: ScheduledQuantizedProduct, writer: ShaderWriter) -> str:
    output, space, b = step.output, step.space, step.b
    rows, columns = math.prod(space.rows), math.prod(space.columns)
    store, values = writer.store(output, step.epilogue.portable, atomic=output.unit_bits < WORD_BITS)
    text = store + writer.epilogue(step.epilogue, DataType.FLOAT32)
    text += writer.source("a", step.a, raw=False, portable=True)
    operands = {"words": b.words, "scale": b.scale, "zero": b.zero_point}
    present = {name: tensor for name, tensor in operands.items() if tensor is not None}
    text += "".join(writer.load(name, tensor, portable=True) for name, tensor in present.items())
    digits = {"batch": spread("batch", space.batch), "row": spread("row", space.rows)}
    digits["column"] = spread("column", space.columns)
    sign_bits = sum(1 << (b.bits * place + b.bits - 1) for place in range(b.in_word))
    values |= {
        "launch": step.launch,
        "digits": [*digits["batch"], *digits["row"], *digits["column"]],
        "batch_digits": digits["batch"],
        "row_digits": digits["row"],
        "column_digits": digits["column"],
        "a_inner": len(space.batch) + len(space.rows),
        "a_lanes": step.a.lanes,
        "tensors": tuple(present),
        "bits": b.bits,
        "in_word": b.in_word,
        "in_unit": b.words.lanes,
        "words_of_unit": b.words_of_unit,
        "flip": "" if b.signed else hex(sign_bits),
        "middle": f"{b.middle}.0",
        "has_zero": not b.is_centered,
        "zero_known": _known_zero_point(step),
        "blocks": space.inner[0],
        "units": space.inner[1] // b.words.lanes,
        "column_tiles": -(-columns // (step.columns * step.down)),
        "row_tiles": -(-rows // step.rows),
        "all_rows": rows,
        "all_columns": columns,
        "sharing": step.sharing,
        "distances": [1 << place for place in reversed(range(step.sharing.bit_length() - 1))],
        "across": step.across,
        "down": step.down,
    }
    text += templates.render("schedules/quantized_operands", **values)
    keep: dict[str, Any] = {**values, "rows": rows, "columns": columns}
    text += "alias sum_t = vec4<f32>;\n" + templates.render("schedules/gemm_keep_lanes", **keep)
    values |= {"rows": step.rows, "columns": step.columns}
    return text + templates.render(f"schedules/quantized_{step.schedule}", **values)


def _known_zero_point(step: ScheduledQuantizedProduct) -> str | None:
    """Return the zero point of all signed integers as text, empty for 0; None if it is loaded."""
    if step.b.zero_point is not None:
        return None
    return "" if step.b.is_centered else f"f32({step.b.known - step.b.middle})"
